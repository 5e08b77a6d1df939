package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/pace"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// StageOptions of a stage. The zero value is an array as one would wish for,
// two nodes and csi-fencepost with its default configuration.
type StageOptions struct {
	// Alone leaves csi-fencepost out: the attacher calls the driver.
	Alone bool
	// Nodes is how many nodes there are; 2 if zero, none if negative.
	Nodes int
	// Array changes the array's switches before anything starts.
	Array func(*array.Switches)
	// Secrets that the array requires for publish and unpublish.
	Secrets map[string]string
	// Config is csi-fencepost's configuration, without its head; for example
	// "evidence: {outOfServiceTaint: false}".
	Config string
	// AttacherArgs are added to the attacher's command line.
	AttacherArgs []string
	// FencepostArgs are added to csi-fencepost's command line.
	FencepostArgs []string
	// Env is added to csi-fencepost's environment.
	Env []string
	// ObserveRights gives csi-fencepost the rights of mode Observe only.
	ObserveRights bool
	// Rights changes the RBAC manifests. Stages share the ClusterRoles: it must
	// give those that it changes names of its own.
	Rights func(string) string
	// Crashes prepares csi-fencepost for CrashAt.
	Crashes bool
	// ClockOffset of the first node's kubelet.
	ClockOffset time.Duration
	// Failover gives csi-fencepost the rights to move pods, the attacher the flags
	// that we advise, and starts neither before StartFailover.
	Failover bool
	// Networks gives each node a network of its own, for Partition; needs root.
	Networks bool
	// Machines makes each node a virtual machine and each volume a disk that
	// QEMU lets one machine have, beside the array's own books.
	Machines bool
	// Real makes each node one with Kubernetes' own kubelet, containerd and real
	// containers, each volume a disk with a file system that the nodes mount, and each
	// pod a database that writes it (see Volume.Judge). It needs root.
	Real bool
	// GivesDeviceBack is a driver on real nodes whose NodeUnstageVolume gives the block
	// device back, as that of a network disk does, and fails while somebody uses it.
	// Others unmount, and leave the rest to the detach.
	GivesDeviceBack bool
	// Driver is the driver's name; made from the stage's if empty.
	Driver string
	// PlainNames leaves the stage's name out of the nodes' names. One stage of
	// a bed can have them.
	PlainNames bool
	// Manual starts neither csi-fencepost nor the attacher.
	Manual bool
	// Manifests of the driver's controller, with csi-fencepost injected, for the
	// stage's namespace and driver. They are applied in place of deploy's RBAC, and
	// driver, csi-fencepost and attacher run as the containers of their pod, with
	// Config added to its configuration. Env counts; the Args do not.
	Manifests func(*Stage) []byte
}

// Stage is one driver with everything around it.
type Stage struct {
	T       T
	Bed     *Bed
	Name    string // also the namespace and the prefix of all names
	Driver  string
	Client  kubernetes.Interface
	Array   *array.Array
	Nodes   []*Node
	Options StageOptions

	Fencepost *controlplane.Process // nil when Alone
	Attacher  *controlplane.Process

	folder   string
	config   string // the path of csi-fencepost's configuration
	started  time.Time
	machines *machines      // nil: without StageOptions.Machines
	disks    *realDisks     // nil: without StageOptions.Real
	pod      *controllerPod // nil: without StageOptions.Manifests
}

// Stage sets up a stage, which ends with t.
func (b *Bed) Stage(t T, name string, o StageOptions) *Stage {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	s := &Stage{T: t, Bed: b, Name: name, Driver: o.Driver, Client: b.Cluster.Client(), Options: o, started: time.Now(),
		folder: filepath.Join(b.Cluster.Folder(), name)}
	if s.Driver == "" {
		s.Driver = name + ".test"
	}
	t.Cleanup(s.tellIfFailed)
	t.Cleanup(s.clear) // when all of the stage that runs has ended
	s.must("folder", os.MkdirAll(s.folder, 0o755))
	s.config = s.socket("config.yaml")
	arrayOptions := array.Options{DriverName: s.Driver, RequireSecrets: o.Secrets}
	if o.Machines {
		s.machines = newMachines(s.folder)
		arrayOptions.Disks = s.machines
	}
	if o.Real {
		s.disks = newRealDisks(s.folder, o.GivesDeviceBack)
		arrayOptions.Mounts, arrayOptions.WriteEvery = s.disks, realWritesEvery
	}
	s.Array = array.New(arrayOptions)
	if o.Array != nil {
		s.Array.Set(o.Array)
	}
	t.Cleanup(s.Array.Close)
	s.namespace()
	s.serveDriver()
	for i := range max(o.Nodes, 0) {
		offset := time.Duration(0)
		if i == 0 {
			offset = o.ClockOffset
		}
		s.AddNode(fmt.Sprintf("n%d", i+1), fmt.Sprintf("id%d", i+1), offset)
	}
	if o.Manual || o.Failover {
		return s
	}
	if s.pod != nil {
		s.pod.start()
		return s
	}
	if !o.Alone {
		s.StartFencepost()
	}
	s.StartAttacher()
	return s
}

// serveDriver gives the driver's service account its rights, and starts the
// driver's controller side.
func (s *Stage) serveDriver() {
	s.T.Helper()
	if s.Options.Manifests != nil {
		s.pod = s.controllerPod()
		s.pod.serveArray()
		return
	}
	s.rights()
	s.must("serving the driver", s.Array.Serve(context.Background(), s.socket("csi.sock")))
}

func (s *Stage) socket(name string) string { return filepath.Join(s.folder, name) }

// StartFencepost starts csi-fencepost between attacher and driver; it is
// started again when it ends, as the kubelet would.
func (s *Stage) StartFencepost() {
	s.T.Helper()
	s.Fencepost = s.ExtraFencepost("fp", s.Options.Env...)
}

// ExtraFencepost starts a csi-fencepost on a socket of that name.
func (s *Stage) ExtraFencepost(name string, env ...string) *controlplane.Process {
	s.T.Helper()
	p := s.Launch(name, env...)
	s.must("csi-fencepost", p.Serving(s.ctx(), s.socket(name+".sock"), 90*time.Second))
	return p
}

// Launch is ExtraFencepost that does not wait until it serves.
func (s *Stage) Launch(name string, env ...string) *controlplane.Process {
	s.T.Helper()
	s.must("configuration", tool.WriteWhole(s.config, []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"+s.Options.Config+"\n"), 0o644))
	kubeconfig := s.serviceAccount()
	return s.endingWithStage("csi-fencepost")(s.Bed.Cluster.StartProcess(controlplane.ProcessOptions{
		Name: s.Name + "-" + name, Path: s.program(), Restart: true, Env: env,
		Args: append([]string{"run", "--csi-address=" + s.socket("csi.sock"), "--listen=" + s.socket(name+".sock"),
			"--kubeconfig=" + kubeconfig, "--config=" + s.config, "--v=4"}, s.Options.FencepostArgs...),
	}))
}

// endingWithStage takes what started a process: a hundred stages' sidecars,
// each watching every node, are more than one control plane can serve.
func (s *Stage) endingWithStage(what string) func(*controlplane.Process, error) *controlplane.Process {
	return func(p *controlplane.Process, err error) *controlplane.Process {
		s.T.Helper()
		s.must(what, err)
		s.T.Cleanup(func() { p.Stop(0) })
		return p
	}
}

// StartAttacher starts external-attacher on csi-fencepost, or, Alone, on the
// driver.
func (s *Stage) StartAttacher() {
	s.T.Helper()
	if s.Options.Alone || s.Fencepost == nil {
		s.StartAttacherOn("csi.sock")
		return
	}
	s.StartAttacherOn("fp.sock")
}

// StartAttacherOn starts external-attacher on one of the stage's sockets.
func (s *Stage) StartAttacherOn(socket string) {
	s.T.Helper()
	s.Attacher = s.endingWithStage("external-attacher")(s.Bed.Cluster.StartAttacher(controlplane.AttacherOptions{
		Name: s.Name + "-attacher", Address: s.socket(socket), Restart: true,
		ExtraArgs: append([]string{"--kube-api-qps=100", "--kube-api-burst=200"}, s.Options.AttacherArgs...),
	}))
}

// StopAttacher and StopFencepost end them gracefully.
func (s *Stage) StopAttacher()  { s.Attacher.Stop(5 * time.Second) }
func (s *Stage) StopFencepost() { s.Fencepost.Stop(5 * time.Second) }

func (s *Stage) namespace() {
	_, err := s.Client.CoreV1().Namespaces().Create(s.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}, metav1.CreateOptions{})
	s.must("namespace", err)
	if s.Bed.Bare {
		_, err := s.Client.CoreV1().ServiceAccounts(s.Name).Create(s.ctx(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		s.must("the namespace's default service account", err)
		return
	}
	s.WaitFor(30*time.Second, "the namespace's default service account", func() bool {
		_, err := s.Client.CoreV1().ServiceAccounts(s.Name).Get(s.ctx(), "default", metav1.GetOptions{})
		return err == nil
	})
}

func (s *Stage) ctx() context.Context { return s.T.Context() }

func (s *Stage) must(what string, err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatalf("%s: %s: %v", s.Name, what, err)
	}
}

// Pause is the pace of what has waited since then: 0.1 s, and 0.3 s after ten seconds.
// Most of what is waited for is read from the API server, and a dozen stories that wait
// at once must not be what keeps it busy.
func Pause(began time.Time) {
	time.Sleep(min(100*time.Millisecond+time.Since(began)/50, 300*time.Millisecond))
}

// WaitFor polls until ok, or fails after that limit, of which only the time counts that the
// machine had for it (package pace). It returns how long it took by the clock.
func (s *Stage) WaitFor(limit time.Duration, what string, ok func() bool) time.Duration {
	s.T.Helper()
	began, watch := time.Now(), pace.Start()
	for !ok() {
		if watch.Counted() > limit {
			s.T.Fatalf("%s: waited %s in vain: %s", s.Name, limit, what)
		}
		if s.ctx().Err() != nil {
			s.T.Fatalf("%s: stopped while waiting: %s", s.Name, what)
		}
		Pause(began)
	}
	return time.Since(began)
}

// Never fails if bad becomes true within d.
func (s *Stage) Never(d time.Duration, what string, bad func() bool) {
	s.T.Helper()
	for began := time.Now(); time.Since(began) < d && s.ctx().Err() == nil; time.Sleep(20 * time.Millisecond) {
		if bad() {
			s.T.Fatalf("%s: after %s: %s", s.Name, time.Since(began).Round(time.Millisecond), what)
		}
	}
}

// NoViolations fails if the oracle saw two nodes that could write, or a volume
// taken from a node that used it.
func (s *Stage) NoViolations() {
	s.T.Helper()
	for _, v := range s.Array.Violations() {
		s.T.Errorf("%s: the oracle saw: %s", s.Name, v)
	}
}

// Since is the time since the stage was set up, for the log.
func (s *Stage) Since() time.Duration { return time.Since(s.started).Round(100 * time.Millisecond) }

// Log writes a line of the story.
func (s *Stage) Log(format string, args ...any) {
	s.T.Helper()
	s.T.Logf("%7.1fs  %s", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
