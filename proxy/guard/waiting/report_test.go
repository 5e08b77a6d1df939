package waiting

import (
	"fmt"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

func TestWhatIsSaidAboutACallIsNewsOnce(t *testing.T) {
	r := NewReport(nil, nil, nil, nil)
	refused := guard.Decision{Call: guard.CallPublish, Volume: "v", NodeID: "n", Reason: fence.HolderAlive, Text: "the old node lives"}
	other, moved, allowed := refused, refused, guard.Decision{Call: guard.CallPublish, Volume: "v", NodeID: "n"}
	other.Text = "the old node is silent"
	moved.NodeID = "m"
	for i, step := range []struct {
		d    guard.Decision
		news bool
	}{
		{allowed, false}, {refused, true}, {refused, false}, {moved, true}, {other, true}, {other, false}, {refused, true},
		{allowed, true}, {allowed, false}, {refused, true}, {moved, false},
	} {
		if got := r.news(step.d); got != step.news {
			t.Errorf("step %d: news %v, want %v", i, got, step.news)
		}
	}
}

// A volume that is deleted while its call is refused is never let through.
func TestRefusalsOfDeletedVolumesAreForgotten(t *testing.T) {
	r := NewReport(nil, nil, nil, nil)
	refused := func(i int) guard.Decision {
		return guard.Decision{Call: guard.CallPublish, Volume: fmt.Sprint("v", i), NodeID: "n", Reason: fence.HolderAlive, Text: "the old node lives"}
	}
	for i := range 3 * remembered {
		r.news(refused(i))
	}
	if n := r.said.Len(); n != remembered {
		t.Errorf("%d calls are remembered, want %d", n, remembered)
	}
	if r.news(refused(3*remembered - 1)) {
		t.Error("the last refusal is news again")
	}
}
