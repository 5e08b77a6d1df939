package failover

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// News of a node that is fenced, with nothing left to do, are looked at together;
// all others at once.
func TestNewsOfANodeThatNeedsNothingAreLookedAtTogether(t *testing.T) {
	const askEvery = 3 * time.Second
	for name, tt := range map[string]struct {
		pause  time.Duration
		news   []time.Duration
		ask    bool
		wanted time.Duration
	}{
		"none":                     {idleEvery, nil, false, idleEvery},
		"many":                     {idleEvery, []time.Duration{0, time.Second, 2 * time.Second}, false, askEvery},
		"late":                     {idleEvery, []time.Duration{5 * time.Second}, false, 5 * time.Second},
		"somebody asks":            {idleEvery, []time.Duration{time.Second}, true, time.Second},
		"there is something to do": {errorPause, []time.Duration{100 * time.Millisecond}, false, 100 * time.Millisecond},
		"its kubelet lets go":      {2 * time.Second, []time.Duration{time.Second}, false, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &worker{Controller: New(Options{AskEvery: askEvery}), wake: make(chan struct{}, 1)}
			began := time.Now()
			go func() {
				for _, at := range tt.news {
					time.Sleep(at - time.Since(began))
					w.askNow.Store(tt.ask)
					w.rouse()
				}
			}()
			w.rest(t.Context(), tt.pause)
			if got := time.Since(began); got != tt.wanted {
				t.Errorf("%s: it rests for %s, want %s", name, got, tt.wanted)
			}
		})
	}
}

// It is said to people that the agents are asked every AskEvery.
func TestTheAgentsAreAskedAgainAfterEachRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{Controller: New(Options{AskEvery: 3 * time.Second}), wake: make(chan struct{}, 1)}
		if !w.askDue() {
			t.Error("nothing was answered yet, and no question is due")
		}
		w.answer, w.asked = &fencer.Answer{}, time.Now()
		time.Sleep(3*time.Second - time.Millisecond)
		if w.askDue() {
			t.Error("a question is due before the rest is over")
		}
		w.asked = time.Now()
		w.rest(t.Context(), w.AskEvery)
		if !w.askDue() {
			t.Error("after a rest no question is due")
		}
	})
}
