package kubeapi

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// writes is the right to patch.
func writes(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"patch"}}
}

// reader may read what explain needs, and nothing else.
func reader(t *testing.T, name string) string {
	return person(t, name, reads("", "persistentvolumes", "persistentvolumeclaims", "pods", "nodes", "namespaces", "configmaps"),
		reads("storage.k8s.io", "volumeattachments", "csinodes", "csidrivers"), reads("coordination.k8s.io", "leases"), reads("rbac.authorization.k8s.io", "clusterrolebindings"))
}

// sidecarPod runs csi-fencepost, with a configuration if there is a volume of it.
func sidecarPod(name string, config *corev1.Volume) *corev1.Pod {
	c := corev1.Container{Name: "guard", Image: "registry.example.com/guard:1", Args: []string{"run", "--csi-address=/csi/csi.sock", "--listen=/f/csi.sock"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if config != nil {
		c.Args = append(c.Args, "--config=/etc/guard/config.yaml")
		c.VolumeMounts = []corev1.VolumeMount{{Name: config.Name, MountPath: "/etc/guard"}}
		pod.Spec.Volumes = []corev1.Volume{*config}
	}
	off := false
	pod.Spec.Containers, pod.Spec.AutomountServiceAccountToken = []corev1.Container{c}, &off
	pod.Spec.ServiceAccountName = "default"
	return pod
}

// held: n1 holds the volume and is silent, n2 waits for it.
func held(t *testing.T, pv string) (one *corev1.Node) {
	t.Helper()
	made := addPV(t, pv, "")
	one = addNode(t, "n1", pv)
	addNode(t, "n2")
	annotatePV(t, pv, ledger.Annotation, ledgerOf(made, entry(one)))
	attach(t, pv, "n1", true)
	attach(t, pv, "n2", false)
	return one
}

func TestExplainIsForPeopleWhoCanOnlyRead(t *testing.T) {
	single.take(t)
	whole.use(t)
	held(t, "data")
	a := runAs(t, reader(t, "reader"), "explain", "pv", "data").ends(t, 0)
	a.says(t, "Node n1 (ID i-n1) may be alive", "last written", "attached, asked for", "its Node turned NotReady 3m", "renewed its lease 4m", "Waiting: node n2 (ID i-n2)",
		"The publish to node n2 now: DEPENDS", "If silent: REFUSED [HolderStale]", "csi-fencepost fence confirm n1", "default configuration: no running sidecar was found")
	a.saysNot(t, "Missing right", "\x1b[")
	runAs(t, reader(t, "other-reader"), "explain", "node", "n1").ends(t, 0).says(t, "NotReady", "data default/claim-of-data disk.example.com i-n1 publishing")
}

func TestExplainNamesTheRightThatIsMissing(t *testing.T) {
	single.take(t)
	whole.use(t)
	held(t, "data")
	volumes := person(t, "volumes-only", reads("", "persistentvolumes"))
	runAs(t, volumes, "explain", "pv", "data").ends(t, 0).says(t, "! Missing right: list volumeattachments", "! Missing right: list nodes", "! Missing right: get nodes",
		"! Missing right: get leases in namespace kube-node-lease", "CANNOT BE TOLD", "missing right: list clusterrolebindings")
	runAs(t, volumes, "explain", "node", "n1").ends(t, 0).says(t, "data default/claim-of-data", "! Missing right: get nodes", "! Missing right: list volumeattachments", "missing right: get namespaces kube-system")
	nothing := person(t, "nothing")
	runAs(t, nothing, "explain", "pv", "data").ends(t, 1).says(t, "cannot read PersistentVolume data", `cannot get resource "persistentvolumes"`)
	runAs(t, nothing, "explain", "pod", "db").ends(t, 1).says(t, "cannot read Pod default/db", `cannot get resource "pods"`)
}

func TestExplainFindsPodsAndClaimsInOtherNamespaces(t *testing.T) {
	single.take(t)
	whole.use(t)
	for _, name := range []string{"shop", "shop-test"} {
		_, err := whole.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		pod := sidecarPod("orders-0", nil)
		pod.Spec.Containers[0].Args = nil
		pod.Spec.ServiceAccountName = ""
		_, err = whole.admin.CoreV1().ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		must(t, err)
		_, err = whole.admin.CoreV1().Pods(name).Create(t.Context(), pod, metav1.CreateOptions{})
		must(t, err)
	}
	runAdmin(t, "explain", "pod", "orders-0").ends(t, 1).says(t, "there is no Pod default/orders-0; did you mean -n shop orders-0, -n shop-test orders-0?")
	runAdmin(t, "explain", "pod", "order-0", "-n", "shop").ends(t, 1).says(t, "there is no Pod shop/order-0; did you mean orders-0")
	runAdmin(t, "explain", "pod", "ordres-0").ends(t, 1).says(t, "did you mean orders-0 -n shop")
	runAdmin(t, "explain", "pvc", "nothing-like-it").ends(t, 1).says(t, "there is no PersistentVolumeClaim default/nothing-like-it, nor one with a name like it")
}

// putFence writes what an agent read of a silent node into its record.
func putFence(t *testing.T, n *corev1.Node, state string, ago time.Duration) {
	t.Helper()
	lease, err := whole.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), n.Name, metav1.GetOptions{})
	must(t, err)
	at := time.Now().Add(-ago).UTC().Format(time.RFC3339)
	phase := map[string]record.Phase{"off": record.Fenced, "on": record.Failed}[state]
	_, err = records(t, n.Name).Update(t.Context(), n.Name, func(r *record.Record) (bool, error) {
		r.PutFence(record.Fence{ID: "f-" + state + at, Kind: fence.PowerReading, Actor: "sidecar", Phase: phase, Agents: []string{"bmc"}, StartedAt: at, EndedAt: at,
			Machine: record.FencedMachine{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, LeaseRV: lease.ResourceVersion},
			Steps:   []record.FenceStep{{Agent: "bmc", Action: "status", State: state, Detail: "chassis power is " + state, At: at}}}, "Fence")
		return true, nil
	})
	must(t, err)
}

func TestExplainJudgesByTheReadingsThatARecordKeeps(t *testing.T) {
	single.take(t)
	whole.use(t)
	n := held(t, "data")
	putFence(t, n, "off", 7*time.Minute)
	a := runAdmin(t, "explain", "pv", "data").ends(t, 0)
	a.says(t, "PowerReading by bmc", "read 7m", "and kept in the node's record; not asked again: counts", "record fenced (power) by sidecar")
	a.says(t, "[HolderStillListed]") // fenced; and still on volumesAttached
	runAdmin(t, "explain", "node", "n1").ends(t, 0).says(t, "Evidence PowerReading by bmc, read 7m", "not asked again: counts")

	// The agent reads it as on again: that contradicts what a person says.
	_, err := records(t, "n1").Confirm(t.Context(), "n1", record.Confirmation{By: "alice", Reason: "cord", Machines: []record.Machine{{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, LeaseRV: leaseRV(t, "n1")}}})
	must(t, err)
	putFence(t, n, "on", time.Minute)
	_, err = records(t, "n1").VoidFence(t.Context(), "n1", fenceOf(t, "n1"), "read as on", "sidecar")
	must(t, err)
	runAdmin(t, "explain", "pv", "data").ends(t, 0).says(t, "OperatorConfirmation by alice (cord)", "PowerReading by bmc (chassis power is on), read 6", "reads the machine as running", "now: REFUSED [EvidenceContradicted]", "but PowerReading (bmc) reads the machine as on").saysNot(t, "so it runs")
}

func TestExplainDoesNotJudgeByAnOldReadingOfOn(t *testing.T) {
	single.take(t)
	whole.use(t)
	n := held(t, "data")
	putFence(t, n, "on", time.Hour)
	runAdmin(t, "explain", "pv", "data").ends(t, 0).says(t, "read 60m ago", "too old to say what the agent reads now", "If silent: REFUSED [HolderStale]")
}

func leaseRV(t *testing.T, node string) string {
	t.Helper()
	lease, err := whole.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node, metav1.GetOptions{})
	must(t, err)
	return lease.ResourceVersion
}

func fenceOf(t *testing.T, node string) record.Fence {
	t.Helper()
	r, err := records(t, node).Get(t.Context(), node)
	must(t, err)
	f := r.Fence(fence.PowerReading, "")
	if f == nil {
		t.Fatal("no current fence")
	}
	return *f
}

func TestExplainReadsTheSidecarsConfigurationWhereItMay(t *testing.T) {
	single.take(t)
	whole.use(t)
	held(t, "data")
	cms, pods := whole.admin.CoreV1().ConfigMaps("default"), whole.admin.CoreV1().Pods("default")
	_, err := cms.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Data: map[string]string{"config.yaml": "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Observe\ndriver: {unpublishRevokesAccess: true}\n"}}, metav1.CreateOptions{})
	must(t, err)
	volume := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "guard"}}}}
	_, err = pods.Create(t.Context(), sidecarPod("controller-0", &volume), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		at := int64(0)
		_ = pods.Delete(context.Background(), "controller-0", metav1.DeleteOptions{GracePeriodSeconds: &at})
		_ = cms.Delete(context.Background(), "guard", metav1.DeleteOptions{})
	})
	// Whose pod it is, only a ClusterRoleBinding tells: anybody can have one that looks so.
	runAdmin(t, "explain", "pv", "data").ends(t, 0).says(t, "default configuration: no running sidecar was found")
	bindings := whole.admin.RbacV1().ClusterRoleBindings()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-observe-" + driver}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "csi-fencepost-observe"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}}}
	_, err = bindings.Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = bindings.Delete(context.Background(), binding.Name, metav1.DeleteOptions{}) })
	runAdmin(t, "explain", "pv", "data").ends(t, 0).says(t, "configuration of the sidecar: ConfigMap default/guard, of container guard of pod default/controller-0", "The mode is Observe", "If silent: ALLOWED [HolderRevoked]")
	lacking := person(t, "no-configmaps", reads("", "persistentvolumes", "pods", "nodes", "namespaces"), reads("storage.k8s.io", "volumeattachments", "csinodes", "csidrivers"), reads("coordination.k8s.io", "leases"), reads("rbac.authorization.k8s.io", "clusterrolebindings"))
	runAs(t, lacking, "explain", "pv", "data").ends(t, 0).says(t, "default configuration", "missing right: get configmaps in namespace default", "If silent: REFUSED [HolderStale]")
}

// Whoever may do everything in a namespace of his own has there all that a sidecar has, its
// rights in the cluster aside: a pod, a ConfigMap, the Lease of a leader, a RoleBinding of our
// ClusterRole.
func TestExplainDoesNotLookAtWhatATenantMakesLookLikeOurs(t *testing.T) {
	single.take(t)
	whole.use(t)
	held(t, "data")
	const tenant, account = "explain-tenant", "default" // as the sidecar's is called in its namespace
	manifests, err := deploy.Enforce(deploy.Names{Namespace: "default", ServiceAccount: "default", Driver: driver})
	must(t, err)
	applyAll(t, manifests)
	applyAll(t, []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: `+tenant+`}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: `+tenant+`, name: `+account+`}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: `+tenant+`, name: everything}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: `+tenant+`, name: everything}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: everything}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: `+tenant+`}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: `+tenant+`, name: csi-fencepost-observe-`+driver+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: csi-fencepost-observe}
subjects: [{kind: ServiceAccount, namespace: `+tenant+`, name: `+account+`}]
`))
	kubeconfig, err := whole.bed.Cluster.Kubeconfig(tenant)
	must(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	looks := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Data: map[string]string{"config.yaml": "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Observe\ndriver: {unpublishRevokesAccess: true}\n"}}
	_, err = client.CoreV1().ConfigMaps(tenant).Create(t.Context(), looks, metav1.CreateOptions{})
	must(t, err)
	volume := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "guard"}}}}
	pod := sidecarPod("controller-0", &volume)
	pod.Spec.ServiceAccountName, pod.Spec.Containers[0].Name = account, "csi-fencepost"
	_, err = client.CoreV1().Pods(tenant).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		at := int64(0)
		must(t, client.CoreV1().Pods(tenant).Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &at}))
		must(t, client.CoordinationV1().Leases(tenant).Delete(context.Background(), "csi-fencepost-leader-"+driver, metav1.DeleteOptions{}))
	})
	_, err = client.CoordinationV1().Leases(tenant).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-leader-" + driver}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &pod.Name}}, metav1.CreateOptions{})
	must(t, err)
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-observe-tenant"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "csi-fencepost-observe"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: account}}}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a tenant makes a ClusterRoleBinding: %v", err)
	}
	runAdmin(t, "explain", "pv", "data").ends(t, 0).says(t, "default configuration: no running sidecar was found (looked for as service account default/default)", "If silent: REFUSED [HolderStale]").saysNot(t, tenant)
}

// As a plugin it is found by its name, and names its commands as they are typed.
func TestKubectlFencepostIsTheSameProgram(t *testing.T) {
	single.take(t)
	whole.use(t)
	held(t, "data")
	folder := t.TempDir()
	must(t, os.Symlink(whole.bed.Fencepost, filepath.Join(folder, "kubectl-fencepost")))
	kubeconfig := whole.bed.Cluster.AdminKubeconfig()
	direct := execute(t, filepath.Join(folder, "kubectl-fencepost"), "explain", "pv", "data", "--context=sanity", "--kubeconfig="+kubeconfig).ends(t, 0)
	direct.says(t, "kubectl fencepost fence confirm n1").saysNot(t, "csi-fencepost fence")
	execute(t, filepath.Join(folder, "kubectl-fencepost"), "--help").ends(t, 0).says(t, "Usage: kubectl fencepost SUBCOMMAND")
	execute(t, filepath.Join(folder, "kubectl-fencepost"), "explain").ends(t, 2).says(t, "kubectl fencepost explain pv NAME")
	// JSON stays JSON.
	var e struct{ Kind string }
	must(t, json.Unmarshal([]byte(execute(t, filepath.Join(folder, "kubectl-fencepost"), "explain", "pv", "data", "-o", "json", "--kubeconfig="+kubeconfig).ends(t, 0).stdout), &e))
	if e.Kind != "VolumeExplanation" {
		t.Errorf("kind %q", e.Kind)
	}
	kubectl := filepath.Join(filepath.Dir(whole.bed.Fencepost), "kubectl")
	path := "PATH=" + folder + string(filepath.ListSeparator) + os.Getenv("PATH")
	through := execute(t, "env", path, kubectl, "fencepost", "explain", "pvc", "nothing", "-n", "shop-none", "--context=sanity", "--kubeconfig="+kubeconfig).ends(t, 1)
	through.says(t, "there is no PersistentVolumeClaim shop-none/nothing")
	execute(t, "env", path, kubectl, "fencepost", "explain", "pv", "data", "--kubeconfig="+kubeconfig).ends(t, 0).says(t, "Volume data (claim default/claim-of-data)", "kubectl fencepost fence confirm n1")
}
