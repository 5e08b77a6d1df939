package csiaddons

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// errNoAddress is returned where whoever may name the machine's addresses was asked, and knows
// none.
var errNoAddress = errors.New("no known address")

// Of one machine the driver may name blocks up to what Kubernetes gives one node for
// its pods if nobody says otherwise. Wider ones are no machine's.
const (
	widestIPv4 = 24
	widestIPv6 = 64
)

// address fills in the machine's blocks: those that the configuration declares for the
// node, if it declares any; else those of the driver's client of its node ID; else,
// unless the driver alone may say it, those that the Node has. A kubelet writes the
// latter itself, so that they are single addresses only.
func (a *Agent) address(ctx context.Context, m agent.Machine, t *target) (err error) {
	if a.declared != nil {
		t.blocks, t.from = a.declared[m.Node], "declared for node "+m.Node
		if len(t.blocks) == 0 {
			return fmt.Errorf("node %s has %w: csiAddons.nodes declares none for it, and since it declares some for other nodes, no others count: declare those of %s there too", m.Node, errNoAddress, m.Node)
		}
		return nil
	}
	if t.blocks, err = a.clientBlocks(ctx, m, t); err != nil {
		return err
	}
	t.from = "the driver's client " + m.NodeID
	t.byID = len(t.blocks) > 0
	if !t.byID && !a.options.DriverOnly {
		if t.blocks, err = parse(m.Addresses, addons.ParseHost); err != nil {
			return fmt.Errorf("the addresses of Node %s: %w", m.Node, err)
		}
		t.from, t.byNode = "addresses of Node "+m.Node, true
	}
	switch {
	case len(t.blocks) > 0:
		return nil
	case a.options.DriverOnly && !t.can.GetClients:
		return fmt.Errorf("node %s has %w: with csiAddons.addresses: DriverOnly only driver %s may name it, which lacks the csi-addons capability GET_CLIENTS_TO_FENCE: "+
			"declare the addresses in csiAddons.nodes", m.Node, errNoAddress, a.options.Driver)
	case a.options.DriverOnly:
		return fmt.Errorf("node %s (node ID %q) has %w: with csiAddons.addresses: DriverOnly only driver %s may name it, and knows no client of that ID", m.Node, m.NodeID, errNoAddress, a.options.Driver)
	}
	return fmt.Errorf("node %s (node ID %q) has %w: neither the driver nor a Node names one", m.Node, m.NodeID, errNoAddress)
}

// clientBlocks are those of the driver's client of the machine's node ID; there may be
// none.
func (a *Agent) clientBlocks(ctx context.Context, m agent.Machine, t *target) (blocks []netip.Prefix, err error) {
	clients, err := a.clients(ctx, m, t)
	if err != nil {
		return nil, err
	}
	for _, client := range clients {
		if client.ID != m.NodeID {
			continue
		}
		if len(client.Strange) > 0 {
			return nil, fmt.Errorf("driver %s: GetFenceClients: the address %.64q of client %s is no CIDR block", a.options.Driver, client.Strange[0], client.ID)
		}
		blocks = union(blocks, client.Blocks)
	}
	for _, block := range blocks {
		widest := widestIPv6
		if block.Addr().Is4() {
			widest = widestIPv4
		}
		switch what := addons.Special(block); {
		case what != "":
			return nil, fmt.Errorf("driver %s: GetFenceClients: node %s: %s is %s: a fence may not name it", a.options.Driver, m.Node, block, what)
		case block.Bits() < widest:
			return nil, fmt.Errorf("driver %s: GetFenceClients: node %s: %s is wider than /%d, which is no one machine's: a fence may not name it", a.options.Driver, m.Node, block, widest)
		}
	}
	return blocks, nil
}

// clients are all that the driver knows; none where it cannot tell, or the machine's
// own could not be told from the others.
func (a *Agent) clients(ctx context.Context, m agent.Machine, t *target) ([]addons.FenceClient, error) {
	if !t.can.GetClients || m.NodeID == "" {
		return nil, nil
	}
	clients, err := a.client.Clients(ctx, t.with)
	if err != nil {
		return nil, a.explain("GetFenceClients", err)
	}
	return clients, nil
}

// mayFence is an error unless the machine's blocks are within the allowed subnets, and nobody else
// has an address in them.
func (a *Agent) mayFence(ctx context.Context, m agent.Machine, t *target) error {
	if err := a.allowed(m, t); err != nil {
		return err
	}
	also, err := a.others(ctx, m, t)
	if err == nil && also != "" {
		err = fmt.Errorf("node %s: a fence would also cut off %s. A person can turn node %s off, and then say so: csi-fencepost fence confirm %s --reason TEXT", m.Node, also, m.Node, m.Node)
	}
	return err
}

// mayUnfence is mayFence for giving access back: what somebody else has too may be
// what keeps that one cut off.
func (a *Agent) mayUnfence(ctx context.Context, m agent.Machine, t *target) error {
	if err := a.allowed(m, t); err != nil {
		return err
	}
	also, err := a.others(ctx, m, t)
	if err == nil && also != "" {
		err = fmt.Errorf("node %s: its access is not given back, for that would also give it to %s", m.Node, also)
	}
	return err
}

func (a *Agent) allowed(m agent.Machine, t *target) error {
	for _, block := range t.blocks {
		if len(a.subnets) > 0 && !addons.Covers(a.subnets, block) {
			return fmt.Errorf("node %s: %s (%s) is outside csiAddons.allowedSubnets of agent %s: "+
				"if the node reaches the storage from there, allow that subnet; if it does not, declare in csiAddons.nodes from where it does", m.Node, block, t.from, a.options.Name)
		}
	}
	return nil
}

// maxNamed of those that have the machine's addresses too are named.
const maxNamed = 2

// others names the other Nodes and the other clients of the driver that have an
// address in the machine's blocks; empty: there is none. Both are read live.
//
// Another Node counts whether or not it is Ready: a node that nobody hears may write.
// None is passed over for being the same machine under another name: what says so
// (boot ID, system UUID) is written by the two kubelets, and whoever has one of them
// could have the other's machine cut off. A person can tell, and deletes the old Node.
func (a *Agent) others(ctx context.Context, m agent.Machine, t *target) (string, error) {
	found, err := a.otherNodes(ctx, m, t, t.blocks)
	if err != nil {
		return "", err
	}
	clients, err := a.clients(ctx, m, t)
	if err != nil {
		return "", err
	}
	for _, client := range clients {
		if i := slices.IndexFunc(client.Blocks, func(b netip.Prefix) bool { return overlapsAny(b, t.blocks) }); client.ID != m.NodeID && i >= 0 {
			found = append(found, fmt.Sprintf("another client of the storage, %.64q, which has the address %s too", client.ID, client.Blocks[i]))
		}
	}
	return fewOf(found), nil
}

// otherNodes names the other Nodes alone: those that have an address in the blocks, and, where the
// blocks are those of a client of the driver, those whose CSINode has that client's ID. A kubelet
// writes its own CSINode, and the storage's addresses may stand on no Node.
func (a *Agent) otherNodes(ctx context.Context, m agent.Machine, t *target, blocks []netip.Prefix) (found []string, err error) {
	if t.byID {
		if found, err = a.namesakes(ctx, m); err != nil {
			return nil, err
		}
	}
	nodes, err := a.options.Nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("csi-addons agent %s: cannot tell whether another node has an address of node %s: cannot list Nodes: %w", a.options.Name, m.Node, err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		address := shared(node, blocks)
		switch {
		case address == "" || isMachine(node, m):
		case fence.NodeReady(node):
			found = append(found, fmt.Sprintf("node %s, which is Ready and has the address %s too", node.Name, address))
		default:
			found = append(found, fmt.Sprintf("node %s, which is not Ready and has the address %s too (if its machine is gone for good: kubectl delete node %s)", node.Name, address, node.Name))
		}
	}
	return found, nil
}

// namesakes are the other nodes with which the driver is registered by the machine's node ID.
func (a *Agent) namesakes(ctx context.Context, m agent.Machine) (found []string, err error) {
	nodes, err := a.options.CSINodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("csi-addons agent %s: cannot tell whether another node has the node ID of node %s: cannot list CSINodes: %w", a.options.Name, m.Node, err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if node.Name != m.Node && slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == a.options.Driver && d.NodeID == m.NodeID }) {
			found = append(found, fmt.Sprintf("node %s, whose CSINode has the node ID %.64q too (if its machine is gone for good: kubectl delete node %s)", node.Name, m.NodeID, node.Name))
		}
	}
	return found, nil
}

// fewOf names the first of them, and says how many more there are.
func fewOf(found []string) string {
	text := strings.Join(found[:min(len(found), maxNamed)], "; ")
	if more := len(found) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// shared is an address of the Node within the blocks; empty: it has none. A network
// that its kubelet writes there keeps nobody from being fenced.
func shared(node *corev1.Node, blocks []netip.Prefix) string {
	for _, text := range IPs(node) {
		if one, err := addons.ParseBlock(text); err == nil && one.IsSingleIP() && overlapsAny(one, blocks) {
			return one.Addr().String()
		}
	}
	return ""
}

// isMachine tells whether the Node is the machine's. A new Node under an old name is another
// machine's.
func isMachine(node *corev1.Node, m agent.Machine) bool {
	if m.UID != "" {
		return string(node.UID) == m.UID
	}
	return node.Name == m.Node
}

// IPs are the addresses of a Node, for agent.Machine.
func IPs(node *corev1.Node) []string {
	var all []string
	for _, address := range node.Status.Addresses {
		if (address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP) && !slices.Contains(all, address.Address) {
			all = append(all, address.Address)
		}
	}
	return all
}

func parse(texts []string, one func(string) (netip.Prefix, error)) (all []netip.Prefix, err error) {
	for _, text := range texts {
		block, err := one(text)
		if err != nil {
			return nil, err
		}
		all = union(all, []netip.Prefix{block})
	}
	return all, nil
}

// union is sorted, so that texts do not change from call to call.
func union(a, b []netip.Prefix) []netip.Prefix {
	all := slices.Concat(a, b)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

func overlapsAny(block netip.Prefix, others []netip.Prefix) bool {
	return slices.ContainsFunc(others, block.Overlaps)
}
