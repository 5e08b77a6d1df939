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

// exchanges of a script for a volume: first those of one fact, then of two.
func exchanges(events []Event, volume string) (all []exchange) {
	put := func(events []Event, at, drop int, in ...Event) []Event {
		return slices.Concat(events[:at:at], in, events[at+drop:])
	}
	mounts := func(of exchange, node string) {
		for i, e := range of.events {
			if e.Verb == Unmnt && e.A == volume && (node == "" || e.B == node) {
				all = append(all, exchange{both(of.fact, mounted), put(of.events, i, 1)})
				all = append(all, exchange{both(of.fact, forgot), put(of.events, i, 1, Event{Verb: RestartKubelet, A: e.B, B: "quick"}, Event{Verb: Sync, A: e.B})})
			}
			if (e.Verb == CutNode || e.Verb == Pause) && (node == "" || e.A == node) {
				all = append(all, exchange{both(of.fact, mounted), put(of.events, i, 0, Event{Verb: "?" + Verify, A: volume, B: e.A}, Event{Verb: "?" + Mount, A: volume, B: e.A})})
			}
		}
	}
	var silent []exchange
	var nodes []string
	for i := len(events) - 1; i >= 0; i-- {
		switch e := events[i]; e.Verb {
		case PowerOff, Pause:
			silent = append(silent, exchange{runs, put(events, i, 1, Event{Verb: "?" + CutNode, A: e.A})})
			nodes = append(nodes, e.A)
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

func both(a, b hidden) hidden {
	if a == "" {
		return b
	}
	return a + ", and " + b
}

// breaks: the twin's fork has two writers, and what came from outside until then was
// the same in both.
func breaks(twin, of *Branch, i int) bool {
	at := twin.volumes[i].twice
	if at < 0 {
		return false
	}
	until := func(all []played) (events []played) {
		for _, p := range all {
			if p.at <= at {
				events = append(events, p)
			}
		}
		return events
	}
	return slices.Equal(until(twin.played), until(of.played))
}
