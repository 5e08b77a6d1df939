package evidence

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func TestARecordedFenceCountsWhereNoAgentOfOursCanBeAsked(t *testing.T) {
	for kind, others := range map[fence.Kind]*asker{fence.PowerReading: {storage: true}, fence.StorageFence: {power: true}} {
		t.Run(string(kind), func(t *testing.T) {
			q := stale(withFence(kind, "other"))
			want := fence.Evidence{Kind: kind, Source: "bmc", Detail: "recorded by other", NodeName: "n1", NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "70"}
			for name, f := range map[string]Asker{"none": nil, "none for that node": &asker{}, "none that could tell": others, "only such as read no power": &asker{only: true}} {
				if found := ask(t, Fences(f), q); len(found) != 1 || found[0] != want {
					t.Fatalf("agents: %s: evidence %+v", name, found)
				}
			}
			q.Record.Fences[0].What = "outlets 3 and 4"
			if found := ask(t, Fences(nil), q); len(found) != 1 || found[0].Detail != "outlets 3 and 4; recorded by other" {
				t.Errorf("evidence %+v does not say what was cut", found)
			}
			if found := ask(t, Fences(&asker{power: true, storage: true}), q); found != nil {
				t.Errorf("although an agent can be asked: %+v", found)
			}
			// Of a machine whose name another one has, only the record can tell.
			q.Node = machine("u2", "b2", "51")
			if found := ask(t, Fences(&asker{power: true, storage: true}), q); len(found) != 1 {
				t.Errorf("evidence of the replaced machine %+v", found)
			}
		})
	}
}

// The record is written by the sidecars of all drivers, and of the versions before.
func TestAPowerFenceThatNobodyVouchesForProvesNothing(t *testing.T) {
	r := withFence(fence.PowerReading, "other")
	r.Fences[0].Machine.LeaseRV = "71"
	q := stale(r)
	for name, f := range map[string]Asker{"none": nil, "none for that node": &asker{}} {
		found := ask(t, Fences(f), q)
		if len(found) != 1 || found[0].Void != fence.VoidUnvouched || found[0].LeaseRV != "71" {
			t.Errorf("agents: %s: %+v", name, found)
		}
	}
}

func TestAFenceThatIsNotCurrentIsNoEvidence(t *testing.T) {
	for _, phase := range []record.Phase{record.Fencing, record.Failed, record.Void, record.Lifted} {
		for _, kind := range []fence.Kind{fence.PowerReading, fence.StorageFence} {
			r := withFence(kind, "other")
			r.Fences[0].Phase = phase
			if found := ask(t, Fences(nil), stale(r)); found != nil {
				t.Errorf("%s, %s: %+v", kind, phase, found)
			}
		}
	}
	if found := ask(t, Fences(nil), stale(nil)); found != nil {
		t.Errorf("without a record: %+v", found)
	}
}

// A node that lives may have another address than the one that it alone says is its.
func TestTheNodesOwnWordIsSaidToBeThat(t *testing.T) {
	for _, own := range []bool{false, true} {
		r := withFence(fence.StorageFence, "other")
		r.Fences[0].OwnWord = own
		if found := ask(t, Fences(nil), stale(r)); len(found) != 1 || found[0].OwnWord != own {
			t.Errorf("by the record: %+v", found)
		}
		a := &asker{storage: true, answer: fencer.Answer{State: agent.Off, Kind: fence.StorageFence, Storage: agent.Off, OwnWord: own}}
		if found := ask(t, Agents(a), stale(r)); len(found) != 1 || found[0].OwnWord != own {
			t.Errorf("by the agents: %+v", found)
		}
	}
}

func TestAStorageFenceIsForItsOwnDriversVolumes(t *testing.T) {
	q := stale(withFence(fence.StorageFence, "other"))
	q.Driver = "another.example.com"
	if found := ask(t, Fences(nil), q); found != nil {
		t.Errorf("evidence %+v", found)
	}
	q.Record = withFence(fence.PowerReading, "other")
	if found := ask(t, Fences(nil), q); len(found) != 1 {
		t.Errorf("a power fence is for all drivers: %+v", found)
	}
}

func TestAFenceOfAnotherMachineIsNotTheHolders(t *testing.T) {
	q := stale(withFence(fence.PowerReading, "other"))
	q.Holder.NodeUID = "u2"
	q.Node = machine("u2", "b2", "51")
	if found := ask(t, Fences(nil), q); found != nil {
		t.Errorf("evidence %+v", found)
	}
}

func TestALivingNodeUnderAStorageFenceIsPublishedNothing(t *testing.T) {
	q := stale(withFence(fence.StorageFence, "other"))
	target := q.Holder
	target.Liveness, target.LeaseRV, target.State = fence.Alive, "71", fence.NotInLedger // it renews
	target.Evidence = ask(t, Fences(nil), q)
	if v := fence.JudgePublish(fence.Snapshot{Target: &target}, "id1"); v.Reason != fence.TargetFenced {
		t.Errorf("verdict %s %s", v.Action, v.Reason)
	}
}

func TestANodeWhoseFenceIsBeingLiftedIsPublishedNothingWhereNobodyCanTell(t *testing.T) {
	for _, phase := range []record.Phase{record.Lifting, record.Refencing} {
		q := stale(withFence(fence.StorageFence, "other"))
		q.Record.Fences[0].Phase, q.Record.Fences[0].LiftReason = phase, "booted"
		q.Holder.Liveness, q.Holder.State = fence.Alive, fence.NotInLedger // it asks for the volume
		for name, f := range map[string]Asker{"no agents": nil, "none that could tell": &asker{power: true}} {
			if found, err := Fences(f).Evidence(t.Context(), q); err == nil || !strings.Contains(err.Error(), fence.VoidLifting) {
				t.Errorf("%s, %s: evidence %+v, error %v", phase, name, found, err)
			}
		}
		if found, err := Fences(&asker{storage: true}).Evidence(t.Context(), q); found != nil || err != nil {
			t.Errorf("%s, although an agent can be asked: %+v, %v", phase, found, err)
		}
		// A holder that is gone, whose name another machine has that lives and lists the
		// volume: a person's word is heard.
		gone := q
		gone.Node = machine("u2", "b2", "51")
		gone.Holder.Liveness, gone.Holder.State, gone.Holder.Node = fence.Alive, fence.Publishing, &fence.Node{UID: "u2", BootID: "b2", InUse: true}
		if found, err := Fences(&asker{storage: true}).Evidence(t.Context(), gone); err != nil || len(found) != 1 || found[0].Void != fence.VoidLifting {
			t.Errorf("%s: of a machine that another has replaced: %+v, %v", phase, found, err)
		}
		// The machine itself: void evidence would read as a node that writes.
		gone.Node, gone.Holder.Node = machine("u1", "b1", "50"), &fence.Node{UID: "u1", BootID: "b1", InUse: true}
		if found, err := Fences(nil).Evidence(t.Context(), gone); err == nil {
			t.Errorf("%s: of a living holder: %+v", phase, found)
		}
		// A silent holder: a person's word is heard.
		q.Holder.Liveness, q.Holder.State = fence.Stale, fence.Publishing
		if found := ask(t, Fences(nil), q); len(found) != 1 || found[0].Void != fence.VoidLifting {
			t.Errorf("%s: of a holder %+v", phase, found)
		}
	}
}

func TestAPowerFenceHidesNoStorageFence(t *testing.T) {
	r := withFence(fence.PowerReading, "other")
	r.Fences = append(r.Fences, withFence(fence.StorageFence, "other").Fences...)
	if found := ask(t, Fences(nil), stale(r)); len(found) != 2 || found[0].Kind != fence.PowerReading || found[1].Kind != fence.StorageFence {
		t.Errorf("evidence %+v", found)
	}
}
