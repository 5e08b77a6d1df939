package fencer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// behind is n1 behind a firewall with that list, and no fence on record.
func behind(t *testing.T, list []string, test func(w *world, wall *firewall, target Target)) {
	t.Helper()
	run(t, func(w *world) {
		wall := &firewall{list: list}
		w.levels = agent.Levels{{{Agent: wall, Timeout: 2 * time.Second}}}
		test(w, wall, w.registered("u1", "b1", oneSystem, "192.0.2.1", "192.0.2.2"))
	})
}

func TestAMachineWhoseAccessIsCutIsSentNothing(t *testing.T) {
	behind(t, []string{"192.0.2.1/32", "192.0.2.2/32"}, func(w *world, wall *firewall, target Target) {
		a, err := w.fencer("a").Off(w.Context(), target, "dead", false)
		if err != nil || a.State != agent.Off || a.Kind != fence.StorageFence {
			t.Errorf("%+v, %v", a, err)
		}
		w.expect("requests", wall.offs, 0)
		w.expect("fences", w.fences(), "Fenced by a")
	})
}

// That its access is being given back says nothing against its power's reading.
func TestAMachineWithoutPowerIsSentNothingWhileItsAccessIsGivenBack(t *testing.T) {
	halfLifted(t, "192.0.2.1", func(w *world, wall *firewall, target Target) {
		w.levels = append(w.levels, agent.Level{{Agent: w.bmc, Timeout: 2 * time.Second}})
		w.bmc.set(true)
		before := wall.offs
		a, err := w.fencer("b").Off(w.Context(), target, "dead", false)
		if err != nil || a.State != agent.Off || a.Kind != fence.PowerReading {
			t.Errorf("%+v, %v", a, err)
		}
		w.unsent()
		w.expect("requests to cut its access", wall.offs-before, 0)
		w.stillToBeLifted()
	})
}

func TestTriesToCutAccessThatComeToNothingAreOneFenceOfTheirDriver(t *testing.T) {
	behind(t, nil, func(w *world, wall *firewall, target Target) {
		w.put(record.Fence{ID: "x", Kind: fence.StorageFence, Driver: "other", Phase: record.Failed, Actor: "b",
			Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: target.LeaseRV}})
		wall.deaf = errors.New("busy")
		var begun string
		for i := range 3 {
			time.Sleep(30 * time.Second)
			if a, err := w.fencer("a").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
				t.Fatal(a, err)
			}
			w.expect("fences", w.fences(), "Failed by b, Failed by a")
			last := w.record().Fences[len(w.record().Fences)-1]
			if i == 0 {
				begun = last.StartedAt
			}
			w.expect("begun", last.StartedAt, begun)
		}
	})
}

func TestEachRequestThatCutSomethingIsKeptOnce(t *testing.T) {
	step := func(agent, action, detail string) record.FenceStep {
		return record.FenceStep{Agent: agent, Action: action, Detail: detail}
	}
	var got []string
	for _, s := range offSteps(&record.Fence{Steps: []record.FenceStep{
		step("a", "off", "x"), step("a", "status", "z"), step("a", "off", "y"), step("b", "off", "x"), step("a", "off", "x"), step("b", "off", "x"),
	}}) {
		got = append(got, s.Agent+" "+s.Action+" "+s.Detail)
	}
	if got, want := strings.Join(got, ", "), "a off x, a off y, b off x"; got != want {
		t.Errorf("kept: %s, want %s", got, want)
	}
}

func TestAPowerFenceThatCameToNothingFailsWhateverBecameOfTheStorageFence(t *testing.T) {
	halfLifted(t, "192.0.2.1", func(w *world, wall *firewall, target Target) {
		w.levels = append(w.levels, agent.Level{{Agent: w.bmc, Timeout: 2 * time.Second}})
		wall.deaf, w.bmc.deaf = errors.New("busy"), true
		w.bmc.onOff = func(context.Context) { w.withdraw() }
		if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		w.expect("fences", w.fences(), "Void by a, Void by b, Failed by b")
		if p := w.record().LastPowerFence(); p == nil || p.Phase != record.Failed || p.EndedAt == "" {
			t.Errorf("power fence %+v", p)
		}
	})
}

// An off that an earlier try sent may still land.
func TestATryThatIsCalledOffKeepsTheOffThatAnEarlierOneSent(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.deaf = true
		target := w.target()
		if a, err := w.fencer("a").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		target.Still = func(context.Context, *corev1.Node) error { return errNoMore }
		_, err := w.fencer("a").Off(w.Context(), target, "dead", false)
		w.fails(err, errNoMore.Error())
		w.expect("fences", w.fences(), "Failed by a")
		if f := w.record().LastPowerFence(); f == nil || !slices.ContainsFunc(f.Steps, func(s record.FenceStep) bool { return s.Action == "off" }) {
			t.Errorf("the off that was sent is forgotten: %+v", f)
		}
	})
}

func TestAFenceMadeAnewNamesTheRequestsOfTheOneThatWasBeingLifted(t *testing.T) {
	halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, target Target) {
		wall.strict, wall.list = true, append(wall.list, "192.0.2.2/32") // all is cut again but today's address
		if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		w.expect("cut by requests", strings.Join(cutBlocks(w.fence()), " "), "192.0.2.1/32 192.0.2.2/32 192.0.2.9/32")
	})
}
