package guard_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

var elsewhere = status.Error(codes.FailedPrecondition, "the disk is attached elsewhere")

// relisted is a volume that was taken from node old, which is silent and proven off, and
// that the driver lists there: it refuses the next node until it is unpublished again.
func relisted(t *testing.T) *guardrig.Rig {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: guardrig.ID("old"), NodeName: "old", NodeUID: "uid-of-old", BootID: "boot-of-old", SystemUUID: "system-old", Token: "t1", State: fence.TakenOver})
	})
	r.Listed, r.PublishErr, r.Calls = []string{guardrig.ID("old")}, elsewhere, nil
	return r
}

func TestWhatTheDriverListsOfATakenOverNodeIsTakenAgain(t *testing.T) {
	r := relisted(t)
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "the disk is attached elsewhere")
	r.Called("publish id-next", "unpublish id-old", "publish id-next")
	if e := r.Ledger().Get(guardrig.ID("old")); e == nil || e.State != fence.TakenOver || e.Token != "t1" {
		t.Errorf("the ledger says %+v, want the entry of before: a release is bound to its token", e)
	}
}

// Nobody else waits for what the driver could not do.
func TestATakenOverNodeStaysSoWhereItsUnpublishFailsForGood(t *testing.T) {
	for code, state := range map[codes.Code]fence.State{codes.Internal: fence.TakenOver, codes.DeadlineExceeded: fence.Leaving} {
		r := relisted(t)
		r.UnpublishErr = status.Error(code, "no such machine")
		if err := r.PublishTo("next"); err == nil || !strings.Contains(err.Error(), "["+string(fence.UnpublishFailed)+"]") {
			t.Errorf("%s: %v", code, err)
		}
		if e := r.Ledger().Get(guardrig.ID("old")); e == nil || e.State != state || e.Token != "t1" {
			t.Errorf("%s: the ledger says %+v, want %s", code, e, state)
		}
	}
}

// A driver whose detach takes longer than its answer lists it for a while.
func TestWhatTheDriverSaysOfATakenOverNodeStandsWhereNothingIsProven(t *testing.T) {
	r := relisted(t)
	r.Guard.Surveyor.Sources = nil
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "the disk is attached elsewhere")
	r.Called("publish id-next")
	if s := r.State("old"); s != fence.TakenOver {
		t.Errorf("the ledger says %s", s)
	}
	r.PublishErr = nil
	r.Must(r.PublishTo("next"))
}

// A list may name too many: where the driver was not the one that refused, what was over is.
func TestAListAloneMakesNoTakenOverNodeAHolderAgain(t *testing.T) {
	r := relisted(t)
	r.Guard.Surveyor.Sources, r.PublishErr = nil, nil
	r.Repaired()
	r.Must(r.PublishTo("next"))
	r.Called("publish id-next")
}

// A person has stripped the VolumeAttachment under which a volume was released, and whose
// detach hung; its pod is back, and the next VolumeAttachment waits for that very detach.
func TestANodeThatWaitsForItsOwnUnpublishIsSeenToWait(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Claimed(guardrig.Claim)
	r.Lists("old", false, false)
	r.Attachment("old", guardrig.HourAgo)
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.Internal, "throttled")
	r.WantHolder("old", fence.Released)
	r.Stripped("old")
	r.Attachment("old", time.Time{})
	r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).ReleasedUnder += "-before" })
	r.Lists("old", true, false)
	r.PodOn("old", "back", guardrig.ByClaim(guardrig.Claim), pending)
	s, err := r.Guard.Surveyor.Publish(t.Context(), guardrig.Handle, guardrig.ID("old"), nil)
	r.Must(err)
	if v := fence.JudgeUnpublish(s.Snapshot, guardrig.ID("old")); v.Action != fence.Allow || v.Reason != fence.HolderReleased {
		t.Errorf("its unpublish: %v for %s", v.Action, v.Reason)
	}
}

// What an entry is kept for is a listing that would make its node a holder again.
func TestATakenOverEntrySaysWhyItWasReleasedOnlyWhereItsNodeListsTheVolume(t *testing.T) {
	for _, listed := range []bool{false, true} {
		r := guardrig.Published(t, fence.Policy{})
		r.Lists("old", false, listed)
		r.Attachment("old", guardrig.HourAgo)
		r.Attachment("next", time.Time{})
		r.Must(r.PublishTo("next"))
		if e := r.Ledger().Get(guardrig.ID("old")); e == nil || e.State != fence.TakenOver || (e.ReleasedUnder != "") != listed {
			t.Errorf("listed %t: the ledger says %+v", listed, e)
		}
	}
}
