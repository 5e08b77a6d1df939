package operate

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

func TestWithdrawSaysWhatBecomesOfAFenceThatIsBeingLifted(t *testing.T) {
	for phase, want := range map[record.Phase][]string{
		record.Fenced:  {"To give its access back: csi-fencepost fence on n1 --reason TEXT\n"},
		record.Lifting: {"If the node lives", "csi-fencepost fence on n1 --reason TEXT\n", "If it has died", "csi-fencepost fence off n1 --reason TEXT\n"},
	} {
		store := record.NewStore(leasetest.New(t, "ns").Client().CoordinationV1(), "ns")
		if _, err := store.Update(t.Context(), "n1", func(r *record.Record) (bool, error) {
			r.PutFence(record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: clitest.Driver, Phase: phase, Actor: "sidecar",
				Machine: record.FencedMachine{NodeUID: "u1"}}, "Fenced")
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		w := &withdrawal{store: store, node: "n1", by: "ann", reason: "wrong"}
		var out strings.Builder
		if err := w.run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := w.print(&out); err != nil {
			t.Fatal(err)
		}
		for _, words := range want {
			if !strings.Contains(out.String(), words) {
				t.Errorf("%s: %q, want it to say %q", phase, out.String(), words)
			}
		}
		if r, err := store.Get(t.Context(), "n1"); err != nil || !r.FenceByID("f1").Withdrawn() {
			t.Errorf("%s: %+v, %v", phase, r, err)
		}
	}
}
