package simulate

import (
	"fmt"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Two limits that the design names are met in the wide world alone: etcd is restored to
// before a publish, and a person takes the VolumeAttachment away of what was published
// while nobody guarded. Either way nothing in Kubernetes tells of the holding any more.
//
// A machine is at such a limit from then on until it loses the volume, or the ledger or a
// VolumeAttachment names it while somebody guards; and it is not while its own Node lists
// the volume, unless that is the very node to which the volume is published. What breaks a rule there is counted and excused, that mount alone. Everything
// else breaks the rule as ever.

// forgotten tells why nothing in Kubernetes names a machine to which a volume is published.
type forgotten string

const (
	// byRestore is of a holder that etcd forgot: it was restored to before the publish.
	byRestore forgotten = "etcd was restored to before the publish"
	// byStrip is of a holder that was published while nobody guarded, and whose VolumeAttachment
	// went while nobody did.
	byStrip forgotten = "its VolumeAttachment went while nobody guarded"
)

// guards tells whether the sidecars of this world judge what they are asked.
func (w *World) guards() bool { return w.mode == "" || w.mode == enforces }

// forgetPublished notes what was published since etcd was saved, as it is restored.
func (w *World) forgetPublished() {
	for _, v := range w.volumes {
		for id, p := range v.published {
			if p.step > w.saved.step {
				p.forgotten = byRestore
				v.published[id] = p
			}
		}
	}
}

// noteForgotten follows what is forgotten of a volume, after each step.
func (w *World) noteForgotten(v *volume) {
	for id, p := range v.published {
		before := p.forgotten
		switch named := w.attachmentNames(v, id); {
		case !w.reaches(v, id), w.guards() && (named || w.ledgerNames(v, id)):
			p.forgotten = ""
		case p.unguarded && !named && !w.guards():
			p.forgotten = byStrip
		}
		if p.forgotten != before {
			v.published[id] = p
		}
	}
}

// reaches tells whether a machine with that node ID has access to the volume.
func (w *World) reaches(v *volume, id string) bool {
	return v.attached[id] || slices.ContainsFunc(w.machines, func(m *machine) bool { return m.id == id && v.access(m) })
}

func (w *World) ledgerNames(v *volume, id string) bool {
	return slices.ContainsFunc(w.ledger(v), func(e ledger.Entry) bool { return e.NodeID == id && e.State != fence.TakenOver })
}

// attachmentNames tells whether a VolumeAttachment notes that node ID.
func (w *World) attachmentNames(v *volume, id string) bool {
	return slices.ContainsFunc(w.slots, func(s *slot) bool {
		va := w.vaOf(v, s)
		return va != nil && csi.AttachmentNodeID(va) == id
	})
}

// forgottenHolder tells whether the machine is at one of the two limits, beside another that has
// the volume too, if not nil. It is counted, and the mount excused.
func (w *World) forgottenHolder(v *volume, m, beside *machine) bool {
	if m == nil {
		return false
	}
	listed := m.slot.machine == m && (beside == nil || beside.slot != m.slot)
	if n := w.peekNode(m.slot.name); n != nil && listed && (inUse(n, v) || volumesAttachedHas(n, v)) {
		return false
	}
	switch v.published[m.id].forgotten {
	case byRestore:
		w.Stats.Restored++
	case byStrip:
		w.Stats.StrippedUnguarded++
	default:
		return false
	}
	w.forgive(v, m)
	return true
}

// WideLimits are what was excused in the wide world, and how often.
func (c *Campaign) WideLimits() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []string{
		fmt.Sprintf("%6d  by a call that nobody guarded", c.stats.Unguarded),
		fmt.Sprintf("%6d  a limit: %s", c.stats.Restored, byRestore),
		fmt.Sprintf("%6d  a limit: %s", c.stats.StrippedUnguarded, byStrip),
	}
}
