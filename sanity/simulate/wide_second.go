package simulate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// A disk of the wide world may have a second PersistentVolume, with the same handle and
// access modes of its own, whose name sorts before or after the first one's: the ledger
// stands on the older one. The pods of a volume besides the first one are of its claim
// from then on. To Kubernetes the two are one volume on one node, with one VolumeAttachment,
// which names the PersistentVolume of the pod that came first.

// handleOf is the handle of a PersistentVolume of that name.
func handleOf(pv string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(pv, "a-"), "other-"), "-b")
}

func (v *volume) seconds() [2]string { return [2]string{"a-" + v.name, v.name + "-b"} }

// second is the second PersistentVolume of the disk, not to be changed; nil: it has none.
func (w *World) second(v *volume) *corev1.PersistentVolume {
	if !w.setup.Wide {
		return nil
	}
	for _, name := range v.seconds() {
		if pv := w.peekVolume(name); pv != nil {
			return pv
		}
	}
	return nil
}

func (w *World) secondEvents(v *volume, emit func(Event)) {
	second := w.second(v)
	if second == nil {
		for _, name := range v.seconds() {
			emit(Event{Verb: SecondPV, A: v.name, B: name, C: "one"})
			emit(Event{Verb: SecondPV, A: v.name, B: name, C: "many"})
		}
		return
	}
	// It goes when no VolumeAttachment is of it, and no pod.
	uses := func(s *slot) bool {
		va := w.vaOf(v, s)
		return va != nil && *va.Spec.Source.PersistentVolumeName == second.Name
	}
	if len(v.more) == 0 && !slices.ContainsFunc(w.slots, uses) {
		emit(Event{Verb: DropPV, A: v.name})
	}
}

func (w *World) secondVolume(v *volume, name string, many bool) {
	first := w.peekVolume(v.name)
	if first == nil {
		return
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *first.Spec.DeepCopy()}
	pv.Spec.ClaimRef.Name, pv.Status.Phase = name, corev1.VolumeBound
	pv.Spec.AccessModes = accessModes(many)
	w.objects.Volumes.Put(pv)
}

// dropSecond deletes the second PersistentVolume, and what a later version wrote into the ledger
// there goes with it. The ledger of before may still stand on the first one.
func (w *World) dropSecond(v *volume) {
	second := w.second(v)
	if l, err := ledger.Parse(second.Annotations[ledger.Annotation]); err == nil {
		for _, e := range l.Holders {
			delete(w.hints, e.Token)
		}
	}
	w.objects.Volumes.Delete(second.Name)
}

// claimed names the PersistentVolume whose pod wants the volume on the node.
func (w *World) claimed(v *volume, s *slot) string {
	if second := w.second(v); second != nil && v.pod.node != s && v.other(s) != nil {
		return second.Name
	}
	return v.name
}

// saysMany tells whether the PersistentVolume says that many may write.
func (w *World) saysMany(name string) bool {
	pv := w.peekVolume(name)
	return pv != nil && slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany)
}

func accessModes(many bool) []corev1.PersistentVolumeAccessMode {
	if many {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
}
