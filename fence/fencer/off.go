package fencer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Off has the agents cut the machine off, and waits for its lock until ctx ends.
// The answer's State is Off only if it was read so afterwards; a machine that is
// off already is not sent anything. Of a Target that is StorageOnly only the storage is
// cut. A *RefusedError, a *record.LockedError or an error of the API server says that no
// off was sent; if the Answer has Steps with action off, the error came after it.
//
// force cuts off a node that may be alive, has opted out, or is fenced by
// somebody whose word the agents do not bear out. A reason is required.
func (f *Fencer) Off(ctx context.Context, t Target, reason string, force bool) (Answer, error) {
	if err := f.writable(t, "off", reason, f.Covers(t.Node)); err != nil {
		return Answer{}, err
	}
	lock, err := f.Records.Lock(ctx, t.Node, f.Actor, f.lockFor)
	if err != nil {
		return Answer{}, err
	}
	c := &cut{Fencer: f, t: t, lock: lock, reason: reason, force: force, id: string(uuid.NewUUID()), other: string(uuid.NewUUID())}
	a, err := c.run(ctx)
	f.forget(t.Node)
	f.unlock(ctx, t.Node, lock, a.Outstanding)
	return a, err
}

// unlock lets the lock go once nothing can take effect any more.
func (f *Fencer) unlock(ctx context.Context, node string, lock *record.Lock, outstanding <-chan struct{}) {
	release := func() {
		ctx, cancel := detached(ctx)
		defer cancel()
		if err := lock.Release(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The lock of the node's record is left to run out", "node", node)
		}
	}
	if outstanding == nil {
		release()
		return
	}
	klog.FromContext(ctx).Info("A fence agent hangs; the node stays locked until its call has ended", "node", node)
	go func() {
		<-outstanding
		release()
	}()
}

// cut is one Off under the lock.
type cut struct {
	*Fencer
	t      Target
	lock   *record.Lock
	reason string
	force  bool
	id     string // of the fence
	other  string // of the power fence, where id is of a storage fence that is kept

	uncut   bool               // the storage fence on record is not in place as a whole (Answer.Uncut)
	asked   []agent.Step       // the readings before the first off
	own     []string           // the blocks that the cut makes this driver's own to open, by them
	meant   []record.FenceStep // that an off is about to be sent, as it was written down
	last    look               // at the node, right before the last off
	written []string           // "Fencing" stands in the record, by ID
	called  atomic.Bool        // off by the caller
}

func (c *cut) run(ctx context.Context) (Answer, error) {
	now, err := c.permitted(ctx)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.observe(ctx, c.t)
	if err != nil {
		return Answer{}, err
	}
	lifting, err := c.undisputed(ctx, &a)
	if err != nil {
		return Answer{}, err
	}
	if a.State == agent.Off && !(lifting && a.Kind == fence.StorageFence) {
		err := c.settle(ctx, &a)
		if err == nil && a.State != agent.Off {
			err = refuse(c.t.Node, "off", "%s", a.Why)
		}
		return a, err
	}
	c.asked, c.uncut = a.Steps, a.Uncut
	a, err = c.off(ctx, now)
	if words := faults(a.Steps); a.State != agent.Off && words != "" {
		a.Why = words + "; " + a.Why
	}
	a.Steps = slices.Concat(c.asked, a.Steps)
	if err == nil && !slices.ContainsFunc(a.Steps, func(s agent.Step) bool { return s.Action == "off" }) {
		err = refuse(c.t.Node, "off", "%s", a.Why)
	}
	err = errors.Join(err, c.settle(ctx, &a)) // which may change a
	return a, err
}

// faults say why agents did not cut the machine off, each reason once, in the order
// of the calls; empty: all did as they were told.
func faults(steps []agent.Step) string {
	var words []string
	for _, s := range steps {
		if s.Action != "off" || s.Err == "" {
			continue
		}
		if one := "agent " + s.Agent + " did not cut it off: " + s.Err; !slices.Contains(words, one) {
			words = append(words, one)
		}
	}
	return strings.Join(words, "; ")
}

// permitted looks at the node: is it the one that is meant, unchanged since the
// evidence, and may it be fenced?
func (c *cut) permitted(ctx context.Context) (look, error) {
	now, err := c.look(ctx, c.t.Node)
	if err != nil {
		return now, err
	}
	why := now.another(c.t)
	switch {
	case why != "", c.force:
	case now.node == nil:
		why = "its Node is gone, so that nothing says whether it lives"
	case now.node.Annotations[OptOutAnnotation] == "false":
		why = fmt.Sprintf("its Node has opted out (annotation %s: \"false\")", OptOutAnnotation)
	case now.leaseRV != c.t.LeaseRV:
		why = fence.VoidLeaseChanged
	}
	if why != "" {
		return now, refuse(c.t.Node, "off", "%s", why)
	}
	return now, nil
}

// undisputed: nobody else's fence says that the machine is off, which our agents
// do not bear out. One left unfinished is ours to go on with. lifting: the access is
// being given back, so that a reading of it as cut says nothing before it was cut anew.
func (c *cut) undisputed(ctx context.Context, a *Answer) (lifting bool, err error) {
	r, err := c.Records.Get(ctx, c.t.Node)
	if err != nil {
		return false, err
	}
	s := r.Fence(fence.StorageFence, c.Driver)
	lifting = s != nil && s.BeingLifted()
	p := r.Fence(fence.PowerReading, "")
	if a.State == agent.Off || c.force || p == nil || p.Phase != record.Fenced || !r.Vouched(p) || p.Actor == c.Actor {
		return lifting, nil
	}
	if m := a.Machine; !p.Machine.Same(m) || p.Machine.LeaseRV != m.LeaseRV {
		return lifting, nil // of an earlier time
	}
	return false, refuse(c.t.Node, "off", "it is fenced already, by %s (fence %s), although our own agents do not read it as off: %s", p.Actor, p.ID, a.Why)
}

// off sends it, and binds what was read afterwards. An error is the API
// server's; the machine may be off then.
func (c *cut) off(ctx context.Context, now look) (Answer, error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.lock.Lost():
			cancel(record.ErrLockLost)
		case <-limited.Done():
		}
	}()
	// What an earlier fence cut has to read as cut, too: an Ask asks for that.
	machine, known, err := c.fencedMachine(limited, c.t, now)
	if err != nil {
		return Answer{}, err
	}
	c.doubt(limited, &machine, now.node)
	c.last = now
	if known != nil {
		c.own = c.ownBlocks(known.own)
		machine.Own = c.own
	}
	levels := c.Levels
	if c.t.StorageOnly {
		levels = c.storage
	}
	if why := levels.Withheld(machine); why != "" {
		return Answer{Why: why, Machine: c.bind(c.t, now)}, nil
	}
	outcome := levels.Off(limited, machine, c.before)
	a := c.answer(outcome, c.bind(c.t, c.last), time.Now())
	if a.State != agent.Off {
		return a, nil
	}
	quick, stop := detached(ctx)
	defer stop()
	after, err := c.look(quick, c.t.Node)
	if err == nil && changed(c.t, c.last, after, a.Kind) == "" {
		a.Machine = c.bind(c.t, after)
		return a, nil
	}
	if err != nil {
		return c.unproven(a, err.Error()), err
	}
	// A last sign of life came in between: only a new reading counts.
	again, err := c.observe(context.WithoutCancel(ctx), c.t)
	again.Steps, again.Outstanding = slices.Concat(a.Steps, again.Steps), a.Outstanding
	if err != nil {
		return c.unproven(again, err.Error()), err
	}
	return again, nil
}

// ownBlocks are those that the agents named before the first off. What was cut off then is
// somebody else's to open, but for what fences of this driver were to cut (before). Where an
// agent did not answer, all may be, whichever addresses it goes by.
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
	return remove(named, remove(found, before))
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

func (c *cut) unproven(a Answer, why string) Answer {
	return Answer{Why: why, Machine: a.Machine, Steps: a.Steps, Outstanding: a.Outstanding}
}

// before is called right before each off. The lease comes last: it is what says
// that the node has come back.
func (c *cut) before(ctx context.Context, next agent.Agent) error {
	if err := c.intend(ctx, next); err != nil {
		return err
	}
	if err := c.lock.Held(ctx); err != nil {
		return err
	}
	now, err := c.permitted(ctx)
	if err != nil {
		return err
	}
	if err := c.t.still(ctx, now.node); err != nil {
		c.called.Store(true)
		return err
	}
	c.last = now
	return nil
}

// intend writes into the record, while the lock is ours, that the machine is
// about to be cut off. A fence of ours that somebody voided since is over.
func (c *cut) intend(ctx context.Context, next agent.Agent) error {
	kind := next.Proves()
	wrote := ""
	_, err := c.lock.Update(ctx, func(r *record.Record) (bool, error) {
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
			start.Witness = cur.Witness
			if !r.Vouched(cur) && oneMachine(cur.Machine, now) {
				// Which boot it is of nobody knows.
				start.Machine, start.Witness = now, nil
			}
		}
		if try := failedBefore(r, &start, c.Driver); f == nil && try != nil && start.Phase == record.Fencing {
			// The same again: one fence, that began when the first try did.
			start.StartedAt, start.Steps = try.StartedAt, offSteps(try)
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

// settle writes what became of it, also for a caller that is gone, but only while the
// lock is ours: whoever had it since may have given back what was read as cut. What
// was begun is theirs to be ended then.
func (c *cut) settle(ctx context.Context, a *Answer) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	read := *a
	_, err := c.lock.Update(ctx, func(r *record.Record) (changed bool, err error) {
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
