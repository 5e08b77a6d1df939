package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The liveness mode: when the faults of a schedule are over, one stays for ever, and
// whatever does not touch it has to come right, as at the end of every schedule.

// Lasting is a fault that stays for ever.
type Lasting string

const (
	CutForEver    Lasting = "a node does not reach the API server"
	AgentsDead    Lasting = "the fence agents do not answer"
	Flapping      Lasting = "a node reaches the API server every other 20 s"
	UnpublishFail Lasting = "the driver fails each unpublish of one node"
	ListSlow      Lasting = "what is asked of the driver's list takes 12 s"
	ListFail      Lasting = "what is asked of the driver's list fails"
)

// Lastings are all of them.
var Lastings = []Lasting{CutForEver, AgentsDead, Flapping, UnpublishFail, ListSlow, ListFail}

const (
	flapEvery = 20 * time.Second
	slowList  = 12 * time.Second
)

// Live is a schedule that ended so.
type Live struct {
	Result
	Fault Lasting
	// Node that the fault is of; empty: it is of none.
	Node string
	// Judged and Touched are the volumes that have to come right, and those that touch
	// the fault's node.
	Judged, Touched int
	// Helped tells that it took a person who deletes pods, reboots or releases.
	Helped bool
	// Stuck are those that did not come right, and why.
	Stuck []string
}

// RandomLive runs the schedule that the seed stands for and then has the fault stay.
func RandomLive(t *testing.T, factory Factory, seed uint64, fault Lasting) (live Live) {
	r, setup := drawNarrow(seed)
	setup.Volumes = max(setup.Volumes, 2)
	switch fault {
	case AgentsDead:
		setup.Agents = true
	case ListSlow, ListFail:
		if setup.Lists == Nothing {
			setup.Lists = Truthfully
		}
	}
	live.Fault = fault
	rule := ""
	live.Result = play(t, factory, setup, seed, nil, func(w *World) {
		if w.wander(r); w.Violation == "" {
			w.endure(&live)
		}
		if rule = w.Rule; rule == "" {
			w.violation(unfinished, "the fault stays")
		}
	})
	if live.Rule = rule; rule == "" {
		live.Violation = ""
	}
	return live
}

// endure ends all faults but one, and judges whether what does not touch it comes right.
func (w *World) endure(live *Live) {
	w.repair()
	s := w.slots[len(w.slots)-1]
	var node *slot
	switch live.Fault {
	case CutForEver, Flapping, UnpublishFail:
		node = s
		live.Node = s.name
		w.powerOn(w.slots[0].machine) // so that there is another node for the pods
		w.honest()                    // before that people see to it that nothing else is wrong
		w.settle(w.calm, 3*time.Minute)
	}
	var judged []*volume
	for _, v := range w.volumes {
		if node != nil && w.touches(v, node) {
			live.Touched++
			continue
		}
		judged = append(judged, v)
	}
	live.Judged = len(judged)
	calm := func() bool {
		w.keepBroken(live.Fault, node)
		return !slices.ContainsFunc(judged, func(v *volume) bool { return !w.isRight(v) })
	}
	w.meets = func(e Event) (met, done bool) { return w.stays(live.Fault, node, e) }
	var stuck string
	for began, try := time.Now(), 0; time.Since(began) < finishWithin && len(judged) > 0; try++ {
		w.keepBroken(live.Fault, node)
		w.honest()
		live.Helped = try > 0
		if w.settle(calm, 3*time.Minute) || w.Violation != "" {
			w.meets = nil
			return
		}
		stuck = w.advice(try)
	}
	w.meets = nil
	for _, v := range judged {
		if !w.isRight(v) {
			live.Stuck = append(live.Stuck, fmt.Sprintf("%s: %s; %s", v.name, strings.Join(w.lastOf(v), ", "), stuck))
		}
	}
}

// touches tells whether the node has the volume, or had, or is to have it.
func (w *World) touches(v *volume, s *slot) bool {
	if v.pod.node == s || v.pod.node == nil || v.adc[s] != nil || w.vaOf(v, s) != nil {
		return true
	}
	for _, m := range w.machines {
		if m.slot == s && (v.attached[m.id] || m.mounts[v] != nil) {
			return true
		}
	}
	for _, e := range w.ledger(v) {
		if e.NodeName == s.name {
			return true
		}
	}
	return false
}

// isRight tells whether a pod of the volume has it where it wants it.
func (w *World) isRight(v *volume) bool {
	for _, s := range w.slots {
		if v.wants(s) && s.connected() && v.attached[s.machine.id] && s.machine.serves(v) {
			return true
		}
	}
	return false
}

// keepBroken breaks what stays broken, whatever was mended meanwhile.
func (w *World) keepBroken(fault Lasting, node *slot) {
	switch fault {
	case CutForEver:
		node.cut = true
	case Flapping:
		node.cut = time.Since(w.began)/flapEvery%2 == 0
	case AgentsDead:
		for _, name := range w.replicas {
			w.procs[name].noAgent = true
		}
	}
}

// stays is what becomes of an ordinary event under the fault; not met: what becomes of it
// without. One that is met with nothing done has to wait.
func (w *World) stays(fault Lasting, node *slot, e Event) (met, done bool) {
	if e.Verb != Serve {
		return false, false
	}
	o := w.find(e.A, e.B)
	if o == nil {
		return false, false
	}
	switch {
	case fault == UnpublishFail && isPrefixed(o.key, "driver:unpublish/") && strings.HasSuffix(o.key, "/"+node.machine.id):
		w.quietly(Event{Verb: Fail, A: e.A, B: e.B})
		return true, true
	case fault == ListFail && isPrefixed(o.key, "driver:get/"):
		w.quietly(Event{Verb: Fail, A: e.A, B: e.B})
		return true, true
	}
	return fault == ListSlow && isPrefixed(o.key, "driver:get/") && time.Since(o.since) < slowList, false
}
