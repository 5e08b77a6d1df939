package controlplane

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/realnode"
)

// TestARealNodeRunsContainersUntilItsPowerFails: two of them side by side are two
// machines; containers outlive their kubelet and their runtime, and not the power.
func TestARealNodeRunsContainersUntilItsPowerFails(t *testing.T) {
	c := startCluster(t, Options{})
	real, err := BuildReal(t.Context(), os.Stderr, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*Node
	for _, name := range []string{"n1", "n2"} {
		n, err := c.AddNode(t.Context(), name, NodeOptions{Real: real, Labels: map[string]string{"fencepost.test/stage": "real"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.PowerOff)
		nodes = append(nodes, n)
		i := getNode(t, c, name).Status.NodeInfo
		t.Logf("%s: %+v", name, i)
		if i.BootID != n.BootID() || i.SystemUUID != n.SystemUUID() {
			t.Errorf("%s says boot ID %s and system UUID %s, it has %s and %s", name, i.BootID, i.SystemUUID, n.BootID(), n.SystemUUID())
		}
	}
	reader := tokenOf(t, c, "reader")
	letReadMetrics(t, c, "reader")
	for _, n := range nodes {
		ask(t, n, reader).check(t, n)
		if got := ask(t, n, ""); got.code != http.StatusUnauthorized {
			t.Errorf("node %s answers a caller without a token with %d", n.Name(), got.code)
		}
	}
	for _, n := range nodes {
		folder := filepath.Join(n.root, "data")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-" + n.Name()}, Spec: corev1.PodSpec{NodeName: n.Name(),
			Containers: []corev1.Container{{Name: "db", Image: realnode.Image, ImagePullPolicy: corev1.PullNever, Args: []string{"write", "/data", n.Name(), "/data/told"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder}}}}}}
		if _, err := c.Client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		eventually(t, 60*time.Second, "the pod on "+n.Name()+" runs", func() (bool, string) {
			pod, err := c.Client().CoreV1().Pods("default").Get(t.Context(), "db-"+n.Name(), metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodRunning, fmt.Sprint(err, pod.Status)
		})
		eventually(t, 60*time.Second, "the container on "+n.Name()+" has made its file", func() (bool, string) {
			_, err := os.Stat(n.pages())
			return err == nil, fmt.Sprint(err)
		})
	}
	n := nodes[0]
	if !n.writesOn(t, 30*time.Second) {
		t.Fatal("the container does not write")
	}
	n.KillKubelet()
	n.KillRuntime()
	if !n.writesOn(t, 30*time.Second) {
		t.Error("the container ended with its kubelet and its runtime")
	}
	if err := n.StartRuntime(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !n.writesOn(t, 30*time.Second) {
		t.Error("the container ended when its kubelet and its runtime came back")
	}
	n.PowerOff()
	if n.writesOn(t, time.Second) {
		t.Error("the container writes on without power")
	}
	if !nodes[1].writesOn(t, 30*time.Second) {
		t.Error("the other machine lost its power, too")
	}
	if err := n.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "the pod runs again", func() (bool, string) { return n.writesOn(t, time.Second), "" })
}

// pages is the file of the database in the node's folder data.
func (n *Node) pages() string { return filepath.Join(n.root, "data", "pages.db") }

// writesOn tells whether somebody writes to the node's database within that time.
func (n *Node) writesOn(t *testing.T, within time.Duration) bool {
	t.Helper()
	stat := func() time.Time {
		info, err := os.Stat(n.pages())
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	before := stat()
	for began := time.Now(); time.Since(began) < within; time.Sleep(50 * time.Millisecond) {
		if stat().After(before) {
			return true
		}
	}
	return false
}

func TestARealNodeHasNoClockOfItsOwn(t *testing.T) {
	_, err := new(Cluster).AddNode(t.Context(), "n1", NodeOptions{Real: &Real{}, ClockOffset: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "node n1: a real node has this machine's clock") {
		t.Error(err)
	}
}
