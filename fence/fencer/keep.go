package fencer

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// keep writes what was read into the record: off is a fence, on ends one.
func (f *Fencer) keep(ctx context.Context, t Target, a *Answer) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	if a.known != nil && a.known.unvouched {
		if err := f.takeBack(ctx, t, a); err != nil {
			return err
		}
	}
	switch a.State {
	case agent.Off:
		return f.keepOff(ctx, t, a)
	case agent.On:
		return f.keepOn(ctx, t, a)
	}
	return nil
}

// takeBack vouches for the driver's fence that somebody else put to be lifted: its sidecar
// opens the rest of it once the machine has booted again, or was witnessed, from now on.
func (f *Fencer) takeBack(ctx context.Context, t Target, a *Answer) error {
	_, err := f.Records.Update(ctx, t.Node, func(r *record.Record) (bool, error) {
		cur := r.Fence(fence.StorageFence, f.Driver)
		return cur != nil && cur.Phase == record.Lifting && f.vouch(r, cur, a), nil
	})
	return err
}

func (f *Fencer) keepOff(ctx context.Context, t Target, a *Answer) error {
	id := string(uuid.NewUUID())
	read := *a
	_, err := f.Records.UpdateMarked(ctx, t.Node, func(r *record.Record, now record.Mark) (bool, error) {
		*a = read
		if a.Kind == fence.StorageFence && a.known != nil {
			if why := f.reopened(a.known, r, now, a.Machine); why != "" {
				*a = Answer{Why: why, On: a.On, Steps: a.Steps, Machine: a.Machine, Outstanding: a.Outstanding, read: a.read, torn: true}
				return false, nil
			}
		}
		cur := r.Fence(a.Kind, f.Driver)
		if cur != nil && cur.BeingLifted() {
			// Access may be open the moment after it was read as cut.
			a.State, a.Kind, a.Storage, a.Agents, a.Detail = agent.Unclear, "", agent.Unclear, nil, ""
			a.Why = "fence " + cur.ID + ": " + fence.VoidLifting
			return false, nil
		}
		if cur != nil && cur.Phase == record.Fenced && stands(cur, a.Machine) {
			a.Fence = cur.ID
			vouched := f.vouch(r, cur, a)
			return r.PutMissed(cur.ID, a.missed) || vouched, nil
		}
		next := f.fenced(id, a, "the agents read it as off")
		action := "FencedByReading"
		if cur != nil && cur.Phase == record.Fencing && r.Vouched(cur) && cur.Machine.Same(a.Machine) {
			// Begun by somebody who has not come to an end yet, or never will.
			next.ID, next.Reason, next.Forced, next.StartedAt = cur.ID, cur.Reason, cur.Forced, cur.StartedAt
			next.Steps = append(slices.Clone(cur.Steps), next.Steps...)
		}
		f.afterFailed(r, &next)
		if last := r.LastPowerFence(); a.Kind == fence.PowerReading && last != nil && last.Ending == record.PowerGivenBack && sameReading(last, a.Machine) && r.Vouched(last.Cutting()) {
			// It was to be given its power back, which came to nothing: it is off because
			// of those requests. That there were any is taken from nobody who may not send them.
			next.Steps, next.StartedAt = append(offSteps(last), next.Steps...), last.StartedAt
		}
		a.Fence = next.ID
		r.PutFence(next, action)
		return true, nil
	})
	return err
}

// stands tells whether what was read again is written already. A storage fence keeps the machine
// and boot ID that it was made for until it is lifted: others tell that the node has been away
// since.
func stands(cur *record.Fence, m record.FencedMachine) bool {
	return cur.Kind == fence.StorageFence || sameReading(cur, m)
}

// afterFailed has a storage fence go on with a try that came to nothing by what was read
// then: what that cut is this driver's to open.
func (f *Fencer) afterFailed(r *record.Record, next *record.Fence) {
	if try := failedBefore(r, next, f.Driver); try != nil && next.Kind == fence.StorageFence {
		next.StartedAt, next.Steps = since(r, try, next), append(offSteps(try), next.Steps...)
	}
}

// vouch vouches for a fence for which nobody does, as no version before did, once the agents
// have read it as off. Who fenced stays who fenced; what was sent for that is not known any
// more. What would lift a storage fence is taken
// from nobody: the machine has to boot, or to be witnessed, from now on. One of another
// machine is left alone.
//
// So it is with a storage fence whose machine has booted since, and is cut off at another
// address too, by somebody else: that was open to it when it booted, and what it has mounted
// since is mounted still.
func (f *Fencer) vouch(r *record.Record, cur *record.Fence, a *Answer) bool {
	anew := laterBoot(cur.Machine, a.Machine) && len(remove(agent.Blocks(a.Detail), blocks(cur))) > 0
	if !oneMachine(cur.Machine, a.Machine) {
		return false
	}
	if r.Vouched(cur) && !anew {
		return cur.OwnWord && a.State == agent.Off && !a.OwnWord && r.Still(cur, func() bool {
			cur.OwnWord, cur.What = false, a.Detail
			return true
		})
	}
	next := *cur
	if cur.Kind == fence.PowerReading {
		// That somebody switched it off, by which it is switched on again, is taken from nobody.
		next.Steps = steps(a.Steps)
	}
	if cur.Kind == fence.StorageFence {
		next.Machine, next.Witness, next.OwnWord = a.Machine, nil, a.OwnWord || a.State != agent.Off
	}
	if cur.Kind == fence.StorageFence && cur.Phase == record.Fenced {
		next.What = a.Detail
	}
	r.VouchFor(next, f.Actor)
	return true
}

// sameReading tells whether the fence is a power fence of that machine, of which nothing was heard
// since.
func sameReading(f *record.Fence, m record.FencedMachine) bool {
	return f.Machine.Same(m) && f.Machine.LeaseRV == m.LeaseRV
}

// keepOn voids the fences of that machine which the reading contradicts, unless
// an operator says that the agents are wrong.
func (f *Fencer) keepOn(ctx context.Context, t Target, a *Answer) error {
	_, err := f.Records.Update(ctx, t.Node, func(r *record.Record) (bool, error) {
		power := f.contradict(r, a, fence.PowerReading, "read as on again by ")
		storage := a.Storage == agent.On && f.contradict(r, a, fence.StorageFence, "read as open again by ")
		return f.noteOpen(r, a) || power || storage, nil
	})
	return err
}

// noteOpen writes down of which fences of that machine that have ended the reading says that what
// they cut is open: what is cut off from then on somebody else has cut.
func (f *Fencer) noteOpen(r *record.Record, a *Answer) (changed bool) {
	var open []string
	for _, st := range a.Steps {
		if st.State == agent.On {
			open = append(open, agent.Blocks(st.Detail)...)
		}
	}
	for _, s := range f.storageFences(r) {
		if cut := blocks(s); a.Storage == agent.On && len(cut) > 0 && len(remove(cut, open)) == 0 && oneMachine(s.Machine, a.Machine) {
			changed = r.LiftEnded(s.ID, "its agents read it as open", f.Actor) || changed
		}
	}
	return changed
}

func (f *Fencer) contradict(r *record.Record, a *Answer, kind fence.Kind, how string) bool {
	cur := r.Fence(kind, f.Driver)
	if cur == nil || cur.UnderWay() {
		return false
	}
	same := cur.Machine.NodeUID == a.Machine.NodeUID
	if kind == fence.StorageFence {
		same = oneMachine(cur.Machine, a.Machine)
	}
	if !same {
		return false
	}
	names, _ := readers(a.Steps, agent.On)
	names = slices.DeleteFunc(names, func(name string) bool { return f.proves[name] != kind || r.Overridden(name, a.Machine) })
	return len(names) > 0 && r.EndFence(cur.ID, record.Void, how+strings.Join(names, ", "), f.Actor)
}

// fenced is the fence that an answer proves.
func (f *Fencer) fenced(id string, a *Answer, reason string) record.Fence {
	at := time.Now().UTC().Format(time.RFC3339)
	next := record.Fence{
		ID: id, Kind: a.Kind, What: a.Detail, Machine: a.Machine, Phase: record.Fenced, Actor: f.Actor, Reason: reason,
		OwnWord: a.OwnWord, Missed: a.missed, Agents: a.Agents, StartedAt: at, EndedAt: at, Steps: steps(a.Steps),
	}
	if a.Kind == fence.StorageFence {
		next.Driver = f.Driver
	}
	return next
}

// steps as the record keeps them.
func steps(all []agent.Step) []record.FenceStep {
	var out []record.FenceStep
	for _, st := range all {
		out = append(out, record.FenceStep{
			Agent: st.Agent, Action: st.Action, Attempt: st.Attempt, State: st.State.String(), Detail: st.Detail, Err: st.Err,
			At: st.Started.UTC().Format(time.RFC3339), TookMS: st.Took.Milliseconds(),
		})
	}
	return out
}
