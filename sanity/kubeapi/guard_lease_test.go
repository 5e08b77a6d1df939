package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// leaseStamped has the API server say of every owner of a Lease's fields that he changed them at that time. It
// takes that only with another change: a label.
func leaseStamped(ctx context.Context, by kubernetes.Interface, node string, at time.Time) error {
	leases := by.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	owners, then := lease.ManagedFields, metav1.NewTime(at)
	for i := range owners {
		owners[i].Time = &then
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": owners, "labels": map[string]string{"forged": lease.ResourceVersion}}})
	if err == nil {
		_, err = leases.Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "forger"})
	}
	return err
}

// leaseWritten changes a Lease, and nothing of its spec.
func leaseWritten(ctx context.Context, by kubernetes.Interface, node string) error {
	_, err := by.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"written":"at%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{FieldManager: "forger"})
	return err
}

// unheard is what the node controller writes of a node of which it hears nothing: the kubelet's heartbeat stays.
func (n *node) unheard() {
	n.r.t.Helper()
	now, err := n.r.Client.CoreV1().Nodes().Get(n.r.ctx(), n.name, metav1.GetOptions{})
	n.r.must(err)
	c := *fence.ReadyCondition(now)
	c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", metav1.Now()
	n.r.must(conditionAs(n.r.ctx(), n.r.Client, "kube-controller-manager", n.name, c))
}

// An out-of-service taint that was on before the node was last heard proves nothing. Who writes the node's Lease
// hides that it was renewed since, and so has such a taint believed of a silent node, with the policies as without
// them: one that no sidecar has seen from before. Of a node that renews its lease, or whose kubelet wrote its
// status later, or of which a sidecar has seen the taint put on, he has nothing believed.
func TestWhoeverForgesALeasesStampsHasAnEarlierTaintBelievedOfASilentNodeOnly(t *testing.T) {
	for name, on := range map[string]*server{"lease-stamps": common, "lease-stamps-policed": policed} {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, on, name, bed.StageOptions{})
			forger := r.Client
			if on == policed {
				r.writer("csi-fencepost-writer-of-")
				forger = stranger
			}
			leases := forger.CoordinationV1().Leases(corev1.NamespaceNodeLease)
			before := r.start("fp")
			r.proxy = r.dial("fp")
			target, all := r.node("target"), map[string]*usedBy{}
			for _, what := range []string{"forged", "deleted", "forgotten", "not", "renews", "heard", "watched"} {
				all[what] = r.used(what, target)
			}
			all["watched"].holder.taint()
			r.bound(all["watched"].holder, true)
			before.Stop(5 * time.Second)

			tainted := time.Now()
			for what, u := range all {
				if what != "watched" {
					u.holder.taint()
				}
			}
			time.Sleep(1100 * time.Millisecond) // the API server stamps to the second
			for what, u := range all {
				u.holder.renew() // of which the stamp is later than the taint's
				if what == "heard" {
					u.holder.status(nothingButAHeartbeat)
				}
				u.holder.unheard()
			}
			for _, what := range []string{"forged", "renews", "heard", "watched"} {
				allowed(t, what+": the stamps of a Lease are forged", leaseStamped(r.ctx(), forger, all[what].holder.name, tainted.Add(-time.Minute)))
				lease, err := leases.Get(r.ctx(), all[what].holder.name, metav1.GetOptions{})
				r.must(err)
				if at := evidence.RenewedAt(lease); !at.Before(tainted) {
					t.Fatalf("%s: the API server says that it was renewed at %s, so that nothing is shown", what, at)
				}
			}
			_, err := leases.Patch(r.ctx(), all["forgotten"].holder.name, types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{})
			allowed(t, "the owners of a Lease are forgotten", err)
			allowed(t, "a Lease is deleted", leases.Delete(r.ctx(), all["deleted"].holder.name, metav1.DeleteOptions{}))
			r.keepsRenewing(all["renews"].holder)

			r.start("fp")
			for _, what := range []string{"forged", "deleted"} {
				u := all[what]
				r.WaitFor(40*time.Second, what+": the earlier taint is believed", func() bool { return r.publish(u.Handle, target) == nil })
				r.wantCalls(u.Handle, "publish "+u.holder.id, "unpublish "+u.holder.id, "publish "+target.id)
			}
			for _, what := range []string{"not", "forgotten"} {
				r.wantRefused(r.publish(all[what].Handle, target), fence.EvidenceVoid, all[what].holder.name, "before the node was last heard")
			}
			r.Never(suspectAfter/2, "an earlier taint is believed", func() bool {
				allowed(t, "the stamps are forged again", leaseStamped(r.ctx(), forger, all["renews"].holder.name, tainted.Add(-time.Minute)))
				for _, what := range []string{"not", "forgotten", "renews", "heard", "watched"} {
					r.wantKept(what, all[what])
				}
				return t.Failed()
			})
		})
	}
}

// That a kubelet let a volume go before the controller took it off is believed where it can have written its
// status all the time, of which its Lease tells. Who writes Leases has that believed of one that cannot: by
// any change of its Lease, or by when the API server heard it last. What the Node lists, and the order in which
// it was written, he does not change by that.
func TestWhoeverWritesNodeLeasesHasItBelievedThatAKubeletCouldWriteItsStatus(t *testing.T) {
	const renews, written, stamped = "renews", "written", "stamped"
	lists := func(inUse, attached bool) func(*node, *bed.Volume) {
		return func(n *node, v *bed.Volume) { n.lists(v, inUse, attached) }
	}
	kept, free, taken := lists(false, true), lists(false, false), lists(true, false)
	type story struct {
		name     string
		lease    []string
		then     []func(*node, *bed.Volume)
		early    bool // the first of them is written while the lease is watched for less than SyncTime
		refused  fence.Reason
		believed bool
		v        *bed.Volume
		n        *node
	}
	stories := []*story{
		{name: "nobody", then: []func(*node, *bed.Volume){kept, free}, refused: fence.HolderStale},
		{name: "written", lease: []string{written}, then: []func(*node, *bed.Volume){kept, free}, believed: true},
		{name: "not-for-long", lease: []string{renews}, early: true, then: []func(*node, *bed.Volume){kept, free}, refused: fence.HolderContested},
		{name: "stamped", lease: []string{renews, stamped}, early: true, then: []func(*node, *bed.Volume){kept, free}, believed: true},
		{name: "order", lease: []string{written, stamped}, then: []func(*node, *bed.Volume){taken, free}, refused: fence.HolderContested},
		{name: "uses", lease: []string{written, stamped}, then: []func(*node, *bed.Volume){taken}, refused: fence.HolderAlive},
	}
	r := newRig(t, "lease-order", bed.StageOptions{})
	for _, s := range stories {
		s.v, s.n = r.volume(s.name), r.node(s.name)
		s.n.renew()
		r.attach(s.v, s.n)
	}
	began, first := time.Now(), observe.SyncTime+3*time.Second
	for long := observe.SyncTime + observe.SteadyGap + 5*time.Second; time.Since(began) < long; time.Sleep(5 * time.Second) {
		for _, s := range stories {
			switch {
			case slices.Contains(s.lease, renews):
				s.n.renew()
			case slices.Contains(s.lease, written):
				r.must(leaseWritten(r.ctx(), r.Client, s.n.name))
			}
			if s.early && time.Since(began) > first {
				s.early = false
				s.then[0](s.n, s.v)
				s.then = s.then[1:]
			}
		}
	}
	for _, s := range stories {
		if slices.Contains(s.lease, renews) {
			s.n.renew() // the stories before this one may have taken as long as makes it silent
		}
		for _, step := range s.then {
			step(s.n, s.v)
		}
		if slices.Contains(s.lease, stamped) {
			r.must(leaseStamped(r.ctx(), r.Client, s.n.name, began))
		}
		r.deleting(s.v, s.n)
		s.n.ready(corev1.ConditionFalse)
		s.n.ready(corev1.ConditionTrue) // it may have restarted
		r.settle()
		err := r.unpublish(s.v.Handle, s.n)
		switch {
		case !s.believed:
			r.wantRefused(err, s.refused, s.n.name)
			r.wantCalls(s.v.Handle, "publish "+s.n.id)
		case err != nil:
			t.Errorf("%s: %v", s.name, err)
		default:
			r.wantCalls(s.v.Handle, "publish "+s.n.id, "unpublish "+s.n.id)
		}
	}
}
