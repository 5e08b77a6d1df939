package simulate

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Result of one schedule.
type Result struct {
	Setup Setup
	Seed  uint64
	// Rule that is broken, and how; empty: none. R1, R2, stuck, or story for a
	// script whose expectation is not met.
	Rule, Violation string
	// Trace is what happened, without what took its course by itself (Settle, and
	// the end after all faults).
	Trace []Event
	// Attack is how many events there were before all faults ceased.
	Attack int
	Stats  Stats
	// Waits are what the end waited for a person for, in the wide world: the reason of
	// a refusal and the hidden facts of who was in the way.
	Waits []Wait
}

// Random runs the schedule that the seed stands for.
func Random(t *testing.T, factory Factory, seed uint64, whole bool) Result {
	r, setup := drawNarrow(seed)
	setup.Whole = whole
	setup.Spares = whole && seed%2 == 1
	return play(t, factory, setup, seed, nil, func(w *World) { w.wander(r) })
}

// drawNarrow is its setup, and the random numbers for the rest.
func drawNarrow(seed uint64) (*rand.Rand, Setup) {
	r := rand.New(rand.NewPCG(seed, 1))
	setup := RandomSetup(r)
	setup.Skew = randomSkew(rand.New(rand.NewPCG(seed, 3)), setup.Nodes)
	return r, setup
}

// Replay runs the events of a script. Those that are not enabled are passed over
// if lenient, and else break the rule "story".
func Replay(t *testing.T, factory Factory, setup Setup, events []Event, lenient bool) Result {
	return replay(t, factory, setup, events, lenient, nil)
}

// Narrate is a Replay of a script that tells of each event, those too that take
// their course by themselves, with the model's time.
func Narrate(t *testing.T, factory Factory, setup Setup, events []Event, tell func(string)) Result {
	return replay(t, factory, setup, events, false, tell)
}

func replay(t *testing.T, factory Factory, setup Setup, events []Event, lenient bool, tell func(string)) Result {
	return play(t, factory, setup, 1, tell, func(w *World) {
		for _, e := range events {
			if w.Violation != "" {
				return
			}
			w.follow(e, lenient)
		}
	})
}

// follow performs one line of a script. One that begins with ? may be impossible.
func (w *World) follow(e Event, lenient bool) {
	verb, maybe := strings.CutPrefix(e.Verb, "?")
	e.Verb = verb
	if e.Verb != Settle && e.Verb != Expect {
		switch {
		case w.possible(e):
		case lenient || maybe:
			return
		default:
			w.violation("story", "this cannot happen now: "+e.String())
			return
		}
	}
	w.perform(e)
}

// possible tells whether the event may happen now. Time may pass for as long as a script says,
// whenever any time may.
func (w *World) possible(e Event) (found bool) {
	if d, err := time.ParseDuration(e.A); e.Verb == Clock && err == nil && d > 0 {
		e.A = "1s"
	}
	w.enabled(func(other Event) { found = found || other == e })
	return found
}

// play runs one schedule in a bubble of its own.
func play(t *testing.T, factory Factory, setup Setup, seed uint64, tell func(string), body func(*World)) (result Result) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(setup, seed, factory)
		w.mu.Lock()
		w.tell = tell
		w.settleDown()
		if !w.settle(w.calm, 5*time.Minute) {
			w.violation("stuck", "the volumes are not published at the start: "+w.advice(0))
		}
		w.Stats, w.Waits = Stats{}, nil
		body(w)
		attack := w.Stats.Steps
		if w.Violation == "" {
			w.finish()
		}
		result = Result{Setup: setup, Seed: seed, Rule: w.Rule, Violation: w.Violation, Trace: w.Trace, Attack: attack, Stats: w.Stats, Waits: w.Waits}
		w.end()
	})
	return result
}

// end lets everything that runs come to its end.
func (w *World) end() {
	w.over = true
	for _, o := range w.parked {
		if !o.orphan {
			o.orphan = true
			o.answer <- reply{nil, errDead}
		}
	}
	w.parked = nil
	for _, p := range w.procs {
		p.dead = true
		p.cancel()
	}
	w.mu.Unlock()
	w.conn.Close()
	w.work.Wait()
	time.Sleep(5 * time.Minute) // locks that run out, agents that are waited for
}

// wander chooses what happens, with a temper of its own for each schedule.
func (w *World) wander(r *rand.Rand) {
	temper := newTemper(r, w.setup)
	temper.steadyVerbs(w.seed)
	temper.wideVerbs(w.setup, w.seed)
	if temper.leaps {
		w.forcedDetach()
	}
	if temper.incident {
		w.oldIncident()
	}
	most := 15 + r.IntN(90)
	if w.setup.Wide {
		most += r.IntN(150) // it heals in between, and breaks again
	}
	for range most {
		if w.Violation != "" {
			return
		}
		w.perform(temper.choose(w, r))
		w.tellRefusals()
	}
}

// temper weighs events. Each schedule likes some faults more and leaves others
// out, so that rare ones come together in some schedules.
type temper struct {
	verbs map[string]int
	// forgets has kubelets restart just when a volume that they use is taken off volumesAttached. By
	// chance alone that comes about in one of thousands.
	forgets bool
	// leaps has clocks set then, before anybody asks what the kubelet says.
	leaps bool
	// incident has the schedule begin with a taint that is found too late (the wide world).
	incident bool
	events   []Event // of the last choice, and their weights
	weights  []int
}

// likelihood of each verb, in a schedule without a temper.
var likelihood = map[string]int{
	Reads: 600, Serve: 400, Fail: 6, Lose: 10, Drop: 40, Lie: 8, Late: 8, Gone: 40, Land: 20, Clock: 12,
	Crash: 8, Start: 150, CutAPI: 2, JoinAPI: 30, CutDriver: 2, JoinDrive: 30, CutAgent: 2, JoinAgent: 30,
	Stall: 3, Catch: 20, Lead: 5, Sight: 150, FenceOff: 12,
	Publish: 250, Republish: 6, Unpublish: 250, LateUnpub: 5, GiveUp: 200, StripVA: 3, DeleteVA: 2,
	Attach: 200, Confirmed: 200, Unlist: 150, Detach: 250, DetachFail: 60, RestartADC: 2,
	Move: 25, EndPod: 200, ForceDel: 12, Schedule: 100,
	Renew: 5, Sync: 150, Rebuild: 150, Status: 150, Verify: 120, Mount: 120, Unmnt: 120, Unpod: 8, Outlive: 20, RestartKubelet: 4, Register: 150, NotReady: 60,
	PowerOff: 8, PowerOn: 15, Pause: 4, Resume: 20, CutNode: 10, JoinNode: 15, Replace: 4, DeleteNode: 5, CollectGC: 20,
	TaintNode: 20, Untaint: 10, ConfirmOff: 12,
}

// faults are the verbs that a temper changes.
var faults = []string{Fail, Lose, Lie, Late, Crash, CutAPI, CutDriver, CutAgent, Stall, Lead, FenceOff, Republish, LateUnpub, StripVA, DeleteVA,
	RestartADC, ForceDel, RestartKubelet, PowerOff, PowerOn, Pause, CutNode, JoinNode, Replace, DeleteNode, TaintNode, Untaint, ConfirmOff, Renew}

func newTemper(r *rand.Rand, s Setup) *temper {
	t := &temper{verbs: map[string]int{}}
	for verb, n := range likelihood {
		t.verbs[verb] = n
	}
	for _, verb := range faults {
		t.verbs[verb] = t.verbs[verb] * [...]int{0, 1, 1, 1, 2, 6}[r.IntN(6)]
	}
	if s.Replicas == 1 {
		t.verbs[Lead] = 0
	}
	if t.forgets = r.IntN(6) == 0; t.forgets {
		for _, verb := range []string{ForceDel, TaintNode, Untaint, DeleteVA} {
			t.verbs[verb] = 8 * likelihood[verb]
		}
	}
	return t
}

// choose one of the events that are enabled.
func (t *temper) choose(w *World, r *rand.Rand) Event {
	t.events, t.weights = t.events[:0], t.weights[:0]
	sum := 0
	w.enabled(func(e Event) {
		if weight := t.weight(w, e); weight > 0 {
			t.events, t.weights = append(t.events, e), append(t.weights, weight)
			sum += weight
		}
	})
	at := r.IntN(sum)
	for i, weight := range t.weights {
		if at -= weight; at < 0 {
			return t.events[i]
		}
	}
	panic("simulate: nothing is chosen")
}

func (t *temper) weight(w *World, e Event) int {
	n := t.verbs[e.Verb]
	if t.leaps && (e.Verb == Unpublish || e.Verb == Unmnt || e.Verb == Schedule) {
		n /= 10 // what a clock may hide comes before
	}
	switch e.Verb {
	case Publish, Unpublish:
		if e.A != w.leader {
			return n / 20
		}
		if last := w.last[e.callKey()]; last != "" && last != "OK" {
			return n / 3 // it was refused a moment ago
		}
	case Serve:
		if !isWriteKey(e.B) {
			return n / 20 // Reads does it
		}
	case Fail, Lose:
		if isPrefixed(e.B, "get:") {
			return n / 6
		}
	case PowerOff, CutNode, Pause, DeleteNode, Replace, RestartKubelet:
		if t.forgets && e.Verb == RestartKubelet && w.takenWhileUsed(e.A) && !w.forgot(e.A) {
			return 200
		}
		if !w.matters(e.A) {
			return n / 5
		}
	case Lie:
		if w.setup.Revokes && isPrefixed(e.B, "driver:unpublish/") {
			return 0 // it is declared to revoke access
		}
	case SetClock:
		if t.leaps && w.forgot(e.A) {
			return 40
		}
	case Clock:
		if t.forgets && e.A == "370s" {
			return 5 * n // Kubernetes' own patience with a volume in use
		}
	case TaintNode, ConfirmOff:
		if t.forgets && e.Verb == TaintNode {
			return n
		}
		if w.slot(e.A).machine.power {
			return n / 3
		}
	}
	return n
}

// takenWhileUsed tells whether the controller takes a volume off that node which is mounted there.
func (w *World) takenWhileUsed(node string) bool {
	s := w.slot(node)
	for _, v := range w.volumes {
		if a := v.adc[s]; a != nil && !a.unlisted.IsZero() && s.machine.power && s.machine.mounts[v] != nil {
			return true
		}
	}
	return false
}

func isWriteKey(key string) bool { return !isPrefixed(key, "get:") && !isPrefixed(key, "list:") }

// matters tells whether some volume is wanted or attached there.
func (w *World) matters(node string) bool {
	s := w.slot(node)
	for _, v := range w.volumes {
		if v.podOn(s) || v.attached[s.machine.id] || v.adc[s] != nil {
			return true
		}
	}
	return false
}
