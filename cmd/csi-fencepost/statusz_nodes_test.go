package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Where there are more nodes than are shown, each of those that are left out
// would cost a look into every ledger: the order is known without.
func TestTheMostUrgentNodesComeFirstBeforeAnyLedgerIsLookedInto(t *testing.T) {
	seen := newSeen(0, nil) // without an index: it would panic
	for i := range 300 {
		n := seen.add(fmt.Sprintf("gone-%03d", i))
		n.record = &noderecord.Record{Node: n.name}
	}
	seen.add("z-suspected").exists, seen.add("z-suspected").suspect = true, true
	seen.add("z-alive").exists, seen.add("z-alive").ready = true, true
	seen.add("z-gone-attached").attached = true
	seen.add("z-gone-in-work").failover = &failover.Status{}
	seen.add("z-fenced").record = &noderecord.Record{Fences: []noderecord.Fence{{Phase: noderecord.Fenced, Kind: fence.PowerReading}}}
	var got []string
	for _, n := range seen.all() {
		got = append(got, n.name)
	}
	want := []string{"z-suspected", "z-gone-attached", "z-gone-in-work", "z-fenced", "z-alive", "gone-000", "gone-001"}
	if len(got) != 305 || !slices.Equal(got[:len(want)], want) {
		t.Errorf("got %v of %d, want %v first", got[:len(want)], len(got), want)
	}
}
