package guard_test

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// movesOn: what the old name left is unpublished, the volume is published to the
// renamed node as such, and can leave it again by its kubelet's word alone.
func movesOn(r *guardrig.Rig) {
	r.T.Helper()
	r.Refused(r.PublishTo("old"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Stripped("old")
	r.Must(r.PublishTo("old"))
	r.WantHolder("renamed", fence.Publishing)
	r.AttachmentWith("renamed", guardrig.ID("old"), guardrig.Now)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old", "publish id-old", "unpublish id-old")
}

func TestARenamedNodeIsToldWhatItsOldNameWaitsFor(t *testing.T) {
	r := guardrig.Renamed(t, false)
	publish := r.PublishTo("old")
	r.Refused(publish, codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]", "node old (ID id-old) held it", "node renamed has its ID now", "csi-fencepost release pv pv-1 --node old --reason")
	unpublish := r.UnpublishFrom(guardrig.ID("old"))
	if a, b := status.Convert(publish).Message(), status.Convert(unpublish).Message(); a != b {
		t.Errorf("the publish says %q, and the unpublish that it waits for %q", a, b)
	}
	r.Called()
	r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.VolumeRelease}}
	movesOn(r)
}

func TestARenamedNodeWhoseOldNodeLingersIsToldOfThatOne(t *testing.T) {
	r := guardrig.Renamed(t, true)
	r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]", "node old (ID id-old) holds it", "csi-fencepost fence confirm old --reason")
	r.Called()
	r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.OperatorConfirmation}}
	movesOn(r)
}

// The old name's detach keeps Kubernetes from every other detach of the volume, so
// it must end; the disk is not asked back for it.
func TestWhatTheOldNameLeftIsGoneOnceTheRenamedNodeHasTheVolume(t *testing.T) {
	for _, lingers := range []bool{false, true} {
		r := guardrig.Renamed(t, lingers)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
		r.Lists("renamed", true, false) // its kubelet wants it
		if lingers {
			r.Lists("old", false, false)
		}
		r.Must(r.PublishTo("old"))
		r.WantHolder("renamed", fence.Publishing)
		r.SaysAttached("renamed")
		r.Refused(r.UnpublishFrom(""), codes.FailedPrecondition)
		r.Must(r.UnpublishFrom(guardrig.ID("old")))
		r.WantHolder("renamed", fence.Publishing)
		r.Stripped("old")
		r.Attachment("old", time.Time{}) // nobody has asked for it back
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
		r.Stripped("old")
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
		r.Lists("renamed", false, false)
		r.AttachmentWith("renamed", guardrig.ID("old"), guardrig.Now)
		r.Must(r.UnpublishFrom(guardrig.ID("old")))
		r.Called("publish id-old", "unpublish id-old")
	}
}

func TestTwoMachinesOfOneNodeIDDoNotHoldAVolumeTogether(t *testing.T) {
	for _, name := range []string{"old", "renamed", "anew"} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("old", guardrig.HourAgo)
		r.Attachment("old", time.Time{})
		r.Must(r.PublishTo("old"))
		r.Stripped("old") // by hand, to get on
		if name == "old" {
			// A new machine has registered under the Node that the old one left.
			r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID, s.NodeInfo.SystemUUID = "boot-2", "system-2" })
			r.Attachment("old", time.Time{})
		} else {
			r.Lists("old", true, false)
			r.Lives["old"] = fence.Stale
			r.Heir("old", name)
			r.Status(name, func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "system-2" })
			r.Lists(name, true, false) // as every kubelet does that waits for its disk
		}
		r.Calls = nil
		r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "node old (ID id-old) h", "it, ", "nothing proves that")
		r.Called()
		r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.OperatorConfirmation}}
		r.Must(r.PublishTo("old"))
		r.Called("publish id-old")
		if l := r.Ledger(); len(l.Holders) != 1 || l.Holders[0].SystemUUID != "system-2" || l.Holders[0].NodeName != name {
			t.Errorf("the ledger says %+v", l.Holders)
		}
	}
}

// What the storage took from the first by its node ID it would give back with the
// publish to the second.
func TestNothingIsRevokedFromAMachineWhoseNodeIDAnotherHas(t *testing.T) {
	r := guardrig.New(t, fence.Policy{UnpublishRevokesAccess: true})
	r.Node("old", guardrig.HourAgo)
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID, s.NodeInfo.SystemUUID = "boot-2", "system-2" })
	r.Attachment("old", guardrig.Now)
	r.Calls = nil
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "another machine", "fence confirm old --node-id id-old")
	r.Called()
}

func TestAVolumeOfARenamedNodeIsWrittenDownUnderItsNewName(t *testing.T) {
	for _, stands := range []bool{false, true} {
		r := guardrig.Renamed(t, false)
		r.Stripped("old") // by hand, to get on
		if stands {
			r.Attachment("old", time.Time{}) // nobody has asked for it back yet
		}
		r.Must(r.PublishTo("old"))
		r.WantHolder("renamed", fence.Publishing)
		r.AttachmentWith("renamed", guardrig.ID("old"), guardrig.Now)
		r.Must(r.UnpublishFrom(guardrig.ID("old")))
		r.Called("publish id-old", "unpublish id-old")
	}
}

func TestAnUnpublishThatTheOldNameLeftHalfDoneIsNotWaitedForForEver(t *testing.T) {
	r := guardrig.Renamed(t, false)
	r.Stripped("old")
	r.Change(func(l *ledger.Ledger) { l.Holders[0].State = fence.Leaving })
	for range 2 {
		r.Refused(r.PublishTo("old"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
	}
	r.Guard.Ago(guard.AbandonedAfter, "")
	r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]", "csi-fencepost release pv pv-1 --node old")
	r.Called()
	r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.VolumeRelease}}
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.PublishTo("old"), codes.Internal, "throttled")
	r.UnpublishErr = nil
	r.Must(r.PublishTo("old"))
	r.WantHolder("renamed", fence.Publishing)
	r.Called("unpublish id-old", "unpublish id-old", "publish id-old")
}

// Whoever deletes its VolumeAttachment repeats it. Without one nobody says that it
// is over.
func TestAnUnpublishThatSomebodyMayRepeatIsWaitedForHoweverLong(t *testing.T) {
	for what, change := range map[string]func(*guardrig.Rig){
		"the old name's is being deleted": func(r *guardrig.Rig) { r.Deleting("old") },
		"there is none":                   func(r *guardrig.Rig) { r.Stripped("renamed") },
		"the new name's is being deleted": func(r *guardrig.Rig) { r.AttachmentWith("renamed", guardrig.ID("old"), guardrig.Now) },
	} {
		r := guardrig.Renamed(t, false)
		r.Stripped("old")
		r.Change(func(l *ledger.Ledger) { l.Holders[0].State, l.Holders[0].Token = fence.Leaving, "t" })
		change(r)
		r.Guard.Ago(time.Hour, "t")
		r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.VolumeRelease}}
		r.Refused(r.PublishTo("old"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		if r.Called(); len(r.Guard.Leaving()) > 0 {
			t.Errorf("%s: the time goes on", what)
		}
	}
}

func TestANewMachineUnderAnOldNameDoesNotWaitForTheOldOnesVolumeAttachment(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Attachment("old", time.Time{}) // of id-old
	r.Attachment("old", guardrig.Now)
	csiNode, err := r.Client.StorageV1().CSINodes().Get(t.Context(), "old", metav1.GetOptions{})
	r.Must(err)
	csiNode.Spec.Drivers[0].NodeID = guardrig.ID("another")
	_, err = r.Client.StorageV1().CSINodes().Update(t.Context(), csiNode, metav1.UpdateOptions{})
	r.Must(err)
	r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.VolumeRelease}}
	r.Must(r.PublishTo("another"))
	r.Called("unpublish id-old", "publish id-another")
}

// Some drivers make a node's ID of its address or initiator name, which a reboot
// may change. The machine is still the same.
func TestAMachineThatRebootsUnderAnotherNodeIDLetsGo(t *testing.T) {
	for _, same := range []bool{true, false} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("n", guardrig.HourAgo)
		r.Node("next", guardrig.HourAgo)
		uuid := func(of string) { r.Status("n", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = of }) }
		uuid("4c4c4544-0042-3010-8054-b7c04f4d4d32")
		r.Attachment("n", time.Time{})
		r.Must(r.PublishTo("n"))
		r.SaysAttached("n")
		r.Status("n", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-2" })
		if !same {
			uuid("4c4c4544-0042-3010-8054-b7c04f4d4d33")
		}
		r.Register("n", "id-new")
		r.Lists("n", false, false)
		r.Attachment("n", guardrig.Now)
		if err := r.UnpublishFrom("id-new"); (err == nil) != same {
			t.Errorf("same machine: %v; unpublish: %v", same, err)
		}
	}
}

// renamedAndListing: the old Node is gone, and the renamed one has booted and lists
// what its pod waits for.
func renamedAndListing(t *testing.T) *guardrig.Rig {
	r := guardrig.Renamed(t, false)
	r.Stripped("renamed")
	r.Unsynced.Store(true)
	r.Status("renamed", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-2" })
	r.Lists("renamed", true, false)
	return r
}

// Nothing was mounted in a boot under the new name: the detach is the old one's. So
// the contest is of the publish's boot, and any later one ends it.
func TestWhatTheOldNamesDetachContestsEndsWithAnyLaterBoot(t *testing.T) {
	r := renamedAndListing(t)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	if c := r.Ledger().Get(guardrig.ID("old")).Contest; c == nil || c.BootID != "boot-of-old" {
		t.Fatalf("contested: %+v, want of boot-of-old", c)
	}
	// It comes back under its old name.
	r.Lists("renamed", false, false)
	r.Lives["renamed"] = fence.Stale
	delete(r.Lives, "old")
	r.Node("old", time.Now())
	r.Reboot("old", "boot-3")
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old")
}

// The Ready condition of one Node says nothing of the kubelet of another.
func TestWhatARenamedNodeListsIsNotBelievedForTheOldOnesReadiness(t *testing.T) {
	r := renamedAndListing(t)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	if c := r.Ledger().Get(guardrig.ID("old")).Contest; c == nil || c.SeenReadySince != "" {
		t.Errorf("contested: %+v, want no word of the kubelet", c)
	}
}

// A pod that a reboot brought back mounts without a publish. That another node with
// the same ID is being detached says nothing of it.
func TestWhatARebootedNodeUsesIsContestedUnderItsBootWhateverElseHasItsID(t *testing.T) {
	for _, other := range []bool{false, true} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("old", guardrig.HourAgo)
		r.Attachment("old", time.Time{})
		r.Must(r.PublishTo("old"))
		r.SaysAttached("old")
		r.Reboot("old", "boot-2")
		r.Lists("old", true, true)
		if other {
			r.Heir("old", "other")
			r.AttachmentWith("other", guardrig.ID("old"), guardrig.Now)
		}
		r.Stripped("old")
		r.Unsynced.Store(true)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
		if c := r.Ledger().Get(guardrig.ID("old")).Contest; c == nil || c.BootID != "boot-2" {
			t.Errorf("another node with its ID: %t, contested: %+v, want of boot-2", other, c)
		}
		r.Calls = nil
		r.Lists("old", false, false) // a kubelet that has forgotten
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
		r.Called()
	}
}

// The entry is the old name's, whose machine may be another one: what stands there of
// it stays, and no other Node's kubelet is heard of it.
func TestWhatANodeWithABorrowedIDListsEndsNoContestOfTheHolders(t *testing.T) {
	r := renamedAndListing(t)
	r.Unsynced.Store(false)
	contest := fence.Contest{BootID: "boot-of-old"}
	r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Contest = &contest })
	r.AttachmentWith("renamed", guardrig.ID("old"), time.Time{})
	r.AttachmentWith("renamed", guardrig.ID("old"), guardrig.Now) // a refused publish leaves one
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	if c := r.Ledger().Get(guardrig.ID("old")).Contest; c == nil || !reflect.DeepEqual(*c, contest) {
		t.Errorf("contested: %+v, want %+v as before", c, contest)
	}
}
