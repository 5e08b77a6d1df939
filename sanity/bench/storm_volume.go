package main

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// setSize is how many replicas a StatefulSet of a storm has.
const setSize = 50

// stormSets is how many StatefulSets there are.
func (o *stormOptions) stormSets() int { return (o.stormVolumes + setSize - 1) / setSize }

// podName is the i-th pod's; its volume is called after it.
func podName(i int) string          { return fmt.Sprintf("db-%d-%d", i/setSize, i%setSize) }
func volumeOf(pod string) string    { return "vol-" + pod }
func podOf(handle string) string    { return strings.TrimPrefix(handle, "vol-") }
func setName(set int) string        { return fmt.Sprintf("db-%d", set) }
func replicas(volumes, set int) int { return min(setSize, volumes-set*setSize) }

// makeVolumes makes disks, PersistentVolumes and claims, and the StatefulSets
// whose pods use them.
func (s *stormSide) makeVolumes() error {
	err := parallel(s.volumes, createAtOnce, func(i int) error {
		pod := podName(i)
		if err := s.stage.Array.CreateVolume(volumeOf(pod), array.VolumeOptions{}); err != nil {
			return err
		}
		if _, err := s.client.CoreV1().PersistentVolumes().Create(s.ctx, s.pv(pod), metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := s.client.CoreV1().PersistentVolumeClaims(s.stage.Name).Create(s.ctx, s.claim(pod), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	for set := 0; set*setSize < s.volumes; set++ {
		if _, err := s.client.AppsV1().StatefulSets(s.stage.Name).Create(s.ctx, s.statefulSet(set), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// claimName is what a StatefulSet's claim template of the stage's name makes.
func (s *stormSide) claimName(pod string) string { return s.stage.Name + "-" + pod }

var gibibyte = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}

func (s *stormSide) pv(pod string) *corev1.PersistentVolume {
	name := s.claimName(pod)
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: gibibyte, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.stage.Name, Name: name},
		PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: s.stage.Driver, VolumeHandle: volumeOf(pod)}}}}
}

func (s *stormSide) claim(pod string) *corev1.PersistentVolumeClaim {
	none := ""
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: s.claimName(pod), Namespace: s.stage.Name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: s.claimName(pod), StorageClassName: &none,
		Resources: corev1.VolumeResourceRequirements{Requests: gibibyte}}}
}

func (s *stormSide) statefulSet(set int) *appsv1.StatefulSet {
	n, none, labels := int32(replicas(s.volumes, set)), int64(1), map[string]string{"app": setName(set)}
	pod := s.stage.PodSpec(nil)
	pod.TerminationGracePeriodSeconds = &none
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: s.stage.Name, MountPath: "/data"}}
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: setName(set), Namespace: s.stage.Name}, Spec: appsv1.StatefulSetSpec{
		Replicas: &n, ServiceName: setName(set), PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: s.stage.Name},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: gibibyte}}}}}}
}
