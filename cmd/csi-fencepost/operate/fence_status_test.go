package operate

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

func TestAFenceThatFailedLastIsToldInShort(t *testing.T) {
	failed := record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: clitest.Driver, Phase: record.Failed, EndedAt: "2025-11-21T08:00:00Z",
		Why: "agent array did not cut it off: a fence would also cut off node n2"}
	r := &record.Record{Node: "n1", Fences: []record.Fence{failed}}
	const words = "fencing it failed at 2025-11-21T08:00:00Z: agent array did not cut it off: a fence would also cut off node n2"
	if got := cluster.RecordWords(r); got != words {
		t.Errorf("got %q, want %q", got, words)
	}
	fenced := failed
	fenced.ID, fenced.Phase = "f2", record.Fenced
	r.PutFence(fenced, "Fenced")
	if got, want := cluster.RecordWords(r), cluster.FenceWords(&fenced); got != want {
		t.Errorf("once it is fenced: got %q, want %q", got, want)
	}
}

func TestAFenceThatNobodyVouchesForIsSaidToProveNothing(t *testing.T) {
	f := record.Fence{ID: "f1", Kind: fence.PowerReading, Phase: record.Fenced, Actor: "sidecar", Machine: record.FencedMachine{NodeUID: "u1"}}
	r := &record.Record{Node: "n1", Fences: []record.Fence{f}}
	if row := strings.Join(claimRows([]*record.Record{r})[0], "|"); !strings.Contains(row, "no: "+fence.VoidUnvouched) {
		t.Errorf("got %q", row)
	}
	if got, want := cluster.RecordWords(r), "fenced (power) by sidecar, for which nobody vouches"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	now := &cluster.Node{Name: "n1", Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}}
	if e := explain.NodeEvidence(r, now); len(e) != 1 || e[0].Counts || e[0].Why != fence.VoidUnvouched {
		t.Errorf("explained as %+v", e)
	}
	r.PutFence(f, "Fenced")
	if row := strings.Join(claimRows([]*record.Record{r})[0], "|"); !strings.Contains(row, "yes") {
		t.Errorf("once somebody vouches: %q", row)
	}
	if got, want := cluster.RecordWords(r), "fenced (power) by sidecar"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFenceThatIsBeingLiftedIsSaidToProveNothing(t *testing.T) {
	for _, tt := range []struct {
		phase record.Phase
		words string
	}{
		{record.Lifting, "being given back (storage of " + clitest.Driver + "), fenced by sidecar"},
		{record.Refencing, "being fenced (storage of " + clitest.Driver + ") by sidecar"},
	} {
		f := record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: clitest.Driver, Phase: tt.phase, Actor: "sidecar", LiftReason: "repaired"}
		row := strings.Join(claimRows([]*record.Record{{Node: "n1", Fences: []record.Fence{f}}})[0], "|")
		if want := "no: " + fence.VoidLifting + " (repaired)"; !strings.Contains(row, want) || !strings.Contains(row, tt.words) {
			t.Errorf("got %q, want %q and %q in it", row, want, tt.words)
		}
		now := &cluster.Node{Name: "n1", Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}}
		f.Machine.NodeUID = "u1"
		if e := explain.NodeEvidence(&record.Record{Node: "n1", Fences: []record.Fence{f}}, now); len(e) != 1 || e[0].Counts || e[0].Why != fence.VoidLifting {
			t.Errorf("explained as %+v", e)
		}
		if got := cluster.RecordWords(&record.Record{Node: "n1", Fences: []record.Fence{f}}); got != tt.words {
			t.Errorf("got %q, want %q", got, tt.words)
		}
	}
	f := record.Fence{Kind: fence.StorageFence, Driver: clitest.Driver, Phase: record.Fenced, Actor: "sidecar"}
	r := record.New("n1")
	r.PutFence(f, "Fenced")
	if got := fenceCounts(r, &f); !strings.HasPrefix(got, "yes") {
		t.Errorf("of one that nobody lifts: %q", got)
	}
	f.Phase, f.LiftReason, f.Why = record.Lifted, "", "booted"
	if got := fenceCounts(record.New("n1"), &f); got != "no: booted" {
		t.Errorf("of one that is lifted: %q", got)
	}
}

// One that nobody came to an end with keeps the node's volumes away until it is lifted.
func TestAFenceThatIsStillToBeLiftedCanBeWithdrawn(t *testing.T) {
	for phase, want := range map[record.Phase]record.Phase{record.Refencing: record.Void, record.Fencing: record.Fencing} {
		store := record.NewStore(leasetest.New(t, "ns").Client().CoordinationV1(), "ns")
		if _, err := store.Update(t.Context(), "n1", func(r *record.Record) (bool, error) {
			r.PutFence(record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: clitest.Driver, Phase: phase, Actor: "sidecar",
				Machine: record.FencedMachine{NodeUID: "u1"}}, "Fence")
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		w := &withdrawal{store: store, node: "n1", by: "ann", reason: "wrong"}
		if err := w.run(t.Context(), []string{"f1"}); err != nil {
			t.Fatal(err)
		}
		if r, err := store.Get(t.Context(), "n1"); err != nil || r.FenceByID("f1").Phase != want {
			t.Errorf("%s: %+v, %v, want it %s", phase, r, err, want)
		}
	}
}

// Names that come and go leave records of what their machines were known by: no agent is
// asked for those.
func TestANameOfWhichNothingIsClaimedIsNotAskedFor(t *testing.T) {
	known, noted := record.New("gone"), record.New("noted")
	known.Bind("u1", []record.Identifier{{Kind: record.ProviderID, Value: "x/1"}}, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} })
	noted.Note("a", "Test", "x")
	s := &fenceStatus{Records: []*record.Record{known, noted}}
	if names := s.nodes(&cluster.Machines{}, ""); !slices.Equal(names, []string{"noted"}) {
		t.Error(names)
	}
}
