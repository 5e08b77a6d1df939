package fencer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// R1: a machine that was cut off boots under another address, uses volumes from there, and
// is cut off there too. It is still in that boot when it is back, with all that it mounted.
func TestAMachineThatIsCutOffAtAnotherAddressInALaterBootIsFencedInThatBoot(t *testing.T) {
	const anew = "192.0.2.9/32"
	for name, cut := range map[string]func(w *world, wall *firewall, target Target){
		"by this driver": func(w *world, _ *firewall, target Target) { w.cut(target) },
		"by somebody else, and it is asked": func(w *world, wall *firewall, target Target) {
			wall.list = append(wall.list, anew)
			w.expect("answer", w.ask(w.fencer("b"), target).State, agent.Off)
		},
		"by somebody else, and it is to be cut": func(w *world, wall *firewall, target Target) {
			wall.list = append(wall.list, anew)
			w.cut(target)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, _ Target) {
				began := w.fence().StartedAt
				time.Sleep(time.Minute)
				w.change(func(r *record.Record) { r.PutWitness(w.fence().ID, record.Witness{NodeUID: "u1", BootID: "b2"}) })
				cut(w, wall, w.registered("u1", "b2", oneSystem, "192.0.2.9"))
				s := w.fence()
				w.expect("phase", s.Phase, record.Fenced)
				w.expect("boot", s.Machine.BootID, "b2")
				w.expect("vouched for", w.record().Vouched(s), true)
				w.expect("witness", s.Witness == nil, true)
				w.expect("began", s.StartedAt, began)
				w.expect("what it cut", strings.Join(blocks(s), " "), "192.0.2.1/32 192.0.2.2/32 "+anew)
				w.succeeds(w.lift(w.registered("u1", "b3", oneSystem, "192.0.2.7")))
				w.expect("still cut", strings.Join(wall.list, " "), "")
			})
		})
	}
}

// It was cut off before it booted, and is so still: that it is another boot is how it is
// known that it has mounted nothing, and may have its access back.
func TestAFenceThatIsReadInALaterBootAsItWasMadeIsOfTheBootBefore(t *testing.T) {
	for _, addresses := range [][]string{{"192.0.2.1", "192.0.2.2"}, {"192.0.2.2"}} {
		cutOff(t, func(w *world, wall *firewall, _ Target) {
			id, target := w.fence().ID, w.registered("u1", "b2", oneSystem, addresses...)
			w.expect("answer", w.ask(w.fencer("b"), target).State, agent.Off)
			w.cut(target)
			w.expect("fence", w.fence().ID, id)
			w.expect("boot", w.fence().Machine.BootID, "b1")
			w.expect("requests", wall.offs, 1)
		})
	}
}

// An agent that does not answer says nothing of it.
func TestAStorageFenceThatCannotBeReadStaysTheOneWhenItIsCutAgain(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		id := w.fence().ID
		wall.unread = errors.New("no route")
		wall.atOff = func() {
			w.expect("phase", w.fence().Phase, record.Fenced)
			wall.unread = nil
		}
		a, err := w.fencer("b").Off(w.Context(), target, "dead", false)
		w.succeeds(err)
		w.expect("fence", a.Fence, id)
		w.expect("fences", w.fences(), "Fenced by a")
	})
}

func TestOnlyAnAgentThatAnsweredDeniesThatAStorageFenceIsInPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(wall *firewall)
		want   bool
	}{
		"all is cut":         {func(*firewall) {}, false},
		"half of it":         {func(wall *firewall) { wall.list = wall.list[:1] }, true},
		"nothing is":         {func(wall *firewall) { wall.list = nil }, true},
		"it does not answer": {func(wall *firewall) { wall.unread = errors.New("no route") }, false},
	} {
		cutOff(t, func(w *world, wall *firewall, target Target) {
			w.levels = append(w.levels, agent.Level{{Agent: w.bmc, Timeout: time.Second}}) // has power
			tt.change(wall)
			w.expect(name, w.ask(w.fencer("b"), target).Uncut, tt.want)
		})
	}
}

func TestAMachineThatIsCutOffAtTheSecondAttemptIsNotDenied(t *testing.T) {
	behind(t, nil, func(w *world, wall *firewall, target Target) {
		w.levels[0][0].Attempts = 2
		wall.deaf = errors.New("busy")
		wall.atOff = func() {
			if wall.offs == 2 {
				wall.deaf = nil
			}
		}
		a, err := w.fencer("a").Off(w.Context(), target, "dead", false)
		w.succeeds(err)
		w.expect("state", a.State, agent.Off)
		w.expect("uncut", a.Uncut, false)
	})
}
