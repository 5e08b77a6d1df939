package failover

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// patience is how long an answer may take before it is said what is awaited.
const patience = time.Second

// ask reads the agents.
func (w *worker) ask(ctx context.Context, s *state) error {
	w.askNow.Store(false)
	var answer Answer
	var err error
	target, answered := w.target(s), make(chan struct{})
	go func() {
		defer close(answered)
		answer, err = w.Fencer.Ask(ctx, target)
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
		answer = Answer{State: agent.Unclear, Why: fence.Clip(err.Error())}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	w.heard(ctx, answer)
	return nil
}

// heard takes note of an answer.
func (w *worker) heard(ctx context.Context, a Answer) {
	if w.answer == nil || *w.answer != a {
		klog.FromContext(ctx).Info("Fence agents answered", "state", a.State, "why", a.Why)
	}
	w.answer, w.asked = &a, time.Now()
}

// target is the machine as the look found it. Of a Node that is gone its record
// and the ledgers know what is left.
func (w *worker) target(s *state) Target {
	t := Target{LeaseRV: s.LeaseRV, Machine: agent.Machine{Node: w.name}}
	h := w.machine(s, w.Index.HeldBy(w.name))
	t.NodeID, t.UID, t.BootID = h.NodeID, h.NodeUID, h.BootID
	if n := s.Node; n != nil {
		t.SystemUUID, t.ProviderID = n.Status.NodeInfo.SystemUUID, n.Spec.ProviderID
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				t.Addresses = append(t.Addresses, a.Address)
			}
		}
	}
	return t
}
