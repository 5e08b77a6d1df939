package kubeapi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// bootAgain is a reboot under the same node.
func (n *node) bootAgain() {
	n.r.t.Helper()
	n.boot += "-again"
	n.ready(corev1.ConditionTrue)
	n.status(func(s *corev1.NodeStatus) { s.NodeInfo.BootID = n.boot; s.VolumesInUse = nil })
}

// refusedInUse has the unpublish refused because the volume is in use: the
// controller has taken it off volumesAttached, and the kubelet has it mounted.
func (r *rig) refusedInUse(v *bed.Volume, n *node) {
	r.t.Helper()
	r.attach(v, n)
	n.lists(v, true, false)
	r.deleting(v, n)
	r.settle()
	r.wantRefused(r.unpublish(v.Handle, n), fence.HolderAlive, n.name)
	if e := r.wantState(v, n, fence.Publishing); e.Contest == nil || e.Contest.BootID != n.boot {
		r.t.Fatalf("the ledger has %+v, want it contested under boot %s", e, n.boot)
	}
}

func TestAKubeletThatWasRefusedAndHasRestartedIsNotBelieved(t *testing.T) {
	r := newRig(t, "forgot", bed.StageOptions{})
	v, n, target := r.volume("v"), r.node("n"), r.node("target")
	r.refusedInUse(v, n)
	n.ready(corev1.ConditionTrue) // restarted: it has forgotten the mount
	n.lists(v, false, false)
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.unpublish(v.Handle, n), fence.HolderContested, n.name)
	r.wantRefused(r.publish(v.Handle, target), fence.HolderContested, n.name)
	r.wantCalls(v.Handle, "publish "+n.id)

	n.bootAgain() // which ends every container
	r.settle()
	r.must(r.publish(v.Handle, target))
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id, "publish "+target.id)
}

func TestAKubeletThatWasRefusedAndDropsTheVolumeWithoutARestartIsBelieved(t *testing.T) {
	r := newRig(t, "dropped", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.refusedInUse(v, n)
	n.lists(v, false, false)
	r.settle()
	r.must(r.unpublish(v.Handle, n))
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id)
}

func TestAKubeletThatBecameReadyAfterTheDetachBeganIsNotBelieved(t *testing.T) {
	r := newRig(t, "restarted", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attach(v, n)
	n.lists(v, true, false)
	r.deleting(v, n)
	n.ready(corev1.ConditionTrue)
	n.lists(v, false, false)
	r.settle()
	r.wantRefused(r.unpublish(v.Handle, n), fence.HolderContested, n.name)
	r.wantCalls(v.Handle, "publish "+n.id)
	n.bootAgain()
	r.settle()
	r.must(r.unpublish(v.Handle, n))
}
