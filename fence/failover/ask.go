package failover

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// patience is how long an answer may take before it is said what is awaited.
const patience = time.Second

// ask reads the agents.
func (w *worker) ask(ctx context.Context, s *state) error {
	w.askNow.Store(false)
	var answer fencer.Answer
	var err error
	target, answered := w.target(s), make(chan struct{})
	go func() {
		defer close(answered)
		answer, err = w.read(ctx, target)
	}()
	select {
	case <-answered:
	case <-time.After(patience):
		var said error
		if w.answer == nil && s.suspect() && s.Holds {
			said = w.suspect(ctx, s)
		}
		<-answered
		if said != nil {
			return said
		}
	}
	if err != nil {
		answer = fencer.Answer{State: agent.Unclear, Why: fence.Clip(err.Error())}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	w.heard(ctx, answer)
	return nil
}

// read reads the agents. One that reads on, and that an operator has declared
// broken, contradicts nobody.
func (w *worker) read(ctx context.Context, t fencer.Target) (fencer.Answer, error) {
	a, err := w.Fencer.Ask(ctx, t)
	if err != nil || len(a.On) == 0 || a.State == agent.Off {
		return a, err
	}
	r, err := w.Records.Get(ctx, t.Node)
	if err != nil {
		return fencer.Answer{}, err
	}
	a.State = agent.On
	if !slices.ContainsFunc(a.On, func(name string) bool { return !r.Overridden(name, a.Machine) }) {
		a.State, a.Why = agent.Unclear, a.Why+" (overridden by an operator)"
	}
	return a, nil
}

// heard takes note of an answer.
func (w *worker) heard(ctx context.Context, a fencer.Answer) {
	if last := w.answer; last == nil || last.State != a.State || last.Kind != a.Kind || last.Why != a.Why {
		klog.FromContext(ctx).Info("Fence agents answered", "state", a.State, "why", a.Why)
	}
	w.answer, w.asked = &a, time.Now()
}

// target is the machine as the look found it. Of a Node that is gone its record
// and the ledgers know what is left.
func (w *worker) target(s *state) fencer.Target {
	t := fencer.Target{LeaseRV: s.LeaseRV, Node: w.name}
	volumes := w.heldBy(w.name)
	h := w.machine(s, w.judged(s.Node, volumes)[0], volumes)
	t.NodeID, t.UID, t.BootID, t.SystemUUID, t.ProviderID = h.NodeID, h.NodeUID, h.BootID, h.SystemUUID, h.ProviderID
	t.StorageOnly = w.unpowered(s.Node)
	return t
}
