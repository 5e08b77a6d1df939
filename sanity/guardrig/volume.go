package guardrig

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Attachment makes the VolumeAttachment for a node; deleted is its
// deletionTimestamp, zero for none.
func (r *Rig) Attachment(node string, deleted time.Time) {
	r.T.Helper()
	pv := PVName
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(Handle, DriverName, node), UID: types.UID("uid-of-va-" + node),
			Annotations: map[string]string{csi.NodeIDAnnotation: ID(node)}, Finalizers: []string{"external-attacher/x"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: DriverName, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
	api := r.Client.StorageV1().VolumeAttachments()
	if !deleted.IsZero() {
		at := metav1.NewTime(deleted)
		va.DeletionTimestamp = &at
		r.Must(r.objects.Delete(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", va.Name))
	}
	_, err := api.Create(r.T.Context(), va, metav1.CreateOptions{})
	r.Must(err)
}

// AttachmentWith makes the VolumeAttachment for a node that has another's node ID.
func (r *Rig) AttachmentWith(node, nodeID string, deleted time.Time) {
	r.T.Helper()
	r.Attachment(node, deleted)
	r.ChangeAttachment(node, func(va *storagev1.VolumeAttachment) { va.Annotations[csi.NodeIDAnnotation] = nodeID })
}

// ChangeAttachment changes the VolumeAttachment for a node.
func (r *Rig) ChangeAttachment(node string, change func(*storagev1.VolumeAttachment)) {
	r.T.Helper()
	va, err := r.Client.StorageV1().VolumeAttachments().Get(r.T.Context(), csi.AttachmentName(Handle, DriverName, node), metav1.GetOptions{})
	r.Must(err)
	change(va)
	_, err = r.Client.StorageV1().VolumeAttachments().Update(r.T.Context(), va, metav1.UpdateOptions{})
	r.Must(err)
}

// MadeAnew puts another VolumeAttachment in the place of the node's, being deleted as that is.
func (r *Rig) MadeAnew(node string) {
	r.T.Helper()
	r.ChangeAttachment(node, func(va *storagev1.VolumeAttachment) { va.UID += "-anew" })
}

// Deleting makes a VolumeAttachment that is being deleted.
func (r *Rig) Deleting(node string) {
	r.T.Helper()
	r.Attachment(node, time.Time{})
	r.Attachment(node, Now.Add(-time.Minute))
}

// Names has the VolumeAttachment for a node name that PersistentVolume.
func (r *Rig) Names(node, pv string) {
	r.T.Helper()
	r.ChangeAttachment(node, func(va *storagev1.VolumeAttachment) { va.Spec.Source.PersistentVolumeName = &pv })
}

// SaysAttached has the VolumeAttachment for a node say so.
func (r *Rig) SaysAttached(node string) {
	r.T.Helper()
	r.ChangeAttachment(node, func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
}

// Attached makes a VolumeAttachment that nobody noted a node ID on.
func (r *Rig) Attached(node string) {
	r.T.Helper()
	r.Deleting(node)
	r.ChangeAttachment(node, func(va *storagev1.VolumeAttachment) {
		delete(va.Annotations, csi.NodeIDAnnotation)
		va.Status.Attached = true
	})
}

// Stripped removes the VolumeAttachment for a node.
func (r *Rig) Stripped(node string) {
	r.T.Helper()
	r.Must(r.objects.Delete(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", csi.AttachmentName(Handle, DriverName, node)))
}

// Many has the PersistentVolume say that many may write.
func (r *Rig) Many() {
	r.T.Helper()
	r.changePV(func(pv *corev1.PersistentVolume) {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
}

// Pod makes a Pod on node next with that volume.
func (r *Rig) Pod(name string, phase corev1.PodPhase, volume corev1.Volume) {
	r.T.Helper()
	r.PodOn("next", name, volume, corev1.PodStatus{Phase: phase})
}

// Ledger as the PersistentVolume carries it.
func (r *Rig) Ledger() *ledger.Ledger {
	r.T.Helper()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(r.T.Context(), PVName, metav1.GetOptions{})
	r.Must(err)
	l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
	r.Must(err)
	return l
}

// Annotate writes text where the ledger is.
func (r *Rig) Annotate(text string) {
	r.T.Helper()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(r.T.Context(), PVName, metav1.GetOptions{})
	r.Must(err)
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, ledger.Annotation, text)
	_, err = r.Client.CoreV1().PersistentVolumes().Update(r.T.Context(), pv, metav1.UpdateOptions{})
	r.Must(err)
}

// Change edits the ledger as another process would. It may be called while a
// request is served, so it makes none.
func (r *Rig) Change(f func(*ledger.Ledger)) {
	r.T.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	object, err := r.objects.Get(gvr, "", PVName)
	r.Must(err)
	pv := object.(*corev1.PersistentVolume).DeepCopy()
	l := &ledger.Ledger{Version: ledger.Version, Driver: DriverName, Handle: Handle, Cluster: ClusterUID, PVUID: "uid-of-pv-1"}
	if text, there := pv.Annotations[ledger.Annotation]; there {
		l, err = ledger.Parse(text)
		r.Must(err)
	}
	f(l)
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, ledger.Annotation, l.String())
	r.Must(r.objects.Update(gvr, pv, ""))
}

// Lose takes the ledger off, as when it moves to a PersistentVolume that nobody
// here knows. It may be called while a request is served.
func (r *Rig) Lose() {
	r.T.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	object, err := r.objects.Get(gvr, "", PVName)
	r.Must(err)
	pv := object.(*corev1.PersistentVolume).DeepCopy()
	delete(pv.Annotations, ledger.Annotation)
	r.Must(r.objects.Update(gvr, pv, ""))
}

// State of a node's entry in the ledger.
func (r *Rig) State(node string) fence.State {
	r.T.Helper()
	if e := r.Ledger().Get(ID(node)); e != nil {
		return e.State
	}
	return fence.NotInLedger
}

// WantHolder fails unless the volume's one entry is of that node's machine.
func (r *Rig) WantHolder(node string, state fence.State) {
	r.T.Helper()
	l := r.Ledger()
	if len(l.Holders) != 1 || l.Holders[0].NodeName != node || l.Holders[0].NodeUID != "uid-of-"+node || l.Holders[0].BootID != "boot-of-"+node || l.Holders[0].State != state {
		r.T.Fatalf("the ledger says %+v, want %s on the machine of node %s", l.Holders, state, node)
	}
}

// Claim is that of the volume, in namespace default.
const Claim = "data"

// Claimed binds the PersistentVolume to a claim; an empty name takes it away.
func (r *Rig) Claimed(name string) {
	r.T.Helper()
	r.changePV(func(pv *corev1.PersistentVolume) {
		if pv.Spec.ClaimRef = nil; name != "" {
			pv.Spec.ClaimRef, pv.Status.Phase = &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: name}, corev1.VolumeBound
		}
	})
}

// Provisioned has the PersistentVolume be as external-provisioner makes one for the claim, of
// which it had read that version; change, if not nil, changes it.
func (r *Rig) Provisioned(version string, change func(*corev1.PersistentVolume)) {
	r.T.Helper()
	r.changePV(func(pv *corev1.PersistentVolume) {
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, "pv.kubernetes.io/provisioned-by", DriverName)
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: Claim, UID: "1", ResourceVersion: version}
		pv.Status.Phase = corev1.VolumeBound
		if change != nil {
			change(pv)
		}
	})
}

// Unbound has the PersistentVolume released: its claim is gone, or another's.
func (r *Rig) Unbound() {
	r.T.Helper()
	r.changePV(func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased })
}

// SecondOfMany makes a second PersistentVolume of the disk, which many may have.
func (r *Rig) SecondOfMany() {
	r.T.Helper()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(r.T.Context(), PVName, metav1.GetOptions{})
	r.Must(err)
	pv.Name, pv.UID, pv.Annotations = "pv-2", "uid-of-pv-2", nil
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	_, err = r.Client.CoreV1().PersistentVolumes().Create(r.T.Context(), pv, metav1.CreateOptions{})
	r.Must(err)
}

// Beside makes another PersistentVolume of the disk, for a single writer as well.
func (r *Rig) Beside(name string) {
	r.T.Helper()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(r.T.Context(), PVName, metav1.GetOptions{})
	r.Must(err)
	pv.Name, pv.UID, pv.Annotations = name, types.UID("uid-of-"+name), nil
	_, err = r.Client.CoreV1().PersistentVolumes().Create(r.T.Context(), pv, metav1.CreateOptions{})
	r.Must(err)
}

// BeingDeleted has a PersistentVolume be deleted while these finalizers keep it. It may be
// called while a request is served.
func (r *Rig) BeingDeleted(name string, finalizers ...string) {
	r.T.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	object, err := r.objects.Get(gvr, "", name)
	r.Must(err)
	pv := object.(*corev1.PersistentVolume).DeepCopy()
	at := metav1.NewTime(Now)
	pv.DeletionTimestamp, pv.Finalizers, pv.ResourceVersion = &at, finalizers, pv.ResourceVersion+"1"
	r.Must(r.objects.Update(gvr, pv, ""))
}

// Repaired has the ledger be what a person's repair wrote.
func (r *Rig) Repaired() {
	r.T.Helper()
	r.changePV(func(pv *corev1.PersistentVolume) {
		pv.Annotations[ledger.RepairedAnnotation] = fmt.Sprintf(`{"sha256":%q}`, ledger.DigestOf(pv.Annotations[ledger.Annotation]))
	})
}

func (r *Rig) changePV(change func(*corev1.PersistentVolume)) {
	r.T.Helper()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(r.T.Context(), PVName, metav1.GetOptions{})
	r.Must(err)
	change(pv)
	_, err = r.Client.CoreV1().PersistentVolumes().Update(r.T.Context(), pv, metav1.UpdateOptions{})
	r.Must(err)
}

// ByClaim is a pod's volume of that claim.
func ByClaim(name string) corev1.Volume {
	return corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// PodOn makes a pod that is bound to a node.
func (r *Rig) PodOn(node, name string, volume corev1.Volume, s corev1.PodStatus) {
	r.T.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Status: s}
	pod.Spec.NodeName, pod.Spec.Volumes = node, []corev1.Volume{volume}
	_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(r.T.Context(), pod, metav1.CreateOptions{})
	r.Must(err)
}
