package guard

import (
	"context"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/semaphore"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// Bound lets at most most calls into next at a time, and so at most that many
// publishes and unpublishes to the driver: a call has never more than one of them
// under way. The others queue in the order in which they came. They wait before
// they are judged, not after: what was judged is acted upon at once. 0: no bound
// but the caller's own (external-attacher's --worker-threads).
//
// A call whose turn has not come in half of its time gets ABORTED (DriverBusy):
// begun with too little left, it would be cut off at the driver.
func Bound(next proxy.Guard, most int) proxy.Guard {
	if most <= 0 {
		return next
	}
	return &bound{next: next, most: most, free: semaphore.NewWeighted(int64(most))}
}

type bound struct {
	next proxy.Guard
	most int
	free *semaphore.Weighted
}

func (b *bound) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver proxy.Driver) (*spec.ControllerPublishVolumeResponse, error) {
	if err := b.turn(ctx, req.GetVolumeId()); err != nil {
		return nil, err
	}
	defer b.free.Release(1)
	return b.next.ControllerPublishVolume(ctx, req, driver)
}

func (b *bound) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, driver proxy.Driver) (*spec.ControllerUnpublishVolumeResponse, error) {
	if err := b.turn(ctx, req.GetVolumeId()); err != nil {
		return nil, err
	}
	defer b.free.Release(1)
	return b.next.ControllerUnpublishVolume(ctx, req, driver)
}

// turn waits for one.
func (b *bound) turn(ctx context.Context, volume string) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	if b.free.Acquire(ctx, 1) == nil {
		return nil
	}
	return busyError(volume, b.most)
}
