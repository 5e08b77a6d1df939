package failover

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// recorded is a record's fence of one machine, by which it is known in the tests.
func recorded(kind fence.Kind, driver string, phase record.Phase, uid, boot string) record.Fence {
	return record.Fence{ID: uid + "/" + boot, Kind: kind, Driver: driver, Phase: phase, Machine: record.FencedMachine{NodeUID: uid, BootID: boot, LeaseRV: "5"}}
}

func lifting(f record.Fence) record.Fence {
	f.Lift("booted")
	return f
}

func TestTheFenceThatAPassIsAbout(t *testing.T) {
	power := func(phase record.Phase, uid, boot string) record.Fence {
		return recorded(fence.PowerReading, "", phase, uid, boot)
	}
	storage := func(driver string, phase record.Phase, uid, boot string) record.Fence {
		return recorded(fence.StorageFence, driver, phase, uid, boot)
	}
	const fenced, void = record.Fenced, record.Void
	// The Node is uid-1 in boot-1.
	for name, c := range map[string]struct {
		fences []record.Fence
		want   string // the ID of the fence; empty: none
	}{
		"none":                             {nil, ""},
		"under way proves nothing":         {[]record.Fence{power(record.Fencing, "uid-1", "boot-1")}, ""},
		"failed proves nothing":            {[]record.Fence{power(record.Failed, "uid-1", "boot-1")}, ""},
		"storage under way proves nothing": {[]record.Fence{storage("d", record.Fencing, "uid-1", "boot-1")}, ""},
		"storage that is cut anew while it is being lifted is still to be lifted": {
			[]record.Fence{lifting(storage("d", record.Fencing, "uid-1", "boot-1"))}, "uid-1/boot-1"},
		"power":                                           {[]record.Fence{power(fenced, "uid-1", "boot-1")}, "uid-1/boot-1"},
		"power of an earlier boot":                        {[]record.Fence{power(fenced, "uid-1", "boot-0")}, "uid-1/boot-0"},
		"power before storage":                            {[]record.Fence{storage("d", fenced, "uid-1", "boot-0"), power(fenced, "uid-1", "boot-1")}, "uid-1/boot-1"},
		"storage once the power fence is void":            {[]record.Fence{storage("d", fenced, "uid-1", "boot-1"), power(void, "uid-1", "boot-0")}, "uid-1/boot-1"},
		"another driver's storage is not ours":            {[]record.Fence{storage("other", fenced, "uid-1", "boot-1")}, ""},
		"a void one says nothing of a later fence's boot": {[]record.Fence{power(void, "uid-1", "boot-0")}, ""},
		"a lifted one is over":                            {[]record.Fence{storage("d", record.Lifted, "uid-1", "boot-1")}, ""},
		"power of a machine that another Node replaced":   {[]record.Fence{power(fenced, "uid-0", "boot-0")}, ""},
		"nor of one whose boot nobody knew":               {[]record.Fence{power(fenced, "uid-0", "")}, ""},
		"power of the machine itself, registered anew":    {[]record.Fence{power(fenced, "uid-0", "boot-1")}, "uid-0/boot-1"},
		"the new machine's storage fence before the power fence of the old": {
			[]record.Fence{power(fenced, "uid-0", "boot-0"), storage("d", fenced, "uid-1", "boot-1")}, "uid-1/boot-1"},
		"a storage fence may cut off whatever has the name": {[]record.Fence{storage("d", fenced, "uid-0", "boot-0")}, "uid-0/boot-0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := about(fencer.Standing(&record.Record{Node: "n1", Fences: c.fences}, "d"), aNode("boot-1", corev1.ConditionTrue))
			switch {
			case c.want == "" && got != nil:
				t.Errorf("got %+v, want none", got)
			case c.want != "" && (got == nil || got.NodeUID+"/"+got.BootID != c.want):
				t.Errorf("got %+v, want fence %s", got, c.want)
			}
		})
	}
	if fencer.Standing(nil, "d") != nil {
		t.Error("a node without a record has a fence")
	}
	gone := record.Record{Node: "n1", Fences: []record.Fence{power(fenced, "uid-0", "boot-0")}}
	if about(fencer.Standing(&gone, "d"), nil) == nil {
		t.Error("where there is no Node, its fence is not over")
	}
}

// A node that came back as another Node object would be looked at for ever.
func TestAPowerFenceOfAMachineThatIsGoneGivesNoWork(t *testing.T) {
	for name, c := range map[string]struct {
		fence fencer.Fence
		work  bool
	}{
		"of a machine that is gone":                   {fencer.Fence{Node: "n1", NodeUID: "uid-0", BootID: "boot-0", Kind: fence.PowerReading}, false},
		"of the machine itself":                       {fencer.Fence{Node: "n1", NodeUID: "uid-1", BootID: "boot-0", Kind: fence.PowerReading}, true},
		"of the machine itself, registered anew":      {fencer.Fence{Node: "n1", NodeUID: "uid-0", BootID: "boot-1", Kind: fence.PowerReading}, true},
		"a storage fence of the machine that is gone": {fencer.Fence{Node: "n1", NodeUID: "uid-0", BootID: "boot-0", Kind: fence.StorageFence}, true},
	} {
		t.Run(name, func(t *testing.T) {
			known := &scripted{records: map[string]fencer.Fence{"n1": c.fence}}
			live := New(Options{Fencer: known, Lives: observe.NewTracker(time.Minute, 1)})
			if !live.listFences(t.Context()) {
				t.Fatal("the fences could not be listed")
			}
			if got := live.interesting(aNode("boot-1", corev1.ConditionTrue), false); got != c.work {
				t.Errorf("work: %v, want %v", got, c.work)
			}
		})
	}
}

func TestAFenceThatIsBeingLiftedProvesNothing(t *testing.T) {
	for _, f := range []record.Fence{{Phase: record.Fenced}, {Phase: record.Lifting}, {Phase: record.Refencing}} {
		f.Kind, f.Driver, f.Machine = fence.StorageFence, "d", record.FencedMachine{NodeUID: "u1", BootID: "b1"}
		about := fencer.Standing(&record.Record{Node: "n1", Fences: []record.Fence{f}}, "d")
		if len(about) != 1 {
			t.Fatalf("%+v: %+v", f, about)
		}
		e := agentEvidence(&state{Fence: &about[0]}, &fence.Holder{NodeName: "n1"})
		if len(e) != 1 || (e[0].Void == fence.VoidLifting) != (f.Phase != record.Fenced) {
			t.Errorf("%s: %+v", f.Phase, e)
		}
	}
}

// Nobody evicts a pod from a node that lives because an address is cut off that it alone says is its.
func TestTheNodesOwnWordIsNoMoreForWhoFences(t *testing.T) {
	f := record.Fence{Kind: fence.StorageFence, Driver: "d", Phase: record.Fenced, Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1"}}
	for name, c := range map[string]struct {
		record, answer, want bool
	}{
		"nobody says so":    {false, false, false},
		"in the record":     {true, false, true},
		"as it is read now": {false, true, true},
	} {
		f.OwnWord = c.record
		about := fencer.Standing(&record.Record{Node: "n1", Fences: []record.Fence{f}}, "d")
		s := &state{Fence: &about[0], Covered: true, Node: &corev1.Node{}, Answer: &fencer.Answer{State: agent.Off, Kind: fence.StorageFence, OwnWord: c.answer}}
		if e := agentEvidence(s, &fence.Holder{NodeName: "n1"}); len(e) != 1 || e[0].OwnWord != c.want {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
