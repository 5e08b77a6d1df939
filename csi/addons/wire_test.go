package addons

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-fencepost/csi-fencepost/csi/addons/fencepb"
	"github.com/csi-fencepost/csi-fencepost/csi/addons/identitypb"
)

// The facts of csi-addons/spec, fence.proto and identity.proto.
func TestTheServicesAreCalledAsCSIAddonsCallsThem(t *testing.T) {
	var got []string
	for _, desc := range []struct {
		service string
		methods []string
	}{
		{fencepb.FenceController_ServiceDesc.ServiceName, []string{
			fencepb.FenceController_FenceClusterNetwork_FullMethodName, fencepb.FenceController_UnfenceClusterNetwork_FullMethodName,
			fencepb.FenceController_ListClusterFence_FullMethodName, fencepb.FenceController_GetFenceClients_FullMethodName}},
		{identitypb.Identity_ServiceDesc.ServiceName, []string{
			identitypb.Identity_GetIdentity_FullMethodName, identitypb.Identity_GetCapabilities_FullMethodName, identitypb.Identity_Probe_FullMethodName}},
	} {
		got = append(got, desc.service)
		got = append(got, desc.methods...)
	}
	want := []string{
		"fence.FenceController", "/fence.FenceController/FenceClusterNetwork", "/fence.FenceController/UnfenceClusterNetwork",
		"/fence.FenceController/ListClusterFence", "/fence.FenceController/GetFenceClients",
		"identity.Identity", "/identity.Identity/GetIdentity", "/identity.Identity/GetCapabilities", "/identity.Identity/Probe",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func TestTheFieldsHaveCSIAddonsNumbersAndTypes(t *testing.T) {
	request := "1 map parameters, 2 map secrets"
	want := map[proto.Message]string{
		&fencepb.FenceClusterNetworkRequest{}:    request + ", 3 list message cidrs",
		&fencepb.FenceClusterNetworkResponse{}:   "",
		&fencepb.UnfenceClusterNetworkRequest{}:  request + ", 3 list message cidrs",
		&fencepb.UnfenceClusterNetworkResponse{}: "",
		&fencepb.ListClusterFenceRequest{}:       request,
		&fencepb.ListClusterFenceResponse{}:      "1 list message cidrs",
		&fencepb.GetFenceClientsRequest{}:        request,
		&fencepb.GetFenceClientsResponse{}:       "1 list message clients",
		&fencepb.ClientDetails{}:                 "1 string id, 2 list message addresses",
		&fencepb.CIDR{}:                          "1 string cidr",
		&identitypb.GetIdentityRequest{}:         "",
		&identitypb.GetIdentityResponse{}:        "1 string name, 2 string vendor_version, 3 map manifest",
		&identitypb.GetCapabilitiesRequest{}:     "",
		&identitypb.GetCapabilitiesResponse{}:    "1 list message capabilities",
		&identitypb.Capability{}:                 "1 message service, 3 message network_fence",
		&identitypb.Capability_Service{}:         "1 enum type",
		&identitypb.Capability_NetworkFence{}:    "1 enum type",
		&identitypb.ProbeRequest{}:               "",
		&identitypb.ProbeResponse{}:              "1 message ready",
	}
	for message, fields := range want {
		if got := describe(message.ProtoReflect().Descriptor()); got != fields {
			t.Errorf("%s: %q, want %q", message.ProtoReflect().Descriptor().Name(), got, fields)
		}
	}
	if identitypb.Capability_NetworkFence_NETWORK_FENCE != 1 || identitypb.Capability_NetworkFence_GET_CLIENTS_TO_FENCE != 2 {
		t.Error("the capabilities have other numbers")
	}
}

func describe(message protoreflect.MessageDescriptor) string {
	text := ""
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		kind := field.Kind().String()
		switch {
		case field.IsMap():
			kind = "map"
		case field.IsList():
			kind = "list " + kind
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d %s %s", field.Number(), kind, field.Name())
	}
	return text
}

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
