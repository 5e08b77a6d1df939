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

// PodsWait tells whether there are pods of a claim on that node among those of its namespace
// (some), and that none of them can have had the volume mounted.
func PodsWait(pods []corev1.Pod, node, claim string) (some, waits bool) {
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName != node || !UsesClaim(pod, claim) {
			continue
		}
		if pod.DeletionTimestamp != nil || mayHaveRun(pod) {
			return true, false
		}
		some = true
	}
	return some, some
}

// mayHaveRun: the pod's volumes may have been mounted once, as far as its kubelet says: a
// container has started, or its sandbox is there, which is made when they are mounted, so
// that images are pulled, or fail to be (K8s kubelet.go, SyncPod).
func mayHaveRun(pod *corev1.Pod) bool {
	s := &pod.Status
	if s.Phase != corev1.PodPending && s.Phase != "" || !pod.Spec.HostNetwork && s.PodIP != "" {
		return true
	}
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), func(c corev1.ContainerStatus) bool {
		w := c.State.Waiting
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState != (corev1.ContainerState{}) || c.RestartCount > 0 || c.ContainerID != "" ||
			w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing"
	})
}
