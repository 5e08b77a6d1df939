package kubeapi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// guarded is a whole life: attached to a, refused to b while a uses it, detached,
// attached to b.
func (r *rig) guarded(v *bed.Volume, a, b *node) {
	r.t.Helper()
	r.attach(v, a)
	r.wantState(v, a, fence.Publishing)
	r.attachment(v, b)
	r.settle()
	r.wantRefused(r.publish(v.Handle, b), fence.HolderAlive, a.name)
	r.wantRefused(r.unpublish(v.Handle, a), fence.HolderAlive, a.name)
	r.letGo(v, a)
	r.settle()
	r.must(r.unpublish(v.Handle, a))
	r.gone(v, a)
	r.settle()
	r.must(r.publish(v.Handle, b))
	r.wantCalls(v.Handle, "publish "+a.id, "unpublish "+a.id, "publish "+b.id)
	r.wantAttached(v.Handle, b)
}

func TestAnInTreeEBSVolumeIsGuarded(t *testing.T) {
	r := newRig(t, "ebs", bed.StageOptions{Driver: "ebs.csi.aws.com"})
	const handle = "vol-0123456789abcdef0"
	r.must(r.Array.CreateVolume(handle, array.VolumeOptions{}))
	v := r.inTreePV("v", handle, corev1.PersistentVolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/" + handle}})
	r.guarded(v, r.node("a"), r.node("b"))
}

func TestAnInTreeGCEVolumeIsOneWithItsCSIVolume(t *testing.T) {
	r := newGCERig(t, "gce", bed.StageOptions{})
	const unspecified, full = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-1", "projects/p1/zones/z1/disks/disk-1"
	for _, handle := range []string{unspecified, full} {
		r.must(r.Array.CreateVolume(handle, array.VolumeOptions{}))
	}
	inTree := r.inTreePV("v", unspecified, corev1.PersistentVolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk-1"}})
	migrated := r.Volume("w", bed.VolumeOptions{Handle: full})
	a, b := r.nodeCalled("gce-a", "projects/p1/zones/z1/instances/gce-a"), r.nodeCalled("gce-b", "projects/p1/zones/z1/instances/gce-b")

	r.attach(inTree, a)
	r.attachment(migrated, b)
	r.settle()
	r.wantRefused(r.publish(full, b), fence.HolderAlive, a.name)
	r.wantCalls(full)
	r.letGo(inTree, a)
	r.settle()
	r.must(r.unpublish(unspecified, a))
	r.gone(inTree, a)
	r.settle()
	r.attach(migrated, b)
	r.attachment(inTree, a)
	r.settle()
	r.wantRefused(r.publish(unspecified, a), fence.HolderAlive, b.name)
	r.wantAttached(full, b)
}

func TestAnInlineVolumeIsGuardedByItsVolumeAttachment(t *testing.T) {
	r := newRig(t, "inline", bed.StageOptions{Driver: "disk.csi.azure.com"})
	const handle = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d1"
	r.must(r.Array.CreateVolume(handle, array.VolumeOptions{}))
	inline := func(n *node) {
		r.createAttachment(handle, n, storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: r.Driver, VolumeHandle: handle}},
		}})
	}
	v := &bed.Volume{Name: "none", Handle: handle}
	a, b := r.node("a"), r.node("b")
	inline(a)
	r.settle()
	r.must(r.publish(handle, a))
	r.attached(v, a)
	inline(b)
	r.settle()
	r.wantRefused(r.publish(handle, b), fence.HolderWanted, a.name)
	a.listsHandle(handle, true, true)
	r.deleting(v, a)
	r.settle()
	r.wantRefused(r.publish(handle, b), fence.HolderAlive, a.name)
	r.wantRefused(r.unpublish(handle, a), fence.HolderAlive, a.name)
	r.wantCalls(handle, "publish "+a.id)
	a.listsHandle(handle, false, false)
	r.settle()
	r.must(r.unpublish(handle, a))
	r.gone(v, a)
	r.settle()
	r.must(r.publish(handle, b))
	r.wantAttached(handle, b)
}

func TestTwoPersistentVolumesWithOneHandleAreOneVolume(t *testing.T) {
	r := newRig(t, "twins", bed.StageOptions{})
	first := r.volume("v1")
	second := r.Volume("v2", bed.VolumeOptions{Handle: first.Handle})
	a, b := r.node("a"), r.node("b")
	// Published through the second PV: the ledger is on the first, which is the older one.
	r.attach(second, a)
	r.wantState(first, a, fence.Publishing)
	if text := second.Ledger(); text != "" {
		t.Errorf("the second PersistentVolume has a ledger too: %s", text)
	}
	r.attachment(first, b)
	r.settle()
	r.wantRefused(r.publish(first.Handle, b), fence.HolderAlive, a.name)
	r.wantAttached(first.Handle, a)

	// What a ledger on the second says counts as well.
	gone := r.strangerNode("gone")
	r.letGo(second, a)
	r.settle()
	r.must(r.unpublish(first.Handle, a))
	r.gone(second, a)
	second.SetLedger(r.ledgerText(second, gone.entry(fence.Held)))
	r.settle()
	r.wantRefused(r.publish(first.Handle, b), fence.HolderUnknown, gone.name)
	r.wantAttached(first.Handle)

	// The PV that carried the ledger is deleted and made again: nothing is lost.
	gone.confirm()
	r.settle()
	r.must(r.publish(first.Handle, b))
	b.lists(first, true, true)
	first.DeletePV()
	first.CreatePV(bed.VolumeOptions{})
	c := r.node("c")
	r.attachment(first, c)
	r.settle()
	r.wantRefused(r.publish(first.Handle, c), fence.HolderAlive, b.name)
	r.wantAttached(first.Handle, b)
}
