package observe

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Held is a volume of the driver that a node may hold, as the index shows it.
type Held struct {
	Handle string
	// PV is the name of a PersistentVolume of it; empty: none is known.
	PV string
	// Entry of the volume's ledger for that node, with what names the machine and
	// its state; nil: none.
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
	return h.Attachment != "" && !h.Detaching && h.entryHolds()
}

// entryHolds tells whether the ledger, if the node is in it, says that the node holds the volume.
func (h *Held) entryHolds() bool {
	return h.Entry == nil || h.Entry.State == fence.Publishing || h.Entry.State == fence.Held
}

// HeldBy are the volumes that the driver's VolumeAttachments and the ledgers
// name for that node, and those that a takeover took from it, by handle. What
// the Node's own status lists is not among them.
func (x *Index) HeldBy(node string) []Held {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := x.store.places[node]
	if p == nil {
		return []Held{}
	}
	byHandle := map[string]*Held{}
	at := func(handle string) *Held {
		if byHandle[handle] == nil {
			byHandle[handle] = &Held{Handle: handle}
		}
		return byHandle[handle]
	}
	// Of two with one handle the one that was there first is shown.
	for _, a := range slices.Backward(p.attachments) {
		handle := a.handle()
		if handle == "" {
			continue
		}
		h := at(handle)
		h.Attachment, h.Detaching = a.name, a.detaching
		if a.volume != nil {
			h.PV = a.volume.name
		}
	}
	for _, v := range slices.Backward(p.holds) {
		for _, holds := range v.holders {
			if holds.place != p {
				continue
			}
			h, m := at(v.handle), holds.machine.Value()
			h.PV, h.Entry = v.name, &ledger.Entry{NodeID: m.NodeID, NodeName: node, NodeUID: m.NodeUID, BootID: m.BootID,
				SystemUUID: m.SystemUUID, ProviderID: m.ProviderID, MachineID: m.MachineID, SystemShared: m.SystemShared, State: m.state}
		}
	}
	held := make([]Held, 0, len(byHandle))
	for _, h := range byHandle {
		held = append(held, *h)
	}
	slices.SortFunc(held, func(a, b Held) int { return strings.Compare(a.Handle, b.Handle) })
	return held
}

// Holding names the nodes that VolumeAttachments of the driver name, and those of which a ledger
// alone says that they hold a volume while it is to be attached elsewhere, each once.
func (x *Index) Holding() []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.store.placesWhere(func(p *place) bool { return len(p.attachments) != 0 || p.waitedFor() })
}

// waitedFor tells whether the ledger of a volume that has a VolumeAttachment says that a node holds
// it which has no VolumeAttachment itself.
func (p *place) waitedFor() bool {
	holds := func(h holder) bool {
		state := h.machine.Value().state
		return h.place == p && state != fence.TakenOver && state != fence.Released
	}
	return slices.ContainsFunc(p.holds, func(v *volume) bool { return len(v.attachments) != 0 && slices.ContainsFunc(v.holders, holds) })
}

// Lists tells whether the status of that Node names a volume of the driver.
func (x *Index) Lists(node string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := x.store.places[node]
	return p != nil && len(p.listings) != 0
}

// Volume is a PersistentVolume as it is watched: its driver and handle, which of
// an in-tree one are those that it was migrated to; of another driver's, whose it
// is. nil: there is none.
func (x *Index) Volume(name string) *corev1.PersistentVolume {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s, pv := x.store, &corev1.PersistentVolume{}
	pv.Name = name
	if f, ok := s.foreign[name]; ok {
		pv.Spec.PersistentVolumeSource = f.source.Value().spec()
		return pv
	}
	v := s.volumes[name]
	if v == nil || !v.there {
		return nil
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: s.ids.Driver, VolumeHandle: v.handle}
	return pv
}

// AttachmentsOn counts the VolumeAttachments of a node, of all drivers.
func (x *Index) AttachmentsOn(node string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := x.store.places[node]
	if p == nil {
		return 0
	}
	return int(p.others) + len(p.attachments)
}

// AttachedElsewhere tells that a VolumeAttachment of that PV names another node.
func (x *Index) AttachedElsewhere(pv, node string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	v := x.store.volumes[pv]
	return v != nil && slices.ContainsFunc(v.attachments, func(a *attachment) bool { return a.place.name != node })
}
