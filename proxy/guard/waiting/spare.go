package waiting

import (
	"context"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/semaphore"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// Rejudged is how many calls that wait already a sidecar judges anew at a time.
const Rejudged = 16

// Spare keeps calls that were refused, and are repeated, from taking the caller's
// workers. When a rack goes dark of which nothing is proven, external-attacher
// repeats a thousand of them at a time; to judge each anew takes seconds of one of
// its workers, for which a volume that could move waits. So at most limit of them are
// judged at a time (Rejudged; 0: none). Another one is refused at once, in the words of
// its last refusal. What ends that is found by waiting, which looks again at whatever
// an event may have changed, or by one that is judged; then all calls that wait for the
// same holder are judged when they come next.
//
// A call that comes for the first time, or was woken, is always judged, and so is
// one whose last judgement is 5 min old.
func Spare(next proxy.Guard, waiting *Calls, metrics Metrics, limit int64) proxy.Guard {
	return &spare{next: next, waiting: waiting, metrics: metrics, free: semaphore.NewWeighted(limit)}
}

type spare struct {
	next    proxy.Guard
	waiting *Calls
	metrics Metrics
	free    *semaphore.Weighted
}

func (s *spare) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver proxy.Driver) (resp *spec.ControllerPublishVolumeResponse, err error) {
	if guard.ValidPublish(req) != nil || !csi.SingleWriter(req.GetVolumeCapability(), req.GetReadonly()) {
		return s.next.ControllerPublishVolume(ctx, req, driver) // it is not judged
	}
	err = s.judge(guard.CallPublish, req.GetVolumeId(), req.GetNodeId(), func() error {
		resp, err = s.next.ControllerPublishVolume(ctx, req, driver)
		return err
	})
	return resp, err
}

func (s *spare) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, driver proxy.Driver) (resp *spec.ControllerUnpublishVolumeResponse, err error) {
	err = s.judge(guard.CallUnpublish, req.GetVolumeId(), req.GetNodeId(), func() error {
		resp, err = s.next.ControllerUnpublishVolume(ctx, req, driver)
		return err
	})
	return resp, err
}

func (s *spare) judge(call, volume, nodeID string, next func() error) error {
	asked, key := time.Now(), callKey(call, volume, nodeID)
	if refusal := s.waiting.lastRefusal(key); refusal != nil {
		if !s.free.TryAcquire(1) {
			s.metrics.Decisions(call, refusal.verdict, string(refusal.reason))
			return refusal.err
		}
		defer s.free.Release(1)
	}
	err := next()
	s.waiting.answered(key, asked, err)
	return err
}
