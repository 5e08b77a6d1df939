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

func (c *controller) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId(), "node_id", req.GetNodeId()); err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	a := c.array
	if err := a.publishDisk(ctx, req, func() error { return a.publish(req) }); err != nil {
		return nil, err
	}
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "/dev/array/" + req.GetVolumeId()}}, nil
}

// wouldPublish is the error that publish would answer.
func (a *Array) wouldPublish(req *spec.ControllerPublishVolumeRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.publishableLocked(req)
	return err
}

func (a *Array) publish(req *spec.ControllerPublishVolumeRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, err := a.publishableLocked(req)
	if err != nil {
		return err
	}
	nodeID, wanted := req.GetNodeId(), wantedBy(req)
	if at := v.attached[nodeID]; at != nil && at.capability != nil {
		return nil
	}
	if v.attached[nodeID] == nil && a.switchesLocked(v).PublishMoves {
		for _, rival := range v.rivals(nodeID, wanted) {
			a.detachLocked(v, rival, "by "+Publish+" for "+nodeID)
		}
	}
	a.attachLocked(v, nodeID, wanted, "by "+Publish) // or adopt what is attached by hand
	return nil
}

func wantedBy(req *spec.ControllerPublishVolumeRequest) *attachment {
	return &attachment{readonly: req.GetReadonly(), capability: req.GetVolumeCapability()}
}

// publishableLocked is the volume of the request, or why it is not published.
func (a *Array) publishableLocked(req *spec.ControllerPublishVolumeRequest) (*volume, error) {
	v, nodeID, wanted := a.volumes[req.GetVolumeId()], req.GetNodeId(), wantedBy(req)
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", req.GetVolumeId())
	}
	if a.machines[nodeID] == nil {
		return nil, status.Errorf(codes.NotFound, "node %q does not exist", nodeID)
	}
	if err := v.supports(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if at := v.attached[nodeID]; at != nil {
		if at.capability == nil { // by hand
			return v, nil
		}
		return v, compatible(v, nodeID, at, wanted)
	}
	s := a.switchesLocked(v)
	if rivals := v.rivals(nodeID, wanted); len(rivals) > 0 && s.EnforceSingleAttach && !s.PublishMoves {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q is already published to node %q", v.id, strings.Join(rivals, ", "))
	}
	return v, a.fullLocked(nodeID)
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

func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	a := c.array
	if err := a.unpublishDisk(ctx, req, func() error { a.unpublish(req); return nil }); err != nil {
		return nil, err
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

func (a *Array) unpublish(req *spec.ControllerUnpublishVolumeRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, nodeID := range a.unpublishedNodesLocked(req) {
		a.detachLocked(a.volumes[req.GetVolumeId()], nodeID, "by "+Unpublish)
	}
}

func (a *Array) unpublishedNodes(req *spec.ControllerUnpublishVolumeRequest) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unpublishedNodesLocked(req)
}

// unpublishedNodesLocked are the nodes that the request means, none if there is
// no such volume.
func (a *Array) unpublishedNodesLocked(req *spec.ControllerUnpublishVolumeRequest) []string {
	v := a.volumes[req.GetVolumeId()]
	switch {
	case v == nil:
		return nil
	case req.GetNodeId() == "": // as the CSI spec has it
		return v.attachedNodes()
	}
	return []string{req.GetNodeId()}
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
