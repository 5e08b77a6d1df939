package sidecar

import (
	"fmt"
	"slices"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/statusz"
)

// Where there are more nodes than are shown, each of those that are left out
// would cost a look into every ledger: the order is known without.
func TestTheMostUrgentNodesComeFirstBeforeAnyLedgerIsLookedInto(t *testing.T) {
	seen := newSeen(nil) // without an index: it would panic
	for i := range 300 {
		n := seen.add(fmt.Sprintf("gone-%03d", i))
		n.record = &noderecord.Record{Node: n.name}
	}
	seen.add("z-suspected").exists, seen.add("z-suspected").suspect = true, true
	seen.add("z-alive").exists, seen.add("z-alive").ready = true, true
	seen.add("z-gone-attached").attached = true
	seen.add("z-gone-in-work").failover = &failover.Status{}
	fenced := noderecord.New("z-fenced")
	fenced.PutFence(noderecord.Fence{ID: "f", Phase: noderecord.Fenced, Kind: fence.PowerReading}, "Fenced")
	seen.add("z-fenced").record = fenced
	var got []string
	for _, n := range seen.all() {
		got = append(got, n.name)
	}
	want := []string{"z-suspected", "z-gone-attached", "z-gone-in-work", "z-fenced", "z-alive", "gone-000", "gone-001"}
	if len(got) != 305 || !slices.Equal(got[:len(want)], want) {
		t.Errorf("got %v of %d, want %v first", got[:len(want)], len(got), want)
	}
}

// Each node has a record where its machine is bound, and names that are gone have one for long.
func TestANodeOfWhichOnlyTheMachineIsBoundIsNotShown(t *testing.T) {
	bound, fenced := noderecord.New("bound"), noderecord.New("fenced")
	for _, r := range []*noderecord.Record{bound, fenced} {
		r.Bind("u1", []noderecord.Identifier{{Kind: noderecord.ProviderID, Value: "x/1"}}, func(noderecord.Identifier) noderecord.IdentityClaim { return noderecord.IdentityClaim{} })
	}
	fenced.PutFence(noderecord.Fence{ID: "f", Phase: noderecord.Fenced, Kind: fence.PowerReading}, "Fenced")
	seen := newSeen(nil)
	seen.addClaimed([]*noderecord.Record{bound, fenced})
	if all := seen.all(); len(all) != 1 || all[0].record != fenced {
		t.Errorf("shown are %v", all)
	}
}

func TestANodeThatIsGivenItsAccessBackIsNotShownAsFenced(t *testing.T) {
	f := noderecord.Fence{Phase: noderecord.Lifting, Kind: fence.StorageFence, Driver: "d", Reason: "silent", LiftReason: "booted"}
	n := &seenNode{record: &noderecord.Record{Fences: []noderecord.Fence{f}}}
	e := evidenceViews(n.record)[0]
	if n.state() != statusz.Lifting || e.Phase != "Lifting" || e.Why != fence.VoidLifting+" (booted)" {
		t.Errorf("state %s, evidence %+v", n.state(), e)
	}
	if urgency(&statusz.Node{State: statusz.Lifting}) < 0 || phaseRank("Lifting") < 0 {
		t.Error("it has no place among the others")
	}
	n.record.Fences[0].Phase = noderecord.Refencing
	if e := evidenceViews(n.record)[0]; n.state() != statusz.Fencing || e.Phase != "Fencing" {
		t.Errorf("while it is cut anew: state %s, evidence %+v", n.state(), e)
	}
	f.Phase = noderecord.Fenced
	n.record = noderecord.New("n")
	n.record.PutFence(f, "Fenced")
	if e := evidenceViews(n.record)[0]; n.state() != statusz.StorageFenced || e.Phase != "Counts" || e.Why != "silent" {
		t.Errorf("once it is cut anew: state %s, evidence %+v", n.state(), e)
	}
}

func TestAFenceThatNobodyVouchesForIsNotShownAsOne(t *testing.T) {
	n := &seenNode{record: &noderecord.Record{Fences: []noderecord.Fence{{Phase: noderecord.Fenced, Kind: fence.PowerReading, Reason: "silent"}}}}
	if e := evidenceViews(n.record)[0]; n.state() != statusz.Gone || e.Phase != "Void" || e.Why != fence.VoidUnvouched {
		t.Errorf("state %s, evidence %+v", n.state(), e)
	}
}

func TestWhoWroteATaintIsShownWithIt(t *testing.T) {
	for writer, want := range map[string]string{"": "k=v", "kubectl\n-taint": `k=v, the taints were last written by "kubectl\n-taint"`} {
		r := &noderecord.Record{Taints: map[string]noderecord.TaintBinding{"k": {NodeUID: "u1", Value: "v", Writer: writer}}}
		if e := evidenceViews(r); len(e) != 1 || e[0].Detail != want {
			t.Errorf("by %q: %+v, want %s", writer, e, want)
		}
	}
}
