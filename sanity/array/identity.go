package array

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// VendorVersion is what GetPluginInfo reports as the driver's version.
const VendorVersion = "1.0.0"

// identity is the Identity service of a controller or a node socket.
type identity struct {
	spec.UnimplementedIdentityServer
	array *Array
}

func (i *identity) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: i.array.DriverName(), VendorVersion: VendorVersion}, nil
}

// GetPluginCapabilities speaks of the whole driver, on the node socket too:
// csi-sanity asks there whether volumes have to be published first.
func (i *identity) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	response := &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{
		pluginService(spec.PluginCapability_Service_CONTROLLER_SERVICE),
	}}
	if i.array.everything() == nil {
		defer i.array.mu.Unlock()
		response.Capabilities = append(response.Capabilities, everythingPlugin...)
	}
	return response, nil
}

func (i *identity) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
