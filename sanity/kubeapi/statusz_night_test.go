package kubeapi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

const (
	arraySecret = "s3cr3t-of-the-array"
	agentSecret = "s3cr3t-of-the-pdu"
	// markup is in names and reasons that people and drivers choose.
	markup = `<img src=x onerror=alert(1)>`
)

// night is a csi-fencepost with something to tell.
type night struct {
	*bed.Stage
	t       *testing.T
	process *controlplane.Process
	proxy   spec.ControllerClient
}

// tellNight sets the stage, lives through a bad night and returns when the brake
// holds. It takes a minute: that is how long a node has to be silent.
func tellNight(t *testing.T) *night {
	t.Helper()
	staged.take(t)
	o := bed.StageOptions{Nodes: -1, Manual: true, Failover: true, Driver: "disk.example.com", Secrets: map[string]string{"token": arraySecret},
		Array: func(s *array.Switches) { s.EnforceSingleAttach = false }, FencepostArgs: []string{"--http-endpoint=127.0.0.1:0"}}
	s := &night{t: t, Stage: ownServer(t).Stage(t, "night", o)}
	s.configure()
	s.process = s.ExtraFencepost("fp")
	s.proxy = s.Caller("fp.sock")

	silent, broken, alive := s.node("rack-1-worker-07"), s.node("rack-2-worker-19"), s.node("rack-1-worker-02")
	gone, spare := s.node("rack-3-worker-31"), s.node("rack-1-worker-03")
	db, queue, cache, logs := s.volume("pvc-5b1f0c3e-postgres-0"), s.volume("pvc-91d2aa40-rabbitmq-2"), s.volume("pvc-0e77c9d1-redis-1"), s.volume("pvc-c3301b77-loki-0")
	for v, n := range map[*bed.Volume]*bed.Node{db: silent, queue: broken, cache: alive, logs: gone} {
		s.attachment(v, n)
		s.must(s.publish(v, n))
		s.lists(n, v)
	}
	for range 2 { // the kubelets renew twice; then two of them are silent
		for _, n := range []*bed.Node{silent, broken, alive, spare, gone} {
			s.renew(n)
		}
		time.Sleep(time.Second)
	}
	quiet := time.Now()
	go s.keepAlive(alive, spare)
	s.cordon(silent)
	time.Sleep(14 * time.Second)
	s.confirm(gone)
	s.WaitFor(20*time.Second, "the volume of the node that an operator confirmed moves", func() bool { return s.publish(logs, spare) == nil })
	for _, v := range []*bed.Volume{db, queue, cache} {
		s.attachment(v, spare)
		for range 3 {
			if s.publish(v, spare) == nil {
				t.Fatalf("%s was published to a second node", v.Name)
			}
		}
	}
	s.WaitFor(100*time.Second-time.Since(quiet), "a brake holds", func() bool {
		_, metrics := s.HTTP(s.process, "/metrics")
		return strings.Contains(metrics, `csi_fencepost_fencing_blocked{reason="Cordoned"} 1`)
	})
	return s
}

// configure has one agent that answers for one node, and one that answers for
// none.
func (s *night) configure() {
	plugs := s.Plugs("fence_bmc", "fence_pdu")
	s.must(plugs.Set("7", true))
	s.Write("password", agentSecret+"\n", 0o600)
	exec := func(name, node, plug string) string {
		return fmt.Sprintf(`  - agents: [{name: %s, timeout: 5s, exec: {agent: fence_%s, parameterFiles: {password: %s}, nodeParameters: {plug: {%s: "%s"}}}}]`,
			name, name, s.Socket("password"), node, plug)
	}
	s.Options.Config = "failover: {enabled: true}\nfencing:\n  suspectAfter: 12s\n  fenceAfter: 50s\n  maxUnhealthy: 100%\n  levels:\n" +
		exec("bmc", "rack-1-worker-07", "7") + "\n" + exec("pdu", "rack-2-worker-19", "19")
}

func (s *night) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// node is a machine; the test is its kubelet.
func (s *night) node(name string) *bed.Node {
	s.t.Helper()
	n := &bed.Node{Name: name, ID: "i-" + name}
	s.must(s.Array.AddMachine(n.ID))
	_, err := s.Client.StorageV1().CSINodes().Create(s.t.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: s.Driver, NodeID: n.ID}}}}, metav1.CreateOptions{})
	s.must(err)
	made, err := s.Client.CoreV1().Nodes().Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	made.Status.NodeInfo.BootID = "boot-of-" + name
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)), LastHeartbeatTime: metav1.Now()}}
	_, err = s.Client.CoreV1().Nodes().UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{})
	s.must(err)
	return n
}

func (s *night) volume(name string) *bed.Volume { return s.Volume(name, bed.VolumeOptions{}) }

func (s *night) attachment(v *bed.Volume, n *bed.Node) {
	s.t.Helper()
	_, err := s.Client.StorageV1().VolumeAttachments().Create(s.t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(v.Handle, s.Driver, n.Name), Annotations: map[string]string{csi.NodeIDAnnotation: n.ID}},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: s.Driver, NodeName: n.Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name}},
	}, metav1.CreateOptions{})
	s.must(err)
}

func (s *night) publish(v *bed.Volume, n *bed.Node) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 15*time.Second)
	defer cancel()
	req := v.PublishRequest(n)
	req.Secrets = s.Options.Secrets
	_, err := s.proxy.ControllerPublishVolume(ctx, req)
	return err
}

// lists is what kubelet and controller write of a mounted volume.
func (s *night) lists(n *bed.Node, v *bed.Volume) {
	s.t.Helper()
	name := "kubernetes.io/csi/" + s.Driver + "^" + v.Handle
	patch := fmt.Sprintf(`{"status":{"volumesInUse":[%q]}}`, name)
	_, err := s.Client.CoreV1().Nodes().Patch(s.t.Context(), n.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	s.must(err)
}

func (s *night) cordon(n *bed.Node) {
	s.t.Helper()
	_, err := s.Client.CoreV1().Nodes().Patch(s.t.Context(), n.Name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	s.must(err)
}

func (s *night) renew(n *bed.Node) {
	now, leases := metav1.NewMicroTime(time.Now()), s.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(s.t.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		_, _ = leases.Create(s.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, RenewTime: &now}}, metav1.CreateOptions{})
		return
	}
	lease.Spec.RenewTime = &now
	_, _ = leases.Update(s.t.Context(), lease, metav1.UpdateOptions{})
}

func (s *night) keepAlive(nodes ...*bed.Node) {
	for s.t.Context().Err() == nil {
		for _, n := range nodes {
			s.renew(n)
		}
		time.Sleep(2 * time.Second)
	}
}

// confirm: the machine has no power, its VolumeAttachment is being deleted, and
// an operator says that it is off.
func (s *night) confirm(n *bed.Node) {
	s.t.Helper()
	s.must(s.Array.PowerOff(n.ID))
	node, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), n.Name, metav1.GetOptions{})
	s.must(err)
	lease, err := s.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(s.t.Context(), n.Name, metav1.GetOptions{})
	s.must(err)
	vas, err := s.Client.StorageV1().VolumeAttachments().List(s.t.Context(), metav1.ListOptions{})
	s.must(err)
	for _, va := range vas.Items {
		if va.Spec.NodeName == n.Name {
			s.must(s.Client.StorageV1().VolumeAttachments().Delete(s.t.Context(), va.Name, metav1.DeleteOptions{}))
		}
	}
	_, err = record.NewStore(s.Client.CoordinationV1(), "csi-fencepost").Confirm(s.t.Context(), n.Name, record.Confirmation{By: "ann@example.com",
		Reason: "power supply burnt " + markup, Machines: []record.Machine{{NodeID: n.ID, NodeUID: string(node.UID), BootID: node.Status.NodeInfo.BootID, LeaseRV: lease.ResourceVersion}}})
	s.must(err)
}
