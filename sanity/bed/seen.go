package bed

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Ready tells whether the Node says that its kubelet is well.
func Ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// OutOfService tells whether the Node has the taint, whoever put it on.
func OutOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// ReadOff tells whether the node's record, which the Lease carries, has a fence that
// counts and rests on an agent's reading of the machine's power. A record that cannot
// be read has none: csi-fencepost would not believe it either.
func ReadOff(l *coordinationv1.Lease) bool {
	node, _ := record.NodeOf(l)
	r, err := record.FromLease(l, node)
	f := r.Fence(fence.PowerReading, "")
	return err == nil && f != nil && f.Phase == record.Fenced && r.Vouched(f)
}
