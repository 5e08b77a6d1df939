package kubeapi

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// wrote has the Node say that all that it says was written so long ago. The API server
// takes no other stamps alone for a change.
func (n *node) wrote(ago time.Duration) {
	n.r.t.Helper()
	node, err := n.r.Client.CoreV1().Nodes().Get(n.r.ctx(), n.name, metav1.GetOptions{})
	n.r.must(err)
	for i := range node.ManagedFields {
		f := &node.ManagedFields[i]
		f.Time = &metav1.Time{Time: time.Now().Add(-ago)}
		f.Manager += "-then"
	}
	_, err = n.r.Client.CoreV1().Nodes().Update(n.r.ctx(), node, metav1.UpdateOptions{})
	n.r.must(err)
	time.Sleep(1100 * time.Millisecond) // a heartbeat of the same second would be the one of then
}

func TestAKubeletIsBelievedIfItLetGoBeforeTheControllerTookTheVolumeOff(t *testing.T) {
	const inUse, attached = true, true
	lists := func(inUse, attached bool) func(*node, *bed.Volume) {
		return func(n *node, v *bed.Volume) { n.lists(v, inUse, attached) }
	}
	turns := func(n *node, _ *bed.Volume) { n.ready(corev1.ConditionFalse); n.ready(corev1.ConditionTrue) }
	both, free, kept, taken := lists(inUse, attached), lists(!inUse, !attached), lists(!inUse, attached), lists(inUse, !attached)
	for name, tt := range map[string]struct {
		stage    string
		since    time.Duration // the volume is in use and attached
		then     []func(*node, *bed.Volume)
		believed bool
	}{
		"it let go as it became Ready":            {"order-turn", 2 * time.Minute, []func(*node, *bed.Volume){turns, kept, free}, true},
		"and became Ready after that":             {"order-later", 2 * time.Minute, []func(*node, *bed.Volume){kept, free, turns}, true},
		"it had the volume for a minute":          {"order-short", time.Minute, []func(*node, *bed.Volume){turns, kept, free}, false},
		"it was taken off while in use":           {"order-taken", 2 * time.Minute, []func(*node, *bed.Volume){taken, turns, free}, false},
		"it was, and was put back on":             {"order-again", 2 * time.Minute, []func(*node, *bed.Volume){taken, both, turns, kept, free}, false},
		"it was, and the kubelet lists it so too": {"order-used", 2 * time.Minute, []func(*node, *bed.Volume){turns, kept, taken, free}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.stage, bed.StageOptions{})
			v, n := r.volume("v"), r.node("n")
			r.attach(v, n)
			n.wrote(tt.since)
			for _, step := range tt.then {
				step(n, v)
			}
			r.deleting(v, n)
			r.settle()
			err := r.unpublish(v.Handle, n)
			if !tt.believed {
				r.wantRefused(err, fence.HolderContested, n.name)
				return
			}
			r.must(err)
			r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id)
		})
	}
}
