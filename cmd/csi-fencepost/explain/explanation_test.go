package explain

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Of a fence at an address that nobody but the Node says explain tells that it does not count while the node
// shows life; of a silent one that is gone by for another reason, that it shows life it does not say.
func TestAFenceAtAnAddressThatOnlyTheNodeSaysIsVoidWhileItMayLive(t *testing.T) {
	h := func(l fence.Liveness, s fence.State) fence.Holder {
		return fence.Holder{NodeID: "id-1", NodeName: "n1", NodeUID: "uid-1", BootID: "boot-1", SystemUUID: "uuid-1", State: s, Liveness: l, LeaseRV: "7",
			Sources: []fence.Source{fence.FromLedger}, Node: &fence.Node{UID: "uid-1", BootID: "boot-1", NodeID: "id-1", SystemUUID: "uuid-1", Ready: l == fence.Alive, InUse: s == fence.Held}}
	}
	e := fence.Evidence{Kind: fence.StorageFence, OwnWord: true, NodeUID: "uid-1", BootID: "boot-1", SystemUUID: "uuid-1", LeaseRV: "7"}
	for name, c := range map[string]struct {
		holder fence.Holder
		counts bool
		says   bool // that the node shows life
	}{
		"a node that lives":           {h(fence.Alive, fence.Held), false, true},
		"one that was not watched":    {h(fence.Unwatched, fence.Held), false, true},
		"a silent one":                {h(fence.Stale, fence.Held), true, false},
		"a silent one, taken over":    {h(fence.Stale, fence.TakenOver), false, false},
		"one that lives, taken over":  {h(fence.Alive, fence.TakenOver), false, true},
		"one without a lease, silent": {h(fence.Unknown, fence.Held), true, false},
	} {
		v := viewEvidence(&fence.Snapshot{}, c.holder, e)
		if v.Counts != c.counts || (v.Why == fence.VoidOwnWord) != c.says {
			t.Errorf("%s: counts: %t, %q", name, v.Counts, v.Why)
		}
	}
}
