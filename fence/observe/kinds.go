package observe

import (
	"context"

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

// wire makes the feeds. Kubelets' leases are watched whole: their metadata, of
// which the resourceVersion is asked, is most of them.
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
		f.begin = func() { w.change(func(s *store) { s.begin(kind) }) }
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

// change changes the index.
func (w *Watch) change(f func(*store)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.store)
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
		var gone []string
		w.change(func(s *store) { gone = sweep(s) })
		switch kind {
		case attachments:
			w.order.KeepAttachments(w.CaughtAttachment)
		case nodes:
			for _, name := range gone {
				w.order.GoneNode(name)
			}
		}
		w.tellNodes(gone)
	}
}

func (w *Watch) putVolume(obj runtime.Object, _ bool) {
	var changed []string
	w.change(func(s *store) { changed = s.putVolume(obj.(*corev1.PersistentVolume)) })
	w.tellVolumes(changed)
}

func (w *Watch) dropVolume(obj runtime.Object) {
	var changed []string
	w.change(func(s *store) { changed = s.dropVolume(obj.(*corev1.PersistentVolume).Name) })
	w.tellVolumes(changed)
}

func (w *Watch) endVolumes() {
	var gone []string
	w.change(func(s *store) { gone = s.sweepVolumes() })
	w.tellVolumes(gone)
}

func (w *Watch) putAttachment(obj runtime.Object, isNew bool) {
	va := obj.(*storagev1.VolumeAttachment)
	var changed []string
	w.change(func(s *store) {
		changed = s.putAttachment(va, isNew)
		w.keepRefusalLocked(va)
	})
	if va.Spec.Attacher == w.ids.Driver {
		w.order.Attachment(va)
	}
	w.tellNodes(changed)
}

func (w *Watch) dropAttachment(obj runtime.Object) {
	va := obj.(*storagev1.VolumeAttachment)
	var changed []string
	w.change(func(s *store) {
		changed = s.dropAttachment(va)
		delete(w.refusals, va.Name)
	})
	w.order.GoneAttachment(va.Name)
	w.tellNodes(changed)
}

func (w *Watch) putNode(obj runtime.Object, _ bool) {
	n := obj.(*corev1.Node)
	var changed bool
	var shown *corev1.Node
	w.order.Node(n)
	w.change(func(s *store) {
		if changed = s.putNode(n); changed {
			shown = &corev1.Node{}
			s.showNode(n.Name, shown, oneVolume)
		}
	})
	if changed {
		w.onNode(shown)
		w.onChange(Change{Node: n.Name})
	}
}

func (w *Watch) dropNode(obj runtime.Object) {
	name, was := obj.(*corev1.Node).Name, false
	w.change(func(s *store) { was = s.dropNode(name) })
	w.order.GoneNode(name)
	if was {
		w.onChange(Change{Node: name})
	}
}

func (w *Watch) putCSINode(obj runtime.Object, _ bool) {
	n := obj.(*storagev1.CSINode)
	w.setNodeID(n.Name, w.ids.NodeID(n))
}

func (w *Watch) dropCSINode(obj runtime.Object) { w.setNodeID(obj.(*storagev1.CSINode).Name, "") }

func (w *Watch) setNodeID(node, id string) {
	var changed bool
	w.change(func(s *store) { changed = s.putCSINode(node, id) })
	if changed {
		w.onChange(Change{Node: node})
	}
}

func (w *Watch) putLease(obj runtime.Object, _ bool) {
	lease := obj.(*coordinationv1.Lease)
	w.change(func(s *store) { s.putLease(lease.Name, true) })
	w.tracker.Observe(lease.Name, lease.ResourceVersion)
}

func (w *Watch) dropLease(obj runtime.Object) {
	name := obj.(*coordinationv1.Lease).Name
	w.change(func(s *store) { s.putLease(name, false) })
	w.leaseGone(name)
}

func (w *Watch) endLeases() {
	var gone []string
	w.change(func(s *store) { gone = s.sweepLeases() })
	for _, name := range gone {
		w.leaseGone(name)
	}
}

func (w *Watch) leaseGone(node string) {
	w.tracker.Absent(node)
	w.onChange(Change{Node: node})
}

func (w *Watch) putRecord(obj runtime.Object, _ bool) {
	lease := obj.(*coordinationv1.Lease)
	node, _ := record.NodeOf(lease)
	var changed []string
	w.change(func(s *store) { changed = s.putRecord(lease.Name, node, lease.ResourceVersion) })
	w.tellNodes(changed)
}

func (w *Watch) dropRecord(obj runtime.Object) {
	var changed []string
	w.change(func(s *store) { changed = s.dropRecord(obj.(*coordinationv1.Lease).Name) })
	w.tellNodes(changed)
}
