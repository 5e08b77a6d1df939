package cluster

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
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// Machines is what Kubernetes says of all nodes, read once.
type Machines struct {
	Nodes  map[string]*corev1.Node
	leases map[string]*coordinationv1.Lease
	ids    map[string]string // the driver's node IDs, where there is a driver
	at     time.Time
}

// ReadMachines lists Nodes and leases, and the node IDs of driver if that is
// named.
func ReadMachines(ctx context.Context, c *Cluster, driver string) (*Machines, error) {
	m := &Machines{Nodes: map[string]*corev1.Node{}, leases: map[string]*coordinationv1.Lease{}, ids: map[string]string{}}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list Nodes: %w", err)
	}
	for i := range nodes.Items {
		m.Nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	leases, err := c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
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
	csiNodes, err := c.Client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
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

// Names of the Nodes, sorted.
func (m *Machines) Names() []string {
	var names []string
	for name := range m.Nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Machine is what an agent is told of a node, whether or not it has a Node.
func (m *Machines) Machine(name string) agent.Machine {
	return MachineOf(name, m.Nodes[name], m.ids[name])
}

// Known are the machines of all Nodes, as they tell them from others.
func (m *Machines) Known() (all []fence.Machine) {
	all = []fence.Machine{}
	for name, node := range m.Nodes {
		known := fence.MachineOf(node)
		known.NodeID = m.ids[name]
		all = append(all, known)
	}
	return all
}

// Doubted is m with what is in doubt of it where these agents go by what its node says. Of a
// node of which nothing is bound that is nothing: no sidecar may run yet, or one in Observe.
func (c *Cluster) Doubted(ctx context.Context, s *sidecar.AgentSet, m agent.Machine) agent.Machine {
	if !s.Levels.Seek(m.Node) {
		return m
	}
	r, err := c.Records().Get(ctx, m.Node)
	if m.Doubts = fencer.Doubts(r, s.Driver, m, m.UID == "", len(r.Known().Bound) == 0); err != nil {
		m.Doubts = fencer.AllDoubts(err)
	}
	return m
}

// MachineOf is what Kubernetes says of a node's machine. node may be nil.
func MachineOf(name string, node *corev1.Node, nodeID string) agent.Machine {
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

// Liveness of a node, in words, as of when they were read.
func (m *Machines) Liveness(name string) string {
	return (&Node{Node: m.Nodes[name], Lease: m.leases[name]}).livenessAt(m.at)
}

// Liveness of the node now, in words.
func (n *Node) Liveness() string { return n.livenessAt(time.Now()) }

// livenessAt is the node's Ready condition, and when it last renewed its lease
// by its own clock.
func (n *Node) livenessAt(at time.Time) string {
	words := "no Node"
	if n.Node != nil {
		words = cli.Either(fence.NodeReady(n.Node), "Ready", "NotReady")
	}
	switch {
	case n.Lease == nil:
		return words + ", no lease"
	case n.Lease.Spec.RenewTime == nil:
		return words + ", lease never renewed"
	}
	return words + ", lease renewed " + cli.Ago(at.Sub(n.Lease.Spec.RenewTime.Time))
}
