package blackout

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// sight is what the watches have shown so far.
type sight struct {
	node string

	mu       sync.Mutex
	leaseRV  string
	leaseAt  time.Time // its last change
	off      time.Time
	notReady time.Time
	proven   time.Time
	tainted  time.Time
	before   map[types.UID]bool // pods that ran on the node
	gone     map[types.UID]time.Time
	running  map[string]run // elsewhere, by name
}

// run is a pod that runs. One that is deleted runs no more, and the next one of
// its name begins anew.
type run struct {
	uid   types.UID
	since time.Time
}

// newSight watches until the stage ends.
func newSight(s *bed.Stage, old *bed.Node) *sight {
	w := &sight{node: old.Name, before: map[types.UID]bool{}, gone: map[types.UID]time.Time{}, running: map[string]run{}}
	named := func(name string) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		})
	}
	in := informers.WithNamespace
	records := config.Default().Fencing.Namespace
	watch := func(what func(informers.SharedInformerFactory) cache.SharedInformer, changed, deleted func(any), options ...informers.SharedInformerOption) {
		factory := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, options...)
		informer := what(factory)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: deleted})
		if err != nil {
			s.T.Fatalf("%s: watch: %v", s.Name, err)
		}
		stop := make(chan struct{})
		factory.Start(stop)
		s.T.Cleanup(func() { close(stop); factory.Shutdown() })
	}
	pods := func(f informers.SharedInformerFactory) cache.SharedInformer { return f.Core().V1().Pods().Informer() }
	nodes := func(f informers.SharedInformerFactory) cache.SharedInformer { return f.Core().V1().Nodes().Informer() }
	leases := func(f informers.SharedInformerFactory) cache.SharedInformer {
		return f.Coordination().V1().Leases().Informer()
	}
	watch(pods, w.podChanged, w.podGone, in(s.Name))
	watch(nodes, w.nodeChanged, nil, named(old.Name))
	watch(leases, w.leaseChanged, nil, in(corev1.NamespaceNodeLease), named(old.Name))
	watch(leases, w.recordChanged, nil, in(records), named(record.LeaseName(old.Name)))
	return w
}

func (w *sight) powerOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = time.Now()
}

// settled counts the pods that run on the old node.
func (w *sight) settled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.before)
}

func (w *sight) podChanged(o any) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
	switch {
	case p.Spec.NodeName == w.node:
		if runs {
			w.before[p.UID] = true
		}
	case !runs:
		delete(w.running, p.Name)
	case w.running[p.Name].uid != p.UID:
		w.running[p.Name] = run{p.UID, time.Now()}
	}
}

func (w *sight) podGone(o any) {
	if last, missed := o.(cache.DeletedFinalStateUnknown); missed {
		o = last.Obj
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := o.(*corev1.Pod)
	switch {
	case !ok:
	case w.before[p.UID]:
		first(w.gone, p.UID)
	case w.running[p.Name].uid == p.UID:
		delete(w.running, p.Name)
	}
}

func (w *sight) nodeChanged(o any) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off.IsZero() {
		return
	}
	if !bed.Ready(n) && w.notReady.IsZero() {
		w.notReady = time.Now()
	}
	if bed.OutOfService(n) && w.tainted.IsZero() {
		w.tainted = time.Now()
	}
}

func (w *sight) leaseChanged(o any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := o.(*coordinationv1.Lease); ok && l.ResourceVersion != w.leaseRV {
		w.leaseRV, w.leaseAt = l.ResourceVersion, time.Now()
	}
}

// recordChanged takes note of the proof, which is the fence in the node's record.
func (w *sight) recordChanged(o any) {
	l, ok := o.(*coordinationv1.Lease)
	if !ok || !bed.ReadOff(l) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.off.IsZero() && w.proven.IsZero() {
		w.proven = time.Now()
	}
}

// first notes the moment of the first time.
func first(at map[types.UID]time.Time, uid types.UID) {
	if _, known := at[uid]; !known {
		at[uid] = time.Now()
	}
}
