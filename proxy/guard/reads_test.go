package guard

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// lease gives a node a lease of that version.
func (r *rig) lease(node, version string) {
	r.t.Helper()
	api := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_ = api.Delete(r.t.Context(), node, metav1.DeleteOptions{})
	_, err := api.Create(r.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: version}}, metav1.CreateOptions{})
	r.must(err)
}

// reads counts the requests for objects of that kind, and says what they were.
func (r *rig) reads(resource string) (names []string) {
	for _, a := range r.client.Actions() {
		if get, ok := a.(clienttesting.GetAction); ok && a.GetResource().Resource == resource && a.GetVerb() == "get" {
			names = append(names, get.GetName())
		}
	}
	return names
}

// dead is a volume on node old, which the watch knows to be silent.
func dead(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.node("next", hourAgo)
	r.lease("old", "7")
	r.lease("next", "9")
	r.attachment("old", time.Time{})
	r.attachment("old", now)
	r.lists("old", true, false)
	r.lives["old"], r.watched = fence.Stale, "7"
	r.change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: id("old"), NodeName: "old", NodeUID: "uid-of-old", BootID: "boot-of-old", State: fence.Publishing, Token: "t1"})
	})
	r.guard.Surveyor.Sources = []evidence.Source{says{fence.PowerReading}}
	return r
}

// What the watch saw begins a judgement. That it is still so is read after all else.
func TestALeaseThatTheWatchIsBehindOfVoidsWhatIsBoundToIt(t *testing.T) {
	r := dead(t)
	r.lease("old", "8")
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition)
	r.called()
	r.watched = "8"
	r.must(r.unpublish(id("old")))
	r.called("unpublish id-old")
}

// A person's taint is bound to the lease for good: to the one that there is.
func TestATaintIsNotBoundToWhatTheWatchIsBehindOf(t *testing.T) {
	r := dead(t)
	r.taint("old")
	r.lease("old", "8")
	r.must(r.unpublish(id("old")))
	r.called("unpublish id-old")
}

// In a storm each of them is one request for each volume.
func TestADeadNodeIsReadOnceForEachCall(t *testing.T) {
	r := dead(t)
	r.look()
	r.client.ClearActions()
	r.must(r.unpublish(id("old")))
	for resource, want := range map[string]int{"nodes": 1, "leases": 2, "persistentvolumes": 1} { // the lease and the record
		if got := r.reads(resource); len(got) != want {
			t.Errorf("an unpublish read %s %q, want %d", resource, got, want)
		}
	}
	r.stripped("old")
	r.attachment("next", time.Time{})
	r.client.ClearActions()
	r.must(r.publish("next"))
	for resource, want := range map[string]int{"nodes": 2, "leases": 2, "persistentvolumes": 2} { // of the old one, only whether it lists the volume
		if got := r.reads(resource); len(got) != want {
			t.Errorf("a publish read %s %q, want %d", resource, got, want)
		}
	}
}
