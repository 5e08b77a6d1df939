package fencer

import (
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

// whileLocked is ctx for as long as the lock is ours.
func whileLocked(ctx context.Context, lock *record.Lock) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-lock.Lost():
			cancel(record.ErrLockLost)
		case <-limited.Done():
		}
	}()
	return limited, func() { cancel(nil) }
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
	a, err := c.observe(ctx, c.t, newFlight())
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

// undisputed is an error where somebody else's fence says that the machine is off, which our agents
// do not bear out. A fence that was left unfinished is ours to go on with. lifting tells that the
// access is being given back, so that a reading of it as cut says nothing before it was cut anew.
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
	limited, cancel := whileLocked(ctx, c.lock)
	defer cancel()
	// What an earlier fence cut has to read as cut, too: an Ask asks for that.
	machine, _, known, err := c.fencedMachine(limited, c.t, now)
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
	if known != nil && a.Kind == fence.StorageFence {
		a.OwnWord = ownWord(outcome.Steps, union(known.told, c.newlyCut(outcome.Steps)))
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
	again, err := c.observe(context.WithoutCancel(ctx), c.t, newFlight())
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
	if err := c.t.still(ctx, now.node); err != nil {
		c.called.Store(true)
		return err
	}
	c.last = now
	return nil
}
