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

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Node is what there is of a node now. Node and Lease may be nil.
type Node struct {
	Name    string
	Node    *corev1.Node
	Lease   *coordinationv1.Lease
	CSINode *storagev1.CSINode
	// systemShared tells whether another Node reports its system UUID (ListHoldings).
	systemShared bool
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

// Machine of the Node, as a driver knows it.
func (n *Node) Machine(driver string) fence.Machine {
	m := fence.MachineOf(n.Node)
	m.NodeID, m.SystemShared = n.NodeID(driver), n.systemShared
	return m
}

// askShared asks whether another Node reports its system UUID, where that is what tells
// whether a holding is the live machine's.
func (n *Node) askShared(ctx context.Context, client kubernetes.Interface, held []Holding) error {
	matters := func(h Holding) bool {
		now := n.Machine(h.Driver)
		alone := h.Compare(now)
		now.SystemShared = true
		return alone != h.Compare(now)
	}
	if n.Node == nil || !slices.ContainsFunc(held, matters) {
		return nil
	}
	all, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list the Nodes, to tell whether another one reports the system UUID of node %s: %w", n.Name, err)
	}
	key := fence.SystemKey(n.Node.Status.NodeInfo.SystemUUID)
	n.systemShared = slices.ContainsFunc(all.Items, func(other corev1.Node) bool {
		return other.Name != n.Name && fence.SystemKey(other.Status.NodeInfo.SystemUUID) == key
	})
	return nil
}

// Carries tells whether the live node has that node ID of any driver.
func (n *Node) Carries(nodeID string) bool {
	return n.Node != nil && n.CSINode != nil && slices.ContainsFunc(n.CSINode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.NodeID == nodeID })
}

// LeasePoll is how often a lease is read while it is watched.
const LeasePoll = time.Second
