package failover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	recordNamespace = "records"
	suspectAfter    = time.Second
)

// scripted is a Fencer whose agents read what the test says, and whose records
// are in memory, written as the interface says.
type scripted struct {
	mu         sync.Mutex
	covers     bool
	state      agent.State
	kind       fence.Kind
	offWorks   bool
	records    map[string]fencer.Fence
	asks       int
	calls      []string
	offAt      time.Time      // when it first answered off
	unliftable error          // Lift's
	also       []fencer.Fence // stand beside those on record
	others     []fencer.Fence // on record, of other drivers
	uncounted  []fencer.Fence // on record, and not counted by the brakes
	undoes     []string       // what On was to undo
	nodes      core.NodesGetter
	leases     coordination.LeasesGetter
	locked     func() // while Off waits for the node's lock
	driver     string // whose storage fences they are
	mixed      bool   // other agents of it cut the power
	withheld   string // why no agent is told which machine it is
	poll       time.Duration
	polls      int
	checked    bool          // the device says that it is the node's
	takes      time.Duration // a reading
	only       string        // the node that state is of; empty: of all
	missed     string
}

func (f *scripted) Seeks(string) bool { return true }

func (f *scripted) Withheld(context.Context, fencer.Target) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.withheld, nil
}

func (f *scripted) Covers(string) bool           { f.mu.Lock(); defer f.mu.Unlock(); return f.covers }
func (f *scripted) CoversPower(node string) bool { return f.Covers(node) && !f.StorageOnly(node) }
func (f *scripted) StorageOnly(string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kind == fence.StorageFence && !f.mixed
}
func (f *scripted) CoversStorage(string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kind == fence.StorageFence
}
func (f *scripted) Agents(string) string { return "agent bmc" }

func (f *scripted) Ask(ctx context.Context, t fencer.Target) (fencer.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks++
	if t.Missed == nil {
		return f.readLocked(t, false), nil
	}
	return f.readTwiceLocked(ctx, t)
}

// readTwiceLocked is what the interface says of a question with Missed.
func (f *scripted) readTwiceLocked(ctx context.Context, t fencer.Target) (fencer.Answer, error) {
	leaseRV := func() string {
		l, err := f.leases.Leases(corev1.NamespaceNodeLease).Get(ctx, t.Node, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return l.ResourceVersion
	}
	for again := range 2 {
		f.mu.Unlock()
		time.Sleep(time.Duration(again)*time.Second + f.takes)
		f.mu.Lock()
		if f.state != agent.Off {
			return f.readLocked(t, false), nil
		}
	}
	checked := f.checked
	f.mu.Unlock()
	missed := t.Missed(time.Now().Add(-f.takes), checked)
	f.mu.Lock()
	f.missed = missed
	switch {
	case leaseRV() != t.LeaseRV:
		return fencer.Answer{Why: fence.VoidLeaseChanged}, nil
	case f.missed == "":
		return fencer.Answer{OffTwice: true, Why: "nothing is missing"}, nil
	}
	a := f.readLocked(t, false)
	r := f.records[t.Node]
	r.Missed = f.missed
	f.records[t.Node] = r
	return a, nil
}

func (f *scripted) Polled(string) ([]string, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []string{"bmc"}, f.poll
}

func (f *scripted) Poll(_ context.Context, n *corev1.Node) (agent.State, string) {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls++
	state := f.stateOf(n.Name)
	return state, "agent bmc reads " + state.String()
}

// stateOf is what the agent reads of a node.
func (f *scripted) stateOf(node string) agent.State {
	if f.only != "" && node != f.only {
		return agent.On
	}
	return f.state
}

func (f *scripted) readLocked(t fencer.Target, cut bool) fencer.Answer {
	state := f.stateOf(t.Node)
	old, known := f.records[t.Node]
	switch {
	case state == agent.Off && (!known || old.Void != "" || old.LeaseRV != t.LeaseRV && f.kind != fence.StorageFence):
		f.records[t.Node] = fencer.Fence{ID: "f-" + t.Node, Node: t.Node, NodeUID: t.UID, BootID: t.BootID, LeaseRV: t.LeaseRV, Kind: f.kind, Driver: f.driver, Source: "bmc", Vouched: true, Cut: cut, Sidecar: cut, At: time.Now()}
	case state == agent.On && known && old.Void == "" && old.Kind == f.kind:
		old.Void = "reads on"
		f.records[t.Node] = old
	}
	if state == agent.Off && f.offAt.IsZero() {
		f.offAt = time.Now()
	}
	return fencer.Answer{State: state, Kind: f.kind, Why: "agent bmc reads " + state.String()}
}

// stillSo asks the caller once more, as the interface says.
func (f *scripted) stillSo(ctx context.Context, t fencer.Target) error {
	if t.Still == nil {
		return nil
	}
	n, err := f.nodes.Nodes().Get(ctx, t.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		n, err = nil, nil
	}
	if err != nil {
		return err
	}
	return t.Still(ctx, n)
}

func (f *scripted) Off(ctx context.Context, t fencer.Target, _ string, force bool) (fencer.Answer, error) {
	if force {
		return fencer.Answer{}, errors.New("forced, and nobody is there who says so")
	}
	if f.locked != nil {
		f.locked()
	}
	if err := f.stillSo(ctx, t); err != nil {
		return fencer.Answer{State: f.state, Why: err.Error()}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "off "+t.Node)
	if f.offWorks {
		f.state = agent.Off
	}
	return f.readLocked(t, true), nil
}

func (f *scripted) On(ctx context.Context, t fencer.Target, _ string) (fencer.Answer, error) {
	if err := f.stillSo(ctx, t); err != nil {
		return fencer.Answer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.undoes = append(f.calls, "on "+t.Node), t.Fences
	f.state = agent.On
	return fencer.Answer{State: agent.On}, nil
}

func (f *scripted) Lift(ctx context.Context, t fencer.Target, driver, why string) (fencer.Answer, error) {
	if driver != f.driver {
		return fencer.Answer{}, fmt.Errorf("lifted for driver %q, and not for %q", driver, f.driver)
	}
	if err := f.stillSo(ctx, t); err != nil {
		return fencer.Answer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "lift "+t.Node)
	if f.unliftable != nil {
		return fencer.Answer{}, f.unliftable
	}
	f.state = agent.On
	f.voidLocked(t.Node, why)
	return fencer.Answer{State: agent.On}, nil
}

func (f *scripted) Void(_ context.Context, node, why string) (voided bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.voidLocked(node, why)
	return true, nil
}

func (f *scripted) Witness(_ context.Context, node, fenceID string, seen noderecord.Witness) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, known := f.records[node]; known && r.ID == fenceID && r.Void == "" {
		r.Witness = &seen
		f.records[node] = r
		f.calls = append(f.calls, "witness "+node)
	}
	return nil
}

func (f *scripted) voidLocked(node, why string) {
	if r, known := f.records[node]; known && r.Void == "" {
		r.Void = why
		f.records[node] = r
		f.calls = append(f.calls, "void "+node)
	}
}

func (f *scripted) Fence(_ context.Context, node string) (*fencer.Fence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, known := f.records[node]; known {
		return &r, nil
	}
	return nil, nil
}

func (f *scripted) FencesOf(ctx context.Context, node string) ([]fencer.Fence, error) {
	if r, _ := f.Fence(ctx, node); r != nil && r.Void == "" {
		return append([]fencer.Fence{*r}, f.also...), nil
	}
	return nil, nil
}

func (f *scripted) Fences(context.Context) ([]fencer.Fence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []fencer.Fence
	for _, r := range f.records {
		all = append(all, r)
	}
	return slices.Concat(all, f.others, f.uncounted), nil
}

func (f *scripted) Counting(ctx context.Context) ([]fencer.Fence, error) {
	all, err := f.Fences(ctx)
	return all[:len(all)-len(f.uncounted)], err
}

func (f *scripted) did(call string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.calls, call)
}

func (f *scripted) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *scripted) reads(s agent.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
}

// noted keeps Events and figures.
type noted struct {
	mu      sync.Mutex
	events  []string
	brake   Brake
	deleted int
	polling Polling
}

func (n *noted) Event(on runtime.Object, _, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, reason+" "+on.(metav1.Object).GetName()+": "+message)
}
func (n *noted) Eventf(on runtime.Object, kind, reason, format string, args ...any) {
	n.Event(on, kind, reason, fmt.Sprintf(format, args...))
}
func (n *noted) AnnotatedEventf(on runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	n.Event(on, kind, reason, fmt.Sprintf(format, args...))
}
func (n *noted) FencingBlocked(_ string, b Brake) { n.mu.Lock(); n.brake = b; n.mu.Unlock() }
func (n *noted) NodeFenced(fence.Kind)            {}
func (n *noted) PodsDeleted(k int)                { n.mu.Lock(); n.deleted += k; n.mu.Unlock() }

func (n *noted) PowerPolled(agent.State) {}
func (n *noted) Polling(p Polling)       { n.mu.Lock(); n.polling = p; n.mu.Unlock() }

func (n *noted) blockedBy() Brake { n.mu.Lock(); defer n.mu.Unlock(); return n.brake }

// said tells how many Events begin so and contain the words.
func (n *noted) said(prefix, words string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		if strings.HasPrefix(e, prefix) && strings.Contains(e, words) {
			count++
		}
	}
	return count
}

// world is three nodes with a driver of their own: n1, which holds the volumes,
// and two that live.
type world struct {
	t            *testing.T
	server       server
	api          kubernetes.Interface
	driver       string
	second       string // another driver that the controller works for; empty: none
	ns           string
	n1           string
	fencer       *scripted
	seen         *noted
	options      Options
	suspectAfter time.Duration
	every        time.Duration // under mu: a lease is renewed; 0: 200 ms
	leads        *Controller   // the one that runs; nil: it is not asked
	dial         func(ctx context.Context, address string) error
	delay        time.Duration // of each request of the controller's
	// refuse fails the controller's requests that it names.
	refuse atomic.Pointer[func(*http.Request) error]

	mu    sync.Mutex
	alive map[string]bool
	stop  func() // of the running controller
}

var worlds atomic.Int32

func newWorld(t *testing.T) *world {
	server := newServer(t)
	id := fmt.Sprintf("w%d", worlds.Add(1))
	w := &world{t: t, server: server, api: server.Client(), driver: id + ".csi.test", ns: id, n1: id + "-n1", alive: map[string]bool{}, seen: &noted{},
		suspectAfter: suspectAfter,
		fencer:       &scripted{nodes: server.Client().CoreV1(), leases: server.Client().CoordinationV1(), covers: true, state: agent.On, kind: fence.PowerReading, offWorks: true, driver: id + ".csi.test", records: map[string]fencer.Fence{}}}
	must(t, w.api.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	if *onReal {
		must(t, w.api.CoreV1().ServiceAccounts(w.ns).Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	}
	for _, n := range []string{w.n1, id + "-n2", id + "-n3"} {
		w.addNode(n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { w.beat(ctx) })
	t.Cleanup(func() {
		if w.stop != nil {
			w.stop()
		}
		cancel()
		beating.Wait()
		for _, n := range []string{w.n1, id + "-n2", id + "-n3"} {
			_ = w.api.CoreV1().Nodes().Delete(context.Background(), n, metav1.DeleteOptions{})
			_ = w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(context.Background(), n, metav1.DeleteOptions{})
		}
	})
	rc := server.Admin()
	rc.QPS, rc.Burst = 50, 100 // the sidecar's defaults
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusing{w, next} })
	w.options = Options{Client: kubernetes.NewForConfigOrDie(rc), Fencer: w.fencer, Events: w.seen, Metrics: w.seen, FenceAfter: 2500 * time.Millisecond, AskEvery: 300 * time.Millisecond, MaxConcurrent: 1, MaxUnhealthy: 0.4}
	w.options.Records = noderecord.NewStore(w.options.Client.CoordinationV1(), recordNamespace)
	w.options.Sources = []evidence.Source{evidence.Confirmations(evidence.Records{Store: w.options.Records, Actor: "test"})}
	return w
}

type refusing struct {
	w    *world
	next http.RoundTripper
}

func (r refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	time.Sleep(r.w.delay)
	if f := r.w.refuse.Load(); f != nil {
		if err := (*f)(q); err != nil {
			return nil, err
		}
	}
	return r.next.RoundTrip(q)
}

func must[T any](t *testing.T, create func(context.Context, *T, metav1.CreateOptions) (*T, error), in *T) *T {
	t.Helper()
	out, err := create(context.Background(), in, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *world) addNode(name string) {
	w.t.Helper()
	must(w.t, w.api.CoreV1().Nodes().Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	must(w.t, w.api.StorageV1().CSINodes().Create, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: w.driver, NodeID: "id-" + name}, {Name: "second." + w.driver, NodeID: "id-" + name}}}})
	must(w.t, w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}})
	w.status(name, "boot-1", corev1.ConditionTrue)
	w.lives(name, true)
}

// status writes what a kubelet would: its boot, its readiness, what it uses.
func (w *world) status(name, boot string, ready corev1.ConditionStatus, inUse ...string) {
	w.t.Helper()
	w.change(name, func(n *corev1.Node) {
		n.Status.NodeInfo.BootID = boot
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}}
		n.Status.VolumesInUse = nil
		for _, h := range inUse {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, (&csi.Identity{Driver: w.driver}).UniqueName(h))
		}
	})
}

func (w *world) change(name string, f func(*corev1.Node)) {
	w.t.Helper()
	for try := 0; ; try++ {
		n := w.node(name)
		f(n)
		if _, err := w.api.CoreV1().Nodes().UpdateStatus(context.Background(), n, metav1.UpdateOptions{}); err == nil {
			return
		} else if try == 10 {
			w.t.Fatal(err)
		}
	}
}

func (w *world) edit(name string, f func(*corev1.Node)) {
	w.t.Helper()
	for try := 0; ; try++ {
		n := w.node(name)
		f(n)
		if _, err := w.api.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}); err == nil {
			return
		} else if try == 10 {
			w.t.Fatal(err)
		}
	}
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n, err := w.api.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) lives(name string, alive bool) { w.mu.Lock(); w.alive[name] = alive; w.mu.Unlock() }

// beat renews the leases of the nodes that live.
func (w *world) beat(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		var names []string
		every := cmp.Or(w.every, 200*time.Millisecond)
		for n, alive := range w.alive {
			if alive {
				names = append(names, n)
			}
		}
		w.mu.Unlock()
		for _, n := range names {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"beat":"%d"}}}`, time.Now().UnixNano())
			_, _ = w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, n, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// volume makes a PV, its claim and its VolumeAttachment on n1.
func (w *world) volume(name, driver string, annotations map[string]string) {
	w.t.Helper()
	pvName := w.ns + "-" + name
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	must(w.t, w.api.CoreV1().PersistentVolumes().Create, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvName},
		Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, ClaimRef: &corev1.ObjectReference{Namespace: w.ns, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h-" + name}}}})
	claim := w.claim(name, pvName, annotations)
	claim.Status.Phase = corev1.ClaimBound
	if _, err := w.api.CoreV1().PersistentVolumeClaims(w.ns).UpdateStatus(context.Background(), claim, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	must(w.t, w.api.StorageV1().VolumeAttachments().Create, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName("h-"+name, driver, w.n1)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: w.n1, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pvName}}})
}

// claim makes one that names the PersistentVolume, and that Kubernetes has not bound to it.
func (w *world) claim(name, pv string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	return must(w.t, w.api.CoreV1().PersistentVolumeClaims(w.ns).Create, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: pv, StorageClassName: new(string),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}})
}

func (w *world) detach(volume string) {
	w.t.Helper()
	if err := w.api.StorageV1().VolumeAttachments().Delete(context.Background(), csi.AttachmentName("h-"+volume, w.driver, w.n1), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// finalizer sets those of the volume's VolumeAttachment on n1.
func (w *world) finalizer(volume string, names ...string) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": names}})
	if err == nil {
		_, err = w.api.StorageV1().VolumeAttachments().Patch(context.Background(), csi.AttachmentName("h-"+volume, w.driver, w.n1), types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// tenant has a namespace of his own, a claim there that names the PersistentVolume, to which it is
// not bound, and on n1 a pod that uses another claim.
func (w *world) tenant(name, pv string) {
	w.t.Helper()
	ours := w.ns
	defer func() { w.ns = ours }()
	w.ns += "-tenant"
	must(w.t, w.api.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	if *onReal {
		must(w.t, w.api.CoreV1().ServiceAccounts(w.ns).Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	}
	w.claim(name, pv, nil)
	w.claim("own", "", nil)
	w.pod("tenant", w.n1, nil, "own")
}

// pod makes a pod that uses these claims; node "" leaves it waiting.
func (w *world) pod(name, node string, annotations map[string]string, claims ...string) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: corev1.PodSpec{NodeName: node,
		Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	p = must(w.t, w.api.CoreV1().Pods(w.ns).Create, p)
	if node != "" {
		p.Status.Phase = corev1.PodRunning
		if _, err := w.api.CoreV1().Pods(w.ns).UpdateStatus(context.Background(), p, metav1.UpdateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	return p
}

// start runs a controller, as a replica that has just become the leader.
func (w *world) start() *Controller {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := w.options
	tracker := observe.NewTracker(w.suspectAfter, o.MaxUnhealthy)
	drivers := []*csi.Identity{{Driver: w.driver}}
	if w.second != "" {
		drivers = append(drivers, &csi.Identity{Driver: w.second})
	}
	watch := observe.New(w.options.Client, tracker, recordNamespace, drivers...)
	for _, ids := range drivers {
		o.Drivers = append(o.Drivers, Driver{ids, watch.Index(ids.Driver)})
	}
	o.Nodes, o.Lives = synced{watch.Index(w.driver)}, steady{tracker}
	c := New(o)
	if w.dial != nil {
		c.ports.dial = w.dial
	}
	watch.OnChange(func(ch observe.Change) { c.Changed(ch.Node) })
	var done sync.WaitGroup
	for _, run := range []func(context.Context){watch.Run, tracker.Run, func(ctx context.Context) {
		tracker.Probe(ctx, func(ctx context.Context) error {
			_, err := o.Client.CoreV1().Namespaces().Get(ctx, w.ns, metav1.GetOptions{})
			return err
		})
	}} {
		done.Go(func() { run(ctx) })
	}
	if err := watch.WaitReady(ctx); err != nil {
		w.t.Fatal(err)
	}
	done.Go(func() { _ = c.Run(ctx) })
	w.stop = func() { cancel(); done.Wait() }
	return c
}

func (w *world) pods() (names []string) {
	w.t.Helper()
	list, err := w.api.CoreV1().Pods(w.ns).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

func (w *world) has(pod string) bool { w.t.Helper(); return slices.Contains(w.pods(), pod) }

// tainted returns the value and effect of n1's out-of-service taint.
func (w *world) tainted() string {
	w.t.Helper()
	for _, t := range w.node(w.n1).Spec.Taints {
		if t.Key == corev1.TaintNodeOutOfService {
			return t.Value + ":" + string(t.Effect)
		}
	}
	return ""
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.seen.mu.Lock()
			defer w.seen.mu.Unlock()
			w.t.Fatalf("not within 20 s: %s\nevents:\n%s\ncalls: %v", what, strings.Join(w.seen.events, "\n"), w.fencer.done())
		}
	}
}

// never: it does not come true for that long.
func (w *world) never(what string, during time.Duration, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(during); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			w.t.Fatalf("%s\ncalls: %v", what, w.fencer.done())
		}
	}
}

// confirm writes a person's word that n1 is off.
func (w *world) confirm() {
	w.t.Helper()
	n := w.node(w.n1)
	lease, err := w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(w.t.Context(), w.n1, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.options.Records.Confirm(w.t.Context(), w.n1, noderecord.Confirmation{By: "eve", Reason: "pulled the plug",
		Machines: []noderecord.Machine{{NodeUID: string(n.UID), BootID: "boot-1", LeaseRV: lease.ResourceVersion}}}); err != nil {
		w.t.Fatal(err)
	}
}
