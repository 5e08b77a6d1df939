package kubeapi

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
)

// installed leaves behind everything that csi-fencepost writes, and beside each
// piece one of somebody else.
func installed(t *testing.T) (attachment string) {
	t.Helper()
	pv := addPV(t, "data", "")
	n := addNode(t, "n1", "data")
	annotatePV(t, "data", ledger.Annotation, ledgerOf(pv, entry(n)))
	annotatePV(t, "data", "example.com/keep", "me")
	attachment = attach(t, "data", "n1", true)
	_, err := whole.admin.StorageV1().VolumeAttachments().Patch(t.Context(), attachment, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+waiting.RetryAnnotation+`":"x","example.com/keep":"me"}}}`), metav1.PatchOptions{})
	must(t, err)
	_, err = whole.admin.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"csi-fencepost.io/witness":"of a version before","`+failover.MaintenanceAnnotation+`":"true"}},"spec":{"taints":[
			{"key":"node.kubernetes.io/out-of-service","value":"csi-fencepost","effect":"NoExecute"},{"key":"example.com/keep","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	must(t, err)
	_, err = records(t, "n1").Confirm(t.Context(), "n1", record.Confirmation{By: "alice", Reason: "cord", Machines: []record.Machine{{NodeUID: string(n.UID)}}})
	must(t, err)
	nobody := ""
	addLease(t, "default", "csi-fencepost-leader-"+driver, nil, coordinationv1.LeaseSpec{HolderIdentity: &nobody})
	addLease(t, namespace, "somebody-elses", nil, coordinationv1.LeaseSpec{})
	return attachment
}

func TestUninstallTakesAwayWhatIsOursAndNothingElse(t *testing.T) {
	single.take(t)
	whole.use(t)
	attachment := installed(t)
	shown := runAdmin(t, "uninstall").ends(t, 0).says(t, "PersistentVolumes with annotations (1): data", "VolumeAttachments with annotations (1): "+attachment,
		"Nodes with taint node.kubernetes.io/out-of-service=csi-fencepost (1): n1", "Nodes with annotations (1): n1",
		"Leases of leaders (1): default/csi-fencepost-leader-"+driver, "Leases with nodes' records (1): csi-fencepost/node-n1",
		"Node n1 is not Ready", "Nothing was removed. To remove it: csi-fencepost uninstall --yes")
	shown.saysNot(t, "somebody-elses")
	if readPV(t, "data").Annotations[ledger.Annotation] == "" {
		t.Fatal("without --yes it removed something")
	}
	runAdmin(t, "uninstall", "--yes").ends(t, 0).says(t, "Removed: PersistentVolumes with annotations (1)", "Nothing of csi-fencepost is left.")

	pv := readPV(t, "data")
	if _, there := pv.Annotations[ledger.Annotation]; there || pv.Annotations["example.com/keep"] != "me" {
		t.Errorf("PersistentVolume: %v", pv.Annotations)
	}
	va, err := whole.admin.StorageV1().VolumeAttachments().Get(t.Context(), attachment, metav1.GetOptions{})
	must(t, err)
	if _, there := va.Annotations[waiting.RetryAnnotation]; there || va.Annotations["example.com/keep"] != "me" {
		t.Errorf("VolumeAttachment: %v", va.Annotations)
	}
	n, err := whole.admin.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	must(t, err)
	if _, there := n.Annotations["csi-fencepost.io/witness"]; there || n.Annotations[failover.MaintenanceAnnotation] != "true" {
		t.Errorf("annotations of the Node: %v", n.Annotations)
	}
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			t.Errorf("our taint is still there")
		}
	}
	if len(n.Spec.Taints) == 0 {
		t.Errorf("somebody's taint is gone")
	}
	for lease, in := range map[string]string{"node-n1": namespace, "csi-fencepost-leader-" + driver: "default"} {
		if _, err := whole.admin.CoordinationV1().Leases(in).Get(t.Context(), lease, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Lease %s/%s is still there: %v", in, lease, err)
		}
	}
	if _, err := whole.admin.CoordinationV1().Leases(namespace).Get(t.Context(), "somebody-elses", metav1.GetOptions{}); err != nil {
		t.Errorf("somebody's Lease: %v", err)
	}
	runAdmin(t, "uninstall", "--yes").ends(t, 0).says(t, "csi-fencepost has left nothing in this cluster.")
}

// A person's out-of-service taint is theirs.
func TestUninstallLeavesAPersonsTaint(t *testing.T) {
	single.take(t)
	whole.use(t)
	addNode(t, "n1")
	_, err := whole.admin.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	must(t, err)
	runAdmin(t, "uninstall", "--yes").ends(t, 0).says(t, "left nothing")
}

// sidecarsAccount gives the account of the pods in namespace default what every sidecar has.
func sidecarsAccount(t *testing.T) {
	t.Helper()
	manifests, err := deploy.Observe(deploy.Names{Namespace: "default", ServiceAccount: "default", Driver: driver})
	must(t, err)
	applyAll(t, manifests)
}

// looksLikeASidecar has what a tenant can make in his namespace: a pod that runs csi-fencepost by all that is seen
// of it, and the Lease of a leader, which is renewed until it is stopped.
func looksLikeASidecar(t *testing.T, tenant string) (stop func()) {
	t.Helper()
	applyAll(t, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+tenant+"}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: "+tenant+", name: default}\n---\n"+
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {namespace: "+tenant+", name: observe}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n"+
		"subjects: [{kind: ServiceAccount, namespace: "+tenant+", name: default}]\n"))
	pods, pod := whole.admin.CoreV1().Pods(tenant), sidecarPod("controller-0", nil)
	pod.Spec.Containers[0].Name = "csi-fencepost"
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		at := int64(0)
		_ = pods.Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &at})
	})
	return renewing(t, addLease(t, tenant, "csi-fencepost-leader-"+driver, nil, coordinationv1.LeaseSpec{HolderIdentity: &pod.Name}))
}

// renewing renews the Lease every second, until it is stopped.
func renewing(t *testing.T, lease *coordinationv1.Lease) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			now := metav1.NowMicro()
			lease.Spec.RenewTime = &now
			if next, err := whole.admin.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = next
			}
			time.Sleep(time.Second)
		}
	}()
	return func() { cancel(); <-ended }
}

// Nothing that a tenant has in his namespace keeps anything from being removed, and what runs by an account that
// may something in the cluster does, whatever its rights are called and whoever its binding names.
func TestUninstallIsNotSteeredByWhatATenantMakesLookLikeOurs(t *testing.T) {
	single.take(t)
	whole.use(t)
	addPV(t, "data", "{}")
	const tenant = "uninstall-tenant"
	stop := looksLikeASidecar(t, tenant)
	defer stop()
	for name, subject := range map[string]rbacv1.Subject{
		"account": {Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: "default"},
		"user":    {Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccount:" + tenant + ":default"},
		"group":   {Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + tenant},
		"all":     {Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"},
	} {
		person(t, "forgotten-"+name, reads("", "persistentvolumes"))
		roles := whole.admin.RbacV1().ClusterRoleBindings()
		_, err := roles.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "forgotten-of-" + name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "forgotten-" + name}, Subjects: []rbacv1.Subject{subject}}, metav1.CreateOptions{})
		must(t, err)
		runAdmin(t, "uninstall", "--yes").ends(t, 1).says(t, "A sidecar runs: container csi-fencepost of pod "+tenant+"/controller-0")
		must(t, roles.Delete(t.Context(), "forgotten-of-"+name, metav1.DeleteOptions{}))
	}
	// Who may not ask what an account may takes it for a sidecar's.
	half := person(t, "may-not-ask", reads("", "persistentvolumes", "nodes", "pods"), reads("storage.k8s.io", "volumeattachments"), reads("coordination.k8s.io", "leases"))
	runAs(t, half, "uninstall", "--yes").ends(t, 1).says(t, "A sidecar runs: container csi-fencepost of pod "+tenant+"/controller-0")
	if readPV(t, "data").Annotations[ledger.Annotation] == "" {
		t.Fatal("it removed something")
	}
	runAdmin(t, "uninstall", "--yes").ends(t, 0).says(t, "Not taken for a sidecar", "pod "+tenant+"/controller-0", "Nothing of csi-fencepost is left.").saysNot(t, "A sidecar runs")
}

func TestUninstallRefusesWhileASidecarRuns(t *testing.T) {
	single.take(t)
	whole.use(t)
	addPV(t, "data", "{}")
	sidecarsAccount(t)
	pods := whole.admin.CoreV1().Pods("default")
	_, err := pods.Create(t.Context(), sidecarPod("controller-0", nil), metav1.CreateOptions{})
	must(t, err)
	gone := func() {
		at := int64(0)
		_ = pods.Delete(context.Background(), "controller-0", metav1.DeleteOptions{GracePeriodSeconds: &at})
	}
	t.Cleanup(gone)
	runAdmin(t, "uninstall", "--yes").ends(t, 1).says(t, "A sidecar runs: container guard of pod default/controller-0", "csi-fencepost uninject", "nothing was removed")
	if readPV(t, "data").Annotations[ledger.Annotation] == "" {
		t.Fatal("it removed something")
	}
	runAdmin(t, "uninstall", "--yes", "--force").ends(t, 0).says(t, "Removed: ")
}

// What tells is that the Lease changes: a pod may not be visible to everybody,
// and clocks are not compared.
func TestUninstallRefusesWhileALeaderRenewsItsLease(t *testing.T) {
	single.take(t)
	whole.use(t)
	addPV(t, "data", "{}")
	who := "controller-0"
	lease := addLease(t, "default", "csi-fencepost-leader-"+driver, nil, coordinationv1.LeaseSpec{HolderIdentity: &who})
	sidecarsAccount(t)
	stop := renewing(t, lease)
	runAdmin(t, "uninstall", "--yes").ends(t, 1).says(t, "Lease default/csi-fencepost-leader-"+driver+", held by controller-0, was just renewed")
	stop()
	if readPV(t, "data").Annotations[ledger.Annotation] == "" {
		t.Fatal("it removed something")
	}
	// A Lease that a dead leader left behind is no sidecar.
	runAdmin(t, "uninstall", "--yes").ends(t, 0).says(t, "Nothing of csi-fencepost is left.")
}

// Only the record knows that the storage refuses a node.
func TestUninstallRefusesWhileANodeIsCutOffFromItsStorage(t *testing.T) {
	single.take(t)
	whole.use(t)
	n := addNode(t, "n1")
	_, err := records(t, "n1").Update(t.Context(), "n1", func(r *record.Record) (bool, error) {
		r.PutFence(record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: driver, Actor: "x", Phase: record.Fenced, StartedAt: "2026-11-21T10:00:00Z",
			Machine: record.FencedMachine{NodeUID: string(n.UID), BootID: "b"}}, "Fence")
		return true, nil
	})
	must(t, err)
	runAdmin(t, "uninstall", "--yes").ends(t, 1).says(t, "Node n1 is cut off from the storage of "+driver, "csi-fencepost fence on n1")
	runAdmin(t, "uninstall", "--yes", "--force").ends(t, 0).says(t, "Nothing of csi-fencepost is left.")
}

func TestUninstallNamesEveryRightThatIsMissing(t *testing.T) {
	single.take(t)
	whole.use(t)
	nobody := person(t, "nobody-at-all")
	runAs(t, nobody, "uninstall").ends(t, 1).says(t, "cannot list Nodes", "cannot list VolumeAttachments", "cannot list PersistentVolumes", "cannot list Leases in all namespaces", "forbidden")
}

// One that may not change PersistentVolumes takes the rest away, and the next run
// goes on from there.
func TestUninstallThatWasBrokenOffGoesOn(t *testing.T) {
	single.take(t)
	whole.use(t)
	installed(t)
	half := person(t, "half", reads("", "persistentvolumes", "nodes", "pods"), reads("storage.k8s.io", "volumeattachments"), reads("coordination.k8s.io", "leases"), writes("", "nodes"))
	runAs(t, half, "uninstall", "--yes").ends(t, 1).says(t, "could not be removed; run it again", "PersistentVolumes with annotations: data", "forbidden")
	runAdmin(t, "uninstall").ends(t, 0).says(t, "PersistentVolumes with annotations (1)").saysNot(t, "Nodes with annotations (1)")
	runAdmin(t, "uninstall", "--yes").ends(t, 0).says(t, "Nothing of csi-fencepost is left.")
}
