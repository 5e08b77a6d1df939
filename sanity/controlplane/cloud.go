package controlplane

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// loopback is the address of a node on the host's network.
const loopback = "127.0.0.1"

// cloudTaint stands on a Node that waits for its cloud (k8s.io/cloud-provider/api,
// TaintExternalCloudProvider).
const cloudTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// initialize does what a cloud does for a new Node: it says the address and takes off
// the taint with which the kubelet has registered it. Nodes on the host's network
// have the cluster as their cloud, because a kubelet without a cloud says the host's
// first address, and refuses loopback. A kubelet leaves addresses that it finds as they are.
func (n *Node) initialize(ctx context.Context) error {
	if n.network != nil {
		return nil
	}
	nodes := n.cluster.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !hasAddress(node, loopback) {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loopback}, {Type: corev1.NodeHostName, Address: n.name}}
		if node, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	waits := func(t corev1.Taint) bool { return t.Key == cloudTaint }
	if !slices.ContainsFunc(node.Spec.Taints, waits) {
		return nil
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, waits)
	_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
	return err
}

func hasAddress(node *corev1.Node, ip string) bool {
	return slices.Contains(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
}
