package failover

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// powerOn powers a node on that a sidecar had switched off, once no driver's
// volume is attached to it any more. Whoever works on the node keeps it off by what
// keeps it from being fenced, too.
func (w *worker) powerOn(ctx context.Context, s *state) error {
	held := func(n *corev1.Node) error {
		b, words := (&weather{Node: n}).ofNode()
		if b == NoBrake {
			return nil
		}
		w.say(s.Node, "node", normal, ReasonLeftAlone, "off "+words, "node "+w.name+" is not powered on again: "+words)
		return errLater
	}
	if err := held(s.Node); err != nil {
		return err
	}
	t := w.target(s)
	t.Fence = s.Fence.ID
	t.Still = func(ctx context.Context, n *corev1.Node) error {
		if err := held(n); err != nil {
			return err
		}
		return w.still(ctx, s)
	}
	return w.Fencer.On(ctx, t, "every volume has moved (fencing.powerOn)")
}
