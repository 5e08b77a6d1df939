package guard

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// contested is a volume on node a, which lives, is tainted, and whose kubelet has
// forgotten it; its unpublish was refused. Node b waits.
func contested(t *testing.T) *rig {
	r := newRig(t, fence.Policy{})
	since := time.Now().Add(-time.Hour)
	r.node("a", since)
	r.node("b", since)
	r.attachment("a", time.Time{})
	r.must(r.publish("a"))
	r.taint("a")
	r.attachment("a", time.Now())
	r.attachment("b", time.Time{})
	r.refused(r.unpublish(id("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.refused(r.publish("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	return r
}

func TestARebootEndsAContestThoughTheTaintStaysOn(t *testing.T) {
	t.Run("the publish elsewhere comes first", func(t *testing.T) {
		r := contested(t)
		r.reboot("a", "boot-2")
		r.must(r.publish("b"))
	})
	t.Run("the unpublish comes first", func(t *testing.T) {
		r := contested(t)
		r.reboot("a", "boot-2")
		r.must(r.unpublish(id("a")))
		r.stripped("a")
		r.must(r.publish("b"))
	})
	t.Run("the driver fails at first, and the node is scaled down", func(t *testing.T) {
		r := contested(t)
		r.reboot("a", "boot-2")
		r.unpublishErr = errThrottled
		r.refused(r.publish("b"), codes.FailedPrecondition, "["+string(fence.UnpublishFailed)+"]")
		r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
		r.lives["a"] = fence.Unknown
		r.unpublishErr = nil
		r.must(r.publish("b"))
	})
}

func TestAContestIsWrittenDownWhereThereIsNoLedgerYet(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("a", hourAgo)
	r.taint("a")
	r.deleting("a")
	r.refused(r.unpublish(id("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	if e := r.ledger().Get(id("a")); e.State != fence.Held || e.Token == "" || e.Contest == nil || e.Contest.BootID != "boot-of-a" {
		t.Errorf("the ledger says %+v", e)
	}
}

// It was seen to list the volume, and to let go of it, in one run of its kubelet.
func TestATaintThatIsTakenOffAgainLeavesWhatTheKubeletHasShown(t *testing.T) {
	r := held(t)
	r.attachment("old", now)
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.taint("old")
	r.lists("old", false, false)
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.changeNode("old", func(n *corev1.Node) { n.Spec.Taints = nil })
	r.unpublishErr = errThrottled
	r.refused(r.unpublish(id("old")), codes.Internal, "throttled")
	// The word outlives the Node.
	r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.lives["old"], r.unpublishErr = fence.Unknown, nil
	r.must(r.unpublish(id("old")))
}

// A pod that comes back after the reboot mounts the volume again without a
// publish; then its kubelet restarts in its turn, and forgets it.
func TestAContestOfAnEarlierBootDoesNotHideOneOfThisBoot(t *testing.T) {
	r := contested(t)
	r.reboot("a", "boot-2")
	r.lists("a", true, false)
	r.refused(r.unpublish(id("a")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.lists("a", false, false)
	r.refused(r.unpublish(id("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.refused(r.publish("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
}

// Nor does a release of this boot, of which the driver's unpublish failed.
func TestAReleaseDoesNotHideAContestOfAfterIt(t *testing.T) {
	r := contested(t)
	r.reboot("a", "boot-2")
	r.unpublishErr = errThrottled
	r.refused(r.unpublish(id("a")), codes.Internal, "throttled")
	r.unpublishErr = nil
	r.lists("a", true, false)
	r.refused(r.unpublish(id("a")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	if r.state("a") != fence.Held {
		t.Errorf("the ledger says %s", r.ledger())
	}
	r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	r.lives["a"] = fence.Unknown
	r.refused(r.unpublish(id("a")), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
}

// A contest is of the boot in which the volume may still be mounted. A publish to
// that very node, asked for because a person made its VolumeAttachment anew, does
// not end it, rebooted since the first publish or not.
func TestAPublishToTheSameNodeDoesNotEndAContest(t *testing.T) {
	for _, rebooted := range []bool{false, true} {
		r := newRig(t, fence.Policy{})
		r.node("n", hourAgo)
		r.node("next", hourAgo)
		r.attachment("n", time.Time{})
		r.must(r.publish("n"))
		if rebooted {
			r.reboot("n", "boot-2") // in place: the pod comes back by itself, nobody publishes
		}
		ready := func(st corev1.ConditionStatus, at time.Time) {
			r.status("n", func(s *corev1.NodeStatus) {
				s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: st, LastTransitionTime: metav1.NewTime(at)}}
			})
		}
		r.lists("n", true, false)
		r.lives["n"] = fence.Stale
		ready(corev1.ConditionUnknown, now)
		r.attachment("n", now) // detached by force
		r.refused(r.unpublish(id("n")), codes.FailedPrecondition)
		r.lives["n"] = fence.Alive
		ready(corev1.ConditionTrue, now.Add(time.Minute))
		r.lists("n", false, false) // its kubelet has forgotten
		r.refused(r.unpublish(id("n")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
		r.stripped("n")
		r.attachment("n", time.Time{})
		r.must(r.publish("n"))
		r.attachment("n", now)
		if r.unpublish(id("n")) == nil {
			t.Errorf("rebooted %v: unpublished, though an earlier pod may have it mounted", rebooted)
		}
		if r.publish("next") == nil {
			t.Errorf("rebooted %v: published elsewhere", rebooted)
		}
	}
}
