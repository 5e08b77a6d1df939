package fencer

import (
	"context"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Void writes down that the node is back, if it is: its power fence, finished or
// not, counts no more once its machine has another boot ID, or another lease
// than it was bound to. A fence that is under way stops before its next off; one by
// force is about a node that may live, and goes on. A storage fence stands until
// it is lifted. A new machine under the old name is not the old one's return.
func (f *Fencer) Void(ctx context.Context, node, why string) (voided bool, err error) {
	if f.ReadOnly {
		return false, refuse(node, "void", "nothing is changed here (mode Observe, or a command that only reads)")
	}
	r, err := f.Records.Get(ctx, node)
	if err != nil || r.Fence(fence.PowerReading, "") == nil {
		return false, err
	}
	now, err := f.look(ctx, node)
	if err != nil || now.node == nil {
		return false, err
	}
	judged := *r.Fence(fence.PowerReading, "")
	since := back(judged.Machine, now)
	if since == "" || judged.Forced && judged.Phase == record.Fencing {
		return false, nil
	}
	r, err = f.Records.VoidFence(ctx, node, judged, since+": "+why, f.Actor)
	f.forget(node)
	if err != nil {
		return false, err
	}
	ended := r.FenceByID(judged.ID)
	return ended != nil && ended.Phase == record.Void, nil
}

// back says what changed of the machine; empty: nothing, or it is another one.
func back(m record.FencedMachine, now look) string {
	switch {
	case string(now.node.UID) != m.NodeUID && now.node.Status.NodeInfo.BootID == m.BootID:
		return fence.VoidRegisteredAgain
	case string(now.node.UID) != m.NodeUID:
		return ""
	case now.node.Status.NodeInfo.BootID != m.BootID:
		return fence.VoidBootChanged
	case now.leaseRV != m.LeaseRV:
		return fence.VoidLeaseChanged
	}
	return ""
}
