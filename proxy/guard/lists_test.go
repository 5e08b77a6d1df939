package guard_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// movedPastUs: the ledger names node a, whose Node is gone, and nothing else does.
func movedPastUs(t *testing.T, p fence.Policy) *guardrig.Rig {
	r := guardrig.New(t, p)
	r.Node("b", guardrig.HourAgo)
	r.Attachment("b", time.Time{})
	r.Change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: "id-a", NodeName: "a", NodeUID: "uid-of-a", BootID: "boot-of-a", SystemUUID: "system-a", Token: "old", State: fence.Publishing})
	})
	return r
}

func TestAListThatIsTheWholeTruthEndsWhatOnlyTheLedgerSays(t *testing.T) {
	declared := fence.Policy{ListsPublishedNodes: true}
	r := movedPastUs(t, declared)
	r.Must(r.PublishTo("b"))
	r.Called("publish id-b")
	r.WantHolder("b", fence.Publishing)
	if !r.Ledger().WasForcedIn("boot-of-a") {
		t.Errorf("its kubelet said nothing of it: %s", r.Ledger())
	}

	for name, c := range map[string]struct {
		policy fence.Policy
		more   func(*guardrig.Rig)
	}{
		"nobody declared it":                                     {fence.Policy{}, func(*guardrig.Rig) {}},
		"it names the node":                                      {declared, func(r *guardrig.Rig) { r.Listed = []string{"id-a"} }},
		"it names somebody unknown":                              {declared, func(r *guardrig.Rig) { r.Listed = []string{"id-a-of-today"} }},
		"the driver does not answer":                             {declared, func(r *guardrig.Rig) { r.ListErr = guardrig.ErrThrottled }},
		"there is an attachment":                                 {declared, func(r *guardrig.Rig) { r.Attachment("a", time.Time{}) }},
		"its attachment is deleted":                              {declared, func(r *guardrig.Rig) { r.Attachment("a", time.Time{}); r.Attachment("a", guardrig.Now) }},
		"its Node lists it":                                      {declared, func(r *guardrig.Rig) { r.Node("a", guardrig.HourAgo); r.Lists("a", true, false) }},
		"its Node lists it, and that was not seen yet":           {declared, func(r *guardrig.Rig) { r.Node("a", guardrig.HourAgo); r.Lists("a", true, false); r.Unseen = "a" }},
		"there is an attachment, and that was not seen yet":      {declared, func(r *guardrig.Rig) { r.Attachment("a", time.Time{}); r.Unattached = "a" }},
		"the controller lists it":                                {declared, func(r *guardrig.Rig) { r.Node("a", guardrig.HourAgo); r.Lists("a", false, true) }},
		"an unpublish is under way":                              {declared, func(r *guardrig.Rig) { r.Change(func(l *ledger.Ledger) { l.Get("id-a").State = fence.Leaving }) }},
		"it was written down by a repair, which asks the driver": {declared, func(r *guardrig.Rig) { r.Listed = []string{"id-a"}; r.Repaired() }},
	} {
		t.Run(name, func(t *testing.T) {
			r := movedPastUs(t, c.policy)
			c.more(r)
			if err := r.PublishTo("b"); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%v, want it refused", err)
			}
			r.Called()
		})
	}
}

// renamedByItsDriver: node a has the volume by the node ID of before.
func renamedByItsDriver(t *testing.T) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	r.Node("a", guardrig.HourAgo)
	r.Node("b", guardrig.HourAgo)
	r.Attachment("a", time.Time{})
	r.Must(r.PublishTo("a"))
	r.Register("a", "uuid-a")
	r.Calls = nil
	return r
}

func TestAMachineIsUnpublishedByTheIDThatItHasNowAsWell(t *testing.T) {
	r := renamedByItsDriver(t)
	r.Attachment("a", guardrig.Now)
	r.UnpublishErrOf = map[string]error{"id-a": status.Error(codes.NotFound, "there is no such node")}
	r.Must(r.UnpublishFrom("uuid-a"))
	r.Called("unpublish id-a", "unpublish uuid-a")
	if l := r.Ledger(); len(l.Holders) > 0 {
		t.Errorf("the ledger says %s", l)
	}
	// A driver that knows neither, or that cannot read the one of before.
	for _, errs := range []map[string]error{
		{"uuid-a": status.Error(codes.NotFound, "it is not published there")},
		{"id-a": status.Error(codes.InvalidArgument, "this is no node ID")},
	} {
		r = renamedByItsDriver(t)
		r.Attachment("a", guardrig.Now)
		r.UnpublishErrOf = errs
		r.Must(r.UnpublishFrom("uuid-a"))
		r.Called("unpublish id-a", "unpublish uuid-a")
	}
	// By a publish elsewhere, too.
	r = renamedByItsDriver(t)
	r.Attachment("a", guardrig.Now)
	r.Attachment("b", time.Time{})
	r.Must(r.PublishTo("b"))
	r.Called("unpublish id-a", "unpublish uuid-a", "publish id-b")
}

func TestNobodyElseIsUnpublishedByTheIDThatAMachineHasNow(t *testing.T) {
	for name, c := range map[string]struct {
		more func(*guardrig.Rig)
		want []string
	}{
		"another node has it, too": {func(r *guardrig.Rig) { r.Node("c", guardrig.HourAgo); r.Register("c", "uuid-a") }, []string{"unpublish id-a"}},
		"the ledger has it": {func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "uuid-a", NodeName: "c", Token: "c", State: fence.TakenOver})
			})
		}, []string{"unpublish id-a"}},
		"an attachment of another does": {func(r *guardrig.Rig) { r.Node("c", guardrig.HourAgo); r.AttachmentWith("c", "uuid-a", time.Time{}) }, []string{"unpublish id-a"}},
		"an attachment of its own keeps it": {func(r *guardrig.Rig) {
			r.Stripped("a")
			r.AttachmentWith("a", "uuid-a", time.Time{})
			r.SaysAttached("a")
		}, []string{"unpublish id-a"}},
		"the old one is not answered": {func(r *guardrig.Rig) { r.UnpublishErrOf = map[string]error{"id-a": guardrig.ErrThrottled} }, []string{"unpublish id-a"}},
		"it is another machine": {func(r *guardrig.Rig) {
			r.Must(r.Client.CoreV1().Nodes().Delete(r.T.Context(), "a", metav1.DeleteOptions{}))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := renamedByItsDriver(t)
			r.Attachment("a", guardrig.Now)
			c.more(r)
			_ = r.UnpublishFrom("id-a")
			if c.want == nil && len(r.Calls) == 0 {
				return
			}
			r.Called(c.want...)
		})
	}
}

// The node that the ledger names lets the volume go as far as it says, and is to have it by a
// VolumeAttachment that the watch has not shown yet.
func TestAnAttachmentOfAHolderThatTheWatchHasNotShownCounts(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.SaysAttached("old")
	r.Attachment("next", time.Time{})
	r.Calls, r.Unattached = nil, "old"
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderWanted)+"]")
	r.Called()
}

// An unpublish by the ID that its driver had for it before may land at the machine by which the node
// asks now.
func TestAMachineThatIsBeingUnpublishedByTheIDOfBeforeWaitsForThat(t *testing.T) {
	for name, anew := range map[string]bool{"its driver was renamed": false, "so was it, and its Node made anew": true} {
		t.Run(name, func(t *testing.T) { waitsByTheIDOfBefore(t, anew) })
	}
}

func waitsByTheIDOfBefore(t *testing.T, anew bool) {
	synctest.Test(t, func(t *testing.T) {
		r := renamedByItsDriver(t)
		r.Register("a", "id-a2")
		r.Attachment("a", guardrig.Now)
		r.UnpublishErrOf = map[string]error{"id-a2": status.Error(codes.DeadlineExceeded, "it takes long")}
		r.Refused(r.UnpublishFrom("id-a2"), codes.DeadlineExceeded)
		r.UnpublishErrOf = nil
		if r.Stripped("a"); anew {
			r.RenewUID("a")
		}
		r.AttachmentWith("a", "id-a2", time.Time{})
		r.Claimed(guardrig.Claim)
		r.PodOn("a", "p", guardrig.ByClaim(guardrig.Claim), corev1.PodStatus{Phase: corev1.PodPending})
		r.Lists("a", true, false)
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(10 * time.Second) {
			r.Refused(r.PublishTo("a2"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		}
		r.Must(r.PublishTo("a2"))
		if want := []string{"unpublish id-a", "unpublish id-a2", "unpublish id-a", "unpublish id-a2", "publish id-a2"}; anew {
			r.Called(slices.Delete(want, 3, 4)...) // a Node of before says nothing of the ID that this one has
		} else {
			r.Called(want...)
		}
	})
}

// What no call was cut off from is unpublished by the ID of before and published by that of now, at once.
func TestAMachineIsTakenFromItsIDOfBeforeAtOnce(t *testing.T) {
	r := renamedByItsDriver(t)
	r.Register("a", "id-a2")
	r.Stripped("a")
	r.AttachmentWith("a", "id-a2", time.Time{})
	r.Must(r.PublishTo("a2"))
	r.Called("unpublish id-a", "unpublish id-a2", "publish id-a2")
}

// A machine that is dead stands under both IDs, and is taken from by both.
func TestADeadMachineIsTakenFromByBothItsIDs(t *testing.T) {
	r := renamedByItsDriver(t)
	r.Stripped("a")
	r.AttachmentWith("a", "uuid-a", time.Time{})
	r.SaysAttached("a")
	r.Attachment("b", time.Time{})
	r.Lives["a"] = fence.Stale
	r.Guard.Surveyor.Sources = []evidence.Source{aIsOff{}}
	r.UnpublishErrOf = map[string]error{"id-a": status.Error(codes.InvalidArgument, "this is no node ID")}
	r.Must(r.PublishTo("b"))
	r.Called("unpublish id-a", "unpublish uuid-a", "unpublish uuid-a", "publish id-b")
}

// aIsOff says that node a's machine is off, by whichever node ID it is asked for.
type aIsOff struct{}

func (aIsOff) Name() string { return "test" }

func (aIsOff) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	if q.Holder.NodeName != "a" {
		return nil, nil
	}
	return []fence.Evidence{{Kind: fence.PowerReading, Source: "test", NodeID: q.Holder.NodeID, NodeUID: q.Holder.NodeUID, BootID: "boot-of-a", LeaseRV: q.LeaseRV}}, nil
}
