package kubeapi

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

func nothingButAHeartbeat(*corev1.NodeStatus) {}

// bound waits until the node's taint is bound, or not.
func (r *rig) bound(n *node, want bool) record.TaintBinding {
	r.t.Helper()
	var b record.TaintBinding
	what := "the taint of " + n.name + " is bound in its record"
	if !want {
		what = "the record of " + n.name + " has forgotten its taint"
	}
	r.WaitFor(10*time.Second, what, func() bool {
		rec, err := r.records().Get(r.ctx(), n.name)
		r.must(err)
		if rec == nil {
			return !want
		}
		var there bool
		b, there = rec.Taints[corev1.TaintNodeOutOfService]
		return there == want
	})
	return b
}

func TestATaintIsBoundOnFirstSightAlthoughNobodyCalls(t *testing.T) {
	r := newRig(t, "bind", bed.StageOptions{})
	n := r.node("n")
	n.renew()
	r.settle()
	n.taint()
	b := r.bound(n, true)
	if b.NodeUID != n.uid || b.BootID != n.boot || b.LeaseRV != n.leaseRV() || b.Void != "" {
		t.Errorf("bound to %+v, want UID %s, boot %s, lease %s", b, n.uid, n.boot, n.leaseRV())
	}
	n.untaint()
	r.bound(n, false)
}

func TestATaintThatItsNodeOutlivedDoesNotCountUntilItIsPutOnAnew(t *testing.T) {
	r := newRig(t, "outlived", bed.StageOptions{})
	v, old, target := r.volume("v"), r.node("old"), r.node("target")
	old.renew()
	r.attach(v, old)
	old.taint()
	r.bound(old, true)
	old.renew() // it lives
	old.powerOff()
	old.lists(v, true, false)
	r.deleting(v, old)
	r.attachment(v, target)
	time.Sleep(suspectAfter + 500*time.Millisecond)
	r.wantRefused(r.publish(v.Handle, target), fence.EvidenceVoid, old.name, "renewed its lease")
	r.wantCalls(v.Handle, "publish "+old.id)
	if b := r.bound(old, true); b.Void == "" {
		t.Errorf("the binding is not void: %+v", b)
	}
	old.untaint()
	r.bound(old, false)
	r.wantRefused(r.publish(v.Handle, target), fence.HolderStale, old.name)
	old.taint()
	r.bound(old, true)
	r.settle()
	r.must(r.publish(v.Handle, target))
	r.wantCalls(v.Handle, "publish "+old.id, "unpublish "+old.id, "publish "+target.id)
}

func TestATaintOnANodeThatLivesAndUsesTheVolumeProvesNothing(t *testing.T) {
	r := newRig(t, "tainted-alive", bed.StageOptions{})
	v, old, target := r.volume("v"), r.node("old"), r.node("target")
	old.renew()
	r.attach(v, old)
	old.taint()
	r.bound(old, true)
	old.lists(v, true, false)
	r.deleting(v, old)
	r.attachment(v, target)
	old.renew()
	r.settle()
	r.wantRefused(r.unpublish(v.Handle, old), fence.HolderAlive, old.name)
	r.wantRefused(r.publish(v.Handle, target), fence.HolderAlive, old.name)
	r.wantCalls(v.Handle, "publish "+old.id)
}

func TestAConfirmationIsVoidOnceTheNodeRenewsItsLease(t *testing.T) {
	r := newRig(t, "confirmed-back", bed.StageOptions{})
	v, old, target := r.volume("v"), r.node("old"), r.node("target")
	old.renew()
	r.attach(v, old)
	old.fallSilent()
	old.lists(v, true, false)
	r.deleting(v, old)
	old.confirm()
	old.renew()
	r.attachment(v, target)
	r.settle()
	r.wantError(r.publish(v.Handle, target), codes.FailedPrecondition, old.name)
	time.Sleep(suspectAfter + 500*time.Millisecond)
	r.wantRefused(r.publish(v.Handle, target), fence.EvidenceVoid, old.name)
	r.wantCalls(v.Handle, "publish "+old.id)
}

func TestAGarbledRecordDoesNotCountAndStopsNobodyElse(t *testing.T) {
	r := newRig(t, "garbled-record", bed.StageOptions{})
	target := r.node("target")
	bad, good, idle := r.volume("bad"), r.volume("good"), r.volume("idle")
	badNode := r.deadHolder(bad, "bad", true)
	r.deadHolder(good, "good", true)
	_, err := r.Client.CoordinationV1().Leases("csi-fencepost").Patch(r.ctx(), record.LeaseName(badNode.name), types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+record.Annotation+`":"{\"version\":1,\"confirmed\":true"}}}`), metav1.PatchOptions{})
	r.must(err)
	for _, v := range []*bed.Volume{bad, good} {
		r.attachment(v, target)
	}
	r.settle()
	r.wantRefused(r.publish(bad.Handle, target), fence.EvidenceVoid, badNode.name, "record of node "+badNode.name)
	r.wantCalls(bad.Handle, "publish "+badNode.id)
	r.must(r.publish(good.Handle, target))

	// What its kubelet itself says counts all the same.
	r.attach(idle, target)
	r.letGo(idle, target)
	r.must(r.unpublish(idle.Handle, target))
}

func TestAReleaseByAnOperatorFreesOneVolumeOnly(t *testing.T) {
	r := newRig(t, "released-by-op", bed.StageOptions{})
	target, old := r.node("target"), r.node("old")
	one, other := r.volume("one"), r.volume("other")
	for _, v := range []*bed.Volume{one, other} {
		r.attach(v, old)
		old.lists(v, true, false)
		r.deleting(v, old)
		r.attachment(v, target)
	}
	old.fallSilent()
	old.lists(one, false, false)
	old.delete()
	r.settle()
	_, err := r.records().ReleaseVolume(r.ctx(), old.name, record.Release{Volume: one.Handle, Driver: r.Driver, NodeID: old.id, NodeUID: old.uid,
		Life: record.Gone, Token: r.readLedger(one).Get(old.id).Token, By: "ann", Reason: "checked"})
	r.must(err)
	r.settle()
	r.must(r.publish(one.Handle, target))
	r.wantRefused(r.publish(other.Handle, target), fence.HolderUnknown, old.name)
	r.wantAttached(other.Handle, old)
}
