package fencer

import (
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// early is n1 as it is now, with a lease that is not silent. held is what missed was asked with.
func (w *world) early(missed string, held *[]bool) Target {
	t := w.target()
	t.Missed = func(h bool) string { *held = append(*held, h); return missed }
	return t
}

func TestBeforeTheLeaseIsSilentOffIsReadTwiceAndSomethingHasToBeMissing(t *testing.T) {
	for name, c := range map[string]struct {
		session agent.Session
		missed  string
		early   bool
		held    []bool
	}{
		"something is missing":         {agent.NoSession, "a renewal was due", true, []bool{false}},
		"in a session that has lasted": {agent.Held, "a renewal was due", true, []bool{true}},
		"in one that is new":           {agent.Fresh, "a renewal was due", false, nil},
		"nothing is missing":           {agent.NoSession, "", false, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.bmc.set(true)
				w.bmc.session = c.session
				var held []bool
				began, f := time.Now(), w.fencer("a")
				a := w.ask(f, w.early(c.missed, &held))
				if took := time.Since(began); took < time.Second {
					t.Errorf("two readings within %s", took)
				}
				w.expect("held", held, c.held)
				if c.early {
					w.expect("state", a.State, agent.Off)
					if got := w.record().Early(a.Machine); got == nil || got.ID != a.Fence || len(got.Steps) != 2 {
						t.Errorf("fence %+v", got)
					}
				} else {
					w.expect("state, fences, and that it was off twice", []any{a.State, w.fences(), a.OffTwice}, []any{agent.Unclear, "", true})
				}
				// Nobody has it from the answers of before.
				asked, _ := w.bmc.counts()
				w.ask(f, w.early(c.missed, &held))
				if again, _ := w.bmc.counts(); again != asked+2 {
					t.Errorf("%d readings for the next question", again-asked)
				}
			})
		})
	}
}

func TestWhatHappensBetweenTwoReadingsOfOffVoidsThem(t *testing.T) {
	for name, change := range map[string]func(*world){
		"switched on": func(w *world) { w.bmc.set(false) },
		"renewed":     func(w *world) { w.renew("n1") },
		"booted":      func(w *world) { w.node("n1", "u1", "b2", nil) },
		"replaced":    func(w *world) { w.node("n1", "u2", "b1", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.bmc.set(true)
				var held []bool
				f, target := w.fencer("a"), w.early("a renewal was due", &held)
				time.AfterFunc(500*time.Millisecond, func() { change(w) })
				if a := w.ask(f, target); a.State == agent.Off || w.fences() != "" {
					t.Errorf("answer %+v, fences %s", a, w.fences())
				}
			})
		})
	}
}

// The caller's watch may be behind what is read live.
func TestNothingIsMissingOfALeaseThatTheCallerHasNotSeen(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		var held []bool
		target := w.early("a renewal was due", &held)
		w.renew("n1")
		a := w.ask(w.fencer("a"), target)
		if a.State != agent.Unclear || a.Why != fence.VoidLeaseChanged || w.fences() != "" {
			t.Errorf("answer %+v, fences %s", a, w.fences())
		}
	})
}

func TestAFenceOfAReadingIsAnEarlyOneOnceSomethingIsMissing(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		f := w.fencer("a")
		first := w.ask(f, w.target())
		if w.record().Early(first.Machine) != nil {
			t.Fatal("a single reading proves early")
		}
		var held []bool
		a := w.ask(f, w.early("a renewal was due", &held))
		if got := w.record().Early(a.Machine); got == nil || got.ID != first.Fence {
			t.Errorf("fence %+v, was %s", got, first.Fence)
		}
	})
}
