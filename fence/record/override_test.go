package record_test

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func TestAnOverrideIsAboutOneAgentAndOneMachineAndIsAudited(t *testing.T) {
	_, s := serve(t)
	machine := record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "5"}
	now := record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "5"}
	if _, err := s.OverrideAgent(t.Context(), "n1", record.Override{Agent: "bmc", By: "ann", Machine: machine}); err == nil {
		t.Error("taken without a reason")
	}
	for _, id := range []string{"o1", "o1", "o2"} {
		if _, err := s.OverrideAgent(t.Context(), "n1", record.Override{ID: id, Agent: "bmc", By: "ann", Reason: "broken", Machine: machine}); err != nil {
			t.Fatal(err)
		}
	}
	r := get(t, s, "n1")
	if len(r.Overrides) != 1 || !r.Overridden("bmc", now) || r.Overridden("pdu", now) {
		t.Fatalf("overrides %+v", r.Overrides)
	}
	for _, other := range []record.FencedMachine{
		{NodeUID: "u2", BootID: "b1", LeaseRV: "5"}, {NodeUID: "u1", BootID: "b2", LeaseRV: "5"}, {NodeUID: "u1", BootID: "b1", LeaseRV: "6"},
	} {
		if r.Overridden("bmc", other) {
			t.Errorf("it counts for %+v", other)
		}
	}
	id, err := s.OverrideAgent(t.Context(), "n1", record.Override{Agent: "pdu", By: "ann", Reason: "broken too", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "5", Void: "x"}})
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	r = get(t, s, "n1")
	if o := r.OverrideOf("pdu", now); o == nil || o.ID != id || o.At == "" || !r.Overridden("bmc", now) {
		t.Fatalf("overrides %+v", r.Overrides)
	}
	for _, o := range []struct{ by, reason string }{{"", "it works again"}, {"bob", ""}} {
		if n, err := s.WithdrawOverrides(t.Context(), "n1", o.by, o.reason); n != 0 || err == nil {
			t.Errorf("withdrawn by %q because of %q: %d, %v", o.by, o.reason, n, err)
		}
	}
	for _, want := range []int{2, 0} {
		if n, err := s.WithdrawOverrides(t.Context(), "n1", "bob", "it works again"); n != want || err != nil {
			t.Fatal(n, err)
		}
	}
	r = get(t, s, "n1")
	if r.Overridden("bmc", now) || r.Overridden("pdu", now) {
		t.Error("it still counts")
	}
	audited(t, r, "OverrideAgent", "OverrideAgent", "OverrideAgent", "WithdrawOverride", "WithdrawOverride")
	for i, want := range []string{`o1: agent bmc, node UID u1, boot ID "b1", lease "5": broken`, `o2: agent bmc, `, id + ": agent pdu, ", "o2: agent bmc: it works again", id + ": agent pdu: it works again"} {
		if got := r.Audit[i].Detail; !strings.HasPrefix(got, want) {
			t.Errorf("entry %d says %s, want %s", i, got, want)
		}
	}
}

func TestAVoidOverrideDoesNotCount(t *testing.T) {
	machine := record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "5"}
	r := record.New("n1")
	r.AddOverride(record.Override{ID: "o1", Agent: "bmc", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "5", Void: "renewed"}})
	if r.Overridden("bmc", machine) {
		t.Error("it counts")
	}
	r.Overrides[0].Machine.Void = ""
	if r.Overridden("bmc", machine) {
		t.Error("what has ended is taken up again, and nobody vouches for it")
	}
	r = record.New("n1")
	r.AddOverride(record.Override{ID: "o1", Agent: "bmc", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "5"}})
	forged := record.New("n1")
	forged.Overrides = r.Overrides
	if forged.Overridden("bmc", machine) {
		t.Error("one that nobody vouches for counts")
	}
	if !r.Overridden("bmc", machine) {
		t.Error("the one that is not void does not count either")
	}
}

func TestWithoutARecordNothingIsClaimed(t *testing.T) {
	var r *record.Record
	if r.Overridden("bmc", record.FencedMachine{}) || r.Fence(fence.PowerReading, "") != nil || r.FenceByID("") != nil || r.StorageFenced("d") {
		t.Error("something is")
	}
}
