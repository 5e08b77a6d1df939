package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/realnode"
)

// Real are the programs of nodes whose kubelet, container runtime and containers are
// real ones. They need root, runc, the CNI plugins and e2fsprogs.
type Real struct {
	containerd, shim, ctr string
	programs              realnode.Programs
}

var (
	containerdModule = nestedModule{folder: "containerd", name: "containerd", pkg: containerdCommands + "containerd", version: "github.com/containerd/containerd/v2"}
	shimModule       = nestedModule{folder: "containerd", name: "containerd-shim-runc-v2", pkg: containerdCommands + "containerd-shim-runc-v2", version: containerdModule.version}
	ctrModule        = nestedModule{folder: "containerd", name: "ctr", pkg: containerdCommands + "ctr", version: containerdModule.version}
)

const containerdCommands = "github.com/containerd/containerd/v2/cmd/"

// BuildReal builds what real nodes need beside the control plane's programs: containerd
// into the user's cache, as Build does, the rest into folder.
func BuildReal(ctx context.Context, progress io.Writer, folder string) (*Real, error) {
	var r Real
	for _, item := range []struct {
		module nestedModule
		path   *string
	}{
		{containerdModule, &r.containerd},
		{shimModule, &r.shim},
		{ctrModule, &r.ctr},
	} {
		path, err := item.module.build(ctx, progress)
		if err != nil {
			return nil, fmt.Errorf("build of %s: %w", item.module.name, err)
		}
		*item.path = path
	}
	var err error
	r.programs, err = realnode.Build(ctx, folder)
	return &r, err
}

// realMachine is the machine under a real node: a first process in namespaces of its own
// for mounts and processes, in which everything else runs. When it dies, all does.
type realMachine struct {
	*Real
	node *Node
	// cut is called before the power fails: what the machine has mounted has no time
	// left to write.
	cut func()

	init     *Process
	pid      int // of the first process
	imported bool
}

const initLimit = 20 * time.Second

// ipam is the folder of the addresses that pods have.
func (m *realMachine) ipam() string { return filepath.Join(m.node.root, "ipam") }

// boot starts the first process.
func (m *realMachine) boot(ctx context.Context) error {
	n := m.node
	log := filepath.Join(n.root, "init.log")
	if err := errors.Join(os.RemoveAll(m.ipam()), os.RemoveAll(log), os.MkdirAll(n.KeptDir(), 0o755)); err != nil {
		return err
	}
	for name, content := range map[string]string{"system-uuid": n.systemUUID, "machine-id": strings.ReplaceAll(n.systemUUID, "-", "")} {
		if err := os.WriteFile(filepath.Join(n.root, name), []byte(content+"\n"), 0o444); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	options, err := n.network.enter(ProcessOptions{Name: n.name + "-init", LogFile: log, Path: "unshare",
		Args: []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", m.programs.Init,
			"-boot-id=" + n.bootIDFile(), "-machine-id=" + filepath.Join(n.root, "machine-id"), "-system-uuid=" + filepath.Join(n.root, "system-uuid"), "-kept=" + n.KeptDir()}})
	if err != nil {
		return err
	}
	if m.init, err = n.cluster.StartProcess(options); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		said, _ := os.ReadFile(log)
		if strings.HasSuffix(string(said), "ready\n") {
			m.pid, err = childOf(m.init.Pid())
			return err
		}
		if m.init.Exited() || time.Since(began) > initLimit || ctx.Err() != nil {
			return fmt.Errorf("the first process of node %s is not ready; it says: %s", n.name, said)
		}
	}
}

// childOf is the process that another has started.
func childOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// enter makes a process run on the machine.
func (m *realMachine) enter(options ProcessOptions) (ProcessOptions, error) {
	nsenter, err := tool("nsenter")
	if err != nil {
		return options, err
	}
	options.Args = append([]string{fmt.Sprintf("--target=%d", m.pid), "--net", "--mount", "--pid", "--", options.Path}, options.Args...)
	options.Path = nsenter
	options.Env = append(options.Env, "NO_PROXY=*", "PATH="+strings.Join([]string{filepath.Dir(m.shim), os.Getenv("PATH"), "/usr/sbin", "/sbin"}, ":"))
	return options, nil
}

// kill ends a process on the machine: nsenter, and what that has started, whose ports
// and files are free only when it is gone as well.
func (m *realMachine) kill(p *Process) {
	child, err := childOf(p.Pid())
	p.Stop(0)
	for range 500 {
		if err != nil || !living(child) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// signal sends a signal to a process on the machine. nsenter stops when that does, and
// lets it go on when it goes on itself.
func (m *realMachine) signal(p *Process, signal syscall.Signal) error {
	child, err := childOf(p.Pid())
	if err != nil {
		return err
	}
	return errors.Join(syscall.Kill(child, signal), p.Signal(signal))
}

// shims are the processes in which containerd has its containers run.
func (m *realMachine) shims() (pids []int) {
	here, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", m.pid))
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range names {
		folder := filepath.Dir(path)
		name, _ := os.ReadFile(path)
		there, _ := os.Readlink(filepath.Join(folder, "ns", "pid"))
		if strings.TrimSpace(string(name)) != "containerd-shim" || there != here {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// SignalShims sends a signal to the processes that stand between a real node's containerd
// and its containers: stopped, nobody can end those, and they run on.
func (n *Node) SignalShims(signal syscall.Signal) error {
	shims := n.real.shims()
	if len(shims) == 0 {
		return fmt.Errorf("node %s runs no containers", n.name)
	}
	var errs []error
	for _, pid := range shims {
		errs = append(errs, syscall.Kill(pid, signal))
	}
	return errors.Join(errs...)
}

// living tells whether a thread of such a process is left that is more than dead and not
// yet buried: the first one may be that while others still hold its ports.
func living(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err == nil && (len(threads) > 1 || !strings.Contains(string(status), ") Z "))
}

// do runs a program on the machine, and waits for its end.
func (m *realMachine) do(ctx context.Context, name string, args ...string) error {
	options, err := m.enter(ProcessOptions{Path: name, Args: args})
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, options.Path, options.Args...)
	command.Env = append(os.Environ(), options.Env...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s on node %s: %w: %s", name, strings.Join(args, " "), m.node.name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// powerOff ends everything on the machine at once.
func (m *realMachine) powerOff() {
	if m.init == nil {
		return
	}
	if m.cut != nil {
		m.cut()
	}
	m.init.Stop(0)
	removeEmptyCgroups()
}

// removeEmptyCgroups removes what killed containers have left of the control groups that
// containerd makes, as soon as the kernel has buried them.
func removeEmptyCgroups() {
	for range 20 {
		folders, _ := filepath.Glob("/sys/fs/cgroup/*/k8s.io/*/cgroup.procs")
		busy := false
		for _, procs := range folders {
			if living, err := os.ReadFile(procs); err == nil && len(living) == 0 {
				busy = os.Remove(filepath.Dir(procs)) != nil || busy
			}
		}
		if !busy {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// KeptDir is a folder of a real node's own disk, which its containers have as a host
// path under KeptPath.
func (n *Node) KeptDir() string { return filepath.Join(n.root, "kept") }

// KeptPath is the KeptDir as a real node's kubelet sees it.
const KeptPath = "/run/kept"

// Do runs a program on a real node, and waits for its end.
func (n *Node) Do(ctx context.Context, name string, args ...string) error {
	return n.real.do(ctx, name, args...)
}

// Path is a path of a real node as it is seen from outside, with what is mounted there.
func (n *Node) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", n.real.pid, path) }

// runtimeCommand is containerd. What it says of itself in /run is the machine's own.
func (m *realMachine) runtimeCommand() (ProcessOptions, error) {
	n := m.node
	runc, err := tool("runc")
	if err != nil {
		return ProcessOptions{}, err
	}
	files := map[string]string{
		filepath.Join(n.root, "containerd.toml"):      fmt.Sprintf(containerdConfig, filepath.Join(n.root, "containerd"), n.runtimeSocket(), realnode.Image, filepath.Join(n.root, "cni"), runc),
		filepath.Join(n.root, "cni", "pods.conflist"): fmt.Sprintf(podNetwork, m.ipam()),
	}
	for path, content := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			return ProcessOptions{}, err
		}
	}
	return m.enter(ProcessOptions{Name: n.name + "-runtime", Path: m.containerd, Args: []string{"--config=" + filepath.Join(n.root, "containerd.toml")},
		LogFile: filepath.Join(n.root, "runtime.log")})
}

const containerdConfig = `version = 3
root = %q
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
address = %q
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = %q
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = %q
`

const podNetwork = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], "dataDir": %q}}]}
`

// importImage gives containerd the only image there is.
func (m *realMachine) importImage(ctx context.Context) error {
	if m.imported {
		return nil
	}
	err := m.do(ctx, m.ctr, "--address="+m.node.runtimeSocket(), "--namespace=k8s.io", "images", "import", m.programs.Archive)
	m.imported = err == nil
	return err
}

// kubeletCommand is Kubernetes' own kubelet.
func (m *realMachine) kubeletCommand() (ProcessOptions, error) {
	n := m.node
	config := filepath.Join(n.root, "kubelet.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(kubeletConfig, n.runtimeSocket(), filepath.Join(n.root, "pod-logs"), filepath.Join(n.root, "volume-plugins"), n.address(), n.port, n.cluster.pki("ca.crt"))), 0o644); err != nil {
		return ProcessOptions{}, err
	}
	args := []string{"real-kubelet", "--config=" + config, "--kubeconfig=" + n.kubeconfig, "--hostname-override=" + n.name, "--root-dir=" + n.RootDir(),
		"--cert-dir=" + filepath.Join(n.root, "pki"), "--node-ip=" + n.network.node.String(), "--v=2"}
	for key, value := range n.options.Labels {
		args = append(args, "--node-labels="+key+"="+value)
	}
	return m.enter(ProcessOptions{Name: n.name + "-kubelet", Path: n.cluster.options.Binaries.Kubernetes, Args: args, LogFile: filepath.Join(n.root, "kubelet.log")})
}

// kubeletConfig is of kubelets on one machine: cgroups are shared with all that runs there, and
// nothing is evicted for its disk's sake.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
podLogsDir: %s
volumePluginDir: %s
address: %s
port: %d
readOnlyPort: 0
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
failCgroupV1: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
resolvConf: ""
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "1Mi"}
enableControllerAttachDetach: true
`
