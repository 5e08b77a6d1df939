package simulate

import (
	"fmt"
	"slices"
	"strings"
)

// A twin is a state that looks the same and is not: the script with something exchanged
// that nobody could see, so that what can be told of the state (visible) is the same.
// If the twin's fork has two writers, no refusal was too much: the fact that tells the
// two apart is hidden.

// hidden names a fact that an API server does not show.
type hidden string

const (
	// runs is hidden of a machine that is silent: it may have power and run.
	runs hidden = "whether a silent machine runs"
	// mounted is hidden of a machine: it may have the volume mounted.
	mounted hidden = "whether a machine has the volume mounted"
	// forgot is hidden of a kubelet: it may have forgotten the mount.
	forgot hidden = "whether a kubelet has forgotten a mount"
	// inFlight is hidden of a call to the driver: it may be under way still.
	inFlight hidden = "whether an attach is under way"
	// takes is hidden of the driver: it may take a volume from the node before, or attach it twice.
	takes hidden = "whether the driver itself takes the volume from the node before"
)

// exchange is a script that may be a twin's.
type exchange struct {
	fact   hidden
	events []Event
	// single is another driver; empty: the same.
	single Single
	// word is the node of which somebody said that its machine is off. In the twin that is not so:
	// it is one only where the word proves nothing, as the design binds it. Empty: nobody said so.
	word string
	// seen is what can be told of the state, and has to be of the twin.
	seen string
}

// mostTwins is how many of them are tried.
const mostTwins = 240

// Keep is an event of twins alone: what the node's machine has of the volume mounted stays
// so, though its kubelet no longer wants it, until the machine loses its power.
const Keep = "keep" // v n

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
				all = append(all, of.and(mounted, put(of.events, i, 1)))
				all = append(all, of.and(forgot, put(of.events, i, 1, Event{Verb: RestartKubelet, A: e.B, B: "quick"}, Event{Verb: Sync, A: e.B})))
			}
			if (e.Verb == CutNode || e.Verb == Pause) && (node == "" || e.A == node) && i < cut {
				all = append(all, of.and(mounted, put(of.events, i, 0, Event{Verb: "?" + Verify, A: volume, B: e.A}, Event{Verb: "?" + Mount, A: volume, B: e.A})))
			}
		}
	}
	var silent []exchange
	var nodes []string
	for i := len(events) - 1; i >= 0; i-- {
		switch e := events[i]; e.Verb {
		case PowerOff, Pause:
			word := ""
			if e.Verb == PowerOff {
				if setup.Agents {
					continue // the agents tell
				}
				if said(events[i:], e.A) {
					word = e.A
				}
			}
			silent = append(silent, exchange{fact: runs, events: replaced(put(events, i, 1, Event{Verb: "?" + CutNode, A: e.A}), e.A), word: word})
			nodes = append(nodes, e.A)
			if on := slices.IndexFunc(events[i:], func(o Event) bool { return o.Verb == PowerOn && o.A == e.A }); e.Verb == PowerOff && on > 0 {
				silent = append(silent, exchange{fact: runs, events: put(put(events, i+on, 1), i, 1, Event{Verb: "?" + CutNode, A: e.A}), word: word})
				nodes = append(nodes, e.A)
			}
		case RestartKubelet, DeleteNode:
			now := []Event{{Verb: first + Register, A: e.A}, {Verb: first + Sync, A: e.A}}
			all = append(all, exchange{fact: forgot, events: put(events, max(cut, i)+1, 0, now...)})
		case Fail:
			if isPrefixed(e.B, "driver:publish/"+volume+"/") {
				late := e
				late.Verb = Late
				all = append(all, exchange{fact: inFlight, events: put(events, i, 1, late)})
			}
		case Drop:
			if isPrefixed(e.B, "driver:publish/"+volume+"/") {
				all = append(all, exchange{fact: inFlight, events: put(events, i, 1)})
			}
		}
	}
	if setup.Single == Moves {
		all = append(all, exchange{fact: takes, events: events, single: Allows})
	}
	all = append(all, silent...)
	mounts(exchange{events: events}, "")
	for i, of := range silent {
		mounts(of, nodes[i])
	}
	all = append(all, keeps(exchange{events: events}, volume, setup.Nodes)...)
	for _, of := range silent {
		all = append(all, keeps(of, volume, setup.Nodes)...)
	}
	return all[:min(len(all), mostTwins)]
}

// and has another fact exchanged as well.
func (x exchange) and(fact hidden, events []Event) exchange {
	x.fact, x.events = both(x.fact, fact), events
	return x
}

// keeps has a machine keep what it has mounted, from each line on after which its kubelet
// may let go of it, the latest first; and its kubelet forget it, then or once the controller
// has taken it off volumesAttached.
func keeps(of exchange, volume string, nodes int) (all []exchange) {
	cut := slices.IndexFunc(of.events, func(e Event) bool { return e.Verb == owedLine })
	for at := cut; at >= 0; at-- {
		if at > 0 && at < cut && !slices.Contains(letGo, strings.TrimLeft(of.events[at].Verb, "?!")) {
			continue
		}
		for n := range nodes {
			node := fmt.Sprintf("n%d", n+1)
			kept := slices.Concat(of.events[:at:at], []Event{{Verb: first + Keep, A: volume, B: node}})
			restarts := []int{len(kept)}
			for _, e := range of.events[at:] {
				if e.Verb == Unmnt && e.A == volume && e.B == node {
					continue
				}
				if (e.Verb == Sync || e.Verb == Status) && e.A == node {
					e.Verb = "?" + e.Verb // it may have done so before
				}
				kept = append(kept, e)
				if e.Verb == Unlist && e.A == volume && e.B == node {
					restarts = append(restarts, len(kept))
				}
			}
			all = append(all, of.and(mounted, kept))
			for _, i := range restarts {
				if i <= slices.IndexFunc(kept, func(e Event) bool { return e.Verb == owedLine }) {
					all = append(all, of.and(forgot, slices.Concat(kept[:i:i], []Event{{"?" + RestartKubelet, node, "quick", ""}, {Verb: "?" + Sync, A: node}}, kept[i:])))
				}
			}
		}
	}
	return all
}

// letGo are the lines with which a kubelet may begin to let go of a volume.
var letGo = []string{Move, ForceDel, DeleteOther, ForceOther, Unmnt, Sync, RestartKubelet, CutNode, JoinNode, Pause, Resume, DeleteNode, Clock, Heal, Settle, TaintNode}

// said tells whether somebody's word that the machine is off stands at the end of these events.
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

// breaks tells whether the twin's fork has two writers, while what came from outside until then was
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
