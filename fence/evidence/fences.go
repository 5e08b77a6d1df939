package evidence

import (
	"context"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// RecordedFences is a Source: the fences in the node's record for which somebody who may
// fence vouches (record.Vouched). Where agents of our own can be asked, they are (Agents),
// and the record is only a hint. Another process's agents are asked as well, and what they
// read as on stands against the record, which counts where they do not answer.
type RecordedFences struct{ asker Asker }

// Fences is the Source of the record's fences. f may be nil: there are no agents.
func Fences(f Asker) *RecordedFences { return &RecordedFences{asker: f} }

// Name implements Source.
func (*RecordedFences) Name() string { return "RecordedFences" }

// Evidence implements Source. A storage fence is evidence for its own driver's
// volumes, until somebody begins to lift it: then it is void for a holder of the
// ledger, and an error for any other node, which may be the one that asks for the
// volume and has no access to it yet.
func (s *RecordedFences) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	var found []fence.Evidence
	for _, kind := range []fence.Kind{fence.PowerReading, fence.StorageFence} {
		f := q.Record.Fence(kind, q.Driver)
		if f == nil || !f.Standing() || f.Machine.NodeUID != q.Holder.NodeUID || s.asks(kind, &q) {
			continue
		}
		if f.Missed != "" && q.Holder.Liveness == fence.Unwatched {
			continue // whether its lease is silent by now is not known yet: only an answer counts (Agents)
		}
		if f.Phase == record.Fenced {
			found = append(found, recorded(&q, f)...)
			found[len(found)-1].Void = q.Record.Doubt(f)
			continue
		}
		doubt, err := inDoubt(&q, f, fence.VoidLifting)
		if err != nil {
			return nil, err
		}
		found = append(found, doubt...)
	}
	return found, nil
}

// asks tells whether the agents are asked for that machine. They know nodes by name, so of a
// machine whose name another has by now only the record can tell.
func (s *RecordedFences) asks(kind fence.Kind, q *Question) bool {
	if s.asker == nil {
		return false
	}
	if kind == fence.StorageFence {
		return s.asker.CoversStorage(q.Holder.NodeName) && (q.Node == nil || q.machine() != nil || q.anew() != nil)
	}
	return s.asker.CoversPower(q.Holder.NodeName) && (q.Node == nil || q.machine() != nil)
}

// recorded is a fence of the record as evidence, bound as it was written.
func recorded(q *Question, f *record.Fence) []fence.Evidence {
	detail := f.What
	if detail != "" {
		detail += "; "
	}
	return []fence.Evidence{{
		Kind: f.Kind, OwnWord: f.OwnWord, Source: strings.Join(f.Agents, ", "), Detail: detail + "recorded by " + f.Actor,
		NodeName: q.Holder.NodeName, NodeID: q.Holder.NodeID,
		NodeUID: f.Machine.NodeUID, BootID: f.Machine.BootID, SystemUUID: f.Machine.SystemUUID, LeaseRV: f.Machine.LeaseRV,
	}}
}

var (
	_ Source = (*AgentReadings)(nil)
	_ Source = (*RecordedFences)(nil)
)
