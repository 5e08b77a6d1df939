package controlplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const nodeTimeout = 60 * time.Second

// NodeOptions of a node.
type NodeOptions struct {
	// SystemUUID of the machine; empty: a new one.
	SystemUUID string
	// Labels of the Node, as far as a kubelet may set them itself.
	Labels map[string]string
	// ClockOffset is how far the machine's clock is ahead (negative: behind) in
	// the timestamps of its lease and of its Node's conditions.
	ClockOffset time.Duration
	// Network gives the kubelet a network namespace of its own, for
	// [Node.Partition]. It needs root, and iproute2 and nftables.
	Network bool
	// Real gives the node Kubernetes' own kubelet, containerd and containers, on a
	// network of its own. It needs root.
	Real *Real
	// Cut is called before the power of a real node fails: what is mounted there has
	// to be ended then, the kernel would write it back.
	Cut func()
}

// Node is a machine of the cluster: a kubelet and a container runtime, each a
// process of its own. Its folder is its disk and lives as long as the cluster.
type Node struct {
	cluster    *Cluster
	name       string
	systemUUID string
	root       string // the machine's folder
	options    NodeOptions
	kubeconfig string
	port       int
	network    *network     // nil: the host's
	real       *realMachine // nil: the node is a hollow one

	mu      sync.Mutex
	bootID  string
	kubelet *Process
	runtime *Process
}

// AddNode boots a new machine and returns when its Node is Ready; its first lease
// comes up to 10 s later (see AwaitLease). A name that
// another machine had, or still has, makes a second machine under that name,
// with a folder of its own.
func (c *Cluster) AddNode(ctx context.Context, name string, options NodeOptions) (*Node, error) {
	if options.Real != nil && options.ClockOffset != 0 {
		return nil, fmt.Errorf("node %s: a real node has this machine's clock, NodeOptions.ClockOffset is for hollow ones", name)
	}
	network, kubeconfig, err := c.connect(name, options)
	if err != nil {
		return nil, err
	}
	port, err := c.ports.take()
	if err != nil {
		return nil, err
	}
	n := &Node{cluster: c, name: name, systemUUID: cmp.Or(options.SystemUUID, string(uuid.NewUUID())), options: options, kubeconfig: kubeconfig, port: port, network: network,
		root: filepath.Join(c.folder.Path, "nodes", c.uniqueName(name))}
	if options.Real != nil {
		n.real = &realMachine{Real: options.Real, node: n, cut: options.Cut}
	}
	for _, dir := range []string{n.PluginDir(), n.RegistrationDir()} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
	}
	if err := n.Boot(ctx); err != nil {
		n.PowerOff()
		return nil, err
	}
	return n, nil
}

// Name is the name of the Node object.
func (n *Node) Name() string { return n.name }

// RootDir is the kubelet's root folder (/var/lib/kubelet on a real machine).
func (n *Node) RootDir() string { return filepath.Join(n.root, "kubelet") }

// PluginDir is where drivers have their node sockets.
func (n *Node) PluginDir() string { return filepath.Join(n.RootDir(), "plugins") }

// RegistrationDir is where drivers have their registration sockets.
func (n *Node) RegistrationDir() string { return filepath.Join(n.RootDir(), "plugins_registry") }

// SystemUUID is the machine's own, which a BMC knows as its GUID. A second
// machine under the same name has another.
func (n *Node) SystemUUID() string { return n.systemUUID }

// BootID is the boot ID of the latest Boot.
func (n *Node) BootID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bootID
}

// Kubelet is the kubelet's latest process; nil before the first.
func (n *Node) Kubelet() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kubelet
}

// Runtime is the container runtime's latest process; nil before the first.
func (n *Node) Runtime() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runtime
}

// Pause stops the kubelet (SIGSTOP): it hangs, and does nothing on its machine
// either; see Partition for one that works on. The containers and whatever they
// write to go on.
func (n *Node) Pause() error { return n.signalKubelet(syscall.SIGSTOP) }

// Resume ends what Pause began.
func (n *Node) Resume() error { return n.signalKubelet(syscall.SIGCONT) }

func (n *Node) signalKubelet(signal syscall.Signal) error {
	kubelet := n.Kubelet()
	if kubelet == nil {
		return fmt.Errorf("node %s has no kubelet", n.name)
	}
	if n.real != nil {
		return n.real.signal(kubelet, signal)
	}
	return kubelet.Signal(signal)
}

// connect gives a new node its network, if it has one of its own, and the
// kubeconfig that reaches the API server from there.
func (c *Cluster) connect(name string, options NodeOptions) (*network, string, error) {
	if !options.Network && options.Real == nil {
		kubeconfig, err := c.Kubeconfig("system:node:"+name, "system:nodes")
		return nil, kubeconfig, err
	}
	network, err := c.newNetwork()
	if err != nil {
		return nil, "", fmt.Errorf("network of node %s: %w", name, err)
	}
	kubeconfig, err := c.kubeconfigFor(network.server(), "system:node:"+name, "system:nodes")
	return network, kubeconfig, err
}

// Partition cuts the machine off the network: every packet between its kubelet
// and the API server, and those who ask the kubelet, is dropped, in both
// directions, and nobody is told.
// Connections hang. The kubelet works on with what it knows; the containers and
// whatever they write to go on. It lasts, over reboots too, until Heal; Boot and
// StartKubelet do not succeed meanwhile. A second call does nothing.
func (n *Node) Partition() error { return n.partition(true) }

// Heal ends what Partition began. The kubelet is back when TCP or client-go tries
// again: a connection that got no frame for 30 s and no answer to a ping for 15 s
// is given up and dialled anew, the lease is tried every 10 s at first, and later
// with pauses of up to 7 s. Seen: the lease renewed 0.1–2 s after the end of a
// partition of 15 to 70 s, 7.5 s after one of 120 s; at worst some 20 s. Watches
// come back later, with pauses of up to 30 s and more.
func (n *Node) Heal() error { return n.partition(false) }

func (n *Node) partition(on bool) error {
	if n.network == nil {
		return fmt.Errorf("node %s has no network of its own to be partitioned: it needs NodeOptions.Network", n.name)
	}
	if err := n.network.setPartition(on); err != nil {
		return fmt.Errorf("network of node %s: %w", n.name, err)
	}
	return nil
}

// KillKubelet kills the kubelet. The containers go on.
func (n *Node) KillKubelet() {
	n.kill(n.Kubelet())
}

// kill ends a process of the node, and returns when it is gone.
func (n *Node) kill(p *Process) {
	switch {
	case p == nil:
	case n.real != nil:
		n.real.kill(p)
	default:
		p.Stop(0)
	}
}

// PowerOff kills the kubelet and the container runtime. What a driver has
// mounted there is the driver's to forget.
func (n *Node) PowerOff() {
	n.KillKubelet()
	if n.real != nil {
		n.real.powerOff()
	}
	n.kill(n.Runtime())
}

// Boot powers the machine on, after a PowerOff if it runs, with a new boot ID
// and no containers, and returns when its Node is Ready.
func (n *Node) Boot(ctx context.Context) error {
	n.PowerOff()
	id := strings.ToLower(rand.Text())
	if err := os.WriteFile(n.bootIDFile(), []byte(id+"\n"), 0o644); err != nil {
		return err
	}
	n.mu.Lock()
	n.bootID = id
	n.mu.Unlock()
	if n.real != nil {
		if err := n.real.boot(ctx); err != nil {
			return err
		}
	}
	if err := n.StartRuntime(ctx); err != nil {
		return err
	}
	if n.real != nil {
		if err := n.real.importImage(ctx); err != nil {
			return err
		}
	}
	return n.StartKubelet(ctx)
}

// KillRuntime kills the container runtime of a real node. The containers go on.
func (n *Node) KillRuntime() { n.kill(n.Runtime()) }

// StartRuntime starts the container runtime, after a KillRuntime, and returns when it
// serves.
func (n *Node) StartRuntime(ctx context.Context) error {
	os.Remove(n.runtimeSocket())
	command, err := n.runtimeCommand()
	if err != nil {
		return err
	}
	runtime, err := n.cluster.StartProcess(command)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.runtime = runtime
	n.mu.Unlock()
	return runtime.Serving(ctx, n.runtimeSocket(), nodeTimeout)
}

func (n *Node) runtimeCommand() (ProcessOptions, error) {
	if n.real != nil {
		return n.real.runtimeCommand()
	}
	return ProcessOptions{Name: n.name + "-runtime", Path: n.cluster.options.Binaries.Kubernetes,
		Args:    []string{"container-runtime", "--endpoint=unix://" + n.runtimeSocket()},
		LogFile: filepath.Join(n.root, "runtime.log")}, nil
}

// StartKubelet starts the kubelet, after a KillKubelet if it runs, on the same
// folder and the same containers, and returns when it has reported its Node
// Ready.
func (n *Node) StartKubelet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	n.KillKubelet()
	if err := roomForKubelet(); err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	before, err := n.report(ctx)
	if err != nil {
		return err
	}
	command, err := n.kubeletCommand()
	if err != nil {
		return err
	}
	kubelet, err := n.cluster.StartProcess(command)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.kubelet = kubelet
	n.mu.Unlock()
	return n.cluster.waitUntil(ctx, "node "+n.name+" to be Ready", func(ctx context.Context) (bool, error) {
		now, err := n.report(ctx)
		if err != nil {
			return false, err
		}
		if !now.ready || now.bootID != n.BootID() || !now.isNewSince(before) {
			return false, fmt.Errorf("%+v", now)
		}
		err = n.initialize(ctx)
		return err == nil, err
	}, kubelet)
}

// AwaitLease returns when the node has a lease. A kubelet that registers a new
// Node makes the lease 10 s later only, as in any cluster.
func (n *Node) AwaitLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return n.cluster.waitUntil(ctx, "the lease of node "+n.name, func(ctx context.Context) (bool, error) {
		report, err := n.report(ctx)
		return report.lease != "", err
	}, n.Kubelet())
}

func (n *Node) kubeletCommand() (ProcessOptions, error) {
	if n.real != nil {
		return n.real.kubeletCommand()
	}
	args := []string{"kubelet", "--name=" + n.name, "--kubeconfig=" + n.kubeconfig, "--root-dir=" + n.RootDir(),
		"--boot-id-file=" + n.bootIDFile(), "--system-uuid=" + n.systemUUID, "--container-runtime-endpoint=unix://" + n.runtimeSocket(),
		"--address=" + n.address(), fmt.Sprintf("--port=%d", n.port), "--client-ca-file=" + n.cluster.pki("ca.crt"), "--clock-offset=" + n.options.ClockOffset.String(), "--v=2"}
	for key, value := range n.options.Labels {
		args = append(args, "--node-labels="+key+"="+value)
	}
	command := ProcessOptions{Name: n.name + "-kubelet", Path: n.cluster.options.Binaries.Kubernetes, Args: args,
		LogFile: filepath.Join(n.root, "kubelet.log")}
	if n.network == nil {
		command.Args = append(command.Args, "--cloud-provider=external") // see initialize
		return command, nil
	}
	return n.network.enter(command)
}

// address is the Node's InternalIP, on which its kubelet's own server listens.
func (n *Node) address() string {
	if n.network == nil {
		return loopback
	}
	return n.network.node.String()
}

// nodeReport is what a kubelet has said of itself.
type nodeReport struct {
	bootID, lease string // lease: its resource version; empty: there is none
	ready         bool
}

// isNewSince says whether a kubelet has spoken since the earlier report. A first
// lease can come 10 s after the Node is Ready, but there is a new boot ID then.
func (r nodeReport) isNewSince(before nodeReport) bool {
	return r.bootID != before.bootID || r.lease != before.lease
}

func (n *Node) report(ctx context.Context) (nodeReport, error) {
	var r nodeReport
	lease, err := n.leases().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return r, err
	}
	if err == nil {
		r.lease = lease.ResourceVersion
	}
	node, err := n.cluster.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.bootID = node.Status.NodeInfo.BootID
	r.ready = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return r, nil
}

func (n *Node) leases() coordinationclient.LeaseInterface {
	return n.cluster.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
}

// Remove powers the machine off and deletes its Node and its lease, as an
// autoscaler does.
func (n *Node) Remove(ctx context.Context) error {
	n.PowerOff()
	err := n.cluster.client.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	err = n.leases().Delete(ctx, n.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (n *Node) bootIDFile() string    { return filepath.Join(n.root, "boot-id") }
func (n *Node) runtimeSocket() string { return filepath.Join(n.root, "runtime.sock") }
