package main

import (
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// stormSight is what watches of the API server have shown of a storm so far, each
// with the moment at which it was seen here.
type stormSight struct {
	mu      sync.Mutex
	off     time.Time
	records map[string]string // a record's Lease: the node it is about
	// dying are the nodes that lose power, with what became of them.
	dying map[string]*stormNode
	pods  map[string]stormPod // by name
	// notReady is called, once, for each dying node.
	notReady func(node string)
}

// stormNode is a node that loses power.
type stormNode struct {
	notReady, tainted, proven time.Time
}

// stormPod is the latest pod of a name.
type stormPod struct {
	uid  types.UID
	node string
	// running since; zero: not, or not any more
	running time.Time
}

// newStormSight watches until the stage ends.
func newStormSight(p *plane, s *bed.Stage, dying []string) (*stormSight, error) {
	w := &stormSight{records: map[string]string{}, dying: map[string]*stormNode{}, pods: map[string]stormPod{}, notReady: func(string) {}}
	for _, node := range dying {
		w.dying[node], w.records[record.LeaseName(node)] = &stormNode{}, node
	}
	config := p.bed.Cluster.Admin()
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.Name))
	nodes := informers.NewSharedInformerFactory(client, 0)
	leases := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(recordsNamespace()))
	errs := []error{
		onChange(pods.Core().V1().Pods().Informer(), w.podChanged, w.podGone),
		onChange(nodes.Core().V1().Nodes().Informer(), w.nodeChanged, func(any) {}),
		onChange(leases.Coordination().V1().Leases().Informer(), w.recordChanged, func(any) {}),
	}
	stop := make(chan struct{})
	p.Cleanup(func() { close(stop); pods.Shutdown(); nodes.Shutdown(); leases.Shutdown() })
	for _, f := range []informers.SharedInformerFactory{pods, nodes, leases} {
		f.Start(stop)
	}
	return w, errors.Join(errs...)
}

// recordsNamespace is where the nodes' records are.
func recordsNamespace() string { return config.Default().Fencing.Namespace }

func onChange(informer cache.SharedInformer, changed, gone func(any)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: gone})
	return err
}

// powerOff notes the moment, and which node each pod is on.
func (w *stormSight) powerOff() (nodeOf map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off, nodeOf = time.Now(), map[string]string{}
	for name, p := range w.pods {
		nodeOf[name] = p.node
	}
	return nodeOf
}

// count counts the pods that run, on nodes that die or on the others.
func (w *stormSight) count(dying bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if w.dying[p.node] != nil == dying && !p.running.IsZero() {
			n++
		}
	}
	return n
}

// runs tells since when each pod runs elsewhere, and what became of the nodes.
func (w *stormSight) runs() (pods map[string]time.Time, nodes map[string]stormNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods, nodes = map[string]time.Time{}, map[string]stormNode{}
	for name, p := range w.pods {
		if w.dying[p.node] == nil && !p.running.IsZero() {
			pods[name] = p.running
		}
	}
	for name, n := range w.dying {
		nodes[name] = *n
	}
	return pods, nodes
}

// allTainted tells whether each dying node has the out-of-service taint.
func (w *stormSight) allTainted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.dying {
		if d.tainted.IsZero() {
			return false
		}
	}
	return true
}

func (w *stormSight) podChanged(o any) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := stormPod{uid: p.UID, node: p.Spec.NodeName}
	if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
		now.running = time.Now()
		if was := w.pods[p.Name]; was.uid == p.UID && !was.running.IsZero() {
			now.running = was.running
		}
	}
	w.pods[p.Name] = now
}

func (w *stormSight) podGone(o any) {
	if last, missed := o.(cache.DeletedFinalStateUnknown); missed {
		o = last.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[p.Name].uid == p.UID {
		delete(w.pods, p.Name)
	}
}

func (w *stormSight) nodeChanged(o any) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.dying[n.Name]
	if d == nil || w.off.IsZero() {
		return
	}
	if !bed.Ready(n) && d.notReady.IsZero() {
		d.notReady = time.Now()
		go w.notReady(n.Name)
	}
	if d.tainted.IsZero() && bed.OutOfService(n) {
		d.tainted = time.Now()
	}
}

// recordChanged takes note of the proof, which is the power fence in the node's record.
func (w *stormSight) recordChanged(o any) {
	l, ok := o.(*coordinationv1.Lease)
	if !ok || !bed.ReadOff(l) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.dying[w.records[l.Name]]; d != nil && !w.off.IsZero() && d.proven.IsZero() {
		d.proven = time.Now()
	}
}
