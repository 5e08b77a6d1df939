package guardrig

import (
	"context"
	"slices"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

// Look gives the Surveyor an index of what is there now.
func (r *Rig) Look() {
	r.T.Helper()
	index, err := survey.ListLive(r.T.Context(), r.Client, r.ids)
	r.Must(err)
	r.Guard.Surveyor.Index = watched{index, r}
}

// watched is an index of what is there now, and was for long.
type watched struct {
	survey.Index
	r *Rig
}

func (w watched) Synced(_, _, _, _ string) bool { return !w.r.Unsynced.Load() }

func (w watched) NodesListing(handle string) []string {
	return slices.DeleteFunc(w.Index.NodesListing(handle), func(n string) bool { return n == w.r.Unseen })
}

func (w watched) Attachments(handle string) []string {
	return slices.DeleteFunc(w.Index.Attachments(handle), func(va string) bool {
		return w.r.Unattached != "" && va == csi.AttachmentName(handle, w.r.ids.Driver, w.r.Unattached)
	})
}

func (w watched) Forced(_, _, _ string) *fence.Forced {
	if w.r.ForcedFor == 0 {
		return nil
	}
	return &fence.Forced{Taken: time.Now().Add(-w.r.ForcedFor)}
}

func (w watched) BootedSince(_, _ string, _ *corev1.Node, _, _ bool) (before string, since bool) {
	if w.r.Booted.Load() {
		return "boot-of-old", !w.r.BootUnsure.Load()
	}
	return "", false
}

// callTimeout is external-attacher's, as we deploy it.
const callTimeout = time.Minute

// PublishTo has the guard publish the volume to a node, for a single writer.
func (r *Rig) PublishTo(node string) error {
	r.T.Helper()
	r.Look()
	ctx, cancel := context.WithTimeout(r.By(r.T.Context()), callTimeout)
	defer cancel()
	resp, err := r.Guard.ControllerPublishVolume(ctx, PublishOf(Handle, ID(node)), r)
	r.answered(resp != nil, err)
	return err
}

// ShareTo has the guard publish the volume to a node as one of many, in that mode.
func (r *Rig) ShareTo(node string, mode spec.VolumeCapability_AccessMode_Mode) error {
	r.T.Helper()
	r.Look()
	req := PublishOf(Handle, ID(node))
	req.VolumeCapability.AccessMode.Mode = mode
	req.Readonly = mode == spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	ctx, cancel := context.WithTimeout(r.By(r.T.Context()), callTimeout)
	defer cancel()
	resp, err := r.Guard.ControllerPublishVolume(ctx, req, r)
	r.answered(resp != nil, err)
	return err
}

// PublishOf is a publish to a single writer.
func PublishOf(volume, nodeID string) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: nodeID,
		VolumeCapability: &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}}}}
}

// answered fails unless there is either an answer or an error: gRPC cannot send none.
func (r *Rig) answered(answer bool, err error) {
	r.T.Helper()
	if answer != (err == nil) {
		r.T.Fatalf("answered: %t, with error %v", answer, err)
	}
}

// UnpublishFrom has the guard unpublish the volume from that node ID; empty: from all.
func (r *Rig) UnpublishFrom(nodeID string) error {
	r.T.Helper()
	r.Look()
	ctx, cancel := context.WithTimeout(r.By(r.T.Context()), callTimeout)
	defer cancel()
	resp, err := r.Guard.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: Handle, NodeId: nodeID}, r)
	r.answered(resp != nil, err)
	return err
}

// Refused fails unless err has that code, and all these parts in its message.
func (r *Rig) Refused(err error, code codes.Code, parts ...string) {
	r.T.Helper()
	text := status.Convert(err).Message()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			r.T.Fatalf("%v: it lacks %q", err, part)
		}
	}
	if status.Code(err) != code {
		r.T.Fatalf("%v, want %s", err, code)
	}
}

// Called fails unless these were the driver's calls.
func (r *Rig) Called(want ...string) {
	r.T.Helper()
	if !slices.Equal(r.Calls, want) {
		r.T.Fatalf("the driver was called with %q, want %q", r.Calls, want)
	}
}
