package record

import (
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// A release says what was known of the machine's life when it was given: it counts only as long as
// that holds.
func TestAReleaseIsBoundToTheLifeOfItsMachine(t *testing.T) {
	deleting := &fence.Attachment{UID: "va", DeletedAt: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		liveness fence.Liveness
		there    bool
		a        *fence.Attachment
		want     Release
	}{
		"alive":                             {fence.Alive, true, nil, Release{Life: Living, BootID: "now"}},
		"alive, and the volume is detached": {fence.Alive, true, deleting, Release{Life: Living, BootID: "now", Attachment: "va"}},
		"not watched yet":                   {fence.Unwatched, true, nil, Release{Life: Living, BootID: "now"}},
		"silent":                            {fence.Stale, true, deleting, Release{Life: Silent, BootID: "now", LeaseRV: "7"}},
		"nobody can tell":                   {fence.Unknown, true, nil, Release{Life: Silent, BootID: "now", LeaseRV: "7"}},
		"its Node is gone":                  {fence.Stale, false, deleting, Release{Life: Gone, BootID: "then"}},
	} {
		h := &fence.Holder{NodeName: "n1", NodeUID: "u1", NodeID: "i1", BootID: "then", Token: "t1", Liveness: c.liveness, LeaseRV: "7", Attachment: c.a}
		if c.there {
			h.Node = &fence.Node{UID: "u1", BootID: "now"}
		}
		c.want.NodeID, c.want.NodeUID, c.want.Token = "i1", "u1", "t1"
		got := ReleaseOf(h)
		if got.Life != c.want.Life || got.BootID != c.want.BootID || got.LeaseRV != c.want.LeaseRV || got.Attachment != c.want.Attachment || got.NodeID != "i1" || got.NodeUID != "u1" || got.Token != "t1" {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if e := got.Evidence(); e.Living != (got.Life == Living) || e.Kind != fence.VolumeRelease || e.Void != "" || e.BootID != got.BootID {
			t.Errorf("%s: evidence %+v", name, e)
		}
	}
}
