package kubeapi

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
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

func TestAKubeletIsBelievedIfItLetGoBeforeTheControllerTookTheVolumeOff(t *testing.T) {
	const inUse, attached = true, true
	lists := func(inUse, attached bool) func(*node, *bed.Volume) {
		return func(n *node, v *bed.Volume) { n.lists(v, inUse, attached) }
	}
	turns := func(n *node, _ *bed.Volume) { n.ready(corev1.ConditionFalse); n.ready(corev1.ConditionTrue) }
	both, free, kept, taken := lists(inUse, attached), lists(!inUse, !attached), lists(!inUse, attached), lists(inUse, !attached)
	type story struct {
		name     string
		late     bool // it was attached a minute ago; else before its lease was watched for long enough
		then     []func(*node, *bed.Volume)
		believed bool
		v        *bed.Volume
		n        *node
	}
	stories := []*story{
		{name: "turned", then: []func(*node, *bed.Volume){turns, kept, free}, believed: true},
		{name: "turned-later", then: []func(*node, *bed.Volume){kept, free, turns}, believed: true},
		{name: "new", late: true, then: []func(*node, *bed.Volume){turns, kept, free}},
		{name: "forced", then: []func(*node, *bed.Volume){taken, turns, free}},
		{name: "put-back", then: []func(*node, *bed.Volume){taken, both, turns, kept, free}},
		{name: "used-again", then: []func(*node, *bed.Volume){turns, kept, taken, free}},
	}
	r := newRig(t, "order", bed.StageOptions{})
	for _, s := range stories {
		s.v, s.n = r.volume(s.name), r.node(s.name)
		if !s.late {
			r.attach(s.v, s.n)
		}
	}
	long := observe.SyncTime + observe.SteadyGap + 5*time.Second
	for began := time.Now(); time.Since(began) < long; time.Sleep(5 * time.Second) {
		for _, s := range stories {
			s.n.renew()
			if s.late && time.Since(began) > long-time.Minute {
				s.late = false
				r.attach(s.v, s.n)
			}
		}
	}
	for _, s := range stories {
		s.n.renew()
		for _, step := range s.then {
			step(s.n, s.v)
		}
		r.deleting(s.v, s.n)
		// So that the holder is in doubt, however long the machine took for these steps: two
		// seconds between the kubelet's turn and the deletion would be enough to believe it.
		turns(s.n, s.v)
		r.settle()
		err := r.unpublish(s.v.Handle, s.n)
		switch {
		case !s.believed:
			r.wantRefused(err, fence.HolderContested, s.n.name)
		case err != nil:
			t.Errorf("%s: %v", s.name, err)
		default:
			r.wantCalls(s.v.Handle, "publish "+s.n.id, "unpublish "+s.n.id)
		}
	}
}
