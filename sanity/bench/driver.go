package main

import (
	"context"
	"fmt"
	"math"
	"net"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// listedVolumes is how many volumes make an answer of about 4.4 MB.
const listedVolumes = 44_000

// driver answers at once and knows nothing: what is left is the way to it.
type driver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	name   string
	listed *spec.ListVolumesResponse
}

// serveDriver serves the driver on a socket until ctx ends.
func serveDriver(ctx context.Context, socket, name string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxSendMsgSize(math.MaxInt32))
	d := &driver{name: name, listed: volumes(listedVolumes)}
	spec.RegisterIdentityServer(server, d)
	spec.RegisterControllerServer(server, d)
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}

// volumes are what a storage system with n volumes lists.
func volumes(n int) *spec.ListVolumesResponse {
	list := &spec.ListVolumesResponse{}
	for i := range n {
		list.Entries = append(list.Entries, &spec.ListVolumesResponse_Entry{
			Volume: &spec.Volume{VolumeId: fmt.Sprintf("pvc-%08d-0c1f-4b7c-9c3e-5d2a7f6b8e90", i), CapacityBytes: 10 << 30},
			Status: &spec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{fmt.Sprintf("i-%017d.zone-a.compute.internal", i%1000)}},
		})
	}
	return list
}

// listedBytes is the size of that answer.
func listedBytes() int { return proto.Size(volumes(listedVolumes)) }

func (d *driver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: d.name, VendorVersion: "bench"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{{Type: &spec.PluginCapability_Service_{
		Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE}}}}}, nil
}

func (d *driver) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	return &spec.ControllerGetCapabilitiesResponse{Capabilities: []*spec.ControllerServiceCapability{{Type: &spec.ControllerServiceCapability_Rpc{
		Rpc: &spec.ControllerServiceCapability_RPC{Type: spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}}}}}, nil
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, req *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: req.GetVolumeCapabilities()}}, nil
}

func (d *driver) ListVolumes(context.Context, *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	return d.listed, nil
}

func (d *driver) ControllerPublishVolume(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"devicePath": "/dev/disk/by-id/virtio-0"}}, nil
}

func (d *driver) ControllerUnpublishVolume(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}
