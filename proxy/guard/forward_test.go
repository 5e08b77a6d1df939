package guard

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// forwarded publishes to old, which falls silent while it uses the volume, and
// has its unpublish forwarded without proof.
func forwarded(t *testing.T) *rig {
	r := published(t, fence.Policy{ForwardUnfenced: true})
	r.lists("old", true, false)
	r.lives["old"] = fence.Stale
	r.attachment("old", now)
	r.must(r.unpublish(id("old")))
	r.called("publish id-old", "unpublish id-old")
	if e := r.ledger().Get(id("old")); e == nil || e.State != fence.TakenOver || !e.Unproven {
		t.Fatalf("the ledger says %+v, want it taken over without proof", e)
	}
	return r
}

// Else the volume would be more stuck than with Kubernetes alone: a dead kubelet
// says for ever that it uses it.
func TestAfterAForwardedUnpublishOfASilentNodeTheVolumeMovesOn(t *testing.T) {
	r := forwarded(t)
	r.must(r.publish("next"))
	r.must(r.unpublish(id("old"))) // late
	r.called("publish id-old", "unpublish id-old", "publish id-next")
}

func TestTheVolumeMovesOnAlthoughTheForwardedOneIsGoneFromKubernetes(t *testing.T) {
	r := forwarded(t)
	r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.lives["old"] = fence.Unknown
	r.must(r.publish("next"))
}

func TestANodeWhoseUnpublishWasForwardedCountsAgainOnceItIsBack(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"alive and attached":         func(r *rig) { r.lives["old"] = fence.Alive; r.lists("old", true, true) },
		"alive and still uses it":    func(r *rig) { r.lives["old"] = fence.Alive },
		"perhaps alive, and uses it": func(r *rig) { r.lives["old"] = fence.Unwatched },
		"silent and attached":        func(r *rig) { r.lists("old", true, true) },
	} {
		t.Run(name, func(t *testing.T) {
			r := forwarded(t)
			change(r)
			r.refused(r.publish("next"), codes.FailedPrecondition, "node old")
			r.called("publish id-old", "unpublish id-old")
			r.lists("old", false, false)
			r.must(r.publish("next"))
		})
	}
}

func TestAFirstPodThatIsDrainedAtOnceIsNotStuck(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("new", now)
	r.attachment("new", time.Time{})
	r.must(r.publish("new"))
	if e := r.ledger().Get(id("new")); e.ReadySince != now.UTC().Format(time.RFC3339) {
		t.Fatalf("the ledger says %+v, want since when the node is Ready: %s", e, now)
	}
	r.attachment("new", now)
	r.must(r.unpublish(id("new")))
	r.called("publish id-new", "unpublish id-new")
}

func TestAKubeletThatChangedItsReadyConditionSinceThePublishIsNotBelieved(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.attachment("n", time.Time{})
	r.must(r.publish("n"))
	r.attachment("n", now)
	r.status("n", func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(time.Second)) })
	r.refused(r.unpublish(id("n")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.called("publish id-n")
}

func TestALatePublishForAVolumeAttachmentThatIsBeingDeletedIsAborted(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.attachment("n", time.Time{})
	r.must(r.publish("n"))
	r.attachment("n", now)
	r.must(r.unpublish(id("n")))
	r.refused(r.publish("n"), codes.Aborted, "node n", "["+string(fence.TargetLeaving)+"]")
	r.called("publish id-n", "unpublish id-n")
	// Who calls without VolumeAttachments is judged by what else there is.
	r.stripped("n")
	r.must(r.publish("n"))
}

func TestAnUnpublishFromAllNodesIsRefusedWhileOneUsesTheVolume(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.must(r.unpublish("")) // nobody holds it
	r.node("n", hourAgo)
	r.attachment("n", time.Time{})
	r.must(r.publish("n"))
	r.lists("n", true, true)
	r.refused(r.unpublish(""), codes.FailedPrecondition, "node n", "["+string(fence.UnpublishEveryone)+"]")
	r.called("unpublish ", "publish id-n")
}

func TestWhatOnlyTheDriverListedIsForgottenWhenItListsItNoMore(t *testing.T) {
	// adopted has an unpublish write the ledger, with a node of the storage's own.
	adopted := func(t *testing.T) *rig {
		r := newRig(t, fence.Policy{})
		r.node("old", hourAgo)
		r.node("next", hourAgo)
		r.listed = []string{"id-old", "id-of-nobody"}
		r.attachment("old", time.Time{})
		r.must(r.unpublish(id("old")))
		if e := r.ledger().Get("id-of-nobody"); e == nil || e.State != fence.Held || e.From != fence.FromDriver {
			t.Fatalf("adopted as %+v, want it held, from the driver alone", e)
		}
		r.stripped("old")
		r.refused(r.publish("next"), codes.FailedPrecondition, "id-of-nobody")
		return r
	}
	t.Run("listed no more", func(t *testing.T) {
		r := adopted(t)
		r.listed = nil
		r.must(r.publish("next"))
		if e := r.ledger().Get("id-of-nobody"); e != nil {
			t.Errorf("the ledger still has %+v", e)
		}
	})
	t.Run("the driver does not answer", func(t *testing.T) {
		r := adopted(t)
		r.listed, r.listErr = nil, errors.New("throttled")
		r.refused(r.publish("next"), codes.FailedPrecondition, "id-of-nobody")
	})
	t.Run("somebody else names it now", func(t *testing.T) {
		r := adopted(t)
		r.listed = nil
		l := r.ledger()
		l.Get("id-of-nobody").NodeName = "late"
		r.annotate(l.String())
		r.node("late", hourAgo)
		r.lists("late", true, true)
		l.Get("id-of-nobody").NodeUID = "uid-of-late"
		r.annotate(l.String())
		r.refused(r.publish("next"), codes.FailedPrecondition, "node late")
		r.refused(r.unpublish("id-of-nobody"), codes.FailedPrecondition, "node late")
		if e := r.ledger().Get("id-of-nobody"); e.From != "" {
			t.Errorf("a node that uses it is still %+v", e)
		}
	})
}

// Where the ledger begins with a takeover, the node that waits is written down
// too: its VolumeAttachment may have been published while nobody kept a ledger.
func TestAnAdoptedNodeThatWaitsIsPublishedToInTheEnd(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("idle", hourAgo)
	r.node("next", now)
	r.listed = []string{"id-idle"}
	r.attachment("next", time.Time{})
	r.must(r.publish("next"))
	r.called("unpublish id-idle", "publish id-next")
	e := r.ledger().Get(id("next"))
	if e.State != fence.Publishing || e.From != "" || e.ReadySince != now.UTC().Format(time.RFC3339) {
		t.Errorf("the ledger says %+v", e)
	}
	if e := r.ledger().Get(id("idle")); e.State != fence.TakenOver || e.Unproven {
		t.Errorf("the ledger says %+v", e)
	}
}

func TestAMachineReplacedUnderItsNodeIsAnotherHolderBeforeItsDriverHasRegistered(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.node("next", hourAgo)
	r.attachment("n", time.Time{})
	r.must(r.publish("n"))
	r.attachment("n", now)
	r.must(r.client.StorageV1().CSINodes().Delete(t.Context(), "n", metav1.DeleteOptions{}))

	r.status("n", func(s *corev1.NodeStatus) {
		s.NodeInfo.BootID, s.NodeInfo.SystemUUID = "boot-of-another", "system-another"
	})
	r.refused(r.publish("next"), codes.FailedPrecondition, "node n", "another machine has that name now")
	r.refused(r.unpublish(id("n")), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	r.called("publish id-n")

	// An empty one proves nothing: it is a reboot. A boot is the machine's own.
	for _, info := range []corev1.NodeSystemInfo{{BootID: "boot-again"}, {BootID: "boot-again", SystemUUID: "SYSTEM-N"}, {BootID: "boot-of-n", SystemUUID: "system-other"}} {
		r := newRig(t, fence.Policy{})
		r.node("n", hourAgo)
		r.attachment("n", time.Time{})
		r.must(r.publish("n"))
		r.attachment("n", now)
		r.status("n", func(s *corev1.NodeStatus) { s.NodeInfo = info })
		r.must(r.unpublish(id("n")))
		r.called("publish id-n", "unpublish id-n")
	}
}

func TestAGarbledLedgerIsRefusedWithTheCommandThatMendsIt(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.annotate(`{"version":1`)
	for _, err := range []error{r.publish("n"), r.unpublish(id("n"))} {
		r.refused(err, codes.FailedPrecondition, "["+string(fence.LedgerUnreadable)+"]", "kubectl annotate pv pv-1 csi-fencepost.io/holders-")
	}
	r.called()
}
