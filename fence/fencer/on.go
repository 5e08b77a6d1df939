package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// On gives the machine back what the agents took from it. Its power fence is
// void in the record before, and its storage fence proves nothing from then on;
// that is lifted after the agents read the access as open. Another driver's fence of
// the same addresses, whose volumes the caller has asked for too, proves nothing either,
// and nobody vouches for it any more. What the fence cut and another node's fence names too stays
// cut, and the fence is not lifted. Errors as in Off.
func (f *Fencer) On(ctx context.Context, t Target, reason string) (Answer, error) {
	if err := f.writable(t, "on", reason, f.Covers(t.Node)); err != nil {
		return Answer{}, err
	}
	return f.restore(ctx, t, reason, "on", f.Levels)
}

// Lift gives the node's machine its access to the storage of this Fencer's
// driver back, whether or not the record has a fence. A fence that it has proves
// nothing from before the first request on. It is lifted in the record only if the
// agents read the access as open then, and that of all that the fence cut; else
// Lift is an error that says why not, and to be called again. A fence of another
// machine that had the node's name is not undone. A driver other than the Fencer's
// is an error: only its own sidecar can. Of agents that cut addresses off: before the
// machine has booted only that is opened which this driver's fences were to cut, and in the
// boot of another driver's fence of the machine, before that is to be lifted, nothing that
// that one cuts off too.
func (f *Fencer) Lift(ctx context.Context, t Target, driver, reason string) (Answer, error) {
	if err := f.writable(t, "lift", reason, f.CoversStorage(t.Node)); err != nil {
		return Answer{}, err
	}
	if driver != f.Driver {
		return Answer{}, refuse(t.Node, "lift", "its storage fence is of driver %s, this is the sidecar of %s", driver, f.Driver)
	}
	return f.restore(ctx, t, reason, "lift", f.storage)
}

func (f *Fencer) restore(ctx context.Context, t Target, reason, action string, levels agent.Levels) (Answer, error) {
	lock, err := f.Records.Lock(ctx, t.Node, f.Actor, f.lockFor)
	if err != nil {
		return Answer{}, err
	}
	f.forget(t.Node)
	a, err := f.restoreLocked(ctx, t, lock, reason, action, levels)
	f.forget(t.Node)
	f.unlock(ctx, t.Node, lock, a.Outstanding)
	return a, err
}

func (f *Fencer) restoreLocked(ctx context.Context, t Target, lock *record.Lock, reason, action string, levels agent.Levels) (Answer, error) {
	now, err := f.look(ctx, t.Node)
	if err != nil {
		return Answer{}, err
	}
	if now.node != nil && string(now.node.UID) != t.UID {
		return Answer{}, refuse(t.Node, action, "%s", fence.VoidOtherMachine)
	}
	if err := t.still(ctx, now.node); err != nil {
		return Answer{}, err
	}
	machine := now.machine(t)
	f.doubt(ctx, &machine, now.node)
	if why := levels.Withheld(machine); action == "lift" && why != "" {
		return Answer{}, refuse(t.Node, action, "%s", why) // the fence would prove nothing for nothing
	}
	r, err := f.Records.Get(ctx, t.Node)
	if err != nil {
		return Answer{}, err
	}
	u := &undoing{Fencer: f, t: t, reason: reason, action: action, now: f.bind(t, now), settled: settled(now.node), addresses: hosts(machine.Addresses),
		operation: record.Operation{Kind: kinds[action], Actor: f.Actor, NodeUID: t.UID, Reason: reason}}
	if r != nil && slices.ContainsFunc(r.Fences, u.anothers) {
		u.addresses, u.told = f.addresses(ctx, machine)
	}
	if err := u.begin(ctx, lock); err != nil {
		return Answer{}, errors.Join(err, u.callOff(ctx, lock)) // it may be written all the same
	}
	limited, cancel := whileLocked(ctx, lock)
	defer cancel()
	// From here on the fences free no volume, so that what they freed before shows.
	if err = f.stillSo(limited, &t); err == nil {
		err = lock.Held(limited)
	}
	if err != nil {
		if u.ended {
			err = fmt.Errorf("%w%s", err, u.doubt)
		}
		return Answer{}, errors.Join(err, u.callOff(ctx, lock))
	}
	if u.held != "" {
		// It stays to be lifted, so that the other does not wait for it in turn.
		return Answer{}, errors.New(u.held)
	}
	if u.own() {
		machine.Fenced = blocks(u.fence)
	}
	var here []string // that an On opens besides
	if action == "on" && u.CoversStorage(t.Node) {
		here, _ = f.addresses(limited, machine)
		// A person is not held up by a record that does not tell.
		if _, err := u.spare(limited, union(machine.Fenced, here)); err != nil {
			return Answer{}, errors.Join(err, u.callOff(ctx, lock))
		}
		machine.Fenced = remove(machine.Fenced, u.theirs)
	}
	u.remember(limited, &machine)
	switch {
	case action == "lift":
		machine.Only = u.opens(limited, machine)
	case len(u.theirs) > 0:
		machine.Only = remove(union(machine.Fenced, here), u.theirs)
	}
	a := f.answer(levels.On(limited, machine), u.now, time.Now())
	a.Why += u.doubt
	opened := u.opened(limited, &a)
	kept := remove(remove(slices.Concat(u.addresses, u.names()), machine.Only), u.theirs)
	slices.Sort(kept)
	if kept = slices.Compact(kept); machine.Only != nil && !opened && len(kept) > 0 {
		a.Why += fmt.Sprintf("; where %s is cut off, no fence of driver %s was to cut it, and its sidecar does not open it: whoever cut it does, or a person: csi-fencepost fence on %s",
			listed(kept), u.Driver, printable.Word(t.Node))
	}
	if !opened && u.untouched(a.Steps) {
		err = u.callOff(ctx, lock)
	}
	return a, errors.Join(u.end(ctx, &a, opened), err)
}

// stillSo asks the caller once more, about the Node as it is by now.
func (f *Fencer) stillSo(ctx context.Context, t *Target) error {
	if t.Still == nil {
		return nil
	}
	now, err := f.look(ctx, t.Node)
	if err != nil {
		return err
	}
	return t.Still(ctx, now.node)
}

// kinds of operation that give something back.
var kinds = map[string]record.OperationKind{"on": record.On, "lift": record.Lift}

// undoing is one On or Lift under the lock.
type undoing struct {
	*Fencer
	t              Target
	reason, action string
	now            record.FencedMachine
	settled        bool     // every driver's sidecar has had the time to see it Ready
	addresses      []string // that it has now, as blocks; told: the agents have said so
	told           bool

	operation record.Operation
	// fence of the storage that the record has, as it was then; nil: none.
	fence *record.Fence
	begun bool // it was in force until now
	// ended tells that fences of other drivers were ended.
	ended bool
	// cut are the blocks that this driver's fences of the machine were to cut.
	cut []string
	// held says which fence of another driver keeps this one from being lifted; empty: none.
	held string
	// theirs are blocks that are not opened, for another node's fence names them.
	theirs []string
	// left are storage fences of the machine that were withdrawn: what they cut is
	// still cut, for all that anybody knows.
	left  []record.Fence
	doubt string // what a person has to know besides: why that is left alone, what else ends
}

// own tells whether the storage fence is of the machine that is meant.
func (u *undoing) own() bool { return u.fence != nil && oneMachine(u.fence.Machine, u.now) }

// booted tells whether the storage fence is of the machine that is meant, and that has booted
// since.
func (u *undoing) booted() bool { return u.own() && laterBoot(u.fence.Machine, u.now) }

// begin ends what the record proves, before anything is given back.
func (u *undoing) begin(ctx context.Context, lock *record.Lock) error {
	_, err := lock.Update(ctx, func(r *record.Record) (bool, error) {
		u.operation.ID, u.fence, u.begun, u.ended, u.left, u.cut, u.held, u.doubt = string(uuid.NewUUID()), nil, false, false, nil, nil, "", ""
		if err := u.meant(r); err != nil {
			return false, err
		}
		if p := r.Fence(fence.PowerReading, ""); p != nil && u.action == "on" {
			r.GivePowerBack(p.ID, u.reason, u.Actor)
		}
		if u.CoversStorage(u.t.Node) {
			u.beginStorage(r)
		}
		begins := u.held == "" && r.Begin(&u.operation)
		return begins || u.begun || u.ended, nil
	})
	return err
}

func (u *undoing) beginStorage(r *record.Record) {
	if s := r.Fence(fence.StorageFence, u.Driver); s != nil {
		u.begun = r.Still(s, func() bool { return s.Lift(u.reason) })
		was := *s
		u.fence = &was
	}
	u.cut = u.ownCut(r, u.now)
	for _, s := range u.storageFences(r) {
		if s.Withdrawn() && oneMachine(s.Machine, u.now) {
			u.left = append(u.left, *s)
		}
	}
	u.meet(r)
}

// meant fails where the record has another fence than the caller saw, or none of those.
func (u *undoing) meant(r *record.Record) error {
	if u.t.Fences == nil {
		return nil
	}
	stand := 0
	for _, f := range []*record.Fence{r.Fence(fence.PowerReading, ""), r.Fence(fence.StorageFence, u.Driver)} {
		switch {
		case f == nil, f.Kind == fence.PowerReading && u.action != "on", f.Kind == fence.StorageFence && !u.CoversStorage(u.t.Node):
		case !slices.Contains(u.t.Fences, f.ID):
			return refuse(u.t.Node, u.action, "fence %s stands now, made by %s at %s", f.ID, f.Actor, f.StartedAt)
		default:
			stand++
		}
	}
	if stand == 0 && len(u.t.Fences) > 0 {
		return refuse(u.t.Node, u.action, "fence %s does not stand any more", strings.Join(u.t.Fences, ", "))
	}
	return nil
}

// callOff takes back that the fence is being lifted: nothing was sent that gives
// back what it cut. It does so only while the lock is ours: whoever had it since may
// have sent something. For those of other drivers nobody vouches any more.
func (u *undoing) callOff(ctx context.Context, lock *record.Lock) error {
	if !u.begun {
		return nil
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := lock.Update(ctx, func(r *record.Record) (bool, error) {
		s := r.FenceByID(u.fence.ID)
		return s != nil && r.Still(s, s.CallOffLift), nil
	})
	if errors.Is(err, record.ErrLockLost) {
		return nil // it stays to be lifted
	}
	return err
}

// end writes what became of it. Only access that every storage agent reads as
// open lifts a fence.
func (u *undoing) end(ctx context.Context, a *Answer, opened bool) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	stands := false
	_, err := u.Records.Update(ctx, u.t.Node, func(r *record.Record) (changed bool, err error) {
		stands = false
		changed = r.End(u.operation, fmt.Sprintf("%s: %s", a.State, trail(a.Steps, a.Why)))
		if u.open(a.Steps) {
			for _, left := range u.left {
				changed = r.LiftEnded(left.ID, u.reason, u.Actor) || changed
			}
			changed = u.noteOpen(r, a) || changed
		}
		if u.fence == nil {
			return changed, nil
		}
		s := r.Fence(fence.StorageFence, u.Driver)
		if s == nil || s.ID != u.fence.ID {
			return changed, nil // ended, or made anew, by somebody else
		}
		if !opened {
			stands = true
			return changed, nil
		}
		lifted := *s
		lifted.Steps = append(slices.Clone(s.Steps), steps(a.Steps)...)
		r.PutFence(lifted, "Unfenced")
		a.Fence = s.ID
		r.EndFence(s.ID, record.Lifted, u.reason, u.Actor)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("the agents' answer (%s: %s) could not be written down: %w", a.State, a.Why, err)
	}
	return u.failed(a, stands)
}

// failed says that access was not given back, or not all of it.
func (u *undoing) failed(a *Answer, stands bool) error {
	switch {
	case stands && !u.own():
		return fmt.Errorf("the storage fence of node %s (%s) is of another machine that had its name (node UID %s, boot ID %s), and is not lifted for this one: "+
			"once that machine is off for good, take %s off the list of driver %s (%s)", u.t.Node, u.fence.ID, u.fence.Machine.NodeUID, u.fence.Machine.BootID, listed(blocks(u.fence)), u.Driver, a.Why)
	case stands && (u.action == "lift" || a.State == agent.On):
		return fmt.Errorf("the storage fence of node %s (%s) is not lifted: %s", u.t.Node, u.fence.ID, a.Why)
	case u.action == "lift" && a.State != agent.On:
		return fmt.Errorf("the access of node %s to the storage of %s does not read open: %s", u.t.Node, u.Driver, a.Why)
	}
	return nil
}

// trail is the raw answers of steps, short enough for an audit entry.
func trail(all []agent.Step, why string) string {
	text := why
	for _, st := range all {
		text += fmt.Sprintf("; %s %s: %s", st.Agent, st.Action, st.State)
		for _, more := range []string{st.Detail, st.Err} {
			if more != "" {
				text += " (" + more + ")"
			}
		}
	}
	return text
}
