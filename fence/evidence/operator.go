package evidence

import (
	"context"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const voidSameBoot = "the machine has registered again without having been off: its boot ID is the same"

// OperatorConfirmation is a Source: an operator's word, in the node's record,
// that a machine is off.
type OperatorConfirmation struct{ records Records }

// Confirmations is the Source of operators' confirmations.
func Confirmations(records Records) *OperatorConfirmation {
	return &OperatorConfirmation{records: records}
}

// Name implements Source.
func (o *OperatorConfirmation) Name() string { return string(fence.OperatorConfirmation) }

// Evidence implements Source: one for each confirmation of the holder's
// machine. A confirmation that is found void is written down as void.
func (o *OperatorConfirmation) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	if q.Record == nil {
		return nil, nil
	}
	var found []fence.Evidence
	for _, c := range q.Record.Confirmations {
		for _, m := range c.Machines {
			if !isHolder(m, &q.Holder) {
				continue
			}
			void := q.Record.Doubt(c.Of(&m))
			if void == "" {
				void = outlived(m, &q)
				if err := o.writeVoid(ctx, &q, c.ID, m, void); err != nil {
					return nil, err
				}
			}
			found = append(found, fence.Evidence{
				Kind: fence.OperatorConfirmation, Source: c.By, Detail: c.Reason,
				NodeName: q.Holder.NodeName, NodeID: q.Holder.NodeID,
				NodeUID: m.NodeUID, BootID: m.BootID, SystemUUID: m.SystemUUID, LeaseRV: m.LeaseRV,
				Void: void,
			})
		}
	}
	return found, nil
}

func (o *OperatorConfirmation) writeVoid(ctx context.Context, q *Question, id string, m record.Machine, why string) error {
	// That its system UUID is shared may be over soon.
	if why == "" || why == fence.VoidNotUnique || o.records.ReadOnly {
		return nil
	}
	_, err := o.records.Store.VoidMachine(ctx, q.Record.Node, id, m, why, o.records.Actor)
	return err
}

// isHolder tells whether the confirmation speaks of the very machine that holds the volume. A
// confirmed machine without a node ID is meant for all drivers.
func isHolder(m record.Machine, h *fence.Holder) bool {
	switch {
	case m.NodeUID != h.NodeUID || m.Is().Compare(h.Machine()) == fence.Other:
		return false
	case m.NodeID == "":
		return m.NodeUID != ""
	}
	return m.NodeID == h.NodeID
}

// outlived says what happened to the machine since it was confirmed; empty:
// nothing that shows.
func outlived(m record.Machine, q *Question) string {
	switch {
	case q.machine() != nil:
		return changedSince(m.Is(), q.live(), m.LeaseRV, q.LeaseRV)
	case m.Is().MayRunOn(q.live()):
		return voidSameBoot
	case m.LeaseRV == "" || q.LeaseRV == m.LeaseRV:
		return "" // confirmed without a Node, or nothing changed
	case older(q.LeaseRV, m.LeaseRV):
		return "" // read before the confirmation; the decision reads again
	}
	return fence.VoidNodeGone
}

// VolumeRelease is a Source: an operator's word, in the node's record, that one
// volume is free of one node.
type VolumeRelease struct{ records Records }

// Releases is the Source of operators' releases.
func Releases(records Records) *VolumeRelease { return &VolumeRelease{records: records} }

// Name implements Source.
func (v *VolumeRelease) Name() string { return string(fence.VolumeRelease) }

// Evidence implements Source. A release is bound to the ledger entry that was
// released, by its token, and to the machine. A release that is found void is written down
// as void.
func (v *VolumeRelease) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	var found []fence.Evidence
	for _, rel := range releasesOf(&q) {
		e := saysFree(rel, &q)
		// What nobody vouches for is not ours to end. A Node that has just registered may lack its boot ID, and a CSINode its driver
		// while that is upgraded.
		passing := e.Void == fence.VoidUnclaimed || e.Void == fence.VoidNoBootID || e.Void == fence.VoidNodeGone && q.Holder.Node != nil
		if e.Void != rel.Void && !passing && !v.records.ReadOnly {
			if _, err := v.records.Store.VoidRelease(ctx, q.Record.Node, rel.ID, e.Void, v.records.Actor); err != nil {
				return nil, err
			}
		}
		found = append(found, e)
	}
	return found, nil
}

// saysFree is a release as evidence of the holder, void by what has happened since.
func saysFree(rel *record.Release, q *Question) fence.Evidence {
	e := rel.Evidence()
	e.NodeName = q.Holder.NodeName
	e.Void = q.Record.Doubt(rel)
	if e.Void == "" && !older(q.LeaseRV, rel.LeaseRV) { // else read before the release; the decision reads again
		h := q.Holder
		h.LeaseRV = q.LeaseRV
		e.Void = e.Ended(&h)
	}
	return e
}

// releasesOf are the releases of the holder's very publication.
func releasesOf(q *Question) (found []*record.Release) {
	if q.Record == nil || q.Holder.Token == "" {
		return nil
	}
	ids := &csi.Identity{Driver: q.Driver}
	for i := range q.Record.Releases {
		rel := &q.Record.Releases[i]
		if rel.Driver == q.Driver && ids.Same(rel.Volume, q.Volume) && rel.NodeID == q.Holder.NodeID && rel.Token == q.Holder.Token {
			found = append(found, rel)
		}
	}
	return found
}
