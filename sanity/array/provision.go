package array

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (c *controller) CreateVolume(_ context.Context, req *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	options, err := wantedVolume(req)
	if err != nil {
		return nil, err
	}
	a := c.array
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := a.volumeNamedLocked(req.GetName()); v != nil {
		if err := v.sameAs(options, req.GetCapacityRange()); err != nil {
			return nil, err
		}
		return &spec.CreateVolumeResponse{Volume: a.describeNewLocked(v, req)}, nil
	}
	bytes, err := a.contentLocked(req.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	if limit := req.GetCapacityRange().GetLimitBytes(); limit > 0 && bytes > limit {
		return nil, status.Errorf(codes.OutOfRange, "the source has %d bytes, the limit is %d", bytes, limit)
	}
	options.Bytes = max(options.Bytes, bytes)
	if free := a.freeLocked(); options.Bytes > free {
		return nil, status.Errorf(codes.OutOfRange, "%d bytes wanted, %d are free", options.Bytes, free)
	}
	if err := checkMutable(req.GetMutableParameters()); err != nil {
		return nil, err
	}
	v := a.createVolumeLocked(fmt.Sprintf("vol-%04d", a.ordinal+1), req.GetName(), options)
	return &spec.CreateVolumeResponse{Volume: a.describeNewLocked(v, req)}, nil
}

// describeNewLocked tells also what the volume was made of, and where.
func (a *Array) describeNewLocked(v *volume, req *spec.CreateVolumeRequest) *spec.Volume {
	described := v.describe()
	described.ContentSource = req.GetVolumeContentSource()
	if a.switches.Everything {
		described.AccessibleTopology = []*spec.Topology{topology}
	}
	return described
}

func wantedVolume(req *spec.CreateVolumeRequest) (VolumeOptions, error) {
	options := VolumeOptions{Bytes: req.GetCapacityRange().GetRequiredBytes()}
	limit := req.GetCapacityRange().GetLimitBytes()
	if options.Bytes == 0 {
		options.Bytes = DefaultVolumeBytes
		if limit > 0 {
			options.Bytes = min(options.Bytes, limit)
		}
	}
	switch {
	case req.GetName() == "":
		return options, status.Error(codes.InvalidArgument, "name is empty")
	case len(req.GetVolumeCapabilities()) == 0:
		return options, status.Error(codes.InvalidArgument, "volume_capabilities are missing")
	case options.Bytes < 0 || limit < 0 || (limit > 0 && options.Bytes > limit):
		return options, status.Errorf(codes.OutOfRange, "capacity_range: %d bytes required, limit %d", options.Bytes, limit)
	}
	for _, capability := range req.GetVolumeCapabilities() {
		if err := checkCapability(capability); err != nil {
			return options, err
		}
		options.Block = options.Block || capability.GetBlock() != nil
		options.MultiWriter = options.MultiWriter ||
			capability.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return options, nil
}

// sameAs says whether a volume that exists is what a CreateVolume wants.
func (v *volume) sameAs(wanted VolumeOptions, size *spec.CapacityRange) error {
	fits := v.options.Bytes >= size.GetRequiredBytes() && (size.GetLimitBytes() == 0 || v.options.Bytes <= size.GetLimitBytes())
	if !fits || wanted.Block != v.options.Block || wanted.MultiWriter != v.options.MultiWriter {
		return status.Errorf(codes.AlreadyExists, "volume %q exists as %q with %+v, which is not what is wanted", v.name, v.id, v.options)
	}
	return nil
}

func (v *volume) describe() *spec.Volume {
	return &spec.Volume{VolumeId: v.id, CapacityBytes: v.options.Bytes}
}

func (a *Array) freeLocked() int64 {
	free := a.options.Capacity
	for _, v := range a.volumes {
		free -= v.options.Bytes
	}
	return free
}

func (c *controller) DeleteVolume(_ context.Context, req *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	a := c.array
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.volumes[req.GetVolumeId()]
	if v == nil {
		return &spec.DeleteVolumeResponse{}, nil
	}
	if nodes := v.attachedNodes(); len(nodes) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q is published to node %q", v.id, nodes)
	}
	for id := range a.machines {
		if a.mountLocked(v, id) != nil {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %q is still mounted on node %q", v.id, id)
		}
	}
	delete(a.volumes, v.id)
	a.eventLocked(v.id, "", "deleted")
	return &spec.DeleteVolumeResponse{}, nil
}

func (c *controller) GetCapacity(context.Context, *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	c.array.mu.Lock()
	defer c.array.mu.Unlock()
	return &spec.GetCapacityResponse{AvailableCapacity: c.array.freeLocked()}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, req *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	if err := requireIDs("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_capabilities are missing")
	}
	c.array.mu.Lock()
	defer c.array.mu.Unlock()
	v := c.array.volumes[req.GetVolumeId()]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", req.GetVolumeId())
	}
	for _, capability := range req.GetVolumeCapabilities() {
		if err := checkCapability(capability); err != nil {
			return nil, err
		}
		if err := v.supports(capability); err != nil {
			return &spec.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
		}
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	}}, nil
}

// tokenPrefix stands before the ordinal of the last entry of a page, so that
// a token outlives the deletion of that entry.
const tokenPrefix = "after-"

func (c *controller) ListVolumes(_ context.Context, req *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	a := c.array
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.switches.ListVolumes {
		return nil, status.Error(codes.Unimplemented, "this array does not list its volumes")
	}
	if req.GetMaxEntries() < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "max_entries is %d, less than 0", req.GetMaxEntries())
	}
	after, err := parseToken(req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	page := int(req.GetMaxEntries())
	if most := a.switches.PageSize; most > 0 && (page == 0 || page > most) {
		page = most
	}
	response := &spec.ListVolumesResponse{}
	for _, v := range a.volumesLocked() {
		if v.ordinal <= after {
			continue
		}
		if page > 0 && len(response.Entries) == page {
			response.NextToken = token(after)
			break
		}
		after = v.ordinal
		response.Entries = append(response.Entries, &spec.ListVolumesResponse_Entry{
			Volume: v.describe(),
			Status: &spec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: a.publishedLocked(v)},
		})
	}
	return response, nil
}

func token(after int) string { return tokenPrefix + strconv.Itoa(after) }

func parseToken(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(token, tokenPrefix)
	after, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return 0, status.Errorf(codes.Aborted, "starting_token %q is none of ours", token)
	}
	return after, nil
}

func (c *controller) ControllerGetVolume(_ context.Context, req *spec.ControllerGetVolumeRequest) (*spec.ControllerGetVolumeResponse, error) {
	a := c.array
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.switches.GetVolume {
		return nil, status.Error(codes.Unimplemented, "this array does not offer ControllerGetVolume")
	}
	if err := requireIDs("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	v := a.volumes[req.GetVolumeId()]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", req.GetVolumeId())
	}
	return &spec.ControllerGetVolumeResponse{
		Volume: v.describe(),
		Status: &spec.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: a.publishedLocked(v)},
	}, nil
}
