package guard

import (
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

// look gives the Surveyor an index of what is there now.
func (r *rig) look() {
	r.t.Helper()
	index, err := survey.ListLive(r.t.Context(), r.client, r.ids)
	r.must(err)
	r.guard.Surveyor.Index = index
}

func (r *rig) publish(node string) error {
	r.t.Helper()
	r.look()
	resp, err := r.guard.ControllerPublishVolume(r.t.Context(), publishOf(handle, id(node)), r)
	r.answered(resp != nil, err)
	return err
}

// publishOf is a publish to a single writer.
func publishOf(volume, nodeID string) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: nodeID,
		VolumeCapability: &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}}}}
}

// answered fails unless there is either an answer or an error: gRPC cannot send none.
func (r *rig) answered(answer bool, err error) {
	r.t.Helper()
	if answer != (err == nil) {
		r.t.Fatalf("answered: %t, with error %v", answer, err)
	}
}

// unpublish calls with that node ID.
func (r *rig) unpublish(nodeID string) error {
	r.t.Helper()
	r.look()
	resp, err := r.guard.ControllerUnpublishVolume(r.t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: nodeID}, r)
	r.answered(resp != nil, err)
	return err
}

func (r *rig) refused(err error, code codes.Code, parts ...string) {
	r.t.Helper()
	text := status.Convert(err).Message()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			r.t.Fatalf("%v: it lacks %q", err, part)
		}
	}
	if status.Code(err) != code {
		r.t.Fatalf("%v, want %s", err, code)
	}
}

func (r *rig) called(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.calls, want) {
		r.t.Fatalf("the driver was called with %q, want %q", r.calls, want)
	}
}
