package watch

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// The strip functions keep the fields that the index and the wake-ups ask for.
// They are idempotent, as client-go asks of a transform.

func stripMeta(m *metav1.ObjectMeta, annotations ...string) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp}
	for _, key := range annotations {
		if value, ok := m.Annotations[key]; ok {
			if kept.Annotations == nil {
				kept.Annotations = map[string]string{}
			}
			kept.Annotations[key] = value
		}
	}
	return kept
}

func (w *Watch) stripVolume(obj any) (any, error) {
	pv, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return obj, nil
	}
	if pv.Spec.CSI == nil {
		// An in-tree volume's translation reads labels and annotations too.
		kept := pv.DeepCopy()
		kept.ManagedFields = nil
		return kept, nil
	}
	kept := &corev1.PersistentVolume{ObjectMeta: stripMeta(&pv.ObjectMeta, ledger.Annotation)}
	kept.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: pv.Spec.CSI.Driver, VolumeHandle: pv.Spec.CSI.VolumeHandle}
	return kept, nil
}

func (w *Watch) stripAttachment(obj any) (any, error) {
	va, ok := obj.(*storagev1.VolumeAttachment)
	if !ok {
		return obj, nil
	}
	kept := &storagev1.VolumeAttachment{ObjectMeta: stripMeta(&va.ObjectMeta), Spec: va.Spec}
	kept.Status.Attached = va.Status.Attached
	kept.Status.AttachError, kept.Status.DetachError = va.Status.AttachError, va.Status.DetachError
	return kept, nil
}

func (w *Watch) stripNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Node{ObjectMeta: stripMeta(&node.ObjectMeta)}
	kept.Spec.Taints = node.Spec.Taints
	kept.Spec.ProviderID = node.Spec.ProviderID
	kept.Status.VolumesInUse = node.Status.VolumesInUse
	kept.Status.VolumesAttached = node.Status.VolumesAttached
	kept.Status.NodeInfo.BootID = node.Status.NodeInfo.BootID
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			// Without its times: a heartbeat is no change.
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return kept, nil
}

func (w *Watch) stripCSINode(obj any) (any, error) {
	node, ok := obj.(*storagev1.CSINode)
	if !ok {
		return obj, nil
	}
	kept := &storagev1.CSINode{ObjectMeta: stripMeta(&node.ObjectMeta)}
	for _, d := range node.Spec.Drivers {
		if d.Name == w.ids.Driver {
			kept.Spec.Drivers = []storagev1.CSINodeDriver{{Name: d.Name, NodeID: d.NodeID}}
		}
	}
	return kept, nil
}

func stripRecord(obj any) (any, error) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return obj, nil
	}
	return &coordinationv1.Lease{ObjectMeta: stripMeta(&lease.ObjectMeta, record.Annotation)}, nil
}

func stripLease(obj any) (any, error) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return obj, nil
	}
	return &coordinationv1.Lease{ObjectMeta: stripMeta(&lease.ObjectMeta)}, nil
}
