package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// retryEvery is the pause after something failed.
const retryEvery = time.Second

// kubelet is what the machine does for its pods. All but what watches call it on
// one goroutine.
type kubelet struct {
	*Machine
	wake     chan struct{}
	pods     cache.Store
	nodes    cache.Store // of the one Node
	own      map[types.UID]*workload
	reported map[corev1.UniqueVolumeName]bool // in volumesInUse, as the API server has it
	ended    func()                           // of the watches
}

// workload is a pod on the machine.
type workload struct {
	pod     *corev1.Pod
	volumes []*volume // nil: not known yet
	running bool
	gone    bool // unmounted, and no pod any more
}

func newKubelet(m *Machine) *kubelet {
	return &kubelet{Machine: m, wake: make(chan struct{}, 1), own: map[types.UID]*workload{}, reported: map[corev1.UniqueVolumeName]bool{}}
}

// watch watches the machine's pods and its Node.
func (k *kubelet) watch(ctx context.Context) {
	only := func(field string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(k.Client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, k.Name).String()
		}))
	}
	pods, nodes := only("spec.nodeName"), only("metadata.name")
	rouse := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { k.rouse() }, UpdateFunc: func(any, any) { k.rouse() }, DeleteFunc: func(any) { k.rouse() }}
	for _, i := range []cache.SharedIndexInformer{pods.Core().V1().Pods().Informer(), nodes.Core().V1().Nodes().Informer()} {
		_, _ = i.AddEventHandler(rouse) // fails only for an informer that has ended
	}
	k.pods, k.nodes = pods.Core().V1().Pods().Informer().GetStore(), nodes.Core().V1().Nodes().Informer().GetStore()
	pods.Start(ctx.Done())
	nodes.Start(ctx.Done())
	k.ended = func() { pods.Shutdown(); nodes.Shutdown() }
}

func (k *kubelet) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (k *kubelet) run(ctx context.Context) {
	defer k.ended()
	report := time.NewTimer(rand.N(k.StatusEvery))
	defer report.Stop()
	for retry := time.Duration(0); ; {
		var again <-chan time.Time
		if retry > 0 {
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-report.C:
			k.report(ctx)
			report.Reset(k.StatusEvery)
		case <-k.wake:
		case <-again:
		}
		retry = 0
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("A simulated kubelet tries again", "node", k.Name, "err", err)
			retry = retryEvery
		}
	}
}

// report writes volumesInUse if it changed: what pods of the machine want, and
// what is mounted.
func (k *kubelet) report(ctx context.Context) {
	wanted := map[corev1.UniqueVolumeName]bool{}
	for _, w := range k.own {
		for _, v := range w.volumes {
			if !w.gone {
				wanted[v.unique] = true
			}
		}
	}
	if maps.Equal(wanted, k.reported) {
		return
	}
	// As a kubelet does, which writes no status without its heartbeats: from the
	// API server's stamp of the write and the heartbeat in it csi-fencepost tells
	// how far the node's clock is off.
	status, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": append([]corev1.UniqueVolumeName{}, slices.Sorted(maps.Keys(wanted))...), "conditions": k.conditions()}})
	if err != nil {
		return
	}
	if _, err := k.Client.CoreV1().Nodes().Patch(ctx, k.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		return // the next report says it
	}
	k.reported = wanted
	maps.DeleteFunc(k.own, func(_ types.UID, w *workload) bool { return w.gone })
}

// sync does what can be done now for each pod.
func (k *kubelet) sync(ctx context.Context) error {
	there := map[types.UID]bool{}
	for _, o := range k.pods.List() {
		pod := o.(*corev1.Pod)
		there[pod.UID] = true
		if k.own[pod.UID] == nil {
			k.own[pod.UID] = &workload{}
		}
		k.own[pod.UID].pod = pod
	}
	errs := []error{k.start(ctx)}
	for uid, w := range k.own {
		if !w.gone && (!there[uid] || w.pod.DeletionTimestamp != nil) {
			errs = append(errs, k.stop(ctx, w, there[uid]))
		}
	}
	return errors.Join(errs...)
}

// start runs the pods whose volumes are all reported in use and attached. What
// fails for one pod keeps no other waiting.
func (k *kubelet) start(ctx context.Context) error {
	var due []*workload
	var errs []error
	for _, w := range k.own {
		if w.gone || w.running || w.pod.DeletionTimestamp != nil {
			continue
		}
		if w.volumes == nil {
			var err error
			if w.volumes, err = k.volumesOf(ctx, w.pod); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if k.attached(w, k.seen()) {
			due = append(due, w)
		}
	}
	if len(due) == 0 {
		return errors.Join(errs...)
	}
	// A watch may be behind: nothing is mounted on its word.
	live, err := k.Client.CoreV1().Nodes().Get(ctx, k.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, w := range due {
		if k.attached(w, live) {
			errs = append(errs, k.startOne(ctx, w))
		}
	}
	return errors.Join(errs...)
}

// seen is the Node as the watch shows it.
func (k *kubelet) seen() *corev1.Node {
	o, found, err := k.nodes.GetByKey(k.Name)
	if err != nil || !found {
		return &corev1.Node{}
	}
	return o.(*corev1.Node)
}

// attached tells whether each volume of the pod is reported in use, and listed by
// the Node as attached.
func (k *kubelet) attached(w *workload, n *corev1.Node) bool {
	for _, v := range w.volumes {
		listed := slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v.unique })
		if !k.reported[v.unique] || !listed {
			return false
		}
	}
	return true
}

func (k *kubelet) startOne(ctx context.Context, w *workload) error {
	for _, v := range w.volumes {
		if err := k.mount(ctx, w.pod, v); err != nil {
			return fmt.Errorf("pod %s: %w", w.pod.Name, err)
		}
	}
	patch := `{"metadata":{"uid":"` + string(w.pod.UID) + `"},"status":{"phase":"Running","conditions":[` +
		`{"type":"Initialized","status":"True"},{"type":"ContainersReady","status":"True"},{"type":"Ready","status":"True"}]}}`
	_, err := k.Client.CoreV1().Pods(w.pod.Namespace).Patch(ctx, w.pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("status of pod %s: %w", w.pod.Name, err)
	}
	w.running = true
	return nil
}

// stop unmounts the volumes of a pod, and deletes it for good if it is still
// there.
func (k *kubelet) stop(ctx context.Context, w *workload, there bool) error {
	for _, v := range w.volumes {
		if err := k.unmount(ctx, w.pod, v); err != nil {
			return fmt.Errorf("pod %s: %w", w.pod.Name, err)
		}
	}
	w.gone = true
	if !there {
		return nil
	}
	now := int64(0)
	return ignoreGone(k.Client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.pod.UID}}))
}
