package array

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodeService is the Node service of one machine.
type nodeService struct {
	spec.UnimplementedNodeServer
	array  *Array
	nodeID string
}

func (n *nodeService) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	n.array.mu.Lock()
	defer n.array.mu.Unlock()
	if _, err := n.array.poweredLocked(n.nodeID); err != nil {
		return nil, err
	}
	info := &spec.NodeGetInfoResponse{NodeId: n.nodeID}
	if n.array.switches.Everything {
		info.MaxVolumesPerNode, info.AccessibleTopology = MaxVolumesPerNode, topology
	}
	return info, nil
}

func (n *nodeService) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	types := []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if n.array.everything() == nil {
		types = append(types, everythingNode...)
		n.array.mu.Unlock()
	}
	response := &spec.NodeGetCapabilitiesResponse{}
	for _, t := range types {
		response.Capabilities = append(response.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

func (n *nodeService) NodeStageVolume(ctx context.Context, req *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId(), "staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if err := n.attachedHere(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := n.mount(func(m Mounts) error {
		return m.Stage(ctx, n.nodeID, req.GetVolumeId(), req.GetStagingTargetPath())
	}); err != nil {
		return nil, err
	}
	a := n.array
	a.mu.Lock()
	defer a.mu.Unlock()
	m, v, err := a.onMachineLocked(n.nodeID, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	at := v.attached[n.nodeID]
	if at == nil {
		a.options.Mounts.Revoke(n.nodeID, v.id) // what was mounted after the detach had revoked it
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q was detached from node %q meanwhile", v.id, n.nodeID)
	}
	mt := m.mounts[v.id]
	if mt == nil {
		a.session++
		mt = &mount{session: a.session, nodeID: n.nodeID, staging: map[string]bool{}, targets: map[string]bool{}, written: a.options.Mounts.Written(n.nodeID, v.id)}
		m.mounts[v.id] = mt
	}
	mt.mode, mt.readonly = req.GetVolumeCapability().GetAccessMode().GetMode(), at.readonly
	mt.staging[req.GetStagingTargetPath()] = true
	a.eventLocked(v.id, n.nodeID, "staged")
	a.judgeLocked(v)
	return &spec.NodeStageVolumeResponse{}, nil
}

func (n *nodeService) NodeUnstageVolume(ctx context.Context, req *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId(), "staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := n.mount(func(m Mounts) error {
		return m.Unstage(ctx, n.nodeID, req.GetVolumeId(), req.GetStagingTargetPath())
	}); err != nil {
		return nil, err
	}
	err := n.unmount(req.GetVolumeId(), "unstaged", func(mt *mount) bool {
		known := mt.staging[req.GetStagingTargetPath()]
		delete(mt.staging, req.GetStagingTargetPath())
		return known
	})
	return &spec.NodeUnstageVolumeResponse{}, err
}

func (n *nodeService) NodePublishVolume(ctx context.Context, req *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId(), "target_path", req.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if err := n.mount(func(m Mounts) error {
		return m.Publish(ctx, n.nodeID, req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath(), req.GetReadonly())
	}); err != nil {
		return nil, err
	}
	a := n.array
	a.mu.Lock()
	defer a.mu.Unlock()
	m, v, err := a.onMachineLocked(n.nodeID, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	mt := m.mounts[v.id]
	if mt == nil || !mt.staging[req.GetStagingTargetPath()] {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q is not staged on node %q at %q", v.id, n.nodeID, req.GetStagingTargetPath())
	}
	if err := mt.admits(req); err != nil {
		return nil, err
	}
	if err := makeTarget(req.GetTargetPath(), req.GetVolumeCapability().GetBlock() != nil); err != nil {
		return nil, status.Errorf(codes.Internal, "target_path: %v", err)
	}
	mt.targets[req.GetTargetPath()] = req.GetReadonly()
	a.eventLocked(v.id, n.nodeID, "published to a container")
	a.judgeLocked(v)
	return &spec.NodePublishVolumeResponse{}, nil
}

// admits says whether the volume may be published at this path as well.
func (mt *mount) admits(req *spec.NodePublishVolumeRequest) error {
	readonly, known := mt.targets[req.GetTargetPath()]
	switch {
	case known && readonly != req.GetReadonly():
		return status.Errorf(codes.AlreadyExists, "volume %q is published at %q with readonly %v", req.GetVolumeId(), req.GetTargetPath(), readonly)
	case known || len(mt.targets) == 0:
		return nil
	case mt.mode == spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		return status.Errorf(codes.FailedPrecondition, "volume %q is published at another path already, and its access mode is SINGLE_NODE_SINGLE_WRITER", req.GetVolumeId())
	}
	return nil
}

func (n *nodeService) NodeUnpublishVolume(ctx context.Context, req *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId(), "target_path", req.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := n.mount(func(m Mounts) error {
		return m.Unpublish(ctx, n.nodeID, req.GetVolumeId(), req.GetTargetPath())
	}); err != nil {
		return nil, err
	}
	err := n.unmount(req.GetVolumeId(), "unpublished from a container", func(mt *mount) bool {
		_, known := mt.targets[req.GetTargetPath()]
		delete(mt.targets, req.GetTargetPath())
		return known
	})
	if err != nil {
		return nil, err
	}
	if err := os.Remove(req.GetTargetPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Errorf(codes.Internal, "target_path: %v", err)
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

// unmount changes a mount, if there is one, and ends it when nothing is left
// of it: that closes the client's session. change says whether it did anything.
func (n *nodeService) unmount(volumeID, what string, change func(*mount) bool) error {
	a := n.array
	a.mu.Lock()
	defer a.mu.Unlock()
	m, err := a.poweredLocked(n.nodeID)
	if err != nil {
		return err
	}
	mt := m.mounts[volumeID]
	if mt == nil || !change(mt) {
		return nil // idempotent
	}
	if len(mt.staging) == 0 && len(mt.targets) == 0 {
		delete(m.mounts, volumeID)
	}
	a.eventLocked(volumeID, n.nodeID, what)
	a.judgeLocked(a.volumes[volumeID])
	return nil
}

func (n *nodeService) NodeGetVolumeStats(_ context.Context, req *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId(), "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	a := n.array
	a.mu.Lock()
	defer a.mu.Unlock()
	m, v, err := a.onMachineLocked(n.nodeID, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	mt := m.mounts[v.id]
	if mt == nil || !mt.has(req.GetVolumePath()) {
		return nil, status.Errorf(codes.NotFound, "volume %q is not at %q on node %q", v.id, req.GetVolumePath(), n.nodeID)
	}
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{
		Unit: spec.VolumeUsage_BYTES, Total: v.options.Bytes, Available: v.options.Bytes,
	}}}, nil
}

func (mt *mount) has(path string) bool {
	_, published := mt.targets[path]
	return published || mt.staging[path]
}

// onMachineLocked is the machine, with power, and a volume that exists.
func (a *Array) onMachineLocked(nodeID, volumeID string) (*machine, *volume, error) {
	m, err := a.poweredLocked(nodeID)
	if err != nil {
		return nil, nil, err
	}
	v := a.volumes[volumeID]
	if v == nil {
		return nil, nil, status.Errorf(codes.NotFound, "volume %q does not exist", volumeID)
	}
	return m, v, nil
}

// makeTarget makes what a mount would need: a folder, or a file for a device.
func makeTarget(path string, block bool) error {
	if !block {
		return os.MkdirAll(path, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
