package guard_test

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// A seal's Lease, as another session writes it, and as people and programs garble it.
var sealLeases = []string{
	`{"metadata":{"name":"seal-` + guardrig.DriverName + `","resourceVersion":"1001"},"spec":{"holderIdentity":"this process/1","acquireTime":"2026-01-02T03:04:05.000000Z","renewTime":"2026-01-02T03:04:05.000000Z"}}`,
	`{"metadata":{"name":"another","uid":"u","resourceVersion":"18446744073709551615","annotations":{"csi-fencepost.io/record":"{}"}},"spec":{"holderIdentity":"","acquireTime":"9999-12-31T23:59:59.999999Z"}}`,
	`{"spec":{"holderIdentity":null,"leaseDurationSeconds":-1,"leaseTransitions":-2147483648,"acquireTime":null}}`,
	`{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["example.com/mine"]}}`,
	`{}`,
}

// Whatever Lease somebody else writes in the seal's place, and wherever etcd counts then: the seal
// permits what it did only while what stands there is what this session wrote itself, and etcd has
// gone on from there. A publish that the seal alone lets through is refused otherwise, as it is
// where there is no Lease.
func FuzzNoLeaseOfOthersKeepsTheSeal(f *testing.F) {
	for _, text := range sealLeases {
		f.Add([]byte(text), "", uint64(0))
		f.Add([]byte(text), "77", uint64(5))
	}
	for _, leap := range []uint64{0, 1, 1 << 20, 1 << 40} { // it counts on, or from far above
		f.Add([]byte(sealLeases[0]), "own", leap)
	}
	for _, back := range []uint64{1, 2, 900, 2000} { // it was restored
		f.Add([]byte(sealLeases[0]), "own", -back)
	}
	f.Fuzz(func(t *testing.T, text []byte, version string, leap uint64) {
		lease := &coordinationv1.Lease{}
		if json.Unmarshal(text, lease) != nil {
			return
		}
		r, e := sealed(t)
		r.Lists("a", true, false)
		r.Lives["a"] = fence.Stale
		r.Attachment("b", guardrig.Now)
		r.Must(r.UnpublishFrom("id-b"))
		r.Stripped("b")
		r.Attachment("c", time.Time{})
		own, high := e.Lease.ResourceVersion, e.Revision-1
		if version == "own" {
			version = own
		}
		if version != "" {
			lease.ResourceVersion = version
		}
		e.Lease, e.Revision = lease, e.Revision+leap
		on := lease.ResourceVersion == own && e.Revision > high && e.Revision-high <= 100_000_000
		r.Calls = nil
		err := r.PublishTo("c")
		if on {
			r.Must(err)
			return
		}
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("the publish to c: %v, want it refused: the Lease was at %s, and is at %q; etcd was at %d, and counts at %d", err, own, lease.ResourceVersion, high, e.Revision)
		}
		r.Called()
	})
}

// Whatever Lease stands in the seal's place when a session puts its own on: who has a volume by what
// the cluster shows is written down all the same, and stands in the way; and whoever only looks
// takes for a seal what says when it was put on, and for covered by it what was there then.
func FuzzNoLeaseOfBeforeSparesTheSealItsLook(f *testing.F) {
	for _, text := range sealLeases {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lease := &coordinationv1.Lease{}
		if json.Unmarshal(text, lease) != nil {
			return
		}
		r := guardrig.New(t, fence.Policy{})
		e := r.Sealing()
		e.Lease = lease
		for _, n := range []string{"a", "b"} {
			r.Node(n, guardrig.HourAgo)
		}
		r.Lists("a", true, false)
		r.Lives["a"] = fence.Stale
		seen, err := guard.ReadSeal(t.Context(), r.Guard.Surveyor, r.Client.CoordinationV1())
		r.Must(err)
		at := lease.Spec.AcquireTime
		if (seen == nil) != (at == nil) {
			t.Errorf("seal %v of %s", seen, text)
		}
		r.ChangeNode("a", func(n *corev1.Node) {
			if seen != nil && seen.Covers(t.Context(), guardrig.Handle, n) && !n.CreationTimestamp.Time.Before(at.Time) {
				t.Errorf("node a, of %s, is covered by %s", n.CreationTimestamp, text)
			}
		})
		r.Must(r.UnpublishFrom("id-nobody")) // the session's first call
		if s := e.Lease.Spec; s.HolderIdentity == nil || *s.HolderIdentity != "this process/1" || s.AcquireTime == nil || s.AcquireTime.Equal(at) {
			t.Errorf("the seal that was put on is %+v", s)
		}
		r.Calls = nil
		r.Attachment("b", time.Time{})
		if err := r.PublishTo("b"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("the publish to b: %v, want it refused", err)
		}
		r.WantHolder("a", fence.Held)
		r.Called()
	})
}
