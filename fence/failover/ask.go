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

// told is an answer, and about which machine.
type told struct {
	about fencer.Target
	fencer.Answer
}

// sameMachine tells whether both mean one machine, whatever a driver calls it.
func sameMachine(a, b *fencer.Target) bool {
	return a.UID == b.UID && a.BootID == b.BootID && a.SystemUUID == b.SystemUUID && a.ProviderID == b.ProviderID
}

// ask reads the agents, about each machine that is meant.
func (w *worker) ask(ctx context.Context, s *state) error {
	w.askNow.Store(false)
	var answers []told
	targets, answered := w.targets(s), make(chan struct{})
	if targets[0].Missed != nil {
		w.knock(s.Node)
	}
	go func() {
		defer close(answered)
		for _, t := range targets {
			began := time.Now()
			a, err := w.read(ctx, t)
			if err == nil {
				w.polls.heard(w.name, readingOf(&a, began), t.Missed != nil)
			} else {
				a = fencer.Answer{State: agent.Unclear, Why: fence.Clip(err.Error())}
			}
			answers = append(answers, told{t, a})
		}
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
	if ctx.Err() != nil {
		return ctx.Err()
	}
	first := slices.IndexFunc(answers, func(t told) bool { return t.State != agent.Off })
	w.heard(ctx, answers[max(0, first)].Answer)
	w.answers = answers
	return nil
}

// read reads the agents. An agent that reads on, and that an operator has declared
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
	w.answer, w.answers, w.asked = &a, nil, time.Now()
	if w.silent++; a.State != agent.Unclear || a.OffTwice {
		w.silent = 0
	}
}

// target is the machine as the look found it. Of a Node that is gone its record
// and the ledgers know what is left.
func (w *worker) target(s *state) fencer.Target {
	h := w.judged(s, w.heldBy(w.name))[0]
	t := targetOf(&h, s.LeaseRV)
	t.StorageOnly = w.unpowered(s.Node)
	return t
}

// targets are all machines that are meant: those that had the name of a Node that is gone, as the
// ledgers know them. The record says of one at a time that it is off, the one that was asked about
// last, and so each comes last in its turn.
func (w *worker) targets(s *state) []fencer.Target {
	if s.Node != nil {
		t := w.target(s)
		if s.early() && !t.StorageOnly && !s.storageFenced() {
			t.Missed = w.missed(s)
		}
		return []fencer.Target{t}
	}
	var all []fencer.Target
	for _, h := range w.judged(s, w.heldBy(w.name)) {
		if t := targetOf(&h, s.LeaseRV); !slices.ContainsFunc(all, func(o fencer.Target) bool { return sameMachine(&o, &t) }) {
			all = append(all, t)
		}
	}
	w.turn++
	at := w.turn % len(all)
	return slices.Concat(all[at:], all[:at])
}

func targetOf(h *fence.Holder, leaseRV string) fencer.Target {
	return fencer.Target{LeaseRV: leaseRV, Node: h.NodeName, NodeID: h.NodeID, UID: h.NodeUID, BootID: h.BootID, SystemUUID: h.SystemUUID, ProviderID: h.ProviderID}
}
