package evidence

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Question is about one holder of one volume. All of it was read live.
type Question struct {
	// Holder has as Evidence what the sources that were asked before have said.
	Holder fence.Holder
	// Volume is the CSI volume handle, Driver the driver's name.
	Volume, Driver string
	// Node of the holder's name; nil if there is none. It may be another
	// machine than the holder.
	Node *v1.Node
	// LeaseRV is the resourceVersion of the node's lease, read after Node;
	// empty: there is none.
	LeaseRV string
	// Lease is that lease; nil: there is none, or only a watch has shown it.
	Lease *coordinationv1.Lease
	// Record of the node; nil if there is none.
	Record *record.Record
}

// machine returns the live Node if it is the holder's own machine.
func (q *Question) machine() *v1.Node {
	if !q.Holder.Machine().Compare(q.live()).OneNode() {
		return nil
	}
	return q.Node
}

// live is the machine of the Node, with what the holder's survey knows of it.
func (q *Question) live() fence.Machine {
	if n := q.Holder.Node; n != nil && q.Node != nil && n.UID == string(q.Node.UID) {
		return n.Machine(q.Node.Name)
	}
	return fence.MachineOf(q.Node)
}

// anew returns the live Node if the holder's machine, which is known by another,
// has registered under it since: it is the one that runs, or may.
func (q *Question) anew() *v1.Node {
	h := &q.Holder
	if q.Node == nil || h.Node == nil || h.Node.UID != string(q.Node.UID) || !h.RegisteredAnew() {
		return nil
	}
	return q.Node
}

// Source knows something about whether holders can still write. It is safe for
// concurrent use.
type Source interface {
	// Name for messages and metrics; it does not change.
	Name() string
	// Evidence that the source has of the holder: nil if it knows nothing. An
	// error means that it could not tell (the API server or a device cannot be
	// reached); the caller refuses then, and the attacher asks again.
	Evidence(ctx context.Context, q Question) ([]fence.Evidence, error)
}

// Records is how sources write to the nodes' records.
type Records struct {
	Store *record.Store
	// Actor names this process in the audit trail.
	Actor string
	// ReadOnly has nothing written. What would be bound now is reported as evidence.
	ReadOnly bool
}
