package survey

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
)

// atDetach learns what the Node of a holder was once its VolumeAttachment was being deleted,
// where that may end what the holder stands in the way for: of a node that was drained and deleted
// while nobody of ours was there, or to which a pod came back meanwhile. etcd has it for as long as
// it has the past (see order). It tells whether it has read anything. A past that could not be read this time is an
// error: a refusal would be written down as a doubt about the kubelet, and the past not asked again.
func (g *gathering) atDetach(ctx context.Context, h *fence.Holder) (read bool, err error) {
	if !h.AsksAtDetach(g.survey.Policy) || !g.survey.OnlyAttachment(h) {
		return false, nil
	}
	var version uint64 // at which it was being deleted
	for _, va := range g.attachments {
		if string(va.UID) == h.Attachment.UID && va.DeletionTimestamp != nil {
			version, _ = strconv.ParseUint(va.ResourceVersion, 10, 64)
			// external-attacher writes to it when a call fails, and the pod may be back by then. What was
			// seen of an etcd of before a restore may be still to come.
			if seen, err := strconv.ParseUint(g.Index.DeletedVersion(va.Name, h.Attachment.UID), 10, 64); err == nil {
				version = min(version, seen)
			}
		}
	}
	if version == 0 {
		return false, nil
	}
	node, err := g.nodeAt(ctx, h.NodeName, version)
	if err != nil && !apierrors.IsForbidden(err) {
		return true, err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read what a Node was once it was being detached from", "node", h.NodeName, "resourceVersion", version, "volume", g.volume)
	}
	if node == nil {
		return true, nil
	}
	h.AtDetach = nodeFacts(node)
	h.AtDetach.SystemShared = g.Index.SystemShared(h.NodeName, h.AtDetach.SystemUUID)
	h.AtDetach.InUse, h.AtDetach.ListedAttached = g.lists(node)
	if g.Kubelets != nil && g.Index.Forced(h.Attachment.Name, h.Attachment.UID, h.AtDetach.BootID) != nil {
		h.AtDetach.Memory = fence.MemoryUnsaid // and what ran then is not asked any more
	}
	return true, nil
}

// nodeAt reads the Node of that name as it was at a resourceVersion; nil: there was none, or the
// API server cannot tell.
func (g *gathering) nodeAt(ctx context.Context, name string, version uint64) (*corev1.Node, error) {
	return g.nodes.get(ctx, g.Limit, name+"@"+strconv.FormatUint(version, 10), func(ctx context.Context) (*corev1.Node, error) {
		list, err := g.Client.CoreV1().Nodes().List(throttle.Unpaid(ctx), exactly(name, version))
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != name {
			return nil, forgotten(err)
		}
		return &list.Items[0], nil
	})
}

// exactly asks for the object of that name, as it was at a resourceVersion.
func exactly(name string, version uint64) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		ResourceVersion: strconv.FormatUint(version, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
}

// forgotten is err, unless it says that the API server does not know the past: it is compacted,
// or nothing that this one tells.
func forgotten(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}
