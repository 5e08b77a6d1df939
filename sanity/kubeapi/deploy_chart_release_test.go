package kubeapi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// releases are what Helm does with the chart on an API server.
type releases struct {
	*testing.T
	chart  string // folder
	helm   func(stdin string, args ...string) ([]byte, error)
	client kubernetes.Interface
	config *rest.Config
}

// do is a command of Helm that has to work; it returns what Helm says.
func (r *releases) do(values string, args ...string) string {
	r.Helper()
	out, err := r.helm(values, args...)
	must(r.T, err)
	return string(out)
}

// refused is a command that has to fail, for what says says.
func (r *releases) refused(says, values string, args ...string) {
	r.Helper()
	if out, err := r.helm(values, args...); err == nil || !strings.Contains(err.Error(), says) {
		r.Errorf("%q: %v\n%s\nwant it to say %q", args, err, out, says)
	}
}

// may waits until the sidecar's account may do something to PersistentVolumes.
func (r *releases) may(verb string) {
	r.Helper()
	for began := time.Now(); !r.allowed(verb); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			r.Fatalf("the sidecar may not %s PersistentVolumes", verb)
		}
	}
}

func (r *releases) allowed(verb string) bool {
	r.Helper()
	answer, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:array-system:array-controller", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "persistentvolumes"}},
	}, metav1.CreateOptions{})
	must(r.T, err)
	return answer.Status.Allowed
}

// all are the objects of the chart in the cluster that are a release's, by kind and name, and
// whose they are.
func (r *releases) all() map[string]string {
	r.Helper()
	found := map[string]string{}
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=csi-fencepost"}
	add := func(kind string, o metav1.Object) {
		found[kind+" "+o.GetName()] = o.GetAnnotations()["meta.helm.sh/release-name"]
	}
	rbac, core := r.client.RbacV1(), r.client.CoreV1()
	clusterRoles, err := rbac.ClusterRoles().List(r.Context(), ours)
	must(r.T, err)
	for i := range clusterRoles.Items {
		add("clusterrole", &clusterRoles.Items[i])
	}
	clusterBindings, err := rbac.ClusterRoleBindings().List(r.Context(), ours)
	must(r.T, err)
	for i := range clusterBindings.Items {
		add("clusterrolebinding", &clusterBindings.Items[i])
	}
	roles, err := rbac.Roles("").List(r.Context(), ours)
	must(r.T, err)
	for i := range roles.Items {
		add("role", &roles.Items[i])
	}
	bindings, err := rbac.RoleBindings("").List(r.Context(), ours)
	must(r.T, err)
	for i := range bindings.Items {
		add("rolebinding", &bindings.Items[i])
	}
	configs, err := core.ConfigMaps("").List(r.Context(), ours)
	must(r.T, err)
	for i := range configs.Items {
		add("configmap", &configs.Items[i])
	}
	namespaces, err := core.Namespaces().List(r.Context(), ours)
	must(r.T, err)
	for i := range namespaces.Items {
		if namespaces.Items[i].DeletionTimestamp == nil {
			found["namespace "+namespaces.Items[i].Name] = "kept" // of whichever release made it: see forget
		}
	}
	deployments, err := r.client.AppsV1().Deployments("").List(r.Context(), ours)
	must(r.T, err)
	for i := range deployments.Items {
		add("deployment", &deployments.Items[i])
	}
	policies, err := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(r.Context(), ours)
	must(r.T, err)
	for i := range policies.Items {
		add("policy", &policies.Items[i])
	}
	return found
}

// has compares some of them: "": it is not there.
func (r *releases) has(want map[string]string) {
	r.Helper()
	all := r.all()
	for name, release := range want {
		if all[name] != release {
			r.Errorf("%s is of release %q, want %q", name, all[name], release)
		}
	}
}

// delete does what a line of the notes says: kubectl delete KIND NAME [-n NAMESPACE].
func (r *releases) delete(line string) {
	r.Helper()
	words := strings.Fields(strings.TrimSuffix(line, " --ignore-not-found"))
	rbac, ctx, now := r.client.RbacV1(), r.Context(), metav1.DeleteOptions{}
	var err error
	switch name, namespaced := words[3], len(words) == 6; {
	case words[2] == "clusterrolebinding" && !namespaced:
		err = rbac.ClusterRoleBindings().Delete(ctx, name, now)
	case words[2] == "clusterrole" && !namespaced:
		err = rbac.ClusterRoles().Delete(ctx, name, now)
	case words[2] == "rolebinding" && namespaced:
		err = rbac.RoleBindings(words[5]).Delete(ctx, name, now)
	case words[2] == "role" && namespaced:
		err = rbac.Roles(words[5]).Delete(ctx, name, now)
	case strings.HasPrefix(words[2], "mutatingadmissionpolicy,") && !namespaced:
		all := r.client.AdmissionregistrationV1()
		err = errors.Join(all.MutatingAdmissionPolicies().Delete(ctx, name, now), all.MutatingAdmissionPolicyBindings().Delete(ctx, name, now),
			all.ValidatingAdmissionPolicies().Delete(ctx, name, now), all.ValidatingAdmissionPolicyBindings().Delete(ctx, name, now))
	case strings.Contains(words[2], ","):
		any, e := dynamic.NewForConfig(r.config)
		must(r.T, e)
		mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(r.client.Discovery()))
		for _, kind := range strings.Split(words[2], ",") {
			resource, e := mapper.ResourceFor(schema.GroupVersionResource{Resource: kind})
			must(r.T, e)
			api := dynamic.ResourceInterface(any.Resource(resource))
			if namespaced {
				api = any.Resource(resource).Namespace(words[5])
			}
			if e := api.Delete(ctx, name, now); !apierrors.IsNotFound(e) {
				err = errors.Join(err, e)
			}
		}
	default:
		r.Fatalf("what does %q delete?", line)
	}
	must(r.T, err)
}

// forget removes what releases have left, but for namespaces, which nobody here could end.
func (r *releases) forget() {
	ctx, now, ours := context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=csi-fencepost"}
	must(r.T, r.client.RbacV1().ClusterRoles().DeleteCollection(ctx, now, ours))
	must(r.T, r.client.RbacV1().ClusterRoleBindings().DeleteCollection(ctx, now, ours))
	for _, namespace := range []string{"array-system", "disk-system", "new-system", "csi-fencepost", "kube-node-lease", "csi-fencepost-failover"} {
		must(r.T, r.client.RbacV1().Roles(namespace).DeleteCollection(ctx, now, ours))
		must(r.T, r.client.RbacV1().RoleBindings(namespace).DeleteCollection(ctx, now, ours))
		must(r.T, r.client.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, now, ours))
		must(r.T, r.client.CoreV1().ServiceAccounts(namespace).DeleteCollection(ctx, now, ours))
	}
	for r.allowed("list") { // until the API server has seen it
		time.Sleep(100 * time.Millisecond)
	}
}

// chartForAnyVersion is the chart without kubeVersion: the API server here was built without a version
// in it, and says that it is v0.0.0.
func chartForAnyVersion(t *testing.T) string {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "csi-fencepost")
	must(t, os.CopyFS(chart, os.DirFS(ownChart)))
	head := filepath.Join(chart, "Chart.yaml")
	text, err := os.ReadFile(head)
	must(t, err)
	must(t, os.WriteFile(head, regexp.MustCompile("(?m)^kubeVersion: .*\n").ReplaceAll(text, nil), 0o644))
	return chart
}

// A release on a real API server, from Observe to its end: one driver is one release's, what a
// sidecar in Enforce needs stays, and the notes say what is left over.
func TestAReleaseOfTheChartLivesAndEnds(t *testing.T) {
	single.take(t)
	bed := ownServer(t)
	client := bed.Cluster.Client()
	for _, name := range []string{"array-system", "disk-system", "new-system", "kube-node-lease", "csi-fencepost-failover"} {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	chart := chartForAnyVersion(t)
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		r := &releases{T: t, chart: chart, client: client, config: bed.Cluster.Admin(), helm: func(stdin string, args ...string) ([]byte, error) {
			return helm(stdin, append(args, "--kubeconfig="+bed.Cluster.AdminKubeconfig())...)
		}}
		defer r.forget()
		r.knows()
		r.spares()
		r.lives()
		r.isAlone()
		r.goesBack()
		r.warns()
		r.putsIn()
		r.putsInByWebhook()
		r.ends()
	})
}

// all of the chart that this API server takes: it has none of the Prometheus operator's kinds.
const allOfIt = "admission: {ledger: true, nodes: true, records: true, taint: true, operators: storage-admins}\nfailover: {enabled: true}\nimage: {repository: csi-fencepost}\n"

const (
	enforces      = "clusterrolebinding csi-fencepost-enforce-array.example.com"
	guards        = "clusterrolebinding csi-fencepost-guard-array.example.com"
	writesLedgers = "clusterrolebinding csi-fencepost-writer-of-array.example.com"
	configures    = "configmap csi-fencepost-array.example.com"
	sharedRole    = "clusterrole csi-fencepost-enforce"
	ofRecords     = "namespace csi-fencepost"
	ofDevices     = "namespace csi-fencepost-failover"
	failoverRuns  = "deployment csi-fencepost-failover"
	keepsLedgers  = "policy csi-fencepost-ledger-kept"
)

// knows: an account that does not exist is said in mode Observe, and refused in Enforce.
func (r *releases) knows() {
	const says = "ServiceAccount array-controller in that namespace"
	accounts := r.client.CoreV1().ServiceAccounts("array-system")
	if err := accounts.Delete(r.Context(), "array-controller", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	upgrade := []string{"upgrade", "--install", "fence", r.chart, "--namespace=ops", "--create-namespace", "-f=-"}
	r.refused("drivers[0], array.example.com: serviceAccounts: array-controller does not exist in namespace array-system", arrayIn(config.Enforce), upgrade...)
	if said := r.do(arrayIn(config.Observe), upgrade...); !strings.Contains(said, "THERE IS NO "+says) {
		r.Errorf("it says nothing of an account that does not exist:\n%s", said)
	}
	for namespace, name := range map[string]string{"array-system": "array-controller", "disk-system": "disk"} {
		_, err := r.client.CoreV1().ServiceAccounts(namespace).Create(r.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			r.Fatal(err)
		}
	}
	if said := r.do(arrayIn(config.Observe), upgrade...); strings.Contains(said, says) {
		r.Errorf("the account exists:\n%s", said)
	}
	r.do("", "uninstall", "fence", "--namespace=ops")
	r.forget()
}

// configure writes a configuration as people and inject do, without Helm, and takes away what is there.
func (r *releases) configure(namespace, name, text string) {
	r.Helper()
	configs := r.client.CoreV1().ConfigMaps(namespace)
	if err := configs.Delete(r.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	_, err := configs.Create(r.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"config.yaml": text}}, metav1.CreateOptions{})
	must(r.T, err)
}

// spares: --take-ownership writes over no configuration that says something else.
func (r *releases) spares() {
	const failover = "csi-fencepost-failover"
	r.configure("array-system", "csi-fencepost-array.example.com", head+"driver: {unpublishRevokesAccess: true}\nevidence: {outOfServiceTaint: true}\n")
	take := []string{"install", "fence", r.chart, "--namespace=ops", "--create-namespace", "-f=-", "--take-ownership"}
	if strings.HasPrefix(r.do("", "version", "--short"), "v4") {
		take = append(take, "--force-conflicts")
	}
	const is = "drivers[0], array.example.com: ConfigMap array-system/csi-fencepost-array.example.com is there already, is not this release's, and has other values (mode Enforce) in: driver.unpublishRevokesAccess"
	r.refused(is+", mode. ", arrayIn(config.Observe), take...)
	r.refused(is+". ", arrayIn(config.Enforce), take...)
	const taken = "  config: {driver: {unpublishRevokesAccess: true}}\n"
	r.configure(failover, failover, "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nfailover: {enabled: true}\nfencing: {fenceAfter: 60s}\n")
	r.configure("array-system", "csi-fencepost-array.example.com", head+"driver: {unpublishRevokesAccess: true}\nfencing: {apart: true}\n")
	r.refused("failover.enabled: ConfigMap csi-fencepost-failover/csi-fencepost-failover is there already, is not this release's, and has other values (mode Enforce) in: fencing.fenceAfter. ", arrayIn(config.Enforce, taken, allOfIt), take...)
	r.has(map[string]string{configures: "", enforces: "", failoverRuns: ""})
	r.do(arrayIn(config.Enforce, taken, strings.ReplaceAll(allOfIt, "failover: {", "failover: {config: {fencing: {fenceAfter: 60s}}, ")), take...)
	r.has(map[string]string{configures: "fence", enforces: "fence", failoverRuns: "fence"})
	r.do("", "uninstall", "fence", "--namespace=ops")
	r.forget()
}

// lives: from Observe to Enforce with everything.
func (r *releases) lives() {
	r.do(arrayIn(config.Observe), "install", "fence", r.chart, "--namespace=ops", "--create-namespace", "-f=-")
	if r.may("list"); r.allowed("patch") {
		r.Error("in mode Observe the sidecar may write ledgers")
	}
	// A chart of before gave each driver the ledgers of all, and keeps that.
	const before = "csi-fencepost-writer-array.example.com"
	_, err := r.client.RbacV1().ClusterRoleBindings().Create(r.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: before, Labels: map[string]string{"csi-fencepost.io/driver": "array.example.com"}, Annotations: map[string]string{
			"helm.sh/resource-policy": "keep", "meta.helm.sh/release-name": "fence", "meta.helm.sh/release-namespace": "ops"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "csi-fencepost-writer"},
	}, metav1.CreateOptions{})
	must(r.T, err)
	enforce := []string{"upgrade", "fence", r.chart, "--namespace=ops", "-f=-"}
	if said := r.do(arrayIn(config.Enforce, allOfIt), enforce...); strings.Contains(said, "LEFT OVER") || !strings.Contains(said, "TOO MUCH") || !strings.Contains(said, "kubectl delete clusterrolebinding "+before+"\n") {
		r.Errorf("a right to all ledgers is too much, and nothing is left over:\n%s", said)
	}
	r.delete("kubectl delete clusterrolebinding " + before)
	if said := r.do(arrayIn(config.Enforce, allOfIt), enforce...); strings.Contains(said, "LEFT OVER") || strings.Contains(said, "TOO MUCH") {
		r.Errorf("nothing is left over:\n%s", said)
	}
	r.may("patch")
	r.has(map[string]string{enforces: "fence", guards: "fence", writesLedgers: "fence", failoverRuns: "fence", keepsLedgers: "fence", configures: "fence"})
}

// isAlone: a second release has neither this driver nor failover, whatever it may take; with another
// driver it leaves what is shared to the first.
func (r *releases) isAlone() {
	const disk = "drivers: [{name: disk.example.com, namespace: disk-system, serviceAccounts: [disk], mode: Enforce}]\n"
	second := []string{"install", "other", r.chart, "--namespace=ops2", "--create-namespace", "-f=-"}
	r.refused("drivers[0], array.example.com: it belongs to release ops/fence already", arrayIn(config.Enforce), second...)
	r.refused("drivers[0], array.example.com: it belongs to release ops/fence already", arrayIn(config.Enforce), append(second, "--take-ownership")...)
	r.refused("csi-fencepost failover is of release ops/fence already", disk+allOfIt, second...)
	r.has(map[string]string{enforces: "fence", failoverRuns: "fence"})
	if said := r.do(disk, second...); !strings.Contains(said, "What drivers share is of release ops/fence") {
		r.Errorf("it does not say whose is what is shared:\n%s", said)
	}
	r.has(map[string]string{"clusterrolebinding csi-fencepost-enforce-disk.example.com": "other", sharedRole: "fence", ofRecords: "kept"})
}

// goesBack: what a sidecar in Enforce needs stays when the release goes back to Observe, but not that by
// which failover fences for its driver; it is the release's again
// in Enforce, and what the notes say of it takes it away.
func (r *releases) goesBack() {
	r.do(arrayIn(config.Observe), "upgrade", "fence", r.chart, "--namespace=ops", "-f=-")
	r.do(arrayIn(config.Enforce), "upgrade", "fence", r.chart, "--namespace=ops", "-f=-")
	said := r.do(arrayIn(config.Observe), "upgrade", "fence", r.chart, "--namespace=ops", "-f=-")
	r.has(map[string]string{enforces: "", guards: "fence", writesLedgers: "fence", sharedRole: "fence", ofDevices: "kept", failoverRuns: "", keepsLedgers: ""})
	if !r.allowed("patch") || strings.Contains(said, "FIRST") {
		r.Errorf("a sidecar that still runs in Enforce may write no ledger, or somebody has to do something first:\n%s", said)
	}
	var lines []string
	for line := range strings.SplitSeq(said, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "kubectl delete ") {
			lines = append(lines, line)
		}
	}
	if !strings.Contains(said, "LEFT OVER") || len(lines) < 5 {
		r.Fatalf("the notes name %d objects that are left over:\n%s", len(lines), said)
	}
	for _, line := range lines {
		r.delete(line)
	}
	r.has(map[string]string{guards: "", writesLedgers: "", configures: "fence", "clusterrolebinding csi-fencepost-observe-array.example.com": "fence", "clusterrolebinding csi-fencepost-enforce-disk.example.com": "other"})
	if said = r.do(arrayIn(config.Observe), "upgrade", "fence", r.chart, "--namespace=ops", "-f=-"); strings.Contains(said, "LEFT OVER") {
		r.Errorf("all of it is gone:\n%s", said)
	}
}

// warns: of what stands in the cluster that this release has not made, or made before, and that would
// stop a guard, or have failover fence for a driver that nobody guards.
func (r *releases) warns() {
	upgrade := []string{"upgrade", "fence", r.chart, "--namespace=ops", "-f=-"}
	byHand := func(name string) {
		_, err := r.client.RbacV1().ClusterRoleBindings().Create(r.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "csi-fencepost-enforce"},
		}, metav1.CreateOptions{})
		must(r.T, err)
	}
	gone := func(name string) { r.delete("kubectl delete clusterrolebinding " + name) }
	byHand("csi-fencepost-enforce-outside.example.com")
	r.refused("admission: outside.example.com is guarded in mode Enforce without the rights of deploy/admission/writers.yaml", arrayIn(config.Enforce, allOfIt), upgrade...)
	byHand("csi-fencepost-writer-outside.example.com")
	r.do(arrayIn(config.Observe, "admission: {records: true}\n"), upgrade...)
	r.refused("admission: ValidatingAdmissionPolicy csi-fencepost-records is of release ops/fence already", "drivers: []\nadmission: {records: true}\n", "upgrade", "other", r.chart, "--namespace=ops2", "-f=-", "--take-ownership")
	gone("csi-fencepost-enforce-outside.example.com")
	gone("csi-fencepost-writer-outside.example.com")

	byHand("csi-fencepost-enforce-array.example.com")
	const first = "FIRST, where csi-fencepost failover runs"
	if said := r.do(arrayIn(config.Observe), upgrade...); !strings.Contains(said, first) || !strings.Contains(said, "kubectl delete "+enforces) {
		r.Errorf("it does not say that failover fences for a driver in Observe:\n%s", said)
	}
	gone("csi-fencepost-enforce-array.example.com")

	r.do("", "uninstall", "other", "--namespace=ops2")
	newer := chartOfVersion(r.T, r.chart, "v9.9.9")
	const disk = "drivers: [{name: disk.example.com, namespace: disk-system, serviceAccounts: [disk], mode: Enforce}]\n"
	if said := r.do(disk, "install", "other", newer, "--namespace=ops2", "-f=-"); !strings.Contains(said, "OF ANOTHER VERSION than this one (v9.9.9)") || !strings.Contains(said, "ClusterRole csi-fencepost-enforce of release ops/fence: version dev\n") {
		r.Errorf("it does not say that what is shared is older:\n%s", said)
	}

	moved := strings.Replace(arrayIn(config.Observe), "array-system", "disk-system", 1)
	moved = strings.Replace(moved, "array-controller", "disk", 1)
	said := r.do(moved, upgrade...)
	if !strings.Contains(said, "kubectl delete role csi-fencepost-leader-array.example.com -n array-system\n") {
		r.Errorf("it does not say what is left over in the namespace of before:\n%s", said)
	}
	r.do(arrayIn(config.Observe), upgrade...)
	for _, kind := range []string{"role", "rolebinding"} {
		r.delete("kubectl delete " + kind + " csi-fencepost-leader-array.example.com -n disk-system")
	}
	must(r.T, r.client.CoreV1().ConfigMaps("disk-system").Delete(r.Context(), "csi-fencepost-array.example.com", metav1.DeleteOptions{}))
}

// putsIn: the policies that put the sidecar into pods end with the release's injection in Observe. In
// Enforce they stay, and the notes say how they end.
func (r *releases) putsIn() {
	const puts = "injection: {enabled: true}\nimage: {repository: csi-fencepost}\n"
	const policy = "policy csi-fencepost-inject-array.example.com"
	upgrade := []string{"upgrade", "fence", r.chart, "--namespace=ops", "-f=-"}
	if said := r.do(arrayIn(config.Observe, puts), upgrade...); !strings.Contains(said, "array.example.com: those with the annotation csi-fencepost.io/inject: enabled") {
		r.Errorf("it does not say which pods get the sidecar:\n%s", said)
	}
	r.has(map[string]string{policy: "fence"})
	r.do(arrayIn(config.Enforce, puts), upgrade...)
	r.do(arrayIn(config.Observe, puts), upgrade...)
	r.do(arrayIn(config.Observe), upgrade...)
	r.has(map[string]string{policy: ""})
	r.do(arrayIn(config.Enforce, puts), upgrade...)
	said := r.do(arrayIn(config.Enforce), upgrade...)
	r.has(map[string]string{policy: "fence"})
	const ends = "kubectl delete mutatingadmissionpolicy,mutatingadmissionpolicybinding,validatingadmissionpolicy,validatingadmissionpolicybinding csi-fencepost-inject-array.example.com"
	if !strings.Contains(said, "PODS STILL GET THE SIDECAR") || !strings.Contains(said, ends) {
		r.Errorf("it does not say that pods still get the sidecar:\n%s", said)
	}
	if said := r.do(arrayIn(config.Enforce, puts), upgrade...); strings.Contains(said, "PODS STILL GET") {
		r.Errorf("the release has it again:\n%s", said)
	}
	r.do(arrayIn(config.Observe), upgrade...)
	r.has(map[string]string{policy: "fence"})
	r.delete(ends)
	if said := r.do(arrayIn(config.Observe), upgrade...); strings.Contains(said, "PODS STILL GET") {
		r.Errorf("nothing is left:\n%s", said)
	}
	r.refused("drivers[0], disk.example.com: injection.enabled: driver array.example.com in the same namespace is of another release", strings.NewReplacer("array.example.com", "disk.example.com", "array-controller", "disk").Replace(arrayIn(config.Observe, puts)), "install", "third", r.chart, "--namespace=ops3", "--create-namespace", "-f=-")
}

// putsInByWebhook: the same by the webhook, whose Deployment stays with what calls it.
func (r *releases) putsInByWebhook() {
	const puts = "injection: {enabled: true, by: Webhook}\nimage: {repository: csi-fencepost}\n"
	const name = "fence-csi-fencepost-webhook"
	there := func(driver string, pair, program bool) {
		r.Helper()
		pairName := "csi-fencepost-inject-" + driver
		_, mutating := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(r.Context(), pairName, metav1.GetOptions{})
		_, validating := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(r.Context(), pairName, metav1.GetOptions{})
		_, may := r.client.RbacV1().ClusterRoleBindings().Get(r.Context(), pairName, metav1.GetOptions{})
		_, answers := r.client.AppsV1().Deployments("ops").Get(r.Context(), name, metav1.GetOptions{})
		if (mutating == nil) != pair || (validating == nil) != pair || (may == nil) != pair || (answers == nil) != program {
			r.Errorf("the webhooks of %s, their right and their Deployment are there: %v, %v, %v, %v, want %t and %t", driver, mutating, validating, may, answers, pair, program)
		}
	}
	says := func(said string, want ...string) {
		r.Helper()
		for _, says := range want {
			if !strings.Contains(said, says) {
				r.Errorf("the notes do not say %q:\n%s", says, said)
			}
		}
	}
	const array, other = "array.example.com", "new.example.com"
	another := strings.NewReplacer(array, other, "array-system", "new-system").Replace(arrayIn(config.Observe, puts))
	upgrade := []string{"upgrade", "fence", r.chart, "--namespace=ops", "-f=-"}
	const pair = "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration,clusterrole,clusterrolebinding csi-fencepost-inject-" + array
	const scoped = "kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding,clusterrole,clusterrolebinding " + name + "-ops --ignore-not-found"
	const program = "kubectl delete deployment,poddisruptionbudget,service,secret,role,rolebinding,serviceaccount " + name + " -n ops --ignore-not-found"
	said := r.do(arrayIn(config.Observe, puts), upgrade...)
	says(said, "kubectl rollout status deployment "+name+" -n ops")
	if strings.Contains(said, "mutatingwebhookconfiguration") {
		r.Errorf("it is all there, and something is to be deleted:\n%s", said)
	}
	there(array, true, true)
	said = r.do(arrayIn(config.Observe), upgrade...)
	there(array, false, true)
	says(said, scoped, program)

	// Each of these ends it for a driver in Enforce without having said so.
	for what, ends := range map[string]func() string{
		"the injection is off":    func() string { return r.do(arrayIn(config.Enforce), upgrade...) },
		"the driver is taken out": func() string { return r.do(another, upgrade...) },
		"the upgrade is taken back": func() string {
			r.do("", "rollback", "fence", "--namespace=ops")
			return r.do(arrayIn(config.Observe), upgrade...)
		},
	} {
		r.do(arrayIn(config.Enforce, puts), upgrade...)
		says(ends(), "PODS STILL GET THE SIDECAR", pair)
		there(array, true, true)
		if r.Failed() {
			r.Fatalf("after %s", what)
		}
		r.do(arrayIn(config.Observe), upgrade...)
		there(array, true, true)
		there(other, false, true)
	}
	// A rollback to drivers in Observe takes nothing from the Deployment that webhooks of before call.
	r.do(another, upgrade...)
	there(other, true, true)
	r.do(arrayIn(config.Enforce, puts), upgrade...)
	r.do("", "rollback", "fence", "--namespace=ops")
	there(other, true, true)
	says(r.do(arrayIn(config.Observe), upgrade...), pair, scoped, program)
	there(array, true, true)
	there(other, false, true)

	said = r.do(arrayIn(config.Enforce, strings.Replace(puts, ", by: Webhook", "", 1)), upgrade...)
	says(said, "LEFT OVER are webhooks", pair, scoped, program)
	r.do(arrayIn(config.Observe), upgrade...)
	r.delete(pair)
	r.delete(scoped)
	r.delete(program)
	there(array, false, false)
	if said := r.do(arrayIn(config.Observe), upgrade...); strings.Contains(said, name) || strings.Contains(said, pair) {
		r.Errorf("nothing is left:\n%s", said)
	}
	r.delete("kubectl delete mutatingadmissionpolicy,mutatingadmissionpolicybinding,validatingadmissionpolicy,validatingadmissionpolicybinding csi-fencepost-inject-array.example.com")
}

// chartOfVersion is a chart as it is packed for a version of the program.
func chartOfVersion(t *testing.T, chart, version string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "csi-fencepost")
	must(t, os.CopyFS(folder, os.DirFS(chart)))
	head := filepath.Join(folder, "Chart.yaml")
	text, err := os.ReadFile(head)
	must(t, err)
	must(t, os.WriteFile(head, regexp.MustCompile("(?m)^appVersion: .*\n").ReplaceAll(text, []byte("appVersion: "+version+"\n")), 0o644))
	return folder
}

// ends: what a sidecar in Enforce needs outlives its release, and another one has it only once
// somebody says so.
func (r *releases) ends() {
	r.do(arrayIn(config.Enforce, allOfIt), "upgrade", "fence", r.chart, "--namespace=ops", "-f=-")
	r.do("", "uninstall", "fence", "--namespace=ops")
	r.has(map[string]string{enforces: "", guards: "fence", writesLedgers: "fence", configures: "fence", sharedRole: "fence", ofRecords: "kept", ofDevices: "kept", failoverRuns: "", keepsLedgers: ""})
	r.may("patch")
	again := []string{"install", "again", r.chart, "--namespace=ops", "-f=-"}
	r.refused("--set takeFrom=ops/fence --take-ownership", arrayIn(config.Enforce), again...)
	again = append(again, "--set=takeFrom=ops/fence", "--take-ownership")
	r.refused("has other values (mode Enforce) in: fencing.apart, mode. ", arrayIn(config.Observe), again...)
	r.do(arrayIn(config.Enforce, "  config: {fencing: {apart: true}}\n"), again...)
	r.has(map[string]string{enforces: "again", configures: "again", sharedRole: "again", ofRecords: "kept"})
	r.do("", "uninstall", "again", "--namespace=ops")
	r.do("", "uninstall", "other", "--namespace=ops2")
	r.has(map[string]string{guards: "again", "clusterrolebinding csi-fencepost-guard-disk.example.com": "other"})
}
