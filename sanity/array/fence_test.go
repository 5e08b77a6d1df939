package array

import (
	"slices"
	"testing"

	fencepb "github.com/csi-addons/spec/lib/go/fence"
	identitypb "github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/grpc/codes"
)

func cidrs(texts ...string) []*fencepb.CIDR {
	var all []*fencepb.CIDR
	for _, text := range texts {
		all = append(all, &fencepb.CIDR{Cidr: text})
	}
	return all
}

func newFenceRig(t *testing.T, set func(*Switches)) (*rig, fencepb.FenceControllerClient) {
	t.Helper()
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.NetworkFence = true })
	if set != nil {
		r.Set(set)
	}
	must(t, r.SetAddresses("n1", "192.0.2.1", "192.0.2.2"))
	must(t, r.SetAddresses("n2", "192.0.2.3"))
	return r, fencepb.NewFenceControllerClient(dial(t, r.socket()))
}

func TestAMachineIsCutOffWhenAllOfItsAddressesAreFenced(t *testing.T) {
	r, fences := newFenceRig(t, nil)
	for _, step := range []struct {
		fence, unfence []*fencepb.CIDR
		n1, n2         bool
	}{
		{fence: cidrs("192.0.2.1/32")},
		{fence: cidrs("192.0.2.2/32", "192.0.2.1/32"), n1: true},
		{unfence: cidrs("192.0.2.2/32", "198.51.100.1/32")},
		{fence: cidrs("192.0.2.0/30"), n1: true, n2: true},
		{unfence: cidrs("192.0.2.0/30")},
	} {
		var err error
		if step.fence != nil {
			_, err = fences.FenceClusterNetwork(r.ctx(), &fencepb.FenceClusterNetworkRequest{Cidrs: step.fence})
		} else {
			_, err = fences.UnfenceClusterNetwork(r.ctx(), &fencepb.UnfenceClusterNetworkRequest{Cidrs: step.unfence})
		}
		must(t, err)
		if n1, n2 := r.CutOff("n1"), r.CutOff("n2"); n1 != step.n1 || n2 != step.n2 {
			t.Fatalf("after %+v: n1 cut off %v, n2 %v", step, n1, n2)
		}
	}
	list, err := fences.ListClusterFence(r.ctx(), &fencepb.ListClusterFenceRequest{})
	must(t, err)
	if len(list.GetCidrs()) != 1 || list.GetCidrs()[0].GetCidr() != "192.0.2.1/32" || !slices.Equal(r.Fences(), []string{"192.0.2.1/32"}) {
		t.Fatalf("listed: %v, fenced: %v", list.GetCidrs(), r.Fences())
	}
}

func TestAFencedClientsWritesFailAndTheOracleCountsItNoMore(t *testing.T) {
	r, fences := newFenceRig(t, func(s *Switches) { s.EnforceSingleAttach, s.ClientHoldsOn = false, true })
	r.volume("v")
	r.use("v", "n1", single)
	_, err := fences.FenceClusterNetwork(r.ctx(), &fencepb.FenceClusterNetworkRequest{Cidrs: cidrs("192.0.2.1/32", "192.0.2.2/32")})
	must(t, err)
	must(t, r.WaitFor(r.ctx(), "a write to be rejected", func() bool { return r.Writes("v")[0].Rejected > 0 }))
	must(t, r.unpublish("v", "n1"))
	r.use("v", "n2", single)
	r.wantViolations()
	// Given back while it is still mounted there, and attached by hand: two writers.
	_, err = fences.UnfenceClusterNetwork(r.ctx(), &fencepb.UnfenceClusterNetworkRequest{Cidrs: cidrs("192.0.2.1/32")})
	must(t, err)
	r.wantViolations()
	must(t, r.Attach("v", "n1"))
	r.wantViolations(CouldDoubleWrite)
}

func TestAnUnfenceInUseIsSeenByTheOracle(t *testing.T) {
	r, fences := newFenceRig(t, func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", single)
	_, err := fences.FenceClusterNetwork(r.ctx(), &fencepb.FenceClusterNetworkRequest{Cidrs: cidrs("192.0.2.0/30")})
	must(t, err)
	must(t, r.SetAddresses("n2", "192.0.2.9"))
	r.use("v", "n2", single)
	r.wantViolations()
	_, err = fences.UnfenceClusterNetwork(r.ctx(), &fencepb.UnfenceClusterNetworkRequest{Cidrs: cidrs("192.0.2.0/30")})
	must(t, err)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations(CouldDoubleWrite, DoubleWrite)
}

func TestTheArrayServesCSIAddonsOnlyBehindItsSwitches(t *testing.T) {
	r, fences := newFenceRig(t, func(s *Switches) { s.NetworkFence = false })
	identity := identitypb.NewIdentityClient(dial(t, r.socket()))
	_, err := identity.GetIdentity(r.ctx(), &identitypb.GetIdentityRequest{})
	wantCode(t, err, codes.Unimplemented)
	_, err = fences.ListClusterFence(r.ctx(), &fencepb.ListClusterFenceRequest{})
	wantCode(t, err, codes.Unimplemented)
	r.Set(func(s *Switches) { s.NetworkFence = true })
	_, err = fences.GetFenceClients(r.ctx(), &fencepb.GetFenceClientsRequest{})
	wantCode(t, err, codes.Unimplemented)
	for _, bad := range [][]*fencepb.CIDR{nil, cidrs("192.0.2.1"), cidrs("192.0.2.1/24")} {
		_, err = fences.FenceClusterNetwork(r.ctx(), &fencepb.FenceClusterNetworkRequest{Cidrs: bad})
		wantCode(t, err, codes.InvalidArgument)
	}
	capabilities, err := identity.GetCapabilities(r.ctx(), &identitypb.GetCapabilitiesRequest{})
	must(t, err)
	if len(capabilities.GetCapabilities()) != 2 {
		t.Errorf("capabilities %v", capabilities)
	}
}
