package observe

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// A rolling update puts a pod on a node that waits there for a volume that is attached
// elsewhere: the kubelet lists it in use, and never had it.
func TestAVolumeForWhichANodesPodsOnlyWaitHasNotMovedOffIt(t *testing.T) {
	const driver, handle, listed = "disk.example.com", "h", "kubernetes.io/csi/disk.example.com^h"
	type world struct {
		node *corev1.Node
		pv   *corev1.PersistentVolume
		pod  *corev1.Pod
		more []runtime.Object
	}
	entry := func(w *world, node string, state fence.State) {
		l := ledger.Ledger{Version: ledger.Version, Driver: driver, Handle: handle, Cluster: "c", PVUID: "pv-uid",
			Holders: []ledger.Entry{{NodeID: "i-" + node, NodeName: node, NodeUID: "uid-" + node, Token: "t", State: state}}}
		w.pv.Annotations = map[string]string{ledger.Annotation: l.String()}
	}
	attached := func(w *world, node string) *storagev1.VolumeAttachment {
		pv := w.pv.Name
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle, driver, node)},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
		w.more = append(w.more, va)
		return va
	}
	for name, tt := range map[string]struct {
		change func(w *world)
		moved  bool
	}{
		"its pod waits":                            {func(*world) {}, false},
		"so, and another node has it":              {func(w *world) { entry(w, "n2", fence.Publishing); attached(w, "n2") }, false},
		"it is attached":                           {func(w *world) { attached(w, "n1") }, false},
		"it was taken over":                        {func(w *world) { entry(w, "n1", fence.TakenOver) }, true},
		"it leaves":                                {func(w *world) { entry(w, "n1", fence.Leaving) }, true},
		"it is being detached":                     {func(w *world) { attached(w, "n1").DeletionTimestamp = &metav1.Time{} }, true},
		"the controller says that it was attached": {func(w *world) { w.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: listed}} }, true},
		"its pod runs":                             {func(w *world) { w.pod.Status.Phase = corev1.PodRunning }, true},
		"its pod is being deleted":                 {func(w *world) { w.pod.DeletionTimestamp, w.pod.Finalizers = &metav1.Time{}, []string{"x"} }, true},
		"its pod is gone":                          {func(w *world) { w.pod.Namespace = "another" }, true},
		"its pod is on another node":               {func(w *world) { w.pod.Spec.NodeName = "n2" }, true},
		"its pod is of another claim":              {func(w *world) { w.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }, true},
		"its PersistentVolume is gone":             {func(w *world) { w.pv.Spec.CSI.VolumeHandle = "other" }, true},
		"its PersistentVolume is another driver's": {func(w *world) { w.pv.Spec.CSI.Driver = "other" }, true},
		"its PersistentVolume has no claim":        {func(w *world) { w.pv.Spec.ClaimRef = nil }, true},
		"its PersistentVolume is not bound":        {func(w *world) { w.pv.Status.Phase = corev1.VolumeReleased }, true},
		"it is that of two": {func(w *world) {
			second := w.pv.DeepCopy()
			second.Name = "pv-2"
			w.more = append(w.more, second)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{
				node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{listed, "kubernetes.io/csi/other^h"}}},
				pv: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "pv-uid"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
					Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "data"},
						PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}}},
				pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
					Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}},
			}
			tt.change(w)
			moved, err := Moved(t.Context(), fake.NewClientset(append(w.more, w.pv, w.pod)...), &csi.Identity{Driver: driver}, w.node)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(moved, " "); (got == handle) != tt.moved || got != "" && got != handle {
				t.Errorf("moved are %q", got)
			}
		})
	}
}
