package simulate

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// fault is what happens at one write while a story takes its course, and then.
type fault struct {
	// verb is Crash (before it), Lose with crash (after it), Fail or Lose.
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
	"takeover":          {"power-off n1", "confirm n1", "force-delete-pod v1", "schedule v1 n2", "clock 370s"},
	"takeover-by-taint": {"power-off n1", "clock 60s", "taint n1", "force-delete-pod v1", "schedule v1 n2"},
	"stripped":          {"power-off n1", "force-delete-pod v1", "strip-va v1 n1", "restart-adc", "schedule v1 n2", "confirm n1"},
}

// Told is how many schedules of one story ran, of how many there are.
type Told struct {
	Story   string
	Ran, Of int
}

// Exhaustive runs each story with each fault at each write, alone and followed by
// each next event, and, to the depth of two, with each pair of faults without one.
// It returns how many schedules that were, and those that failed. The stories take
// turns, and each strides through its faults, so that what until cuts short has had
// a share of everything.
func Exhaustive(t *testing.T, factory Factory, setup Setup, until time.Time) (told []Told, failed []Result) {
	names := slices.Sorted(maps.Keys(stories))
	told = make([]Told, len(names))
	// run tells how many writes there were.
	run := func(i int, faults map[int]fault) (writes int) {
		r := play(t, factory, setup, 1, nil, func(w *World) {
			w.faults = faults
			w.tellStory(stories[names[i]])
			writes = w.writes
			w.faults = nil
		})
		told[i].Ran++
		if r.Violation != "" {
			failed = append(failed, r)
		}
		return writes
	}
	inTurns := func(plans [][]map[int]fault, done func(i int, faults map[int]fault, writes int)) {
		for at, more := 0, true; more; at++ {
			more = false
			for i, plan := range plans {
				if at >= len(plan) || !until.IsZero() && time.Now().After(until) {
					continue
				}
				more = true
				faults := plan[at*stride(len(plan))%len(plan)]
				done(i, faults, run(i, faults))
			}
		}
	}
	// First each fault alone: it makes writes that the story without it has not, at
	// which the second fault of a pair may come.
	alone, rest := make([][]map[int]fault, len(names)), make([][]map[int]fault, len(names))
	for i, name := range names {
		told[i].Story = name
		for k := range run(i, map[int]fault{}) {
			for _, f := range points {
				alone[i] = append(alone[i], map[int]fault{k: f})
				for _, f.next = range nexts[1:] {
					rest[i] = append(rest[i], map[int]fault{k: f})
				}
			}
		}
	}
	inTurns(alone, func(i int, faults map[int]fault, writes int) {
		for first, f := range faults {
			for second := first + 1; second < writes; second++ {
				for _, g := range points {
					rest[i] = append(rest[i], map[int]fault{first: f, second: g})
				}
			}
		}
	})
	for i := range told {
		told[i].Of = 1 + len(alone[i]) + len(rest[i])
	}
	inTurns(rest, func(int, map[int]fault, int) {})
	return told, failed
}

// stride is a step of about three fifths through n things that comes to each of them.
func stride(n int) int {
	common := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	step := max(n*3/5, 1)
	for common(step, n) != 1 {
		step++
	}
	return step
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
