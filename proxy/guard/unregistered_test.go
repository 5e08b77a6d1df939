package guard

import (
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// policies under which a holder of which nothing is known may be unpublished.
var policies = map[string]fence.Policy{"refuse": {}, "unpublishRevokesAccess": {UnpublishRevokesAccess: true}, "unfenced: Forward": {ForwardUnfenced: true}}

func TestANodeThatUsesTheVolumeHoldsItWhileItsDriverIsNotRegistered(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, p) // and there is no ledger yet
			r.node("old", hourAgo)
			r.node("next", hourAgo)
			r.lists("old", true, false)
			r.deleting("old")
			r.register("old", "")
			r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
			r.refused(r.publish("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
			r.called()
		})
	}
}

func TestADrainedNodeIsNotContestedWhileItsDriverIsNotRegistered(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.deleting("old")
	r.register("old", "")
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition)
	r.called()
	pv, err := r.client.CoreV1().PersistentVolumes().Get(t.Context(), pvName, metav1.GetOptions{})
	r.must(err)
	if text, ok := pv.Annotations[ledger.Annotation]; ok {
		t.Errorf("the ledger says of a machine that is not known yet: %s", text)
	}
}

func TestASilentOldNameFreesNobodyFromTheNodeThatUsesTheVolume(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, p)
			r.node("old", hourAgo)
			r.node("next", hourAgo)
			r.lives["old"] = fence.Stale
			r.annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"cluster-uid","pvUID":"uid-of-pv-1","holders":[{"nodeID":"id-old","node":"old","nodeUID":"uid-of-old","bootID":"boot-of-old","token":"t","state":"publishing"}]}`)
			r.heir("old", "renamed")
			r.lists("renamed", true, true)
			r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node renamed")
			r.refused(r.publish("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node renamed")
			r.called()
		})
	}
}

// A VolumeAttachment's name is a hash: either may come first.
func TestTheNodeThatUsesTheVolumeIsJudgedWhicheverAttachmentComesFirst(t *testing.T) {
	first, last := "", ""
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		if csi.AttachmentName(handle, driverName, name) < csi.AttachmentName(handle, driverName, "renamed") {
			first = name
		} else {
			last = name
		}
	}
	if first == "" || last == "" {
		t.Fatal("no name's VolumeAttachment is before, or none after, that of node renamed")
	}
	for _, old := range []string{first, last} {
		for name, p := range policies {
			t.Run(name+", "+old, func(t *testing.T) {
				r := newRig(t, p)
				r.node("next", hourAgo)
				r.heir(old, "renamed")
				r.deleting(old) // its Node is gone, and it is stuck
				r.lists("renamed", true, true)
				r.refused(r.publish("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node renamed")
				h := listen(r)
				r.refused(r.unpublish(id(old)), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node renamed")
				r.attachmentWith("renamed", id(old), now)
				r.refused(r.unpublish(id(old)), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node renamed")
				if a, b := h.decisions[0].NodeName, h.decisions[1].NodeName; a != old || b != "renamed" {
					t.Errorf("whose VolumeAttachment waits: %s, and then %s", a, b)
				}
				r.called()
			})
		}
	}
}

func TestAnUnpublishFromAllNodesJudgesEachHolderWithoutAnID(t *testing.T) {
	r := newRig(t, fence.Policy{})
	for _, name := range []string{"m", "n"} {
		r.node(name, hourAgo)
		r.register(name, "")
		r.attached(name)
	}
	// The first was let go, by the word of a kubelet that is silent since.
	r.status("m", func(s *corev1.NodeStatus) { s.Conditions[0].Status = corev1.ConditionUnknown })
	r.lists("n", true, true)
	r.refused(r.unpublish(""), codes.FailedPrecondition)
	r.called()
}

// external-attacher's comparison with ListVolumes publishes again to a node, also
// while a person deletes it.
func TestWhatIsKnownOfAHolderIsNotGivenUpWhenItsNodeIsGone(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.attachment("old", time.Time{})
	r.must(r.publish("old"))
	r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.must(r.client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.must(r.publish("old"))
	r.wantHolder("old", fence.Publishing)
}

// A machine reboots, its Node is deleted and registered anew, and lists the volume
// before the index has seen it. A word about the earlier boot does not count.
func TestANodeThatRegistersAnewIsSeenBeforeTheIndexSeesIt(t *testing.T) {
	for _, registered := range []string{"", id("old")} {
		r := newRig(t, fence.Policy{})
		r.guard.Surveyor.Sources = []evidence.Source{says{fence.OperatorConfirmation}}
		r.node("old", hourAgo)
		r.attachment("old", time.Time{})
		r.must(r.publish("old"))
		r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.must(r.client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.node("old", hourAgo)
		r.register("old", registered)
		r.status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-2" })
		r.renewUID("old")
		r.attachment("old", now)
		r.look()
		r.lists("old", true, false)
		_, err := r.guard.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: id("old")}, r)
		r.refused(err, codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		r.called("publish id-old")
	}
}

// It is published to once more, as the attacher does when ListVolumes lacks it.
func TestANodeThatRegistersAnewIsNotBelievedToHaveLetGo(t *testing.T) {
	r := published(t, fence.Policy{})
	r.renewUID("old")
	r.must(r.publish("old"))
	if l := r.ledger(); len(l.Holders) != 1 || l.Holders[0].NodeUID != "uid-of-old-anew" || l.Holders[0].Contest == nil {
		t.Errorf("the ledger says %+v", l.Holders)
	}
	r.attachment("old", now)
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.refused(r.publish("next"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.called("publish id-old", "publish id-old")
	r.reboot("old", "boot-2")
	r.must(r.unpublish(id("old")))
}

// Nothing could end a contest of a boot that nobody can tell from the next.
func TestANodeWithoutABootIDIsNotContestedForRegisteringAnew(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "" })
	r.attachment("old", time.Time{})
	r.must(r.publish("old"))
	r.renewUID("old")
	r.must(r.publish("old"))
	r.attachment("old", now)
	r.must(r.unpublish(id("old")))
}

func TestANodeThatRegistersAnewKeepsWhatWasSeenOfIt(t *testing.T) {
	r := published(t, fence.Policy{})
	seen := fence.Contest{BootID: "boot-of-old", SeenReadySince: "2026-01-02T03:04:05Z"}
	r.change(func(l *ledger.Ledger) { l.Get(id("old")).Contest = &seen })
	r.renewUID("old")
	r.must(r.publish("old"))
	if e := r.ledger().Get(id("old")); e.NodeUID != "uid-of-old-anew" || e.Contest == nil || *e.Contest != seen {
		t.Errorf("the ledger says %+v", e)
	}
}
