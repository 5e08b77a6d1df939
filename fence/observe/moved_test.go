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
)

// R1: it may be mounted there and have moved because of the fence; that its pod on the node
// only waits, and that nothing says the node ever had it, does not tell.
func TestAVolumeThatTheNodeListsAndThatIsNotItsOwnHasMovedWhateverItsPodsDo(t *testing.T) {
	const driver, handle = "disk.example.com", "h"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.example.com^h", "kubernetes.io/csi/other^h"}}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}}}
	waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
		Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle, driver, "n1")},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}}
	detaching := attached.DeepCopy()
	detaching.DeletionTimestamp = &metav1.Time{}
	for name, tt := range map[string]struct {
		more  runtime.Object
		moved string
	}{"its pod waits": {waits, driver + "/" + handle}, "it is attached": {attached, ""}, "it is being detached": {detaching, driver + "/" + handle}} {
		for but, want := range map[string]string{"": tt.moved + " other/h", "other": tt.moved, driver: "other/h"} {
			moved, err := Moved(t.Context(), fake.NewClientset(pv, tt.more), node, but)
			var words []string
			for _, v := range moved {
				words = append(words, v.Driver+"/"+v.Handle)
			}
			if got := strings.Join(words, " "); err != nil || got != strings.TrimSpace(want) {
				t.Errorf("%s, but %q: moved are %q (%v)", name, but, got, err)
			}
		}
	}
}
