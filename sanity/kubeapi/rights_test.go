package kubeapi

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

var withHTTP = []string{"--http-endpoint=127.0.0.1:0"}

// account is the stages' service account.
const account = "driver-controller"

// toAnother binds the rights to a service account that is not the sidecar's, as
// `helm --namespace` left out does.
func toAnother(manifests string) string {
	return strings.ReplaceAll(manifests, "name: "+account, "name: somebody-else")
}

// given gives the sidecar the rights after all.
func (r *rig) given(render func(deploy.Names) ([]byte, error)) {
	r.t.Helper()
	manifests, err := render(deploy.Names{Namespace: r.Name, ServiceAccount: account, Driver: r.Driver})
	r.must(err)
	r.Apply(manifests)
}

// wantReady waits until /readyz has that code and all of parts.
func (r *rig) wantReady(p *controlplane.Process, code int, parts ...string) {
	r.t.Helper()
	var got int
	var body string
	defer func() {
		if r.t.Failed() {
			r.t.Logf("/readyz: %d\n%s", got, body)
		}
	}()
	r.WaitFor(30*time.Second, "/readyz says "+strings.Join(parts, ", "), func() bool {
		got, body = r.HTTP(p, "/readyz")
		for _, part := range parts {
			if !strings.Contains(body, part) {
				return false
			}
		}
		return got == code
	})
}

func TestInObserveVolumesAreAttachedWhateverRightIsMissing(t *testing.T) {
	r := newRigWithout(t, "rightless", bed.StageOptions{Config: "mode: Observe", ObserveRights: true, FencepostArgs: withHTTP, Rights: toAnother})
	v, n := r.volume("v"), r.node("n")
	r.attachment(v, n)
	p := r.start("fp")
	r.proxy = r.dial("fp")
	r.must(r.publish(v.Handle, n))
	r.must(r.unpublish(v.Handle, n))
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id)
	r.wantReady(p, 503, "[-] guard: ", "[-] rights: system:serviceaccount:"+r.Name+":"+account+" may not get, list, watch persistentvolumes, nor",
		"get, list, watch leases.coordination.k8s.io in namespace csi-fencepost", "deploy/rbac has for mode Observe", "[+] socket")

	r.given(deploy.Observe)
	r.wantReady(p, 200, "[+] guard", "[+] rights")
	r.must(r.publish(v.Handle, n))
	r.WaitFor(5*time.Second, "the publish is judged", func() bool {
		_, metrics := r.HTTP(p, "/metrics")
		return strings.Contains(metrics, `csi_fencepost_decisions_total{call="ControllerPublishVolume"`)
	})
}

func TestEnforceSaysAtOnceWhichRightsAreMissingAndForwardsNothing(t *testing.T) {
	r := newRigWithout(t, "rightless-enforce", bed.StageOptions{FencepostArgs: withHTTP, Rights: toAnother})
	p := r.Launch("fp")
	r.WaitLog(p, 20*time.Second, `"A right is missing" err="system:serviceaccount:`+r.Name+":"+account+` may not .*, nor patch persistentvolumes, nor`)
	r.wantReady(p, 503, "[-] guard: ", "[-] rights: ", "create, update, delete leases.coordination.k8s.io in namespace csi-fencepost", "[-] socket")
	r.Never(15*time.Second, "it serves what it cannot judge", func() bool { _, err := os.Stat(r.Socket("fp.sock")); return err == nil })

	r.given(deploy.Enforce)
	r.wantReady(p, 200, "[+] guard", "[+] rights", "[+] socket")
}

// A right to write shows in no watch.
func TestARightToWriteThatIsMissingIsSaidBeforeAnythingIsWritten(t *testing.T) {
	r := newRigWithout(t, "observe-rights", bed.StageOptions{ObserveRights: true, FencepostArgs: withHTTP})
	p := r.start("fp")
	r.wantReady(p, 503, "[+] guard", "[-] rights: ", "may not patch persistentvolumes, nor patch volumeattachments.storage.k8s.io, nor create, update, delete leases.coordination.k8s.io in namespace csi-fencepost: ")
	v, n := r.volume("v"), r.node("n")
	r.attachment(v, n)
	r.proxy = r.dial("fp")
	r.wantError(r.publish(v.Handle, n), codes.Unavailable, `cannot patch resource "persistentvolumes"`)
	r.wantCalls(v.Handle)
}

func TestAMissingNamespaceOfTheRecordsIsSaidAtTheStartAndInTheRefusal(t *testing.T) {
	const nowhere = "records-nowhere"
	everywhere := func(manifests string) string {
		return manifests + `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: records-everywhere}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: records-everywhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: records-everywhere}
subjects: [{kind: ServiceAccount, name: ` + account + `, namespace: no-namespace}]
`
	}
	r := newRigWithout(t, "no-namespace", bed.StageOptions{Config: "fencing: {namespace: " + nowhere + ", maxUnhealthy: 100%, suspectAfter: 12s}",
		FencepostArgs: withHTTP, Rights: everywhere})
	p := r.start("fp")
	r.wantReady(p, 503, "[+] guard", "[-] rights: ", "namespace "+nowhere, "kubectl create namespace "+nowhere)

	v, target := r.volume("v"), r.node("target")
	r.proxy = r.dial("fp")
	old := r.deadHolder(v, "old", false)
	old.taint()
	r.attachment(v, target)
	r.settle()
	r.wantError(r.publish(v.Handle, target), codes.Unavailable, nowhere, "To unblock: create the namespace")

	_, err := r.Client.CoreV1().Namespaces().Create(r.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nowhere}}, metav1.CreateOptions{})
	r.must(err)
	r.wantReady(p, 200, "[+] rights")
}

// In a namespace of Kubernetes' own others write Leases too, as for their leaders. Whatever rights it has, no
// sidecar goes by records there: it does not start, nor does failover.
func TestNothingGoesByRecordsInANamespaceOfKubernetesOwn(t *testing.T) {
	r := newRigWithout(t, "of-kubernetes", bed.StageOptions{})
	r.Plugs("fence_bmc")
	calls := len(r.Array.Calls())
	refused := func(namespace string, args ...string) {
		t.Helper()
		file := r.Write(args[0]+"-"+namespace+".yaml", "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"+
			map[string]string{"run": "", "failover": "failover: {enabled: true}\n"}[args[0]]+
			"fencing: {namespace: "+namespace+", levels: [{agents: [{name: bmc, exec: {agent: fence_bmc, nodeParameters: {plug: {n: p}}}}]}]}\n", 0o600)
		execute(t, r.Bed.Fencepost, append(args, "--config="+file, "--agent-dirs="+r.Socket("agents"), "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())...).
			ends(t, 2).says(t, "fencing.namespace", namespace, "is a namespace of Kubernetes itself")
	}
	for _, namespace := range []string{"kube-system", "kube-node-lease", "kube-public", "default"} {
		refused(namespace, "run", "--csi-address="+r.Socket("csi.sock"), "--listen="+r.Socket("fp.sock"))
	}
	refused("kube-system", "failover")
	if _, err := os.Stat(r.Socket("fp.sock")); err == nil || len(r.Array.Calls()) > calls {
		t.Errorf("something is served (%v), or the driver was called: %+v", err, r.Array.Calls()[calls:])
	}
}

// Each mode's account tries, with what a request needs to reach the object, what the modes
// above it may, and what none may. What is allowed is not carried out (dryRun).
func TestTheAccountOfEachModeMayDoNoMoreThanItsMode(t *testing.T) {
	single.take(t)
	whole.use(t)
	const records, leases = "/apis/coordination.k8s.io/v1/namespaces/csi-fencepost/leases", "/apis/coordination.k8s.io/v1/namespaces/rights/leases"
	const token = "POST /api/v1/namespaces/csi-fencepost/serviceaccounts/"
	const storage, rbac = "/apis/storage.k8s.io/v1/", "/apis/rbac.authorization.k8s.io/v1/"
	tries := [][]string{
		{"POST /api/v1/namespaces/tenant/events", "PATCH /api/v1/namespaces/default/events/x", "PUT " + leases + "/csi-fencepost-leader-" + driver, "POST " + leases},
		{"PATCH /api/v1/persistentvolumes/x", "PATCH " + storage + "volumeattachments/x", "POST " + records, "PUT " + records + "/x", "DELETE " + records + "/x", token + deploy.KubeletAccount + "/token"},
		{"PATCH /api/v1/nodes/x", "DELETE /api/v1/namespaces/tenant/pods/x"},
		{ // nobody
			"GET /api/v1/secrets", "GET /api/v1/namespaces/rights/secrets/x", "GET /api/v1/namespaces/rights/configmaps/x", "PATCH /api/v1/namespaces/rights/configmaps/x",
			"PUT " + leases + "/another", "PATCH " + leases + "/csi-fencepost-leader-" + driver, "DELETE " + leases + "/csi-fencepost-leader-" + driver,
			"PATCH " + records + "/x", "DELETE " + records, "POST /apis/coordination.k8s.io/v1/namespaces/tenant/leases",
			"POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/x",
			"POST /api/v1/persistentvolumes", "PUT /api/v1/persistentvolumes/x", "DELETE /api/v1/persistentvolumes/x", "PATCH /api/v1/persistentvolumes/x/status",
			"POST " + storage + "volumeattachments", "DELETE " + storage + "volumeattachments/x", "PATCH " + storage + "volumeattachments/x/status", "PATCH " + storage + "csinodes/x",
			"POST /api/v1/nodes", "DELETE /api/v1/nodes/x", "PATCH /api/v1/nodes/x/status", "GET /api/v1/nodes/x/proxy/pods",
			"POST /api/v1/namespaces/tenant/pods", "PATCH /api/v1/namespaces/tenant/pods/x", "DELETE /api/v1/namespaces/tenant/pods", "GET /api/v1/namespaces/tenant/pods/x/log",
			"POST /api/v1/namespaces/tenant/pods/x/exec", "POST /api/v1/namespaces/tenant/pods/x/eviction", "PATCH /apis/apps/v1/namespaces/rights/deployments/x",
			"DELETE /api/v1/namespaces/tenant/events/x", "DELETE /api/v1/namespaces/tenant/persistentvolumeclaims/x",
			"POST " + rbac + "clusterrolebindings", "PATCH " + rbac + "clusterroles/csi-fencepost-observe", "POST /api/v1/namespaces/rights/serviceaccounts/x/token", token + "x/token", token + deploy.KubeletAccount, "GET /api/v1/nodes/x/metrics",
			"PATCH /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/csi-fencepost-records", "POST /apis/authentication.k8s.io/v1/tokenreviews",
			"POST /apis/csiaddons.openshift.io/v1alpha1/networkfences", "POST /apis/fence-agents-remediation.medik8s.io/v1alpha1/namespaces/default/fenceagentsremediations",
		},
	}
	for mode, render := range []func(deploy.Names) ([]byte, error){deploy.Observe, deploy.Enforce, deploy.Failover} {
		name := []string{"observe", "enforce", "failover"}[mode]
		t.Run(name, func(t *testing.T) {
			manifests, err := render(deploy.Names{Namespace: "rights", ServiceAccount: name, Driver: driver})
			must(t, err)
			namespaces(t, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: rights}\n"))
			applyAll(t, manifests)
			account := asAccount(t, "rights", name)
			refused := func(try string) bool { return refuses(t, account, try) }
			eventually(t, "the rights are in force", func() bool { return !refused(tries[mode][0]) })
			for least, all := range tries {
				for _, try := range all {
					if got := refused(try); got != (least > mode) {
						t.Errorf("%s: it is refused: %v", try, got)
					}
				}
			}
		})
	}

	// Failover as a Deployment of its own is no mode above these: it may some of each.
	t.Run("failover, apart", func(t *testing.T) {
		const own = "/namespaces/" + deploy.ApartNamespace
		const lead = "/apis/coordination.k8s.io/v1" + own + "/leases"
		may := []string{"POST /api/v1/namespaces/tenant/events", "PATCH /api/v1/namespaces/default/events/x", "POST " + records, "PUT " + records + "/x", "DELETE " + records + "/x",
			"PATCH /api/v1/nodes/x", "DELETE /api/v1/namespaces/tenant/pods/x", "POST " + lead, "PUT " + lead + "/" + cluster.FailoverLock}
		manifests, err := deploy.Apart(deploy.Names{Namespace: "rights", ServiceAccount: "x", Driver: driver})
		must(t, err)
		namespaces(t, manifests)
		applyAll(t, manifests)
		account := asAccount(t, deploy.ApartNamespace, deploy.ApartAccount)
		eventually(t, "the rights are in force", func() bool { return !refuses(t, account, may[len(may)-1]) })
		for _, try := range slices.Concat(append(tries, may, []string{
			"GET /api/v1" + own + "/secrets/x", "PATCH /api/v1" + own + "/configmaps/x", "PATCH /apis/apps/v1" + own + "/deployments/x", "POST /api/v1" + own + "/pods",
			"PUT " + lead + "/another", "DELETE " + lead + "/" + cluster.FailoverLock, "PATCH " + rbac + "clusterrolebindings/" + deploy.EnforcingPrefix + driver,
		})...) {
			if got := refuses(t, account, try); got == slices.Contains(may, try) {
				t.Errorf("%s: it is refused: %v", try, got)
			}
		}
	})
}

// refuses tells whether the account has no right to that: a verb, and a path. Nothing is carried out.
func refuses(t *testing.T, account kubernetes.Interface, try string) bool {
	t.Helper()
	verb, path, _ := strings.Cut(try, " ")
	request := account.CoreV1().RESTClient().Verb(verb).AbsPath(path)
	if verb != "GET" {
		request = request.Param("dryRun", metav1.DryRunAll).Body([]byte("{}"))
	}
	if verb == "PATCH" {
		request = request.SetHeader("Content-Type", string(types.MergePatchType))
	}
	return apierrors.IsForbidden(request.Do(t.Context()).Error())
}

// asAccount is a client of a service account, which need not exist.
func asAccount(t *testing.T, namespace, name string) kubernetes.Interface {
	t.Helper()
	config := whole.bed.Cluster.Admin()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + name, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// Whoever answers at a Node's address is sent a token that the driver's account had made: by it
// he reads kubelets' metrics, and else may what any service account may.
func TestTheTokenThatKubeletsAreAskedWithReadsTheirMetricsAndNothingElse(t *testing.T) {
	single.take(t)
	whole.use(t)
	manifests, err := deploy.Failover(deploy.Names{Namespace: "asking", ServiceAccount: "asks", Driver: driver})
	must(t, err)
	makeNamespace(t, "asking")
	applyAll(t, manifests)
	var token string
	eventually(t, "the driver's account has a token made", func() bool {
		made, err := asAccount(t, "asking", "asks").CoreV1().ServiceAccounts("csi-fencepost").CreateToken(t.Context(), deploy.KubeletAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = made.Status.Token
		}
		return err == nil || !apierrors.IsForbidden(err)
	})
	config := rest.AnonymousClientConfig(whole.bed.Cluster.Admin())
	config.BearerToken = token
	owner, err := kubernetes.NewForConfig(config)
	must(t, err)
	may := func(client kubernetes.Interface, namespace string) (rules []string) {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		answer, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
		must(t, err)
		if answer.Status.Incomplete {
			t.Fatalf("not all rules are told: %s", answer.Status.EvaluationError)
		}
		for _, r := range answer.Status.ResourceRules {
			rules = append(rules, fmt.Sprintf("%v of %v%v %v", r.Verbs, r.APIGroups, r.Resources, r.ResourceNames))
		}
		for _, r := range answer.Status.NonResourceRules {
			rules = append(rules, fmt.Sprint(r.Verbs, r.NonResourceURLs))
		}
		slices.Sort(rules)
		return rules
	}
	for _, namespace := range []string{"csi-fencepost", "asking", "kube-system", "kube-node-lease"} {
		want := append(may(asAccount(t, "tenant", "anybody"), namespace), "[get] of [][nodes/metrics] []")
		slices.Sort(want)
		if got := may(owner, namespace); !slices.Equal(got, want) {
			t.Errorf("in namespace %s it may\n%s\nwant\n%s", namespace, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
