package kubeapi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// deadHolder attaches v to a new machine whose power is then gone, and which is
// proven off if confirmed.
func (r *rig) deadHolder(v *bed.Volume, name string, confirmed bool) *node {
	r.t.Helper()
	n := r.node(name)
	r.attach(v, n)
	n.powerOff()
	n.lists(v, true, false)
	r.deleting(v, n)
	if confirmed {
		n.confirm()
	}
	return n
}

func TestATakeoverIsOneCallWithTheRequestsOwnSecrets(t *testing.T) {
	r := newRig(t, "takeover", bed.StageOptions{Secrets: map[string]string{secretKey: secretValue}})
	v, target := r.volume("v"), r.node("target")
	old := r.deadHolder(v, "old", false)
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, old.name)
	r.wantCalls(v.Handle, "publish "+old.id)

	old.confirm()
	r.must(r.publish(v.Handle, target))
	r.wantCalls(v.Handle, "publish "+old.id, "unpublish "+old.id, "publish "+target.id)
	for _, c := range r.Array.CallsOf(array.Unpublish, v.Handle) {
		if !c.Secrets || c.Code != codes.OK {
			t.Errorf("the unpublish went without secrets: %+v", c)
		}
	}
	r.wantAttached(v.Handle, target)
	r.wantState(v, old, fence.TakenOver)
	r.WaitEvent("PersistentVolume", v.Name, 5*time.Second, "VolumeTakenOver", old.name, target.name)
	r.WaitEvent("Node", old.name, 5*time.Second, "VolumeTakenOver", v.Name)

	t.Run("a late and a duplicate unpublish of the old node are answered without a call", func(t *testing.T) {
		r := r.in(t)
		for range 2 {
			r.must(r.unpublish(v.Handle, old))
		}
		r.wantCalls(v.Handle, "publish "+old.id, "unpublish "+old.id, "publish "+target.id)
		r.wantAttached(v.Handle, target)
	})
	t.Run("the attacher's comparison publishes to the old node again and is refused", func(t *testing.T) {
		r := r.in(t)
		r.wantRefused(r.publish(v.Handle, old), fence.TargetFenced, old.name)
		r.wantAttached(v.Handle, target)
	})
}

func TestAVolumeIsNotTakenFromASilentNodeWithoutProof(t *testing.T) {
	r := newRig(t, "no-proof", bed.StageOptions{})
	v, target := r.volume("v"), r.node("target")
	old := r.deadHolder(v, "old", false)
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, old.name)
	r.wantRefused(r.unpublish(v.Handle, old), fence.HolderUnknown, old.name)
	if e := r.readLedger(v).Get(old.id); e == nil || e.Contest == nil {
		t.Errorf("after the refused unpublish the ledger says %+v, want it contested", e)
	}
	r.wantCalls(v.Handle, "publish "+old.id)
}

func TestOfTwoHoldersBothAreUnpublishedBeforeThePublish(t *testing.T) {
	r := newRig(t, "two-holders", bed.StageOptions{})
	v, target := r.volume("v"), r.node("target")
	one := r.deadHolder(v, "one", true)
	two := r.node("two")
	r.ledgerOf(v, *r.readLedger(v).Get(one.id), two.entry(fence.Held))
	r.must(r.Array.Attach(v.Handle, two.id))
	two.powerOff()
	two.lists(v, true, false)
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, two.name)
	r.wantCalls(v.Handle, "publish "+one.id)
	two.confirm()

	// The second unpublish fails: nothing is published, and the retry goes on.
	broken := r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Node: two.id, Do: array.Fail, Code: codes.Internal, Message: "cannot reach the VM of two"})
	r.wantRefused(r.publish(v.Handle, target), fence.UnpublishFailed, two.name, "cannot reach the VM of two")
	if slices.Contains(r.calls(v.Handle), "publish "+target.id) {
		t.Fatal("it was published although one of two unpublishes failed")
	}
	r.wantState(v, one, fence.Leaving)
	r.wantState(v, two, fence.Leaving)
	broken.Clear()
	r.must(r.publish(v.Handle, target))
	r.wantAttached(v.Handle, target)
	r.wantState(v, one, fence.TakenOver)
	r.wantState(v, two, fence.TakenOver)
}

func TestNotFoundOfAFencedNodeCountsAndOfAReleasedOneDoesNot(t *testing.T) {
	r := newRig(t, "not-found", bed.StageOptions{})
	notFound := func(v *bed.Volume) {
		r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Fail, Code: codes.NotFound, Message: "no such instance"})
	}
	t.Run("takeover from a fenced node", func(t *testing.T) {
		r := r.in(t)
		v, target := r.volume("t"), r.node("t-target")
		old := r.deadHolder(v, "t-old", true)
		r.must(r.Array.RemoveMachine(old.id))
		notFound(v)
		r.attachment(v, target)
		r.settle()
		r.must(r.publish(v.Handle, target))
		r.wantState(v, old, fence.TakenOver)
	})
	t.Run("unpublish of a fenced node", func(t *testing.T) {
		r := r.in(t)
		v := r.volume("u")
		old := r.deadHolder(v, "u-old", true)
		notFound(v)
		r.must(r.unpublish(v.Handle, old))
		// Its Node goes on to say that it uses the volume, so it is remembered.
		r.wantState(v, old, fence.TakenOver)
	})
	t.Run("a released node", func(t *testing.T) {
		r := r.in(t)
		v, old, target := r.volume("r"), r.node("r-old"), r.node("r-target")
		r.attach(v, old)
		r.letGo(v, old)
		notFound(v)
		r.wantError(r.unpublish(v.Handle, old), codes.NotFound, "no such instance")
		r.wantState(v, old, fence.Released)
		r.attachment(v, target)
		r.settle()
		r.wantRefused(r.publish(v.Handle, target), fence.UnpublishFailed, old.name, "no such instance")
		r.wantState(v, old, fence.Released)
		if slices.Contains(r.calls(v.Handle), "publish "+target.id) {
			t.Fatal("it was published")
		}
	})
}

func TestAPublishToANodeThatIsLeavingWaits(t *testing.T) {
	r := newRig(t, "target-leaving", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attach(v, n)
	r.letGo(v, n)
	broken := r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Fail, Code: codes.Internal, Message: "throttled"})
	r.wantError(r.unpublish(v.Handle, n), codes.Internal, "throttled")
	r.gone(v, n)
	r.attachment(v, n) // made again, as after a person stripped it
	r.settle()
	for range 3 {
		r.wantError(r.publish(v.Handle, n), codes.Aborted, n.name, "["+string(fence.TargetLeaving)+"]")
	}
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id)
	broken.Clear()
}

func TestWhenTheDriverKnowsAHolderThatNobodyElseKnew(t *testing.T) {
	lists := bed.StageOptions{Array: func(s *array.Switches) { s.EnforceSingleAttach = true }}
	silent := bed.StageOptions{Array: func(s *array.Switches) {
		s.EnforceSingleAttach, s.ListPublishedNodes, s.GetVolume, s.ListVolumes = true, false, false, false
	}}
	for name, o := range map[string]bed.StageOptions{"listed": lists, "named": silent} {
		t.Run(name, func(t *testing.T) { driverKnowsMore(newRig(t, "fp-"+name, o)) })
	}
}

func driverKnowsMore(r *rig) {
	r.t.Run("one that is released is moved in the same call", func(t *testing.T) {
		r := r.in(t)
		v, old, target := r.volume("idle"), r.node("idle-old"), r.node("idle-target")
		r.ledgerOf(v)
		r.must(r.Array.Attach(v.Handle, old.id))
		r.attachment(v, target)
		r.settle()
		r.must(r.publish(v.Handle, target))
		r.wantCalls(v.Handle, "publish "+target.id, "unpublish "+old.id, "publish "+target.id)
		r.wantAttached(v.Handle, target)
	})
	r.t.Run("one that may write is refused by its name", func(t *testing.T) {
		r := r.in(t)
		v, old, target := r.volume("silent"), r.node("silent-old"), r.node("silent-target")
		r.ledgerOf(v)
		r.must(r.Array.Attach(v.Handle, old.id))
		r.must(r.Client.CoreV1().Nodes().Delete(r.ctx(), old.name, metav1.DeleteOptions{}))
		r.attachment(v, target)
		r.settle()
		r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, old.name)
		r.wantAttached(v.Handle, old)
	})
	r.t.Run("for another reason its own words come back", func(t *testing.T) {
		r := r.in(t)
		v, target := r.volume("other"), r.node("other-target")
		r.ledgerOf(v)
		r.Array.Inject(array.Fault{Method: array.Publish, Volume: v.Handle, Do: array.Fail, Code: codes.FailedPrecondition, Message: "the volume is being resized"})
		r.attachment(v, target)
		r.settle()
		if text := r.wantError(r.publish(v.Handle, target), codes.FailedPrecondition); text != "the volume is being resized" {
			t.Errorf("the driver's own words became %q", text)
		}
	})
}

// A process that dies anywhere in a takeover leaves nothing that the attacher's
// retry does not finish, and at no moment two nodes that could write.
func TestATakeoverGoesOnAfterACrashAtEachStep(t *testing.T) {
	r := newRigWithout(t, "crash", bed.StageOptions{})
	for _, step := range []string{"leaving", "unpublish", "record", "publish", "answer"} {
		for _, side := range []string{"before", "after"} {
			name := side + "-" + step
			t.Run(name, func(t *testing.T) {
				parts.take(t)
				r := r.in(t)
				v, target := r.volume(name), r.node(name+"-target")
				old := r.node(name + "-old")
				r.must(r.Array.Attach(v.Handle, old.id))
				r.ledgerOf(v, old.entry(fence.Held))
				old.powerOff()
				old.confirm()
				r.attachment(v, target)
				mark := filepath.Join(t.TempDir(), "crashed")
				p := r.start(name, "CSI_FENCEPOST_CRASH_AT="+side+":"+step, "CSI_FENCEPOST_CRASHED="+mark)
				client := r.dial(name)
				r.wantError(r.publishBy(client, v.Handle, target), codes.Unavailable)
				if _, err := os.Stat(mark); err != nil {
					t.Fatalf("it did not crash: %v", err)
				}
				r.WaitFor(20*time.Second, "the retry goes through", func() bool { return r.publishBy(client, v.Handle, target) == nil })
				if p.Restarts() == 0 {
					t.Error("it was not started again")
				}
				r.wantAttached(v.Handle, target)
				r.wantState(v, target, fence.Publishing)
				r.wantNeverBoth(v)
			})
		}
	}
}

// wantNeverBoth fails if at any moment the array had the volume attached to two
// nodes.
func (r *rig) wantNeverBoth(v *bed.Volume) {
	r.t.Helper()
	on := map[string]bool{}
	for _, e := range r.Array.Timeline() {
		switch {
		case e.Volume != v.Handle:
		case strings.HasPrefix(e.Text, "attached "):
			on[e.Node] = true
		case strings.HasPrefix(e.Text, "detached "):
			delete(on, e.Node)
		}
		if len(on) > 1 {
			r.t.Fatalf("two nodes had %s attached at once: %s", v.Handle, fmt.Sprint(on))
		}
	}
}
