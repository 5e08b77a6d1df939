package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// leavingUnder: an unpublish of node n was begun, in a call that had so many seconds, and n asks for the
// volume by a VolumeAttachment that was made anew after a person had stripped the one that was being deleted.
func leavingUnder(t *testing.T, seconds int) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Must(r.PublishTo("n"))
	r.Change(func(l *ledger.Ledger) {
		l.Get(guardrig.ID("n")).State, l.Get(guardrig.ID("n")).LeavingSeconds = fence.Leaving, seconds
	})
	r.Attachment("n", time.Time{})
	return r
}

// An unpublish that another process has under way lands at the driver whenever it likes:
// until its deadline is past, its node is not published to again.
func TestAPendingUnpublishIsNotAbandonedBeforeTheDeadlineOfTheCallThatBeganIt(t *testing.T) {
	for name, tt := range map[string]struct {
		had  int // seconds
		wait time.Duration
	}{
		"an older version did not say": {0, 2 * time.Minute},
		"a quarter of a minute":        {15, 2 * time.Minute},
		"a minute":                     {60, 2 * time.Minute},
		"five minutes":                 {300, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := leavingUnder(t, tt.had)
				began := time.Now()
				for time.Since(began) < tt.wait {
					r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
					time.Sleep(10 * time.Second)
				}
				r.Must(r.PublishTo("n"))
				r.Called("publish id-n", "unpublish id-n", "publish id-n")
				if e := r.Ledger().Get(guardrig.ID("n")); e.State != fence.Publishing || e.LeavingSeconds != 0 {
					t.Errorf("the ledger says %+v", e)
				}
			})
		})
	}
}

// Another one may have been made and stripped meanwhile, and its unpublish be under way.
func TestAPendingUnpublishIsAsOldAsTheVolumeAttachmentThatWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leavingUnder(t, 0)
		refused := func(wait time.Duration) {
			t.Helper()
			r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
			time.Sleep(wait)
		}
		refused(119 * time.Second)
		r.MadeAnew("n")
		refused(119 * time.Second)
		refused(2 * time.Second)
		r.Must(r.PublishTo("n"))
		r.Called("publish id-n", "unpublish id-n", "publish id-n")
	})
}

// A publish finishes an abandoned unpublish with an unpublish of its own. If that gets no answer in its
// time it may still land at the driver, so its node waits as long again. If the driver refuses it, it is over.
func TestAnUnpublishThatFinishesAnotherAndIsGivenUpIsWaitedForAsWell(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		wait time.Duration
	}{
		"given up":          {status.Error(codes.DeadlineExceeded, "it takes long"), 2 * time.Minute},
		"not to be reached": {status.Error(codes.Unavailable, "no connection"), 2 * time.Minute},
		"refused":           {guardrig.ErrThrottled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := leavingUnder(t, 0)
				r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
				time.Sleep(2 * time.Minute)
				r.UnpublishErr = tt.err
				if err := r.PublishTo("n"); err == nil {
					t.Fatal("it is published, and the driver has not unpublished it")
				}
				r.UnpublishErr = nil
				for began := time.Now(); time.Since(began) < tt.wait; time.Sleep(10 * time.Second) {
					r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
				}
				r.Must(r.PublishTo("n"))
				r.Called("publish id-n", "unpublish id-n", "unpublish id-n", "publish id-n")
			})
		})
	}
}

// The same of the unpublish with which another node's publish takes the volume over.
func TestAnUnpublishOfATakeoverThatIsGivenUpIsWaitedForAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leavingUnder(t, 0)
		r.Node("m", guardrig.HourAgo)
		r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		time.Sleep(100 * time.Second)
		r.Attachment("m", time.Time{})
		r.UnpublishErr = status.Error(codes.DeadlineExceeded, "it takes long")
		if err := r.PublishTo("m"); err == nil {
			t.Fatal("it is published, and the driver has not unpublished it")
		}
		r.UnpublishErr = nil
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(10 * time.Second) {
			r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		}
		r.Must(r.PublishTo("n"))
		r.Called("publish id-n", "unpublish id-n", "unpublish id-n", "unpublish id-m", "publish id-n")
	})
}

// timed is a driver that notes, as an unpublish reaches it, how long the ledger says that
// the call has.
type timed struct {
	*guardrig.Rig
	says []int
	left []time.Duration
}

func (d *timed) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	deadline, _ := ctx.Deadline()
	d.left = append(d.left, time.Until(deadline))
	d.says = append(d.says, d.Ledger().Get(req.GetNodeId()).LeavingSeconds)
	return d.Rig.Unpublish(ctx, req)
}

func TestWhoUnpublishesSaysBeforehandHowLongTheCallHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.New(t, fence.Policy{})
		r.Node("n", guardrig.HourAgo)
		r.Attachment("n", time.Time{})
		r.Must(r.PublishTo("n"))
		r.Attachment("n", guardrig.Now)
		r.UnpublishErr = guardrig.ErrThrottled
		d := &timed{Rig: r}
		call := func(within time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			if within > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), within)
			}
			defer cancel()
			r.Look()
			_, err := r.Guard.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID("n")}, d)
			r.Refused(err, codes.Internal)
		}
		// The longest of those that may be under way; what has no deadline gets one.
		for i, tt := range []struct {
			within time.Duration
			says   int
		}{{15 * time.Second, 15}, {90*time.Second + time.Millisecond, 91}, {15 * time.Second, 91}, {0, 600}} {
			call(tt.within)
			if d.says[i] != tt.says {
				t.Errorf("call %d, within %s: the ledger says %d s, want %d", i, tt.within, d.says[i], tt.says)
			}
			if left := d.left[i]; left > time.Duration(tt.says)*time.Second {
				t.Errorf("call %d has %s at the driver, and the ledger says %d s", i, left, tt.says)
			}
		}
	})
}
