package evidence

import (
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

// eachTaint runs f for both taints: they share all rules.
func eachTaint(t *testing.T, f func(t *testing.T, w *world, s *Taint)) {
	t.Helper()
	for _, newSource := range []func(Records) *Taint{OutOfServiceTaint, CloudShutdownTaint} {
		w := newWorld(t)
		s := newSource(w.records())
		t.Run(s.Name(), func(t *testing.T) {
			w.t = t
			f(t, w, s)
		})
	}
}

func (w *world) sight(s *Taint) {
	w.t.Helper()
	if err := s.Sight(w.t.Context(), w.node, w.lease()); err != nil {
		w.t.Fatal(err)
	}
}

func TestTheTaintKeysAreThoseOfKubernetes(t *testing.T) {
	if k := OutOfServiceTaint(Records{}).key; k != "node.kubernetes.io/out-of-service" {
		t.Error(k)
	}
	if k := CloudShutdownTaint(Records{}).key; k != "node.cloudprovider.kubernetes.io/shutdown" {
		t.Error(k)
	}
}

func TestWithoutATaintThereIsNoEvidenceAndNoWrite(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", "some-other-taint", "x")
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v", found)
		}
		w.taint("52", "some-other-taint", OurTaintValue)
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v of a taint that says nothing of the kind", found)
		}
		w.sight(s)
		if w.server.Writes() != 0 {
			t.Fatal("something was written")
		}
	})
}

func TestOursIsTheOutOfServiceTaintWithOurValueAlone(t *testing.T) {
	for _, tt := range []struct {
		key, value string
		ours       bool
	}{
		{v1.TaintNodeOutOfService, OurTaintValue, true},
		{v1.TaintNodeOutOfService, "nodeshutdown", false},
		{shutdownTaint, OurTaintValue, false},
	} {
		if got := IsOurTaint(v1.Taint{Key: tt.key, Value: tt.value, Effect: v1.TaintEffectNoExecute}); got != tt.ours {
			t.Errorf("%s=%s is ours: %v", tt.key, tt.value, got)
		}
	}
}

func TestEitherTaintOfSomebodyElseClaimsThatTheNodeIsOff(t *testing.T) {
	for _, tt := range []struct {
		key, value string
		claimed    bool
	}{
		{v1.TaintNodeOutOfService, "nodeshutdown", true},
		{shutdownTaint, "", true},
		{v1.TaintNodeOutOfService, OurTaintValue, false},
		{"other", "x", false},
	} {
		w := newWorld(t)
		w.taint("51", tt.key, tt.value)
		if got := Claimed(w.node); got != tt.claimed {
			t.Errorf("%s=%s claims that it is off: %v", tt.key, tt.value, got)
		}
	}
}

func TestATaintIsBoundAtItsFirstSightAndCountsFromThenOn(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", s.key, "nodeshutdown")
		w.expect(s, true, "")
		b := w.record().Taints[s.key]
		if b.NodeUID != "u1" || b.BootID != "b1" || b.LeaseRV != "70" || b.NodeRV != "51" || b.Value != "nodeshutdown" || b.Writer != "kubectl-taint" || b.Void != "" {
			t.Fatalf("bound as %+v", b)
		}
		w.expect(s, true, "")
		e := w.ask(s)[0]
		want := fence.Evidence{Kind: s.kind, Source: "nodeshutdown", Detail: `the taints were last written by "kubectl-taint"`, NodeName: "n1", NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "70"}
		if e != want {
			t.Fatalf("evidence %+v, want %+v", e, want)
		}
		if got := w.actions(); got != "BindTaint" {
			t.Fatalf("audit trail: %s", got)
		}
	})
}

func TestATaintThatTheNodeOutlivedIsDeadUntilTakenOffAndPutOnAgain(t *testing.T) {
	changes := map[string]struct {
		change func(w *world)
		note   string
	}{
		"lease renewed": {func(w *world) { w.leaseRV = "71" }, fence.VoidLeaseChanged},
		"lease deleted": {func(w *world) { w.leaseRV = "" }, fence.VoidLeaseChanged},
		"rebooted": {func(w *world) {
			w.node.Status.NodeInfo.BootID = "b2"
			w.node.ResourceVersion = "60"
		}, fence.VoidBootChanged},
		"boot ID lost": {func(w *world) {
			w.node.Status.NodeInfo.BootID = ""
			w.node.ResourceVersion = "60"
		}, fence.VoidNoBootID},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			eachTaint(t, func(t *testing.T, w *world, s *Taint) {
				w.taint("51", s.key, "nodeshutdown")
				w.expect(s, true, "")
				before := w.node.DeepCopy()
				c.change(w)
				w.expect(s, false, c.note)
				if got := w.record().Taints[s.key].Void; got != c.note {
					t.Fatalf("written in the record: %q", got)
				}
				// Even if all looked as then, it stays dead.
				version := w.node.ResourceVersion
				w.node, w.leaseRV = before, "70"
				w.node.ResourceVersion = version
				w.expect(s, false, c.note)
				w.node = nil
				w.expect(s, false, "")

				w.node = before
				w.taint("80", "", "")
				w.sight(s)
				w.taint("81", s.key, "nodeshutdown")
				w.leaseRV = "79"
				w.expect(s, true, "")
				if got := w.actions(); got != "BindTaint VoidTaint ClearTaint BindTaint" {
					t.Fatalf("audit trail: %s", got)
				}
			})
		})
	}
}

func TestATaintLeftOnFromAnOldIncidentIsNotEvidenceOfANewOne(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", s.key, "nodeshutdown")
		w.sight(s)
		w.leaseRV = "71" // the node came back, the taint stayed
		w.sight(s)
		// Long after, with all sidecars new, it is cut off.
		w.leaseRV = "900"
		again := newTaint(s.kind, s.key, w.records())
		w.expect(again, false, fence.VoidLeaseChanged)
	})
}

// Who wrote it is what a person asks first of a taint that nobody remembers.
func TestWhoWroteATaintIsShownWithIt(t *testing.T) {
	for what, c := range map[string]struct {
		writers []string
		said    string
	}{
		"the node controller, by now": {[]string{"kube-controller-manager"}, `the taints were last written by "kube-controller-manager"`},
		"two that say the same":       {[]string{"flux", "argo", "flux"}, `the taints were last written by "argo, flux"`},
		"a name that is no name":      {[]string{"a\n\x1b[31mb"}, `the taints were last written by "a\n\x1b[31mb"`},
		"nobody":                      {nil, ""},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			s := OutOfServiceTaint(w.records())
			w.taint("51", s.key, "nodeshutdown")
			w.node.ManagedFields = w.node.ManagedFields[:1]
			for _, name := range c.writers {
				w.node.ManagedFields = append(w.node.ManagedFields, wrote(name, "", heard.Add(time.Minute), taintFields))
			}
			for _, when := range []string{"first seen", "bound"} {
				if found := w.ask(s); len(found) != 1 || found[0].Detail != c.said {
					t.Errorf("%s: %+v", when, found)
				}
			}
		})
	}
}

// Whoever tells from a taint that the node is off now has put it on after the node was
// last heard. That it was seen late, because no sidecar ran, makes no old one new.
func TestATaintThatMayHaveBeenThereBeforeTheNodeWasLastHeardProvesNothing(t *testing.T) {
	entry := func(manager string, after time.Duration) metav1.ManagedFieldsEntry {
		return wrote(manager, "", heard.Add(after), taintFields)
	}
	unknown := func(w *world, manager string) {
		w.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
		w.node.ManagedFields = append(w.node.ManagedFields, wrote(manager, "status", heard.Add(time.Minute), `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}}}`))
	}
	for what, c := range map[string]struct {
		counts bool
		change func(w *world, taints *metav1.ManagedFieldsEntry)
	}{
		"put on after it":                                   {true, func(*world, *metav1.ManagedFieldsEntry) {}},
		"put on 30 days before":                             {false, func(_ *world, e *metav1.ManagedFieldsEntry) { *e = entry("kubectl-taint", -30*24*time.Hour) }},
		"put on in the same second":                         {false, func(_ *world, e *metav1.ManagedFieldsEntry) { *e = entry("kubectl-taint", 0) }},
		"the node controller added its own":                 {false, func(_ *world, e *metav1.ManagedFieldsEntry) { *e = entry("kube-controller-manager", time.Minute) }},
		"so did one in a program of another name":           {false, func(w *world, e *metav1.ManagedFieldsEntry) { *e = entry("k3s", time.Minute); unknown(w, "k3s") }},
		"of another writer while that one calls it Unknown": {true, func(w *world, _ *metav1.ManagedFieldsEntry) { unknown(w, "k3s") }},
		"csi-fencepost added its own":                       {false, func(_ *world, e *metav1.ManagedFieldsEntry) { *e = entry(Manager, time.Minute) }},
		"nobody says who": {false, func(_ *world, e *metav1.ManagedFieldsEntry) {
			*e = wrote("x", "", heard.Add(time.Minute), `{"f:spec":{}}`)
		}},
		"nobody says when": {false, func(_ *world, e *metav1.ManagedFieldsEntry) { e.Time = nil }},
		"two say the same of it, one from before": {false, func(w *world, _ *metav1.ManagedFieldsEntry) {
			w.node.ManagedFields = append(w.node.ManagedFields, entry("apply", -time.Hour))
		}},
		"the heartbeat has no stamp": {false, func(w *world, _ *metav1.ManagedFieldsEntry) { w.node.ManagedFields = w.node.ManagedFields[1:] }},
	} {
		w := newWorld(t)
		s := OutOfServiceTaint(w.records())
		w.taint("51", s.key, "nodeshutdown")
		c.change(w, &w.node.ManagedFields[1])
		want := ""
		if !c.counts {
			want = fence.VoidTaintBefore
		}
		t.Run(what, func(t *testing.T) {
			w.t = t
			w.expect(s, c.counts, want)
		})
	}
	for what, change := range map[string]func(*coordinationv1.Lease){
		"renewed since":             func(l *coordinationv1.Lease) { *l.ManagedFields[0].Time = metav1.NewTime(heard.Add(2 * time.Minute)) },
		"renewed, nobody says when": func(l *coordinationv1.Lease) { l.ManagedFields = nil },
	} {
		w := newWorld(t)
		s := OutOfServiceTaint(w.records())
		w.taint("51", s.key, "nodeshutdown")
		lease := w.lease()
		change(lease)
		if err := s.Sight(t.Context(), w.node, lease); err != nil {
			t.Fatal(err)
		}
		t.Run(what, func(t *testing.T) {
			w.t = t
			w.expect(s, false, fence.VoidTaintBefore)
		})
	}
	t.Run("only a watch has shown the lease", func(t *testing.T) {
		w := newWorld(t)
		s := OutOfServiceTaint(w.records())
		w.taint("51", s.key, "nodeshutdown")
		q := w.question()
		q.Lease = nil
		if e, err := s.Evidence(t.Context(), q); err != nil || len(e) != 1 || e[0].Void != fence.VoidTaintBefore {
			t.Errorf("%+v, %v", e, err)
		}
	})
	t.Run("put on again", func(t *testing.T) {
		w := newWorld(t)
		s := OutOfServiceTaint(w.records())
		w.taint("51", s.key, "nodeshutdown")
		w.node.ManagedFields[1] = entry("kubectl-taint", -time.Hour)
		w.expect(s, false, fence.VoidTaintBefore)
		w.taint("52", "", "")
		w.sight(s)
		w.taint("53", s.key, "nodeshutdown")
		w.expect(s, true, "")
	})
}

func TestATaintSeenFirstOnALivingNodeDiesWithItsNextRenewal(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", s.key, "nodeshutdown")
		w.sight(s)
		w.leaseRV = "71"
		w.expect(s, false, fence.VoidLeaseChanged)
	})
}

func TestOurOwnTaintIsNeverEvidence(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", s.key, OurTaintValue)
		w.sight(s)
		w.expect(s, false, fence.VoidOurs)
		if w.server.Writes() != 0 {
			t.Fatal("our own taint was bound")
		}
		// A person's word takes its place: that is a first sight.
		w.taint("52", s.key, "nodeshutdown")
		w.expect(s, true, "")
		// Ours in its place again: the person's was taken off.
		w.taint("53", s.key, OurTaintValue)
		w.expect(s, false, fence.VoidOurs)
		if got := w.actions(); got != "BindTaint ClearTaint" {
			t.Fatalf("audit trail: %s", got)
		}
	})
}

func TestAPersonsTaintCountsBesideOurOwn(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", s.key, OurTaintValue)
		w.node.Spec.Taints = append(w.node.Spec.Taints, v1.Taint{Key: s.key, Value: "nodeshutdown", Effect: v1.TaintEffectNoSchedule})
		w.expect(s, true, "")
	})
}

func TestAnEmptyBootIDNeverBindsUsefully(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.node = machine("u1", "", "50")
		w.taint("51", s.key, "nodeshutdown")
		readOnly := newTaint(s.kind, s.key, Records{Store: w.store, ReadOnly: true})
		if found := w.ask(readOnly); len(found) != 1 || found[0].Void != fence.VoidNoBootID {
			t.Fatalf("evidence %+v", found)
		}
		w.expect(s, false, fence.VoidNoBootID)
		if got := w.actions(); got != "BindTaint" {
			t.Fatalf("audit trail: %s: bound and void is one write", got)
		}
		// The node tells its boot ID, so it lived after the taint was put on.
		w.node.Status.NodeInfo.BootID = "b1"
		w.node.ResourceVersion = "60"
		w.expect(s, false, fence.VoidNoBootID)
	})
}

func TestATaintOnAnotherMachineOfTheSameNameSaysNothingOfTheHolder(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.node = machine("u2", "b2", "50")
		w.taint("51", s.key, "nodeshutdown")
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v", found)
		}
		// The new machine's own taint, put on with no one having seen the old
		// one's taken off.
		w.holder.NodeUID = "u1"
		w.node = machine("u1", "b1", "50")
		w.taint("52", s.key, "nodeshutdown")
		w.sight(s)
		w.node = machine("u2", "b2", "60")
		w.taint("61", s.key, "nodeshutdown")
		w.holder.NodeUID = "u2"
		w.expect(s, false, fence.VoidOtherMachine)
	})
}

func TestATaintThatWentWithItsNodeCountsOnlyWhileTheLeaseIsThereUnchanged(t *testing.T) {
	for lease, want := range map[string]bool{"70": true, "71": false, "": false} {
		t.Run(fmt.Sprintf("lease %q", lease), func(t *testing.T) {
			eachTaint(t, func(t *testing.T, w *world, s *Taint) {
				w.taint("51", s.key, "nodeshutdown")
				w.expect(s, true, "")
				w.node, w.leaseRV = nil, lease
				w.expect(s, want, "")
				w.holder.NodeUID = "u0"
				w.expect(s, false, "")
			})
		})
	}
}

func TestAnOutdatedLookNeitherVoidsNorClears(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		before := w.node.DeepCopy()
		w.taint("51", s.key, "nodeshutdown")
		w.expect(s, true, "")
		tainted := w.node

		w.node = before // version 50, without the taint
		w.sight(s)
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v of a Node that did not have the taint yet", found)
		}
		w.node, w.leaseRV = tainted, "69" // a lagging copy of the lease
		w.sight(s)
		w.leaseRV = "70"
		w.expect(s, true, "")
		w.node = before
		w.sight(s)
		if got := w.actions(); got != "BindTaint" {
			t.Fatalf("audit trail: %s", got)
		}
		w.taint("60", "", "") // and now it is taken off
		w.sight(s)
		if got := w.actions(); got != "BindTaint ClearTaint" {
			t.Fatalf("audit trail: %s", got)
		}
	})
}

func TestADeadBindingIsNotRevivedByAnOldCopyOfTheNode(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		before := w.node.DeepCopy()
		w.taint("51", s.key, "nodeshutdown")
		w.sight(s)
		w.leaseRV = "71"
		w.sight(s)
		tainted := w.node
		w.node = before
		w.sight(s)
		w.node = tainted
		w.expect(s, false, fence.VoidLeaseChanged)
	})
}

func TestTwoSidecarsThatBindAtOnceShareTheFirstBinding(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		other := newTaint(s.kind, s.key, Records{Store: w.store, Actor: "other"})
		w.taint("51", s.key, "nodeshutdown")
		w.server.BeforeNextWrite(func() { w.sight(other) })
		w.expect(s, true, "")
		if r := w.record(); len(r.Audit) != 1 || r.Audit[0].Actor != "other" {
			t.Fatalf("audit trail %+v", r.Audit)
		}
	})
}

func TestASidecarThatBindsLaterTakesTheEarlierBindingForItsOwn(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", s.key, "nodeshutdown")
		q := w.question()
		w.sight(s) // by another process, at lease 70
		q.LeaseRV = "71"
		found, err := s.Evidence(t.Context(), q) // q.Record still shows none
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].LeaseRV != "70" || found[0].Void != fence.VoidLeaseChanged {
			t.Fatalf("evidence %+v: a renewed lease must void the first binding", found)
		}
	})
}

func TestReadOnlyReportsAndWritesNothing(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		readOnly := newTaint(s.kind, s.key, Records{Store: w.store, ReadOnly: true})
		w.taint("51", s.key, "nodeshutdown")
		w.expect(readOnly, true, "")
		w.sight(readOnly)
		if w.server.Writes() != 0 {
			t.Fatal("it was bound")
		}
		w.sight(s)
		writes := w.server.Writes()
		w.leaseRV = "71"
		w.expect(readOnly, false, fence.VoidLeaseChanged)
		if found := w.ask(readOnly); len(found) != 1 || found[0].Void != fence.VoidLeaseChanged {
			t.Fatalf("evidence %+v does not say that it is void", found)
		}
		w.sight(readOnly)
		w.taint("80", "", "")
		if found := w.ask(readOnly); found != nil {
			t.Fatalf("evidence %+v without a taint", found)
		}
		w.sight(readOnly)
		if w.server.Writes() != writes {
			t.Fatal("it was voided or cleared")
		}
	})
}

func TestSightReadsTheRecordOfAnUntaintedNodeOnce(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.sight(s)
		first := w.node
		w.node = machine("u3", "b3", "50")
		w.sight(s)
		w.node = first
		w.server.Forbid("get")
		w.sight(s) // would fail if it read again

		w.server.Forbid("")
		w.taint("51", s.key, "nodeshutdown")
		w.sight(s)
		w.taint("52", "", "")
		w.sight(s)
		if len(w.record().Taints) != 0 {
			t.Fatal("the taint that was taken off is still bound")
		}
		w.server.Forbid("get")
		w.sight(s) // and once more it has been seen without

		w.node = machine("u2", "b2", "60") // another machine: read anew
		if err := s.Sight(t.Context(), w.node, w.lease()); !apierrors.IsForbidden(err) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestANodeIsWorthALookUntilItWasSeenWithoutATaintOrABinding(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		readOnly := newTaint(s.kind, s.key, Records{Store: w.store, ReadOnly: true})
		worth := func(when string, want bool) {
			t.Helper()
			if got := s.Sights(w.node); got != want {
				t.Errorf("%s: worth a look: %v", when, got)
			}
			if readOnly.Sights(w.node) {
				t.Errorf("%s: worth a look of one that writes nothing", when)
			}
		}
		worth("never seen", true)
		bound := record.New("n1")
		bound.Taints = map[string]record.TaintBinding{s.key: {NodeUID: "u1"}}
		s.Unbound("u1", bound)
		worth("a binding is left", true)
		s.Unbound("u1", nil)
		worth("neither taint nor binding", false)
		w.taint("51", s.key, "nodeshutdown")
		worth("tainted", true)
	})
}

func TestWhatIsRememberedOfCleanNodesIsBounded(t *testing.T) {
	s := OutOfServiceTaint(Records{})
	for i := range maxClean + 1 {
		s.Unbound(types.UID(fmt.Sprint(i)), nil)
	}
	if n := len(s.clean); n > maxClean || n == 0 {
		t.Errorf("%d Nodes are remembered", n)
	}
}

func TestATaintWhoseEndCannotBeWrittenIsAnErrorAndNoEvidence(t *testing.T) {
	for _, end := range []struct {
		happens func(*world)
		written string
	}{
		{func(w *world) { w.leaseRV = "71" }, "VoidTaint"},
		{func(w *world) { w.taint("60", "", "") }, "ClearTaint"},
	} {
		eachTaint(t, func(t *testing.T, w *world, s *Taint) {
			w.taint("51", s.key, "nodeshutdown")
			w.sight(s)
			end.happens(w)
			w.server.Forbid("update")
			if found, err := s.Evidence(t.Context(), w.question()); !apierrors.IsForbidden(err) || found != nil {
				t.Errorf("%s: got %+v, %v", end.written, found, err)
			}
			if err := s.Sight(t.Context(), w.node, w.lease()); !apierrors.IsForbidden(err) {
				t.Errorf("%s: Sight: %v", end.written, err)
			}
			w.server.Forbid("")
			w.sight(s)
			if got := w.actions(); got != "BindTaint "+end.written {
				t.Errorf("audit trail: %s", got)
			}
		})
	}
}

func TestATaintThatCannotBeBoundIsAnErrorAndNoEvidence(t *testing.T) {
	eachTaint(t, func(t *testing.T, w *world, s *Taint) {
		w.taint("51", s.key, "nodeshutdown")
		q := w.question()
		w.server.Forbid("create")
		if found, err := s.Evidence(t.Context(), q); !apierrors.IsForbidden(err) || found != nil {
			t.Fatalf("got %+v, %v", found, err)
		}
		w.server.Forbid("")
		garble(w)
		var bad *record.GarbledError
		if found, err := s.Evidence(t.Context(), q); !errors.As(err, &bad) || found != nil {
			t.Fatalf("got %+v, %v", found, err)
		}
		if err := s.Sight(t.Context(), w.node, w.lease()); !errors.As(err, &bad) {
			t.Fatalf("Sight: %v", err)
		}
	})
}

func TestAMissingNamespaceForTheRecordsIsToldWhenATaintIsToBeBound(t *testing.T) {
	w := newWorld(t)
	w.server = leasetest.New(t)
	w.store = record.NewStore(w.server.Client().CoordinationV1(), ns)
	s := OutOfServiceTaint(w.records())
	w.taint("51", s.key, "nodeshutdown")
	if _, err := s.Evidence(t.Context(), w.question()); !apierrors.IsNotFound(err) {
		t.Fatalf("error %v", err)
	}
}
