package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startCluster starts a cluster that the test stops at its end.
func startCluster(t *testing.T, options Options) *Cluster {
	t.Helper()
	var err error
	if options.Binaries, err = Build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	options.KeepOnFailure = t.Failed
	cluster, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the cluster's folder is kept: %s", cluster.Folder())
		}
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// addNodes boots nodes side by side.
func addNodes(t *testing.T, c *Cluster, names ...string) []*Node {
	t.Helper()
	nodes := make([]*Node, len(names))
	errs := make([]error, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() { nodes[i], errs[i] = c.AddNode(t.Context(), name, NodeOptions{}) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// eventually fails the test unless the condition holds within the time.
func eventually(t *testing.T, within time.Duration, what string, condition func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		ok, last := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s (last seen: %s)", within, what, last)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// plainPod is a pod of one container without a service account token.
func plainPod(name, node string) *corev1.Pod {
	no, zero := false, int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			AutomountServiceAccountToken:  &no,
			TerminationGracePeriodSeconds: &zero,
			Containers:                    []corev1.Container{{Name: "main", Image: "example.com/image:1"}},
		},
	}
}

func createRunningPod(t *testing.T, c *Cluster, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if _, err := c.Client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return awaitRunning(t, c, pod.Name)
}

func awaitRunning(t *testing.T, c *Cluster, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, 60*time.Second, "pod "+name+" runs", func() (bool, string) {
		var err error
		pod, err = c.Client().CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == corev1.PodRunning, fmt.Sprint(pod.Status)
	})
	return pod
}

func TestClusterRunsPodsOnThreeNodesAndLeavesNothingBehind(t *testing.T) {
	begin := time.Now()
	c := startCluster(t, Options{})
	serves := time.Since(begin)
	addNodes(t, c, "n1", "n2", "n3")
	ready := time.Since(begin)
	createRunningPod(t, c, plainPod("plain", ""))
	running := time.Since(begin)
	t.Logf("control plane serves after %s, three nodes Ready after %s, pod Running after %s", serves, ready, running)

	before := c.Usage()
	time.Sleep(5 * time.Second)
	var resident int64
	for i, usage := range c.Usage() {
		resident += usage.Resident
		t.Logf("%-24s %4d MB  CPU %6s, idle %.1f%%", usage.Name, usage.Resident>>20, usage.CPU,
			100*(usage.CPU-before[i].CPU).Seconds()/5)
	}
	t.Logf("%-24s %4d MB", "all", resident>>20)

	var pids []int
	for _, p := range c.processes {
		pids = append(pids, p.Pid())
	}
	if want := 4 + 3*2; len(pids) != want {
		t.Errorf("%d processes, want %d", len(pids), want)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	if _, err := os.Stat(c.Folder()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder %s is still there: %v", c.Folder(), err)
	}
	if _, err := c.StartProcess(ProcessOptions{Name: "late", Path: "/bin/true"}); err == nil {
		t.Error("a stopped cluster starts a process")
	}
}
