package fencer

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// storageFence is one of n1 that cut that block.
func (w *world) storageFence(id, driver, block string) record.Fence {
	f := w.powerFence(record.Fenced)
	f.ID, f.Kind, f.Driver, f.Machine.SystemUUID = id, fence.StorageFence, driver, oneSystem
	f.Steps = []record.FenceStep{{Agent: "array", Action: "off", Detail: "fence " + block + " at driver x"}}
	return f
}

func TestWhatAnotherDriversFenceCutIsNotOpenedWithTheRest(t *testing.T) {
	for name, tt := range map[string]struct {
		withdrawn bool
		fences    string
	}{"standing": {false, "Lifted by a, Fenced by b"}, "withdrawn": {true, "Lifted by a, Void by b"}} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				w.withdraw()
				wall.list = append(wall.list, "192.0.2.77/32")
				w.put(w.storageFence("theirs", "another.example.com", "192.0.2.77/32"))
				if tt.withdrawn {
					w.change(func(r *record.Record) { r.WithdrawFence("theirs", "wrong node", "a person") })
				}
				if a, err := w.fencer("b").On(w.Context(), target, "repaired"); err != nil || a.State != agent.On {
					t.Fatal(a, err)
				}
				w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.77/32")
				w.expect("fences", w.fences(), tt.fences)
			})
		})
	}
}

func TestANodeThatHadNoFenceIsSwitchedOn(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		target := w.target()
		target.Fences = []string{} // seen: none
		if a, err := w.fencer("a").On(w.Context(), target, "bought"); err != nil || a.State != agent.On {
			t.Error(a, err)
		}
	})
}

func TestWhatAWithdrawnFenceCutIsOpenedWhereOtherNodesHaveRecordsWithoutOne(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		w.withdraw()
		w.changeOf("n2", func(r *record.Record) { r.Note("a person", "Note", "seen") })
		if a, err := w.fencer("b").On(w.Context(), target, "repaired"); err != nil || a.State != agent.On {
			t.Fatal(a, err)
		}
		w.expect("still cut", strings.Join(wall.list, " "), "")
		w.expect("fences", w.fences(), "Lifted by a")
	})
}

// The lock is ours, and a record can be written by a person.
func TestALiftThatIsCalledOffTouchesNoFenceButItsOwn(t *testing.T) {
	calledOff(t, (*world).lift)
}

// What an operator gives back is looked at once more, too: a volume may have moved
// until the fence ceased to free any.
func TestOnOfACutOffMachineIsCalledOffAsALiftIs(t *testing.T) {
	calledOff(t, func(w *world, target Target) error {
		_, err := w.fencer("b").On(w.Context(), target, "repaired")
		return err
	})
}

func calledOff(t *testing.T, act func(*world, Target) error) {
	for name, tt := range map[string]struct {
		meanwhile func(w *world, r *record.Record)
		fences    string
		lifting   string
	}{
		"ended": {func(w *world, r *record.Record) {
			r.EndFence(r.Fence(fence.StorageFence, driver).ID, record.Lifted, "by hand", "a person")
		}, "Lifted by a", ""},
		"made anew, and being lifted": {func(w *world, r *record.Record) {
			f := w.storageFence("anew", driver, "192.0.2.1/32")
			f.Lift("by hand")
			r.PutFence(f, "Fence")
		}, "Void by a, Lifting by b", "by hand"},
		"the same": {func(*world, *record.Record) {}, "Fenced by a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				asked := 0
				target.Still = func(context.Context, *corev1.Node) error {
					if asked++; asked == 1 {
						return nil
					}
					w.change(func(r *record.Record) { tt.meanwhile(w, r) })
					return errors.New("not any more")
				}
				w.fails(act(w, target), "not any more")
				w.expect("requests", wall.ons, 0)
				w.expect("fences", w.fences(), tt.fences)
				last := w.record().Fences[len(w.record().Fences)-1]
				w.expect("lifting", last.LiftReason, tt.lifting)
			})
		})
	}
}

func TestAFenceThatIsMadeAnewOrEndedWhileAccessIsGivenBackIsNotLifted(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(w *world, r *record.Record)
		fences    string
	}{
		"ended": {func(w *world, r *record.Record) {
			r.EndFence(r.Fence(fence.StorageFence, driver).ID, record.Void, "by hand", "a person")
		}, "Void by a"},
		"made anew": {func(w *world, r *record.Record) { r.PutFence(w.storageFence("anew", driver, "192.0.2.1/32"), "Fence") }, "Void by a, Fenced by b"},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				wall.atOn = func() { w.change(func(r *record.Record) { tt.meanwhile(w, r) }) }
				a, err := w.fencer("b").Lift(w.Context(), target, driver, "booted")
				if err != nil || a.Fence != "" {
					t.Errorf("%+v, %v", a, err)
				}
				w.expect("fences", w.fences(), tt.fences)
			})
		})
	}
}

// What a withdrawn fence cut was opened; that its entry is gone meanwhile does not
// keep the attempt off the trail.
func TestWhatCameOfAnAttemptIsWrittenWhateverBecameOfTheFence(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		w.withdraw()
		wall.atOn = func() { w.change(func(r *record.Record) { r.Fences = nil }) }
		if a, err := w.fencer("b").On(w.Context(), target, "repaired"); err != nil || a.State != agent.On {
			t.Fatal(a, err)
		}
		if !strings.Contains(w.trail(), "b End:on ") {
			t.Errorf("the trail does not say what came of it:\n%s", w.trail())
		}
	})
}

func TestOneAttemptAfterTheOtherIsOneOnlyInTheSameWords(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.broken = true
		f := w.fencer("a")
		on := func(reason string) {
			if _, err := f.On(w.Context(), w.target(), reason); err != nil {
				t.Fatal(err)
			}
		}
		on("repaired")
		on("repaired") // begun by the trail's oldest entry
		w.expect("attempts on record", strings.Count(w.trail(), "Begin:on"), 1)
		on("repaired once more")
		w.expect("attempts on record", strings.Count(w.trail(), "Begin:on"), 2)
		if !strings.Contains(w.trail(), ": node UID u1: repaired once more\n") {
			t.Errorf("the trail does not say why:\n%s", w.trail())
		}
	})
}

// What On came to is its state: a device that does not answer is no error of the call.
func TestOnLeavesAFenceWhoseArrayDoesNotAnswer(t *testing.T) {
	run(t, func(w *world) {
		w.behindABrokenArray()
		w.levels = append(agent.Levels{{{Agent: w.bmc}}}, w.levels...)
		a, err := w.fencer("b").On(w.Context(), w.target(), "repaired")
		if err != nil || a.State != agent.Unclear || !strings.Contains(a.Why, "agent array of level 2 reads unclear") {
			t.Errorf("%+v, %v", a, err)
		}
		w.expect("fences", w.fences(), "Fenced by b")
	})
}

func TestWhatIsReadAsOpenHasToNameAllThatWasCut(t *testing.T) {
	run(t, func(w *world) {
		for _, name := range []string{"array", "by-name"} {
			w.levels = append(w.levels, agent.Level{{Agent: &device{name: name, kind: fence.StorageFence}}})
		}
		w.levels = append(w.levels, agent.Level{{Agent: &device{name: "power", kind: fence.PowerReading}}})
		cut := w.storageFence("f", driver, "192.0.2.1/32, 192.0.2.2/32")
		u := &undoing{Fencer: w.fencer("a"), fence: &cut}
		step := func(name, action string, s agent.State, words string) agent.Step {
			return agent.Step{Agent: name, Action: action, State: s, Detail: words}
		}
		const half, whole = "driver x does not list 192.0.2.1/32 as fenced", "driver x does not list 192.0.2.1/32, 192.0.2.2/32 as fenced"
		for name, tt := range map[string]struct {
			step agent.Step
			want bool
		}{
			"all of it":                     {step("array", "status", agent.On, whole), true},
			"half of it":                    {step("array", "status", agent.On, half), false},
			"half of it, as cut":            {step("array", "status", agent.Off, half), true},
			"half of it, asked to open":     {step("array", "on", agent.On, half), true},
			"half of it, by a power switch": {step("power", "status", agent.On, half), true},
			"the machine by its name":       {step("by-name", "status", agent.On, "n1 is not fenced"), true},
		} {
			if got := u.named([]agent.Step{tt.step}); got != tt.want {
				t.Errorf("%s: %v, want %v", name, got, tt.want)
			}
		}
	})
}

func TestBlocksThatNobodyKnowsAreCalledIt(t *testing.T) {
	for want, blocks := range map[string][]string{"it": nil, "192.0.2.1/32": {"192.0.2.1/32"}, "192.0.2.1/32, 192.0.2.2/32": {"192.0.2.1/32", "192.0.2.2/32"}} {
		if got := listed(blocks); got != want {
			t.Errorf("%v are called %q, want %q", blocks, got, want)
		}
	}
}
