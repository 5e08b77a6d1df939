package guard_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// forwarded publishes to old, which falls silent while it uses the volume, and
// has its unpublish forwarded without proof.
func forwarded(t *testing.T) *guardrig.Rig {
	r := guardrig.Published(t, fence.Policy{ForwardUnfenced: true})
	r.Lists("old", true, false)
	r.Lives["old"] = fence.Stale
	r.Attachment("old", guardrig.Now)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("publish id-old", "unpublish id-old")
	if e := r.Ledger().Get(guardrig.ID("old")); e == nil || e.State != fence.TakenOver || !e.Unproven {
		t.Fatalf("the ledger says %+v, want it taken over without proof", e)
	}
	return r
}

// Else the volume would be more stuck than with Kubernetes alone: a dead kubelet
// says for ever that it uses it.
func TestAfterAForwardedUnpublishOfASilentNodeTheVolumeMovesOn(t *testing.T) {
	r := forwarded(t)
	r.Must(r.PublishTo("next"))
	r.Must(r.UnpublishFrom(guardrig.ID("old"))) // late
	r.Called("publish id-old", "unpublish id-old", "publish id-next")
}

func TestTheVolumeMovesOnAlthoughTheForwardedOneIsGoneFromKubernetes(t *testing.T) {
	r := forwarded(t)
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Lives["old"] = fence.Unknown
	r.Must(r.PublishTo("next"))
}

func TestANodeWhoseUnpublishWasForwardedCountsAgainOnceItIsBack(t *testing.T) {
	for name, change := range map[string]func(*guardrig.Rig){
		"alive and attached":         func(r *guardrig.Rig) { r.Lives["old"] = fence.Alive; r.Lists("old", true, true) },
		"alive and still uses it":    func(r *guardrig.Rig) { r.Lives["old"] = fence.Alive },
		"perhaps alive, and uses it": func(r *guardrig.Rig) { r.Lives["old"] = fence.Unwatched },
		"silent and attached":        func(r *guardrig.Rig) { r.Lists("old", true, true) },
	} {
		t.Run(name, func(t *testing.T) {
			r := forwarded(t)
			change(r)
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "node old")
			r.Called("publish id-old", "unpublish id-old")
			r.Lists("old", false, false)
			r.Must(r.PublishTo("next"))
		})
	}
}

func TestAFirstPodThatIsDrainedAtOnceIsNotStuck(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("new", guardrig.Now)
	r.Attachment("new", time.Time{})
	r.Must(r.PublishTo("new"))
	if e := r.Ledger().Get(guardrig.ID("new")); e.ReadySince != guardrig.Now.UTC().Format(time.RFC3339) {
		t.Fatalf("the ledger says %+v, want since when the node is Ready: %s", e, guardrig.Now)
	}
	r.Attachment("new", guardrig.Now)
	r.Must(r.UnpublishFrom(guardrig.ID("new")))
	r.Called("publish id-new", "unpublish id-new")
}

func TestAKubeletThatChangedItsReadyConditionSinceThePublishIsNotBelieved(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Attachment("n", time.Time{})
	r.Must(r.PublishTo("n"))
	r.Attachment("n", guardrig.Now)
	r.Status("n", func(s *corev1.NodeStatus) {
		s.Conditions[0].LastTransitionTime = metav1.NewTime(guardrig.Now.Add(time.Second))
	})
	r.Refused(r.UnpublishFrom(guardrig.ID("n")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Called("publish id-n")
}

func TestALatePublishForAVolumeAttachmentThatIsBeingDeletedIsAborted(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Attachment("n", time.Time{})
	r.Must(r.PublishTo("n"))
	r.Attachment("n", guardrig.Now)
	r.Must(r.UnpublishFrom(guardrig.ID("n")))
	r.Refused(r.PublishTo("n"), codes.Aborted, "node n", "["+string(fence.TargetLeaving)+"]")
	r.Called("publish id-n", "unpublish id-n")
	// Who calls without VolumeAttachments is judged by what else there is.
	r.Stripped("n")
	r.Must(r.PublishTo("n"))
}

func TestAnUnpublishFromAllNodesIsRefusedWhileOneUsesTheVolume(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Must(r.UnpublishFrom("")) // nobody holds it
	r.Node("n", guardrig.HourAgo)
	r.Attachment("n", time.Time{})
	r.Must(r.PublishTo("n"))
	r.Lists("n", true, true)
	r.Refused(r.UnpublishFrom(""), codes.FailedPrecondition, "node n", "["+string(fence.UnpublishEveryone)+"]")
	r.Called("unpublish ", "publish id-n")
}

func TestWhatOnlyTheDriverListedIsForgottenWhenItListsItNoMore(t *testing.T) {
	// adopted has an unpublish write the ledger, with a node of the storage's own.
	adopted := func(t *testing.T) *guardrig.Rig {
		r := guardrig.New(t, fence.Policy{})
		r.Node("old", guardrig.HourAgo)
		r.Node("next", guardrig.HourAgo)
		r.Listed = []string{"id-old", "id-of-nobody"}
		r.Attachment("old", time.Time{})
		r.Must(r.UnpublishFrom(guardrig.ID("old")))
		if e := r.Ledger().Get("id-of-nobody"); e == nil || e.State != fence.Held || e.From != fence.FromDriver {
			t.Fatalf("adopted as %+v, want it held, from the driver alone", e)
		}
		r.Stripped("old")
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "id-of-nobody")
		return r
	}
	t.Run("listed no more", func(t *testing.T) {
		r := adopted(t)
		r.Listed = nil
		r.Must(r.PublishTo("next"))
		if e := r.Ledger().Get("id-of-nobody"); e != nil {
			t.Errorf("the ledger still has %+v", e)
		}
	})
	t.Run("the driver does not answer", func(t *testing.T) {
		r := adopted(t)
		r.Listed, r.ListErr = nil, errors.New("throttled")
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "id-of-nobody")
	})
	t.Run("somebody else names it now", func(t *testing.T) {
		r := adopted(t)
		r.Listed = nil
		l := r.Ledger()
		l.Get("id-of-nobody").NodeName = "late"
		r.Annotate(l.String())
		r.Node("late", guardrig.HourAgo)
		r.Lists("late", true, true)
		l.Get("id-of-nobody").NodeUID = "uid-of-late"
		r.Annotate(l.String())
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "node late")
		r.Refused(r.UnpublishFrom("id-of-nobody"), codes.FailedPrecondition, "node late")
		if e := r.Ledger().Get("id-of-nobody"); e.From != "" {
			t.Errorf("a node that uses it is still %+v", e)
		}
	})
}

// Where the ledger begins with a takeover, the node that waits is written down
// too: its VolumeAttachment may have been published while nobody kept a ledger.
func TestAnAdoptedNodeThatWaitsIsPublishedToInTheEnd(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("idle", guardrig.HourAgo)
	r.Node("next", guardrig.Now)
	r.Listed = []string{"id-idle"}
	r.Attachment("next", time.Time{})
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-idle", "publish id-next")
	e := r.Ledger().Get(guardrig.ID("next"))
	if e.State != fence.Publishing || e.From != "" || e.ReadySince != guardrig.Now.UTC().Format(time.RFC3339) {
		t.Errorf("the ledger says %+v", e)
	}
	if e := r.Ledger().Get(guardrig.ID("idle")); e.State != fence.TakenOver || e.Unproven {
		t.Errorf("the ledger says %+v", e)
	}
}

func TestAMachineReplacedUnderItsNodeIsAnotherHolderBeforeItsDriverHasRegistered(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	r.Attachment("n", time.Time{})
	r.Must(r.PublishTo("n"))
	r.Attachment("n", guardrig.Now)
	r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "n", metav1.DeleteOptions{}))

	r.Status("n", func(s *corev1.NodeStatus) {
		s.NodeInfo.BootID, s.NodeInfo.SystemUUID = "boot-of-another", "system-another"
	})
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "node n", "another machine has that name now")
	r.Refused(r.UnpublishFrom(guardrig.ID("n")), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	r.Called("publish id-n")

	// An empty one proves nothing: it is a reboot. A boot is the machine's own.
	for _, info := range []corev1.NodeSystemInfo{{BootID: "boot-again"}, {BootID: "boot-again", SystemUUID: "SYSTEM-N"}, {BootID: "boot-of-n", SystemUUID: "system-other"}} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("n", guardrig.HourAgo)
		r.Attachment("n", time.Time{})
		r.Must(r.PublishTo("n"))
		r.Attachment("n", guardrig.Now)
		r.Status("n", func(s *corev1.NodeStatus) { s.NodeInfo = info })
		r.Must(r.UnpublishFrom(guardrig.ID("n")))
		r.Called("publish id-n", "unpublish id-n")
	}
}

func TestAGarbledLedgerIsRefusedWithTheCommandThatMendsIt(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Annotate(`{"version":1`)
	for _, err := range []error{r.PublishTo("n"), r.UnpublishFrom(guardrig.ID("n"))} {
		r.Refused(err, codes.FailedPrecondition, "["+string(fence.LedgerUnreadable)+"]", "kubectl annotate pv pv-1 csi-fencepost.io/holders-")
	}
	r.Called()
}
