package bed

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StatefulSet makes one of a single replica, which may run on any of the stage's
// nodes. Its pod is called name-0, also when it is made again (see PodOf).
func (s *Stage) StatefulSet(name string, volumes ...*Volume) {
	s.T.Helper()
	one, none := int32(1), int64(1)
	labels := map[string]string{"app": name}
	spec := s.PodSpec(nil, volumes...)
	spec.TerminationGracePeriodSeconds = &none
	_, err := s.Client.AppsV1().StatefulSets(s.Name).Create(s.ctx(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Name},
		Spec: appsv1.StatefulSetSpec{Replicas: &one, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}, metav1.CreateOptions{})
	s.must("StatefulSet "+name, err)
}
