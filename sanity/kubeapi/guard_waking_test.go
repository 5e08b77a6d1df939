package kubeapi

import (
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// wokenWithin is "at once", on a machine that runs other tests beside, where a call by
// itself takes most of a second. What no event wakes is seen after 15 s only.
const wokenWithin = 8 * time.Second

// wakes refuses a publish of v to target for that reason, and checks that
// nothing wakes it by itself. change is then to wake it at once.
func (r *rig) wakes(v *bed.Volume, target *node, reason fence.Reason, change func()) {
	r.t.Helper()
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), reason)
	touches := r.followTouches(v, target)
	r.Never(1500*time.Millisecond, "it was woken although nothing had changed", func() bool { return touches.count() > 0 })
	change()
	took := r.WaitFor(wokenWithin, "the waiting VolumeAttachment is touched", func() bool { return touches.count() > 0 })
	r.t.Logf("touched after %s", took.Round(time.Millisecond))
	r.must(r.publish(v.Handle, target))
	time.Sleep(time.Second) // a second event may have woken it while its call was under way
	done := touches.count()
	r.Never(2*time.Second, "it is woken after its call went through", func() bool { return touches.count() > done })
}

func TestWhatUnblocksAPublishWakesItsAttachmentAtOnce(t *testing.T) {
	r := newRig(t, "wake", bed.StageOptions{})
	run := func(name string, f func(r *rig, v *bed.Volume, target *node)) {
		t.Run(name, func(t *testing.T) {
			parts.take(t)
			r := r.in(t)
			f(r, r.volume(name), r.node(name+"-target"))
		})
	}
	run("dropped", func(r *rig, v *bed.Volume, target *node) {
		old := r.node("dropped-old")
		old.lists(v, true, true)
		r.wakes(v, target, fence.HolderAlive, func() { old.lists(v, false, false) })
	})
	run("deleting", func(r *rig, v *bed.Volume, target *node) {
		old := r.node("deleting-old")
		r.attachment(v, old)
		r.attached(v, old)
		r.wakes(v, target, fence.HolderWanted, func() { r.deleting(v, old) })
	})
	run("taint", func(r *rig, v *bed.Volume, target *node) {
		old := r.deadHolder(v, "taint-old", false)
		r.wakes(v, target, fence.HolderUnknown, old.taint)
	})
	run("confirmed", func(r *rig, v *bed.Volume, target *node) {
		old := r.deadHolder(v, "confirmed-old", false)
		r.wakes(v, target, fence.HolderUnknown, old.confirm)
	})
	run("mended", func(r *rig, v *bed.Volume, target *node) {
		v.SetLedger("{")
		r.wakes(v, target, fence.LedgerUnreadable, func() { r.ledgerOf(v) })
	})
	run("wiped", func(r *rig, v *bed.Volume, target *node) {
		v.SetLedger("{")
		r.wakes(v, target, fence.LedgerUnreadable, func() { v.SetLedger("") })
	})
}

func TestWhatUnblocksAnUnpublishWakesItsAttachmentAtOnce(t *testing.T) {
	r := newRig(t, "wake-unpublish", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attach(v, n)
	n.fallSilent()
	n.lists(v, true, false)
	r.deleting(v, n)
	r.settle()
	r.wantRefused(r.unpublish(v.Handle, n), fence.HolderUnknown, n.name)
	touches := r.followTouches(v, n)
	r.Never(1500*time.Millisecond, "it was woken although nothing had changed", func() bool { return touches.count() > 0 })
	n.confirm()
	r.WaitFor(wokenWithin, "the waiting VolumeAttachment is touched", func() bool { return touches.count() > 0 })
	r.must(r.unpublish(v.Handle, n))
}

func TestALeaseThatTurnsStaleWakesWhereUnpublishRevokesAccess(t *testing.T) {
	r := newRig(t, "wake-stale", bed.StageOptions{Config: "driver: {unpublishRevokesAccess: true}"})
	v, old, target := r.volume("v"), r.node("old"), r.node("target")
	old.renew()
	r.attach(v, old)
	old.renew()
	last := time.Now()
	old.fallSilent()
	old.lists(v, true, false)
	r.deleting(v, old)
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderAlive, old.name)
	touches := r.followTouches(v, target)
	r.WaitFor(suspectAfter+wokenWithin, "the waiting VolumeAttachment is touched", func() bool { return touches.count() > 0 })
	if waited := time.Since(last); waited < suspectAfter {
		t.Errorf("woken %s after the last renewal, before suspectAfter", waited)
	}
	r.must(r.publish(v.Handle, target))
	r.wantCalls(v.Handle, "publish "+old.id, "unpublish "+old.id, "publish "+target.id)
}

func TestAFailingUnpublishIsTriedAgainAtMostAsDocumented(t *testing.T) {
	r := newRig(t, "wake-failing", bed.StageOptions{})
	v, target := r.volume("v"), r.node("target")
	r.deadHolder(v, "old", true)
	broken := r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Fail, Code: codes.Internal, Message: "cannot reach the VM"})
	r.attachment(v, target)
	r.settle()
	touches := r.followTouches(v, target)
	// Each carries the time of the process that wrote it: what is slow here adds to none
	// of the pauses between them. The attacher calls again at each.
	last, seen := time.Now(), 0
	touched := func() (waited time.Duration) {
		r.wantRefused(r.publish(v.Handle, target), fence.UnpublishFailed)
		r.WaitFor(10*time.Second+wokenWithin, "it is tried again", func() bool { return touches.count() > seen })
		at, err := time.Parse(time.RFC3339Nano, touches.changes()[seen])
		r.must(err)
		waited, last, seen = at.Sub(last), at, seen+1
		return waited
	}
	for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		waited := touched()
		if i == 0 && waited < pause {
			// No retry: the first call wrote into the ledger that it begins, and where the watch
			// shows that after the refusal it wakes who waits, once.
			waited = touched()
		}
		if waited < pause {
			t.Errorf("retry %d came %s after what was before it, want a pause of %s", i+1, waited, pause)
		}
	}
	r.wantRefused(r.publish(v.Handle, target), fence.UnpublishFailed)
	seen = touches.count()
	broken.Clear()
	r.WaitFor(10*time.Second+wokenWithin, "one more retry", func() bool { return touches.count() > seen })
	r.must(r.publish(v.Handle, target))
}

func TestARefusalThatStandsIsNotRetriedByUs(t *testing.T) {
	r := newRig(t, "wake-steady", bed.StageOptions{})
	target := r.node("target")
	alive, silent, wanted := r.volume("alive"), r.volume("silent"), r.volume("wanted")
	user := r.node("user")
	user.renew()
	r.settle()
	user.renew()
	user.lists(alive, true, true)
	r.deadHolder(silent, "dead", false)
	keeper := r.node("keeper")
	r.attachment(wanted, keeper)
	r.attached(wanted, keeper)
	var touches []*history
	for _, v := range []*bed.Volume{alive, silent, wanted} {
		r.attachment(v, target)
		r.settle()
		r.wantError(r.publish(v.Handle, target), codes.FailedPrecondition)
		touches = append(touches, r.followTouches(v, target))
	}
	// Life goes on around it: heartbeats, leases, the attacher's retries.
	for range 10 {
		user.renew()
		user.status(nothingButAHeartbeat)
		r.wantError(r.publish(alive.Handle, target), codes.FailedPrecondition)
		time.Sleep(time.Second)
	}
	for i, h := range touches {
		if n := h.count(); n > 0 {
			t.Errorf("refusal %d was retried %d times in 10 s", i, n)
		}
	}
}

func TestAfterARestartTheWaitingAttachmentsAreFoundAgain(t *testing.T) {
	r := newRigWithout(t, "wake-restart", bed.StageOptions{})
	p := r.start("fp")
	r.proxy = r.dial("fp")
	v, target := r.volume("v"), r.node("target")
	old := r.deadHolder(v, "old", false)
	r.attachment(v, target)
	r.settle()
	text := r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown)
	r.attachError(v, target, text)
	r.settle()
	r.restart(p)
	touches := r.followTouches(v, target)
	// A new process does not know why it refused: it has the attacher ask once.
	r.WaitFor(wokenWithin, "it is found again", func() bool { return touches.count() > 0 })
	r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown)
	found := touches.count()
	r.Never(3*time.Second, "it is woken again although nothing has changed", func() bool { return touches.count() > found })
	old.confirm()
	r.WaitFor(wokenWithin, "the waiting VolumeAttachment is touched", func() bool { return touches.count() > found })
	r.must(r.publish(v.Handle, target))
}

// restart kills the process and waits until it serves again.
func (r *rig) restart(p *controlplane.Process) {
	r.t.Helper()
	r.must(p.Kill())
	r.WaitFor(20*time.Second, "csi-fencepost serves again", func() bool { return p.Restarts() > 0 && r.serves() })
}

func (r *rig) serves() bool {
	_, err := r.proxy.ControllerGetCapabilities(r.ctx(), &spec.ControllerGetCapabilitiesRequest{})
	return err == nil
}
