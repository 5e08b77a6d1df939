package record_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

const ns = "csi-fencepost"

func serve(t *testing.T) (*leasetest.Server, *record.Store) {
	t.Helper()
	server := leasetest.New(t, ns)
	return server, record.NewStore(server.Client().CoordinationV1(), ns)
}

func get(t *testing.T, s *record.Store, node string) *record.Record {
	t.Helper()
	r, err := s.Get(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		t.Fatalf("node %s has no record", node)
	}
	return r
}

func audited(t *testing.T, r *record.Record, actions ...string) {
	t.Helper()
	var got []string
	for _, a := range r.Audit {
		if a.At == "" || a.Actor == "" {
			t.Errorf("audit entry %+v lacks time or actor", a)
		}
		got = append(got, a.Action)
	}
	if strings.Join(got, " ") != strings.Join(actions, " ") {
		t.Errorf("audit trail is %v, want %v", got, actions)
	}
}

func garble(server *leasetest.Server, node string) {
	server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName(node), Annotations: map[string]string{record.Annotation: "{"}}})
}

func TestANodeWithoutRecordHasNone(t *testing.T) {
	server, s := serve(t)
	if r, err := s.Get(t.Context(), "n1"); r != nil || err != nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	// A Lease that is only the lock keeps no record either.
	holder := "sidecar"
	server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1")}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
	if r, err := s.Get(t.Context(), "n1"); r != nil || err != nil {
		t.Fatalf("got %+v, %v", r, err)
	}
}

func TestAnEmptyNodeNameHasNoRecord(t *testing.T) {
	_, s := serve(t)
	if _, err := s.Get(t.Context(), ""); err == nil {
		t.Fatal("no error")
	}
}

func TestUpdateLeavesTheLockAndForeignMetadataAlone(t *testing.T) {
	server, s := serve(t)
	holder, seconds := "sidecar", int32(30)
	server.Put(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1"), Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
	})
	bind(t, s, "n1", "5")
	lease := server.Lease(ns, record.LeaseName("n1"))
	if *lease.Spec.HolderIdentity != holder || *lease.Spec.LeaseDurationSeconds != seconds || lease.Labels["a"] != "b" || lease.Annotations["c"] != "d" {
		t.Fatalf("changed: %+v", lease)
	}
	get(t, s, "n1")
}

const key = "node.kubernetes.io/out-of-service"

func bind(t *testing.T, s *record.Store, node, leaseRV string) record.TaintBinding {
	t.Helper()
	r, err := s.BindTaint(t.Context(), node, key, record.TaintBinding{NodeUID: "u1", BootID: "b1", LeaseRV: leaseRV, Value: "nodeshutdown"}, "sidecar")
	if err != nil {
		t.Fatal(err)
	}
	return r.Taints[key]
}

func TestUpdateIsAppliedToWhatAFasterWriterWrote(t *testing.T) {
	for _, absent := range []bool{true, false} {
		t.Run(fmt.Sprintf("absent before: %v", absent), func(t *testing.T) {
			server, s := serve(t)
			if !absent {
				bind(t, s, "n1", "5")
			}
			server.BeforeNextWrite(func() { confirm(t, s, "n1", "faster") })
			confirm(t, s, "n1", "slower")
			r := get(t, s, "n1")
			if len(r.Confirmations) != 2 || r.Confirmations[0].ID != "faster" || r.Confirmations[1].ID != "slower" {
				t.Fatalf("confirmations %+v", r.Confirmations)
			}
		})
	}
}

func TestUpdateOfALeaseThatIsDeletedMeanwhileCreatesItAnew(t *testing.T) {
	server, s := serve(t)
	confirm(t, s, "n1", "old")
	server.BeforeNextWrite(func() { server.Delete(ns, record.LeaseName("n1")) })
	confirm(t, s, "n1", "new")
	if r := get(t, s, "n1"); len(r.Confirmations) != 1 || r.Confirmations[0].ID != "new" {
		t.Fatalf("confirmations %+v: what was deleted came back, or the new one is lost", r.Confirmations)
	}
}

func TestManyWritersLoseNothing(t *testing.T) {
	_, s := serve(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { confirm(t, s, "n1", fmt.Sprint("c", i)) })
	}
	wg.Wait()
	if r := get(t, s, "n1"); len(r.Confirmations) != 4 || len(r.Audit) != 4 {
		t.Fatalf("%d confirmations, %d audit entries, want 4 each", len(r.Confirmations), len(r.Audit))
	}
}

func TestUpdateGivesUpOnAWriterThatIsAlwaysFaster(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		bind(t, s, "n1", "5")
		tries, begun := 0, time.Now()
		_, err := s.Update(t.Context(), "n1", func(r *record.Record) (bool, error) {
			tries++
			server.Put(server.Lease(ns, record.LeaseName("n1")))
			r.Audit = append(r.Audit, record.Audit{At: "now", Actor: "slow"})
			return true, nil
		})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "cannot write the record of node n1") || tries != 9 {
			t.Fatalf("after %d tries: %v", tries, err)
		}
		if took := time.Since(begun); took < time.Second || took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestUpdateEndsWithItsContext(t *testing.T) {
	server, s := serve(t)
	bind(t, s, "n1", "5")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Update(ctx, "n1", func(r *record.Record) (bool, error) {
		server.BeforeNextWrite(func() {
			cancel()
			time.Sleep(200 * time.Millisecond) // the caller is gone before it is answered
		})
		r.Audit = nil
		return true, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
}

func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	server, s := serve(t)
	bind(t, s, "n1", "5")
	before := server.Writes()
	refuse := errors.New("no")
	for _, change := range []func(*record.Record) (bool, error){
		func(*record.Record) (bool, error) { return false, nil },
		func(*record.Record) (bool, error) { return true, nil },
		func(r *record.Record) (bool, error) { r.Taints = nil; return false, nil },
		func(r *record.Record) (bool, error) { r.Taints = nil; return true, refuse },
	} {
		r, err := s.Update(t.Context(), "n1", change)
		if err != nil && !errors.Is(err, refuse) {
			t.Fatal(err)
		}
		if err == nil && len(r.Taints) != 1 {
			t.Errorf("Update returns %+v, which is not what stands", r)
		}
	}
	if server.Writes() != before {
		t.Fatalf("%d writes", server.Writes()-before)
	}
}

func TestAMissingNamespaceIsNamedWithTheCommandThatCreatesIt(t *testing.T) {
	server := leasetest.New(t)
	s := record.NewStore(server.Client().CoordinationV1(), ns)
	if r, err := s.Get(t.Context(), "n1"); r != nil || err != nil {
		t.Fatalf("a read got %v, %v", r, err)
	}
	_, err := s.BindTaint(t.Context(), "n1", key, record.TaintBinding{NodeUID: "u1"}, "sidecar")
	if err == nil || !strings.Contains(err.Error(), "kubectl create namespace csi-fencepost") {
		t.Fatalf("error %v", err)
	}
}

func TestMissingRBACNamesVerbAndResource(t *testing.T) {
	for _, verb := range []string{"get", "list", "create", "update"} {
		t.Run(verb, func(t *testing.T) {
			server, s := serve(t)
			if verb == "update" {
				bind(t, s, "n1", "5")
			}
			server.Forbid(verb)
			var err error
			if verb == "list" {
				_, _, err = s.List(t.Context())
			} else {
				_, err = s.Confirm(t.Context(), "n1", record.Confirmation{By: "ann", Reason: "x", Machines: []record.Machine{{NodeUID: "u1"}}})
			}
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot "+verb+" resource \"leases\"") {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestAGarbledRecordStopsItsOwnNodeOnly(t *testing.T) {
	server, s := serve(t)
	bind(t, s, "n1", "5")
	garble(server, "n2")
	for _, name := range []string{"leader-election", record.LeaseName("n3")} { // the latter is only a lock
		server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	}
	before := server.Lease(ns, record.LeaseName("n2"))

	var bad *record.GarbledError
	if _, err := s.Get(t.Context(), "n2"); !errors.As(err, &bad) || bad.Node != "n2" {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Confirm(t.Context(), "n2", record.Confirmation{By: "ann", Reason: "x", Machines: []record.Machine{{NodeUID: "u1"}}}); !errors.As(err, &bad) {
		t.Errorf("Confirm: %v", err)
	}
	if after := server.Lease(ns, record.LeaseName("n2")); after.ResourceVersion != before.ResourceVersion {
		t.Error("the garbled record was written over")
	}
	get(t, s, "n1")
	records, garbled, err := s.List(t.Context())
	if err != nil || len(records) != 1 || records[0].Node != "n1" || len(garbled) != 1 || garbled[0].Node != "n2" {
		t.Errorf("List: %v, %v, %v", records, garbled, err)
	}
}

func TestTheFirstBindingOfATaintStands(t *testing.T) {
	server, s := serve(t)
	server.BeforeNextWrite(func() { bind(t, s, "n1", "5") })
	if got := bind(t, s, "n1", "6"); got.LeaseRV != "5" {
		t.Fatalf("bound to lease %s, another sidecar had bound it to 5", got.LeaseRV)
	}
	audited(t, get(t, s, "n1"), "BindTaint")
}

func TestTheAuditTrailSaysWhatATaintWasBoundTo(t *testing.T) {
	_, s := serve(t)
	b := record.TaintBinding{NodeUID: "u1", BootID: "b1", LeaseRV: "5", Value: strings.Repeat("v", 1000), Void: "ours"}
	r, err := s.BindTaint(t.Context(), "n1", key, b, "sidecar")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Taints[key]; len(got.Value) != 512 || got.BoundAt == "" {
		t.Errorf("bound: %+v", got)
	}
	if _, err := s.BindTaint(t.Context(), "n1", "k2", record.TaintBinding{NodeUID: "u1", Value: "v", Writer: "kubectl\x1b[31m-taint"}, "sidecar"); err != nil {
		t.Fatal(err)
	}
	if r, err = s.VoidTaint(t.Context(), "n1", "k2", get(t, s, "n1").Taints["k2"], strings.Repeat("w", 1000), "sidecar"); err != nil {
		t.Fatal(err)
	}
	if got := r.Taints["k2"].Void; len(got) != 512 {
		t.Errorf("void for %d bytes of reasons", len(got))
	}
	for i, want := range []string{key + "=vvv", `k2=v, node UID u1, boot ID "", lease "", the taints were last written by "kubectl\x1b[31m-taint"`, "k2: www"} {
		if got := r.Audit[i].Detail; !strings.HasPrefix(got, want) {
			t.Errorf("entry %d says %s, want %s", i, got, want)
		}
	}
	if r, err = s.ClearTaint(t.Context(), "n1", "k2", r.Taints["k2"], "sidecar"); err != nil || r.Audit[3].Detail != "k2: seen taken off" {
		t.Errorf("%+v, %v", r.Audit, err)
	}
	b.Value = "v"
	if r, err = s.BindTaint(t.Context(), "n2", key, b, "sidecar"); err != nil || r.Audit[0].Detail != key+`=v, node UID u1, boot ID "b1", lease "5": void, ours` {
		t.Errorf("%+v, %v", r.Audit, err)
	}
}

func TestAVoidBindingStaysVoidUntilTheTaintIsTakenOff(t *testing.T) {
	_, s := serve(t)
	b := bind(t, s, "n1", "5")
	for range 2 { // the second time changes nothing
		if _, err := s.VoidTaint(t.Context(), "n1", key, b, "renewed", "sidecar"); err != nil {
			t.Fatal(err)
		}
	}
	if got := bind(t, s, "n1", "6"); got.Void != "renewed" || got.LeaseRV != "5" {
		t.Fatalf("bound anew: %+v", got)
	}
	if _, err := s.ClearTaint(t.Context(), "n1", key, get(t, s, "n1").Taints[key], "sidecar"); err != nil {
		t.Fatal(err)
	}
	if got := bind(t, s, "n1", "6"); got.Void != "" || got.LeaseRV != "6" {
		t.Fatalf("not bound anew: %+v", got)
	}
	audited(t, get(t, s, "n1"), "BindTaint", "VoidTaint", "ClearTaint", "BindTaint")
}

func TestOnlyTheBindingThatWasJudgedIsChanged(t *testing.T) {
	_, s := serve(t)
	judged := bind(t, s, "n1", "5")
	if _, err := s.ClearTaint(t.Context(), "n1", key, judged, "sidecar"); err != nil {
		t.Fatal(err)
	}
	since := bind(t, s, "n1", "7")
	if _, err := s.VoidTaint(t.Context(), "n1", key, judged, "late", "sidecar"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ClearTaint(t.Context(), "n1", key, judged, "sidecar"); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "n1").Taints[key]; !reflect.DeepEqual(got, since) {
		t.Fatalf("the newer binding became %+v", got)
	}
}

func confirm(t *testing.T, s *record.Store, node, id string) {
	t.Helper()
	_, err := s.Confirm(t.Context(), node, record.Confirmation{ID: id, By: "ann", Reason: "unplugged", Machines: []record.Machine{{NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "5"}}})
	if err != nil {
		t.Error(err)
	}
}

func TestAConfirmationSaysByWhomWhyAndOfWhichMachine(t *testing.T) {
	server, s := serve(t)
	valid := record.Confirmation{By: "ann", Reason: "unplugged", Machines: slices.Repeat([]record.Machine{{NodeUID: "u1"}}, 64)}
	for name, spoil := range map[string]func(*record.Confirmation){
		"by":       func(c *record.Confirmation) { c.By = "" },
		"reason":   func(c *record.Confirmation) { c.Reason = "" },
		"machines": func(c *record.Confirmation) { c.Machines = nil },
		"machine":  func(c *record.Confirmation) { c.Machines = []record.Machine{{BootID: "b1"}} },
		"bound":    func(c *record.Confirmation) { c.Machines = append(c.Machines, c.Machines[0]) },
	} {
		c := valid
		spoil(&c)
		if _, err := s.Confirm(t.Context(), "n1", c); err == nil {
			t.Errorf("without %s it is taken", name)
		}
	}
	if server.Writes() != 0 {
		t.Fatal("something was written")
	}
	id, err := s.Confirm(t.Context(), "n1", valid)
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	r := get(t, s, "n1")
	if c := r.Confirmations[0]; c.ID != id || c.At == "" || c.By != "ann" {
		t.Fatalf("stored %+v", c)
	}
	audited(t, r, "Confirm")
}

func TestTheSameConfirmationIsWrittenOnce(t *testing.T) {
	_, s := serve(t)
	confirm(t, s, "n1", "c1")
	confirm(t, s, "n1", "c1")
	r := get(t, s, "n1")
	if len(r.Confirmations) != 1 {
		t.Fatalf("%d confirmations", len(r.Confirmations))
	}
	audited(t, r, "Confirm")
}

func TestConfirmationsCanBeWithdrawn(t *testing.T) {
	_, s := serve(t)
	for _, id := range []string{"a", "b", "c"} {
		confirm(t, s, "n1", id)
	}
	if n, err := s.Withdraw(t.Context(), "n1", "bob", "it runs", "b", "z"); err == nil || n != 0 {
		t.Fatalf("withdrew %d with an unknown ID: %v", n, err)
	}
	if _, err := s.Withdraw(t.Context(), "n1", "bob", ""); err == nil {
		t.Fatal("withdrawn without a reason")
	}
	if n, err := s.Withdraw(t.Context(), "n1", "bob", "it runs", "b"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if r := get(t, s, "n1"); len(r.Confirmations) != 2 || r.Confirmations[1].ID != "c" {
		t.Fatalf("left: %+v", r.Confirmations)
	}
	if n, err := s.Withdraw(t.Context(), "n1", "bob", "it runs"); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if n, err := s.Withdraw(t.Context(), "n1", "bob", "it runs"); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	audited(t, get(t, s, "n1"), "Confirm", "Confirm", "Confirm", "Withdraw", "Withdraw", "Withdraw")
}

func TestAConfirmationIsVoidedForOneMachine(t *testing.T) {
	_, s := serve(t)
	two := []record.Machine{{NodeUID: "u1", LeaseRV: "5"}, {NodeUID: "u2", LeaseRV: "5"}}
	for _, id := range []string{"c0", "c1"} {
		if _, err := s.Confirm(t.Context(), "n1", record.Confirmation{ID: id, By: "ann", Reason: "x", Machines: two}); err != nil {
			t.Fatal(err)
		}
	}
	voided := func(id string, m record.Machine, want string) {
		t.Helper()
		if _, err := s.VoidMachine(t.Context(), "n1", id, m, "renewed", "sidecar"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range get(t, s, "n1").Confirmations {
			for _, m := range c.Machines {
				if m.Void != "" {
					got = append(got, c.ID+" "+m.NodeUID+" "+m.Void)
				}
			}
		}
		if strings.Join(got, ", ") != want {
			t.Fatalf("void: %v, want %s", got, want)
		}
	}
	voided("c1", two[1], "c1 u2 renewed")
	voided("c1", two[1], "c1 u2 renewed") // not as it was judged any more
	voided("c1", record.Machine{NodeUID: "u1", LeaseRV: "6"}, "c1 u2 renewed")
	voided("c2", two[0], "c1 u2 renewed")
	voided("c1", two[0], "c1 u1 renewed, c1 u2 renewed")
	audited(t, get(t, s, "n1"), "Confirm", "Confirm", "VoidConfirmation", "VoidConfirmation")
}

func TestOnlyTheFenceThatWasJudgedIsVoided(t *testing.T) {
	stored := record.Fence{ID: "f1", Kind: fence.PowerReading, Phase: record.Fencing, Actor: "a", StartedAt: "2026-01-02T03:04:05Z",
		Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "5"}}
	for name, tt := range map[string]struct {
		judge func(*record.Fence)
		want  record.Phase
	}{
		"this one":          {func(*record.Fence) {}, record.Void},
		"one that is gone":  {func(f *record.Fence) { f.ID = "f0" }, record.Fencing},
		"in another phase":  {func(f *record.Fence) { f.Phase = record.Fenced }, record.Fencing},
		"of an older lease": {func(f *record.Fence) { f.Machine.LeaseRV = "4" }, record.Fencing},
		"of an older boot":  {func(f *record.Fence) { f.Machine.BootID = "b0" }, record.Fencing},
		"of an older Node":  {func(f *record.Fence) { f.Machine.NodeUID = "u0" }, record.Fencing},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := serve(t)
			if _, err := s.Update(t.Context(), "n1", func(r *record.Record) (bool, error) { r.PutFence(stored, "Fence"); return true, nil }); err != nil {
				t.Fatal(err)
			}
			judged := stored
			tt.judge(&judged)
			r, err := s.VoidFence(t.Context(), "n1", judged, "renewed", "b")
			if err != nil || r.Fences[0].Phase != tt.want {
				t.Fatalf("returned %+v, %v", r, err)
			}
			r = get(t, s, "n1")
			if f := r.Fences[0]; f.Phase != tt.want || f.Why != "" != (tt.want == record.Void) {
				t.Errorf("stored %+v", f)
			}
		})
	}
}

func TestAReleaseReplacesAnEarlierOneOfTheSameVolumeAndNode(t *testing.T) {
	_, s := serve(t)
	release := func(id, volume, nodeID, token string) {
		t.Helper()
		rel := record.Release{ID: id, Volume: volume, Driver: "d", NodeID: nodeID, Token: token, Life: record.Living, By: "ann", Reason: "checked"}
		if _, err := s.ReleaseVolume(t.Context(), "n1", rel); err != nil {
			t.Fatal(err)
		}
	}
	release("r1", "v1", "id1", "t1")
	release("r2", "v2", "id1", "t2")
	release("r3", "v1", "id2", "t3")
	release("r4", "v1", "id1", "t4")
	release("r4", "v1", "id1", "t4")
	r := get(t, s, "n1")
	var ids []string
	for _, rel := range r.Releases {
		ids = append(ids, rel.ID)
	}
	if strings.Join(ids, " ") != "r2 r3 r4" {
		t.Fatalf("releases %v", ids)
	}
	audited(t, r, "ReleaseVolume", "ReleaseVolume", "ReleaseVolume", "ReleaseVolume")
}

func TestAReleaseNamesVolumeDriverAndNode(t *testing.T) {
	server, s := serve(t)
	for _, rel := range []record.Release{
		{Token: "t", Life: record.Gone, Driver: "d", NodeID: "i", By: "a", Reason: "r"},
		{Token: "t", Life: record.Gone, Volume: "v", NodeID: "i", By: "a", Reason: "r"},
		{Token: "t", Life: record.Gone, Volume: "v", Driver: "d", By: "a", Reason: "r"},
		{Token: "t", Life: record.Gone, Volume: "v", Driver: "d", NodeID: "i", Reason: "r"},
		{Token: "t", Life: record.Gone, Volume: "v", Driver: "d", NodeID: "i", By: "a"},
		{Token: "t", Life: "well", Volume: "v", Driver: "d", NodeID: "i", By: "a", Reason: "r"},
		{Token: "t", Volume: "v", Driver: "d", NodeID: "i", By: "a", Reason: "r"},
		{Life: record.Gone, Volume: "v", Driver: "d", NodeID: "i", By: "a", Reason: "r"},
	} {
		if _, err := s.ReleaseVolume(t.Context(), "n1", rel); err == nil {
			t.Errorf("%+v is taken", rel)
		}
	}
	if server.Writes() != 0 {
		t.Fatal("something was written")
	}
}

func TestWithdrawingReleasesTakesBackTheChosenOnesAndSaysWhich(t *testing.T) {
	server, s := serve(t)
	for _, volume := range []string{"v1", "v2"} {
		rel := record.Release{ID: volume, Volume: volume, Driver: "d", NodeID: "i", Token: "t", Life: record.Silent, LeaseRV: "7", By: "ann", Reason: "checked"}
		if _, err := s.ReleaseVolume(t.Context(), "n1", rel); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.VoidRelease(t.Context(), "n1", "v2", "it lives", "sidecar"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.VoidRelease(t.Context(), "n1", "v2", "another reason", "sidecar"); err != nil {
		t.Fatal(err)
	}
	first := func(rel *record.Release) bool { return rel.Volume == "v1" }
	if _, err := s.WithdrawReleases(t.Context(), "n1", "bob", "", first); err == nil {
		t.Error("withdrawn without a reason")
	}
	got, err := s.WithdrawReleases(t.Context(), "n1", "bob", "I was wrong", first)
	if err != nil || len(got) != 1 || got[0].ID != "v1" {
		t.Fatalf("withdrawn: %+v, %v", got, err)
	}
	r := get(t, s, "n1")
	if len(r.Releases) != 1 || r.Releases[0].Void != "it lives" || r.Releases[0].Ended() != "it lives" {
		t.Errorf("left: %+v", r.Releases)
	}
	audited(t, r, "ReleaseVolume", "ReleaseVolume", "VoidRelease", "WithdrawRelease")
	before := server.Lease(ns, record.LeaseName("n1")).ResourceVersion
	if got, err := s.WithdrawReleases(t.Context(), "n1", "bob", "again", first); err != nil || len(got) != 0 {
		t.Errorf("withdrawn twice: %+v, %v", got, err)
	}
	if now := server.Lease(ns, record.LeaseName("n1")).ResourceVersion; now != before {
		t.Error("nothing was withdrawn, and it was written")
	}
}

// Whether a record could be made is asked without making one, as that of the one that would be made.
func TestWhetherARecordCouldBeMadeIsAskedAndMakesNone(t *testing.T) {
	for name, c := range map[string]struct {
		kind    fence.Kind
		refusal error
		vouches bool
	}{
		"a record":                {"", nil, false},
		"one of a fence":          {fence.PowerReading, nil, true},
		"where nobody may":        {fence.PowerReading, apierrors.NewForbidden(coordinationv1.Resource("leases"), "of-no-node", errors.New("a policy says no")), true},
		"where nobody may at all": {"", apierrors.NewForbidden(coordinationv1.Resource("leases"), "of-no-node", errors.New("a policy says no")), false},
	} {
		client := fake.NewClientset()
		asked := 0
		client.PrependReactor("create", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			create := a.(clienttesting.CreateActionImpl)
			lease := create.GetObject().(*coordinationv1.Lease)
			if asked++; !slices.Equal(create.GetCreateOptions().DryRun, []string{metav1.DryRunAll}) || (lease.Annotations[record.FencedAnnotation] != "") != c.vouches {
				t.Errorf("%s: created with %+v, %q", name, create.GetCreateOptions(), lease.Annotations)
			}
			return true, lease, c.refusal
		})
		err := record.NewStore(client.CoordinationV1(), ns).Check(t.Context(), c.kind, "d")
		if asked != 1 || (err == nil) != (c.refusal == nil) || err != nil && !strings.Contains(err.Error(), "a policy says no") {
			t.Errorf("%s: asked %d times, %v", name, asked, err)
		}
	}
}

// A record outlives its Node for what it claims. That a machine was known by something claims
// nothing, and each name that there ever was would leave one.
func TestOnlyARecordOfNothingButAnIdentityIsRemoved(t *testing.T) {
	bind := func(r *record.Record, other string) {
		r.Bind("u1", []record.Identifier{{Kind: record.NodeID("d"), Value: "i1"}}, func(record.Identifier) record.IdentityClaim {
			return record.IdentityClaim{Node: other, Bound: other != ""}
		})
	}
	for name, c := range map[string]struct {
		change func(*record.Record)
		want   bool
	}{
		"an identity": {func(*record.Record) {}, true},
		"a fence":     {func(r *record.Record) { r.PutFence(powerFence("f1"), "Fenced") }, false},
		"a release": {func(r *record.Record) {
			r.Releases = []record.Release{{ID: "r1", Driver: "d", Volume: "v", NodeID: "i1", NodeUID: "u1", By: "ada", Reason: "x", Token: "t"}}
		}, false},
		"something in its audit":          {func(r *record.Record) { r.Note("a", "Test", "x") }, false},
		"an operation":                    {func(r *record.Record) { r.Operation.ID = "o1" }, false},
		"what only a later version knows": {func(r *record.Record) { r.Later = format.Later(`{"x":1}`) }, false},
		"what was asked of it":            {func(r *record.Record) { r.Ask(question("q1", "d")); r.Reply(*r.Question("q1"), readOn) }, true},
		"only what was asked of it":       {func(r *record.Record) { r.Identity = nil; r.Ask(question("q1", "d")) }, true},
		"no identity":                     {func(r *record.Record) { r.Identity = nil; r.Version = 1 }, false},
		"what another had first":          {func(r *record.Record) { r.Identity = nil; bind(r, "n2") }, false},
		"that it says something else since": {func(r *record.Record) {
			r.Bind("u1", []record.Identifier{{Kind: record.NodeID("d"), Value: "i2"}}, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} })
		}, false},
	} {
		server, s := serve(t)
		update(t, s, func(r *record.Record) { bind(r, "") })
		update(t, s, c.change)
		removed, err := s.RemoveIdentity(t.Context(), "n1")
		if gone := server.Lease(ns, record.LeaseName("n1")) == nil; err != nil || removed != c.want || gone != c.want {
			t.Errorf("%s: removed %t, gone %t, %v", name, removed, gone, err)
		}
	}
	server, s := serve(t)
	if removed, err := s.RemoveIdentity(t.Context(), "n1"); removed || err != nil {
		t.Error("there is none", removed, err)
	}
	// Somebody claims something, or locks it, at that moment.
	for _, meanwhile := range []func(){
		func() { update(t, s, func(r *record.Record) { r.PutFence(powerFence("f1"), "Fenced") }) },
		func() {
			lease := server.Lease(ns, record.LeaseName("n1"))
			lease.Spec.HolderIdentity = new("b")
			server.Put(lease)
		},
	} {
		server.Delete(ns, record.LeaseName("n1"))
		update(t, s, func(r *record.Record) { bind(r, "") })
		server.BeforeNextWrite(meanwhile)
		for range 2 {
			if removed, err := s.RemoveIdentity(t.Context(), "n1"); removed || err != nil || server.Lease(ns, record.LeaseName("n1")) == nil {
				t.Error("it is removed", removed, err)
			}
		}
	}
	server.Forbid("delete")
	server.Delete(ns, record.LeaseName("n1"))
	update(t, s, func(r *record.Record) { bind(r, "") })
	if removed, err := s.RemoveIdentity(t.Context(), "n1"); removed || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot delete the record of node n1") {
		t.Error(removed, err)
	}
}
