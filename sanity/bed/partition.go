package bed

import "time"

// Partition cuts the machine off the network (needs StageOptions.Networks): what
// its kubelet sends or is sent is dropped, and no one is told. The kubelet works
// on with what it knows; its containers write on, and reach the array: it has a
// network of its own, as storage often has.
func (n *Node) Partition() {
	n.stage.T.Helper()
	n.stage.must("partition "+n.Name, n.kube.Partition())
}

// Heal ends the partition; the kubelet is heard again some seconds later (see
// WaitReady).
func (n *Node) Heal() {
	n.stage.T.Helper()
	n.stage.must("heal the partition of "+n.Name, n.kube.Heal())
}

// WaitReady waits until Kubernetes hears of the node again, and says how long
// that took.
func (n *Node) WaitReady(limit time.Duration) time.Duration {
	n.stage.T.Helper()
	return n.stage.WaitFor(limit, n.Name+" is Ready", n.Ready)
}
