package main

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// nodeNow is what there is of a node now. Node and Lease may be nil.
type nodeNow struct {
	name    string
	node    *corev1.Node
	lease   *coordinationv1.Lease
	csiNode *storagev1.CSINode
}

func readNode(ctx context.Context, client kubernetes.Interface, name string) (now *nodeNow, err error) {
	now = &nodeNow{name: name}
	if now.node, err = absent(client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read Node %s: %w", name, err)
	}
	if now.csiNode, err = absent(client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read CSINode %s: %w", name, err)
	}
	if now.lease, err = absent(client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})); err != nil {
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

func (n *nodeNow) uid() string {
	if n.node == nil {
		return ""
	}
	return string(n.node.UID)
}

func (n *nodeNow) bootID() string {
	if n.node == nil {
		return ""
	}
	return n.node.Status.NodeInfo.BootID
}

func (n *nodeNow) systemUUID() string {
	if n.node == nil {
		return ""
	}
	return n.node.Status.NodeInfo.SystemUUID
}

func (n *nodeNow) leaseRV() string {
	if n.lease == nil {
		return ""
	}
	return n.lease.ResourceVersion
}

// nodeID is a driver's node ID on the node; empty: none.
func (n *nodeNow) nodeID(driver string) string {
	if n.csiNode != nil {
		for _, d := range n.csiNode.Spec.Drivers {
			if d.Name == driver {
				return d.NodeID
			}
		}
	}
	return ""
}

func (n *nodeNow) carries(nodeID string) bool {
	return n.node != nil && n.csiNode != nil && slices.ContainsFunc(n.csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.NodeID == nodeID })
}
