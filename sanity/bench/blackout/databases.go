package blackout

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// Name of the StatefulSet; its pods are db-0, db-1 and so on.
const Name = "db"

// Databases are the pods of a StatefulSet, with a volume each.
type Databases struct {
	Stage   *bed.Stage
	Volumes []*bed.Volume
	// Old is the node that they all run on at first.
	Old *bed.Node

	sight *sight
}

// New starts n databases on the stage's first node and returns when all run.
// They may run on the stage's other nodes as well, of which there has to be one.
// A StatefulSet, because it is what databases are run by, and because it never
// starts a second pod while the first one may run.
func New(s *bed.Stage, n int) *Databases {
	s.T.Helper()
	d := &Databases{Stage: s, Old: s.Nodes[0]}
	d.sight = newSight(s, d.Old)
	for i := range n {
		d.Volumes = append(d.Volumes, s.Volume(fmt.Sprintf("%s-%d", Name, i), bed.VolumeOptions{}))
	}
	for _, other := range s.Nodes[1:] {
		other.Cordon()
	}
	if _, err := s.Client.AppsV1().StatefulSets(s.Name).Create(s.T.Context(), d.statefulSet(n), metav1.CreateOptions{}); err != nil {
		s.T.Fatalf("%s: StatefulSet: %v", s.Name, err)
	}
	s.WaitFor(5*time.Minute, fmt.Sprintf("%d databases run on %s", n, d.Old.Name), func() bool { return d.sight.settled() == n })
	for _, other := range s.Nodes[1:] {
		other.Uncordon()
	}
	return d
}

func (d *Databases) statefulSet(n int) *appsv1.StatefulSet {
	replicas, none, labels := int32(n), int64(1), map[string]string{"app": Name}
	pod := d.Stage.PodSpec(nil)
	pod.TerminationGracePeriodSeconds = &none
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: d.Stage.Name, MountPath: "/data"}}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: d.Stage.Name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: Name, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
			// A template's name, the StatefulSet's and the ordinal make the claim's
			// name: here that of the stage's volumes, which are there already.
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: d.Stage.Name},
				Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
			}},
		},
	}
}

// PowerOff takes the old node's power.
func (d *Databases) PowerOff() {
	d.Stage.T.Helper()
	d.sight.powerOff()
	d.Old.PowerOff()
}
