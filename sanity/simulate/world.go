package simulate

import (
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Stats is what was counted in one schedule, or in many.
type Stats struct {
	Steps, Crashes, Calls, Publishes, Refusals, Takeovers int
	Mounts, Fences, PowerOffs, Taints, Confirmations      int
	// Jumps of clocks.
	Jumps int
	// Excused are the volumes that were taken from a machine in use because the design believed what
	// was not true.
	Excused int
	// Raced are the volumes that were taken from a machine which began to use them after the call
	// had looked for the last time.
	Raced int
	// Leapt are the volumes that were taken from a machine in use since a clock was set, and the
	// kubelet had forgotten them; Stripped, Unseen, Relisted, Inherited, Staged and Outlived, those
	// that were taken from a machine in use at a limit which docs/design/architecture.md names
	// (oracle.go).
	Leapt, Stripped, Unseen, Relisted, Inherited, Staged, Outlived int
	// Unguarded is what two machines wrote, or what was taken from a machine in use, by a call that
	// nobody guarded (the wide world).
	Unguarded int
	// Restored, StrippedUnguarded: the same at the two limits of the wide world
	// (wide_limits.go).
	Restored, StrippedUnguarded int
	// ByHand are the schedules whose end needed a person to reboot a node that a refusal named.
	ByHand int
	// PodByHand are those that needed a person to delete a pod.
	PodByHand int
	// Released are those that needed a person to release a volume from a node.
	Released int
	// NodeByHand are those that needed a person to delete the Node of a machine that is off.
	NodeByHand int
	// StartedOver are those in which nothing else helped but a reboot of every node.
	StartedOver int
	// Failover is what failover's loop did by itself (tier 2).
	Failover Failover
}

// Add adds another's counts.
func (s *Stats) Add(o Stats) {
	s.Steps += o.Steps
	s.Crashes += o.Crashes
	s.Calls += o.Calls
	s.Publishes += o.Publishes
	s.Refusals += o.Refusals
	s.Takeovers += o.Takeovers
	s.Mounts += o.Mounts
	s.Fences += o.Fences
	s.PowerOffs += o.PowerOffs
	s.Taints += o.Taints
	s.Confirmations += o.Confirmations
	s.Jumps += o.Jumps
	s.Excused += o.Excused
	s.Raced += o.Raced
	s.Stripped += o.Stripped
	s.Unseen += o.Unseen
	s.Relisted += o.Relisted
	s.Staged += o.Staged
	s.Outlived += o.Outlived
	s.Inherited += o.Inherited
	s.Leapt += o.Leapt
	s.Unguarded += o.Unguarded
	s.Restored += o.Restored
	s.StrippedUnguarded += o.StrippedUnguarded
	s.ByHand += o.ByHand
	s.PodByHand += o.PodByHand
	s.Released += o.Released
	s.NodeByHand += o.NodeByHand
	s.StartedOver += o.StartedOver
	s.Failover.add(o.Failover)
}

// World is everything around the processes of csi-fencepost in one schedule. It
// lives in one synctest bubble; the scheduler is the only one who changes it, and
// does so while everybody else waits.
type World struct {
	setup Setup
	// namespace of the nodes' records.
	namespace string
	seed      uint64
	factory   Factory
	conn      *grpc.ClientConn

	mu      sync.Mutex
	memory  *memory // tier 1
	whole   *whole  // tier 2
	objects Objects

	volumes  []*volume
	slots    []*slot
	machines []*machine // all that ever were
	replicas []string
	procs    map[string]*Process
	leader   string
	lives    int
	parked   []*op
	calls    []*call
	last     map[callKey]string // the last outcome of each call
	labels   map[string]string
	patience map[callKey]*patience
	work     sync.WaitGroup
	over     bool
	noADC    bool // the attach-detach controller does not reach the API server
	spoken   bool // somebody has tainted a node, or confirmed it off
	steps    int
	kubelets int               // processes of kubelets so far
	serving  reads             // of the call that takes effect
	server   *Process          // that made it, and may have crashed since; nil: none yet
	said     map[string]string // what was last confirmed of each node
	recent   [12]Event         // a ring
	events   []Event           // of a round
	writes   int               // served while everything takes its course
	faults   map[int]fault     // what happens at which of them (Exhaustive)
	began    time.Time
	// serverSkew and controllerSkew are those of the API server's and of the
	// controllers' clocks; skews what clocks have from the start.
	serverSkew, controllerSkew time.Duration
	skews                      map[string]time.Duration
	// serverFell is when the API server's was last set back.
	serverFell time.Time
	tell       func(string) // of each event; nil: nobody
	// apart is what is watched after a refusal (fork.go), refused is told of each call
	// that comes to nothing (obligation.go), and meets does what becomes of an ordinary
	// event instead of it, or keeps it waiting with nothing done (fork.go, liveness.go).
	// Nil: nothing of that.
	apart   *apart
	refused func(*call, string)
	// refusals are those of which it is not told yet.
	refusals []refusal
	meets    func(Event) (met, done bool)

	Stats
	// Violation of Rule, in words; empty: none.
	Rule, Violation string
	// Trace is what happened.
	Trace []Event
	// mode of the sidecars (Mode), and what was saved of the cluster (Backup).
	mode  string
	saved *saved
	// unlisted are the volumes for which the driver's list fails.
	unlisted unlisted
	// hinted are the ledgers of the next version by what they are in this one, hints the
	// tokens of the entries that have its field.
	hinted map[string]string
	hints  map[string]bool
	// away tells that controllers and sidecars are away.
	away      bool
	listTakes time.Duration
	// Waits are those of the Result.
	Waits []Wait
}

// newWorld is a cluster whose volumes nobody wants yet.
func newWorld(setup Setup, seed uint64, factory Factory) *World {
	w := &World{began: time.Now(), setup: setup, seed: seed, factory: factory, procs: map[string]*Process{}, last: map[callKey]string{},
		patience: map[callKey]*patience{}, said: map[string]string{}, labels: map[string]string{}, hinted: map[string]string{}, hints: map[string]bool{}}
	w.namespace = setup.Configuration().Fencing.Namespace
	if setup.SlowList {
		w.listTakes = slowList
	}
	skews, err := setup.skews()
	if err != nil {
		panic(err) // the setup was read, or drawn
	}
	w.skews, w.serverSkew, w.controllerSkew = skews, skews[serverClock], skews[controllerClock]
	if setup.Whole {
		w.whole = newWhole()
		w.objects = w.whole.objects()
	} else {
		w.memory = newMemory(w.serverNow)
		w.memory.changed = w.show
		w.objects = w.memory.objects()
	}
	conn, err := grpc.NewClient("passthrough:///driver", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(w.invoke))
	if err != nil {
		panic(err) // the target is a constant
	}
	w.conn = conn
	for i := range setup.Volumes {
		name := "v" + strconv.Itoa(i+1)
		w.volumes = append(w.volumes, &volume{name: name, unique: corev1.UniqueVolumeName("kubernetes.io/csi/" + DriverName + "^" + name), vas: map[*slot]string{}, attached: map[string]bool{}, adc: map[*slot]*attachment{}, asked: map[*slot]bool{}, judged: map[types.UID]bool{}, released: map[string]bool{}, lateMany: map[string]bool{}, deleted: map[types.UID]time.Time{}, attachedFor: map[string]*machine{}, stripped: map[*slot]bool{}, misled: map[*slot]bool{}})
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: metav1.NamespaceDefault, Name: name}
		pv.Status.Phase = corev1.VolumeBound
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: DriverName, VolumeHandle: name}
		w.objects.Volumes.Put(pv)
	}
	for i := range setup.Nodes {
		s := &slot{name: "n" + strconv.Itoa(i+1), shown: map[types.UID]string{}, listed: map[*volume]int{}}
		s.lease, s.record = leaseKey(s.name), w.recordKey(s.name)
		w.slots = append(w.slots, s)
		w.newMachine(s)
		s.machine.kubelet.started = w.began.Add(-time.Hour)
		w.register(s)
		w.renew(s)
		w.sync(s)
		w.status(s)
	}
	w.neighbourObjects()
	for i := range setup.Replicas {
		w.replicas = append(w.replicas, "r"+strconv.Itoa(i+1))
	}
	for i, v := range w.volumes {
		for _, s := range w.slots {
			w.vaName(v, s)
		}
		v.pod = pod{node: w.slots[i%len(w.slots)]}
	}
	if w.whole != nil {
		w.claims()
		for _, v := range w.volumes {
			w.mirrorPod(v)
		}
	}
	w.leader = w.replicas[0]
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.replicas {
		w.start(name)
	}
	return w
}

func (w *World) volume(name string) *volume {
	i := slices.IndexFunc(w.volumes, func(v *volume) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return w.volumes[i]
}

func (w *World) slot(name string) *slot {
	i := slices.IndexFunc(w.slots, func(s *slot) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return w.slots[i]
}

// peekNode is the Node, not to be changed; nil: there is none.
func (w *World) peekNode(name string) *corev1.Node {
	if w.memory != nil {
		return w.memory.nodes.items[name]
	}
	n, ok := w.objects.Nodes.Get(name)
	if !ok {
		return nil
	}
	return n
}

// peekCSINode is the CSINode, not to be changed; nil: there is none.
func (w *World) peekCSINode(name string) *storagev1.CSINode {
	if w.memory != nil {
		return w.memory.csi.items[name]
	}
	n, ok := w.objects.CSINodes.Get(name)
	if !ok {
		return nil
	}
	return n
}

// peekVolume is the PersistentVolume, not to be changed; nil: there is none.
func (w *World) peekVolume(name string) *corev1.PersistentVolume {
	if w.memory != nil {
		return w.memory.volumes.items[name]
	}
	pv, ok := w.objects.Volumes.Get(name)
	if !ok {
		return nil
	}
	return pv
}

// peekLease is the Lease, not to be changed; nil: there is none.
func (w *World) peekLease(key string) *coordinationv1.Lease {
	if w.memory != nil {
		return w.memory.leases.items[key]
	}
	l, ok := w.objects.Leases.Get(key)
	if !ok {
		return nil
	}
	return l
}

// pass lets time pass. Kubelets that can renew their leases do, every 10 s at
// least.
func (w *World) pass(d time.Duration) {
	for d > 0 {
		hop := min(d, beatEvery)
		w.mu.Unlock()
		time.Sleep(hop)
		w.mu.Lock()
		d -= hop
		for _, s := range w.slots {
			if s.connected() && time.Since(s.renewed) >= 5*time.Second {
				w.renew(s)
			}
		}
		for _, name := range w.replicas {
			if p := w.procs[name]; p.up() {
				p.side.Beat(!p.noAPI)
			}
		}
		w.judge()
	}
	for _, o := range slices.Clone(w.parked) {
		if o.orphan && o.to == toDriver && time.Since(o.since) > orphanLife {
			w.remove(o)
		}
	}
}
