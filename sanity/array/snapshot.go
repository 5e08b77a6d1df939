package array

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A snapshot of a volume. It outlives the volume.
type snapshot struct {
	id, name string
	ordinal  int
	group    string // the ID of the group snapshot that it belongs to
	source   string // volume ID
	bytes    int64
	made     *timestamppb.Timestamp
}

func (s *snapshot) describe() *spec.Snapshot {
	return &spec.Snapshot{
		SnapshotId: s.id, SourceVolumeId: s.source, GroupSnapshotId: s.group,
		SizeBytes: s.bytes, CreationTime: s.made, ReadyToUse: true,
	}
}

func (a *Array) snapshotLocked(name, group string, v *volume) *snapshot {
	a.ordinal++
	s := &snapshot{
		id: fmt.Sprintf("snap-%04d", a.ordinal), name: name, ordinal: a.ordinal, group: group,
		source: v.id, bytes: v.options.Bytes, made: timestamppb.New(a.options.Now()),
	}
	a.snapshots[s.id] = s
	a.eventLocked(v.id, "", "snapshot "+s.id)
	return s
}

// snapshotsLocked lists the snapshots in the order in which they were made.
func (a *Array) snapshotsLocked() []*snapshot {
	return slices.SortedFunc(maps.Values(a.snapshots), func(x, y *snapshot) int { return cmp.Compare(x.ordinal, y.ordinal) })
}

// everything locks the array if it offers what no scenario needs. The caller
// unlocks.
func (a *Array) everything() error {
	a.mu.Lock()
	if a.switches.Everything {
		return nil
	}
	a.mu.Unlock()
	return status.Error(codes.Unimplemented, "this array does not offer that")
}

func (c *controller) CreateSnapshot(_ context.Context, req *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("name", req.GetName(), "source_volume_id", req.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	for _, s := range a.snapshots {
		if s.name != req.GetName() {
			continue
		}
		if s.source != req.GetSourceVolumeId() {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot %q exists and is of volume %q", s.name, s.source)
		}
		return &spec.CreateSnapshotResponse{Snapshot: s.describe()}, nil
	}
	v := a.volumes[req.GetSourceVolumeId()]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", req.GetSourceVolumeId())
	}
	return &spec.CreateSnapshotResponse{Snapshot: a.snapshotLocked(req.GetName(), "", v).describe()}, nil
}

func (c *controller) DeleteSnapshot(_ context.Context, req *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("snapshot_id", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	if s := a.snapshots[req.GetSnapshotId()]; s != nil && s.group != "" {
		return nil, status.Errorf(codes.InvalidArgument, "snapshot %q belongs to group snapshot %q", s.id, s.group)
	}
	delete(a.snapshots, req.GetSnapshotId())
	return &spec.DeleteSnapshotResponse{}, nil
}

func (c *controller) GetSnapshot(_ context.Context, req *spec.GetSnapshotRequest) (*spec.GetSnapshotResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	if err := requireIDs("snapshot_id", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	s := a.snapshots[req.GetSnapshotId()]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "snapshot %q does not exist", req.GetSnapshotId())
	}
	return &spec.GetSnapshotResponse{Snapshot: s.describe()}, nil
}

func (c *controller) ListSnapshots(_ context.Context, req *spec.ListSnapshotsRequest) (*spec.ListSnapshotsResponse, error) {
	a := c.array
	if err := a.everything(); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	after, err := parseToken(req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	response := &spec.ListSnapshotsResponse{}
	for _, s := range a.snapshotsLocked() {
		if s.ordinal <= after || !wanted(req.GetSnapshotId(), s.id) || !wanted(req.GetSourceVolumeId(), s.source) {
			continue
		}
		if most := int(req.GetMaxEntries()); most > 0 && len(response.Entries) == most {
			response.NextToken = token(after)
			break
		}
		after = s.ordinal
		response.Entries = append(response.Entries, &spec.ListSnapshotsResponse_Entry{Snapshot: s.describe()})
	}
	return response, nil
}

// wanted says whether a filter, if there is one, lets an ID through.
func wanted(filter, id string) bool { return filter == "" || filter == id }

// contentLocked is how many bytes the source of a new volume has; 0 without one.
func (a *Array) contentLocked(source *spec.VolumeContentSource) (int64, error) {
	if source == nil {
		return 0, nil
	}
	if !a.switches.Everything {
		return 0, status.Error(codes.InvalidArgument, "volume_content_source is not supported")
	}
	if id := source.GetSnapshot().GetSnapshotId(); id != "" {
		if s := a.snapshots[id]; s != nil {
			return s.bytes, nil
		}
		return 0, status.Errorf(codes.NotFound, "snapshot %q does not exist", id)
	}
	id := source.GetVolume().GetVolumeId()
	if v := a.volumes[id]; v != nil {
		return v.options.Bytes, nil
	}
	return 0, status.Errorf(codes.NotFound, "volume %q does not exist", id)
}
