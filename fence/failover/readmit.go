package failover

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// void writes down that the node came back.
func (w *worker) void(ctx context.Context, s *state) error {
	why := "the node renewed its lease again, under the same boot ID"
	if s.rebooted() {
		why = fmt.Sprintf("the node has booted since: its boot ID is %s", s.Node.Status.NodeInfo.BootID)
	}
	_, err := w.Fencer.Void(ctx, w.name, why)
	return err
}

// warn says of a node that was proven off and yet went on that its volumes may have moved.
func (w *worker) warn(s *state) error {
	w.say(s.Node, "node", warning, ReasonFenceVoid, s.Fence.LeaseRV, fmt.Sprintf(
		"node %s renews its lease without having booted, although it was proven off (%s): the fence was wrong, or the machine was paused. "+
			"Check that %s acts on this very machine. The fence is void; the taint %s stays until the kubelet has unmounted what moved",
		s.Name, s.Fence.Source, s.Fence.Source, corev1.TaintNodeOutOfService))
	return nil
}
