package csi

import corev1 "k8s.io/api/core/v1"

// UsesClaim tells whether the Pod uses the PersistentVolumeClaim of that name in its
// namespace: by name, or by an ephemeral volume, whose claim is named after Pod and volume
// (K8s pkg/api/v1/persistentvolume and component-helpers/storage/ephemeral, VolumeClaimName).
func UsesClaim(pod *corev1.Pod, claim string) bool {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
			v.Ephemeral != nil && pod.Name+"-"+v.Name == claim {
			return true
		}
	}
	return false
}
