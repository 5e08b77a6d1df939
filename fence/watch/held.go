package watch

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/csi/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Held is a volume of the driver that a node may hold, as the index shows it.
type Held struct {
	Handle string
	// PV is the name of a PersistentVolume of it; empty: none is known.
	PV string
	// Entry of the volume's ledger for that node; nil: none.
	Entry *ledger.Entry
	// Attachment is the name of the VolumeAttachment; empty: none. Detaching
	// tells that it is being deleted.
	Attachment string
	Detaching  bool
}

// Kept tells that nobody has taken the volume from the node, nor is about to:
// its VolumeAttachment stands, and its ledger, if the node is in it, says that
// the node holds it.
func (h *Held) Kept() bool {
	return h.Attachment != "" && !h.Detaching &&
		(h.Entry == nil || h.Entry.State == fence.Publishing || h.Entry.State == fence.Held)
}

// HeldBy are the volumes that the driver's VolumeAttachments and the ledgers
// name for that node, and those that a takeover took from it, by handle. What
// the Node's own status lists is not among them.
func (w *Watch) HeldBy(node string) []Held {
	byHandle := map[string]*Held{}
	at := func(handle string) *Held {
		if byHandle[handle] == nil {
			byHandle[handle] = &Held{Handle: handle}
		}
		return byHandle[handle]
	}
	for _, name := range w.keys(attachments, byNode, node) {
		obj, found, err := w.stores[attachments].GetStore().GetByKey(name)
		if err != nil || !found {
			continue
		}
		va := obj.(*storagev1.VolumeAttachment)
		handle := w.handleOf(va)
		if va.Spec.Attacher != w.ids.Driver || handle == "" {
			continue
		}
		h := at(handle)
		h.Attachment, h.Detaching = name, va.DeletionTimestamp != nil
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			h.PV = *pv
		}
	}
	w.eachLedgerOf(node, func(pv *corev1.PersistentVolume, handle string, e *ledger.Entry) {
		h := at(handle)
		h.PV, h.Entry = pv.Name, e
	})
	held := make([]Held, 0, len(byHandle))
	for _, h := range byHandle {
		held = append(held, *h)
	}
	slices.SortFunc(held, func(a, b Held) int { return strings.Compare(a.Handle, b.Handle) })
	return held
}

// eachLedgerOf looks into those ledgers alone whose text names the node: most
// do not, and to parse them all takes long.
func (w *Watch) eachLedgerOf(node string, f func(*corev1.PersistentVolume, string, *ledger.Entry)) {
	for _, obj := range w.stores[volumes].GetStore().List() {
		pv := obj.(*corev1.PersistentVolume)
		text, ok := pv.Annotations[ledger.Annotation]
		if !ok || !strings.Contains(text, `"`+node+`"`) {
			continue
		}
		handle, ours := w.ids.PVHandle(pv)
		if !ours {
			continue
		}
		l, err := ledger.Parse(text)
		if err != nil {
			continue // the guard refuses by it, and says so
		}
		for _, e := range l.ByNodeName(node) {
			f(pv, handle, e)
		}
	}
}

// Holding names the nodes that VolumeAttachments of the driver name, each once.
func (w *Watch) Holding() []string {
	var names []string
	for _, obj := range w.stores[attachments].GetStore().List() {
		if va := obj.(*storagev1.VolumeAttachment); va.Spec.Attacher == w.ids.Driver {
			names = append(names, va.Spec.NodeName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Volume is a PersistentVolume as it is watched: its driver and handle, and all
// of it where it is an in-tree one; nil: there is none. Do not change it.
func (w *Watch) Volume(name string) *corev1.PersistentVolume {
	obj, found, err := w.stores[volumes].GetStore().GetByKey(name)
	if err != nil || !found {
		return nil
	}
	return obj.(*corev1.PersistentVolume)
}

// Node is a Node as it is watched; nil: there is none. Do not change it.
func (w *Watch) Node(name string) *corev1.Node {
	obj, found, err := w.stores[nodes].GetStore().GetByKey(name)
	if err != nil || !found {
		return nil
	}
	return obj.(*corev1.Node)
}

// AttachmentsOn counts the VolumeAttachments of a node, of all drivers.
func (w *Watch) AttachmentsOn(node string) int { return len(w.keys(attachments, byNode, node)) }

// AttachedElsewhere tells that a VolumeAttachment of that PV names another node.
func (w *Watch) AttachedElsewhere(pv, node string) bool {
	return slices.ContainsFunc(w.keys(attachments, bySource, pv), func(name string) bool {
		obj, found, err := w.stores[attachments].GetStore().GetByKey(name)
		return err == nil && found && obj.(*storagev1.VolumeAttachment).Spec.NodeName != node
	})
}
