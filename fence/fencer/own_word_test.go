package fencer

import (
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// forged is a fence of n1 in its record for which nobody vouches, with the requests by which this
// driver would have made it.
func (w *world) forged(phase record.Phase, blocks ...string) {
	w.Helper()
	f := record.Fence{ID: "x", Kind: fence.StorageFence, Driver: driver, Phase: phase, Actor: "x", Agents: []string{"array"},
		Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", SystemUUID: oneSystem, LeaseRV: w.leaseRV("n1")}}
	for _, b := range blocks {
		f.What += b + " "
		f.Steps = append(f.Steps, record.FenceStep{Agent: "array", Action: "off", Detail: "fence " + b + " at driver x"})
	}
	w.put(f)
	w.unvouch()
}

// ofAnother is a fence that another driver made at the same addresses.
func (w *world) ofAnother(ownWord bool) record.Fence {
	return record.Fence{ID: "y", Kind: fence.StorageFence, Driver: "other", Phase: record.Fenced, Actor: "y", Agents: []string{"array"}, OwnWord: ownWord,
		What: "driver other lists 192.0.2.1/32, " + shared + " as fenced", Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", SystemUUID: oneSystem}}
}

// R1: whoever writes a Node's status names an address of it that somebody has cut off. What is read
// there is told from what this driver has cut, and from what somebody else says of the machine.
func TestWhetherOnlyItsNodeSaysWhoseAnAddressIsThatIsCut(t *testing.T) {
	both := []string{"192.0.2.1/32", shared}
	for name, tt := range map[string]struct {
		change  func(w *world, wall *firewall, target Target) Target
		says    agent.State
		ownWord bool // of the answer
		written bool // of the fence in the record
	}{
		"somebody else has cut it off": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			return target
		}, agent.Off, true, true},
		"so, and the Node says no address any more": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.ask(w.fencer("b"), target)
			wall.strict = true
			return w.registered("u1", "b1", oneSystem)
		}, agent.Off, true, true},
		"so, and more than the Node says whose it is": {func(w *world, wall *firewall, target Target) Target {
			wall.list, wall.ownWord = both, false
			return target
		}, agent.Off, false, false},
		"so, and that is said later": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.ask(w.fencer("b"), target)
			w.expect("the Node's word", w.fence().OwnWord, true)
			w.change(func(r *record.Record) { r.PutWitness(w.fence().ID, record.Witness{NodeUID: "u1", BootID: "b1"}) })
			wall.ownWord = false
			return target
		}, agent.Off, false, false},
		"so, and it was said once": {func(w *world, wall *firewall, target Target) Target {
			wall.list, wall.ownWord = both, false
			w.ask(w.fencer("b"), target)
			wall.ownWord = true
			return target
		}, agent.Off, false, false},
		"so, and it is to be cut": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.cut(target)
			return target
		}, agent.Off, true, true},
		"this driver has": {func(w *world, _ *firewall, target Target) Target {
			w.cut(target)
			return target
		}, agent.Off, false, false},
		"this driver has, and it says one of the addresses now": {func(w *world, _ *firewall, target Target) Target {
			w.cut(target)
			return w.registered("u1", "b1", oneSystem, "192.0.2.2")
		}, agent.Off, false, false},
		"this driver has, and it says no address any more": {func(w *world, _ *firewall, target Target) Target {
			w.cut(target)
			return w.registered("u1", "b1", oneSystem)
		}, agent.Off, false, false},
		"this driver has, and somebody else another one that it says now": {func(w *world, wall *firewall, target Target) Target {
			w.cut(target)
			wall.list = append(wall.list, "192.0.2.9/32")
			return w.registered("u1", "b1", oneSystem, "192.0.2.9")
		}, agent.Off, true, false},
		"so, in a later boot": {func(w *world, wall *firewall, target Target) Target {
			w.cut(target)
			wall.list = append(wall.list, "192.0.2.9/32")
			return w.registered("u1", "b2", oneSystem, "192.0.2.9")
		}, agent.Off, true, true},
		"this driver has one address, and somebody else the other": {func(w *world, wall *firewall, target Target) Target {
			wall.list = []string{shared}
			w.cut(target)
			return target
		}, agent.Off, true, true},
		"another driver's fence has, at one list": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.put(w.ofAnother(false))
			return target
		}, agent.Off, false, false},
		"the same, which is the Node's word itself": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.put(w.ofAnother(true))
			return target
		}, agent.Off, true, true},
		"the same, for which nobody vouches": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.put(w.ofAnother(false))
			w.unvouch()
			return target
		}, agent.Off, true, true},
		"this driver's sidecar died while it cut": {func(w *world, wall *firewall, target Target) Target {
			w.dies(wall, target)
			return target
		}, agent.Off, false, false},
		"a forged fence says that this driver has": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.forged(record.Fenced, both...)
			w.ask(w.fencer("b"), target) // which vouches for it
			time.Sleep(time.Minute)
			return target
		}, agent.Off, true, true},
		"a forged fence says that this driver began to": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.forged(record.Fencing, both...)
			w.ask(w.fencer("b"), target)
			time.Sleep(time.Minute)
			return target
		}, agent.Off, true, true},
		"a forged try says that this driver tried to": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.forged(record.Failed, both...)
			w.ask(w.fencer("b"), target)
			time.Sleep(time.Minute)
			return target
		}, agent.Off, true, true},
		"a forged try says so of an address of two, and a sidecar died while it cut the other": {func(w *world, wall *firewall, target Target) Target {
			wall.list = []string{shared}
			w.forged(record.Failed, shared)
			w.dies(wall, target)
			return target
		}, agent.Off, true, true},
		"a forged fence says so, and a sidecar died while it cut anew": {func(w *world, wall *firewall, target Target) Target {
			wall.list = []string{shared}
			w.forged(record.Fenced, shared)
			w.dies(wall, target)
			w.expect("phase", w.fence().Phase, record.Refencing)
			w.cut(target)
			return target
		}, agent.Off, true, true},
		"a forged fence alone names an address": {func(w *world, wall *firewall, target Target) Target {
			wall.list = both
			w.forged(record.Fenced, both...)
			return w.registered("u1", "b1", oneSystem)
		}, agent.Unclear, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			behind(t, nil, func(w *world, wall *firewall, target Target) {
				wall.ownWord = true
				target = tt.change(w, wall, target)
				a := w.ask(w.fencer("c"), target)
				w.expect("answer", a.State, tt.says)
				w.expect("the answer is the Node's word", a.OwnWord, tt.ownWord)
				if s := w.fence(); tt.says == agent.Off {
					w.expect("the fence is the Node's word", s.OwnWord, tt.written)
					w.expect("vouched for", w.record().Vouched(s), true)
				} else {
					w.expect("vouched for", w.record().Vouched(s), false)
				}
			})
		})
	}
}
