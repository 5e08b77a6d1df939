package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

const (
	startTimeout  = 90 * time.Second // a machine that is busy with other clusters
	pollInterval  = 50 * time.Millisecond
	startAttempts = 3 // a port that a stranger took in the meantime
	keepEnv       = "SANITY_KEEP"
)

// Options of a cluster. The zero value of each means Kubernetes' own default.
type Options struct {
	// Binaries from [Build]; required.
	Binaries Binaries
	// ForceDetachAfter is how long the attach-detach controller waits before it
	// detaches a volume that is still mounted from a node that is not Ready.
	ForceDetachAfter time.Duration
	// NodeMonitorGracePeriod is how long a node may be silent before it is
	// NotReady. Kubelets report every 10 s: keep it above 20 s.
	NodeMonitorGracePeriod time.Duration
	// ControllerManagerArgs, SchedulerArgs and APIServerArgs are added to the
	// command lines.
	ControllerManagerArgs []string
	SchedulerArgs         []string
	APIServerArgs         []string
	// NoControllers leaves controller manager and scheduler out: the caller
	// plays them.
	NoControllers bool
	// KeepOnFailure is asked by Stop: true keeps the folder with its logs, for
	// instance testing.TB.Failed. With SANITY_KEEP=1 in the environment it is
	// always kept.
	KeepOnFailure func() bool
}

// Cluster is a running control plane. Its methods can be called concurrently.
type Cluster struct {
	options   Options
	folder    *tempdir.Folder
	ports     portSet
	authority *authority

	etcdPort, apiPort, managerPort, schedulerPort int

	admin      *rest.Config
	client     kubernetes.Interface
	kubeconfig string // of the administrator

	mu        sync.Mutex
	names     map[string]int // how often a name was given to a file
	processes []*Process
	networks  []*network
	stopped   bool
	etcd      *Process
	apiServer *Process
	manager   *Process
	scheduler *Process
}

// Start starts a control plane without nodes and returns when it serves: the
// API server is ready and pods can be created in the default namespace (with
// Options.NoControllers, once the caller has made its service account). ctx
// bounds the start only; end the cluster with Stop.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Binaries.Kubernetes == "" || options.Binaries.Etcd == "" {
		return nil, errors.New("Options.Binaries is empty; get it from Build")
	}
	for attempt := 1; ; attempt++ {
		cluster, err := startOnce(ctx, options)
		if err == nil {
			return cluster, nil
		}
		if attempt == startAttempts || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

func startOnce(ctx context.Context, options Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	folder, err := tempdir.New()
	if err != nil {
		return nil, err
	}
	removeOrphanNetworks()
	c := &Cluster{options: options, folder: folder, names: map[string]int{}}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, dir := range []string{"logs", "pki", "kubeconfigs", "nodes", "tmp"} {
		if err := os.Mkdir(filepath.Join(c.folder.Path, dir), 0o755); err != nil {
			return err
		}
	}
	for _, port := range []*int{&c.etcdPort, &c.apiPort, &c.managerPort, &c.schedulerPort} {
		var err error
		if *port, err = c.ports.take(); err != nil {
			return err
		}
	}
	if err := c.prepareIdentities(); err != nil {
		return err
	}
	var err error
	if c.etcd, err = c.StartProcess(c.etcdCommand()); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if c.options.NoControllers {
		return nil
	}
	if err := c.StartControllerManager(ctx); err != nil {
		return err
	}
	command, err := c.schedulerCommand()
	if err != nil {
		return err
	}
	if c.scheduler, err = c.StartProcess(command); err != nil {
		return err
	}
	return c.waitUntil(ctx, "the service account of the default namespace", func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	}, c.etcd, c.apiServer, c.manager, c.scheduler)
}

// prepareIdentities writes the keys and certificates and makes the
// administrator's client.
func (c *Cluster) prepareIdentities() error {
	var err error
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	serving, err := c.authority.server("kube-apiserver")
	if err != nil {
		return err
	}
	tokens, err := newServiceAccountKey()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.authority.certPEM, "apiserver.crt": serving.cert, "apiserver.key": serving.key,
		"service-accounts.pub": tokens.cert, "service-accounts.key": tokens.key,
	} {
		if err := os.WriteFile(c.pki(name), content, 0o600); err != nil {
			return err
		}
	}
	if c.admin, err = c.restConfig("admin", "system:masters"); err != nil {
		return err
	}
	if c.kubeconfig, err = c.Kubeconfig("admin", "system:masters"); err != nil {
		return err
	}
	c.client, err = kubernetes.NewForConfig(c.admin)
	return err
}

// Stop ends every process of the cluster and removes its folder, or keeps it
// (see Options.KeepOnFailure). A second call does nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil
	}
	c.stopped = true
	processes, networks := c.processes, c.networks
	c.mu.Unlock()

	var wait sync.WaitGroup
	for _, p := range processes {
		wait.Go(func() { p.Stop(0) })
	}
	wait.Wait()
	c.ports.close()
	var errs []error
	for _, n := range networks {
		errs = append(errs, n.remove())
	}
	keep := os.Getenv(keepEnv) == "1" || (c.options.KeepOnFailure != nil && c.options.KeepOnFailure())
	return errors.Join(append(errs, c.folder.Remove(keep))...)
}

// newNetwork makes a network that ends with the cluster.
func (c *Cluster) newNetwork() (*network, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("the cluster was stopped")
	}
	n, err := newNetwork(fmt.Sprintf("127.0.0.1:%d", c.apiPort))
	if err != nil {
		return nil, err
	}
	c.networks = append(c.networks, n)
	return n, nil
}

// StartProcess starts a program that ends with the cluster. Without a LogFile
// its log goes to the cluster's folder; its temporary files go there too.
func (c *Cluster) StartProcess(options ProcessOptions) (*Process, error) {
	if options.LogFile == "" {
		options.LogFile = filepath.Join(c.folder.Path, "logs", c.uniqueName(options.Name)+".log")
	}
	options.Env = append([]string{"TMPDIR=" + filepath.Join(c.folder.Path, "tmp")}, options.Env...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("start %s: the cluster was stopped", options.Name)
	}
	p, err := StartProcess(options)
	if err != nil {
		return nil, err
	}
	c.processes = append(c.processes, p)
	return p, nil
}

// Folder is the cluster's temporary folder; logs are in its folder logs.
func (c *Cluster) Folder() string { return c.folder.Path }

// Admin is the client configuration of a cluster administrator; a copy.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// Client is an administrator's client.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// AdminKubeconfig is the path of the administrator's kubeconfig file.
func (c *Cluster) AdminKubeconfig() string { return c.kubeconfig }

func (c *Cluster) pki(name string) string { return filepath.Join(c.folder.Path, "pki", name) }

// uniqueName gives each caller that asks for the same name another one.
func (c *Cluster) uniqueName(name string) string {
	name = strings.NewReplacer("/", "-", ":", "-").Replace(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[name]++
	if n := c.names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// waitUntil polls until ready says so, ctx ends, or one of the processes that
// it takes for it has exited; then the error shows the end of its log.
func (c *Cluster) waitUntil(ctx context.Context, what string, ready func(context.Context) (bool, error), needs ...*Process) error {
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		ok, err := ready(attempt)
		cancel()
		if ok {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		for _, p := range needs {
			if p.Exited() {
				return fmt.Errorf("%s exited while waiting for %s; its log ends: %s", p.Name(), what, p.logTail())
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last seen: %v)", what, ctx.Err(), last)
		case <-time.After(pollInterval):
		}
	}
}
