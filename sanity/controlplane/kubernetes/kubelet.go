package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/cmd/kubelet/app"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

const (
	runtimeTimeout   = 15 * time.Second
	heartbeatTimeout = 10 * time.Second // as in the real kubelet: never longer than a status period
)

// machine answers for the machine under the kubelet. Its boot ID is read from
// a file when a kubelet starts, so that a reboot is a new line in that file.
type machine struct {
	cadvisortest.Fake
	bootIDFile, systemUUID string
}

// identified is what cadvisor's fake says, with what tells this machine from others.
func (m *machine) identified(info *machineInfo, err error) (*machineInfo, error) {
	if err != nil {
		return nil, err
	}
	id, err := os.ReadFile(m.bootIDFile)
	if err != nil {
		return nil, err
	}
	info.BootID = strings.TrimSpace(string(id))
	info.SystemUUID = m.systemUUID
	info.MachineID = "machine-" + m.NodeName
	return info, nil
}

// kubeletOptions is the command line of the kubelet subcommand.
type kubeletOptions struct {
	name, kubeconfig, root, bootIDFile, systemUUID, runtimeEndpoint string
	address, clientCA, cloudProvider                                string
	port                                                            int
	labels                                                          map[string]string
	clockOffset                                                     time.Duration
}

func (o kubeletOptions) validate() error {
	if o.name == "" || o.kubeconfig == "" || o.root == "" || o.bootIDFile == "" || o.systemUUID == "" || o.runtimeEndpoint == "" || o.address == "" || o.clientCA == "" || o.port == 0 {
		return errors.New("--name, --kubeconfig, --root-dir, --boot-id-file, --system-uuid, --container-runtime-endpoint, --address, --client-ca-file and --port are required")
	}
	return nil
}

// newKubeletCommand is a kubelet with the real volume manager, CSI client,
// plugin registration, status manager and server. Only the machine below it (cadvisor,
// cgroups, mount(8)) is not there; its containers live in another process
// (container-runtime), so that a kubelet that restarts finds them running.
func newKubeletCommand() *cobra.Command {
	var o kubeletOptions
	cmd := &cobra.Command{Use: "kubelet", SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runKubelet(cmd.Context(), o) }}
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "node name")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file")
	fs.StringVar(&o.root, "root-dir", "", "the kubelet's root folder; kept across restarts")
	fs.StringVar(&o.bootIDFile, "boot-id-file", "", "file with the machine's boot ID")
	fs.StringVar(&o.systemUUID, "system-uuid", "", "the machine's UUID, as its firmware has it")
	fs.StringVar(&o.runtimeEndpoint, "container-runtime-endpoint", "", "unix:// address of the container runtime")
	fs.StringVar(&o.address, "address", "", "IP address of the kubelet's own server")
	fs.IntVar(&o.port, "port", 0, "port of the kubelet's own server")
	fs.StringVar(&o.clientCA, "client-ca-file", "", "file with the cluster's certificate authority")
	fs.StringVar(&o.cloudProvider, "cloud-provider", "", "external: something else says the Node's addresses; empty: the kubelet does")
	fs.StringToStringVar(&o.labels, "node-labels", nil, "labels of the Node")
	fs.DurationVar(&o.clockOffset, "clock-offset", 0, "how far this machine's clock is ahead (negative: behind)")
	return cmd
}

func runKubelet(ctx context.Context, o kubeletOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	client, heartbeat, err := kubeletClients(o)
	if err != nil {
		return err
	}
	runtime, images, err := connectRuntime(ctx, o.runtimeEndpoint)
	if err != nil {
		return fmt.Errorf("container runtime %s: %w", o.runtimeEndpoint, err)
	}

	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: o.name, KubeletPort: o.port, MaxPods: 110, NodeLabels: o.labels})
	// GetHollowKubeletConfig makes a temporary folder that we do not want.
	os.RemoveAll(flags.RootDirectory)
	flags.RootDirectory = o.root
	flags.CloudProvider = o.cloudProvider
	config.StaticPodPath = ""
	config.PodLogsDir = filepath.Join(o.root, "pod-logs")
	config.Address = o.address
	config.ReadOnlyPort = 0
	config.EnableControllerAttachDetach = true
	if err := os.MkdirAll(config.PodLogsDir, 0o755); err != nil {
		return err
	}
	kubelet := kubemark.NewHollowKubelet(flags, config, client, heartbeat,
		&machine{Fake: cadvisortest.Fake{NodeName: o.name}, bootIDFile: o.bootIDFile, systemUUID: o.systemUUID},
		images, runtime, cm.NewStubContainerManager())
	if err := secureServer(ctx, kubelet, o); err != nil {
		return fmt.Errorf("the kubelet's own server: %w", err)
	}
	runHollow(ctx, kubelet)
	return nil
}

// secureServer gives the kubelet's own server what the real kubelet's main gives it,
// with kubeadm's settings: TLS with a certificate that the kubelet has signed itself
// and that lasts as long as its root folder, and callers whom the API server knows by
// their token or certificate and lets do what they ask for. A kubemark kubelet serves
// everybody, without TLS.
func secureServer(ctx context.Context, kubelet *kubemark.HollowKubelet, o kubeletOptions) error {
	config, deps := kubelet.KubeletConfiguration, kubelet.KubeletDeps
	kubelet.KubeletFlags.CertDirectory = filepath.Join(o.root, "pki")
	config.Authentication.X509.ClientCAFile = o.clientCA
	config.Authentication.Webhook.Enabled = true
	config.Authentication.Anonymous.Enabled = false
	config.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	if err := initializeTLS(ctx, kubelet); err != nil {
		return err
	}
	auth, followClientCA, err := app.BuildAuth(types.NodeName(o.name), deps.KubeClient, *config)
	if err != nil {
		return err
	}
	deps.Auth = auth
	followClientCA(ctx.Done())
	return nil
}

// kubeletClients are the kubelet's two clients, one of them for heartbeats
// only, as in the real kubelet's main.
func kubeletClients(o kubeletOptions) (client, heartbeat *clientset.Clientset, err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	cfg.UserAgent = "kubelet"
	cfg.QPS, cfg.Burst = 50, 100
	if o.clockOffset != 0 {
		cfg.ContentType = "application/json" // what skewedClock reads
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return &skewedClock{next: next, offset: o.clockOffset}
		})
	}
	if client, err = clientset.NewForConfig(cfg); err != nil {
		return nil, nil, err
	}
	beat := restclient.CopyConfig(cfg)
	beat.Timeout = heartbeatTimeout
	beat.QPS = -1
	heartbeat, err = clientset.NewForConfig(beat)
	return client, heartbeat, err
}

// newRuntimeCommand is the container runtime of one node: the fake one of the CRI
// client's tests, in a process of its own that outlives its kubelet.
func newRuntimeCommand() *cobra.Command {
	var endpoint string
	cmd := &cobra.Command{Use: "container-runtime", SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if endpoint == "" {
				return errors.New("--endpoint is required")
			}
			runtime := newFakeRuntime()
			runtime.ImageService.SetFakeImageSize(1) // a kubelet refuses an image without a size
			if err := runtime.Start(endpoint); err != nil {
				return err
			}
			select {} // until killed, as a power switch does
		}}
	cmd.Flags().StringVar(&endpoint, "endpoint", "", "unix:// address to serve")
	return cmd
}
