package kubeapi

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// publishAs publishes with that mode.
func (r *rig) publishAs(v *bed.Volume, n *node, mode spec.VolumeCapability_AccessMode_Mode, readonly bool) error {
	req := r.publishRequest(v.Handle, n)
	req.VolumeCapability, req.Readonly = mount(mode), readonly
	_, err := r.proxy.ControllerPublishVolume(r.ctx(), req)
	return err
}

func TestAVolumeOfManyWritersIsLeftAlone(t *testing.T) {
	r := newRig(t, "rwx", bed.StageOptions{})
	a, b := r.node("a"), r.node("b")
	for name, mode := range map[string]struct {
		pv corev1.PersistentVolumeAccessMode
		as spec.VolumeCapability_AccessMode_Mode
	}{
		"rwx": {corev1.ReadWriteMany, spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		"rox": {corev1.ReadOnlyMany, spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
	} {
		v := r.Volume(name, bed.VolumeOptions{Modes: []corev1.PersistentVolumeAccessMode{mode.pv}})
		writes := r.followPV(v)
		for _, n := range []*node{a, b} {
			r.attachment(v, n)
			r.must(r.publishAs(v, n, mode.as, false))
			r.attached(v, n)
			n.lists(v, true, true)
		}
		r.wantAttached(v.Handle, a, b)
		// In use on a living node, and it is none of our business.
		r.must(r.unpublish(v.Handle, a))
		r.wantCalls(v.Handle, "publish "+a.id, "publish "+b.id, "unpublish "+a.id)
		r.settle()
		if v.Ledger() != "" || writes.count() != 0 {
			t.Errorf("%s: %d writes of the PersistentVolume, ledger %q", name, writes.count(), v.Ledger())
		}
	}
}

func TestASingleWriterAmongManyNodesIsGuardedUnlessItReadsOnly(t *testing.T) {
	const mode = spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	r := newRig(t, "mnsw", bed.StageOptions{})
	a, b, v := r.node("a"), r.node("b"), r.volume("v")
	r.attachment(v, a)
	r.must(r.publishAs(v, a, mode, false))
	r.attached(v, a)
	a.lists(v, true, true)
	r.attachment(v, b)
	r.settle()
	r.wantRefused(r.publishAs(v, b, mode, false), fence.HolderAlive, a.name)
	r.must(r.publishAs(v, b, mode, true))
	r.wantCalls(v.Handle, "publish "+a.id, "publish "+b.id)
	if e := r.readLedger(v).Get(b.id); e != nil {
		t.Errorf("the reader is in the ledger: %+v", e)
	}
}

func TestEveryOtherCallComesBackUnchanged(t *testing.T) {
	r := newRig(t, "r3", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attachment(v, n)
	r.must(r.publish(v.Handle, n))
	capability := []*spec.VolumeCapability{mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
	ctx := r.ctx()
	for name, call := range map[string]func(spec.ControllerClient) (proto.Message, error){
		"ControllerGetCapabilities": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ControllerGetCapabilities(ctx, &spec.ControllerGetCapabilitiesRequest{})
		},
		"ListVolumes": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ListVolumes(ctx, &spec.ListVolumesRequest{MaxEntries: 1})
		},
		"ListVolumes with a bad token": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ListVolumes(ctx, &spec.ListVolumesRequest{StartingToken: "none of ours"})
		},
		"ControllerGetVolume": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ControllerGetVolume(ctx, &spec.ControllerGetVolumeRequest{VolumeId: v.Handle})
		},
		"ControllerGetVolume of none": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ControllerGetVolume(ctx, &spec.ControllerGetVolumeRequest{VolumeId: "none"})
		},
		"ValidateVolumeCapabilities": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ValidateVolumeCapabilities(ctx, &spec.ValidateVolumeCapabilitiesRequest{VolumeId: v.Handle, VolumeCapabilities: capability})
		},
		"CreateVolume": func(c spec.ControllerClient) (proto.Message, error) {
			return c.CreateVolume(ctx, &spec.CreateVolumeRequest{Name: "made", VolumeCapabilities: capability})
		},
		"DeleteVolume of one in use": func(c spec.ControllerClient) (proto.Message, error) {
			return c.DeleteVolume(ctx, &spec.DeleteVolumeRequest{VolumeId: v.Handle})
		},
		"GetCapacity": func(c spec.ControllerClient) (proto.Message, error) {
			return c.GetCapacity(ctx, &spec.GetCapacityRequest{})
		},
		"a method that the driver lacks": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ControllerModifyVolume(ctx, &spec.ControllerModifyVolumeRequest{VolumeId: v.Handle})
		},
		"a publish that it holds already": func(c spec.ControllerClient) (proto.Message, error) {
			return c.ControllerPublishVolume(ctx, r.publishRequest(v.Handle, n))
		},
	} {
		want, wantErr := call(r.direct)
		got, err := call(r.proxy)
		if !proto.Equal(status.Convert(err).Proto(), status.Convert(wantErr).Proto()) || err == nil && !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v through csi-fencepost; %v, %v from the driver", name, got, err, want, wantErr)
		}
	}
}

func TestRequestsThatCannotBeJudgedAreRefusedAndTheDriverIsNotCalled(t *testing.T) {
	r := newRig(t, "bad-requests", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	for field, spoil := range map[string]func(*spec.ControllerPublishVolumeRequest){
		"volume_id":         func(q *spec.ControllerPublishVolumeRequest) { q.VolumeId = "" },
		"node_id":           func(q *spec.ControllerPublishVolumeRequest) { q.NodeId = "" },
		"volume_capability": func(q *spec.ControllerPublishVolumeRequest) { q.VolumeCapability = nil },
	} {
		req := r.publishRequest(v.Handle, n)
		spoil(req)
		_, err := r.proxy.ControllerPublishVolume(r.ctx(), req)
		r.wantError(err, codes.InvalidArgument, field)
	}
	// From all nodes at once: only if none may still write.
	r.attach(v, n)
	_, err := r.proxy.ControllerUnpublishVolume(r.ctx(), &spec.ControllerUnpublishVolumeRequest{VolumeId: v.Handle})
	r.wantRefused(err, fence.UnpublishEveryone, n.name)
	r.wantCalls(v.Handle, "publish "+n.id)
	if calls := r.Array.CallsOf(array.Publish, ""); len(calls) != 1 {
		t.Errorf("the driver saw %d publishes", len(calls))
	}
}
