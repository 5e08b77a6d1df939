package bed

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// TakeFinalizer takes the attacher's finalizer off the VolumeAttachment, which
// stays: whoever deletes it later, it is gone at once.
func (v *Volume) TakeFinalizer(n *Node) {
	v.stage.T.Helper()
	_, err := v.stage.Client.StorageV1().VolumeAttachments().Patch(v.stage.ctx(), csi.AttachmentName(v.Handle, v.stage.Driver, n.Name),
		types.MergePatchType, noFinalizers, metav1.PatchOptions{})
	v.stage.must("VolumeAttachment of "+v.Name+" for "+n.Name, err)
}
