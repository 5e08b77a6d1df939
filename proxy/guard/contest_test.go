package guard_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// contested is a volume on node a, which lives, is tainted, and whose kubelet has
// forgotten it; its unpublish was refused. Node b waits.
func contested(t *testing.T) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	since := time.Now().Add(-time.Hour)
	r.Node("a", since)
	r.Node("b", since)
	r.Attachment("a", time.Time{})
	r.Must(r.PublishTo("a"))
	r.Taint("a")
	r.Attachment("a", time.Now())
	r.Attachment("b", time.Time{})
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	return r
}

func TestARebootEndsAContestThoughTheTaintStaysOn(t *testing.T) {
	t.Run("the publish elsewhere comes first", func(t *testing.T) {
		r := contested(t)
		r.Reboot("a", "boot-2")
		r.Must(r.PublishTo("b"))
	})
	t.Run("the unpublish comes first", func(t *testing.T) {
		r := contested(t)
		r.Reboot("a", "boot-2")
		r.Must(r.UnpublishFrom(guardrig.ID("a")))
		r.Stripped("a")
		r.Must(r.PublishTo("b"))
	})
	t.Run("the driver fails at first, and the node is scaled down", func(t *testing.T) {
		r := contested(t)
		r.Reboot("a", "boot-2")
		r.UnpublishErr = guardrig.ErrThrottled
		r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.UnpublishFailed)+"]")
		r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
		r.Lives["a"] = fence.Unknown
		r.UnpublishErr = nil
		r.Must(r.PublishTo("b"))
	})
}

func TestAContestIsWrittenDownWhereThereIsNoLedgerYet(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("a", guardrig.HourAgo)
	r.Taint("a")
	r.Deleting("a")
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	if e := r.Ledger().Get(guardrig.ID("a")); e.State != fence.Held || e.Token == "" || e.Contest == nil || e.Contest.BootID != "boot-of-a" {
		t.Errorf("the ledger says %+v", e)
	}
}

// It was seen to list the volume, and to let go of it, in one run of its kubelet.
func TestATaintThatIsTakenOffAgainLeavesWhatTheKubeletHasShown(t *testing.T) {
	r := guardrig.Held(t)
	r.Attachment("old", guardrig.Now)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Taint("old")
	r.Lists("old", false, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.ChangeNode("old", func(n *corev1.Node) { n.Spec.Taints = nil })
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.Internal, "throttled")
	// The word outlives the Node.
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Lives["old"], r.UnpublishErr = fence.Unknown, nil
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
}

// A pod that comes back after the reboot mounts the volume again without a
// publish; then its kubelet restarts in its turn, and forgets it.
func TestAContestOfAnEarlierBootDoesNotHideOneOfThisBoot(t *testing.T) {
	r := contested(t)
	r.Reboot("a", "boot-2")
	r.Lists("a", true, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Lists("a", false, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
}

// TestAContestStaysWhenItsNodeIsDeleted: with the boot that it is about, which is not the one of
// the publish, also where what the Node was is read.
func TestAContestStaysWhenItsNodeIsDeleted(t *testing.T) {
	r := contested(t)
	r.Reboot("a", "boot-2")
	r.Lists("a", true, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	r.Lives["a"] = fence.Unknown
	for range 2 {
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
		if c := r.Ledger().Get(guardrig.ID("a")).Contest; c == nil || c.BootID != "boot-2" {
			t.Errorf("it is contested in boot %+v, want boot-2", c)
		}
	}
}

// Nor does a release of this boot, of which the driver's unpublish failed, once another
// VolumeAttachment is there.
func TestAReleaseDoesNotHideAContestOfAfterIt(t *testing.T) {
	r := contested(t)
	r.Reboot("a", "boot-2")
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.Internal, "throttled")
	r.UnpublishErr = nil
	r.MadeAnew("a")
	r.Lists("a", true, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	if r.State("a") != fence.Held {
		t.Errorf("the ledger says %s", r.Ledger())
	}
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	r.Lives["a"] = fence.Unknown
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
}

// A contest is of the boot in which the volume may still be mounted. A publish to
// that very node, asked for because a person made its VolumeAttachment anew, does
// not end it, rebooted since the first publish or not.
func TestAPublishToTheSameNodeDoesNotEndAContest(t *testing.T) {
	for _, rebooted := range []bool{false, true} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("n", guardrig.HourAgo)
		r.Node("next", guardrig.HourAgo)
		r.Attachment("n", time.Time{})
		r.Must(r.PublishTo("n"))
		if rebooted {
			r.Reboot("n", "boot-2") // in place: the pod comes back by itself, nobody publishes
		}
		ready := func(st corev1.ConditionStatus, at time.Time) {
			r.Status("n", func(s *corev1.NodeStatus) {
				s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: st, LastTransitionTime: metav1.NewTime(at)}}
			})
		}
		r.Lists("n", true, false)
		r.Lives["n"] = fence.Stale
		ready(corev1.ConditionUnknown, guardrig.Now)
		r.Attachment("n", guardrig.Now) // detached by force
		r.Refused(r.UnpublishFrom(guardrig.ID("n")), codes.FailedPrecondition)
		r.Lives["n"] = fence.Alive
		ready(corev1.ConditionTrue, guardrig.Now.Add(time.Minute))
		r.Lists("n", false, false) // its kubelet has forgotten
		r.Refused(r.UnpublishFrom(guardrig.ID("n")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
		r.Stripped("n")
		r.Attachment("n", time.Time{})
		r.Must(r.PublishTo("n"))
		r.Attachment("n", guardrig.Now)
		if r.UnpublishFrom(guardrig.ID("n")) == nil {
			t.Errorf("rebooted %v: unpublished, though an earlier pod may have it mounted", rebooted)
		}
		if r.PublishTo("next") == nil {
			t.Errorf("rebooted %v: published elsewhere", rebooted)
		}
	}
}
