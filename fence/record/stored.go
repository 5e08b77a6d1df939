package record

import (
	"cmp"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// What is stored has the form that the versions before read, so that the sidecars of
// several drivers can be upgraded, and taken back, one after the other. They know no
// Lifting and no Refencing: a Fenced or Fencing fence with a text in "lifting" is that.
// They tell a withdrawn fence, and power that was given back, by how Fence.Why begins,
// and an Operation by the trail. Nothing but this file decides by such texts.

// endings is how Fence.Why begins where a fence ended so.
var endings = map[Ending]string{Withdrawn: "withdrawn: ", PowerGivenBack: "given its power back: "}

// operations are the kinds that the versions before wrote into the trail.
var operations = map[string]OperationKind{"Fence": Cut, "Begin:on": On, "Begin:lift": Lift}

// noReason is why access is being given back where nobody says.
const noReason = "no reason is on record"

// MarshalJSON writes r as it is stored, wherever it is written.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record // without this method
	out := plain(r)
	out.Fences = slices.Clone(r.Fences)
	for i := range out.Fences {
		f := &out.Fences[i]
		if !f.BeingLifted() {
			continue
		}
		f.LiftReason = cmp.Or(f.LiftReason, noReason)
		if f.Phase == Lifting {
			f.Phase = Fenced
		} else {
			f.Phase = Fencing
		}
	}
	text, err := format.Text(&out)
	return []byte(text), err
}

// understood makes r, as it was read, what it means.
func (r *Record) understood() {
	for i := range r.Fences {
		f := &r.Fences[i]
		switch {
		case f.LiftReason == "":
		case f.Phase == Fenced:
			f.Phase = Lifting
		case f.Phase == Fencing:
			f.Phase = Refencing
		}
		if f.BeingLifted() {
			f.LiftReason = cmp.Or(f.LiftReason, noReason)
		}
		for ending, words := range endings {
			if f.Phase == Void && f.Ending == "" && strings.HasPrefix(f.Why, words) {
				f.Ending = ending
			}
		}
	}
	latest := r.Operation.Latest
	r.Operation.Latest = false
	for i, entry := range slices.Backward(r.Audit) {
		kind, found := operations[entry.Action]
		if words, begun := strings.CutPrefix(entry.Action, "Begin:"); begun && !found {
			kind, found = OperationKind(words), true // of a later version
		}
		if !found {
			continue
		}
		if id := operationID(entry); r.Operation.ID != id {
			// A version before has begun this since: it passes over what it does not know.
			r.Operation = Operation{ID: id, Kind: kind, Actor: entry.Actor}
			return
		}
		// The versions before go by the trail, and do not know that something else in it
		// ends a series: then it is begun anew there, too.
		r.Operation.Latest = latest && !slices.ContainsFunc(r.Audit[i:], func(a Audit) bool { return operationID(a) != r.Operation.ID })
		return
	}
}

// operationID is the ID with which an operation's entries in the trail begin.
func operationID(a Audit) string {
	id, _, _ := strings.Cut(a.Detail, ": ")
	return id
}
