package csi

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ClaimName is the PersistentVolumeClaim of a Pod's volume, in the Pod's namespace: that of
// an ephemeral volume is named after Pod and volume (K8s
// component-helpers/storage/ephemeral, VolumeClaimName). Empty: it has none.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// UsesClaim tells whether a volume of the Pod is of that claim.
func UsesClaim(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return claim != "" && ClaimName(pod, &v) == claim })
}
