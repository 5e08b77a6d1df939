package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// machines is what Kubernetes says of all nodes, read once.
type machines struct {
	nodes  map[string]*corev1.Node
	leases map[string]*coordinationv1.Lease
	ids    map[string]string // the driver's node IDs, where there is a driver
	at     time.Time
}

// readMachines lists Nodes and leases, and the node IDs of driver if that is
// named.
func readMachines(ctx context.Context, c *cluster, driver string) (*machines, error) {
	m := &machines{nodes: map[string]*corev1.Node{}, leases: map[string]*coordinationv1.Lease{}, ids: map[string]string{}}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list Nodes: %w", err)
	}
	for i := range nodes.Items {
		m.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	leases, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the nodes' leases: %w", err)
	}
	for i := range leases.Items {
		m.leases[leases.Items[i].Name] = &leases.Items[i]
	}
	m.at = time.Now()
	if driver == "" {
		return m, nil
	}
	csiNodes, err := c.client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list CSINodes: %w", err)
	}
	for i := range csiNodes.Items {
		m.ids[csiNodes.Items[i].Name] = driversNodeID(&csiNodes.Items[i], driver)
	}
	return m, nil
}

// driversNodeID is a driver's node ID on a node; empty: none.
func driversNodeID(n *storagev1.CSINode, driver string) string {
	for _, d := range n.Spec.Drivers {
		if d.Name == driver {
			return d.NodeID
		}
	}
	return ""
}

// names of the Nodes, sorted.
func (m *machines) names() []string {
	var names []string
	for name := range m.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// machine is what an agent is told of a node, whether or not it has a Node.
func (m *machines) machine(name string) agent.Machine {
	return machineOf(name, m.nodes[name], m.ids[name])
}

// machineOf is what an agent is told. node may be nil.
func machineOf(name string, node *corev1.Node, nodeID string) agent.Machine {
	out := agent.Machine{Node: name, NodeID: nodeID}
	if node == nil {
		return out
	}
	out.UID, out.BootID = string(node.UID), node.Status.NodeInfo.BootID
	out.SystemUUID, out.ProviderID = node.Status.NodeInfo.SystemUUID, node.Spec.ProviderID
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	return out
}

func (m *machines) liveness(name string) string {
	return (&nodeNow{node: m.nodes[name], lease: m.leases[name]}).livenessAt(m.at)
}

func (n *nodeNow) liveness() string { return n.livenessAt(time.Now()) }

// livenessAt is the node's Ready condition, and when it last renewed its lease
// by its own clock.
func (n *nodeNow) livenessAt(at time.Time) string {
	words := "no Node"
	if n.node != nil {
		words = cli.Either(observe.NodeReady(n.node), "Ready", "NotReady")
	}
	switch {
	case n.lease == nil:
		return words + ", no lease"
	case n.lease.Spec.RenewTime == nil:
		return words + ", lease never renewed"
	}
	return words + ", lease renewed " + cli.Ago(at.Sub(n.lease.Spec.RenewTime.Time))
}
