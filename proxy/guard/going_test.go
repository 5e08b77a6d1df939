package guard_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// Two processes: one read the PersistentVolumes before the first of them was deleted, the
// other one after that. Neither has a ledger.
func TestOfTwoProcessesThatFoundAnotherPersistentVolumeFirstOnePublishes(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	r.Beside("pv-0")
	r.Lists("old", true, true)
	r.Unseen = "old"
	r.BeforeWrite(1, func() {
		r.BeingDeleted("pv-0", "example.com/mine")
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: guardrig.ID("old"), NodeName: "old", NodeUID: "uid-of-old", BootID: "boot-of-old", Token: "theirs", State: fence.Publishing})
		})
	})
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "old")
	r.Called()
	r.WantHolder("old", fence.Publishing)
}

// Whoever knew another PersistentVolume of the disk has written his ledger there.
func TestAPublishBesideWhichAnotherWasRecordedIsNotAnswered(t *testing.T) {
	theirs := func(state fence.State) func(*ledger.Ledger) {
		return func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: guardrig.ID("old"), NodeName: "old", NodeUID: "uid-of-old", BootID: "boot-of-old", Token: "theirs", State: state})
		}
	}
	rig := func() *guardrig.Rig {
		r := guardrig.New(t, fence.Policy{})
		r.Node("old", guardrig.HourAgo)
		r.Node("next", guardrig.HourAgo)
		return r
	}
	for _, state := range []fence.State{fence.Publishing, fence.Held, fence.Leaving, fence.Released} {
		r := rig()
		err := acting{Rig: r, publish: func() error { r.Change(theirs(state)); return nil }}.PublishTo("next")
		r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
		r.Called("publish id-next") // nothing is taken from who may write
		if got := r.State("next"); got != fence.Publishing {
			t.Errorf("%s: the ledger says %q", state, got)
		}
	}
	// A node that the volume was taken from, before this publish or during it, refuses nothing.
	r := rig()
	r.Must(acting{Rig: r, publish: func() error { r.Change(theirs(fence.TakenOver)); return nil }}.PublishTo("next"))
	r.Must(r.PublishTo("next"))
	// A node that the volume was taken from, and that was published to anew meanwhile, does.
	err := acting{Rig: r, publish: func() error { r.Change(theirs(fence.Publishing)); return nil }}.PublishTo("next")
	r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
}

// The ledger would go with it.
func TestNothingIsPublishedOfWhichTheLedgerMayGoAtAnyMoment(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	r.BeingDeleted(guardrig.PVName, "example.com/mine")
	r.Refused(r.PublishTo("next"), codes.Unavailable, "PersistentVolume pv-1 is being deleted")
	r.Called()
	r.BeingDeleted(guardrig.PVName, "example.com/mine", "external-attacher/disk-example-com")
	r.Must(r.PublishTo("next")) // external-attacher itself refuses it
	r.Called("publish id-next")

	// While it is being published to.
	r = guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	r.BeforeWrite(1, func() { r.BeingDeleted(guardrig.PVName) })
	r.Refused(r.PublishTo("next"), codes.Unavailable, "PersistentVolume pv-1 is being deleted")
	r.Called()
}

// What is over goes on: else a PersistentVolume that is being deleted would be stuck.
func TestWhatIsPublishedIsUnpublishedWhileItsPersistentVolumeGoes(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Calls = nil
	r.Attachment("old", guardrig.Now.Add(-time.Minute)) // is being deleted
	r.BeingDeleted(guardrig.PVName, "example.com/mine")
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old")
	if got := r.State("old"); got != fence.NotInLedger {
		t.Errorf("the ledger says %q", got)
	}
}
