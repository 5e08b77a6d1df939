package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Node is what there is of a node now. Node and Lease may be nil.
type Node struct {
	Name    string
	Node    *corev1.Node
	Lease   *coordinationv1.Lease
	CSINode *storagev1.CSINode
}

// ReadNode reads the Node, its CSINode and its lease; what is not there is nil.
func ReadNode(ctx context.Context, client kubernetes.Interface, name string) (now *Node, err error) {
	now = &Node{Name: name}
	if now.Node, err = absent(client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read Node %s: %w", name, err)
	}
	if now.CSINode, err = absent(client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read CSINode %s: %w", name, err)
	}
	if now.Lease, err = absent(client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read the lease of node %s: %w", name, err)
	}
	return now, nil
}

// absent is nil for what is not there.
func absent[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// UID of the Node; empty: there is none.
func (n *Node) UID() string {
	if n.Node == nil {
		return ""
	}
	return string(n.Node.UID)
}

// BootID of the Node; empty: there is none.
func (n *Node) BootID() string {
	if n.Node == nil {
		return ""
	}
	return n.Node.Status.NodeInfo.BootID
}

// SystemUUID of the Node; empty: there is none.
func (n *Node) SystemUUID() string {
	if n.Node == nil {
		return ""
	}
	return n.Node.Status.NodeInfo.SystemUUID
}

// LeaseRV is the lease's resourceVersion; empty: there is no lease.
func (n *Node) LeaseRV() string {
	if n.Lease == nil {
		return ""
	}
	return n.Lease.ResourceVersion
}

// NodeID is a driver's node ID on the node; empty: none.
func (n *Node) NodeID(driver string) string {
	if n.CSINode != nil {
		for _, d := range n.CSINode.Spec.Drivers {
			if d.Name == driver {
				return d.NodeID
			}
		}
	}
	return ""
}

// Carries tells whether the live node has that node ID of any driver.
func (n *Node) Carries(nodeID string) bool {
	return n.Node != nil && n.CSINode != nil && slices.ContainsFunc(n.CSINode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.NodeID == nodeID })
}

// LeasePoll is how often a lease is read while it is watched.
const LeasePoll = time.Second
