package guard

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// movesOn: what the old name left is unpublished, the volume is published to the
// renamed node as such, and can leave it again by its kubelet's word alone.
func movesOn(r *rig) {
	r.t.Helper()
	r.refused(r.publish("old"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
	r.must(r.unpublish(id("old")))
	r.stripped("old")
	r.must(r.publish("old"))
	r.wantHolder("renamed", fence.Publishing)
	r.attachmentWith("renamed", id("old"), now)
	r.must(r.unpublish(id("old")))
	r.called("unpublish id-old", "publish id-old", "unpublish id-old")
}

func TestARenamedNodeIsToldWhatItsOldNameWaitsFor(t *testing.T) {
	r := renamed(t, false)
	publish := r.publish("old")
	r.refused(publish, codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]", "node old (ID id-old) held it", "node renamed has its ID now", "csi-fencepost release pv pv-1 --node old --reason")
	unpublish := r.unpublish(id("old"))
	if a, b := status.Convert(publish).Message(), status.Convert(unpublish).Message(); a != b {
		t.Errorf("the publish says %q, and the unpublish that it waits for %q", a, b)
	}
	r.called()
	r.guard.Surveyor.Sources = []evidence.Source{says{fence.VolumeRelease}}
	movesOn(r)
}

func TestARenamedNodeWhoseOldNodeLingersIsToldOfThatOne(t *testing.T) {
	r := renamed(t, true)
	r.refused(r.publish("old"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]", "node old (ID id-old) holds it", "csi-fencepost fence confirm old --reason")
	r.called()
	r.guard.Surveyor.Sources = []evidence.Source{says{fence.OperatorConfirmation}}
	movesOn(r)
}

// The old name's detach keeps Kubernetes from every other detach of the volume, so
// it must end; the disk is not asked back for it.
func TestWhatTheOldNameLeftIsGoneOnceTheRenamedNodeHasTheVolume(t *testing.T) {
	for _, lingers := range []bool{false, true} {
		r := renamed(t, lingers)
		r.refused(r.unpublish(id("old")), codes.FailedPrecondition)
		r.lists("renamed", true, false) // its kubelet wants it
		if lingers {
			r.lists("old", false, false)
		}
		r.must(r.publish("old"))
		r.wantHolder("renamed", fence.Publishing)
		r.saysAttached("renamed")
		r.refused(r.unpublish(""), codes.FailedPrecondition)
		r.must(r.unpublish(id("old")))
		r.wantHolder("renamed", fence.Publishing)
		r.stripped("old")
		r.attachment("old", time.Time{}) // nobody has asked for it back
		r.refused(r.unpublish(id("old")), codes.FailedPrecondition)
		r.stripped("old")
		r.refused(r.unpublish(id("old")), codes.FailedPrecondition)
		r.lists("renamed", false, false)
		r.attachmentWith("renamed", id("old"), now)
		r.must(r.unpublish(id("old")))
		r.called("publish id-old", "unpublish id-old")
	}
}

func TestTwoMachinesOfOneNodeIDDoNotHoldAVolumeTogether(t *testing.T) {
	for _, name := range []string{"old", "renamed", "anew"} {
		r := newRig(t, fence.Policy{})
		r.node("old", hourAgo)
		r.attachment("old", time.Time{})
		r.must(r.publish("old"))
		r.stripped("old") // by hand, to get on
		if name == "old" {
			// A new machine has registered under the Node that the old one left.
			r.status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID, s.NodeInfo.SystemUUID = "boot-2", "system-2" })
			r.attachment("old", time.Time{})
		} else {
			r.lists("old", true, false)
			r.lives["old"] = fence.Stale
			r.heir("old", name)
			r.status(name, func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "system-2" })
			r.lists(name, true, false) // as every kubelet does that waits for its disk
		}
		r.calls = nil
		r.refused(r.publish("old"), codes.FailedPrecondition, "node old (ID id-old) h", "it, ", "nothing proves that")
		r.called()
		r.guard.Surveyor.Sources = []evidence.Source{says{fence.OperatorConfirmation}}
		r.must(r.publish("old"))
		r.called("publish id-old")
		if l := r.ledger(); len(l.Holders) != 1 || l.Holders[0].SystemUUID != "system-2" || l.Holders[0].NodeName != name {
			t.Errorf("the ledger says %+v", l.Holders)
		}
	}
}

// What the storage took from the first by its node ID it would give back with the
// publish to the second.
func TestNothingIsRevokedFromAMachineWhoseNodeIDAnotherHas(t *testing.T) {
	r := newRig(t, fence.Policy{UnpublishRevokesAccess: true})
	r.node("old", hourAgo)
	r.attachment("old", time.Time{})
	r.must(r.publish("old"))
	r.status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID, s.NodeInfo.SystemUUID = "boot-2", "system-2" })
	r.attachment("old", now)
	r.calls = nil
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "another machine", "fence confirm old --node-id id-old")
	r.called()
}

func TestAVolumeOfARenamedNodeIsWrittenDownUnderItsNewName(t *testing.T) {
	for _, stands := range []bool{false, true} {
		r := renamed(t, false)
		r.stripped("old") // by hand, to get on
		if stands {
			r.attachment("old", time.Time{}) // nobody has asked for it back yet
		}
		r.must(r.publish("old"))
		r.wantHolder("renamed", fence.Publishing)
		r.attachmentWith("renamed", id("old"), now)
		r.must(r.unpublish(id("old")))
		r.called("publish id-old", "unpublish id-old")
	}
}

func TestAnUnpublishThatTheOldNameLeftHalfDoneIsNotWaitedForForEver(t *testing.T) {
	r := renamed(t, false)
	r.stripped("old")
	r.change(func(l *ledger.Ledger) { l.Holders[0].State = fence.Leaving })
	for range 2 {
		r.refused(r.publish("old"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
	}
	for token := range r.guard.leaving {
		r.guard.leaving[token] = time.Now().Add(-abandonedAfter)
	}
	r.refused(r.publish("old"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]", "csi-fencepost release pv pv-1 --node old")
	r.called()
	r.guard.Surveyor.Sources = []evidence.Source{says{fence.VolumeRelease}}
	r.unpublishErr = errThrottled
	r.refused(r.publish("old"), codes.Internal, "throttled")
	r.unpublishErr = nil
	r.must(r.publish("old"))
	r.wantHolder("renamed", fence.Publishing)
	r.called("unpublish id-old", "unpublish id-old", "publish id-old")
}

// Whoever deletes its VolumeAttachment repeats it. Without one nobody says that it
// is over.
func TestAnUnpublishThatSomebodyMayRepeatIsWaitedForHoweverLong(t *testing.T) {
	for what, change := range map[string]func(*rig){
		"the old name's is being deleted": func(r *rig) { r.deleting("old") },
		"there is none":                   func(r *rig) { r.stripped("renamed") },
		"the new name's is being deleted": func(r *rig) { r.attachmentWith("renamed", id("old"), now) },
	} {
		r := renamed(t, false)
		r.stripped("old")
		r.change(func(l *ledger.Ledger) { l.Holders[0].State, l.Holders[0].Token = fence.Leaving, "t" })
		change(r)
		r.guard.leaving["t"] = time.Now().Add(-time.Hour)
		r.guard.Surveyor.Sources = []evidence.Source{says{fence.VolumeRelease}}
		r.refused(r.publish("old"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		if r.called(); len(r.guard.leaving) > 0 {
			t.Errorf("%s: the time goes on", what)
		}
	}
}

func TestANewMachineUnderAnOldNameDoesNotWaitForTheOldOnesVolumeAttachment(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.attachment("old", time.Time{}) // of id-old
	r.attachment("old", now)
	csiNode, err := r.client.StorageV1().CSINodes().Get(t.Context(), "old", metav1.GetOptions{})
	r.must(err)
	csiNode.Spec.Drivers[0].NodeID = id("another")
	_, err = r.client.StorageV1().CSINodes().Update(t.Context(), csiNode, metav1.UpdateOptions{})
	r.must(err)
	r.guard.Surveyor.Sources = []evidence.Source{says{fence.VolumeRelease}}
	r.must(r.publish("another"))
	r.called("unpublish id-old", "publish id-another")
}

// Some drivers make a node's ID of its address or initiator name, which a reboot
// may change. The machine is still the same.
func TestAMachineThatRebootsUnderAnotherNodeIDLetsGo(t *testing.T) {
	for _, same := range []bool{true, false} {
		r := newRig(t, fence.Policy{})
		r.node("n", hourAgo)
		r.node("next", hourAgo)
		uuid := func(of string) { r.status("n", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = of }) }
		uuid("4c4c4544-0042-3010-8054-b7c04f4d4d32")
		r.attachment("n", time.Time{})
		r.must(r.publish("n"))
		r.saysAttached("n")
		r.status("n", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-2" })
		if !same {
			uuid("4c4c4544-0042-3010-8054-b7c04f4d4d33")
		}
		r.register("n", "id-new")
		r.lists("n", false, false)
		r.attachment("n", now)
		if err := r.unpublish("id-new"); (err == nil) != same {
			t.Errorf("same machine: %v; unpublish: %v", same, err)
		}
	}
}
