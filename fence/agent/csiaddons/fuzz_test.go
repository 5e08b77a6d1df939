package csiaddons

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	fencepb "github.com/csi-addons/spec/lib/go/fence"
	identitypb "github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// answers is a driver that answers each call with its bytes, by the end of the method's name, and keeps
// what it was told to fence.
type answers struct {
	bytes map[string][]byte
	cidrs []string
}

func (a *answers) Invoke(_ context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	if r, fences := request.(*fencepb.FenceClusterNetworkRequest); fences {
		for _, c := range r.GetCidrs() {
			a.cidrs = append(a.cidrs, c.GetCidr())
		}
	}
	return proto.Unmarshal(a.bytes[method[strings.LastIndex(method, "/")+1:]], reply.(proto.Message))
}

func (*answers) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("no call of ours streams")
}

// block reads one as the storage would, and not by the code that is looked at.
func block(text string) (netip.Prefix, bool) {
	text = strings.TrimSpace(text)
	if one, err := netip.ParseAddr(text); err == nil {
		one = one.Unmap().WithZone("")
		return netip.PrefixFrom(one, one.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, err == nil
}

func covers(all []netip.Prefix, one netip.Prefix) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Bits() <= one.Bits() && p.Contains(one.Addr()) })
}

// Whatever the driver answers, and whatever addresses two kubelets write: a fence names no network of a
// kubelet's and no wide one of the driver's, nothing that is no machine's, nothing outside the allowed
// subnets and nothing that another Node or client has; and a machine reads as cut off only if the driver
// lists each address of it, none of which another Node has too.
func FuzzAddresses(f *testing.F) {
	wire := func(m proto.Message) []byte {
		out, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return out
	}
	client := func(id string, addresses ...string) *fencepb.ClientDetails {
		c := &fencepb.ClientDetails{Id: id}
		for _, a := range addresses {
			c.Addresses = append(c.Addresses, &fencepb.CIDR{Cidr: a})
		}
		return c
	}
	knows := func(all ...*fencepb.ClientDetails) []byte {
		return wire(&fencepb.GetFenceClientsResponse{Clients: all})
	}
	lists := func(all ...string) []byte {
		return wire(&fencepb.ListClusterFenceResponse{Cidrs: client("", all...).Addresses})
	}
	f.Add("192.0.2.1\n2001:db8::1", "192.0.2.2", knows(), lists("192.0.2.1/32", "2001:db8::/64"), false)
	f.Add("192.0.2.1", "192.0.2.2", knows(client("id1", "192.0.2.0/28"), client("id2", "192.0.2.99")), lists("192.0.2.0/24"), false)
	f.Add("192.0.2.1", "198.51.100.2", knows(client("id1", "192.0.2.8/29"), client("id2", "192.0.2.8/32"), client("id1", "all")), lists("all"), false)
	f.Add("192.0.2.1", "192.0.2.1", knows(), lists("192.0.2.1"), false)
	f.Add("192.0.2.1\n192.0.2.2", "192.0.2.2", knows(), lists("192.0.2.1", "192.0.2.2"), false)
	for _, text := range []string{"0.0.0.0/0", "192.0.2.0/24", "127.0.0.1", "::ffff:192.0.2.2", "fe80::1%eth0", "224.0.0.1", " ", "::", "203.0.113.9"} {
		f.Add(text, "192.0.2.2", knows(), lists(text), true)
		f.Add("192.0.2.1", "192.0.2.2", knows(client("id1", text)), lists(text), true)
		f.Add("192.0.2.1", text, knows(client("id2", text)), lists("::/0", "0.0.0.0/0"), false)
	}
	f.Add("192.0.2.1", "198.51.100.2", knows(client("id1", "203.0.112.0/20")), lists("203.0.112.0/20"), true)
	f.Add("192.0.2.1", "198.51.100.2", knows(client("id1", "2001:db8::/56")), lists("2001:db8::/56"), true)
	f.Add("192.0.2.1", "", []byte{0xff}, []byte{0xff}, true)
	subnets := []string{"192.0.2.0/24", "2001:db8::/32"}
	within := []netip.Prefix{netip.MustParsePrefix(subnets[0]), netip.MustParsePrefix(subnets[1])}
	can := wire(&identitypb.GetCapabilitiesResponse{Capabilities: []*identitypb.Capability{
		{Type: &identitypb.Capability_NetworkFence_{NetworkFence: &identitypb.Capability_NetworkFence{Type: identitypb.Capability_NetworkFence_NETWORK_FENCE}}},
		{Type: &identitypb.Capability_NetworkFence_{NetworkFence: &identitypb.Capability_NetworkFence{Type: identitypb.Capability_NetworkFence_GET_CLIENTS_TO_FENCE}}}}})
	f.Fuzz(func(t *testing.T, own, other string, known, listed []byte, anywhere bool) {
		driver := &answers{bytes: map[string][]byte{"GetIdentity": wire(&identitypb.GetIdentityResponse{Name: "d.example.com"}), "GetCapabilities": can, "GetFenceClients": known, "ListClusterFence": listed}}
		n1, n2 := node("n1", "u1", corev1.ConditionUnknown, strings.Split(own, "\n")...), node("n2", "u2", corev1.ConditionTrue, strings.Split(other, "\n")...)
		csi := &registered{}
		csi.add("n1", "d.example.com", "id1")
		csi.add("n2", "d.example.com", "id2")
		options := Options{Name: "array", Conn: driver, Driver: "d.example.com", Nodes: &cluster{nodes: []corev1.Node{n1, n2}}, CSINodes: csi, AllowedSubnets: subnets}
		if anywhere {
			options.AllowedSubnets = nil
		}
		a, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		m := agent.Machine{Node: "n1", UID: "u1", BootID: "b1", NodeID: "id1", Addresses: IPs(&n1)}

		var clients fencepb.GetFenceClientsResponse
		readable := proto.Unmarshal(known, &clients) == nil
		var drivers, others, of2 []netip.Prefix
		for _, c := range clients.GetClients() {
			for _, address := range c.GetAddresses() {
				if p, ok := block(address.GetCidr()); ok && c.GetId() == "id1" {
					drivers = append(drivers, p)
				} else if ok {
					others = append(others, p)
				}
			}
		}
		for _, text := range strings.Split(other, "\n") {
			if p, ok := block(text); ok && p.IsSingleIP() {
				of2 = append(of2, p)
			}
		}
		taken := func(p netip.Prefix, by []netip.Prefix) bool { return slices.ContainsFunc(by, p.Overlaps) }

		if _, err := a.Off(t.Context(), m); err == nil && (len(driver.cidrs) == 0 || !readable) {
			t.Errorf("it is cut off, by a fence of nothing, or of a driver that was not understood")
		}
		for _, text := range driver.cidrs {
			p, ok := block(text)
			switch {
			case !ok || p != p.Masked():
				t.Errorf("%q is fenced, which is no block", text)
			case covers(drivers, p):
				if p.Addr().Is4() && p.Bits() < 24 || p.Addr().Is6() && p.Bits() < 64 {
					t.Errorf("the network %s is fenced", p)
				}
			case !p.IsSingleIP() || !mentions(own, p):
				t.Errorf("%s is fenced, which neither its Node (%q) nor the driver names", p, own)
			}
			if a := p.Addr(); ok && (a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a == netip.MustParseAddr("255.255.255.255")) {
				t.Errorf("%s is fenced, which is no machine's", p)
			}
			if taken(p, of2) || taken(p, others) {
				t.Errorf("%s is fenced, which another has too (%v, %v)", p, of2, others)
			}
			if !anywhere && !covers(within, p) {
				t.Errorf("%s is fenced, which is in no allowed subnet", p)
			}
		}

		reading, err := a.Status(t.Context(), m)
		if reading.State != agent.Off {
			return
		}
		var answer fencepb.ListClusterFenceResponse
		if err != nil || proto.Unmarshal(listed, &answer) != nil || !readable {
			t.Fatalf("it reads off, and %v", err)
		}
		var fenced []netip.Prefix
		for _, c := range answer.GetCidrs() {
			if p, ok := block(c.GetCidr()); ok {
				fenced = append(fenced, p)
			}
		}
		if len(reading.Named) == 0 || !slices.Equal(reading.Named, reading.Cut) {
			t.Errorf("of %q is cut %q, and it reads off", reading.Named, reading.Cut)
		}
		for _, text := range reading.Named {
			if p, ok := block(text); !ok || !covers(fenced, p) || taken(p, of2) {
				t.Errorf("it reads off by %s, and the driver lists %v, and another Node has %v", text, fenced, of2)
			}
		}
	})
}

// mentions: one of the lines is that address, in whichever form.
func mentions(lines string, p netip.Prefix) bool {
	return slices.ContainsFunc(strings.Split(lines, "\n"), func(line string) bool {
		one, ok := block(line)
		return ok && one == p
	})
}
