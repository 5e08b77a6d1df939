package fencer

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// early is n1 as it is now, with a lease that is not silent. checked is what missed was asked with.
func (w *world) early(missed string, checked *[]bool) Target {
	t := w.target()
	t.Missed = func(read time.Time, c bool) string {
		if time.Since(read) > time.Second/2 {
			w.Errorf("the second reading was begun %s ago", time.Since(read))
		}
		*checked = append(*checked, c)
		return missed
	}
	return t
}

func TestBeforeTheLeaseIsSilentOffIsReadTwiceAndSomethingHasToBeMissing(t *testing.T) {
	for name, c := range map[string]struct {
		checked bool
		missed  string
		early   bool
	}{
		"something is missing":                  {false, "a renewal was due", true},
		"the device says that it is the node's": {true, "a renewal was due", true},
		"nothing is missing":                    {true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.bmc.set(true)
				w.bmc.checked = c.checked
				var checked []bool
				began, f := time.Now(), w.fencer("a")
				a := w.ask(f, w.early(c.missed, &checked))
				if took := time.Since(began); took < time.Second {
					t.Errorf("two readings within %s", took)
				}
				w.expect("checked", checked, []bool{c.checked})
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
				w.ask(f, w.early(c.missed, &checked))
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
				var checked []bool
				f, target := w.fencer("a"), w.early("a renewal was due", &checked)
				time.AfterFunc(500*time.Millisecond, func() { change(w) })
				if a := w.ask(f, target); a.State == agent.Off || w.fences() != "" {
					t.Errorf("answer %+v, fences %s", a, w.fences())
				}
			})
		})
	}
}

// Another level may always have read off: nobody has seen its machine fall.
func TestEarlyOnlyTheLevelThatIsPolledIsRead(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.broken = true
		pdu := &device{name: "pdu", kind: fence.PowerReading}
		pdu.set(true)
		w.levels = append(w.levels, agent.Level{{Agent: pdu, Timeout: time.Minute}})
		var checked []bool
		a := w.ask(w.fencer("a"), w.early("a renewal was due", &checked))
		if asked, _ := pdu.counts(); a.State != agent.Unclear || w.fences() != "" || asked > 0 || len(checked) > 0 {
			t.Errorf("answer %+v, fences %s, asked %d times", a, w.fences(), asked)
		}
	})
}

// A storm has nobody work on the node, so that polls ask it, while calls go by the answer of before.
func TestAPollThatReadsOnEndsWhatWasReadAsOff(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		f.Levels = agent.Levels{{{Agent: w.bmc, Poll: time.Second}}}
		poll := func() {
			n, err := w.server.Client().CoreV1().Nodes().Get(w.Context(), "n1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f.Poll(w.Context(), n)
		}
		w.bmc.set(true)
		w.ask(f, w.target())
		poll()
		asked, _ := w.bmc.counts()
		w.expect("state", w.ask(f, w.target()).State, agent.Off)
		if again, _ := w.bmc.counts(); again != asked {
			t.Error("an answer of off is forgotten where a poll reads off")
		}
		w.bmc.set(false)
		poll()
		w.expect("state", w.ask(f, w.target()).State, agent.On)
	})
}

func TestWhatAQuestionAsksIsCounted(t *testing.T) {
	run(t, func(w *world) {
		pdu := &device{name: "pdu", kind: fence.PowerReading}
		w.levels = append(agent.Levels{{{Agent: w.bmc, Poll: time.Second}, {Agent: pdu, Poll: 2 * time.Second}}}, w.levels...)
		agents, every := w.fencer("a").Polled("n1")
		w.expect("agents, and how often", []any{agents, every}, []any{[]string{w.bmc.Name(), "pdu"}, 2 * time.Second})
	})
}

// The caller's watch may be behind what is read live.
func TestNothingIsMissingOfALeaseThatTheCallerHasNotSeen(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		var checked []bool
		target := w.early("a renewal was due", &checked)
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
		var checked []bool
		a := w.ask(f, w.early("a renewal was due", &checked))
		if got := w.record().Early(a.Machine); got == nil || got.ID != first.Fence {
			t.Errorf("fence %+v, was %s", got, first.Fence)
		}
	})
}
