package apiserver

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PersistentVolumes.

func defaultVolume(o Object) {
	v := o.(*corev1.PersistentVolume)
	set(&v.Status.Phase, corev1.VolumePending)
	set(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	fill(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

func createVolume(o Object, now metav1.Time) {
	o.(*corev1.PersistentVolume).Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
}

func updateVolume(o, old Object) {
	o.(*corev1.PersistentVolume).Status = old.(*corev1.PersistentVolume).Status
}

func updateVolumeStatus(o, old Object, now metav1.Time) {
	v, was := o.(*corev1.PersistentVolume), old.(*corev1.PersistentVolume)
	v.Spec = was.Spec
	since, before := v.Status.LastPhaseTransitionTime, was.Status.LastPhaseTransitionTime
	switch {
	case v.Status.Phase == was.Status.Phase && since == nil:
		v.Status.LastPhaseTransitionTime = before
	case v.Status.Phase != was.Status.Phase && (since == nil || since.Equal(before)):
		v.Status.LastPhaseTransitionTime = &now
	}
}

func validateVolume(o Object) field.ErrorList {
	v := o.(*corev1.PersistentVolume)
	errs := validation.ValidateObjectMeta(&v.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if len(v.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec", "accessModes"), ""))
	}
	if len(v.Spec.Capacity) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec", "capacity"), ""))
	}
	if equality.Semantic.DeepEqual(v.Spec.PersistentVolumeSource, corev1.PersistentVolumeSource{}) {
		errs = append(errs, field.Required(field.NewPath("spec"), "must specify a volume type"))
	}
	return errs
}

func validateVolumeUpdate(o, old Object) field.ErrorList {
	v, was := o.(*corev1.PersistentVolume), old.(*corev1.PersistentVolume)
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(v.Spec.PersistentVolumeSource, was.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"))
	}
	return append(errs, validation.ValidateImmutableField(v.Spec.VolumeMode, was.Spec.VolumeMode, field.NewPath("volumeMode"))...)
}

// PersistentVolumeClaims.

func defaultClaim(o Object) {
	c := o.(*corev1.PersistentVolumeClaim)
	set(&c.Status.Phase, corev1.ClaimPending)
	fill(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

func createClaim(o Object, _ metav1.Time) {
	o.(*corev1.PersistentVolumeClaim).Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
}

func updateClaim(o, old Object) {
	o.(*corev1.PersistentVolumeClaim).Status = old.(*corev1.PersistentVolumeClaim).Status
}

func updateClaimStatus(o, old Object, _ metav1.Time) {
	o.(*corev1.PersistentVolumeClaim).Spec = old.(*corev1.PersistentVolumeClaim).Spec
}

// Only the volume's name may be filled in; that the requested size of a bound
// claim may grow is not modelled.
func validateClaimUpdate(o, old Object) field.ErrorList {
	spec, was := o.(*corev1.PersistentVolumeClaim).Spec, old.(*corev1.PersistentVolumeClaim).Spec
	if was.VolumeName == "" {
		spec.VolumeName = ""
	}
	if equality.Semantic.DeepEqual(spec, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")}
}

// Leases.

func validateLease(o Object) field.ErrorList {
	l := o.(*coordinationv1.Lease)
	errs := validation.ValidateObjectMeta(&l.ObjectMeta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	spec := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	return errs
}

// VolumeAttachments.

func createAttachment(o Object, _ metav1.Time) {
	o.(*storagev1.VolumeAttachment).Status = storagev1.VolumeAttachmentStatus{}
}

func updateAttachment(o, old Object) {
	o.(*storagev1.VolumeAttachment).Status = old.(*storagev1.VolumeAttachment).Status
}

func updateAttachmentStatus(o, old Object, _ metav1.Time) {
	o.(*storagev1.VolumeAttachment).Spec = old.(*storagev1.VolumeAttachment).Spec
}

func validateAttachment(o Object) field.ErrorList {
	a := o.(*storagev1.VolumeAttachment)
	errs := validation.ValidateObjectMeta(&a.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	spec := field.NewPath("spec")
	if a.Spec.Attacher == "" {
		errs = append(errs, field.Required(spec.Child("attacher"), ""))
	}
	if a.Spec.NodeName == "" {
		errs = append(errs, field.Required(spec.Child("nodeName"), ""))
	}
	name, inline := a.Spec.Source.PersistentVolumeName, a.Spec.Source.InlineVolumeSpec
	if (name == nil) == (inline == nil) {
		errs = append(errs, field.Required(spec.Child("source"), "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	} else if name != nil && *name == "" {
		errs = append(errs, field.Required(spec.Child("source", "persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	return errs
}

func validateAttachmentUpdate(o, old Object) field.ErrorList {
	return validation.ValidateImmutableField(o.(*storagev1.VolumeAttachment).Spec, old.(*storagev1.VolumeAttachment).Spec, field.NewPath("spec"))
}

// CSINodes.

func validateCSINode(o Object) field.ErrorList {
	n := o.(*storagev1.CSINode)
	errs := validation.ValidateObjectMeta(&n.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	seen := map[string]bool{}
	for i, d := range n.Spec.Drivers {
		path := field.NewPath("spec", "drivers").Index(i)
		if d.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		}
		if d.NodeID == "" {
			errs = append(errs, field.Required(path.Child("nodeID"), d.NodeID))
		}
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), d.Name))
		}
		seen[d.Name] = true
	}
	return errs
}

// A driver's entry may come and go, but not change.
func validateCSINodeUpdate(o, old Object) field.ErrorList {
	was := map[string]storagev1.CSINodeDriver{}
	for _, d := range old.(*storagev1.CSINode).Spec.Drivers {
		was[d.Name] = d
	}
	var errs field.ErrorList
	for _, d := range o.(*storagev1.CSINode).Spec.Drivers {
		before, ok := was[d.Name]
		before.Allocatable = d.Allocatable
		if ok && !equality.Semantic.DeepEqual(d, before) {
			errs = append(errs, field.Invalid(field.NewPath("CSINodeDriver"), d.Name, "field is immutable"))
		}
	}
	return errs
}

// CSIDrivers.

func defaultDriver(o Object) {
	spec := &o.(*storagev1.CSIDriver).Spec
	fill(&spec.AttachRequired, true)
	fill(&spec.PodInfoOnMount, false)
	fill(&spec.StorageCapacity, false)
	fill(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	fill(&spec.RequiresRepublish, false)
	fill(&spec.SELinuxMount, false)
	fill(&spec.PreventPodSchedulingIfMissing, false)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func updateDriver(o, old Object) {
	d, was := o.(*storagev1.CSIDriver), old.(*storagev1.CSIDriver)
	if !equality.Semantic.DeepEqual(d.Spec, was.Spec) {
		d.Generation = was.Generation + 1
	}
}

func validateDriverUpdate(o, old Object) field.ErrorList {
	spec, was := o.(*storagev1.CSIDriver).Spec, old.(*storagev1.CSIDriver).Spec
	errs := validation.ValidateImmutableField(spec.AttachRequired, was.AttachRequired, field.NewPath("spec", "attachedRequired"))
	return append(errs, validation.ValidateImmutableField(spec.VolumeLifecycleModes, was.VolumeLifecycleModes, field.NewPath("spec", "volumeLifecycleModes"))...)
}
