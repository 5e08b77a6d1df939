package observe

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Moved are the handles of the driver's volumes that the Node lists in use and that are
// not its own any more, by live VolumeAttachments and ledgers: with its access to the
// storage it would write to them beside the nodes that have them now. One for which its pods
// only wait is none of them.
func Moved(ctx context.Context, client kubernetes.Interface, ids *csi.Identity, n *corev1.Node) (handles []string, err error) {
	for _, name := range n.Status.VolumesInUse {
		handle, ours := ids.HandleOf(name)
		if !ours {
			continue
		}
		h, err := ReadHeld(ctx, client, ids, n.Name, Held{Handle: handle})
		if err != nil {
			return nil, err
		}
		if h.Kept() {
			continue
		}
		waits, err := onlyWaits(ctx, client, ids, n, &h)
		if err != nil {
			return nil, err
		}
		if !waits {
			handles = append(handles, handle)
		}
	}
	return handles, nil
}

// onlyWaits tells whether the Node lists the volume for pods that wait for it there, and never
// had it, as fence.Holder.OnlyWants says: no VolumeAttachment, no entry of a ledger and no
// controller says that it was attached, and no container of the pods has started.
func onlyWaits(ctx context.Context, client kubernetes.Interface, ids *csi.Identity, n *corev1.Node, h *Held) (bool, error) {
	if _, attached := ids.NodeLists(n, h.Handle); attached || h.Attachment != "" {
		return false, nil
	}
	all, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("cannot list PersistentVolumes, to see who waits for %s on node %s: %w", h.Handle, n.Name, err)
	}
	of := slices.DeleteFunc(all.Items, func(pv corev1.PersistentVolume) bool {
		handle, ours := ids.PVHandle(&pv)
		return !ours || !ids.Same(handle, h.Handle)
	})
	if len(of) != 1 || of[0].Spec.ClaimRef == nil || of[0].Status.Phase != corev1.VolumeBound {
		return false, nil
	}
	known, err := ReadHeld(ctx, client, ids, n.Name, Held{Handle: h.Handle, PV: of[0].Name})
	if err != nil || known.Entry != nil || known.Attachment != "" {
		return false, err
	}
	claim := of[0].Spec.ClaimRef
	pods, err := client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String()})
	if err != nil {
		return false, fmt.Errorf("cannot list the pods that may wait for %s on node %s: %w", h.Handle, n.Name, err)
	}
	_, waits := csi.PodsWait(pods.Items, n.Name, claim.Name)
	return waits, nil
}

// ReadHeld reads live what says whether a node has a volume: its VolumeAttachment, and
// the ledger of the PV that this, or else known, names.
func ReadHeld(ctx context.Context, client kubernetes.Interface, ids *csi.Identity, node string, known Held) (h Held, err error) {
	h = Held{Handle: known.Handle, PV: known.PV}
	va, err := client.StorageV1().VolumeAttachments().Get(ctx, csi.AttachmentName(h.Handle, ids.Driver, node), metav1.GetOptions{})
	switch {
	case err == nil:
		h.Attachment, h.Detaching = va.Name, va.DeletionTimestamp != nil
		if va.Spec.Source.PersistentVolumeName != nil {
			h.PV = *va.Spec.Source.PersistentVolumeName
		}
	case !apierrors.IsNotFound(err):
		return h, fmt.Errorf("cannot read the VolumeAttachment of %s on node %s: %w", h.Handle, node, err)
	}
	if h.PV == "" {
		return h, nil
	}
	pv, err := client.CoreV1().PersistentVolumes().Get(ctx, h.PV, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("cannot read PersistentVolume %s: %w", h.PV, err)
	}
	text, written := pv.Annotations[ledger.Annotation]
	if !written {
		return h, nil
	}
	l, err := ledger.Parse(text)
	if err != nil {
		return h, err
	}
	for _, e := range l.ByNodeName(node) {
		h.Entry = e
	}
	return h, nil
}
