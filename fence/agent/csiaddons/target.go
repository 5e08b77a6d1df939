package csiaddons

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// target is what a call about one machine needs.
type target struct {
	with   addons.Credentials
	blocks []netip.Prefix
	from   string // who says that these are its addresses
}

// errNoAddress: whoever could name the machine's addresses was asked, and knows none.
var errNoAddress = errors.New("no known address")

// target asks the driver what it can do and the machine's addresses. If it is
// the addresses that cannot be told, the rest of the target comes with the error.
func (a *Agent) target(ctx context.Context, m agent.Machine) (*target, error) {
	can, err := a.able(ctx)
	if err != nil {
		return nil, err
	}
	t := &target{with: addons.Credentials{Parameters: a.options.Parameters}}
	if a.options.Secrets != nil {
		if t.with.Secrets, err = a.options.Secrets(ctx, m.Node); err != nil {
			return nil, fmt.Errorf("csi-addons agent %s: the secrets for node %s: %w", a.options.Name, m.Node, err)
		}
	}
	t.blocks, t.from, err = a.addresses(ctx, m, can, t.with)
	if err == nil {
		err = checkSpecial(m.Node, t.blocks)
	}
	return t, err
}

// able tells what the driver can do; that it is another one, or cannot fence,
// is an error.
func (a *Agent) able(ctx context.Context) (addons.Capabilities, error) {
	name, err := a.client.Driver(ctx)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return addons.Capabilities{}, fmt.Errorf("driver %s serves no csi-addons on this socket (identity.Identity is not implemented), so it cannot fence: "+
			"configure another fence agent, or the socket where the driver serves csi-addons: %w", a.options.Driver, err)
	case err != nil:
		return addons.Capabilities{}, a.explain("GetIdentity", err)
	case name != a.options.Driver:
		return addons.Capabilities{}, fmt.Errorf("csi-addons agent %s: the socket is that of driver %q, not of %q", a.options.Name, name, a.options.Driver)
	}
	can, err := a.client.Capabilities(ctx)
	switch {
	case err != nil:
		return can, a.explain("GetCapabilities", err)
	case !can.NetworkFence:
		return can, fmt.Errorf("driver %s lacks the csi-addons capability NETWORK_FENCE, so it cannot fence: configure another fence agent", name)
	}
	return can, nil
}

// addresses are the driver's own for the client of the machine's node ID, else
// those that the Node has.
func (a *Agent) addresses(ctx context.Context, m agent.Machine, can addons.Capabilities, with addons.Credentials) ([]netip.Prefix, string, error) {
	if can.GetClients && m.NodeID != "" {
		clients, err := a.client.Clients(ctx, with)
		if err != nil {
			return nil, "", a.explain("GetFenceClients", err)
		}
		var blocks []netip.Prefix
		for _, client := range clients {
			if client.ID != m.NodeID {
				continue
			}
			if len(client.Strange) > 0 {
				return nil, "", fmt.Errorf("driver %s: GetFenceClients: the address %q of client %s is no CIDR block", a.options.Driver, client.Strange[0], client.ID)
			}
			blocks = union(blocks, client.Blocks)
		}
		if len(blocks) > 0 {
			return blocks, "the driver's client " + m.NodeID, nil
		}
	}
	blocks, err := parse(m.Addresses)
	if err != nil {
		return nil, "", fmt.Errorf("the addresses of Node %s: %w", m.Node, err)
	}
	if len(blocks) == 0 {
		return nil, "", fmt.Errorf("node %s (node ID %q) has %w: neither the driver nor a Node names one", m.Node, m.NodeID, errNoAddress)
	}
	return blocks, "addresses of Node " + m.Node, nil
}

// special are the blocks that name no machine, or not one alone.
var special = []struct {
	block netip.Prefix
	what  string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
}

func checkSpecial(node string, blocks []netip.Prefix) error {
	for _, block := range blocks {
		for _, s := range special {
			if s.block.Overlaps(block) {
				return fmt.Errorf("node %s: %s is %s: a fence may not name it", node, block, s.what)
			}
		}
	}
	return nil
}

// others makes sure that no other Ready Node has an address in the blocks. It
// reads the Nodes live.
func (a *Agent) others(ctx context.Context, m agent.Machine, blocks []netip.Prefix) error {
	nodes, err := a.options.Nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("csi-addons agent %s: cannot tell whether another node has an address of node %s: cannot list Nodes: %w", a.options.Name, m.Node, err)
	}
	var found []error
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if isMachine(node, m) || !ready(node) {
			continue
		}
		for _, address := range IPs(node) {
			if one, err := addons.ParseBlock(address); err == nil && overlapsAny(one, blocks) {
				found = append(found, fmt.Errorf("node %s: a fence would also cut off node %s, which is Ready and has the address %s", m.Node, node.Name, address))
			}
		}
	}
	return errors.Join(found...)
}

// isMachine: a new Node under an old name is another machine.
func isMachine(node *corev1.Node, m agent.Machine) bool {
	if m.UID != "" {
		return string(node.UID) == m.UID
	}
	return node.Name == m.Node
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
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

func parse(texts []string) ([]netip.Prefix, error) {
	var blocks []netip.Prefix
	for _, text := range texts {
		block, err := addons.ParseBlock(text)
		if err != nil {
			return nil, err
		}
		blocks = union(blocks, []netip.Prefix{block})
	}
	return blocks, nil
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
