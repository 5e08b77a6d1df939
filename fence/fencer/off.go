package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Off has the agents cut the machine off, and waits for its lock until ctx ends.
// The answer's State is Off only if it was read so afterwards; a machine that is
// off already is not sent anything. A *RefusedError, a *record.LockedError or an
// error of the API server says that no off was sent; if the Answer has Steps with
// action off, the error came after it.
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
	c := &cut{Fencer: f, t: t, lock: lock, reason: reason, force: force, id: string(uuid.NewUUID())}
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

	last    look // at the node, right before the last off
	written bool // "Fencing" stands in the record
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
	if a.State == agent.Off {
		return a, c.settle(ctx, &a)
	}
	if err := c.undisputed(ctx, &a); err != nil {
		return Answer{}, err
	}
	asked := a.Steps
	a, err = c.off(ctx, now)
	if words := faults(a.Steps); a.State != agent.Off && words != "" {
		a.Why = words + "; " + a.Why
	}
	a.Steps = slices.Concat(asked, a.Steps)
	if err == nil && !slices.ContainsFunc(a.Steps, func(s agent.Step) bool { return s.Action == "off" }) {
		err = refuse(c.t.Node, "off", "%s", a.Why)
	}
	return a, errors.Join(err, c.settle(ctx, &a))
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
// do not bear out. One left unfinished is ours to go on with.
func (c *cut) undisputed(ctx context.Context, a *Answer) error {
	r, err := c.Records.Get(ctx, c.t.Node)
	if err != nil {
		return err
	}
	p := r.Fence(fence.PowerReading, "")
	if c.force || p == nil || p.Phase != record.Fenced || p.Actor == c.Actor {
		return nil
	}
	if m := a.Machine; !p.Machine.Same(m) || p.Machine.LeaseRV != m.LeaseRV {
		return nil // of an earlier time
	}
	return refuse(c.t.Node, "off", "it is fenced already, by %s (fence %s), although our own agents do not read it as off: %s", p.Actor, p.ID, a.Why)
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
	outcome := c.Levels.Off(limited, now.machine(c.t), c.before)
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
	c.last = now
	return nil
}

// intend writes into the record, while the lock is ours, that the machine is
// about to be cut off. A fence of ours that somebody voided since is over.
func (c *cut) intend(ctx context.Context, next agent.Agent) error {
	kind := next.Proves()
	_, err := c.lock.Update(ctx, func(r *record.Record) (bool, error) {
		f := r.FenceByID(c.id)
		switch {
		case f == nil && c.written:
			return false, refuse(c.t.Node, "off", "fence %s is not in the record any more", c.id)
		case f != nil && !f.Current():
			return false, refuse(c.t.Node, "off", "fence %s is %s: %s", c.id, f.Phase, f.Why)
		case f != nil && f.Kind == kind:
			return false, nil
		}
		var steps []record.FenceStep
		if kind == fence.StorageFence && r.StorageFenced(c.Driver) {
			cur := r.Fence(kind, c.Driver)
			if cur.Lifting == "" {
				return false, nil // that one keeps volumes away until it is lifted
			}
			steps = slices.Clone(cur.Steps) // what it cut may still be cut
		}
		start := record.Fence{ID: c.id, Kind: kind, Machine: c.bind(c.t, look{leaseRV: c.t.LeaseRV}), Phase: record.Fencing,
			Actor: c.Actor, Reason: c.reason, Forced: c.force, StartedAt: time.Now().UTC().Format(time.RFC3339), Steps: steps}
		if f != nil {
			start.StartedAt, start.Steps = f.StartedAt, append(start.Steps, f.Steps...)
		}
		if kind == fence.StorageFence {
			start.Driver = c.Driver
		}
		r.PutFence(start, "Fence")
		c.written = true
		return true, nil
	})
	return err
}

// settle writes what became of it, also for a caller that is gone.
func (c *cut) settle(ctx context.Context, a *Answer) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := c.Records.Update(ctx, c.t.Node, func(r *record.Record) (bool, error) {
		ours := r.FenceByID(c.id)
		if a.State == agent.Off {
			return c.settleOff(r, ours, a), nil
		}
		if ours == nil || ours.Phase != record.Fencing {
			return false, nil // proven off, or voided, by somebody else
		}
		failed := *ours
		failed.Phase, failed.Why, failed.EndedAt = record.Failed, a.Why, time.Now().UTC().Format(time.RFC3339)
		failed.Steps = append(slices.Clone(ours.Steps), steps(a.Steps)...)
		r.PutFence(failed, "FenceFailed")
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("the agents' answer (%s: %s) could not be written down: %w", a.State, a.Why, err)
	}
	return nil
}

func (c *cut) settleOff(r *record.Record, ours *record.Fence, a *Answer) bool {
	cur := r.Fence(a.Kind, c.Driver)
	lifting := cur != nil && cur.ID != c.id && cur.Lifting != ""
	if cur != nil && cur.Phase == record.Fenced && cur.ID != c.id && !lifting && stands(cur, a.Machine) {
		a.Fence = cur.ID
		if ours != nil && ours.Phase == record.Fencing {
			return r.EndFence(c.id, record.Void, "fence "+cur.ID+" stands", c.Actor)
		}
		return false
	}
	if ours != nil && !ours.Current() {
		// Voided since it began: the node was seen to return.
		a.State, a.Kind, a.Why = agent.Unclear, "", "fence "+c.id+" was voided meanwhile: "+ours.Why
		return false
	}
	next := c.fenced(c.id, a, c.reason)
	next.Forced = c.force
	switch {
	case ours != nil:
		next.StartedAt = ours.StartedAt
		next.Steps = append(slices.Clone(ours.Steps), next.Steps...)
	case lifting:
		next.Steps = append(slices.Clone(cur.Steps), next.Steps...)
	}
	a.Fence = next.ID
	r.PutFence(next, "Fenced")
	return true
}
