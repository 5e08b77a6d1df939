package fencer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Before each off the record says what is about to be cut off, and what of it is this driver's to
// open again: whoever comes next knows that, if this process dies or loses the lock.

// intend writes into the record, while the lock is ours, that the machine is
// about to be cut off. A fence of ours that somebody voided since is over.
func (c *cut) intend(ctx context.Context, next agent.Agent) error {
	kind := next.Proves()
	wrote := ""
	r, err := c.lock.Update(ctx, func(r *record.Record) (bool, error) {
		wrote = ""
		f, id := c.begun(r, kind)
		switch {
		case f == nil && slices.Contains(c.written, id):
			return false, refuse(c.t.Node, "off", "fence %s is not in the record any more", id)
		case f != nil && !f.Current():
			return false, refuse(c.t.Node, "off", "fence %s is %s: %s", id, f.Phase, f.Why)
		case f != nil && f.Kind == kind:
			more := *f
			if kind != fence.StorageFence || !c.means(&more, next.Name()) {
				return false, nil
			}
			r.PutFence(more, "Fence")
			return true, nil
		}
		now := c.bind(c.t, look{node: c.last.node, leaseRV: c.t.LeaseRV})
		start := record.Fence{ID: id, Kind: kind, Machine: now, Phase: record.Fencing,
			Actor: c.Actor, Reason: c.reason, Forced: c.force, StartedAt: time.Now().UTC().Format(time.RFC3339)}
		if kind == fence.StorageFence && r.StorageFenced(c.Driver) {
			cur := r.Fence(kind, c.Driver)
			switch {
			case cur.BeingLifted():
			case otherMachine(cur.Machine, start.Machine):
				// One is on record at a time: the cut would be on none, and lifted by nobody.
				return false, refuse(c.t.Node, "off", "the storage fence %s on record is of another machine that had its name (node UID %s, boot ID %s): once that one is off for good, "+
					"take what was cut off the list of %s, then csi-fencepost fence on %s, and this again", cur.ID, cur.Machine.NodeUID, cur.Machine.BootID, c.Driver, c.t.Node)
			case !c.uncut:
				return false, nil // that one keeps volumes away until it is lifted
			}
			// What it cut may still be cut, whatever comes of this. Nothing moves off the node
			// before it is cut anew, so its witness counts on until then.
			// A node that is cut anew is no further node: the brakes go by when it began.
			start.Lift(cmp.Or(cur.LiftReason, "its agents read a part of it as open"))
			start.StartedAt, start.Machine, start.What, start.Agents, start.Steps = cur.StartedAt, cur.Machine, cur.What, cur.Agents, offSteps(cur)
			start.Witness, start.OwnWord = cur.Witness, cur.OwnWord || !r.Vouched(cur)
			if !r.Vouched(cur) && oneMachine(cur.Machine, now) {
				// Which boot it is of nobody knows.
				start.Machine, start.Witness = now, nil
			}
		}
		if try := failedBefore(r, &start, c.Driver); f == nil && try != nil && start.Phase == record.Fencing {
			// The same again: one fence, that began when the first try did.
			start.StartedAt, start.Steps = since(r, try, &start), offSteps(try)
			start.OwnWord = kind == fence.StorageFence && !r.Vouched(try) // nobody vouches for what a try was to cut that has ended
			r.Fences = slices.DeleteFunc(r.Fences, func(f record.Fence) bool { return f.ID == try.ID && f.Phase == record.Failed })
		}
		if f != nil {
			start.Steps = append(start.Steps, f.Steps...)
			if start.Phase == record.Fencing {
				start.StartedAt = f.StartedAt
			}
		}
		if kind == fence.StorageFence {
			start.Driver = c.Driver
			c.means(&start, next.Name())
		}
		r.PutFence(start, "Fence")
		r.Begin(&record.Operation{ID: id, Kind: record.Cut, Actor: c.Actor})
		wrote = id
		return true, nil
	})
	if err == nil && wrote != "" {
		c.written = append(c.written, wrote)
		c.cuts.did(r, wrote, false, time.Now())
	}
	return err
}

// begun is the fence of ours that goes on as one of that kind, and the ID that it has
// or is to get. A storage fence that is being lifted becomes no power fence: it stays,
// to be lifted, whatever becomes of the power.
func (c *cut) begun(r *record.Record, kind fence.Kind) (*record.Fence, string) {
	f := r.FenceByID(c.id)
	if kind == fence.PowerReading && f != nil && f.BeingLifted() {
		return r.FenceByID(c.other), c.other
	}
	return f, c.id
}

// failedBefore is the last try at that machine that came to nothing, if nothing was
// heard of it since. One at its storage may have come to no end: what was to be cut is known.
func failedBefore(r *record.Record, f *record.Fence, driver string) *record.Fence {
	for i := len(r.Fences) - 1; i >= 0; i-- {
		try := &r.Fences[i]
		ended := try.Phase == record.Failed || try.Phase == record.Fencing && try.Kind == fence.StorageFence
		if ended && try.ID != f.ID && try.Kind == f.Kind && (try.Kind == fence.PowerReading || try.Driver == driver) && sameReading(try, f.Machine) {
			cp := *try
			return &cp
		}
	}
	return nil
}

// since is when a fence began that goes on with that try: as that did, where somebody vouches for
// that, for the brakes count by it.
func since(r *record.Record, try, next *record.Fence) string {
	if r.Vouched(try.Cutting()) {
		return try.StartedAt
	}
	return next.StartedAt
}

// offSteps are the requests that cut what the fence cut, each once: a fence keeps only
// so many steps.
func offSteps(f *record.Fence) []record.FenceStep {
	var all []record.FenceStep
	for _, st := range f.Steps {
		same := func(o record.FenceStep) bool { return o.Agent == st.Agent && o.Detail == st.Detail }
		if st.Action == "off" && !slices.ContainsFunc(all, same) {
			all = append(all, st)
		}
	}
	return all
}

// ownBlocks are those that the agents named before the first off. What was cut off then is
// somebody else's to open, but for what fences of this driver were to cut (before). Where an
// agent did not answer, all may be, whichever addresses it goes by. Nil, where none was asked, or
// none said anything of it: nobody is known to have cut anything, so that all is the driver's own.
func (c *cut) ownBlocks(before []string) []string {
	var named, found []string
	for _, st := range c.asked {
		switch {
		case st.Action != "status" || c.proves[st.Agent] != fence.StorageFence:
		case st.Err != "":
			return []string{}
		default:
			named, found = append(named, st.Named...), append(found, st.Cut...)
		}
	}
	if len(named) == 0 && len(found) == 0 {
		return nil
	}
	return remove(named, remove(found, before))
}

// newlyCut are the blocks that the agents were told to cut, and that nobody had cut before.
func (c *cut) newlyCut(taken []agent.Step) []string {
	var sent, found []string
	for _, st := range taken {
		if st.Action == "off" {
			sent = append(sent, agent.Blocks(st.Detail)...)
		}
	}
	for _, st := range c.asked {
		found = append(found, st.Cut...)
	}
	return remove(sent, found)
}

// means writes down what the agent is about to cut off, before it does: whoever comes next
// has to know that it is this driver's to open, if this process dies, or loses the lock. It
// returns false where the fence says so already.
func (c *cut) means(f *record.Fence, name string) bool {
	var named []string
	for _, st := range c.asked {
		if st.Agent == name {
			named = slices.DeleteFunc(slices.Clone(st.Named), func(b string) bool { return !slices.Contains(c.own, b) })
		}
	}
	next := record.FenceStep{Agent: name, Action: "off", At: time.Now().UTC().Format(time.RFC3339),
		Detail: fmt.Sprintf("fence %s at driver %s (about to be sent)", strings.Join(named, ", "), c.Driver)}
	if len(named) == 0 || slices.ContainsFunc(f.Steps, func(st record.FenceStep) bool { return st.Agent == name && st.Detail == next.Detail }) {
		return false
	}
	f.Steps = append(slices.Clone(f.Steps), next)
	c.meant = append(c.meant, next)
	return true
}

// done are the steps of a fence of this cut, without those that only say that an off is about
// to be sent: what came of it is among the steps that were taken, unless the agent hangs. An
// agent that refused has cut nothing off, and somebody else may do so next.
func (c *cut) done(f *record.Fence, taken []agent.Step) []record.FenceStep {
	return slices.DeleteFunc(slices.Clone(f.Steps), func(st record.FenceStep) bool {
		return slices.ContainsFunc(c.meant, func(m record.FenceStep) bool { return m.Agent == st.Agent && m.Detail == st.Detail && m.At == st.At }) &&
			!slices.ContainsFunc(taken, func(t agent.Step) bool { return t.Agent == st.Agent && t.Action == "off" && t.Hangs })
	})
}
