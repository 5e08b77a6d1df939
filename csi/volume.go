package csi

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/klog/v2"
)

// NodeIDAnnotation is where external-attacher writes the driver's node ID on a
// VolumeAttachment, before its first publish. It uses it for an unpublish whose
// CSINode is gone or lacks the driver.
const NodeIDAnnotation = "csi.alpha.kubernetes.io/node-id"

// uniqueNamePrefix and handleSeparator as in Kubernetes' pkg/volume/csi
// (CSIPluginName, volNameSep): kubernetes.io/csi/<driver>^<handle>.
const (
	uniqueNamePrefix = "kubernetes.io/csi/"
	handleSeparator  = "^"
)

// Identity knows how Kubernetes' objects name the volumes of one driver. It
// has no state and may be used by many at once.
type Identity struct {
	// Driver is the CSI driver's name, as GetPluginInfo says it.
	Driver string
}

// PVHandle is the volume handle of a PersistentVolume of this driver: of a CSI
// PV, or of an in-tree PV that was migrated to this driver. It is the handle
// that external-attacher sends and that the names of volumesInUse and of
// VolumeAttachments are made of; for GCE PD it may have UNSPECIFIED parts (see
// Same). ok is false for a PV of another driver.
//
// The translation of an in-tree PV reads its labels and annotations too: a
// cached copy must not have been stripped of them. Whoever patches PVs may change
// the labels, and the handle of a GCE PD with them: see PVMayHave.
func (i *Identity) PVHandle(pv *corev1.PersistentVolume) (handle string, ok bool) {
	pv = i.translated(pv)
	if pv == nil {
		return "", false
	}
	return i.handle(pv.Spec.CSI)
}

// PVMayHave tells whether a PersistentVolume of this driver may be of the volume with that
// handle, or have been, whatever its labels said. The place of an in-tree GCE PD is only a label,
// and the disk's name is what nobody can change. Of all others it is whether the handles are
// the Same.
func (i *Identity) PVMayHave(pv *corev1.PersistentVolume, handle string) bool {
	own, ok := i.PVHandle(pv)
	return ok && (i.Same(own, handle) || pv.Spec.CSI == nil && i.Key(own) == i.Key(handle))
}

// PVWriters tells from a PersistentVolume of this driver how many nodes may
// write to it. Migration changes access modes (an in-tree GCE PD with
// ReadWriteMany is published as ReadWriteOnce), so in-tree PVs are translated
// first. Unknown for a PV of another driver.
func (i *Identity) PVWriters(pv *corev1.PersistentVolume) Writers {
	if _, ok := i.PVHandle(pv); !ok {
		return Unknown
	}
	return PVSingleWriter(i.translated(pv).Spec.AccessModes)
}

// InlineHandle is the volume handle of a VolumeAttachment that carries its
// volume itself (a migrated in-tree volume of a pod, with no PV). ok is false
// for one that names a PV, and for another driver's.
func (i *Identity) InlineHandle(va *storagev1.VolumeAttachment) (handle string, ok bool) {
	source := va.Spec.Source.InlineVolumeSpec
	if va.Spec.Attacher != i.Driver || source == nil {
		return "", false
	}
	// Kubernetes translates before it writes the VolumeAttachment; one that
	// was written by hand is read all the same.
	return i.PVHandle(&corev1.PersistentVolume{Spec: *source})
}

func (i *Identity) handle(source *corev1.CSIPersistentVolumeSource) (string, bool) {
	if source == nil || source.Driver != i.Driver || source.VolumeHandle == "" {
		return "", false
	}
	return source.VolumeHandle, true
}

// translated returns pv as a CSI PV; nil if it is neither one nor migrated.
func (i *Identity) translated(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	if pv == nil || pv.Spec.CSI != nil {
		return pv
	}
	translator := csitranslation.New()
	if !translator.IsMigratedCSIDriverByName(i.Driver) || !translator.IsPVMigratable(pv) {
		return nil
	}
	out, err := translator.TranslateInTreePVToCSI(klog.Background(), pv)
	if err != nil && len(pv.Labels) > 0 {
		// external-attacher cannot publish it either, by these labels. It may have been published
		// by others, and is this driver's still.
		bare := pv.DeepCopy()
		bare.Labels = nil
		out, err = translator.TranslateInTreePVToCSI(klog.Background(), bare)
	}
	if err != nil {
		return nil // nobody can publish it
	}
	return out
}

// Same tells whether two handles are of one volume. They are compared as text,
// except that GCE PD's in-tree handles leave project and place UNSPECIFIED: such
// a part equals any other, and such a place is that of a region, too. It may take two disks
// of one name in two places for one; that adds suspicion and takes none away.
func (i *Identity) Same(a, b string) bool {
	if a == b {
		return a != ""
	}
	if i.Key(a) != i.Key(b) {
		return false
	}
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	open := func(n int) bool { return x[n] == plugins.UnspecifiedValue || y[n] == plugins.UnspecifiedValue }
	project, place := x[1] == y[1], x[2] == y[2] && x[3] == y[3]
	return (project || open(1)) && (place || open(3))
}

// Key is a handle that is the Same as any that is the Same as this one, and equal for all
// of these: to index by, and to name a volume by of which the place is in doubt. Two handles
// with one key need not be the Same.
func (i *Identity) Key(handle string) string {
	if i.Driver != plugins.GCEPDDriverName {
		return handle
	}
	// projects/<project>/zones|regions/<place>/disks/<name>
	parts := strings.Split(handle, "/")
	if len(parts) != 6 || parts[0] != "projects" || parts[2] != "zones" && parts[2] != "regions" {
		return handle
	}
	parts[1], parts[2], parts[3] = plugins.UnspecifiedValue, "zones", plugins.UnspecifiedValue
	return strings.Join(parts, "/")
}

// UniqueName is the volume's name in a Node's status.volumesInUse and
// status.volumesAttached.
func (i *Identity) UniqueName(handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(uniqueNamePrefix + i.Driver + handleSeparator + handle)
}

// HandleOf is the reverse of UniqueName; ok is false for another driver's
// volume. A handle may itself contain the separator.
func (i *Identity) HandleOf(name corev1.UniqueVolumeName) (handle string, ok bool) {
	handle, ok = strings.CutPrefix(string(name), uniqueNamePrefix+i.Driver+handleSeparator)
	return handle, ok && handle != ""
}

// DriversOf are the CSI drivers of the volumes that a Node's status names, sorted, each once.
func DriversOf(names []corev1.UniqueVolumeName) (drivers []string) {
	for _, name := range names {
		if volume, ok := strings.CutPrefix(string(name), uniqueNamePrefix); ok {
			driver, _, _ := strings.Cut(volume, handleSeparator)
			drivers = append(drivers, driver)
		}
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// NodeHandles are the handles of this driver that a Node's status names, in
// volumesInUse (the kubelet's word) or volumesAttached (the controller's),
// sorted, each once.
func (i *Identity) NodeHandles(node *corev1.Node) []string {
	var handles []string
	add := func(name corev1.UniqueVolumeName) {
		if handle, ok := i.HandleOf(name); ok {
			handles = append(handles, handle)
		}
	}
	for _, name := range node.Status.VolumesInUse {
		add(name)
	}
	for _, attached := range node.Status.VolumesAttached {
		add(attached.Name)
	}
	slices.Sort(handles)
	return slices.Compact(handles)
}

// NodeLists tells whether a Node's status names the volume in volumesInUse, in
// volumesAttached.
func (i *Identity) NodeLists(node *corev1.Node, handle string) (inUse, attached bool) {
	names := func(name corev1.UniqueVolumeName) bool {
		listed, ok := i.HandleOf(name)
		return ok && i.Same(listed, handle)
	}
	return slices.ContainsFunc(node.Status.VolumesInUse, names),
		slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return names(a.Name) })
}

// NodeID is this driver's node ID on a CSINode; empty: the driver is not
// registered there.
func (i *Identity) NodeID(node *storagev1.CSINode) string {
	for _, driver := range node.Spec.Drivers {
		if driver.Name == i.Driver {
			return driver.NodeID
		}
	}
	return ""
}

// AttachmentNodeID is the node ID that external-attacher wrote on a
// VolumeAttachment; empty: none.
func AttachmentNodeID(va *storagev1.VolumeAttachment) string {
	return va.Annotations[NodeIDAnnotation]
}

// AttachmentName is the name of the VolumeAttachment for a volume on a node, as
// Kubernetes makes it (pkg/volume/csi getAttachmentName). Two PVs with one
// handle share it.
func AttachmentName(handle, driver, nodeName string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+nodeName)))
}
