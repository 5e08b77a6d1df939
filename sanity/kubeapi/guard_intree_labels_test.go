package kubeapi

import (
	"encoding/json"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// A migrated in-tree GCE PD: the disk's name is in its spec, which nobody changes, and the zone in
// a label, which whoever patches PersistentVolumes may write. external-attacher calls with the zone
// of the label and the project of the node; a kubelet lists it with the zone that the label had
// when the pod came.
const (
	gceZoneOne, gceZoneTwo, gceRegions = "r1-x-a", "r1-x-b", "r1-x-a__r1-x-b"
	gceNoZone                          = "a__b" // no translation understands it
)

func (r *rig) inTreeDisk(disk string) gceVolume {
	r.t.Helper()
	v := gceVolume{one: "projects/p1/zones/r1-x-a/disks/" + disk, two: "projects/p1/zones/r1-x-b/disks/" + disk, region: "projects/p1/regions/r1-x/disks/" + disk}
	for _, handle := range []string{v.one, v.two, v.region} {
		r.must(r.Array.CreateVolume(handle, array.VolumeOptions{}))
	}
	v.Volume = r.inTreePV(disk, v.one, corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: disk}})
	r.zone(v.Volume, gceZoneOne)
	return v
}

// gceNode is a node of zone one.
func (r *rig) gceNode(name string) *node {
	r.t.Helper()
	return r.nodeCalled(r.Name+"-"+name, "projects/p1/zones/r1-x-a/instances/"+r.Name+"-"+name)
}

// zone is what the label says now; empty: there is none.
func (r *rig) zone(v *bed.Volume, zone string) {
	r.t.Helper()
	label := map[string]any{corev1.LabelTopologyZone: nil}
	if zone != "" {
		label[corev1.LabelTopologyZone] = zone
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": label}})
	r.must(err)
	_, err = r.Client.CoreV1().PersistentVolumes().Patch(r.ctx(), v.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	r.must(err)
	r.settle()
}

// gce has one rig at a time guard that driver: its cluster-wide rights are named after it.
var gce sync.Mutex

func newGCERig(t *testing.T, name string, o bed.StageOptions) *rig {
	t.Helper()
	o.Driver = "pd.csi.storage.gke.io"
	r := newRigAfter(t, func() { gce.Lock(); t.Cleanup(gce.Unlock) }, common, name, o)
	r.start("fp", o.Env...)
	r.proxy = r.dial("fp")
	return r
}

// gceVolume is the disk of that name in zone one, and the handles that it has by its label.
type gceVolume struct {
	*bed.Volume
	one, two, region string
}

// Who labels a PersistentVolume anew does not have the holder forgotten that its ledger alone
// names, nor the volume unpublished from a node that lists it.
func TestTheZoneLabelOfAnInTreeVolumeHidesNoHolder(t *testing.T) {
	r := newGCERig(t, "gce-labels", bed.StageOptions{})
	b := r.gceNode("b")

	for _, moved := range []struct {
		name, zone string
		asked      func(gceVolume) string
	}{
		{"another", gceZoneTwo, func(v gceVolume) string { return v.two }},
		{"region", gceRegions, func(v gceVolume) string { return v.region }},
		{"none", "", func(v gceVolume) string { return v.one }},
		// The attacher does not know yet of the new label.
		{"another-late", gceZoneTwo, func(v gceVolume) string { return v.one }},
		{"region-late", gceRegions, func(v gceVolume) string { return v.one }},
		{"garbled-late", gceNoZone, func(v gceVolume) string { return v.one }},
	} {
		t.Run(moved.name, func(t *testing.T) {
			r := r.in(t)
			v, a := r.inTreeDisk("disk-"+moved.name), r.gceNode(moved.name)
			r.onlyTheLedgerNames(v, a)
			r.attachment(v.Volume, b)
			r.zone(v.Volume, moved.zone)
			r.wantRefused(r.publish(moved.asked(v), b), fence.HolderUnknown, a.name)
			r.zone(v.Volume, gceZoneOne)
			r.wantRefused(r.publish(v.one, b), fence.HolderUnknown, a.name)
			r.wantState(v.Volume, a, fence.Publishing)
			r.wantAttached(v.one, a)
			a.confirm()
			r.must(r.publish(v.one, b))
			r.wantAttached(v.one, b)
		})
	}

	t.Run("a node that lists it", func(t *testing.T) {
		r := r.in(t)
		v, a := r.inTreeDisk("disk-listed"), r.gceNode("listed")
		const listed = "projects/UNSPECIFIED/zones/r1-x-a/disks/disk-listed"
		r.attachment(v.Volume, a)
		r.must(r.publish(v.one, a))
		r.attached(v.Volume, a)
		a.listsHandle(listed, true, true)
		r.attachment(v.Volume, b)
		r.zone(v.Volume, gceZoneTwo)
		r.wantRefused(r.publish(v.two, b), fence.HolderAlive, a.name)
		r.deleting(v.Volume, a)
		r.settle()
		r.wantRefused(r.unpublish(v.two, a), fence.HolderAlive, a.name)
		r.wantCalls(v.two)
		r.zone(v.Volume, gceZoneOne)
		r.wantState(v.Volume, a, fence.Publishing)
		a.listsHandle(listed, false, false)
		r.settle()
		r.must(r.unpublish(v.one, a))
		r.gone(v.Volume, a)
		r.settle()
		r.must(r.publish(v.one, b))
		r.wantCalls(v.one, "publish "+a.id, "unpublish "+a.id, "publish "+b.id)
	})

	t.Run("a first publish is written down whatever the label says", func(t *testing.T) {
		r := r.in(t)
		v, a := r.inTreeDisk("disk-first"), r.gceNode("first")
		r.attachment(v.Volume, a)
		r.zone(v.Volume, gceNoZone)
		r.must(r.publish(v.one, a))
		r.wantState(v.Volume, a, fence.Publishing)
		r.zone(v.Volume, gceZoneTwo)
		r.forgottenBut(v, a)
		r.attachment(v.Volume, b)
		r.settle()
		r.wantRefused(r.publish(v.two, b), fence.HolderUnknown, a.name)
		r.zone(v.Volume, gceZoneOne)
		r.wantRefused(r.publish(v.one, b), fence.HolderUnknown, a.name)
		r.wantAttached(v.one, a)
	})
}

// onlyTheLedgerNames: the volume is attached to the machine, of which Node, CSINode and VolumeAttachment
// are gone.
func (r *rig) onlyTheLedgerNames(v gceVolume, n *node) {
	r.t.Helper()
	r.attach(v.Volume, n)
	r.forgottenBut(v, n)
	r.settle()
}

func (r *rig) forgottenBut(v gceVolume, n *node) {
	r.t.Helper()
	r.deleting(v.Volume, n)
	r.gone(v.Volume, n)
	n.delete()
}

// An unpublish by the handle that another label made revokes no access by the handle before.
func TestAnUnpublishByAnotherZoneRevokesNoAccess(t *testing.T) {
	r := newGCERig(t, "gce-revokes", bed.StageOptions{Config: "driver: {unpublishRevokesAccess: true}"})
	v, a, b := r.inTreeDisk("disk-revoked"), r.gceNode("a"), r.gceNode("b")
	r.onlyTheLedgerNames(v, a)
	r.attachment(v.Volume, b)
	r.zone(v.Volume, gceZoneTwo)
	r.wantRefused(r.publish(v.two, b), fence.HolderUnknown, a.name)
	r.wantState(v.Volume, a, fence.Publishing)
	r.zone(v.Volume, gceZoneOne)
	r.must(r.publish(v.one, b))
	r.wantCalls(v.one, "publish "+a.id, "unpublish "+a.id, "publish "+b.id)
	r.wantAttached(v.one, b)
}
