package controlplane

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// createVolume creates a volume and a claim, already bound to each other.
func createVolume(t *testing.T, c *Cluster, name string) {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	noClass := ""
	_, err := c.Client().CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes,
			ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "handle-" + name}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Client().CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: &noClass, VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func podWithVolume(name, node, claim string) *corev1.Pod {
	pod := plainPod(name, node)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return pod
}

func getNode(t *testing.T, c *Cluster, name string) *corev1.Node {
	t.Helper()
	node, err := c.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func TestKubeletRestartFindsContainersAndMountedVolumes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{ForceDetachAfter: 2 * time.Second, NodeMonitorGracePeriod: 21 * time.Second})
	n := addNodes(t, c, "n1")[0]
	d, socket := startDriver(t, c, n)
	if _, err := c.StartAttacher(AttacherOptions{Address: socket, Restart: true}); err != nil {
		t.Fatal(err)
	}
	createVolume(t, c, "pv-1")
	before := createRunningPod(t, c, podWithVolume("writer", "n1", "pv-1"))

	n.KillKubelet()
	if err := n.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the restarted kubelet says that it uses the volume", func() (bool, string) {
		node := getNode(t, c, "n1")
		return len(node.Status.VolumesInUse) == 1 && len(node.Status.VolumesAttached) == 1, fmt.Sprint(node.Status.VolumesInUse)
	})
	after := awaitRunning(t, c, "writer")
	if got, want := after.Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]; got.ContainerID != want.ContainerID || got.RestartCount != 0 {
		t.Errorf("container %s, restarts %d; want %s as before", got.ContainerID, got.RestartCount, want.ContainerID)
	}
	if attached, staged, published := d.state(); !attached || !staged || published != 1 {
		t.Errorf("attached %v, staged %v, published %d: the restart took the volume away", attached, staged, published)
	}

	// The controller takes the mounted volume away while no kubelet is there.
	d.setBusy(true)
	n.KillKubelet()
	now := int64(0)
	if err := c.Client().CoreV1().Pods("default").Delete(t.Context(), "writer", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "the controller detaches by force", func() (bool, string) {
		attached, _, _ := d.state()
		return !attached && len(getNode(t, c, "n1").Status.VolumesAttached) == 0, fmt.Sprint(attached)
	})
	if err := n.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the restarted kubelet forgets a volume that is still mounted", func() (bool, string) {
		_, staged, published := d.state()
		if !staged || published != 1 {
			t.Fatalf("staged %v, published %d although the volume is busy", staged, published)
		}
		inUse := getNode(t, c, "n1").Status.VolumesInUse
		return len(inUse) == 0, fmt.Sprint(inUse)
	})
	d.setBusy(false)
	eventually(t, 60*time.Second, "the kubelet unmounts what it found on its disk", func() (bool, string) {
		_, staged, published := d.state()
		return !staged && published == 0, fmt.Sprint(staged, published)
	})
}
