package array

import (
	"context"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// controller is the Controller service.
type controller struct {
	spec.UnimplementedControllerServer
	array *Array
}

func (c *controller) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	c.array.mu.Lock()
	s := c.array.switches
	c.array.mu.Unlock()
	types := []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		spec.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		spec.ControllerServiceCapability_RPC_GET_CAPACITY,
		spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if s.ListVolumes {
		types = append(types, spec.ControllerServiceCapability_RPC_LIST_VOLUMES)
	}
	if s.ListPublishedNodes {
		types = append(types, spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	if s.GetVolume {
		types = append(types, spec.ControllerServiceCapability_RPC_GET_VOLUME)
	}
	if s.Everything {
		types = append(types, everythingController...)
	}
	response := &spec.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		response.Capabilities = append(response.Capabilities, &spec.ControllerServiceCapability{
			Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

func (c *controller) ControllerPublishVolume(_ context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId(), "node_id", req.GetNodeId()); err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	a := c.array
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.volumes[req.GetVolumeId()]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", req.GetVolumeId())
	}
	if a.machines[req.GetNodeId()] == nil {
		return nil, status.Errorf(codes.NotFound, "node %q does not exist", req.GetNodeId())
	}
	if err := v.supports(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	wanted := &attachment{readonly: req.GetReadonly(), capability: req.GetVolumeCapability()}
	if err := a.publishLocked(v, req.GetNodeId(), wanted); err != nil {
		return nil, err
	}
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "/dev/array/" + v.id}}, nil
}

func (a *Array) publishLocked(v *volume, nodeID string, wanted *attachment) error {
	if at := v.attached[nodeID]; at != nil {
		if at.capability == nil { // by hand: adopt it
			a.attachLocked(v, nodeID, wanted, "by "+Publish)
			return nil
		}
		return compatible(v, nodeID, at, wanted)
	}
	s := a.switchesLocked(v)
	rivals := v.rivals(nodeID, wanted)
	switch {
	case len(rivals) == 0:
	case s.PublishMoves:
		for _, rival := range rivals {
			a.detachLocked(v, rival, "by "+Publish+" for "+nodeID)
		}
	case s.EnforceSingleAttach:
		return status.Errorf(codes.FailedPrecondition, "volume %q is already published to node %q", v.id, strings.Join(rivals, ", "))
	}
	if err := a.fullLocked(nodeID); err != nil {
		return err
	}
	a.attachLocked(v, nodeID, wanted, "by "+Publish)
	return nil
}

func compatible(v *volume, nodeID string, have, wanted *attachment) error {
	switch {
	case have.readonly != wanted.readonly:
		return status.Errorf(codes.AlreadyExists, "volume %q is published to node %q with readonly %v, not %v", v.id, nodeID, have.readonly, wanted.readonly)
	case !proto.Equal(have.capability, wanted.capability):
		return status.Errorf(codes.AlreadyExists, "volume %q is published to node %q with another capability: %v, not %v",
			v.id, nodeID, have.capability, wanted.capability)
	}
	return nil
}

func (c *controller) ControllerUnpublishVolume(_ context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	a := c.array
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := a.volumes[req.GetVolumeId()]; v != nil {
		nodes := []string{req.GetNodeId()}
		if req.GetNodeId() == "" { // as the CSI spec has it
			nodes = v.attachedNodes()
		}
		for _, nodeID := range nodes {
			a.detachLocked(v, nodeID, "by "+Unpublish)
		}
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// publishedLocked lists the nodes for ListVolumes and ControllerGetVolume.
func (a *Array) publishedLocked(v *volume) []string {
	if !a.switches.ListPublishedNodes {
		return nil
	}
	return v.attachedNodes()
}

// requireIDs takes pairs of a field's name and its value.
func requireIDs(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] == "" {
			return status.Errorf(codes.InvalidArgument, "%s is empty", pair[0])
		}
	}
	return nil
}

func checkCapability(capability *spec.VolumeCapability) error {
	switch {
	case capability == nil:
		return status.Error(codes.InvalidArgument, "volume_capability is missing")
	case capability.GetAccessType() == nil:
		return status.Error(codes.InvalidArgument, "volume_capability has no access type: neither block nor mount")
	case capability.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_UNKNOWN:
		return status.Error(codes.InvalidArgument, "volume_capability has no access mode")
	}
	return nil
}

// supports says whether the volume can be used in this way.
func (v *volume) supports(capability *spec.VolumeCapability) error {
	isBlock := capability.GetBlock() != nil
	if isBlock != v.options.Block {
		return status.Errorf(codes.InvalidArgument, "volume %q: block is %v, the capability wants %v", v.id, v.options.Block, isBlock)
	}
	if capability.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER && !v.options.MultiWriter {
		return status.Errorf(codes.InvalidArgument, "volume %q was not created for MULTI_NODE_MULTI_WRITER", v.id)
	}
	return nil
}
