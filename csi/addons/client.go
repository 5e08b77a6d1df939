package addons

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/csi/addons/fencepb"
	"github.com/csi-fencepost/csi-fencepost/csi/addons/identitypb"
)

// Client of a driver's csi-addons services. It keeps nothing in memory.
type Client struct {
	identity identitypb.IdentityClient
	fence    fencepb.FenceControllerClient
}

// NewClient speaks over conn.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{identity: identitypb.NewIdentityClient(conn), fence: fencepb.NewFenceControllerClient(conn)}
}

// Driver is the name of the CSI driver that answers. Errors are the driver's.
func (c *Client) Driver(ctx context.Context) (string, error) {
	answer, err := c.identity.GetIdentity(ctx, &identitypb.GetIdentityRequest{})
	return answer.GetName(), err
}

// Capabilities are the driver's, as far as network fencing goes.
type Capabilities struct {
	// NetworkFence: it fences, unfences and lists.
	NetworkFence bool
	// GetClients: it tells its clients' addresses.
	GetClients bool
}

// Capabilities asks the driver. Errors are the driver's.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	answer, err := c.identity.GetCapabilities(ctx, &identitypb.GetCapabilitiesRequest{})
	if err != nil {
		return Capabilities{}, err
	}
	var all Capabilities
	for _, one := range answer.GetCapabilities() {
		switch one.GetNetworkFence().GetType() {
		case identitypb.Capability_NetworkFence_NETWORK_FENCE:
			all.NetworkFence = true
		case identitypb.Capability_NetworkFence_GET_CLIENTS_TO_FENCE:
			all.GetClients = true
		}
	}
	return all, nil
}

// Credentials go with each call to the FenceController.
type Credentials struct {
	// Parameters are the driver's own, such as which storage cluster is meant.
	Parameters map[string]string
	Secrets    map[string]string
}

// Fence takes access from the clients in these blocks. Errors are the
// driver's, without secrets.
func (c *Client) Fence(ctx context.Context, with Credentials, blocks []netip.Prefix) error {
	_, err := c.fence.FenceClusterNetwork(ctx, &fencepb.FenceClusterNetworkRequest{
		Parameters: with.Parameters, Secrets: with.Secrets, Cidrs: toCIDRs(blocks),
	})
	return clean(err, with)
}

// Unfence gives access back. Errors are the driver's, without secrets.
func (c *Client) Unfence(ctx context.Context, with Credentials, blocks []netip.Prefix) error {
	_, err := c.fence.UnfenceClusterNetwork(ctx, &fencepb.UnfenceClusterNetworkRequest{
		Parameters: with.Parameters, Secrets: with.Secrets, Cidrs: toCIDRs(blocks),
	})
	return clean(err, with)
}

// List tells which blocks are fenced; strange are the entries that are no
// blocks. Errors are the driver's, without secrets.
func (c *Client) List(ctx context.Context, with Credentials) (blocks []netip.Prefix, strange []string, err error) {
	answer, err := c.fence.ListClusterFence(ctx, &fencepb.ListClusterFenceRequest{Parameters: with.Parameters, Secrets: with.Secrets})
	if err != nil {
		return nil, nil, clean(err, with)
	}
	for _, cidr := range answer.GetCidrs() {
		if block, err := ParseBlock(cidr.GetCidr()); err == nil {
			blocks = append(blocks, block)
		} else {
			strange = append(strange, cidr.GetCidr())
		}
	}
	return blocks, strange, nil
}

// FenceClient is a client of the storage, as the driver knows it.
type FenceClient struct {
	ID     string
	Blocks []netip.Prefix
	// Strange are its addresses that are no blocks.
	Strange []string
}

// Clients asks for the clients that a fence can name. Errors are the driver's,
// without secrets.
func (c *Client) Clients(ctx context.Context, with Credentials) ([]FenceClient, error) {
	answer, err := c.fence.GetFenceClients(ctx, &fencepb.GetFenceClientsRequest{Parameters: with.Parameters, Secrets: with.Secrets})
	if err != nil {
		return nil, clean(err, with)
	}
	var clients []FenceClient
	for _, details := range answer.GetClients() {
		one := FenceClient{ID: details.GetId()}
		for _, cidr := range details.GetAddresses() {
			if block, err := ParseBlock(cidr.GetCidr()); err == nil {
				one.Blocks = append(one.Blocks, block)
			} else {
				one.Strange = append(one.Strange, cidr.GetCidr())
			}
		}
		clients = append(clients, one)
	}
	return clients, nil
}

// ParseBlock reads a CIDR block, or an address as the block of it alone. The
// block is masked, and IPv4 where it is IPv4 written as IPv6.
func ParseBlock(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q is neither an IP address nor a CIDR block", text)
		}
		return HostBlock(address), nil
	}
	block, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither an IP address nor a CIDR block", text)
	}
	if address := block.Addr(); address.Is4In6() && block.Bits() >= 96 {
		block = netip.PrefixFrom(address.Unmap(), block.Bits()-96)
	}
	return block.Masked(), nil
}

// HostBlock is the block of one address: /32, or /128 for IPv6.
func HostBlock(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	return netip.PrefixFrom(address, address.BitLen())
}

// Covers tells whether one of the blocks holds all of the other.
func Covers(blocks []netip.Prefix, all netip.Prefix) bool {
	return slices.ContainsFunc(blocks, func(block netip.Prefix) bool {
		return block.Bits() <= all.Bits() && block.Contains(all.Addr())
	})
}

func toCIDRs(blocks []netip.Prefix) []*fencepb.CIDR {
	var all []*fencepb.CIDR
	for _, block := range blocks {
		all = append(all, &fencepb.CIDR{Cidr: block.String()})
	}
	return all
}

func clean(err error, with Credentials) error {
	if err == nil {
		return nil
	}
	return csi.RedactError(err, with.Secrets)
}
