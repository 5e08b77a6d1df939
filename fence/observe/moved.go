package observe

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// MovedVolume is one of a driver.
type MovedVolume struct{ Driver, Handle string }

// Moved are the volumes that the Node lists in use and that are not its own any more, by live
// VolumeAttachments and ledgers: with its access to the storage it would write to them beside
// the nodes that have them now. They are of every driver but that one, sorted by driver: two
// may serve one storage, and nothing tells which do.
func Moved(ctx context.Context, client kubernetes.Interface, n *corev1.Node, but string) (moved []MovedVolume, err error) {
	for _, driver := range csi.DriversOf(n.Status.VolumesInUse) {
		ids := &csi.Identity{Driver: driver}
		for _, name := range n.Status.VolumesInUse {
			handle, its := ids.HandleOf(name)
			if !its || driver == but {
				continue
			}
			h, err := ReadHeld(ctx, client, ids, n.Name, Held{Handle: handle})
			if err != nil {
				return nil, err
			}
			if !h.Kept() {
				moved = append(moved, MovedVolume{driver, handle})
			}
		}
	}
	return moved, nil
}

// ReadHeld reads live what says whether a node has a volume: its VolumeAttachment, and
// the ledgers of the PV that this names and of the known one, which may be another one of
// the volume. Of two entries one that says that the node holds the volume no more is shown.
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
	for _, name := range slices.Compact([]string{known.PV, h.PV}) {
		if name == "" {
			continue
		}
		e, err := readEntry(ctx, client, name, node)
		if err != nil {
			return h, err
		}
		if e != nil && h.entryHolds() {
			h.Entry = e
		}
	}
	return h, nil
}

// readEntry is the node's in the ledger of that PV; nil: there is none. Text that is no
// ledger, and not the PV's own, is none: the guard goes by the ledger of another PV, or
// refuses the volume's calls.
func readEntry(ctx context.Context, client kubernetes.Interface, name, node string) (entry *ledger.Entry, err error) {
	pv, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read PersistentVolume %s: %w", name, err)
	}
	text, written := pv.Annotations[ledger.Annotation]
	if !written {
		return nil, nil
	}
	l, err := ledger.Parse(text)
	switch {
	case err != nil && ledger.Own(pv, false):
		return nil, err
	case err != nil:
		return nil, nil
	}
	for _, e := range l.ByNodeName(node) {
		entry = e
	}
	return entry, nil
}
