package array

import (
	"context"
	"fmt"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// groupController is the GroupController service.
type groupController struct {
	spec.UnimplementedGroupControllerServer
	array *Array
}

// A group of snapshots that were made in one instant.
type group struct {
	id, name string
	sources  []string // volume IDs, sorted
	made     *timestamppb.Timestamp
}

func (a *Array) describeGroupLocked(g *group) *spec.VolumeGroupSnapshot {
	described := &spec.VolumeGroupSnapshot{GroupSnapshotId: g.id, CreationTime: g.made, ReadyToUse: true}
	for _, s := range a.snapshotsLocked() {
		if s.group == g.id {
			described.Snapshots = append(described.Snapshots, s.describe())
		}
	}
	return described
}

func (g *groupController) GroupControllerGetCapabilities(context.Context, *spec.GroupControllerGetCapabilitiesRequest) (*spec.GroupControllerGetCapabilitiesResponse, error) {
	if err := g.array.everything(); err != nil {
		return nil, err
	}
	defer g.array.mu.Unlock()
	return &spec.GroupControllerGetCapabilitiesResponse{Capabilities: []*spec.GroupControllerServiceCapability{{
		Type: &spec.GroupControllerServiceCapability_Rpc{Rpc: &spec.GroupControllerServiceCapability_RPC{
			Type: spec.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

func (g *groupController) CreateVolumeGroupSnapshot(_ context.Context, req *spec.CreateVolumeGroupSnapshotRequest) (*spec.CreateVolumeGroupSnapshotResponse, error) {
	a := g.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("name", req.GetName()); err != nil {
		return nil, err
	}
	sources := slices.Sorted(slices.Values(req.GetSourceVolumeIds()))
	if len(sources) == 0 {
		return nil, status.Error(codes.InvalidArgument, "source_volume_ids are missing")
	}
	for _, old := range a.groups {
		if old.name != req.GetName() {
			continue
		}
		if !slices.Equal(old.sources, sources) {
			return nil, status.Errorf(codes.AlreadyExists, "group snapshot %q exists and is of %q", old.name, old.sources)
		}
		return &spec.CreateVolumeGroupSnapshotResponse{GroupSnapshot: a.describeGroupLocked(old)}, nil
	}
	for _, id := range sources {
		if a.volumes[id] == nil {
			return nil, status.Errorf(codes.NotFound, "volume %q does not exist", id)
		}
	}
	a.ordinal++
	made := &group{id: fmt.Sprintf("group-%04d", a.ordinal), name: req.GetName(), sources: sources, made: timestamppb.New(a.options.Now())}
	a.groups[made.id] = made
	for _, id := range sources {
		a.snapshotLocked(made.name+"/"+id, made.id, a.volumes[id])
	}
	return &spec.CreateVolumeGroupSnapshotResponse{GroupSnapshot: a.describeGroupLocked(made)}, nil
}

func (g *groupController) DeleteVolumeGroupSnapshot(_ context.Context, req *spec.DeleteVolumeGroupSnapshotRequest) (*spec.DeleteVolumeGroupSnapshotResponse, error) {
	a := g.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("group_snapshot_id", req.GetGroupSnapshotId()); err != nil {
		return nil, err
	}
	for id, s := range a.snapshots {
		if s.group == req.GetGroupSnapshotId() {
			delete(a.snapshots, id)
		}
	}
	delete(a.groups, req.GetGroupSnapshotId())
	return &spec.DeleteVolumeGroupSnapshotResponse{}, nil
}

func (g *groupController) GetVolumeGroupSnapshot(_ context.Context, req *spec.GetVolumeGroupSnapshotRequest) (*spec.GetVolumeGroupSnapshotResponse, error) {
	a := g.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("group_snapshot_id", req.GetGroupSnapshotId()); err != nil {
		return nil, err
	}
	found := a.groups[req.GetGroupSnapshotId()]
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "group snapshot %q does not exist", req.GetGroupSnapshotId())
	}
	return &spec.GetVolumeGroupSnapshotResponse{GroupSnapshot: a.describeGroupLocked(found)}, nil
}
