package observe

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/watchlist"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// wire makes the feeds. Kubelets' leases are watched whole: their metadata is
// most of them.
func (w *Watch) wire(client kubernetes.Interface, recordNamespace string) {
	core, storage := client.CoreV1(), client.StorageV1()
	pvs, vas := core.PersistentVolumes(), storage.VolumeAttachments()
	kubelets, recorded := client.CoordinationV1().Leases(corev1.NamespaceNodeLease), client.CoordinationV1().Leases(recordNamespace)
	w.feeds = [kinds]*feed{
		leases: {name: "leases in namespace " + corev1.NamespaceNodeLease, api: apiOf(&coordinationv1.Lease{}, kubelets.List, kubelets.Watch, 1000),
			put: w.putLease, drop: w.dropLease, end: w.endLeases},
		csiNodes: {name: "csinodes", api: apiOf(&storagev1.CSINode{}, storage.CSINodes().List, storage.CSINodes().Watch, 1000),
			put: w.putCSINode, drop: w.dropCSINode, end: w.endNodes(csiNodes, (*store).sweepCSINodes)},
		nodes: {name: "nodes", api: apiOf(&corev1.Node{}, core.Nodes().List, core.Nodes().Watch, 50),
			put: w.putNode, drop: w.dropNode, end: w.endNodes(nodes, (*store).sweepNodes)},
		volumes: {name: "persistentvolumes", api: apiOf(&corev1.PersistentVolume{}, pvs.List, pvs.Watch, 500),
			put: w.putVolume, drop: w.dropVolume, end: w.endVolumes},
		attachments: {name: "volumeattachments", api: apiOf(&storagev1.VolumeAttachment{}, vas.List, vas.Watch, 500),
			put: w.putAttachment, drop: w.dropAttachment, end: w.endNodes(attachments, (*store).sweepAttachments)},
		records: {name: "leases of the nodes' records", api: apiOf(&coordinationv1.Lease{}, recorded.List, recorded.Watch, 100),
			put: w.putRecord, drop: w.dropRecord, end: w.endNodes(records, (*store).sweepRecords)},
	}
	streams := !watchlist.DoesClientNotSupportWatchListSemantics(client)
	for kind, f := range w.feeds {
		f.streams = streams
		f.begin = func() {
			w.change(func(x *Index) []string {
				x.store.begin(kind)
				return nil
			})
		}
		f.failed = func(err error) { w.watchError(kind, err) }
	}
}

func apiOf[L runtime.Object](example runtime.Object, list func(context.Context, metav1.ListOptions) (L, error),
	watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error), page int64) api {
	return api{example: example, watch: watch, page: page,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, options)
		}}
}

// change changes each index. It returns what f says that it changed, each once.
func (w *Watch) change(f func(*Index) []string) (changed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.indexes {
		changed = append(changed, f(x)...)
	}
	if len(w.indexes) > 1 {
		slices.Sort(changed)
		changed = slices.Compact(changed)
	}
	return changed
}

// tellNodes tells of nodes that changed, once the index shows it.
func (w *Watch) tellNodes(names []string) {
	for _, name := range names {
		w.onChange(Change{Node: name})
	}
}

func (w *Watch) tellVolumes(handles []string) {
	for _, handle := range handles {
		w.onChange(Change{Volume: handle})
	}
}

// endNodes ends a listing of a kind whose sweep returns nodes.
func (w *Watch) endNodes(kind int, sweep func(*store) []string) func() {
	return func() {
		gone := w.change(func(x *Index) []string { return sweep(x.store) })
		switch kind {
		case attachments:
			w.order.KeepAttachments(w.caughtAttachment)
		case nodes:
			for _, name := range gone {
				w.order.GoneNode(name)
			}
		}
		w.tellNodes(gone)
	}
}

func (w *Watch) caughtAttachment(name, uid string) bool {
	return slices.ContainsFunc(w.indexes, func(x *Index) bool { return x.CaughtAttachment(name, uid) })
}

func (w *Watch) putVolume(obj runtime.Object, _ bool) {
	w.tellVolumes(w.change(func(x *Index) []string { return x.store.putVolume(obj.(*corev1.PersistentVolume)) }))
}

func (w *Watch) dropVolume(obj runtime.Object) {
	w.tellVolumes(w.change(func(x *Index) []string { return x.store.dropVolume(obj.(*corev1.PersistentVolume).Name) }))
}

func (w *Watch) endVolumes() {
	w.tellVolumes(w.change(func(x *Index) []string { return x.store.sweepVolumes() }))
}

func (w *Watch) putAttachment(obj runtime.Object, isNew bool) {
	va := obj.(*storagev1.VolumeAttachment)
	changed := w.change(func(x *Index) []string {
		x.keepRefusalLocked(va)
		return x.store.putAttachment(va, isNew)
	})
	if w.Index(va.Spec.Attacher) != nil {
		w.order.Attachment(va)
	}
	w.tellNodes(changed)
}

func (w *Watch) dropAttachment(obj runtime.Object) {
	va := obj.(*storagev1.VolumeAttachment)
	changed := w.change(func(x *Index) []string {
		delete(x.refusals, va.Name)
		return x.store.dropAttachment(va)
	})
	w.order.GoneAttachment(va.Name)
	w.tellNodes(changed)
}

func (w *Watch) putNode(obj runtime.Object, _ bool) {
	n := obj.(*corev1.Node)
	w.order.Node(n)
	var tell []func()
	w.change(func(x *Index) []string {
		if x.store.putNode(n) {
			shown := &corev1.Node{}
			x.store.showNode(n.Name, shown, oneVolume)
			tell = append(tell, func() { x.onNode(shown) })
		}
		return nil
	})
	for _, f := range tell {
		f()
	}
	if len(tell) > 0 {
		w.onChange(Change{Node: n.Name})
	}
}

func (w *Watch) dropNode(obj runtime.Object) {
	name := obj.(*corev1.Node).Name
	changed := w.change(func(x *Index) []string { return ifSo(x.store.dropNode(name), name) })
	w.order.GoneNode(name)
	w.tellNodes(changed)
}

// ifSo is the name if something of it changed.
func ifSo(changed bool, name string) []string {
	if changed {
		return []string{name}
	}
	return nil
}

func (w *Watch) putCSINode(obj runtime.Object, _ bool) {
	n := obj.(*storagev1.CSINode)
	w.tellNodes(w.change(func(x *Index) []string { return ifSo(x.store.putCSINode(n.Name, x.ids.NodeID(n)), n.Name) }))
}

func (w *Watch) dropCSINode(obj runtime.Object) {
	name := obj.(*storagev1.CSINode).Name
	w.tellNodes(w.change(func(x *Index) []string { return ifSo(x.store.putCSINode(name, ""), name) }))
}

func (w *Watch) putLease(obj runtime.Object, _ bool) {
	lease := obj.(*coordinationv1.Lease)
	w.leased(lease.Name, true)
	w.tracker.Observe(lease)
}

func (w *Watch) dropLease(obj runtime.Object) {
	name := obj.(*coordinationv1.Lease).Name
	w.leased(name, false)
	w.leaseGone(name)
}

func (w *Watch) leased(node string, there bool) {
	w.change(func(x *Index) []string {
		x.store.putLease(node, there)
		return nil
	})
}

func (w *Watch) endLeases() {
	for _, name := range w.change(func(x *Index) []string { return x.store.sweepLeases() }) {
		w.leaseGone(name)
	}
}

func (w *Watch) leaseGone(node string) {
	w.tracker.Absent(node)
	w.onChange(Change{Node: node})
}

func (w *Watch) putRecord(obj runtime.Object, _ bool) {
	lease := obj.(*coordinationv1.Lease)
	node, is := record.NodeOf(lease)
	if is {
		w.onRecord(node, lease)
	}
	// What is asked and answered wakes nobody but who asked.
	version := record.Version(lease, node)
	w.tellNodes(w.change(func(x *Index) []string { return x.store.putRecord(lease.Name, node, version) }))
}

func (w *Watch) dropRecord(obj runtime.Object) {
	w.tellNodes(w.change(func(x *Index) []string { return x.store.dropRecord(obj.(*coordinationv1.Lease).Name) }))
}
