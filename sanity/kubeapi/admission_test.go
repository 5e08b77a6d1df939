package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

const (
	policyFolder   = "../../deploy/admission/"
	operatorsGroup = "storage-operators"
)

// The clients: admin may everything; the others have all rights on the objects
// in question, and differ only in what writers.yaml gives them. guardOnly is a sidecar
// without fence agents and failover, whose account was not made a csi-fencepost-fencer,
// storageOnly one that cuts nodes off from the storage of its own driver, sanDriver.
var sidecar, guardOnly, storageOnly, operator, stranger kubernetes.Interface

const sanDriver = "san.example.com"

func preparePoliced(ctx context.Context, b *bed.Bed) error {
	if err := makePeople(ctx, b); err != nil {
		return err
	}
	return applyPolicies(ctx)
}

// impersonate makes a client of somebody who is authenticated. The user of the
// kubeconfig may impersonate, as a proxy in front of the API server does.
func impersonate(b *bed.Bed, who rest.ImpersonationConfig) (kubernetes.Interface, error) {
	config, err := impersonating(b, who)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// impersonating is how he reaches the API server.
func impersonating(b *bed.Bed, who rest.ImpersonationConfig) (*rest.Config, error) {
	kubeconfig, err := b.Cluster.Kubeconfig("someone")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	config.Impersonate = who
	config.Impersonate.Groups = append(config.Impersonate.Groups, "system:authenticated")
	return config, nil
}

// makePeople makes the clients.
func makePeople(ctx context.Context, b *bed.Bed) error {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"users", "groups", "serviceaccounts"}, Verbs: []string{"impersonate"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes", "persistentvolumes/status", "nodes", "nodes/status"}, Verbs: []string{"*"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
	}
	roles := policed.admin.RbacV1()
	if _, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "people"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "people"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "people"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "someone"},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, one := range []struct {
		client *kubernetes.Interface
		as     rest.ImpersonationConfig
	}{
		{&sidecar, rest.ImpersonationConfig{UserName: "system:serviceaccount:storage:array-controller"}},
		{&guardOnly, rest.ImpersonationConfig{UserName: "system:serviceaccount:storage:other-controller"}},
		{&storageOnly, rest.ImpersonationConfig{UserName: "system:serviceaccount:storage:san-controller"}},
		{&operator, rest.ImpersonationConfig{UserName: "ada", Groups: []string{operatorsGroup}}},
		{&stranger, rest.ImpersonationConfig{UserName: "system:serviceaccount:backup:tool"}},
	} {
		client, err := impersonate(b, one.as)
		if err != nil {
			return err
		}
		*one.client = client
	}
	return nil
}

// applyPolicies sends the files as kubectl apply --server-side does, and waits until the
// policies are in force.
func applyPolicies(ctx context.Context) error {
	if _, err := policed.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	names := strings.NewReplacer("${NAMESPACE}", "storage", "${SERVICE_ACCOUNT}", "array-controller", "${DRIVER}", "array.example.com", "${OPERATORS}", operatorsGroup)
	for _, file := range []string{"writers.yaml", "ledger.yaml", "nodes.yaml", "records.yaml", "taint.yaml"} {
		text, err := os.ReadFile(policyFolder + file)
		if err != nil {
			return err
		}
		if err := applyStream(ctx, names.Replace(string(text))); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	names = strings.NewReplacer("${NAMESPACE}", "storage", "${SERVICE_ACCOUNT}", "other-controller", "${DRIVER}", "other.example.com")
	if err := applySome(ctx, policyFolder+"writers.yaml", names, "csi-fencepost-writer-of-other.example.com"); err != nil {
		return err
	}
	names = strings.NewReplacer("${NAMESPACE}", "storage", "${SERVICE_ACCOUNT}", "san-controller", "${DRIVER}", sanDriver)
	if err := applySome(ctx, policyFolder+"writers.yaml", names, "csi-fencepost-writer-of-"+sanDriver, "csi-fencepost-fencer-of-"+sanDriver); err != nil {
		return err
	}
	return inForce(ctx)
}

// applySome applies the objects of a file that have these names.
func applySome(ctx context.Context, file string, placeholders *strings.Replacer, names ...string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	all, err := parse([]byte(placeholders.Replace(string(text))))
	if err != nil {
		return err
	}
	for _, object := range all {
		if !slices.Contains(names, object.GetName()) {
			continue
		}
		if _, err := policed.apply(ctx, object, false); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func applyStream(ctx context.Context, text string) error {
	all, err := parse([]byte(text))
	for _, object := range all {
		if err == nil {
			_, err = policed.apply(ctx, object, false)
		}
	}
	return err
}

// inForce: a policy takes effect some moments after it was written.
func inForce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if _, err := policed.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	probe := policedVolume("probe")
	probe.Annotations = map[string]string{ledger.Annotation: "unreadable"}
	if _, err := policed.admin.CoreV1().PersistentVolumes().Create(ctx, probe, metav1.CreateOptions{}); err != nil {
		return err
	}
	tries := 0
	value := func() string { tries++; return fmt.Sprint("try-", tries) } // what does not change is not judged
	probes := []func() error{
		func() error { return taintAs(context.WithoutCancel(ctx), stranger, "probe", value()) },
		func() error { return annotateAs(context.WithoutCancel(ctx), stranger, "probe", value()) },
		func() error {
			return stranger.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(ctx), "probe", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		},
		func() error {
			return statusAs(context.WithoutCancel(ctx), stranger, "probe", fmt.Sprintf(`{"nodeInfo":{"bootID":%q}}`, value()))
		},
		func() error {
			_, err := stranger.CoordinationV1().Leases(namespace).Create(context.WithoutCancel(ctx), policedLease("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
	}
	for _, refused := range probes {
		for {
			err := refused()
			if apierrors.IsForbidden(err) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("a policy did not take effect within 40 s, the last answer was: %w", err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}

func policedVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "array.example.com", VolumeHandle: name}},
	}}
}

func policedLease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: record.LeaseName(name)}}
}

// annotateAs writes a ledger, through a subresource if one is given; empty: takes
// it off.
func annotateAs(ctx context.Context, by kubernetes.Interface, pv, text string, subresource ...string) error {
	value := "null"
	if text != "" {
		value = fmt.Sprintf("%q", text)
	}
	_, err := by.CoreV1().PersistentVolumes().Patch(ctx, pv, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, ledger.Annotation, value), metav1.PatchOptions{}, subresource...)
	return err
}

// taintAs puts the out-of-service taint on with that value; empty: takes it off.
func taintAs(ctx context.Context, by kubernetes.Interface, node, value string) error {
	taints := "[]"
	if value != "" {
		taints = fmt.Sprintf(`[{"key":%q,"value":%q,"effect":"NoExecute"}]`, corev1.TaintNodeOutOfService, value)
	}
	_, err := by.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"taints":%s}}`, taints), metav1.PatchOptions{})
	return err
}

// statusAs writes what status says into the status of a Node, and leaves the rest.
func statusAs(ctx context.Context, by kubernetes.Interface, node, status string) error {
	_, err := by.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"status":%s}`, status), metav1.PatchOptions{}, "status")
	return err
}

// refused fails unless the policy refused, with words that a person can use.
func refused(t *testing.T, err error, right string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), right) || !strings.Contains(err.Error(), "writers.yaml") || !strings.Contains(err.Error(), "backup:tool") {
		t.Errorf("a stranger is not refused for want of the right to write %s: %v", right, err)
	}
}

func allowed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestOnlyTheSidecarAndTheOperatorsWriteALedger(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	if _, err := policed.admin.CoreV1().PersistentVolumes().Create(ctx, policedVolume("pv-1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused(t, annotateAs(ctx, stranger, "pv-1", "forged"), "ledgers.csi-fencepost.io")
	allowed(t, "the sidecar writes", annotateAs(ctx, sidecar, "pv-1", "1"))
	refused(t, annotateAs(ctx, stranger, "pv-1", "forged"), "ledgers.csi-fencepost.io")
	refused(t, annotateAs(ctx, stranger, "pv-1", ""), "ledgers.csi-fencepost.io")
	refused(t, annotateAs(ctx, stranger, "pv-1", "forged", "status"), "ledgers.csi-fencepost.io")
	refused(t, annotateAs(ctx, stranger, "pv-1", "", "status"), "ledgers.csi-fencepost.io")
	allowed(t, "an operator takes it off", annotateAs(ctx, operator, "pv-1", ""))
	_, err := stranger.CoreV1().PersistentVolumes().Patch(ctx, "pv-1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"},"labels":{"c":"d"}}}`), metav1.PatchOptions{})
	allowed(t, "a stranger writes another annotation", err)
	_, err = stranger.CoreV1().PersistentVolumes().Patch(ctx, "pv-1", types.MergePatchType, []byte(`{"status":{"phase":"Available"},"metadata":{"annotations":{"e":"f"}}}`), metav1.PatchOptions{}, "status")
	allowed(t, "a stranger writes the status", err)
	restored := policedVolume("pv-restored")
	restored.Annotations = map[string]string{ledger.Annotation: "of another cluster"}
	_, err = stranger.CoreV1().PersistentVolumes().Create(ctx, restored, metav1.CreateOptions{})
	allowed(t, "a backup is restored with its annotations", err)
	_, err = stranger.CoreV1().PersistentVolumes().Patch(ctx, "pv-restored", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/x"]}}`), metav1.PatchOptions{})
	allowed(t, "an attacher writes its finalizer", err)
}

func TestOnlyTheSidecarAndTheOperatorsWriteANodesRecord(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	leases := func(by kubernetes.Interface) func(string) error {
		return func(name string) error {
			_, err := by.CoordinationV1().Leases(namespace).Create(ctx, policedLease(name), metav1.CreateOptions{})
			return err
		}
	}
	refused(t, leases(stranger)("n1"), "records.csi-fencepost.io")
	allowed(t, "the sidecar makes a record", leases(sidecar)("n1"))
	allowed(t, "an operator makes a record", leases(operator)("n2"))
	patch := func(by kubernetes.Interface) error {
		_, err := by.CoordinationV1().Leases(namespace).Patch(ctx, record.LeaseName("n1"), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"x"}}}`, record.Annotation), metav1.PatchOptions{})
		return err
	}
	refused(t, patch(stranger), "records.csi-fencepost.io")
	allowed(t, "the sidecar writes a record", patch(sidecar))
	remove := func(by kubernetes.Interface) error {
		return by.CoordinationV1().Leases(namespace).Delete(ctx, record.LeaseName("n1"), metav1.DeleteOptions{})
	}
	refused(t, remove(stranger), "records.csi-fencepost.io")
	refused(t, stranger.CoordinationV1().Leases(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), "records.csi-fencepost.io")
	if err := remove(sidecar); !apierrors.IsForbidden(err) {
		t.Errorf("the sidecar deletes a record, which is the audit trail: %v", err)
	}
	allowed(t, "an operator deletes a record", remove(operator))
	_, err := stranger.CoordinationV1().Leases(metav1.NamespaceDefault).Create(ctx, policedLease("n1"), metav1.CreateOptions{})
	allowed(t, "a stranger's Lease in another namespace", err)
}

// The records are written by the sidecars of all drivers. That one of them, or another
// container of its pod, claims that a machine is off moves nobody's volumes.
func TestOnlyWhoMayFenceVouchesForAFence(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	const node = "vouched"
	store := func(by kubernetes.Interface) *record.Store { return record.NewStore(by.CoordinationV1(), namespace) }
	fenced := func(id string) record.Fence {
		return record.Fence{ID: id, Kind: fence.PowerReading, Phase: record.Fenced, Actor: "csi-fencepost x", Agents: []string{"bmc"},
			Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "7"}}
	}
	put := func(by kubernetes.Interface, id string) error {
		_, err := store(by).Update(ctx, node, func(r *record.Record) (bool, error) { r.PutFence(fenced(id), "Fenced"); return true, nil })
		return err
	}
	note := func(by kubernetes.Interface, what string) error {
		_, err := store(by).Update(ctx, node, func(r *record.Record) (bool, error) { r.Note("x", what, "test"); return true, nil })
		return err
	}
	end := func(by kubernetes.Interface, id string) error {
		_, err := store(by).Update(ctx, node, func(r *record.Record) (bool, error) { return r.EndFence(id, record.Void, "read as on again", "x"), nil })
		return err
	}
	annotate := func(by kubernetes.Interface, annotations map[string]any) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err == nil {
			_, err = by.CoordinationV1().Leases(namespace).Patch(ctx, record.LeaseName(node), types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	}
	believed := func(want bool) {
		t.Helper()
		r, err := store(guardOnly).Get(ctx, node)
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Fence(fence.PowerReading, ""); r.Vouched(f) != want {
			t.Errorf("vouched for is not %v, of %+v", want, f)
		}
	}
	barred := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "fences.csi-fencepost.io") || !strings.Contains(err.Error(), "storage:other-controller") || !strings.Contains(err.Error(), "writers.yaml") {
			t.Errorf("%s: %v", what, err)
		}
	}
	barred("a guard makes a record with a fence", put(guardOnly, "f1"))
	allowed(t, "a guard makes a record", note(guardOnly, "Test"))
	barred("a guard writes a fence", put(guardOnly, "f1"))

	// All that it can write says nothing to anybody.
	lease, err := sidecar.CoordinationV1().Leases(namespace).Get(ctx, record.LeaseName(node), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := fenced("forged")
	forged, err := json.Marshal(map[string]any{"version": 1, "node": node, "fences": []record.Fence{f}})
	if err != nil {
		t.Fatal(err)
	}
	plain := lease.Annotations[record.Annotation]
	allowed(t, "a guard writes a record, whatever it says", annotate(guardOnly, map[string]any{record.Annotation: string(forged)}))
	believed(false)
	vouch := strings.Repeat("0", 64)
	barred("a guard vouches by hand", annotate(guardOnly, map[string]any{record.FencedAnnotation: vouch}))
	believed(false)
	allowed(t, "a guard writes it back", annotate(guardOnly, map[string]any{record.Annotation: plain}))

	allowed(t, "a sidecar that fences writes a fence", put(sidecar, "f1"))
	believed(true)
	allowed(t, "a guard writes something else", note(guardOnly, "Test2"))
	believed(true)
	barred("a guard vouches for another fence", put(guardOnly, "f2"))
	barred("a guard begins a fence, before anything is sent", func() error {
		_, err := store(guardOnly).Update(ctx, node, func(r *record.Record) (bool, error) {
			f := fenced("f2")
			f.Phase = record.Fencing
			r.PutFence(f, "Fence")
			return true, nil
		})
		return err
	}())
	barred("a guard adds to the vouch", annotate(guardOnly, map[string]any{record.FencedAnnotation: vouch}))
	believed(true)
	allowed(t, "a guard ends a fence", end(guardOnly, "f1"))
	believed(false)
	barred("a guard vouches where nobody does", annotate(guardOnly, map[string]any{record.FencedAnnotation: vouch}))
	allowed(t, "a sidecar that fences writes it once more", put(sidecar, "f1"))
	allowed(t, "a sidecar that fences ends it", end(sidecar, "f1"))
	believed(false)

	// That and when a node was cut off stays vouched for when a guard sees it back, and is not its to
	// shift: the brakes on fencing count by it.
	timed := func(want bool) {
		t.Helper()
		r, err := store(guardOnly).Get(ctx, node)
		if err != nil {
			t.Fatal(err)
		}
		if f := r.FenceByID("f4"); r.Vouched(f.Cutting()) != want {
			t.Errorf("when it cut is vouched for is not %v, of %+v", want, f)
		}
	}
	changed := func(by kubernetes.Interface, change func(r *record.Record)) error {
		_, err := store(by).Update(ctx, node, func(r *record.Record) (bool, error) { change(r); return true, nil })
		return err
	}
	allowed(t, "a sidecar that fences cuts the node off", changed(sidecar, func(r *record.Record) {
		f := fenced("f4")
		f.StartedAt, f.Steps = "2026-01-02T03:04:05Z", []record.FenceStep{{Agent: "bmc", Action: "off", At: "2026-01-02T03:04:06Z"}}
		r.PutFence(f, "Fenced")
	}))
	allowed(t, "a guard ends it", end(guardOnly, "f4"))
	believed(false)
	timed(true)
	allowed(t, "a guard shifts it", changed(guardOnly, func(r *record.Record) { r.FenceByID("f4").StartedAt = "2026-01-02T09:00:00Z" }))
	timed(false)

	// What was once vouched for cannot be taken up again.
	f = fenced("f1")
	forged, err = json.Marshal(map[string]any{"version": 1, "node": node, "fences": []record.Fence{f}})
	if err != nil {
		t.Fatal(err)
	}
	allowed(t, "a guard writes a record, whatever it says", annotate(guardOnly, map[string]any{record.Annotation: string(forged)}))
	believed(false)
	allowed(t, "an operator vouches", put(operator, "f3"))
	believed(true)

	// A sidecar that cuts nodes off from its own driver's storage vouches for that alone.
	storage := func(by kubernetes.Interface, driver string) error {
		_, err := store(by).Update(ctx, node, func(r *record.Record) (bool, error) {
			f := fenced("of-" + driver)
			f.Kind, f.Driver = fence.StorageFence, driver
			r.PutFence(f, "Fenced")
			return true, nil
		})
		return err
	}
	allowed(t, "a sidecar with its driver's own fence makes one", storage(storageOnly, sanDriver))
	for what, err := range map[string]error{
		"a storage fence of another driver":           storage(storageOnly, "array.example.com"),
		"a power fence":                               put(storageOnly, "f4"),
		"a digest of no driver":                       annotate(storageOnly, map[string]any{record.FencedAnnotation: vouch}),
		"one of its own, and one of another driver's": annotate(storageOnly, map[string]any{record.FencedAnnotation: sanDriver + "=" + vouch + ",array.example.com=" + vouch}),
		"one of its own, and a power fence":           annotate(storageOnly, map[string]any{record.FencedAnnotation: sanDriver + "=" + vouch + "," + vouch}),
		"a driver whose name begins as its own":       annotate(storageOnly, map[string]any{record.FencedAnnotation: sanDriver + ".too=" + vouch}),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "fences.csi-fencepost.io") || !strings.Contains(err.Error(), "storage:san-controller") {
			t.Errorf("a sidecar with its driver's own fence vouches for %s: %v", what, err)
		}
	}
	barred("a guard vouches for a storage fence", storage(guardOnly, "other.example.com"))
	allowed(t, "a sidecar that fences vouches for several at once", func() error {
		_, err := store(sidecar).Update(ctx, node, func(r *record.Record) (bool, error) {
			for _, driver := range []string{"a.example.com", "b.example.com", "c.example.com"} {
				f := fenced("of-" + driver)
				f.Kind, f.Driver = fence.StorageFence, driver
				r.PutFence(f, "Fenced")
			}
			r.PutFence(fenced("f6"), "Fenced")
			return true, nil
		})
		return err
	}())

	// Nor does a guard say which machine a node's is.
	const machine = "bound"
	bind := func(by kubernetes.Interface, id string) error {
		_, err := store(by).Update(ctx, machine, func(r *record.Record) (bool, error) {
			return r.Bind("u1", []record.Identifier{{Kind: record.NodeID("d"), Value: id}}, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} }), nil
		})
		return err
	}
	known := func(want string) {
		t.Helper()
		r, err := store(guardOnly).Get(ctx, machine)
		if err != nil || r.Known().Of(record.NodeID("d")).Value != want {
			t.Errorf("%v: bound is %+v, want %q", err, r.Known(), want)
		}
	}
	remove := func(by kubernetes.Interface) error {
		return by.CoordinationV1().Leases(namespace).Delete(ctx, record.LeaseName(machine), metav1.DeleteOptions{})
	}
	barred("a guard binds", bind(guardOnly, "i-forged"))
	if err := bind(storageOnly, "i-forged"); !apierrors.IsForbidden(err) {
		t.Errorf("a sidecar with its driver's own fence binds: %v", err)
	}
	allowed(t, "a sidecar that fences binds", bind(sidecar, "i-1"))
	known("i-1")
	_, err = store(guardOnly).Update(ctx, machine, func(r *record.Record) (bool, error) {
		r.Taints = map[string]record.TaintBinding{"x": {NodeUID: "u1"}}
		return true, nil
	})
	allowed(t, "a guard writes something else", err)
	known("i-1")
	if err := remove(sidecar); !apierrors.IsForbidden(err) {
		t.Errorf("a sidecar that fences deletes a record of more than an identity: %v", err)
	}
	_, err = store(guardOnly).Update(ctx, machine, func(r *record.Record) (bool, error) {
		r.Taints, r.Identity.Bound[0].Value = nil, "i-forged"
		return true, nil
	})
	allowed(t, "a guard forges what is bound", err)
	known("")
	barred("a guard binds in its place", bind(guardOnly, "i-forged"))
	allowed(t, "a sidecar that fences binds anew", bind(sidecar, "i-1"))
	known("i-1")
	if err := remove(guardOnly); !apierrors.IsForbidden(err) {
		t.Errorf("a guard deletes what is bound: %v", err)
	}
	allowed(t, "a sidecar that fences deletes a record of nothing but an identity", remove(sidecar))

	// What people say is theirs alone, also where a sidecar fences.
	confirm := func(by kubernetes.Interface, id string) error {
		_, err := store(by).Confirm(ctx, node, record.Confirmation{ID: id, By: "ada", Reason: "unplugged", Machines: []record.Machine{{NodeUID: "u1", BootID: "b1", LeaseRV: "7"}}})
		return err
	}
	withdraw := func(by kubernetes.Interface) error {
		_, err := store(by).Withdraw(ctx, node, "x", "wrong")
		return err
	}
	for _, by := range []kubernetes.Interface{guardOnly, storageOnly, sidecar} {
		if err := confirm(by, "c1"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "claims.csi-fencepost.io") {
			t.Errorf("a sidecar confirms: %v", err)
		}
	}
	allowed(t, "an operator confirms", confirm(operator, "c1"))
	allowed(t, "a guard writes something else", note(guardOnly, "Test3"))
	_, err = store(guardOnly).VoidMachine(ctx, node, "c1", record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "7"}, "booted", "x")
	allowed(t, "a guard writes down that it is void", err)
	allowed(t, "an operator confirms once more", confirm(operator, "c2"))
	r, err := store(guardOnly).Get(ctx, node)
	if err != nil || len(r.Confirmations) != 2 || r.Vouched(r.Confirmations[0].Of(&r.Confirmations[0].Machines[0])) || !r.Vouched(r.Confirmations[1].Of(&r.Confirmations[1].Machines[0])) {
		t.Errorf("%v: the operator's words are %+v", err, r)
	}
	allowed(t, "an operator withdraws", withdraw(operator))
}

// Kubernetes' own controller deletes a namespace's content, or the namespace
// would hang.
func TestTheNamespaceControllerMayDeleteTheRecords(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	allowed(t, "the sidecar makes a record", func() error {
		_, err := sidecar.CoordinationV1().Leases(namespace).Create(ctx, policedLease("n9"), metav1.CreateOptions{})
		return err
	}())
	role, err := policed.admin.RbacV1().ClusterRoles().Get(ctx, "system:controller:namespace-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		if len(rule.APIGroups) == 1 && rule.APIGroups[0] == "*" && strings.Contains(strings.Join(rule.Verbs, " "), "delete") && rule.Resources[0] == "*" {
			return
		}
	}
	t.Errorf("its role does not have the right to delete records.csi-fencepost.io: %v", role.Rules)
}

func TestOnlyTheSidecarAndTheOperatorsPutTheOutOfServiceTaintOn(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	if _, err := policed.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused(t, taintAs(ctx, stranger, "n1", "nodeshutdown"), "claims.csi-fencepost.io")
	refused(t, taintAs(ctx, stranger, "n1", evidence.OurTaintValue), "taints.csi-fencepost.io")
	allowed(t, "the sidecar puts its own taint on", taintAs(ctx, sidecar, "n1", evidence.OurTaintValue))
	refused(t, taintAs(ctx, stranger, "n1", ""), "taints.csi-fencepost.io")
	if err := taintAs(ctx, sidecar, "n1", "nodeshutdown"); !apierrors.IsForbidden(err) {
		t.Errorf("the sidecar claims, as a person does, that a node is off: %v", err)
	}
	allowed(t, "the sidecar takes its own taint off", taintAs(ctx, sidecar, "n1", ""))
	allowed(t, "an operator puts the taint on", taintAs(ctx, operator, "n1", "nodeshutdown"))
	_, err := stranger.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	allowed(t, "a stranger labels a node that is tainted", err)
	kubelet, err := impersonate(policed.bed, rest.ImpersonationConfig{UserName: "system:node:n1", Groups: []string{"system:nodes"}})
	must(t, err)
	allowed(t, "a kubelet writes the status of a node that is tainted", statusAs(ctx, kubelet, "n1", `{"conditions":[{"type":"Ready","status":"False"}]}`))
	refused(t, taintAs(ctx, stranger, "n1", ""), "claims.csi-fencepost.io")
	_, err = stranger.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{})
	allowed(t, "a node registers", err)
	_, err = stranger.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}}}, metav1.CreateOptions{})
	refused(t, err, "claims.csi-fencepost.io")
	_, err = stranger.CoreV1().Nodes().Patch(ctx, "n2", types.StrategicMergePatchType, []byte(`{"spec":{"taints":[{"key":"example.com/x","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	allowed(t, "a stranger puts another taint on", err)
}

// Whoever may write the status of all Nodes, to set a condition, says nothing in a kubelet's place.
func TestOnlyItsKubeletSaysWhatANodeUsesAndWhichMachineItIs(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	_, err := policed.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-word"}}, metav1.CreateOptions{})
	must(t, err)
	as := func(user string, groups ...string) kubernetes.Interface {
		t.Helper()
		client, err := impersonate(policed.bed, rest.ImpersonationConfig{UserName: user, Groups: groups})
		must(t, err)
		return client
	}
	kubelet, virtual, shared := as("system:node:n-word", "system:nodes"), as("system:serviceaccount:edge:virtual-kubelet"), as("system:node", "system:nodes")
	const all = `{"volumesInUse":["kubernetes.io/csi/d^a","kubernetes.io/csi/d^b"],"nodeInfo":{"bootID":"1","systemUUID":"2","machineID":"3"},"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}},"volumesAttached":[{"name":"kubernetes.io/csi/d^a","devicePath":""}]}`
	refusedTo := func(who kubernetes.Interface, status, field string) {
		t.Helper()
		if err := statusAs(ctx, who, "n-word", status); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status."+field+" of Node n-word is its kubelet's word") || !strings.Contains(err.Error(), "kubelets.csi-fencepost.io") {
			t.Errorf("%s: %v, want it to be refused for %s", status, err, field)
		}
	}
	refusedTo(stranger, all, "volumesInUse, status.nodeInfo.bootID, status.nodeInfo.systemUUID, status.daemonEndpoints.kubeletEndpoint")
	allowed(t, "its kubelet writes its status", statusAs(ctx, kubelet, "n-word", all))
	for status, field := range map[string]string{
		`{"volumesInUse":null}`:                              "volumesInUse",
		`{"volumesInUse":[]}`:                                "volumesInUse",
		`{"volumesInUse":["kubernetes.io/csi/d^b"]}`:         "volumesInUse",
		`{"nodeInfo":{"bootID":"9"}}`:                        "nodeInfo.bootID",
		`{"nodeInfo":{"systemUUID":""}}`:                     "nodeInfo.systemUUID",
		`{"daemonEndpoints":null}`:                           "daemonEndpoints.kubeletEndpoint",
		`{"daemonEndpoints":{"kubeletEndpoint":{"Port":1}}}`: "daemonEndpoints.kubeletEndpoint",
	} {
		for _, who := range []kubernetes.Interface{stranger, sidecar, operator, virtual, shared} {
			refusedTo(who, status, field)
		}
	}
	if err := statusAs(ctx, as("system:node:another", "system:nodes"), "n-word", `{"volumesInUse":[]}`); !apierrors.IsForbidden(err) {
		t.Errorf("another node's kubelet: %v", err)
	}
	allowed(t, "a stranger sets a condition", statusAs(ctx, stranger, "n-word", `{"conditions":[{"type":"KernelDeadlock","status":"False"}]}`))
	allowed(t, "a stranger names another address, as a cloud's controller does", statusAs(ctx, stranger, "n-word", `{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}`))
	allowed(t, "the controller writes what is attached", statusAs(ctx, stranger, "n-word", `{"volumesAttached":[]}`))
	allowed(t, "its kubelet takes it all back", statusAs(ctx, kubelet, "n-word", `{"volumesInUse":[],"nodeInfo":{"bootID":"9","systemUUID":"8"},"daemonEndpoints":{"kubeletEndpoint":{"Port":10251}}}`))

	// Who writes Nodes themselves leaves the status as it is; who creates one could say all of it.
	_, err = stranger.CoreV1().Nodes().Patch(ctx, "n-word", types.MergePatchType, []byte(`{"status":`+all+`}`), metav1.PatchOptions{})
	must(t, err)
	now, err := policed.admin.CoreV1().Nodes().Get(ctx, "n-word", metav1.GetOptions{})
	must(t, err)
	if s := now.Status; len(s.VolumesInUse) > 0 || s.NodeInfo.BootID != "9" || s.NodeInfo.SystemUUID != "8" || s.DaemonEndpoints.KubeletEndpoint.Port != 10251 {
		t.Errorf("who patches a Node has changed its status: %+v", s)
	}
	creates := func(who kubernetes.Interface, name, status string) error {
		t.Helper()
		made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must(t, json.Unmarshal([]byte(status), &made.Status))
		_, err := who.CoreV1().Nodes().Create(ctx, made, metav1.CreateOptions{})
		return err
	}
	for status, field := range map[string]string{
		`{"volumesInUse":["kubernetes.io/csi/d^a"]}`:             "volumesInUse",
		`{"nodeInfo":{"bootID":"9"}}`:                            "nodeInfo.bootID",
		`{"nodeInfo":{"systemUUID":"9"}}`:                        "nodeInfo.systemUUID",
		`{"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}`: "daemonEndpoints.kubeletEndpoint",
	} {
		for _, who := range []kubernetes.Interface{stranger, sidecar, operator, kubelet, virtual, shared} {
			if err := creates(who, "n-made", status); !apierrors.IsForbidden(err) || who != kubelet && !strings.Contains(err.Error(), "status."+field+" of Node n-made is its kubelet's word") {
				t.Errorf("it makes a Node with %s: %v", status, err)
			}
		}
	}
	allowed(t, "a kubelet registers", creates(as("system:node:n-made", "system:nodes"), "n-made", all))
	allowed(t, "a cluster administrator restores a Node", creates(policed.admin, "n-restored", all))
	allowed(t, "who creates Nodes creates one", creates(stranger, "n-bare", `{"conditions":[{"type":"Ready","status":"Unknown"}],"addresses":[{"type":"InternalIP","address":"192.0.2.1"}],"nodeInfo":{"machineID":"3"}}`))

	roles := policed.admin.RbacV1()
	_, err = roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "stands-in"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"csi-fencepost.io"}, Resources: []string{"kubelets"}, ResourceNames: []string{"n-word", "n-virtual"}, Verbs: []string{"write"}}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "stands-in"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stands-in"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "edge", Name: "virtual-kubelet"}}}, metav1.CreateOptions{})
	must(t, err)
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		return statusAs(ctx, virtual, "n-word", all) == nil, nil
	}); err != nil {
		t.Errorf("what stands in for the kubelet may not write: %v", err)
	}
	allowed(t, "it registers", creates(virtual, "n-virtual", all))
}

// What may be written through a subresource passes a policy that does not name
// it. A Lease has none.
func TestNoSubresourceLeadsPastAPolicy(t *testing.T) {
	single.take(t)
	policed.use(t)
	known := map[string][]string{
		"v1":                     {"nodes/proxy", "nodes/status", "persistentvolumes/status"},
		"coordination.k8s.io/v1": nil,
	}
	for version, want := range known {
		list, err := policed.admin.Discovery().ServerResourcesForGroupVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list.APIResources {
			kind, _, sub := strings.Cut(r.Name, "/")
			if sub && slices.Contains([]string{"nodes", "persistentvolumes", "leases"}, kind) {
				got = append(got, r.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the subresources %v, and the policies were made for %v", version, got, want)
		}
	}
}

// The API server takes no taint through nodes/status, so that no policy has to
// look at what every kubelet writes.
func TestAStatusCarriesNoTaint(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	nodes := stranger.CoreV1().Nodes()
	if _, err := policed.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-status"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	forge := func(taints string) (out bool) {
		t.Helper()
		node, err := nodes.Patch(ctx, "n-status", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"written":"%d"}},"spec":{"taints":%s}}`, len(taints), taints), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		if node.Labels["written"] != fmt.Sprint(len(taints)) {
			t.Fatalf("nothing was written: %v", node.Labels)
		}
		return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	}
	for _, value := range []string{"nodeshutdown", evidence.OurTaintValue} {
		if forge(fmt.Sprintf(`[{"key":%q,"value":%q,"effect":"NoExecute"}]`, corev1.TaintNodeOutOfService, value)) {
			t.Errorf("a stranger put the taint on with the value %s", value)
		}
	}
	allowed(t, "an operator puts the taint on", taintAs(ctx, operator, "n-status", "nodeshutdown"))
	if !forge("[]") {
		t.Error("a stranger took the taint off")
	}
}

// A sidecar without agents asks in the record, and only who may fence answers. A record of
// nothing else is removed by who may fence, and by nobody else.
func TestWhoMayWriteRecordsAsksAndWhoMayFenceAnswers(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	const node = "asked"
	store := func(by kubernetes.Interface) *record.Store { return record.NewStore(by.CoordinationV1(), namespace) }
	question := func(by kubernetes.Interface, id string) error {
		q := record.Question{ID: id, Driver: "d", Actor: "s", NodeUID: "u1", BootID: "b1", LeaseRV: "7"}
		_, err := store(by).Update(ctx, node, func(r *record.Record) (bool, error) { return r.Ask(q), nil })
		return err
	}
	answer := func(by kubernetes.Interface, id string) error {
		_, err := store(by).Update(ctx, node, func(r *record.Record) (bool, error) {
			return r.Reply(*r.Question(id), record.Answer{State: "unclear", Actor: "f"}), nil
		})
		return err
	}
	vouched := func(want bool) {
		t.Helper()
		r, err := store(guardOnly).Get(ctx, node)
		if err != nil || r.Vouched(r.QuestionOf("d")) != want {
			t.Errorf("questions %+v, %v; want vouched: %t", r.Questions, err, want)
		}
	}
	refused(t, question(stranger, "q1"), "records.csi-fencepost.io")
	allowed(t, "a sidecar without agents asks", question(guardOnly, "q1"))
	for who, by := range map[string]kubernetes.Interface{"who asked": guardOnly, "who cuts off storage": storageOnly} {
		if err := answer(by, "q1"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "fences.csi-fencepost.io") {
			t.Errorf("%s answers: %v", who, err)
		}
	}
	vouched(false)
	allowed(t, "who may fence answers", answer(sidecar, "q1"))
	vouched(true)
	allowed(t, "a new question takes the answer away", question(guardOnly, "q2"))
	vouched(false)
	if removed, err := store(guardOnly).RemoveIdentity(ctx, node); removed || !apierrors.IsForbidden(err) {
		t.Error("a sidecar without agents removes it", removed, err)
	}
	allowed(t, "answered once more", answer(sidecar, "q2"))
	if removed, err := store(sidecar).RemoveIdentity(ctx, node); !removed || err != nil {
		t.Error("who may fence does not remove it", removed, err)
	}
}
