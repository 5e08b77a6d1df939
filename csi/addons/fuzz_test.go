package addons

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
)

// A block is read as it is printed, and covers the addresses that it says.
func FuzzParseBlock(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "192.0.2.7/24", " ::1 ", "::ffff:192.0.2.1/120", "::ffff:0:0/90", "fe80::1%eth0", "fe80::1%eth0/64", "0.0.0.0/0", "/", "1.2.3.4/33"} {
		f.Add(s, "192.0.2.1")
	}
	f.Fuzz(func(t *testing.T, text, address string) {
		block, err := ParseBlock(text)
		if err != nil {
			return
		}
		if again, err := ParseBlock(block.String()); err != nil || again != block {
			t.Errorf("%q is %s, and that is %s (%v)", text, block, again, err)
		}
		if block != block.Masked() || block.Addr().Zone() != "" {
			t.Errorf("%q is %s, with bits beyond its length", text, block)
		}
		if host, err := ParseHost(text); err == nil && (host != block || !host.IsSingleIP() || host.Addr().Is4In6() || strings.Contains(text, "%") || !host.Addr().IsGlobalUnicast()) {
			t.Errorf("%q counts as the address of one machine: %s", text, host)
		}
		one, err := netip.ParseAddr(address)
		if err != nil {
			return
		}
		one = one.Unmap().WithZone("")
		if got := Covers([]netip.Prefix{block}, HostBlock(one)); got != block.Contains(one) {
			t.Errorf("%s covers %s: %v", block, one, got)
		}
	})
}

// replies is a connection that answers every call with the same bytes.
type replies []byte

func (r replies) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	return proto.Unmarshal(r, reply.(proto.Message))
}

func (r replies) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("no call of ours streams")
}

// Whatever a driver answers: an address counts as fenced only if an entry of the
// answer contains it, and no entry is lost.
func FuzzAnswers(f *testing.F) {
	add := func(m proto.Message) {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	add(&fencepb.ListClusterFenceResponse{Cidrs: []*fencepb.CIDR{{Cidr: "192.0.2.1/32"}, {Cidr: "::/0"}, {Cidr: "all"}, {}}})
	add(&fencepb.GetFenceClientsResponse{Clients: []*fencepb.ClientDetails{{Id: "id1", Addresses: []*fencepb.CIDR{{Cidr: "192.0.2.1"}, {Cidr: "x"}}}, {}}})
	add(&identitypb.GetIdentityResponse{Name: "d.example.com"})
	add(&identitypb.GetCapabilitiesResponse{Capabilities: []*identitypb.Capability{{}}})
	f.Fuzz(func(t *testing.T, wire []byte) {
		c, ctx := NewClient(replies(wire)), t.Context()
		_, _ = c.Driver(ctx)
		_, _ = c.Capabilities(ctx)
		blocks, strange, err := c.List(ctx, Credentials{})
		var answer fencepb.ListClusterFenceResponse
		if wrong := proto.Unmarshal(wire, &answer); (wrong != nil) != (err != nil) {
			t.Fatalf("the answer is wrong (%v), and the call says %v", wrong, err)
		}
		if err != nil {
			if blocks != nil || strange != nil {
				t.Errorf("an error and blocks: %v, %v, %q", err, blocks, strange)
			}
			return
		}
		if len(blocks)+len(strange) != len(answer.GetCidrs()) {
			t.Errorf("of %d entries %d are blocks and %d strange", len(answer.GetCidrs()), len(blocks), len(strange))
		}
		fenced := slices.ContainsFunc(answer.GetCidrs(), func(c *fencepb.CIDR) bool { return contains(c.GetCidr(), "192.0.2.1") })
		if got := Covers(blocks, netip.MustParsePrefix("192.0.2.1/32")); got != fenced {
			t.Errorf("192.0.2.1 counts as fenced: %v, and the answer says %v: %v", got, fenced, &answer)
		}
		clients, err := c.Clients(ctx, Credentials{})
		var details fencepb.GetFenceClientsResponse
		if err == nil && proto.Unmarshal(wire, &details) == nil && len(clients) != len(details.GetClients()) {
			t.Errorf("of %d clients %d are left", len(details.GetClients()), len(clients))
		}
	})
}

// contains reads a block without the code under test.
func contains(cidr, address string) bool {
	cidr = strings.TrimSpace(cidr)
	one := netip.MustParseAddr(address)
	if single, err := netip.ParseAddr(cidr); err == nil {
		return single.Unmap() == one
	}
	block, err := netip.ParsePrefix(cidr)
	mapped := netip.AddrFrom16(one.As16())
	return err == nil && (block.Contains(one) || block.Bits() >= 96 && block.Contains(mapped))
}
