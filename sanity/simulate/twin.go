package simulate

import (
	"slices"
)

// A twin is a state that looks the same and is not: the script with something exchanged
// that nobody could see, so that what can be told of the state (visible) is the same.
// If the twin's fork has two writers, no refusal was too much: the fact that tells the
// two apart is hidden.

// hidden names a fact that an API server does not show.
type hidden string

const (
	// runs: whether a machine that is silent has power and runs.
	runs hidden = "whether a silent machine runs"
	// mounted: whether a machine has it mounted.
	mounted hidden = "whether a machine has the volume mounted"
	// forgot: whether a kubelet has forgotten the mount.
	forgot hidden = "whether a kubelet has forgotten a mount"
	// inFlight: whether a call to the driver is under way still.
	inFlight hidden = "whether an attach is under way"
)

// exchange is a script that may be a twin's.
type exchange struct {
	fact   hidden
	events []Event
}

// mostTwins is how many of them are tried.
const mostTwins = 48

// first before a verb of a twin: it happens at that very moment, before everybody else
// takes their course, and, before the refusal, though the world would not have it.
const first = "!"

// exchanges of a script for a volume, with the line owed in it: first those of one fact,
// then of two.
func exchanges(events []Event, volume string, setup Setup) (all []exchange) {
	put := func(events []Event, at, drop int, in ...Event) []Event {
		return slices.Concat(events[:at:at], in, events[at+drop:])
	}
	cut := slices.IndexFunc(events, func(e Event) bool { return e.Verb == owedLine })
	mounts := func(of exchange, node string) {
		for i, e := range of.events {
			if e.Verb == Unmnt && e.A == volume && (node == "" || e.B == node) {
				all = append(all, exchange{both(of.fact, mounted), put(of.events, i, 1)})
				all = append(all, exchange{both(of.fact, forgot), put(of.events, i, 1, Event{Verb: RestartKubelet, A: e.B, B: "quick"}, Event{Verb: Sync, A: e.B})})
			}
			if (e.Verb == CutNode || e.Verb == Pause) && (node == "" || e.A == node) && i < cut {
				all = append(all, exchange{both(of.fact, mounted), put(of.events, i, 0, Event{Verb: "?" + Verify, A: volume, B: e.A}, Event{Verb: "?" + Mount, A: volume, B: e.A})})
			}
		}
	}
	var silent []exchange
	var nodes []string
	for i := len(events) - 1; i >= 0; i-- {
		switch e := events[i]; e.Verb {
		case PowerOff, Pause:
			if e.Verb == PowerOff && (setup.Agents || said(events[i:], e.A)) {
				continue // somebody told
			}
			silent = append(silent, exchange{runs, replaced(put(events, i, 1, Event{Verb: "?" + CutNode, A: e.A}), e.A)})
			nodes = append(nodes, e.A)
			if on := slices.IndexFunc(events[i:], func(o Event) bool { return o.Verb == PowerOn && o.A == e.A }); e.Verb == PowerOff && on > 0 {
				silent = append(silent, exchange{runs, put(put(events, i+on, 1), i, 1, Event{Verb: "?" + CutNode, A: e.A})})
				nodes = append(nodes, e.A)
			}
		case RestartKubelet, DeleteNode:
			now := []Event{{Verb: first + Register, A: e.A}, {Verb: first + Sync, A: e.A}}
			all = append(all, exchange{forgot, put(events, max(cut, i)+1, 0, now...)})
		case Fail:
			if isPrefixed(e.B, "driver:publish/"+volume+"/") {
				late := e
				late.Verb = Late
				all = append(all, exchange{inFlight, put(events, i, 1, late)})
			}
		case Drop:
			if isPrefixed(e.B, "driver:publish/"+volume+"/") {
				all = append(all, exchange{inFlight, put(events, i, 1)})
			}
		}
	}
	all = append(all, silent...)
	mounts(exchange{"", events}, "")
	for i, of := range silent {
		mounts(of, nodes[i])
	}
	return all[:min(len(all), mostTwins)]
}

// said: somebody's word that the machine is off stands at the end of these events.
func said(events []Event, node string) (stands bool) {
	tainted := false
	for _, e := range events {
		switch {
		case e.A != node:
		case e.Verb == ConfirmOff:
			stands = true
		case e.Verb == TaintNode, e.Verb == Untaint:
			tainted = e.Verb == TaintNode
		case e.Verb == owedLine:
			return stands || tainted
		}
	}
	return stands || tainted
}

// replaced has the machine that goes on lose its name where the script replaces it,
// though its node ID is that of the new one: in the world that is drawn nobody does so.
func replaced(events []Event, node string) []Event {
	for i, e := range events {
		if e.Verb == Replace && e.A == node {
			events[i].Verb = first + Replace
			break
		}
		if e.Verb == owedLine {
			break
		}
	}
	return events
}

func both(a, b hidden) hidden {
	if a == "" {
		return b
	}
	return a + ", and " + b
}

// breaks: the twin's fork has two writers, and what came from outside until then was
// the same in both, as far as anybody could tell.
func breaks(twin, of *Branch, i int) bool {
	at := twin.volumes[i].twice
	if at < 0 {
		return false
	}
	until := func(all []played) (events []Event) {
		for _, p := range all {
			switch p.Verb {
			case PowerOff, Pause, CutNode, RestartKubelet:
			default:
				if p.at <= at {
					events = append(events, p.Event)
				}
			}
		}
		return events
	}
	return slices.Equal(until(twin.played), until(of.played))
}
