package controlplane

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// controllers are those that storage scenarios need: workloads, nodes, volumes
// and what these rest on. All others would only use the machine's time.
var controllers = []string{
	"daemonset-controller",
	"deployment-controller",
	"disruption-controller",
	"ephemeral-volume-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"persistentvolume-attach-detach-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
	"pod-garbage-collector-controller",
	"replicaset-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"statefulset-controller",
	"taint-eviction-controller",
	"validatingadmissionpolicy-status-controller",
}

// roomy has a program of Go's collect its garbage a quarter as often: the control plane
// shares its processors with all that it serves, and memory is there.
const roomy = "GOGC=400"

func (c *Cluster) etcdCommand() ProcessOptions {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	peer := "unix://127.0.0.1:0" // one member has no peers, so it needs no port
	return ProcessOptions{Name: "etcd", Path: c.options.Binaries.Etcd, Env: []string{roomy}, Args: []string{
		"--data-dir=" + c.folder.Path + "/etcd",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", "--log-level=warn", "--logger=zap",
	}}
}

func (c *Cluster) apiServerCommand() ProcessOptions {
	return ProcessOptions{Name: "kube-apiserver", Path: c.options.Binaries.Kubernetes, Env: []string{roomy}, Args: append([]string{"kube-apiserver",
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcdPort),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.apiPort),
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"), "--cert-dir=" + c.pki("run"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + c.pki("service-accounts.key"),
		"--service-account-key-file=" + c.pki("service-accounts.pub"),
	}, c.options.APIServerArgs...)}
}

func (c *Cluster) controllerManagerCommand() (ProcessOptions, error) {
	kubeconfig, err := c.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return ProcessOptions{}, err
	}
	args := []string{"kube-controller-manager",
		"--kubeconfig=" + kubeconfig, "--use-service-account-credentials=true",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.managerPort), "--cert-dir=" + c.pki("run"),
		"--leader-elect=false",
		"--service-account-private-key-file=" + c.pki("service-accounts.key"), "--root-ca-file=" + c.pki("ca.crt"),
		"--controllers=" + strings.Join(controllers, ","),
		// Stories that share a control plane have dead nodes at the same time. With half of
		// them dead the node controller stops tainting the others (K8s
		// node_lifecycle_controller.go, setLimiterInZone, ReducedQPSFunc).
		"--unhealthy-zone-threshold=1",
		// Nor does it take ten seconds for each of them, one after another (--node-eviction-rate).
		"--node-eviction-rate=10",
		"--v=2",
	}
	if d := c.options.NodeMonitorGracePeriod; d > 0 {
		args = append(args, "--node-monitor-grace-period="+d.String())
	}
	options := ProcessOptions{Name: "kube-controller-manager", Path: c.options.Binaries.Kubernetes, Env: []string{roomy},
		Args: append(args, c.options.ControllerManagerArgs...)}
	if d := c.options.ForceDetachAfter; d > 0 {
		options.Env = append(options.Env, "SANITY_FORCE_DETACH_AFTER="+d.String())
	}
	return options, nil
}

func (c *Cluster) schedulerCommand() (ProcessOptions, error) {
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler")
	return ProcessOptions{Name: "kube-scheduler", Path: c.options.Binaries.Kubernetes, Args: append([]string{"kube-scheduler",
		"--kubeconfig=" + kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.schedulerPort), "--cert-dir=" + c.pki("run"),
	}, c.options.SchedulerArgs...)}, err
}

// StartAPIServer starts the API server, again after StopAPIServer on the same
// port, and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	p, err := c.StartProcess(c.apiServerCommand())
	if err != nil {
		return err
	}
	c.setProcess(&c.apiServer, p)
	return c.waitUntil(ctx, "kube-apiserver to be ready", func(ctx context.Context) (bool, error) {
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, err
	}, c.etcd, p)
}

// StopAPIServer begins an outage: the API server is killed, and connections to
// its port are refused until StartAPIServer.
func (c *Cluster) StopAPIServer() { c.process(&c.apiServer).Stop(0) }

// PauseAPIServer begins an outage of the other kind: connections are made, and
// nothing ever answers, until ResumeAPIServer.
func (c *Cluster) PauseAPIServer() error { return c.process(&c.apiServer).Signal(syscall.SIGSTOP) }

// ResumeAPIServer ends what PauseAPIServer began.
func (c *Cluster) ResumeAPIServer() error { return c.process(&c.apiServer).Signal(syscall.SIGCONT) }

// StartControllerManager starts the controller manager, again after
// StopControllerManager, and returns when it serves. What the controllers
// knew in memory is gone, as after a change of leaders.
func (c *Cluster) StartControllerManager(ctx context.Context) error {
	command, err := c.controllerManagerCommand()
	if err != nil {
		return err
	}
	p, err := c.StartProcess(command)
	if err != nil {
		return err
	}
	c.setProcess(&c.manager, p)
	return c.waitUntil(ctx, "kube-controller-manager to serve", func(ctx context.Context) (bool, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", c.managerPort))
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	}, p)
}

// StopControllerManager kills the controller manager.
func (c *Cluster) StopControllerManager() { c.process(&c.manager).Stop(0) }

func (c *Cluster) setProcess(field **Process, p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*field = p
}

func (c *Cluster) process(field **Process) *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *field
}
