package bed

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// CreateAttachment makes the VolumeAttachment for a node again, past the
// attach-detach controller.
func (v *Volume) CreateAttachment(n *Node) {
	v.stage.T.Helper()
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(v.Handle, v.stage.Driver, n.Name)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: v.stage.Driver, NodeName: n.Name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name}},
	}
	_, err := v.stage.Client.StorageV1().VolumeAttachments().Create(v.stage.ctx(), va, metav1.CreateOptions{})
	v.stage.must("VolumeAttachment of "+v.Name+" for "+n.Name, err)
}

// SayAttached writes into the VolumeAttachment's status that it is attached,
// whatever is true.
func (v *Volume) SayAttached(n *Node) {
	v.stage.T.Helper()
	_, err := v.stage.Client.StorageV1().VolumeAttachments().Patch(v.stage.ctx(), csi.AttachmentName(v.Handle, v.stage.Driver, n.Name),
		types.MergePatchType, []byte(`{"status":{"attached":true,"attachError":null}}`), metav1.PatchOptions{}, "status")
	v.stage.must("status of the VolumeAttachment of "+v.Name+" for "+n.Name, err)
}

// AttacherRequest is the request that external-attacher makes for a
// ReadWriteOnce filesystem where, as here, the driver has the capability
// SINGLE_NODE_MULTI_WRITER.
func (v *Volume) AttacherRequest(n *Node) *spec.ControllerPublishVolumeRequest {
	req := v.PublishRequest(n)
	req.VolumeCapability.AccessMode.Mode = spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	return req
}

// Calls counts the calls of a method that reached the driver for the volume and
// node since a moment.
func (v *Volume) Calls(method string, n *Node, since time.Time) int {
	count := 0
	for _, c := range v.stage.Array.CallsOf(method, v.Handle) {
		if c.Node == n.ID && !c.Start.Before(since) {
			count++
		}
	}
	return count
}

// WaitCalled waits until such a call has reached the driver and was answered,
// and returns it.
func (v *Volume) WaitCalled(method string, n *Node, since time.Time, limit time.Duration) array.Call {
	v.stage.T.Helper()
	var found array.Call
	v.stage.WaitFor(limit, method+" of "+v.Name+" for "+n.Name+" reaches the driver", func() bool {
		for _, c := range v.stage.Array.CallsOf(method, v.Handle) {
			if c.Node == n.ID && !c.Start.Before(since) && !c.End.IsZero() {
				found = c
				return true
			}
		}
		return false
	})
	return found
}
