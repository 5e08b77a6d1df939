package record_test

import (
	"testing"

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
	if n, err := s.WithdrawOverrides(t.Context(), "n1", "bob", "it works again"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r = get(t, s, "n1")
	if r.Overridden("bmc", now) {
		t.Error("it still counts")
	}
	audited(t, r, "OverrideAgent", "OverrideAgent", "WithdrawOverride")
}
