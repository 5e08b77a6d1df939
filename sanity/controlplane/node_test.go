package controlplane

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAMachineKeepsItsNodeAcrossRebootsAndGetsANewOneWhenReplaced(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	n, err := c.AddNode(t.Context(), "n1", NodeOptions{Labels: map[string]string{
		corev1.LabelTopologyZone: "zone-a", corev1.LabelTopologyRegion: "region-a"}})
	if err != nil {
		t.Fatal(err)
	}
	first := getNode(t, c, "n1")
	if first.Labels[corev1.LabelTopologyZone] != "zone-a" || first.Labels[corev1.LabelTopologyRegion] != "region-a" {
		t.Errorf("labels %v", first.Labels)
	}
	n.PowerOff()
	if !n.Kubelet().Exited() || !n.Runtime().Exited() {
		t.Error("kubelet or container runtime run without power")
	}
	if err := n.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	booted := getNode(t, c, "n1")
	if booted.UID != first.UID || booted.Status.NodeInfo.BootID == first.Status.NodeInfo.BootID {
		t.Errorf("after a reboot: UID %s was %s, boot ID %s was %s", booted.UID, first.UID, booted.Status.NodeInfo.BootID, first.Status.NodeInfo.BootID)
	}

	// Its Node is deleted while it lives on, cut off; another machine takes the name.
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := c.Client().CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second, err := c.AddNode(t.Context(), "n1", NodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if second.RootDir() == n.RootDir() {
		t.Error("two machines share a folder")
	}
	if n.Kubelet().Exited() {
		t.Error("the first machine's kubelet has ended")
	}
	if replaced := getNode(t, c, "n1"); replaced.UID == first.UID {
		t.Error("the new machine took over the deleted Node")
	}
	n.PowerOff()
	if err := second.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after Remove: %v, want not found", err)
	}
}

func TestAPausedKubeletFallsSilentUntilItIsResumed(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	n := addNodes(t, c, "n1")[0]
	lease := func() string {
		r, err := n.report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r.lease
	}
	if err := n.AwaitLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	silent := lease()
	time.Sleep(13 * time.Second) // a kubelet renews every 10 s
	if lease() != silent {
		t.Error("a paused kubelet renewed its lease")
	}
	if err := n.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 15*time.Second, "the lease is renewed", func() (bool, string) { return lease() != silent, silent })
}

func TestAKubeletsClockCanBeWrong(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	for name, offset := range map[string]time.Duration{"ahead": 5 * time.Minute, "behind": -5 * time.Minute} {
		n, err := c.AddNode(t.Context(), name, NodeOptions{ClockOffset: offset})
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, at time.Time) {
			if got := time.Until(at); (got - offset).Abs() > time.Minute {
				t.Errorf("node %s: %s is %s from now, want about %s", name, what, got.Round(time.Second), offset)
			}
		}
		if err := n.AwaitLease(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease, err := n.leases().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		check("the lease's renewTime", lease.Spec.RenewTime.Time)
		for _, condition := range getNode(t, c, name).Status.Conditions {
			if condition.Type == corev1.NodeReady {
				check("Ready's lastHeartbeatTime", condition.LastHeartbeatTime.Time)
				check("Ready's lastTransitionTime", condition.LastTransitionTime.Time)
			}
		}
		createRunningPod(t, c, plainPod("on-"+name, name))
	}
}
