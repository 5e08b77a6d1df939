package array

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	fencepb "github.com/csi-addons/spec/lib/go/fence"
	identitypb "github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
)

// Names of csi-addons methods as Faults and Calls have them.
const (
	Fence        = "FenceClusterNetwork"
	Unfence      = "UnfenceClusterNetwork"
	ListFences   = "ListClusterFence"
	FenceClients = "GetFenceClients"
)

// What GetFenceClients answers with Switches.FenceClientIsUs.
const (
	StorageClusterID = "b7c1a2d0-array"
	OwnAddress       = "198.51.100.1"
)

// SetAddresses tells under which IP addresses the array sees the machine. A
// machine without any cannot be cut off.
func (a *Array) SetAddresses(nodeID string, addresses ...string) error {
	var parsed []netip.Addr
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("addresses of machine %q: %w", nodeID, err)
		}
		parsed = append(parsed, address.Unmap())
	}
	return a.withMachine(nodeID, fmt.Sprintf("has the addresses %q", addresses), func(m *machine) { m.addresses = parsed })
}

// Fences lists the CIDR blocks that are fenced, sorted, whatever the driver
// says.
func (a *Array) Fences() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, block := range a.fences {
		all = append(all, block.String())
	}
	return all
}

// CutOff says whether a fence keeps the machine from all volumes.
func (a *Array) CutOff(nodeID string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cutOffLocked(nodeID)
}

// cutOffLocked tells whether all the machine's addresses are fenced: with one left it goes on
// through that.
func (a *Array) cutOffLocked(nodeID string) bool {
	m := a.machines[nodeID]
	if m == nil || len(m.addresses) == 0 || len(a.fences) == 0 || a.switches.FenceOnlyListed {
		return false
	}
	for _, address := range m.addresses {
		if !addons.Covers(a.fences, addons.HostBlock(address)) {
			return false
		}
	}
	return true
}

// setFencesLocked changes what is fenced, drops the sessions of the machines
// that are cut off now, and judges anew.
func (a *Array) setFencesLocked(fences []netip.Prefix, what string) {
	slices.SortFunc(fences, netip.Prefix.Compare)
	a.fences = slices.Compact(fences)
	a.eventLocked("", "", what)
	for id, m := range a.machines {
		if !a.cutOffLocked(id) {
			continue
		}
		for volumeID, mt := range m.mounts {
			mt.heldOn = false
			a.options.Mounts.Revoke(id, volumeID)
		}
	}
	for _, v := range a.volumes {
		a.judgeLocked(v)
	}
}

// addonsIdentity is csi-addons' Identity service.
type addonsIdentity struct {
	identitypb.UnimplementedIdentityServer
	array *Array
}

func (i *addonsIdentity) switches() (Switches, error) {
	i.array.mu.Lock()
	defer i.array.mu.Unlock()
	if !i.array.switches.CSIAddons && !i.array.switches.NetworkFence {
		return Switches{}, status.Error(codes.Unimplemented, "unknown service identity.Identity")
	}
	return i.array.switches, nil
}

func (i *addonsIdentity) GetIdentity(context.Context, *identitypb.GetIdentityRequest) (*identitypb.GetIdentityResponse, error) {
	if _, err := i.switches(); err != nil {
		return nil, err
	}
	return &identitypb.GetIdentityResponse{Name: i.array.DriverName(), VendorVersion: VendorVersion}, nil
}

func (i *addonsIdentity) GetCapabilities(context.Context, *identitypb.GetCapabilitiesRequest) (*identitypb.GetCapabilitiesResponse, error) {
	s, err := i.switches()
	if err != nil {
		return nil, err
	}
	answer := &identitypb.GetCapabilitiesResponse{Capabilities: []*identitypb.Capability{{
		Type: &identitypb.Capability_Service_{Service: &identitypb.Capability_Service{Type: identitypb.Capability_Service_CONTROLLER_SERVICE}},
	}}}
	if s.NetworkFence {
		answer.Capabilities = append(answer.Capabilities, fenceCapability(identitypb.Capability_NetworkFence_NETWORK_FENCE))
	}
	if s.FenceClients || s.FenceClientIsUs {
		answer.Capabilities = append(answer.Capabilities, fenceCapability(identitypb.Capability_NetworkFence_GET_CLIENTS_TO_FENCE))
	}
	return answer, nil
}

func fenceCapability(kind identitypb.Capability_NetworkFence_Type) *identitypb.Capability {
	return &identitypb.Capability{Type: &identitypb.Capability_NetworkFence_{NetworkFence: &identitypb.Capability_NetworkFence{Type: kind}}}
}

func (i *addonsIdentity) Probe(context.Context, *identitypb.ProbeRequest) (*identitypb.ProbeResponse, error) {
	if _, err := i.switches(); err != nil {
		return nil, err
	}
	return &identitypb.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// fenceController is csi-addons' FenceController service.
type fenceController struct {
	fencepb.UnimplementedFenceControllerServer
	array *Array
}

// lock locks the array, or says that it offers no network fencing.
func (f *fenceController) lock() error {
	f.array.mu.Lock()
	if !f.array.switches.NetworkFence {
		f.array.mu.Unlock()
		return status.Error(codes.Unimplemented, "unknown service fence.FenceController")
	}
	return nil
}

func (f *fenceController) FenceClusterNetwork(_ context.Context, req *fencepb.FenceClusterNetworkRequest) (*fencepb.FenceClusterNetworkResponse, error) {
	blocks, err := requireBlocks(req.GetCidrs())
	if err != nil {
		return nil, err
	}
	if err := f.lock(); err != nil {
		return nil, err
	}
	defer f.array.mu.Unlock()
	f.array.setFencesLocked(slices.Concat(f.array.fences, blocks), fmt.Sprintf("fenced %v", blocks))
	return &fencepb.FenceClusterNetworkResponse{}, nil
}

func (f *fenceController) UnfenceClusterNetwork(_ context.Context, req *fencepb.UnfenceClusterNetworkRequest) (*fencepb.UnfenceClusterNetworkResponse, error) {
	blocks, err := requireBlocks(req.GetCidrs())
	if err != nil {
		return nil, err
	}
	if err := f.lock(); err != nil {
		return nil, err
	}
	defer f.array.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(f.array.fences), func(b netip.Prefix) bool { return slices.Contains(blocks, b) })
	f.array.setFencesLocked(left, fmt.Sprintf("unfenced %v", blocks))
	return &fencepb.UnfenceClusterNetworkResponse{}, nil
}

func (f *fenceController) ListClusterFence(context.Context, *fencepb.ListClusterFenceRequest) (*fencepb.ListClusterFenceResponse, error) {
	if err := f.lock(); err != nil {
		return nil, err
	}
	defer f.array.mu.Unlock()
	answer := &fencepb.ListClusterFenceResponse{}
	if f.array.switches.FenceUnlisted {
		return answer, nil
	}
	for _, block := range f.array.fences {
		answer.Cidrs = append(answer.Cidrs, &fencepb.CIDR{Cidr: block.String()})
	}
	return answer, nil
}

func (f *fenceController) GetFenceClients(context.Context, *fencepb.GetFenceClientsRequest) (*fencepb.GetFenceClientsResponse, error) {
	if err := f.lock(); err != nil {
		return nil, err
	}
	a := f.array
	defer a.mu.Unlock()
	answer := &fencepb.GetFenceClientsResponse{}
	switch {
	case a.switches.FenceClientIsUs:
		answer.Clients = []*fencepb.ClientDetails{{Id: StorageClusterID, Addresses: []*fencepb.CIDR{{Cidr: OwnAddress}}}}
	case a.switches.FenceClients:
		for id, m := range a.machines {
			client := &fencepb.ClientDetails{Id: id}
			for _, address := range m.addresses {
				client.Addresses = append(client.Addresses, &fencepb.CIDR{Cidr: addons.HostBlock(address).String()})
			}
			answer.Clients = append(answer.Clients, client)
		}
	default:
		return nil, status.Error(codes.Unimplemented, "method GetFenceClients not implemented")
	}
	return answer, nil
}

func requireBlocks(cidrs []*fencepb.CIDR) ([]netip.Prefix, error) {
	if len(cidrs) == 0 {
		return nil, status.Error(codes.InvalidArgument, "cidrs is empty")
	}
	var blocks []netip.Prefix
	for _, cidr := range cidrs {
		block, err := netip.ParsePrefix(cidr.GetCidr())
		if err != nil || block != block.Masked() {
			return nil, status.Errorf(codes.InvalidArgument, "cidrs: %q is no CIDR block", cidr.GetCidr())
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}
