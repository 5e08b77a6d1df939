package array

import (
	"context"
	"errors"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Disks are real disks behind the volumes. Publish attaches and Unpublish
// detaches them, each before the array's own books are changed; what they refuse
// is answered with FAILED_PRECONDITION and their own words, and leaves the books
// as they are. There is one change of a volume's disk at a time, ABORTED to
// others. What the array does by hand, and PublishMoves, does not reach them.
type Disks interface {
	// Attach gives a machine the disk; what it has already is no error.
	Attach(ctx context.Context, nodeID, volumeID string) error
	// Detach returns when the disk is free; a machine that is off, or does not
	// have the disk, is no error.
	Detach(ctx context.Context, nodeID, volumeID string) error
}

// publishDisk is what Publish does with the disk before do changes the books.
func (a *Array) publishDisk(ctx context.Context, req *spec.ControllerPublishVolumeRequest, do func() error) error {
	if a.options.Disks == nil {
		return do()
	}
	return a.withDisk(req.GetVolumeId(), func() error {
		if err := a.wouldPublish(req); err != nil {
			return err
		}
		if err := a.options.Disks.Attach(ctx, req.GetNodeId(), req.GetVolumeId()); err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		return do()
	})
}

// unpublishDisk is what Unpublish does with the disk before do changes the books.
func (a *Array) unpublishDisk(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, do func() error) error {
	if a.options.Disks == nil {
		return do()
	}
	return a.withDisk(req.GetVolumeId(), func() error {
		var errs []error
		for _, nodeID := range a.unpublishedNodes(req) {
			errs = append(errs, a.options.Disks.Detach(ctx, nodeID, req.GetVolumeId()))
		}
		if err := errors.Join(errs...); err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		return do()
	})
}

// withDisk lets do change the disk of a volume, if there is one, unless another
// call does so.
func (a *Array) withDisk(volumeID string, do func() error) error {
	a.mu.Lock()
	v := a.volumes[volumeID]
	a.mu.Unlock()
	if v == nil {
		return do()
	}
	if !v.disk.TryLock() {
		return status.Errorf(codes.Aborted, "another call for volume %q has not ended", volumeID)
	}
	defer v.disk.Unlock()
	return do()
}
