package record

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

func TestAccessThatWasCutStandsUntilItIsGivenBackAsAWhole(t *testing.T) {
	for phase, want := range map[Phase]bool{
		Fencing: false, Fenced: true, Lifting: true, Refencing: true, Failed: false, Void: false, Lifted: false,
	} {
		if got := (&Fence{Phase: phase}).Standing(); got != want {
			t.Errorf("%s: %v", phase, got)
		}
	}
}

func TestOnlyAFenceThatIsVoidAndWasTakenBackIsWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		fence Fence
		want  bool
	}{
		"taken back":              {Fence{Phase: Void, Ending: Withdrawn, Why: "withdrawn: wrong"}, true},
		"the node was seen alive": {Fence{Phase: Void, Why: "it renewed its lease"}, false},
		"power was given back":    {Fence{Phase: Void, Ending: PowerGivenBack}, false},
		"open since":              {Fence{Phase: Lifted, Ending: Withdrawn}, false},
	} {
		if got := c.fence.Withdrawn(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheLastPowerFenceIsTheOneThatWasMadeLastWhateverBecameOfIt(t *testing.T) {
	power := func(id string, phase Phase) Fence { return Fence{ID: id, Kind: fence.PowerReading, Phase: phase} }
	storage := Fence{ID: "storage", Kind: fence.StorageFence, Phase: Fenced}
	for name, c := range map[string]struct {
		fences []Fence
		want   string
	}{
		"none":             {nil, ""},
		"storage alone":    {[]Fence{storage}, ""},
		"the only one":     {[]Fence{power("a", Void)}, "a"},
		"the newer":        {[]Fence{power("a", Fenced), power("b", Void)}, "b"},
		"before another's": {[]Fence{power("a", Void), storage}, "a"},
	} {
		got := ""
		if f := (&Record{Fences: c.fences}).LastPowerFence(); f != nil {
			got = f.ID
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
