package watch

import (
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-fencepost/csi-fencepost/csi/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// handlers builds an event handler for objects of type T. changed tells whether
// an update is worth a call; a deletion is always told.
func handlers[T metav1.Object](changed func(old, new T) bool, seen, gone func(T)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { seen(obj.(T)) },
		UpdateFunc: func(old, new any) {
			if changed(old.(T), new.(T)) {
				seen(new.(T))
			}
		},
		DeleteFunc: func(obj any) {
			if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tomb.Obj
			}
			if t, ok := obj.(T); ok {
				gone(t)
			}
		},
	}
}

func (w *Watch) volumeEvents() cache.ResourceEventHandler {
	tell := func(pv *corev1.PersistentVolume) {
		if handle, ok := w.ids.PVHandle(pv); ok {
			w.onChange(Change{Volume: handle})
		}
	}
	changed := func(old, new *corev1.PersistentVolume) bool {
		return old.Annotations[ledger.Annotation] != new.Annotations[ledger.Annotation]
	}
	return handlers(changed, tell, tell)
}

func (w *Watch) attachmentEvents() cache.ResourceEventHandler {
	tell := func(va *storagev1.VolumeAttachment) {
		if va.Spec.Attacher == w.ids.Driver {
			w.onChange(Change{Node: va.Spec.NodeName})
		}
	}
	changed := func(old, new *storagev1.VolumeAttachment) bool {
		return old.Status.Attached != new.Status.Attached || old.DeletionTimestamp.IsZero() != new.DeletionTimestamp.IsZero()
	}
	return handlers(changed, tell, tell)
}

func (w *Watch) nodeEvents() cache.ResourceEventHandler {
	changed := func(old, new *corev1.Node) bool {
		return old.UID != new.UID || !reflect.DeepEqual(old.Spec, new.Spec) || !reflect.DeepEqual(old.Status, new.Status)
	}
	seen := func(node *corev1.Node) {
		w.onNode(node)
		w.onChange(Change{Node: node.Name})
	}
	return handlers(changed, seen, func(node *corev1.Node) { w.onChange(Change{Node: node.Name}) })
}

func (w *Watch) csiNodeEvents() cache.ResourceEventHandler {
	tell := func(node *storagev1.CSINode) { w.onChange(Change{Node: node.Name}) }
	changed := func(old, new *storagev1.CSINode) bool { return !reflect.DeepEqual(old.Spec, new.Spec) }
	return handlers(changed, tell, tell)
}

func (w *Watch) leaseEvents() cache.ResourceEventHandler {
	seen := func(lease *coordinationv1.Lease) { w.tracker.Observe(lease.Name, lease.ResourceVersion) }
	changed := func(old, new *coordinationv1.Lease) bool { return old.ResourceVersion != new.ResourceVersion }
	return handlers(changed, seen, func(lease *coordinationv1.Lease) {
		w.tracker.Absent(lease.Name)
		w.onChange(Change{Node: lease.Name})
	})
}

func (w *Watch) recordEvents() cache.ResourceEventHandler {
	tell := func(lease *coordinationv1.Lease) {
		if node, ok := record.NodeOf(lease); ok {
			w.onChange(Change{Node: node})
		}
	}
	changed := func(old, new *coordinationv1.Lease) bool { return old.ResourceVersion != new.ResourceVersion }
	return handlers(changed, tell, tell)
}
