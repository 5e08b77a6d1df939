package guard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// attachment makes the VolumeAttachment for a node; deleted is its
// deletionTimestamp, zero for none.
func (r *rig) attachment(node string, deleted time.Time) {
	r.t.Helper()
	pv := pvName
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle, driverName, node), UID: types.UID("uid-of-va-" + node),
			Annotations: map[string]string{csi.NodeIDAnnotation: id(node)}, Finalizers: []string{"external-attacher/x"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
	api := r.client.StorageV1().VolumeAttachments()
	if !deleted.IsZero() {
		at := metav1.NewTime(deleted)
		va.DeletionTimestamp = &at
		r.must(r.objects.Delete(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", va.Name))
	}
	_, err := api.Create(r.t.Context(), va, metav1.CreateOptions{})
	r.must(err)
}

// attachmentWith makes the VolumeAttachment for a node that has another's node ID.
func (r *rig) attachmentWith(node, nodeID string, deleted time.Time) {
	r.t.Helper()
	r.attachment(node, deleted)
	r.changeAttachment(node, func(va *storagev1.VolumeAttachment) { va.Annotations[csi.NodeIDAnnotation] = nodeID })
}

// changeAttachment changes the VolumeAttachment for a node.
func (r *rig) changeAttachment(node string, change func(*storagev1.VolumeAttachment)) {
	r.t.Helper()
	va, err := r.client.StorageV1().VolumeAttachments().Get(r.t.Context(), csi.AttachmentName(handle, driverName, node), metav1.GetOptions{})
	r.must(err)
	change(va)
	_, err = r.client.StorageV1().VolumeAttachments().Update(r.t.Context(), va, metav1.UpdateOptions{})
	r.must(err)
}

// deleting makes a VolumeAttachment that is being deleted.
func (r *rig) deleting(node string) {
	r.t.Helper()
	r.attachment(node, time.Time{})
	r.attachment(node, now.Add(-time.Minute))
}

// saysAttached: the VolumeAttachment for a node does.
func (r *rig) saysAttached(node string) {
	r.t.Helper()
	r.changeAttachment(node, func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
}

// attached makes a VolumeAttachment that nobody noted a node ID on.
func (r *rig) attached(node string) {
	r.t.Helper()
	r.deleting(node)
	r.changeAttachment(node, func(va *storagev1.VolumeAttachment) {
		delete(va.Annotations, csi.NodeIDAnnotation)
		va.Status.Attached = true
	})
}

// stripped removes the VolumeAttachment for a node.
func (r *rig) stripped(node string) {
	r.t.Helper()
	r.must(r.objects.Delete(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", csi.AttachmentName(handle, driverName, node)))
}

// many has the PersistentVolume say that many may write.
func (r *rig) many() {
	r.t.Helper()
	pv, err := r.client.CoreV1().PersistentVolumes().Get(r.t.Context(), pvName, metav1.GetOptions{})
	r.must(err)
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	_, err = r.client.CoreV1().PersistentVolumes().Update(r.t.Context(), pv, metav1.UpdateOptions{})
	r.must(err)
}

func (r *rig) pod(name string, phase corev1.PodPhase, volume corev1.Volume) {
	r.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "next", Volumes: []corev1.Volume{volume}},
		Status: corev1.PodStatus{Phase: phase}}
	_, err := r.client.CoreV1().Pods("default").Create(r.t.Context(), pod, metav1.CreateOptions{})
	r.must(err)
}

// ledger as the PersistentVolume carries it.
func (r *rig) ledger() *ledger.Ledger {
	r.t.Helper()
	pv, err := r.client.CoreV1().PersistentVolumes().Get(r.t.Context(), pvName, metav1.GetOptions{})
	r.must(err)
	l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
	r.must(err)
	return l
}

func (r *rig) annotate(text string) {
	r.t.Helper()
	pv, err := r.client.CoreV1().PersistentVolumes().Get(r.t.Context(), pvName, metav1.GetOptions{})
	r.must(err)
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, ledger.Annotation, text)
	_, err = r.client.CoreV1().PersistentVolumes().Update(r.t.Context(), pv, metav1.UpdateOptions{})
	r.must(err)
}

// change edits the ledger as another process would. It may be called while a
// request is served, so it makes none.
func (r *rig) change(f func(*ledger.Ledger)) {
	r.t.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	object, err := r.objects.Get(gvr, "", pvName)
	r.must(err)
	pv := object.(*corev1.PersistentVolume).DeepCopy()
	l := &ledger.Ledger{Version: ledger.Version, Driver: driverName, Handle: handle, Cluster: clusterUID, PVUID: "uid-of-pv-1"}
	if text, there := pv.Annotations[ledger.Annotation]; there {
		l, err = ledger.Parse(text)
		r.must(err)
	}
	f(l)
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, ledger.Annotation, l.String())
	r.must(r.objects.Update(gvr, pv, ""))
}

func (r *rig) state(node string) fence.State {
	r.t.Helper()
	if e := r.ledger().Get(id(node)); e != nil {
		return e.State
	}
	return fence.NotInLedger
}

// wantHolder fails unless the volume's one entry is of that node's machine.
func (r *rig) wantHolder(node string, state fence.State) {
	r.t.Helper()
	l := r.ledger()
	if len(l.Holders) != 1 || l.Holders[0].NodeName != node || l.Holders[0].NodeUID != "uid-of-"+node || l.Holders[0].BootID != "boot-of-"+node || l.Holders[0].State != state {
		r.t.Fatalf("the ledger says %+v, want %s on the machine of node %s", l.Holders, state, node)
	}
}
