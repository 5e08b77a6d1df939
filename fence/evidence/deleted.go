package evidence

import (
	"context"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// NodeDeleted is a Source for clusters where only the cloud provider deletes
// Nodes: a holder whose Node and lease are both gone is off.
type NodeDeleted struct{}

// Name implements Source.
func (NodeDeleted) Name() string { return string(fence.NodeDeleted) }

// Evidence implements Source. A holder of which not even the node's name is
// known has no Node that could have been deleted.
func (NodeDeleted) Evidence(_ context.Context, q Question) ([]fence.Evidence, error) {
	h := &q.Holder
	if h.NodeName == "" || q.Node != nil || q.LeaseRV != "" {
		return nil, nil
	}
	return []fence.Evidence{{
		Kind: fence.NodeDeleted, Detail: "neither Node nor lease is there",
		NodeName: h.NodeName, NodeID: h.NodeID, NodeUID: h.NodeUID, BootID: h.BootID, SystemUUID: h.SystemUUID,
	}}, nil
}

var (
	_ Source = (*Taint)(nil)
	_ Source = (*OperatorConfirmation)(nil)
	_ Source = (*VolumeRelease)(nil)
	_ Source = NodeDeleted{}
)
