package failover

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// powerOnDue tells whether a sidecar has switched the node off, and no driver's volume is attached
// to it any more.
func (s *state) powerOnDue() bool {
	return s.PowerOn && s.Attached == 0 && s.Node != nil && s.Fence != nil && s.Fence.Kind == fence.PowerReading && s.Fence.Cut && s.Fence.Sidecar && s.Fence.Vouched && s.Fence.Void == ""
}

// keptOff says why the node is not powered on all the same: whoever works on it keeps
// it off by what keeps it from being fenced, too.
func (s *state) keptOff() string {
	_, words := (&weather{Node: s.Node}).ofNode()
	return words
}

func (w *worker) powerOn(ctx context.Context, s *state) error {
	t := w.target(s)
	t.Fences = s.Standing
	t.Still = func(ctx context.Context, n *corev1.Node) error {
		if b, _ := (&weather{Node: n}).ofNode(); b != NoBrake {
			return errChanged
		}
		_, err := w.still(ctx, s)
		return err
	}
	_, err := w.Fencer.On(ctx, t, "every volume has moved (fencing.powerOn)")
	return err
}

// sayKeptOff says why the node stays off.
func (w *worker) sayKeptOff(s *state) {
	if words := s.keptOff(); words != "" && s.powerOnDue() {
		w.say(s.Node, "node", normal, ReasonLeftAlone, "off "+words, "node "+w.name+" is not powered on again: "+words)
	}
}
