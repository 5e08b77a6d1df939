package watch

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// Volumes names the PersistentVolumes with that handle.
func (w *Watch) Volumes(handle string) []string { return w.keys(volumes, byHandle, w.ids.Key(handle)) }

// Attachments names the VolumeAttachments of that volume, in any state: those
// that refer to one of its PVs, those that carry it inline, and those whose
// name is made from it although the PV that they refer to is gone.
func (w *Watch) Attachments(handle string) []string {
	names := sets.New(w.keys(attachments, bySource, inlineKey(w.ids.Key(handle)))...)
	for _, pv := range w.Volumes(handle) {
		names.Insert(w.keys(attachments, bySource, pv)...)
	}
	store := w.stores[attachments].GetIndexer()
	for _, node := range store.ListIndexFuncValues(byNode) {
		name := csi.AttachmentName(handle, w.ids.Driver, node)
		if _, found, err := store.GetByKey(name); err == nil && found {
			names.Insert(name)
		}
	}
	return sets.List(names)
}

// NodesListing names the Nodes whose volumesInUse or volumesAttached names the
// volume.
func (w *Watch) NodesListing(handle string) []string {
	return w.keys(nodes, byHandle, w.ids.Key(handle))
}

// NodeNames names the nodes whose CSINode carries that node ID of this driver.
func (w *Watch) NodeNames(nodeID string) []string { return w.keys(csiNodes, byNodeID, nodeID) }

// NodeID is this driver's node ID on the node's CSINode; empty: none.
func (w *Watch) NodeID(nodeName string) string {
	obj, found, err := w.stores[csiNodes].GetStore().GetByKey(nodeName)
	if err != nil || !found {
		return ""
	}
	return w.ids.NodeID(obj.(*storagev1.CSINode))
}

// NodeIDs are all node IDs of this driver.
func (w *Watch) NodeIDs() []string {
	return w.stores[csiNodes].GetIndexer().ListIndexFuncValues(byNodeID)
}

// EachAttachment calls f for each VolumeAttachment of the driver, with the
// handle of its volume; empty where its PV is not known.
func (w *Watch) EachAttachment(f func(va *storagev1.VolumeAttachment, handle string)) {
	for _, obj := range w.stores[attachments].GetStore().List() {
		if va := obj.(*storagev1.VolumeAttachment); va.Spec.Attacher == w.ids.Driver {
			f(va, w.handleOf(va))
		}
	}
}

func (w *Watch) handleOf(va *storagev1.VolumeAttachment) string {
	handle, ok := w.ids.InlineHandle(va)
	if name := va.Spec.Source.PersistentVolumeName; !ok && name != nil {
		if obj, found, err := w.stores[volumes].GetStore().GetByKey(*name); err == nil && found {
			handle, _ = w.ids.PVHandle(obj.(*corev1.PersistentVolume))
		}
	}
	return handle
}

// EachNode calls f for each Node that is watched.
func (w *Watch) EachNode(f func(*corev1.Node)) {
	for _, obj := range w.stores[nodes].GetStore().List() {
		f(obj.(*corev1.Node))
	}
}

// keys never fails: the index is one that wire added.
func (w *Watch) keys(kind, index, value string) []string {
	keys, err := w.stores[kind].GetIndexer().IndexKeys(index, value)
	if err != nil {
		panic(err)
	}
	return keys
}

func (w *Watch) volumeHandle(obj any) ([]string, error) {
	pv := obj.(*corev1.PersistentVolume)
	if handle, ok := w.ids.PVHandle(pv); ok {
		return []string{w.ids.Key(handle)}, nil
	}
	return nil, nil
}

// attachmentSource indexes a VolumeAttachment by its PV's name or, inline, by
// its handle: what the PV's handle is may not be known yet, or no more.
func (w *Watch) attachmentSource(obj any) ([]string, error) {
	va := obj.(*storagev1.VolumeAttachment)
	switch source := va.Spec.Source; {
	case va.Spec.Attacher != w.ids.Driver:
		return nil, nil
	case source.InlineVolumeSpec != nil:
		if handle, ok := w.ids.InlineHandle(va); ok {
			return []string{inlineKey(w.ids.Key(handle))}, nil
		}
	case source.PersistentVolumeName != nil:
		return []string{*source.PersistentVolumeName}, nil
	}
	return nil, nil
}

func attachmentNode(obj any) ([]string, error) {
	return []string{obj.(*storagev1.VolumeAttachment).Spec.NodeName}, nil
}

// inlineKey cannot be the name of a PV.
func inlineKey(handle string) string { return "/inline/" + handle }

func (w *Watch) nodeHandles(obj any) ([]string, error) {
	handles := w.ids.NodeHandles(obj.(*corev1.Node))
	for i := range handles {
		handles[i] = w.ids.Key(handles[i])
	}
	return handles, nil
}

func (w *Watch) csiNodeID(obj any) ([]string, error) {
	if id := w.ids.NodeID(obj.(*storagev1.CSINode)); id != "" {
		return []string{id}, nil
	}
	return nil, nil
}
