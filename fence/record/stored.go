package record

import (
	"cmp"
	"slices"
	"strings"
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

// stored is r as it is written.
func (r *Record) stored() *Record {
	out := *r
	out.Fences = slices.Clone(r.Fences)
	for i := range out.Fences {
		f := &out.Fences[i]
		if !f.BeingLifted() {
			continue
		}
		f.LiftReason = cmp.Or(f.LiftReason, "no reason is on record")
		if f.Phase == Lifting {
			f.Phase = Fenced
		} else {
			f.Phase = Fencing
		}
	}
	return &out
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
		for ending, words := range endings {
			if f.Phase == Void && f.Ending == "" && strings.HasPrefix(f.Why, words) {
				f.Ending = ending
			}
		}
	}
	for _, entry := range slices.Backward(r.Audit) {
		kind, found := operations[entry.Action]
		if !found {
			continue
		}
		// A version before has begun this since: it passes over what it does not know.
		if id, _, _ := strings.Cut(entry.Detail, ": "); r.Operation.ID != id {
			r.Operation = Operation{ID: id, Kind: kind, Actor: entry.Actor}
		}
		return
	}
}
