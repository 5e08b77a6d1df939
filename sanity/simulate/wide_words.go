package simulate

import (
	"slices"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// In the wide world people release volumes and take their words back at any time, and
// schedules come right in between and break again.
//
// What is not true is excused as other false words are (oracle.go): a release from a
// machine that uses the volume counts for as long as the design binds it, to the ledger's
// entry, to the boot, and, of a silent node, to its lease; of a living one, to a Node that
// does not list the volume; of one that was gone, to there being no Node.

// wideEvents are those of the wide world that belong to no volume and no node.
func (w *World) wideEvents(emit func(Event)) {
	if !w.setup.Wide || w.detaching() {
		return
	}
	emit(Event{Verb: Heal})
	if w.away {
		emit(Event{Verb: Back})
	} else {
		emit(Event{Verb: Away})
	}
	w.modeEvents(emit)
}

// releaseEvents emits what an honest operator releases: where the volume is not in use.
func (w *World) releaseEvents(v *volume, emit func(Event)) {
	for _, s := range w.slots {
		if slices.ContainsFunc(w.ledger(v), func(e ledger.Entry) bool { return w.mayRelease(v, s, &e) }) {
			emit(Event{Verb: Release, A: v.name, B: s.name})
		}
	}
}

func (w *World) mayRelease(v *volume, s *slot, e *ledger.Entry) bool {
	used := slices.ContainsFunc(w.machines, func(m *machine) bool { return m.calledAs(e.NodeID) && v.mayWrite(m) })
	return e.NodeName == s.name && e.State != fence.TakenOver && (!used || w.setup.Lies)
}

func (w *World) releaseFrom(v *volume, s *slot) {
	w.spoken = true
	for _, e := range slices.Clone(w.ledger(v)) {
		if w.mayRelease(v, s, &e) {
			w.releaseEntry(v, &e)
		}
	}
}

// withdrawEvents emits that there is a word to take back.
func (w *World) withdrawEvents(s *slot, emit func(Event)) {
	if r := w.record(s); r != nil && len(r.Confirmations)+len(r.Releases) > 0 {
		emit(Event{Verb: Withdraw, A: s.name})
	}
}

func (w *World) withdraw(s *slot) {
	delete(w.said, s.name)
	w.changeRecord(s.name, func(r *record.Record) { r.Confirmations, r.Releases = nil, nil })
}

// believedReleased tells whether a person's release of the volume from that machine stands as the
// design binds it, and is not true.
func (w *World) believedReleased(v *volume, m *machine) bool {
	if !w.setup.Wide || !m.power || !w.spoken {
		return false
	}
	rec := w.record(m.slot)
	if rec == nil {
		return false
	}
	n := w.peekNode(m.slot.name)
	for _, r := range rec.Releases {
		ofEntry := func(e ledger.Entry) bool { return e.NodeID == m.id && e.Token == r.Token }
		if r.Volume != v.name || r.Void != "" || r.NodeID != m.id || r.BootID != m.boot() || !slices.ContainsFunc(w.ledger(v), ofEntry) {
			continue
		}
		switch r.Life {
		case record.Silent:
			if r.LeaseRV == w.leaseVersion(m.slot.name) || m.severed {
				return true
			}
		case record.Living:
			if n != nil && !inUse(n, v) {
				return true
			}
		case record.Gone:
			if n == nil || m.severed {
				return true
			}
		}
	}
	return false
}

// noteBelieved notes the releases that a call may go by although they are taken back meanwhile.
func (w *World) noteBelieved(v *volume) {
	for _, m := range w.machines {
		if !w.believedReleased(v, m) {
			continue
		}
		if m.releasedAt == nil {
			m.releasedAt = map[*volume]time.Time{}
		}
		m.releasedAt[v] = time.Now()
	}
}

// heal ends the faults that people and time end, and lets everything take its course.
// Replicas that crashed start again, and nodes that were cut off are back; machines that
// are off stay off, and what is true of them is said.
func (w *World) heal() {
	w.comeBack()
	for _, name := range w.replicas {
		p := w.procs[name]
		p.noAPI, p.noDriver, p.noAgent = false, false, false
		clear(p.stalled)
		if p.up() {
			p.leasesSeen()
		}
		p.goOn()
	}
	w.noADC, w.unlisted = false, none
	for _, s := range w.slots {
		s.cut = false
		s.machine.resume()
	}
	w.honest()
	w.settle(w.calm, 3*time.Minute)
}
