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

var errNoMore = errors.New("it does not hold any more")

func TestALiftThatIsAboutAnEarlierFenceLeavesTheOneThatStands(t *testing.T) {
	for name, back := range map[string]func(*world, Target) error{
		"lift": func(w *world, t Target) error { return w.lift(t) },
		"on":   func(w *world, t Target) error { _, err := w.fencer("b").On(w.Context(), t, "booted"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				target.Fences = []string{w.fence().ID}
				w.succeeds(w.lift(target))
				w.fails(back(w, target), "fence "+target.Fences[0]+" does not stand any more")
				if _, err := w.fencer("a").Off(w.Context(), target, "dead again", false); err != nil {
					t.Fatal(err)
				}
				ons := wall.ons
				w.fails(back(w, target), "fence "+w.fence().ID+" stands now, made by a at ")
				w.expect("requests", wall.ons, ons)
				w.expect("lifting", w.fence().LiftReason, "")
				w.expect("fences", w.fences(), "Lifted by a, Fenced by a")

				target.Fences = []string{w.fence().ID}
				w.succeeds(back(w, target))
				w.expect("fences", w.fences(), "Lifted by a, Lifted by a")
			})
		})
	}
}

func TestPowerIsNotGivenBackToAMachineThatSomebodyElseFencedSince(t *testing.T) {
	run(t, func(w *world) {
		w.put(w.powerFence(record.Fenced))
		w.bmc.set(true)
		target := w.target()
		target.Fences = []string{"an earlier one"}
		_, err := w.fencer("a").On(w.Context(), target, "all has moved")
		w.fails(err, "fence f stands now, made by b")
		w.expect("fences", w.fences(), "Fenced by b")
		if !w.bmc.off {
			t.Error("it was powered on")
		}
	})
}

// What Lift rests on is asked before it begins, and once more when the fence frees no
// volume any more: what was freed until then shows only there.
func TestALiftIsCalledOffWhereWhatItRestsOnHoldsNoMore(t *testing.T) {
	for failing, asked := range map[int]string{1: "", 2: "booted"} {
		cutOff(t, func(w *world, wall *firewall, target Target) {
			calls, lifting := 0, "never"
			target.Still = func(_ context.Context, n *corev1.Node) error {
				if n == nil || n.Name != "n1" {
					t.Errorf("asked about %+v", n)
				}
				if calls++; calls == failing {
					lifting = w.fence().LiftReason
					return errNoMore
				}
				return nil
			}
			if err := w.lift(target); !errors.Is(err, errNoMore) {
				t.Error(err)
			}
			w.expect("the record when it was asked", lifting, asked)
			w.expect("requests", wall.ons, 0)
			w.expect("lifting", w.fence().LiftReason, "")
			w.expect("fences", w.fences(), "Fenced by a")
		})
	}
}

func TestNothingIsCutOffWhereWhatItRestsOnHoldsNoMore(t *testing.T) {
	run(t, func(w *world) {
		target := w.target()
		target.Still = func(_ context.Context, n *corev1.Node) error {
			if n == nil || n.Name != "n1" || w.fences() != "Fencing by a" {
				t.Errorf("asked about %+v: %s", n, w.fences())
			}
			return errNoMore
		}
		a, err := w.fencer("a").Off(w.Context(), target, "dead", false)
		w.fails(err, errNoMore.Error())
		if _, offs := w.bmc.counts(); offs != 0 || a.State == agent.Off {
			t.Errorf("%d requests, %+v", offs, a)
		}
		w.expect("fences", w.fences(), "")
		if !strings.Contains(w.trail(), "a FenceCalledOff") {
			t.Error("nothing was written down of it: " + w.trail())
		}
	})
}

// Each try would count anew for the limit of the hour, or push the one whose off was
// taken out of the record.
func TestTriesThatComeToNothingAreOneFence(t *testing.T) {
	run(t, func(w *world) {
		off := func(at Target) {
			t.Helper()
			time.Sleep(30 * time.Second)
			if a, _ := w.fencer("a").Off(w.Context(), at, "dead", false); a.State == agent.Off {
				t.Errorf("%+v", a)
			}
		}
		w.bmc.deaf = true
		target := w.target()
		off(target)
		first := w.record().Fences[0].StartedAt
		w.bmc.refuses = errors.New("no route")
		for range 6 {
			off(target)
		}
		f := w.record().Fences[0]
		w.expect("fences", w.fences(), "Failed by a")
		w.expect("began", f.StartedAt, first)
		if !slices.ContainsFunc(f.Steps, func(s record.FenceStep) bool { return s.Action == "off" && s.Err == "" }) {
			t.Errorf("the off that was taken is forgotten: %+v", f.Steps)
		}

		w.renew("n1")
		off(w.target()) // another silence
		w.expect("fences", w.fences(), "Failed by a, Failed by a")
	})
}

func TestAMachineThatDidNotComeOnIsOffBecauseOfTheRequestsThatTurnedItOff(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*record.Fence)
		sent bool
	}{
		"that very machine": {func(*record.Fence) {}, true},
		"nobody vouches":    {nil, false},
		"an earlier boot":   {func(f *record.Fence) { f.Machine.BootID = "b0" }, false},
		"it was heard of":   {func(f *record.Fence) { f.Machine.LeaseRV = "1" }, false},
		"it was on since":   {func(f *record.Fence) { f.Ending, f.Why = "", "read as on again by bmc" }, false},
		"it never was off":  {func(f *record.Fence) { f.Phase, f.Ending = record.Failed, "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.powerFence(record.Void)
				f.Ending, f.Steps = record.PowerGivenBack, []record.FenceStep{{Agent: "bmc", Action: "off"}}
				if c.of != nil {
					c.of(&f)
				}
				w.put(f)
				if c.of == nil {
					lease := w.server.Lease(ns, record.LeaseName("n1"))
					delete(lease.Annotations, record.FencedAnnotation)
					w.server.Put(lease)
				}
				w.bmc.set(true)
				w.expect("state", w.ask(w.fencer("a"), w.target()).State, agent.Off)
				now := w.record().Fence(fence.PowerReading, "")
				if got := slices.ContainsFunc(now.Steps, func(s record.FenceStep) bool { return s.Action == "off" }); got != c.sent {
					t.Errorf("steps %+v", now.Steps)
				}
			})
		})
	}
}
