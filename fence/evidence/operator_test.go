package evidence

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func (w *world) confirm(machines ...record.Machine) {
	w.t.Helper()
	_, err := w.store.Confirm(w.t.Context(), "n1", record.Confirmation{By: "ann", Reason: "unplugged", Machines: machines})
	if err != nil {
		w.t.Fatal(err)
	}
}

// off is the holder's machine as a confirmation names it.
var off = record.Machine{NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "70"}

func TestAConfirmationCountsForTheMachineItNames(t *testing.T) {
	tests := []struct {
		name    string
		machine record.Machine
		found   int
	}{
		{"the holder", off, 1},
		{"the holder's machine, for all drivers", record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "70"}, 1},
		{"another node ID", record.Machine{NodeID: "id9", NodeUID: "u1", BootID: "b1", LeaseRV: "70"}, 0},
		{"another machine of that name", record.Machine{NodeID: "id1", NodeUID: "u9", BootID: "b1", LeaseRV: "70"}, 0},
		{"a machine of unknown UID", record.Machine{NodeID: "id1", BootID: "b1", LeaseRV: "70"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.confirm(record.Machine{NodeUID: "somebody"}, tt.machine)
			s := Confirmations(w.records())
			if found := w.ask(s); len(found) != tt.found {
				t.Fatalf("evidence %+v", found)
			}
			w.expect(s, tt.found == 1, "")
		})
	}
}

// A machine takes over the Node of another, is confirmed off before its driver has
// registered, and its Node is deleted: the machine before it may be running still.
func TestAConfirmationOfTheMachineThatTookOverANodeSaysNothingOfTheOneBefore(t *testing.T) {
	taken := record.Machine{NodeUID: "u1", BootID: "b2", SystemUUID: "system-2", LeaseRV: "70"}
	for name, heir := range map[string]bool{"the machine before it": false, "itself": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node, w.holder.SystemUUID = nil, "system-1"
			if heir {
				w.holder.BootID, w.holder.SystemUUID = "b2", "system-2"
			}
			w.confirm(taken)
			if found := w.ask(Confirmations(w.records())); len(found) == 1 != heir {
				t.Fatalf("evidence %+v", found)
			}
		})
	}
}

func TestAConfirmationSaysByWhomAndWhy(t *testing.T) {
	w := newWorld(t)
	w.confirm(off)
	want := fence.Evidence{Kind: fence.OperatorConfirmation, Source: "ann", Detail: "unplugged", NodeName: "n1", NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "70"}
	if got := w.ask(Confirmations(w.records())); len(got) != 1 || got[0] != want {
		t.Fatalf("evidence %+v", got)
	}
}

func TestAConfirmationThatTheNodeOutlivedStaysVoid(t *testing.T) {
	changes := map[string]struct {
		change func(w *world)
		note   string
	}{
		"lease renewed": {func(w *world) { w.leaseRV = "71" }, fence.VoidLeaseChanged},
		"rebooted":      {func(w *world) { w.node = machine("u1", "b2", "60") }, fence.VoidBootChanged},
		"registered again under the same boot": {func(w *world) {
			w.node, w.leaseRV = machine("u2", "b1", "60"), ""
		}, voidSameBoot},
		"Node deleted since": {func(w *world) { w.node, w.leaseRV = nil, "" }, fence.VoidNodeGone},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := Confirmations(w.records())
			w.confirm(off)
			w.expect(s, true, "")
			node := w.node
			c.change(w)
			w.expect(s, false, c.note)
			w.node, w.leaseRV = node, "70"
			w.expect(s, false, c.note)
			w.node, w.leaseRV = nil, ""
			w.expect(s, false, c.note)
			if got := w.actions(); got != "Confirm VoidConfirmation" {
				t.Fatalf("audit trail: %s", got)
			}
			// Said once more, it counts.
			w.confirm(record.Machine{NodeID: "id1", NodeUID: "u1", BootID: "b1"})
			w.expect(s, true, "")
		})
	}
}

// Another Node may report its system UUID for a while only: the word counts again after that.
func TestAConfirmationIsNotVoidForGoodBecauseASystemUUIDIsShared(t *testing.T) {
	w := newWorld(t)
	s := Confirmations(w.records())
	w.node = machine("u1", "12", "60")
	w.node.Status.NodeInfo.SystemUUID = "system-1"
	w.holder.BootID, w.holder.SystemUUID = "12", "system-1"
	w.holder.Node = &fence.Node{UID: "u1", BootID: "12", SystemUUID: "system-1", NodeID: "id1", SystemShared: true}
	w.confirm(record.Machine{NodeID: "id1", NodeUID: "u1", BootID: "12", SystemUUID: "system-1", LeaseRV: "70"})
	if found := w.ask(s); len(found) != 1 || found[0].Void != fence.VoidNotUnique {
		t.Errorf("while it is shared: %+v", found)
	}
	w.holder.Node.SystemShared = false
	if found := w.ask(s); len(found) != 1 || found[0].Void != "" {
		t.Errorf("once it is its own again: %+v", found)
	}
}

func TestAConfirmationWorksWhenTheNodeIsGone(t *testing.T) {
	w := newWorld(t)
	s := Confirmations(w.records())
	w.node, w.leaseRV = nil, ""
	w.confirm(record.Machine{NodeID: "id1", NodeUID: "u1", BootID: "b1"})
	w.expect(s, true, "")
	// A new machine under the old name changes nothing of the old one.
	w.node, w.leaseRV = machine("u2", "b2", "60"), "90"
	w.expect(s, true, "")
	// Unless it is the old one.
	w.node = machine("u2", "b1", "61")
	w.expect(s, false, voidSameBoot)
}

func TestOfAMachineWhoseNodeAnotherOneTookOver(t *testing.T) {
	w := newWorld(t)
	taint, confirmations := OutOfServiceTaint(w.records()), Confirmations(w.records())
	w.confirm(record.Machine{NodeID: "id1", NodeUID: "u1", BootID: "b1"})
	w.node, w.leaseRV = machine("u1", "b2", "60"), "90"
	w.taint("61", v1.TaintNodeOutOfService, "nodeshutdown")
	w.holder.Node = &fence.Node{UID: "u1", BootID: "b2", NodeID: "id2"}
	if found := w.ask(taint); found != nil {
		t.Errorf("the taint on the new machine is evidence of the old one: %+v", found)
	}
	if found := w.ask(confirmations); len(found) != 1 || found[0].Void != "" {
		t.Errorf("the word about the old machine should count: %+v", found)
	}
}

func TestALookFromBeforeTheConfirmationDoesNotVoidIt(t *testing.T) {
	for name, node := range map[string]*v1.Node{"with its Node": machine("u1", "b1", "50"), "without": nil} {
		w := newWorld(t)
		w.confirm(off)
		w.node, w.leaseRV = node, "69" // the confirmation saw lease 70
		if found := w.ask(Confirmations(w.records())); len(found) != 1 || found[0].Void != "" || w.actions() != "Confirm" {
			t.Errorf("%s: evidence %+v, audit trail: %s", name, found, w.actions())
		}
	}
}

func TestAWithdrawnConfirmationIsNoEvidence(t *testing.T) {
	w := newWorld(t)
	s := Confirmations(w.records())
	w.confirm(off)
	w.expect(s, true, "")
	if _, err := w.store.Withdraw(t.Context(), "n1", "bob", "it runs"); err != nil {
		t.Fatal(err)
	}
	if found := w.ask(s); found != nil {
		t.Fatalf("evidence %+v", found)
	}
}

func TestAReadOnlyConfirmationIsJudgedVoidButNotWritten(t *testing.T) {
	w := newWorld(t)
	w.confirm(off)
	w.leaseRV = "71"
	w.expect(Confirmations(Records{Store: w.store, ReadOnly: true}), false, fence.VoidLeaseChanged)
	if w.server.Writes() != 1 {
		t.Fatal("it was written")
	}
}

func TestAConfirmationWhoseVoidingCannotBeWrittenIsAnError(t *testing.T) {
	w := newWorld(t)
	w.confirm(off)
	w.leaseRV = "71"
	w.server.Forbid("update")
	if found, err := Confirmations(w.records()).Evidence(t.Context(), w.question()); !apierrors.IsForbidden(err) || found != nil {
		t.Fatalf("got %+v, %v", found, err)
	}
}

func TestAReleaseCountsForOneVolumeOfOneDriverOnOneNodeAndOnePublication(t *testing.T) {
	valid := release(record.Silent)
	tests := []struct {
		name   string
		change func(r *record.Release, h *fence.Holder)
		want   bool
	}{
		{"the very one", func(*record.Release, *fence.Holder) {}, true},
		{"another volume", func(r *record.Release, _ *fence.Holder) { r.Volume = "vol-2" }, false},
		{"another driver", func(r *record.Release, _ *fence.Holder) { r.Driver = "other" }, false},
		{"another node ID", func(r *record.Release, _ *fence.Holder) { r.NodeID = "id9" }, false},
		{"another machine", func(r *record.Release, _ *fence.Holder) { r.NodeUID = "u9" }, false},
		{"a later publication", func(_ *record.Release, h *fence.Holder) { h.Token = "later" }, false},
		{"a release with a token of a holder without", func(_ *record.Release, h *fence.Holder) { h.Token = "" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			rel, before := valid, valid
			before.Volume = "vol-0"
			tt.change(&rel, &w.holder)
			for _, r := range []record.Release{before, rel} {
				if _, err := w.store.ReleaseVolume(t.Context(), "n1", r); err != nil {
					t.Fatal(err)
				}
			}
			if allowed, note := w.judge(Releases(w.records())); allowed != tt.want {
				t.Fatalf("publish elsewhere allowed: %v (%s)", allowed, note)
			}
		})
	}
}

// release of the holder's volume, as `csi-fencepost release pv` binds it.
func release(life record.Life) record.Release {
	rel := record.Release{Volume: volume, Driver: driver, NodeID: "id1", NodeUID: "u1", BootID: "b1", Life: life, Token: "tok", By: "ann", Reason: "checked"}
	if life == record.Silent {
		rel.LeaseRV = "70"
	}
	return rel
}

func TestAReleaseEndsForGoodByWhatWasSeenSince(t *testing.T) {
	for _, c := range []struct {
		name   string
		life   record.Life
		change func(w *world)
		void   string
	}{
		{"silent", record.Silent, func(*world) {}, ""},
		{"silent, and lists it for ever", record.Silent, func(w *world) { w.unlisted = false }, ""},
		{"silent, renewed its lease", record.Silent, func(w *world) { w.leaseRV = "71" }, fence.VoidLeaseChanged},
		{"silent, lease read before the release", record.Silent, func(w *world) { w.leaseRV = "69" }, ""},
		{"silent, booted", record.Silent, func(w *world) { w.node = machine("u1", "b2", "51") }, fence.VoidBootChanged},
		{"silent, its Node and lease deleted", record.Silent, func(w *world) { w.node, w.leaseRV = nil, "" }, fence.VoidNodeGone},
		{"living", record.Living, func(*world) {}, ""},
		{"living, renews its lease", record.Living, func(w *world) { w.leaseRV = "99" }, ""},
		{"living, lists it", record.Living, func(w *world) { w.unlisted = false }, fence.VoidListedSince},
		{"living, booted", record.Living, func(w *world) { w.node = machine("u1", "b2", "51") }, fence.VoidBootChanged},
		{"living, its Node deleted", record.Living, func(w *world) { w.node, w.leaseRV = nil, "" }, fence.VoidNodeGone},
		{"living, attached", record.Living, func(w *world) { w.holder.Attachment = &fence.Attachment{UID: "va"} }, fence.VoidAttachedSince},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.unlisted = true
			if _, err := w.store.ReleaseVolume(t.Context(), "n1", release(c.life)); err != nil {
				t.Fatal(err)
			}
			before := *w
			c.change(w)
			found := w.ask(Releases(w.records()))
			if len(found) != 1 || found[0].Void != c.void {
				t.Fatalf("evidence %+v, want it void: %q", found, c.void)
			}
			// What ended it is over, as a partition that healed and came again.
			before.node, before.leaseRV = machine("u1", "b1", "52"), "70"
			if got := before.ask(Releases(w.records())); got[0].Void != c.void {
				t.Errorf("later: %q, want it void: %q", got[0].Void, c.void)
			}
			if c.void != "" && w.actions() != "ReleaseVolume VoidRelease" {
				t.Errorf("audited: %s", w.actions())
			}
		})
	}
}

// The record is written by the sidecars of all drivers.
func TestWhatNobodyVouchesForIsNoPersonsWord(t *testing.T) {
	w := newWorld(t)
	forge := func(change func(r *record.Record)) {
		t.Helper()
		if _, err := w.store.Update(t.Context(), "n1", func(r *record.Record) (bool, error) { change(r); return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	word := release(record.Silent)
	word.ID = "r1"
	forge(func(r *record.Record) { r.AddRelease(word) })
	w.expect(Releases(w.records()), true, "")
	forge(func(r *record.Record) { r.Releases[0].ID = "r2" })
	before := w.server.Writes()
	w.expect(Releases(w.records()), false, fence.VoidUnclaimed)

	off := record.Confirmation{ID: "c1", By: "ann", Reason: "unplugged", Machines: []record.Machine{{NodeUID: "u1", BootID: "b1", LeaseRV: w.question().LeaseRV}}}
	if n := w.server.Writes() - before; n != 0 {
		t.Errorf("it is written down as void, %d times: it is not ours to end", n)
	}
	forge(func(r *record.Record) { r.AddConfirmation(off) })
	w.expect(Confirmations(w.records()), true, "")
	forge(func(r *record.Record) { r.Confirmations[0].ID = "c2" })
	before = w.server.Writes()
	w.expect(Confirmations(w.records()), false, fence.VoidUnclaimed)
	if n := w.server.Writes() - before; n != 0 {
		t.Errorf("it is written down as void, %d times", n)
	}
}

func TestAReleaseOfAnOlderVersionCountsForNobody(t *testing.T) {
	w := newWorld(t)
	if _, err := w.store.Update(t.Context(), "n1", func(r *record.Record) (bool, error) {
		old := release("")
		old.ID, old.BootID = "old", ""
		r.Releases = append(r.Releases, old)
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	w.expect(Releases(w.records()), false, fence.VoidOlderVersion)
}

func TestAReleaseWhoseVoidingCannotBeWrittenIsAnError(t *testing.T) {
	w := newWorld(t)
	if _, err := w.store.ReleaseVolume(t.Context(), "n1", release(record.Silent)); err != nil {
		t.Fatal(err)
	}
	w.leaseRV = "71"
	w.server.Forbid("update")
	if found, err := Releases(w.records()).Evidence(t.Context(), w.question()); !apierrors.IsForbidden(err) || found != nil {
		t.Fatalf("got %+v, %v", found, err)
	}
}

func TestWithoutARecordThereAreNoClaims(t *testing.T) {
	w := newWorld(t)
	for _, s := range []Source{Confirmations(w.records()), Releases(w.records())} {
		if found := w.ask(s); found != nil {
			t.Errorf("%s: %+v", s.Name(), found)
		}
	}
}

func TestADeletedNodeIsEvidenceOnlyWithoutNodeAndLease(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world)
		want   bool
	}{
		{"Node and lease are gone", func(w *world) { w.node, w.leaseRV = nil, "" }, true},
		{"the lease is left", func(w *world) { w.node = nil }, false},
		{"the Node is there", func(w *world) { w.leaseRV = "" }, false},
		{"a new machine has the name", func(w *world) { w.node, w.leaseRV = machine("u2", "b2", "60"), "" }, false},
		{"the node's name is not known", func(w *world) { w.node, w.leaseRV, w.holder.NodeName = nil, "", "" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			found := w.ask(NodeDeleted{})
			if (len(found) == 1) != tt.want {
				t.Fatalf("evidence %+v", found)
			}
			if tt.want && (found[0].NodeUID != "u1" || found[0].NodeID != "id1" || found[0].Kind != fence.NodeDeleted) {
				t.Fatalf("evidence %+v", found)
			}
			w.expect(NodeDeleted{}, tt.want, "")
		})
	}
}

func TestEachSourceHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range []Source{OutOfServiceTaint(Records{}), CloudShutdownTaint(Records{}), Confirmations(Records{}), Releases(Records{}), NodeDeleted{}} {
		if s.Name() == "" || seen[s.Name()] {
			t.Errorf("name %q", s.Name())
		}
		seen[s.Name()] = true
	}
}
