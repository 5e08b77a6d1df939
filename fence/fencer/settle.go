package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// What became of a cut is written down while the lock is ours: that the machine is fenced, where
// the agents read it as off, or else that the try failed. What was to be lifted before is to be
// lifted still.

// settle writes what became of it, also for a caller that is gone, but only while the
// lock is ours: whoever had it since may have given back what was read as cut. What
// was begun is theirs to be ended then.
func (c *cut) settle(ctx context.Context, a *Answer) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	read := *a
	r, err := c.lock.Update(ctx, func(r *record.Record) (changed bool, err error) {
		*a = read
		if a.State == agent.Off {
			changed = c.settleOff(r, a)
		}
		for _, id := range []string{c.id, c.other} {
			ours := r.FenceByID(id)
			if ours == nil || !ours.UnderWay() || a.State == agent.Off && ours.Phase == record.Fencing {
				continue // proven off, or voided, by somebody else
			}
			changed = true
			before := c.done(ours, a.Steps)
			if c.called.Load() && ours.Phase == record.Fencing && !slices.ContainsFunc(before, func(s record.FenceStep) bool { return s.Action == "off" }) &&
				!slices.ContainsFunc(a.Steps, func(s agent.Step) bool { return s.Action == "off" }) {
				r.Fences = slices.DeleteFunc(r.Fences, func(f record.Fence) bool { return f.ID == id })
				r.Note(c.Actor, "FenceCalledOff", id+": "+a.Why)
				continue
			}
			failed := *ours
			failed.Phase, failed.Why, failed.EndedAt = record.Failed, a.Why, time.Now().UTC().Format(time.RFC3339)
			if ours.Phase == record.Refencing {
				// What was cut may still be: it is still to be lifted.
				failed.Phase, failed.Why = record.Lifting, "not cut anew: "+a.Why
			}
			failed.Steps = append(before, steps(a.Steps)...)
			r.PutFence(failed, "FenceFailed")
		}
		return changed, nil
	})
	if errors.Is(err, record.ErrLockLost) {
		on := read.On
		*a = c.unproven(read, fmt.Sprintf("the lock was lost before the agents' answer (%s: %s) could be written down", read.State, read.Why))
		a.On = on
		return nil
	}
	if err != nil {
		return fmt.Errorf("the agents' answer (%s: %s) could not be written down: %w", a.State, a.Why, err)
	}
	taken := slices.ContainsFunc(read.Steps, func(st agent.Step) bool { return st.Action == "off" && st.Err == "" })
	for _, id := range c.written {
		c.cuts.did(r, id, taken, time.Now())
	}
	return nil
}

func (c *cut) settleOff(r *record.Record, a *Answer) bool {
	ours, id := c.begun(r, a.Kind)
	cur := r.Fence(a.Kind, c.Driver)
	if cur != nil && cur.Phase == record.Fenced && cur.ID != id && stands(cur, a.Machine) {
		a.Fence = cur.ID
		changed := c.vouch(r, cur, a)
		if ours != nil && ours.UnderWay() {
			return r.EndFence(id, record.Void, "fence "+cur.ID+" stands", c.Actor) || changed
		}
		return changed
	}
	if ours != nil && !ours.Current() {
		// Voided since it began: the node was seen to return.
		a.State, a.Kind, a.Why = agent.Unclear, "", "fence "+id+" was voided meanwhile: "+ours.Why
		return false
	}
	next := c.fenced(id, a, c.reason)
	next.Forced = c.force
	if ours == nil {
		c.afterFailed(r, &next)
	} else {
		next.StartedAt = ours.StartedAt
		if !ours.BeingLifted() || oneMachine(ours.Machine, a.Machine) {
			next.Steps = append(c.done(ours, a.Steps), next.Steps...)
		}
	}
	a.Fence = next.ID
	r.PutFence(next, "Fenced")
	return true
}
