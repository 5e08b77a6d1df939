package fencer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// On gives the machine back what the agents took from it. Its power fence is
// void in the record before; a storage fence is lifted in it after the agents
// read the access as open. Errors as in Off.
func (f *Fencer) On(ctx context.Context, t Target, reason string) (Answer, error) {
	if err := f.writable(t, "on", reason, f.Covers(t.Node)); err != nil {
		return Answer{}, err
	}
	return f.restore(ctx, t, reason, "on", f.Levels)
}

// Lift gives the node's machine its access to the storage of this Fencer's
// driver back, whether or not the record has a fence. It is lifted in the record
// only if the agents read the access as open then. A driver other than the
// Fencer's is an error: only its own sidecar can.
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
	id := string(uuid.NewUUID())
	if _, err := lock.Update(ctx, func(r *record.Record) (bool, error) {
		if p := r.Fence(fence.PowerReading, ""); p != nil && action == "on" {
			r.EndFence(p.ID, record.Void, "given its power back: "+reason, f.Actor)
		}
		r.Note(f.Actor, "Begin:"+action, id+": node UID "+t.UID+": "+reason)
		return true, nil
	}); err != nil {
		return Answer{}, err
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lock.Lost():
			cancel(record.ErrLockLost)
		case <-limited.Done():
		}
	}()
	if err := lock.Held(limited); err != nil {
		return Answer{}, err
	}
	machine, err := f.fencedMachine(limited, t, now)
	if err != nil {
		return Answer{}, err
	}
	a := f.answer(levels.On(limited, machine), f.bind(t, now), time.Now())
	return a, f.restored(ctx, t, id, reason, action, &a)
}

// restored writes what became of it. Only access that every storage agent reads
// as open lifts a fence.
func (f *Fencer) restored(ctx context.Context, t Target, id, reason, action string, a *Answer) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := f.Records.Update(ctx, t.Node, func(r *record.Record) (bool, error) {
		s := r.Fence(fence.StorageFence, f.Driver)
		if s != nil && f.open(a.Steps) {
			lifted := *s
			lifted.Steps = append(lifted.Steps, steps(a.Steps)...)
			r.PutFence(lifted, "Unfenced")
			a.Fence = s.ID
			r.EndFence(s.ID, record.Lifted, reason, f.Actor)
		}
		r.Note(f.Actor, "End:"+action, fmt.Sprintf("%s: %s: %s", id, a.State, trail(a.Steps, a.Why)))
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("the agents' answer (%s: %s) could not be written down: %w", a.State, a.Why, err)
	}
	return nil
}

// open: agents that cut storage were read, and each reads the access as open.
func (f *Fencer) open(all []agent.Step) bool {
	counts := map[agent.State]int{}
	for _, s := range []agent.State{agent.Unclear, agent.On, agent.Off} {
		names, _ := readers(all, s)
		for _, name := range names {
			if f.proves[name] == fence.StorageFence {
				counts[s]++
			}
		}
	}
	return counts[agent.On] > 0 && counts[agent.Off]+counts[agent.Unclear] == 0
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

// Void writes down that the node is back, if it is: its power fence, finished or
// not, counts no more once its machine has another boot ID, or another lease
// than it was bound to. One that is under way stops before its next off; one by
// force is about a node that may live, and goes on. A storage fence stands until
// it is lifted. A new machine under the old name is not the old one's return.
func (f *Fencer) Void(ctx context.Context, node, why string) (voided bool, err error) {
	if f.ReadOnly {
		return false, refuse(node, "void", "nothing is changed here (mode Observe, or a command that only reads)")
	}
	r, err := f.Records.Get(ctx, node)
	if err != nil || r.Fence(fence.PowerReading, "") == nil {
		return false, err
	}
	now, err := f.look(ctx, node)
	if err != nil || now.node == nil {
		return false, err
	}
	judged := *r.Fence(fence.PowerReading, "")
	since := back(judged.Machine, now)
	if since == "" || judged.Forced && judged.Phase == record.Fencing {
		return false, nil
	}
	r, err = f.Records.VoidFence(ctx, node, judged, since+": "+why, f.Actor)
	f.forget(node)
	if err != nil {
		return false, err
	}
	ended := r.FenceByID(judged.ID)
	return ended != nil && ended.Phase == record.Void, nil
}

// back says what changed of the machine; empty: nothing, or it is another one.
func back(m record.FencedMachine, now look) string {
	switch {
	case string(now.node.UID) != m.NodeUID && now.node.Status.NodeInfo.BootID == m.BootID:
		return fence.VoidRegisteredAgain
	case string(now.node.UID) != m.NodeUID:
		return ""
	case now.node.Status.NodeInfo.BootID != m.BootID:
		return fence.VoidBootChanged
	case now.leaseRV != m.LeaseRV:
		return fence.VoidLeaseChanged
	}
	return ""
}
