package addons

import (
	"context"
	"net/netip"

	fencepb "github.com/csi-addons/spec/lib/go/fence"
	identitypb "github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/grpc"

	"github.com/csi-fencepost/csi-fencepost/csi"
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
	// NetworkFence tells that the driver fences, unfences and lists.
	NetworkFence bool
	// GetClients tells that the driver tells its clients' addresses.
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
