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
	return h.Attachment != "" && !h.Detaching &&
		(h.Entry == nil || h.Entry.State == fence.Publishing || h.Entry.State == fence.Held)
}

// HeldBy are the volumes that the driver's VolumeAttachments and the ledgers
// name for that node, and those that a takeover took from it, by handle. What
// the Node's own status lists is not among them.
func (x *Index) HeldBy(node string) []Held {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s, p := x.store, x.store.placeOf(node)
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
	for r := p.attachments; r != 0; r = s.attachments.at(r).nextOfPlace {
		a, handle := s.attachments.at(r), s.handleOf(r)
		if handle == "" {
			continue
		}
		h := at(handle)
		h.Attachment, h.Detaching = s.attachmentName(r), a.is.has(vaDetaching)
		if !a.is.has(vaInline) {
			h.PV = s.volumes.at(a.volume).name.String()
		}
	}
	for r := p.holders; r != 0; r = s.holders.at(r).nextOfPlace {
		v, m := s.holders.at(r).volume, s.holders.at(r).machine.Value()
		h := at(s.handle(v))
		h.PV, h.Entry = s.volumes.at(v).name.String(), &ledger.Entry{NodeID: m.NodeID, NodeName: node, NodeUID: m.NodeUID, BootID: m.BootID,
			SystemUUID: m.SystemUUID, ProviderID: m.ProviderID, MachineID: m.MachineID, SystemShared: m.SystemShared, State: m.state}
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
	var names []string
	x.store.eachPlace(func(_ ref, p *place) {
		if p.attachments != 0 || x.store.waitedFor(p) {
			names = append(names, p.name)
		}
	})
	slices.Sort(names)
	return names
}

// waitedFor: the ledger of a volume that has a VolumeAttachment says that the node holds it; of a
// node that has no VolumeAttachment itself.
func (s *store) waitedFor(p *place) bool {
	for r := p.holders; r != 0; r = s.holders.at(r).nextOfPlace {
		h := s.holders.at(r)
		state := h.machine.Value().state
		if state != fence.TakenOver && state != fence.Released && s.volumes.at(h.volume).attachments != 0 {
			return true
		}
	}
	return false
}

// Lists tells whether the status of that Node names a volume of the driver.
func (x *Index) Lists(node string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := x.store.placeOf(node)
	return p != nil && p.listings != 0
}

// Volume is a PersistentVolume as it is watched: its driver and handle, which of
// an in-tree one are those that it was migrated to; of another driver's, whose it
// is. nil: there is none.
func (x *Index) Volume(name string) *corev1.PersistentVolume {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s, pv := x.store, &corev1.PersistentVolume{}
	pv.Name = name
	if f, ok := s.foreign[textOf(name)]; ok {
		pv.Spec.PersistentVolumeSource = f.source.Value().spec()
		return pv
	}
	r := s.findVolume(textOf(name))
	if r == 0 || !s.volumes.at(r).there {
		return nil
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: s.ids.Driver, VolumeHandle: s.handle(r)}
	return pv
}

// AttachmentsOn counts the VolumeAttachments of a node, of all drivers.
func (x *Index) AttachmentsOn(node string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := x.store.placeOf(node)
	if p == nil {
		return 0
	}
	n := int(p.others)
	for r := p.attachments; r != 0; r = x.store.attachments.at(r).nextOfPlace {
		n++
	}
	return n
}

// AttachedElsewhere tells that a VolumeAttachment of that PV names another node.
func (x *Index) AttachedElsewhere(pv, node string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.store
	r := s.findVolume(textOf(pv))
	if r == 0 {
		return false
	}
	for a := s.volumes.at(r).attachments; a != 0; a = s.attachments.at(a).nextOfThat {
		if s.places.at(s.attachments.at(a).place).name != node {
			return true
		}
	}
	return false
}
