package array

import (
	"fmt"
	"slices"
	"time"
)

// ViolationKind is a way in which data is or may be lost.
type ViolationKind int

const (
	// DoubleWrite means that the accepted writes of two nodes interleave. A node wrote, another node
	// wrote, and the first one wrote again through the same mount.
	DoubleWrite ViolationKind = iota + 1
	// CouldDoubleWrite means that two machines with power could both write at one moment. Both have
	// access and the volume staged or published, one of them at least published.
	CouldDoubleWrite
	// TakenInUse means that a CSI call detached the volume from a machine with power on which it was
	// staged or published.
	TakenInUse
)

func (k ViolationKind) String() string {
	switch k {
	case DoubleWrite:
		return "DoubleWrite"
	case CouldDoubleWrite:
		return "CouldDoubleWrite"
	case TakenInUse:
		return "TakenInUse"
	}
	return fmt.Sprintf("ViolationKind(%d)", int(k))
}

// Violation is one finding of the oracle. A state that lasts, or writes that
// interleave again and again, are one Violation that grows.
type Violation struct {
	Kind   ViolationKind
	Time   time.Time // when it began
	Last   time.Time // when it was last so
	Count  int       // interleaved writes; samples of the state; 1 for TakenInUse
	Volume string
	Nodes  []string // sorted; for TakenInUse the one that lost the volume
	Text   string

	sessions [2]int // the mounts of a DoubleWrite
	open     bool   // a CouldDoubleWrite that has not ended
}

func (v Violation) String() string {
	return fmt.Sprintf("%s of volume %s at %s: %s", v.Kind, v.Volume, v.Time.Format("15:04:05.000"), v.Text)
}

// Violations lists what the oracle has found, oldest first. Volumes that
// several nodes use as MULTI_NODE_MULTI_WRITER, and readers, never violate.
func (a *Array) Violations() []Violation {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := make([]Violation, 0, len(a.found))
	for _, v := range a.found {
		c := *v
		c.Nodes = slices.Clone(v.Nodes)
		found = append(found, c)
	}
	return found
}

// ViolationsOf lists the findings for one volume, oldest first.
func (a *Array) ViolationsOf(volumeID string) []Violation {
	return slices.DeleteFunc(a.Violations(), func(v Violation) bool { return v.Volume != volumeID })
}

// ForgetViolations empties the list, for a scenario that did wrong on purpose
// in its preparation. What still lasts is found anew.
func (a *Array) ForgetViolations() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = nil
	for _, v := range a.volumes {
		v.last = nil
		a.judgeLocked(v)
	}
}

// judgeLocked looks for CouldDoubleWrite after a change of state of v. It must
// follow each change, before the lock is released.
func (a *Array) judgeLocked(v *volume) {
	a.closeEndedLocked(v)
	users := a.usersLocked(v)
	for i, x := range users {
		for _, y := range users[i+1:] {
			if collide(x, y) && a.openLocked(v.id, x.nodeID, y.nodeID) == nil {
				nodes := []string{x.nodeID, y.nodeID}
				a.violationLocked(&Violation{
					Kind: CouldDoubleWrite, Volume: v.id, Nodes: nodes, open: true,
					Text: fmt.Sprintf("%s and %s both have power, access and the volume mounted", nodes[0], nodes[1]),
				})
			}
		}
	}
	a.changedLocked()
}

// usersLocked lists the mounts of v that could write now, by node ID. That
// includes paused machines: they may go on at any moment.
func (a *Array) usersLocked(v *volume) []*mount {
	var users []*mount
	for id, m := range a.machines {
		if mt := m.mounts[v.id]; mt != nil && mt.couldWrite() && a.canWriteLocked(v, id) {
			users = append(users, mt)
		}
	}
	slices.SortFunc(users, func(x, y *mount) int {
		if x.nodeID < y.nodeID {
			return -1
		}
		return 1
	})
	return users
}

// collide says whether two mounts that could write must not coexist.
func collide(x, y *mount) bool {
	published := len(x.targets) > 0 || len(y.targets) > 0
	return published && !(x.shared() && y.shared())
}

// openLocked is the CouldDoubleWrite of two nodes (in order) that still lasts.
func (a *Array) openLocked(volumeID, x, y string) *Violation {
	for _, v := range a.found {
		if v.open && v.Volume == volumeID && v.Nodes[0] == x && v.Nodes[1] == y {
			return v
		}
	}
	return nil
}

// closeEndedLocked ends each CouldDoubleWrite of v that is so no more.
func (a *Array) closeEndedLocked(v *volume) {
	users := a.usersLocked(v)
	by := func(nodeID string) *mount {
		i := slices.IndexFunc(users, func(mt *mount) bool { return mt.nodeID == nodeID })
		if i < 0 {
			return nil
		}
		return users[i]
	}
	for _, f := range a.found {
		if !f.open || f.Volume != v.id {
			continue
		}
		f.Last = a.options.Now()
		if x, y := by(f.Nodes[0]), by(f.Nodes[1]); x == nil || y == nil || !collide(x, y) {
			f.open = false
		}
	}
}

// sampleLocked counts how long each CouldDoubleWrite lasts.
func (a *Array) sampleLocked() {
	for _, f := range a.found {
		if f.open {
			f.Count++
			f.Last = a.options.Now()
		}
	}
}

// wroteLocked looks for DoubleWrite at an accepted write through mt.
func (a *Array) wroteLocked(v *volume, mt *mount) {
	before := v.last
	if before == nil || before.nodeID == mt.nodeID || mt.accepted == 1 || (before.shared() && mt.shared()) {
		return
	}
	sessions := [2]int{min(before.session, mt.session), max(before.session, mt.session)}
	for _, f := range a.found {
		if f.Kind == DoubleWrite && f.sessions == sessions {
			f.Count++
			f.Last = a.options.Now()
			return
		}
	}
	nodes := []string{before.nodeID, mt.nodeID}
	slices.Sort(nodes)
	a.violationLocked(&Violation{
		Kind: DoubleWrite, Volume: v.id, Nodes: nodes, sessions: sessions,
		Text: fmt.Sprintf("%s wrote again (its write %d) after %s had written", mt.nodeID, mt.sequence, before.nodeID),
	})
}

// takenLocked records that a call took the volume from a mount in use.
func (a *Array) takenLocked(v *volume, nodeID string, mt *mount, how string) {
	if mt.shared() || !mt.couldWrite() {
		return
	}
	state := "staged"
	if len(mt.targets) > 0 {
		state = "published"
	}
	a.violationLocked(&Violation{
		Kind: TakenInUse, Volume: v.id, Nodes: []string{nodeID},
		Text: fmt.Sprintf("detached %s from %s, which has power and the volume %s", how, nodeID, state),
	})
}

func (a *Array) violationLocked(v *Violation) {
	v.Time, v.Count = a.options.Now(), 1
	v.Last = v.Time
	a.found = append(a.found, v)
	a.eventLocked(v.Volume, "", "VIOLATION "+v.Kind.String()+": "+v.Text)
}
