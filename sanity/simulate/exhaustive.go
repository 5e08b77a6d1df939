package simulate

import (
	"testing"
	"time"
)

// fault is what happens at one write while a story takes its course, and then.
type fault struct {
	// verb: Crash (before it), Lose with crash (after it), Fail or Lose.
	verb  string
	crash bool
	next  Event
}

// injected does what is planned for the write that is about to be served; false:
// nothing is.
func (w *World) injected(e Event) bool {
	if w.faults == nil || e.Verb != Serve {
		return false
	}
	o := w.find(e.A, e.B)
	if o == nil || !o.write || o.orphan {
		return false
	}
	f, planned := w.faults[w.writes]
	w.writes++
	if !planned {
		return false
	}
	if f.verb != Crash {
		w.perform(Event{Verb: f.verb, A: e.A, B: e.B})
	}
	if f.crash {
		w.perform(Event{Verb: Crash, A: e.A})
	}
	if f.next.Verb != "" {
		found := false
		w.enabled(func(other Event) { found = found || other == f.next })
		if found {
			w.perform(f.next)
		}
	}
	return true
}

// points are what may happen at one write.
var points = []fault{{verb: Crash, crash: true}, {verb: Lose, crash: true}, {verb: Fail}, {verb: Lose}}

// nexts are what may happen right after that.
var nexts = []Event{{}, {Verb: Lead, A: "r2"}, {Verb: PowerOn, A: "n1"}, {Verb: PowerOff, A: "n2"}, {Verb: CutNode, A: "n2"}, {Verb: RestartADC},
	{Verb: ForceDel, A: "v1"}, {Verb: StripVA, A: "v1", B: "n1"}, {Verb: LateUnpub, A: "r1", B: "v1", C: "n1"}, {Verb: Clock, A: "16s"}, {Verb: Untaint, A: "n1"}}

// Stories that Exhaustive goes through: an ordinary move, and a takeover from a node
// that lost its power, with and without the VolumeAttachment in the way.
var stories = map[string][]string{
	"move":              {"delete-pod v1", "settle-pod v1", "schedule v1 n2"},
	"takeover":          {"power-off n1", "confirm n1", "force-delete-pod v1", "schedule v1 n2"},
	"takeover-by-taint": {"power-off n1", "clock 60s", "taint n1", "force-delete-pod v1", "schedule v1 n2"},
	"stripped":          {"power-off n1", "force-delete-pod v1", "strip-va v1 n1", "restart-adc", "schedule v1 n2", "confirm n1"},
}

// Exhaustive runs each story with each fault at each write, alone and followed by
// each next event, and, to the depth of two, with each pair of faults without one.
// It returns how many schedules that were, and those that failed.
func Exhaustive(t *testing.T, factory Factory, setup Setup, until time.Time) (ran int, failed []Result) {
	for _, name := range []string{"move", "stripped", "takeover", "takeover-by-taint"} {
		writes := 0
		run := func(faults map[int]fault) {
			if !until.IsZero() && time.Now().After(until) {
				return
			}
			ran++
			r := play(t, factory, setup, 1, nil, func(w *World) {
				w.faults = faults
				w.tellStory(stories[name])
				writes = max(writes, w.writes)
				w.faults = nil
			})
			if r.Violation != "" {
				failed = append(failed, r)
			}
		}
		run(map[int]fault{})
		for k := range writes {
			for _, f := range points {
				for _, next := range nexts {
					f.next = next
					run(map[int]fault{k: f})
				}
			}
		}
		most := writes
		for first := range most {
			for second := first + 1; second < most; second++ {
				for _, f := range points {
					for _, g := range points {
						run(map[int]fault{first: f, second: g})
					}
				}
			}
		}
	}
	return ran, failed
}

// tellStory performs the lines of a story that can happen, and lets everything take
// its course after the last.
func (w *World) tellStory(lines []string) {
	for _, line := range lines {
		e, err := parseEvent(line)
		if err != nil {
			panic(err)
		}
		if e.Verb == "settle-pod" {
			w.settle(func() bool { return w.volume(e.A).pod.node == nil }, 2*time.Minute)
			continue
		}
		w.follow(e, true)
		if w.Violation != "" {
			return
		}
	}
	w.settle(w.calm, 2*time.Minute)
}
