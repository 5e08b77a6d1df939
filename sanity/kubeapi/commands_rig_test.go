package kubeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const driver = "disk.example.com"

// An answer is what a command printed.
type answer struct {
	stdout, stderr string
	code           int
}

// runAdmin runs a command as admin.
func runAdmin(t *testing.T, args ...string) answer {
	t.Helper()
	return runAs(t, whole.bed.Cluster.AdminKubeconfig(), args...)
}

func runAs(t *testing.T, kubeconfig string, args ...string) answer {
	t.Helper()
	return execute(t, whole.bed.Fencepost, append(args, "--kubeconfig="+kubeconfig)...)
}

func execute(t *testing.T, program string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	a := answer{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if testing.Verbose() {
		t.Logf("$ csi-fencepost %s\n%s%s(exit code %d)", strings.Join(args[:len(args)-1], " "), a.stdout, a.stderr, a.code)
	}
	return a
}

// ends asserts the exit code.
func (a answer) ends(t *testing.T, code int) answer {
	t.Helper()
	if a.code != code {
		t.Fatalf("exit code %d, want %d\n%s%s", a.code, code, a.stdout, a.stderr)
	}
	return a
}

// says asserts that the words are printed, however the lines are wrapped.
func (a answer) says(t *testing.T, parts ...string) answer {
	t.Helper()
	text := strings.Join(strings.Fields(a.stdout+a.stderr), " ")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s%s", part, a.stdout, a.stderr)
		}
	}
	return a
}

func (a answer) saysNot(t *testing.T, parts ...string) answer {
	t.Helper()
	text := strings.Join(strings.Fields(a.stdout+a.stderr), " ")
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("it says %q:\n%s%s", part, a.stdout, a.stderr)
		}
	}
	return a
}

// addPV creates a PersistentVolume whose ledger is text; empty: none.
func addPV(t *testing.T, name, text string) *corev1.PersistentVolume {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if text != "" {
		pv.Annotations = map[string]string{ledger.Annotation: text}
	}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-of-" + name}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "claim-of-" + name}
	made, err := whole.admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, whole.admin.CoreV1().PersistentVolumes().Delete(context.Background(), name, metav1.DeleteOptions{}))
		off := []byte(`{"metadata":{"finalizers":null}}`)
		_, _ = whole.admin.CoreV1().PersistentVolumes().Patch(context.Background(), name, "application/merge-patch+json", off, metav1.PatchOptions{})
	})
	return made
}

// ledgerOf is the text of a ledger of that PersistentVolume in this cluster.
func ledgerOf(pv *corev1.PersistentVolume, entries ...ledger.Entry) string {
	l := ledger.Ledger{Version: ledger.Version, Driver: driver, Handle: "vol-of-" + pv.Name, Cluster: whole.cluster, PVUID: string(pv.UID), Holders: entries}
	return l.String()
}

// annotatePV sets an annotation of a PersistentVolume.
func annotatePV(t *testing.T, pv, key, value string) {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	_, err := whole.admin.CoreV1().PersistentVolumes().Patch(t.Context(), pv, "application/merge-patch+json", []byte(body), metav1.PatchOptions{})
	must(t, err)
}

func readPV(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	pv, err := whole.admin.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return pv
}

// addNode registers a Node with the driver's node ID "i-NAME", without a kubelet.
func addNode(t *testing.T, name string, uses ...string) *corev1.Node {
	t.Helper()
	nodes := whole.admin.CoreV1().Nodes()
	n, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, nodes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	n.Status.NodeInfo.BootID = "boot-of-" + name
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(time.Now().Add(-3 * time.Minute))}}
	for _, pv := range uses {
		unique := corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^vol-of-" + pv)
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, unique)
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: unique, DevicePath: "csi"})
	}
	n, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	must(t, err)
	csiNodes := whole.admin.StorageV1().CSINodes()
	_, err = csiNodes.Create(t.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "i-" + name}}}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, csiNodes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	renewed := metav1.NewMicroTime(time.Now().Add(-4 * time.Minute))
	addLease(t, corev1.NamespaceNodeLease, name, nil, coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &renewed})
	return n
}

func addLease(t *testing.T, in, name string, annotations map[string]string, spec coordinationv1.LeaseSpec) *coordinationv1.Lease {
	t.Helper()
	leases := whole.admin.CoordinationV1().Leases(in)
	made, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: spec}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = leases.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return made
}

// attach creates the VolumeAttachment of a volume on a node.
func attach(t *testing.T, pv, node string, attached bool) string {
	t.Helper()
	attachments := whole.admin.StorageV1().VolumeAttachments()
	name := csi.AttachmentName("vol-of-"+pv, driver, node)
	va, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, attachments.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	va.Status.Attached = attached
	_, err = attachments.UpdateStatus(t.Context(), va, metav1.UpdateOptions{})
	must(t, err)
	return name
}

func entry(n *corev1.Node) ledger.Entry {
	return ledger.Entry{NodeID: "i-" + n.Name, NodeName: n.Name, NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, Token: "token-" + n.Name, State: fence.Publishing}
}

// records is where the nodes' records are; they go with the test.
func records(t *testing.T, nodes ...string) *record.Store {
	t.Helper()
	t.Cleanup(func() {
		for _, node := range nodes {
			_ = whole.admin.CoordinationV1().Leases(namespace).Delete(context.Background(), record.LeaseName(node), metav1.DeleteOptions{})
		}
	})
	return record.NewStore(whole.admin.CoordinationV1(), namespace)
}

// person is the kubeconfig of somebody with these rights.
func person(t *testing.T, name string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	roles := whole.admin.RbacV1()
	_, err := roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = roles.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, errors.Join(roles.ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{}), roles.ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})))
	})
	kubeconfig, err := whole.bed.Cluster.Kubeconfig(name)
	must(t, err)
	return kubeconfig
}

// reads are the rights to get and list.
func reads(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list"}}
}
