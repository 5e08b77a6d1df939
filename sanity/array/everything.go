package array

import (
	"context"
	"errors"
	"fmt"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// MaxVolumesPerNode is how many volumes a node may have, and mutableParameter
// the one parameter that can be changed, of an array that offers everything.
const (
	MaxVolumesPerNode = 16
	mutableParameter  = "iops"
)

// topology is where each machine of an array that offers everything stands.
var topology = &spec.Topology{Segments: map[string]string{"array.csi-fencepost.io/site": "one"}}

// everythingPlugin, everythingController and everythingNode are the
// capabilities that Switches.Everything adds.
var (
	everythingPlugin = []*spec.PluginCapability{
		pluginService(spec.PluginCapability_Service_GROUP_CONTROLLER_SERVICE),
		pluginService(spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		pluginService(spec.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS),
		{Type: &spec.PluginCapability_VolumeExpansion_{VolumeExpansion: &spec.PluginCapability_VolumeExpansion{
			Type: spec.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}
	everythingController = []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		spec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		spec.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		spec.ControllerServiceCapability_RPC_CLONE_VOLUME,
		spec.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		spec.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		spec.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		spec.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	}
	everythingNode = []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		spec.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	}
)

func pluginService(service spec.PluginCapability_Service_Type) *spec.PluginCapability {
	return &spec.PluginCapability{Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: service}}}
}

// ServeAll starts the whole driver on one socket, for one machine, as a driver
// does that runs on a single host: Identity, Controller, GroupController and
// Node. It ends, and can be started again, as after Serve. The machine becomes
// known to the array, with power on.
func (a *Array) ServeAll(ctx context.Context, socketPath, nodeID string) error {
	if nodeID == "" {
		return errors.New("serve: the node ID is empty")
	}
	if err := a.AddMachine(nodeID); err != nil {
		return err
	}
	onController, onNode := a.intercept(ControllerSocket), a.intercept(nodeID)
	return a.serveDriver(ctx, socketPath, func(g *grpc.Server) {
		spec.RegisterGroupControllerServer(g, &groupController{array: a})
		spec.RegisterNodeServer(g, &nodeService{array: a, nodeID: nodeID})
	}, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if strings.HasPrefix(info.FullMethod, "/"+spec.Node_ServiceDesc.ServiceName+"/") {
			return onNode(ctx, req, info, handler)
		}
		return onController(ctx, req, info, handler)
	})
}

// fullLocked is the error for a node that may have no further volume.
func (a *Array) fullLocked(nodeID string) error {
	if !a.switches.Everything {
		return nil
	}
	has := 0
	for _, v := range a.volumes {
		if v.attached[nodeID] != nil {
			has++
		}
	}
	if has >= MaxVolumesPerNode {
		return status.Errorf(codes.ResourceExhausted, "node %q has %d volumes, and may have %d", nodeID, has, MaxVolumesPerNode)
	}
	return nil
}

func checkMutable(parameters map[string]string) error {
	for key := range parameters {
		if key != mutableParameter {
			return status.Errorf(codes.InvalidArgument, "mutable_parameters: %q is none; there is %q", key, mutableParameter)
		}
	}
	return nil
}

func (c *controller) ControllerModifyVolume(_ context.Context, req *spec.ControllerModifyVolumeRequest) (*spec.ControllerModifyVolumeResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if _, err := a.existingLocked(req.GetVolumeId()); err != nil {
		return nil, err
	}
	return &spec.ControllerModifyVolumeResponse{}, checkMutable(req.GetMutableParameters())
}

func (c *controller) ControllerExpandVolume(_ context.Context, req *spec.ControllerExpandVolumeRequest) (*spec.ControllerExpandVolumeResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	v, err := a.existingLocked(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	wanted, limit := req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes()
	switch {
	case req.GetCapacityRange() == nil:
		return nil, status.Error(codes.InvalidArgument, "capacity_range is missing")
	case wanted-v.options.Bytes > a.freeLocked() || (limit > 0 && max(wanted, v.options.Bytes) > limit):
		return nil, status.Errorf(codes.OutOfRange, "capacity_range: %d bytes required, limit %d, the volume has %d", wanted, limit, v.options.Bytes)
	case wanted > v.options.Bytes:
		v.options.Bytes = wanted
		a.eventLocked(v.id, "", fmt.Sprintf("expanded to %d bytes", wanted))
	}
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: v.options.Bytes, NodeExpansionRequired: true}, nil
}

func (c *controller) ControllerGetVolumeHealth(_ context.Context, req *spec.ControllerGetVolumeHealthRequest) (*spec.ControllerGetVolumeHealthResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	v, err := a.existingLocked(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &spec.ControllerGetVolumeHealthResponse{VolumeHealth: v.health()}, nil
}

func (c *controller) ControllerListVolumeHealth(context.Context, *spec.ControllerListVolumeHealthRequest) (*spec.ControllerListVolumeHealthResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	response := &spec.ControllerListVolumeHealthResponse{}
	for _, v := range a.volumesLocked() {
		response.Entries = append(response.Entries, v.health())
	}
	return response, nil
}

// health is that of a disk that never fails.
func (v *volume) health() *spec.VolumeHealth { return &spec.VolumeHealth{VolumeId: v.id} }

// existingLocked is a volume, INVALID_ARGUMENT or NOT_FOUND.
func (a *Array) existingLocked(volumeID string) (*volume, error) {
	if err := requireIDs("volume_id", volumeID); err != nil {
		return nil, err
	}
	v := a.volumes[volumeID]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", volumeID)
	}
	return v, nil
}

func (n *nodeService) NodeExpandVolume(_ context.Context, req *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	a := n.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("volume_id", req.GetVolumeId(), "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	m, v, err := a.onMachineLocked(n.nodeID, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if mt := m.mounts[v.id]; mt == nil || !mt.has(req.GetVolumePath()) {
		return nil, status.Errorf(codes.NotFound, "volume %q is not at %q on node %q", v.id, req.GetVolumePath(), n.nodeID)
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: v.options.Bytes}, nil
}

func (n *nodeService) NodeGetVolumeHealth(_ context.Context, req *spec.NodeGetVolumeHealthRequest) (*spec.NodeGetVolumeHealthResponse, error) {
	a := n.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	_, v, err := a.onMachineLocked(n.nodeID, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &spec.NodeGetVolumeHealthResponse{VolumeHealth: v.health()}, nil
}

func (n *nodeService) NodeGetStorageHealth(context.Context, *spec.NodeGetStorageHealthRequest) (*spec.NodeGetStorageHealthResponse, error) {
	if err := n.array.everything(); err != nil {
		return nil, err
	}
	defer n.array.mu.Unlock()
	return &spec.NodeGetStorageHealthResponse{}, nil
}
