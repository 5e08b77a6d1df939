package controlplane

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const driverName = "controlplane.sanity.test"

// driver is the smallest driver with attach, stage and publish, for one node.
// It remembers what it was told.
type driver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	spec.UnimplementedNodeServer
	nodeID, nodeSocket string

	mu        sync.Mutex
	busy      bool // NodeUnpublishVolume fails, as with an open file
	attached  bool
	staged    bool
	published map[string]bool
}

// startDriver serves the controller at the returned path and the node's side
// in the node's folders.
func startDriver(t *testing.T, c *Cluster, n *Node) (d *driver, controller string) {
	t.Helper()
	d = &driver{nodeID: "id-" + n.Name(), nodeSocket: filepath.Join(n.PluginDir(), "driver.sock"), published: map[string]bool{}}
	controller = filepath.Join(c.Folder(), "controller.sock")
	for _, path := range []string{controller, d.nodeSocket, filepath.Join(n.RegistrationDir(), "driver-reg.sock")} {
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		spec.RegisterIdentityServer(server, d)
		spec.RegisterControllerServer(server, d)
		spec.RegisterNodeServer(server, d)
		registration.RegisterRegistrationServer(server, registrar{d: d})
		go server.Serve(listener)
		t.Cleanup(server.Stop)
	}
	return d, controller
}

// registrar tells the kubelet where the driver is.
type registrar struct {
	registration.UnimplementedRegistrationServer
	d *driver
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: driverName, Endpoint: r.d.nodeSocket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) state() (attached, staged bool, published int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attached, d.staged, len(d.published)
}

func (d *driver) setBusy(busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = busy
}

func (d *driver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
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

func (d *driver) ControllerPublishVolume(_ context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.NodeId != d.nodeID {
		return nil, status.Errorf(codes.NotFound, "no node %s", r.NodeId)
	}
	d.attached = true
	return &spec.ControllerPublishVolumeResponse{}, nil
}

func (d *driver) ControllerUnpublishVolume(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached = false
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: d.nodeID}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	return &spec.NodeGetCapabilitiesResponse{Capabilities: []*spec.NodeServiceCapability{{Type: &spec.NodeServiceCapability_Rpc{
		Rpc: &spec.NodeServiceCapability_RPC{Type: spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}}}, nil
}

func (d *driver) NodeStageVolume(context.Context, *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.staged = true
	return &spec.NodeStageVolumeResponse{}, nil
}

func (d *driver) NodeUnstageVolume(context.Context, *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.staged = false
	return &spec.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published[r.TargetPath] = true
	return &spec.NodePublishVolumeResponse{}, os.MkdirAll(r.TargetPath, 0o750)
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return nil, status.Errorf(codes.Internal, "%s is busy", r.TargetPath)
	}
	delete(d.published, r.TargetPath)
	return &spec.NodeUnpublishVolumeResponse{}, os.RemoveAll(r.TargetPath)
}
