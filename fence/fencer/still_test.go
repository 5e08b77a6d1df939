package fencer

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
				target.Fence = w.fence().ID
				w.succeeds(w.lift(target))
				if _, err := w.fencer("a").Off(w.Context(), target, "dead again", false); err != nil {
					t.Fatal(err)
				}
				ons := wall.ons
				w.fails(back(w, target), "fence "+target.Fence+" does not stand any more")
				w.expect("requests", wall.ons, ons)
				w.expect("lifting", w.fence().Lifting, "")
				w.expect("fences", w.fences(), "Lifted by a, Fenced by a")

				target.Fence = w.fence().ID
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
		target.Fence = "an earlier one"
		_, err := w.fencer("a").On(w.Context(), target, "all has moved")
		w.fails(err, "fence an earlier one does not stand any more")
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
					lifting = w.fence().Lifting
					return errNoMore
				}
				return nil
			}
			if err := w.lift(target); !errors.Is(err, errNoMore) {
				t.Error(err)
			}
			w.expect("the record when it was asked", lifting, asked)
			w.expect("requests", wall.ons, 0)
			w.expect("lifting", w.fence().Lifting, "")
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
		w.expect("fences", w.fences(), "Failed by a")
	})
}
