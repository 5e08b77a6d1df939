package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode"
)

// A real node starts the sidecar in the form that inject gives it before the containers, and
// ends it after them, whatever time they take. In place of each of them a database writes.
func TestARealNodeEndsANativeSidecarAfterTheAttacher(t *testing.T) {
	c := startCluster(t, Options{})
	real, err := BuildReal(t.Context(), os.Stderr, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.AddNode(t.Context(), "n1", NodeOptions{Real: real, Labels: map[string]string{"fencepost.test/stage": "real"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.PowerOff)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	file := map[string]string{}
	for _, container := range nativePod(t) {
		folder := filepath.Join(n.root, container.Name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		file[container.Name] = filepath.Join(folder, "pages.db")
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: container.Name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder}}})
		stand := corev1.Container{Name: container.Name, RestartPolicy: container.RestartPolicy, Image: realnode.Image, ImagePullPolicy: corev1.PullNever,
			Args: []string{"write", "/data", container.Name, "/data/told"}, VolumeMounts: []corev1.VolumeMount{{Name: container.Name, MountPath: "/data"}}}
		if container.Name != "csi-fencepost" {
			stand.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 4}}}
		}
		if container.RestartPolicy != nil {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, stand)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, stand)
		}
	}
	pods := c.Client().CoreV1().Pods("default")
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "all of the pod run", func() (bool, string) {
		now, err := pods.Get(t.Context(), "controller", metav1.GetOptions{})
		if err != nil || now.Status.Phase != corev1.PodRunning {
			return false, fmt.Sprint(err, now.Status)
		}
		started := map[string]metav1.Time{}
		for _, s := range append(now.Status.InitContainerStatuses, now.Status.ContainerStatuses...) {
			if s.State.Running == nil {
				return false, fmt.Sprint(now.Status)
			}
			started[s.Name] = s.State.Running.StartedAt
			if _, err := os.Stat(file[s.Name]); err != nil {
				return false, err.Error()
			}
		}
		for name, at := range started {
			if first := started["csi-fencepost"]; at.Before(&first) {
				t.Errorf("%s started before the sidecar", name)
			}
		}
		return len(started) == len(file), fmt.Sprint(started)
	})
	if err := pods.Delete(t.Context(), "controller", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "the pod is gone", func() (bool, string) {
		_, err := pods.Get(t.Context(), "controller", metav1.GetOptions{})
		return err != nil, ""
	})
	last := map[string]time.Time{}
	for name, path := range file {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		last[name] = info.ModTime()
	}
	for _, name := range []string{"driver", "csi-attacher"} {
		// Told to end in the same moment, it would have ended 4 s before them.
		if early := last[name].Sub(last["csi-fencepost"]); early > time.Second {
			t.Errorf("the sidecar wrote last %s before %s did", early, name)
		}
	}
	t.Logf("wrote last: %v", last)
}

// nativePod are the containers that inject makes of a driver's.
func nativePod(t *testing.T) []corev1.Container {
	t.Helper()
	mounts := []corev1.VolumeMount{{Name: "s", MountPath: "/csi"}}
	w := &inject.Workload{APIVersion: "apps/v1", Kind: "Deployment", ObjectMeta: metav1.ObjectMeta{Name: "controller", Namespace: "default"}}
	w.Template.Spec.Containers = []corev1.Container{
		{Name: "driver", Args: []string{"--drivername=array.example.com"}, VolumeMounts: mounts},
		{Name: "csi-attacher", Image: "registry.k8s.io/sig-storage/csi-attacher:v4.12.0", Args: []string{"--csi-address=/csi/csi.sock"}, VolumeMounts: mounts},
	}
	plans, err := inject.NewPlans(w, inject.Options{Native: new(true)})
	if err != nil || len(plans) != 1 {
		t.Fatalf("%d plans: %v", len(plans), err)
	}
	return append([]corev1.Container{plans[0].Sidecar}, w.Template.Spec.Containers...)
}
