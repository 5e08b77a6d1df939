package array

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Mounts are real file systems on real machines. The Node service mounts and unmounts
// them before the array's own books are changed; what they fail with is answered with
// INTERNAL, and leaves the books as they are. Each has to be idempotent.
type Mounts interface {
	Stage(ctx context.Context, nodeID, volumeID, path string) error
	Unstage(ctx context.Context, nodeID, volumeID, path string) error
	Publish(ctx context.Context, nodeID, volumeID, staging, target string, readonly bool) error
	Unpublish(ctx context.Context, nodeID, volumeID, target string) error
	// Written grows with each write that a container of the machine makes: the array's
	// books count those, and make none up. The array stands still meanwhile.
	Written(nodeID, volumeID string) int64
	// Revoke ends the access of a machine that has the volume mounted still: a call
	// has detached it, and its client does not hold on. The array stands still meanwhile.
	Revoke(nodeID, volumeID string)
}

// imagined are no file systems at all: a container has written whenever one asks.
type imagined struct{ writes atomic.Int64 }

func (*imagined) Stage(context.Context, string, string, string) error   { return nil }
func (*imagined) Unstage(context.Context, string, string, string) error { return nil }
func (*imagined) Publish(context.Context, string, string, string, string, bool) error {
	return nil
}
func (*imagined) Unpublish(context.Context, string, string, string) error { return nil }
func (i *imagined) Written(string, string) int64                          { return i.writes.Add(1) }
func (*imagined) Revoke(string, string)                                   {}

// mount lets do change what is mounted.
func (n *nodeService) mount(do func(Mounts) error) error {
	if err := do(n.array.options.Mounts); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// attachedHere says whether the machine has power and the volume.
func (n *nodeService) attachedHere(volumeID string) error {
	n.array.mu.Lock()
	defer n.array.mu.Unlock()
	_, v, err := n.array.onMachineLocked(n.nodeID, volumeID)
	if err != nil {
		return err
	}
	if v.attached[n.nodeID] == nil {
		return status.Errorf(codes.FailedPrecondition, "volume %q is not attached to node %q; it is attached to %q", v.id, n.nodeID, v.attachedNodes())
	}
	return nil
}
