package bed

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/pace"
)

// Volume is a disk of the array with its PersistentVolume and a claim bound to
// it.
type Volume struct {
	Name   string // of the PersistentVolume
	Handle string

	claim string // its name, if it is another
	stage *Stage
}

// Claim is the name of its claim.
func (v *Volume) Claim() string { return cmp.Or(v.claim, v.Name) }

// VolumeOptions of a volume. The zero value is a ReadWriteOnce filesystem.
type VolumeOptions struct {
	Modes []corev1.PersistentVolumeAccessMode
	Block bool
	// Annotations of the PersistentVolume.
	Annotations map[string]string
	// Handle of an existing disk of the array; a new one if empty.
	Handle string
	// Source of the PersistentVolume; a CSI volume of the stage's driver if nil.
	// For a migrated in-tree one, Handle is what it is translated to.
	Source *corev1.PersistentVolumeSource
	// Secret names the Secret of the stage's namespace that publish and
	// unpublish carry.
	Secret string
	// Provisioned has the claim come first, and the PersistentVolume be as external-provisioner
	// makes one for it.
	Provisioned bool
}

// Volume makes a disk, its PersistentVolume and its claim.
func (s *Stage) Volume(name string, o VolumeOptions) *Volume {
	s.T.Helper()
	v := &Volume{Name: s.Name + "-" + name, Handle: o.Handle, stage: s}
	if len(o.Modes) == 0 {
		o.Modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if v.Handle == "" {
		v.Handle = "vol-" + v.Name
		multi := o.Modes[0] == corev1.ReadWriteMany
		s.must("disk", s.Array.CreateVolume(v.Handle, array.VolumeOptions{Block: o.Block, MultiWriter: multi}))
	}
	if !o.Provisioned {
		v.CreatePV(o)
		v.createClaim(o)
		v.waitBound()
		return v
	}
	claim := v.createClaim(o)
	v.claim, v.Name = v.Name, "pvc-"+string(claim.UID)
	v.createPV(o, &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion})
	v.waitBound()
	return v
}

// CreatePV makes the PersistentVolume (again, after DeletePV).
func (v *Volume) CreatePV(o VolumeOptions) {
	v.stage.T.Helper()
	v.createPV(o, &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: v.stage.Name, Name: v.Claim()})
}

func (v *Volume) createPV(o VolumeOptions, claim *corev1.ObjectReference) {
	v.stage.T.Helper()
	if len(o.Modes) == 0 {
		o.Modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	source := &corev1.CSIPersistentVolumeSource{Driver: v.stage.Driver, VolumeHandle: v.Handle}
	if o.Secret != "" {
		source.ControllerPublishSecretRef = &corev1.SecretReference{Name: o.Secret, Namespace: v.stage.Name}
	}
	pvSource := corev1.PersistentVolumeSource{CSI: source}
	if o.Source != nil {
		pvSource = *o.Source
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, Annotations: o.Annotations},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   o.Modes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      claim,
			VolumeMode:                    volumeMode(o),
			PersistentVolumeSource:        pvSource,
		},
	}
	if o.Provisioned {
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, "pv.kubernetes.io/provisioned-by", v.stage.Driver)
	}
	_, err := v.stage.Client.CoreV1().PersistentVolumes().Create(v.stage.ctx(), pv, metav1.CreateOptions{})
	v.stage.must("PersistentVolume "+v.Name, err)
}

func volumeMode(o VolumeOptions) *corev1.PersistentVolumeMode {
	mode := corev1.PersistentVolumeFilesystem
	if o.Block {
		mode = corev1.PersistentVolumeBlock
	}
	return &mode
}

func (v *Volume) createClaim(o VolumeOptions) *corev1.PersistentVolumeClaim {
	v.stage.T.Helper()
	none, volume := "", v.Name
	if o.Provisioned {
		volume = ""
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: v.Claim(), Namespace: v.stage.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: o.Modes, VolumeName: volume, StorageClassName: &none, VolumeMode: volumeMode(o),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	made, err := v.stage.Client.CoreV1().PersistentVolumeClaims(v.stage.Name).Create(v.stage.ctx(), claim, metav1.CreateOptions{})
	v.stage.must("claim "+v.Claim(), err)
	return made
}

func (v *Volume) waitBound() {
	v.stage.T.Helper()
	if v.stage.Bed.Bare {
		return // nobody binds it
	}
	v.stage.WaitFor(60*time.Second, "claim "+v.Claim()+" is bound", func() bool {
		c, err := v.stage.Client.CoreV1().PersistentVolumeClaims(v.stage.Name).Get(v.stage.ctx(), v.Claim(), metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimBound
	})
}

// PV reads the PersistentVolume; nil: there is none.
func (v *Volume) PV() *corev1.PersistentVolume {
	pv, err := v.stage.Client.CoreV1().PersistentVolumes().Get(v.stage.ctx(), v.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	v.stage.must("PersistentVolume "+v.Name, err)
	return pv
}

// Ledger is the text of the volume's ledger; empty: none.
func (v *Volume) Ledger() string {
	if pv := v.PV(); pv != nil {
		return pv.Annotations[ledger.Annotation]
	}
	return ""
}

// SetLedger writes the annotation by hand; empty takes it off.
func (v *Volume) SetLedger(text string) {
	v.stage.T.Helper()
	value := "null"
	if text != "" {
		value = quote(text)
	}
	v.patchPV(`{"metadata":{"annotations":{"` + ledger.Annotation + `":` + value + `}}}`)
}

func (v *Volume) patchPV(patch string) {
	v.stage.T.Helper()
	_, err := v.stage.Client.CoreV1().PersistentVolumes().Patch(v.stage.ctx(), v.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	v.stage.must("patch of PersistentVolume "+v.Name, err)
}

// DeletePV deletes the PersistentVolume for good, whatever protects it.
func (v *Volume) DeletePV() {
	v.stage.T.Helper()
	v.stage.must("delete "+v.Name, ignoreNotFound(v.stage.Client.CoreV1().PersistentVolumes().Delete(v.stage.ctx(), v.Name, metav1.DeleteOptions{})))
	v.stage.WaitFor(30*time.Second, v.Name+" is gone", func() bool {
		if v.PV() == nil {
			return true
		}
		_, _ = v.stage.Client.CoreV1().PersistentVolumes().Patch(v.stage.ctx(), v.Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
		return false
	})
}

// Attachment reads the VolumeAttachment for a node; nil: there is none.
func (v *Volume) Attachment(n *Node) *storagev1.VolumeAttachment {
	va, err := v.stage.Client.StorageV1().VolumeAttachments().Get(v.stage.ctx(), csi.AttachmentName(v.Handle, v.stage.Driver, n.Name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	v.stage.must("VolumeAttachment", err)
	return va
}

// DeleteAttachment deletes the VolumeAttachment, which is there until it is detached.
func (v *Volume) DeleteAttachment(n *Node) {
	v.stage.T.Helper()
	name := csi.AttachmentName(v.Handle, v.stage.Driver, n.Name)
	v.stage.must("delete VolumeAttachment", v.stage.Client.StorageV1().VolumeAttachments().Delete(v.stage.ctx(), name, metav1.DeleteOptions{}))
}

// StripAttachment does what people do to a VolumeAttachment that hangs: delete
// it and take its finalizer off.
func (v *Volume) StripAttachment(n *Node) {
	v.stage.T.Helper()
	name := csi.AttachmentName(v.Handle, v.stage.Driver, n.Name)
	api := v.stage.Client.StorageV1().VolumeAttachments()
	v.stage.must("delete VolumeAttachment", ignoreNotFound(api.Delete(v.stage.ctx(), name, metav1.DeleteOptions{})))
	v.stage.WaitFor(30*time.Second, "the VolumeAttachment is gone", func() bool {
		_, err := api.Patch(v.stage.ctx(), name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
		return apierrors.IsNotFound(err)
	})
}

// Refusal is what csi-fencepost last said of the volume on a node, from the
// VolumeAttachment's status; empty: nothing.
func (v *Volume) Refusal(n *Node) string {
	va := v.Attachment(n)
	if va == nil {
		return ""
	}
	// An attach error may outlive the attach: of two attachers the one that was
	// refused may write last.
	e := va.Status.AttachError
	if va.DeletionTimestamp != nil && va.Status.DetachError != nil {
		e = va.Status.DetachError
	}
	if e == nil {
		return ""
	}
	return e.Message
}

// WaitRefused waits until the call for that node was refused for that reason,
// and returns the text.
func (v *Volume) WaitRefused(n *Node, reason string, limit time.Duration) string {
	v.stage.T.Helper()
	var text string
	began, watch := time.Now(), pace.Start()
	for text = v.Refusal(n); !contains(text, "["+reason+"]"); text = v.Refusal(n) {
		if watch.Counted() > limit {
			v.stage.T.Fatalf("%s: waited %s in vain for a refusal for %s on the VolumeAttachment of %s; its error now: %q", v.stage.Name, limit, reason, n.Name, text)
		}
		if v.stage.ctx().Err() != nil {
			v.stage.T.Fatalf("%s: stopped while waiting for a refusal for %s", v.stage.Name, reason)
		}
		Pause(began)
	}
	return text
}

// WaitPublished waits until the array has the volume attached to that node
// alone.
func (v *Volume) WaitPublished(n *Node, limit time.Duration) time.Duration {
	v.stage.T.Helper()
	return v.stage.WaitFor(limit, v.Name+" is attached to "+n.Name+" alone", func() bool {
		attached := v.stage.Array.Attached(v.Handle)
		return len(attached) == 1 && attached[0] == n.ID
	})
}

// AttachedTo tells whether the array has the volume attached to the node.
func (v *Volume) AttachedTo(n *Node) bool {
	for _, id := range v.stage.Array.Attached(v.Handle) {
		if id == n.ID {
			return true
		}
	}
	return false
}

// Writers are the nodes whose writes the array accepted within the last d, by
// the names of their Nodes.
func (v *Volume) Writers(d time.Duration) []string {
	var names []string
	for _, w := range v.stage.Array.Writes(v.Handle) {
		if time.Since(w.Last) < d {
			names = append(names, v.stage.nodeName(w.Node))
		}
	}
	return names
}

func (s *Stage) nodeName(id string) string {
	for _, n := range s.Nodes {
		if n.ID == id {
			return n.Name
		}
	}
	return id
}
