package array

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// NodeWrites sums up what one node has written to a volume, over all its
// mounts.
type NodeWrites struct {
	Node     string
	First    time.Time // first accepted write; zero if none
	Last     time.Time // last accepted write; zero if none
	Accepted int
	Rejected int
}

// Writes sums up the writes to a volume by node, in the order of first
// accepted writes.
func (a *Array) Writes(volumeID string) []NodeWrites {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.volumes[volumeID]
	if v == nil {
		return nil
	}
	var all []NodeWrites
	for _, w := range v.writes {
		all = append(all, *w)
	}
	slices.SortFunc(all, func(x, y NodeWrites) int {
		if x.First.IsZero() != y.First.IsZero() {
			return cmp.Compare(y.Accepted, x.Accepted)
		}
		return cmp.Or(x.First.Compare(y.First), cmp.Compare(x.Node, y.Node))
	})
	return all
}

// runWriters is every container of every machine: it writes until Close.
func (a *Array) runWriters() {
	tick := time.NewTicker(a.options.WriteEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.running.Done():
			return
		case <-tick.C:
			a.writeAll()
		}
	}
}

// writeAll lets each running container write once, and samples the oracle.
func (a *Array) writeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, nodeID := range slices.Sorted(maps.Keys(a.machines)) {
		m := a.machines[nodeID]
		if m.off || m.paused {
			continue
		}
		for volumeID, mt := range m.mounts {
			if mt.writes() && a.hasWrittenLocked(mt, volumeID) {
				a.writeLocked(a.volumes[volumeID], mt)
			}
		}
	}
	a.sampleLocked()
}

// hasWrittenLocked tells whether the container has written since it was last asked.
func (a *Array) hasWrittenLocked(mt *mount, volumeID string) bool {
	before := mt.written
	mt.written = a.options.Mounts.Written(mt.nodeID, volumeID)
	return mt.written > before
}

// writeLocked is one write attempt of a machine.
func (a *Array) writeLocked(v *volume, mt *mount) {
	mt.sequence++
	w := v.writes[mt.nodeID]
	if w == nil {
		w = &NodeWrites{Node: mt.nodeID}
		v.writes[mt.nodeID] = w
	}
	if !a.canWriteLocked(v, mt.nodeID) {
		w.Rejected++
		if !mt.rejected {
			mt.rejected = true
			a.eventLocked(v.id, mt.nodeID, "a write was rejected: the array grants no access")
		}
		return
	}
	w.Last = a.options.Now()
	if w.First.IsZero() {
		w.First = w.Last
	}
	w.Accepted++
	mt.accepted++
	if mt.accepted == 1 || mt.rejected {
		mt.rejected = false
		a.eventLocked(v.id, mt.nodeID, "writes")
	}
	a.wroteLocked(v, mt)
	v.last = mt
}
