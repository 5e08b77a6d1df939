package simulate

import (
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// enabled are all events that may happen now, in a stable order.
func (w *World) enabled(emit func(Event)) {
	w.sortParked()
	w.followPods()
	for _, name := range w.replicas {
		p := w.procs[name]
		w.processEvents(p, name, emit)
	}
	for _, o := range w.parked {
		w.opEvents(o, emit)
	}
	for _, v := range w.volumes {
		for _, s := range w.slots {
			va := w.vaOf(v, s)
			w.forgetDetached(v, s, va)
			for _, name := range w.replicas {
				if p := w.procs[name]; p.up() {
					w.attacherEvents(p, v, s, va, emit)
				}
			}
			w.controllerEvents(v, s, va, emit)
			if va != nil {
				emit(Event{Verb: StripVA, A: v.name, B: s.name})
				if va.DeletionTimestamp == nil {
					emit(Event{Verb: DeleteVA, A: v.name, B: s.name})
				}
			}
		}
		w.podEvents(v, emit)
		for _, id := range v.late {
			emit(Event{Verb: Land, A: v.name, B: id})
		}
		v.lateDetachEvents(emit)
	}
	for _, s := range w.slots {
		w.kubeletEvents(s, emit)
		w.machineEvents(s, emit)
	}
	w.absentController(emit)
	w.clockEvents(emit)
	w.wideEvents(emit)
	w.momentEvents(emit)
	w.jumpEvents(emit)
}

// course are the events of enabled that are ordinary, in its order: what is quickly
// found where nothing else is looked for.
func (w *World) course(emit func(Event)) {
	ordinarily := func(e Event) {
		if ordinary(e.Verb) {
			emit(e)
		}
	}
	w.sortParked()
	w.followPods()
	for _, name := range w.replicas {
		switch p := w.procs[name]; {
		case p.ended():
			if !w.away {
				emit(Event{Verb: Start, A: name})
			}
		case p.side != nil && name == w.leader:
			w.sightEvents(p, ordinarily)
		}
	}
	for _, o := range w.parked {
		if o.reachable() && w.firstOfVolume(o) {
			emit(Event{Verb: Serve, A: o.from.name, B: o.key})
		}
	}
	for _, v := range w.volumes {
		for _, s := range w.slots {
			va := w.vaOf(v, s)
			w.forgetDetached(v, s, va)
			for _, name := range w.replicas {
				if p := w.procs[name]; p.up() && (name == w.leader || w.callOf(p, v, s) != nil) {
					w.attacherEvents(p, v, s, va, ordinarily)
				}
			}
			w.controllerEvents(v, s, va, emit)
		}
		w.podEvents(v, ordinarily)
		for _, id := range v.late {
			emit(Event{Verb: Land, A: v.name, B: id})
		}
		v.lateDetachEvents(emit)
	}
	for _, s := range w.slots {
		w.kubeletEvents(s, ordinarily)
		w.absenceEvents(s, w.peekNode(s.name), emit)
	}
}

// vaOf is va without a copy, where there is a memory.
func (w *World) vaOf(v *volume, s *slot) *storagev1.VolumeAttachment {
	if w.memory != nil {
		return w.memory.vas.items[w.vaName(v, s)]
	}
	return w.va(v, s)
}

// absentController emits that the controller restarts, or does not reach the API server for a
// while, but not between the two writes of a detach.
func (w *World) absentController(emit func(Event)) {
	if w.away {
		return
	}
	if w.noADC {
		emit(Event{Verb: JoinADC})
		return
	}
	emit(Event{Verb: RestartADC})
	if !w.detaching() {
		emit(Event{Verb: CutADC})
	}
}

// detaching tells whether the controller is between its two writes of a detach.
func (w *World) detaching() bool {
	for _, v := range w.volumes {
		for _, a := range v.adc {
			if !a.unlisted.IsZero() && !a.deleted {
				return true
			}
		}
	}
	return false
}

// clockEvents emits how time may pass. The controller's two writes of a detach come within a second
// of each other.
func (w *World) clockEvents(emit func(Event)) {
	if w.detaching() {
		return
	}
	for _, d := range [...]string{"1s", "5s", "16s", "60s", "370s"} {
		emit(Event{Verb: Clock, A: d})
	}
}

func (w *World) sortParked() {
	slices.SortStableFunc(w.parked, func(a, b *op) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		if c := strings.Compare(a.from.name, b.from.name); c != 0 {
			return c
		}
		return strings.Compare(a.key, b.key)
	})
}

func (w *World) processEvents(p *Process, name string, emit func(Event)) {
	at := func(verb string) { emit(Event{Verb: verb, A: name}) }
	either := func(cut bool, off, on string) {
		if cut {
			at(on)
		} else {
			at(off)
		}
	}
	if p.ended() {
		if !w.away {
			at(Start)
		}
		return
	}
	at(Crash)
	if p.side == nil {
		return
	}
	if w.leader != name {
		at(Lead)
	}
	either(p.noAPI, CutAPI, JoinAPI)
	either(p.noDriver, CutDriver, JoinDrive)
	if w.setup.Agents {
		either(p.noAgent, CutAgent, JoinAgent)
	}
	for _, kind := range [...]string{StallNodes, StallVAs, StallCSI, StallLease} {
		if p.stalled[kind] {
			emit(Event{Verb: Catch, A: name, B: kind})
		} else {
			emit(Event{Verb: Stall, A: name, B: kind})
		}
	}
	w.sightEvents(p, emit)
	for _, o := range w.parked {
		if o.from == p && !o.write && !o.orphan && (o.to == toAPI || o.to == toKubelet) && o.reachable() {
			at(Reads)
			break
		}
	}
}

// sightEvents are what a process of tier 1 does by itself, and that it is told to
// fence.
func (w *World) sightEvents(p *Process, emit func(Event)) {
	if w.memory == nil {
		return // it watches, and fails over, by itself
	}
	for _, s := range w.slots {
		if w.leader == p.name && p.sights[s.name] && p.sees(StallNodes) && !p.busy[errand{Sight, s.name}] {
			emit(Event{Verb: Sight, A: p.name, B: s.name})
		}
		if w.setup.Agents && !p.busy[errand{FenceOff, s.name}] && time.Since(s.renewed) >= 2*suspectAfter {
			emit(Event{Verb: FenceOff, A: p.name, B: s.name})
		}
	}
}

// opEvents are what may become of a call that is under way.
func (w *World) opEvents(o *op, emit func(Event)) {
	at := func(verb string) { emit(Event{Verb: verb, A: o.from.name, B: o.key}) }
	if o.orphan {
		at(Drop)
	} else {
		at(Fail)
	}
	if !o.reachable() || !w.firstOfVolume(o) {
		return
	}
	at(Serve)
	if o.write && !o.orphan {
		at(Lose)
	}
	if o.to == toDriver && o.write {
		at(Lie)
		if w.setup.Wide && isPrefixed(o.key, "driver:unpublish/") {
			at(Late)
		}
		parts := strings.Split(o.key, "/")
		m := w.machineOf(parts[2])
		switch {
		case isPrefixed(o.key, "driver:publish/"):
			at(Late)
		case m != nil && !m.power:
			at(Gone)
		}
	}
}
