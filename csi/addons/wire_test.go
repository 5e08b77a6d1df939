package addons

import (
	"net/netip"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	fencepb "github.com/csi-addons/spec/lib/go/fence"
	"google.golang.org/protobuf/proto"
)

func TestSecretsAreMarkedSoThatLoggersStripThem(t *testing.T) {
	for _, message := range []proto.Message{
		&fencepb.FenceClusterNetworkRequest{}, &fencepb.UnfenceClusterNetworkRequest{},
		&fencepb.ListClusterFenceRequest{}, &fencepb.GetFenceClientsRequest{},
	} {
		descriptor := message.ProtoReflect().Descriptor()
		if secret, _ := proto.GetExtension(descriptor.Fields().ByName("secrets").Options(), spec.E_CsiSecret).(bool); !secret {
			t.Errorf("%s: secrets are not marked", descriptor.Name())
		}
		if secret, _ := proto.GetExtension(descriptor.Fields().ByName("parameters").Options(), spec.E_CsiSecret).(bool); secret {
			t.Errorf("%s: parameters are marked as secret", descriptor.Name())
		}
	}
}

func TestABlockHasOneFormOnly(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7": "192.0.2.7/32", "192.0.2.7/32": "192.0.2.7/32", "192.0.2.7/24": "192.0.2.0/24", " 192.0.2.7 ": "192.0.2.7/32",
		"::ffff:192.0.2.7": "192.0.2.7/32", "::ffff:192.0.2.7/128": "192.0.2.7/32", "2001:DB8::1": "2001:db8::1/128", "fe80::1%eth0": "fe80::1/128",
		"": "", "node-1": "", "192.0.2.7:0/2686266785": "", "192.0.2.7/33": "", "192.0.2.7/": "", "/24": "",
	} {
		block, err := ParseBlock(text)
		if (err == nil) != (want != "") || err == nil && block.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, block, err, want)
		}
	}
}

func TestABlockCoversWhatLiesWhollyInIt(t *testing.T) {
	blocks := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("2001:db8::1/128")}
	for text, want := range map[string]bool{
		"192.0.2.7/32": true, "192.0.2.0/25": true, "192.0.2.0/24": false, "192.0.2.200/32": false,
		"2001:db8::1/128": true, "2001:db8::2/128": false, "0.0.0.0/0": false,
	} {
		if got := Covers(blocks, netip.MustParsePrefix(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
