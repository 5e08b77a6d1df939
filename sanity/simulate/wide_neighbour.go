package simulate

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// Another driver may be on every node of the wide world. Its disks have the handles of ours
// and are in use everywhere, its node IDs are those that our driver has for the next node,
// and it stands first in each CSINode. Nothing that is said of them is said of ours. Its own
// sidecars are not played.

const neighbourName = "other.example.org"

// identity of our driver, and of the other one.
var (
	identity  = &csi.Identity{Driver: DriverName}
	neighbour = &csi.Identity{Driver: neighbourName}
)

func (w *World) neighbourObjects() {
	if !w.setup.Neighbour {
		return
	}
	for _, v := range w.volumes {
		pv, _ := w.objects.Volumes.Get(v.name)
		pv.ObjectMeta = metav1.ObjectMeta{Name: "other-" + v.name}
		pv.Spec.CSI.Driver, pv.Spec.ClaimRef.Name = neighbourName, "other-"+v.name
		w.objects.Volumes.Put(pv)
		for _, s := range w.slots {
			va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(v.name, neighbourName, s.name)}}
			va.Annotations = map[string]string{csi.NodeIDAnnotation: w.neighbourID(s)}
			va.Spec = storagev1.VolumeAttachmentSpec{Attacher: neighbourName, NodeName: s.name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(pv.Name)}}
			va.Status.Attached = true
			w.objects.Attachments.Put(va)
			w.labels[va.Name] = pv.Name + "/" + s.name
		}
	}
}

// neighbourID is the other driver's node ID.
func (w *World) neighbourID(s *slot) string {
	for i := range w.slots {
		if w.slots[i] == s {
			return w.slots[(i+1)%len(w.slots)].machine.id
		}
	}
	return s.machine.id // the slots are not all there yet
}

func (w *World) neighbourDriver(s *slot) []storagev1.CSINodeDriver {
	if !w.setup.Neighbour {
		return nil
	}
	return []storagev1.CSINodeDriver{{Name: neighbourName, NodeID: w.neighbourID(s)}}
}

// neighbourVolumes are the other driver's, which every node has in use.
func (w *World) neighbourVolumes() (names []corev1.UniqueVolumeName) {
	if !w.setup.Neighbour {
		return nil
	}
	for _, v := range w.volumes {
		names = append(names, neighbour.UniqueName(v.name))
	}
	return names
}

func (w *World) neighbourAttached(n *corev1.Node) {
	for _, name := range w.neighbourVolumes() {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: name})
	}
}
