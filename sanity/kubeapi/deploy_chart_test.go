package kubeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// ownChart is the chart of csi-fencepost itself.
const ownChart = "../../deploy/chart/csi-fencepost"

// eachHelm runs a test with both.
func eachHelm(t *testing.T, test func(t *testing.T, helm func(stdin string, args ...string) ([]byte, error))) {
	for name, tool := range map[string]*tool{"Helm 3": helm3Tool, "Helm 4": helmTool} {
		t.Run(name, func(t *testing.T) {
			program, home := tool.build(t), t.TempDir()
			env := []string{"HELM_PLUGINS=" + home, "HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none")}
			test(t, func(stdin string, args ...string) ([]byte, error) {
				return output(t, env, []byte(stdin), program, args...)
			})
		})
	}
}

// arrayIn is the driver of testdata/vendor.yaml in the chart's values, in a mode, with more lines.
func arrayIn(mode config.Mode, more ...string) string {
	return "drivers:\n- name: array.example.com\n  namespace: array-system\n  serviceAccounts: [array-controller]\n  mode: " + string(mode) + "\n" + strings.Join(more, "")
}

// chartCases are values, and what csi-fencepost inject is told for the same. writers are the
// objects of admission/writers.yaml besides, which inject leaves to people.
var chartCases = map[string]struct {
	values  string
	inject  inject.Options
	writers []string
	// more are files below deploy whose objects the chart has besides.
	more []string
	// without are objects that the chart leaves out, by their names: inject does not look whether
	// kubelets are asked.
	without string
}{
	"Observe": {values: arrayIn(config.Observe), inject: inject.Options{Mode: config.Observe}},
	"Enforce": {values: arrayIn(config.Enforce), inject: inject.Options{Mode: config.Enforce}, writers: []string{"writer-of", "provisioner-of"}},
	"the pod fences": {
		values:  arrayIn(config.Enforce, "  config: {"+cutsBoth+"}\n"),
		inject:  inject.Options{Config: []byte(head + cutsBoth)},
		writers: []string{"writer-of", "provisioner-of", "fencer"},
	},
	"the pod cuts the storage": {
		values:  arrayIn(config.Enforce, "  config: {"+cutsStorage+"}\n"),
		inject:  inject.Options{Config: []byte(head + cutsStorage)},
		writers: []string{"writer-of", "provisioner-of", "fencer-of"},
	},
	"no kubelet is asked": {
		values:  arrayIn(config.Enforce, "  config: {evidence: {kubelet: false}}\n"),
		inject:  inject.Options{Config: []byte(head + "evidence: {kubelet: false}\n")},
		writers: []string{"writer-of", "provisioner-of"},
		without: "csi-fencepost-kubelet",
	},
	"the pod moves pods": {
		values:  arrayIn(config.Enforce, "  config: {failover: {enabled: true}}\n"),
		inject:  inject.Options{Mode: config.Enforce, Failover: inject.InPod},
		writers: []string{"writer-of", "provisioner-of"},
	},
	"a Deployment of its own moves pods": {
		values:  arrayIn(config.Enforce, "failover: {enabled: true}\nimage: {repository: csi-fencepost}\n"),
		inject:  inject.Options{Mode: config.Enforce, Failover: inject.Apart},
		writers: []string{"writer-of", "provisioner-of", "apart-writer"},
		more:    []string{"failover/config.yaml"},
	},
	// The pod vouches for its storage fences alone, and asks the Deployment for the power.
	"a Deployment of its own cuts the power, and the pod the storage": {
		values:  arrayIn(config.Enforce, "  config: {failover: {enabled: true}, "+cutsStorage+"}\nfailover: {enabled: true}\nimage: {repository: csi-fencepost}\n"),
		inject:  inject.Options{Config: []byte(head + "failover: {enabled: true}\n" + strings.Replace(cutsStorage, "{", "{apart: true, ", 1)), Failover: inject.Apart},
		writers: []string{"writer-of", "provisioner-of", "fencer-of", "apart-writer"},
		more:    []string{"failover/config.yaml"},
	},
	"metrics over TLS": {
		values:  arrayIn(config.Enforce, "  httpAuthorization: true\n"),
		inject:  inject.Options{Mode: config.Enforce, TLSSecret: "tls"},
		writers: []string{"writer-of", "provisioner-of"},
	},
}

// A whole configuration begins with head; the rest is said in the chart's values as well.
const (
	head        = "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Enforce\n"
	cutsStorage = "fencing: {levels: [{agents: [{name: san, csiAddons: {}}]}]}"
	cutsBoth    = `fencing: {levels: [{agents: [{name: san, csiAddons: {}}]}, {agents: [{name: bmc, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: "10.1.0.11:623"}}}]}]}`
)

// For the same driver the chart gives what inject gives, object by object: it only says of each
// that it stays, and whose it is.
func TestTheChartRendersWhatInjectWrites(t *testing.T) {
	single.take(t)
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		for name, c := range chartCases {
			t.Run(name, func(t *testing.T) {
				out, err := helm(c.values, "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-", "--set=monitoring.dashboard=false")
				must(t, err)
				c.inject.Image, c.inject.Separate = "csi-fencepost:dev", true
				r, err := inject.Inject([]inject.File{{Name: "vendor.yaml", Text: vendor(t)}}, c.inject)
				must(t, err)
				want := objects(t, slices.Concat(r.Documents, []byte("\n---\n"), writersOf(t, c.writers)))
				for _, name := range c.more {
					want = append(want, shipped(t, name)...)
				}
				want = withGuard(want)
				want = slices.DeleteFunc(want, func(o *unstructured.Unstructured) bool {
					return c.without != "" && strings.HasPrefix(o.GetName(), c.without)
				})
				sameObjects(t, rendered(t, out), withShared(t, want))
			})
		}
	})
}

// withGuard adds the right of csi-fencepost-enforce-DRIVER under another name, which is kept: the first
// has failover fence for the driver, and ends with its mode.
func withGuard(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, o := range all {
		if o.GetKind() == "ClusterRoleBinding" && o.GetName() == "csi-fencepost-enforce-array.example.com" {
			guard := o.DeepCopy()
			guard.SetName("csi-fencepost-guard-array.example.com")
			return append(all, guard)
		}
	}
	return all
}

// withShared adds what drivers share, which a release has whole, whatever its own drivers need of it.
func withShared(t *testing.T, all []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	have := map[string]bool{}
	for _, o := range all {
		have[chartKey(o)] = true
	}
	for _, file := range []string{"rbac/namespace.yaml", "rbac/observe.yaml", "rbac/enforce.yaml", "rbac/kubelet.yaml", "rbac/failover.yaml", "rbac/authorization.yaml", "admission/writers.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy", file))
		must(t, err)
		for document := range strings.SplitSeq(string(text), "---\n") {
			o := objects(t, []byte(document))[0]
			shared := !strings.Contains(o.GetName(), "$")
			if file == "admission/writers.yaml" {
				shared = o.GetName() == "csi-fencepost-fencer"
			}
			if shared && !have[chartKey(o)] {
				all = append(all, o)
			}
		}
	}
	return all
}

// Of two releases one has what drivers share, and the other says shared: false, as two applications
// of Argo CD do: no right of the second is of a role, or an account, that neither has.
func TestTheChartSharesAllThatAnotherReleaseNeeds(t *testing.T) {
	single.take(t)
	const all = "  httpAuthorization: true\n  config: {failover: {enabled: true}, " + cutsBoth + "}\nshared: false\n"
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		render := func(values string) []*unstructured.Unstructured {
			out, err := helm(values, "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-")
			must(t, err)
			return objects(t, out)
		}
		for name, first := range map[string]string{"a driver in Observe": "drivers: [{name: b.example.com, namespace: two, serviceAccounts: [b], mode: Observe}]", "no driver": "drivers: []"} {
			second := render(arrayIn(config.Enforce, all))
			there, bindings := map[string]bool{"ServiceAccount array-system/array-controller": true}, 0
			for _, o := range append(render(first), second...) {
				there[chartKey(o)] = true
			}
			for _, o := range second {
				if o.GetNamespace() == "csi-fencepost" && !there["Namespace /csi-fencepost"] {
					t.Errorf("%s: nobody has the namespace of %s", name, chartKey(o))
				}
				if _, is := o.Object["roleRef"]; !is {
					continue
				}
				bindings++
				kind, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
				role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
				namespace := o.GetNamespace()
				if kind == "ClusterRole" {
					namespace = ""
				}
				if key := fmt.Sprint(kind, " ", namespace, "/", role); !there[key] {
					t.Errorf("%s: %s is to %s, which neither release has", name, chartKey(o), key)
				}
				subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
				for _, s := range subjects {
					if key := fmt.Sprint(s.(map[string]any)["kind"], " ", s.(map[string]any)["namespace"], "/", s.(map[string]any)["name"]); !there[key] {
						t.Errorf("%s: %s binds %s, which neither release has", name, chartKey(o), key)
					}
				}
			}
			if bindings < 11 {
				t.Errorf("%s: %d bindings", name, bindings)
			}
		}
	})
}

// shipped are the objects of a file below deploy.
func shipped(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", name))
	must(t, err)
	return objects(t, text)
}

// writersOf are those objects of admission/writers.yaml, for the driver of testdata/vendor.yaml.
func writersOf(t *testing.T, names []string) []byte {
	t.Helper()
	text, err := os.ReadFile("../../deploy/admission/writers.yaml")
	must(t, err)
	var all []string
	for _, name := range names {
		name = "csi-fencepost-" + name
		for document := range strings.SplitSeq(string(text), "---\n") {
			for _, of := range []string{name, name + "-${DRIVER}"} {
				if strings.Contains(document, "\nmetadata:\n  name: "+of+"\n") {
					all = append(all, strings.NewReplacer("${DRIVER}", "array.example.com", "${NAMESPACE}", "array-system", "${SERVICE_ACCOUNT}", "array-controller").Replace(document))
				}
			}
		}
	}
	want := 2 * len(names)
	if slices.Contains(names, "provisioner-of") {
		want-- // people bind it
	}
	if len(all) != want {
		t.Fatalf("%d objects for %q, want a role and a binding each", len(all), names)
	}
	return []byte(strings.Join(all, "---\n"))
}

// keptMarks keep an object when its release, or its application, ends or has it no longer.
var keptMarks = map[string]string{"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false,Delete=false"}

// rendered are the objects of the chart without what it says of each: the release in its labels.
func rendered(t *testing.T, manifests []byte) []*unstructured.Unstructured {
	t.Helper()
	all := objects(t, manifests)
	for _, o := range all {
		labels := o.GetLabels()
		if labels["app.kubernetes.io/instance"] != "fence" || labels["app.kubernetes.io/name"] != "csi-fencepost" || labels["helm.sh/chart"] == "" {
			t.Errorf("%s: labels %q", chartKey(o), labels)
		}
		if strings.Contains(o.GetName(), "array.example.com") != (labels["csi-fencepost.io/driver"] == "array.example.com") {
			t.Errorf("%s: driver %q", chartKey(o), labels["csi-fencepost.io/driver"])
		}
		for _, name := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/name", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart", "csi-fencepost.io/driver"} {
			delete(labels, name)
		}
		if o.SetLabels(labels); len(labels) == 0 {
			o.SetLabels(nil)
		}
	}
	return all
}

func chartKey(o *unstructured.Unstructured) string {
	return fmt.Sprint(o.GetKind(), " ", o.GetNamespace(), "/", o.GetName())
}

// ends tells whether an object ends with its release: what failover as a Deployment of its own has,
// but for the namespace with the devices' credentials, and by what it knows for whom it fences.
func ends(o *unstructured.Unstructured) bool {
	_, sign := deploy.Enforcing(o.GetName())
	return sign && o.GetKind() == "ClusterRoleBinding" || o.GetNamespace() == "csi-fencepost-failover" || strings.HasPrefix(o.GetName(), "csi-fencepost-apart")
}

// sameObjects compares the chart's objects of a sidecar, all of which are kept, and of failover,
// with others.
func sameObjects(t *testing.T, got, want []*unstructured.Unstructured) {
	t.Helper()
	left := map[string]*unstructured.Unstructured{}
	for _, o := range got {
		if left[chartKey(o)] != nil {
			t.Errorf("%s twice", chartKey(o))
		}
		if marks := o.GetAnnotations(); ends(o) && marks != nil || !ends(o) && !reflect.DeepEqual(marks, keptMarks) {
			t.Errorf("%s: annotations %q: a sidecar that runs loses it, or failover goes on without its release", chartKey(o), marks)
		}
		left[chartKey(o)] = o
	}
	for _, o := range want {
		is := left[chartKey(o)]
		if delete(left, chartKey(o)); is == nil {
			t.Errorf("%s is missing", chartKey(o))
			continue
		}
		is.SetAnnotations(nil)
		o.SetAnnotations(nil)
		switch o.GetKind() {
		case "Deployment": // its pods are replaced when its configuration changes
			const sum = "checksum/config"
			annotations, _, _ := unstructured.NestedStringMap(is.Object, "spec", "template", "metadata", "annotations")
			if len(annotations) != 1 || annotations[sum] == "" {
				t.Errorf("%s: its pods have annotations %q", chartKey(o), annotations)
			}
			unstructured.RemoveNestedField(is.Object, "spec", "template", "metadata", "annotations")
		case "ConfigMap":
			same(t, chartKey(o), configured(t, is), configured(t, o))
		}
		same(t, chartKey(o), is.Object, o.Object)
	}
	for name := range left {
		t.Errorf("%s is too many", name)
	}
}

// configured takes the configuration out of a ConfigMap, as the sidecar reads it.
func configured(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	text, _, err := unstructured.NestedString(o.Object, "data", "config.yaml")
	must(t, err)
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	unstructured.RemoveNestedField(o.Object, "data", "config.yaml")
	return map[string]any{"configuration": *c}
}

// Two drivers in one release have their own rights each, and one of what they share; a driver with
// two accounts has both in its bindings; one without any has no binding.
func TestTheChartHasSeveralDriversAndAccounts(t *testing.T) {
	single.take(t)
	const values = `
drivers:
- {name: a.example.com, namespace: one, serviceAccounts: [first, second], mode: Enforce}
- {name: b.example.com, namespace: two, mode: Observe}
`
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		out, err := helm(values, "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-")
		must(t, err)
		all, seen := objects(t, out), map[string]bool{}
		for _, o := range all {
			if seen[chartKey(o)] {
				t.Errorf("%s twice", chartKey(o))
			}
			seen[chartKey(o)] = true
		}
		subjects, _, _ := unstructured.NestedSlice(findObject(t, all, "ClusterRoleBinding", "csi-fencepost-enforce-a.example.com").Object, "subjects")
		account := func(name string) any {
			return map[string]any{"kind": "ServiceAccount", "name": name, "namespace": "one"}
		}
		if want := []any{account("first"), account("second")}; !reflect.DeepEqual(subjects, want) {
			t.Errorf("bound to %v, want %v", subjects, want)
		}
		if !seen["ConfigMap two/csi-fencepost-b.example.com"] || !seen["Role two/csi-fencepost-leader-b.example.com"] ||
			seen["ClusterRoleBinding /csi-fencepost-observe-b.example.com"] || seen["ClusterRoleBinding /csi-fencepost-enforce-b.example.com"] {
			t.Errorf("of b.example.com, without an account: %v", seen)
		}
		if !bytes.Contains(out, []byte("# Nothing was looked up in a cluster: whether another release has this driver is not known.\n")) {
			t.Error("it does not say that nothing was looked up")
		}
	})
}

// The policies are those of deploy/admission, and end with the release.
func TestTheChartHasThePoliciesOfAdmission(t *testing.T) {
	single.take(t)
	const values = "shared: false\nadmission: {ledger: true, nodes: true, records: true, taint: true, operators: storage-admins}\nmonitoring: {dashboard: false}\n"
	var want []*unstructured.Unstructured
	for _, name := range []string{"ledger", "nodes", "records", "taint"} {
		want = append(want, shipped(t, "admission/"+name+".yaml")...)
	}
	text, err := os.ReadFile("../../deploy/admission/writers.yaml")
	must(t, err)
	for _, o := range objects(t, bytes.ReplaceAll(text, []byte("${OPERATORS}"), []byte("storage-admins"))) {
		if name := o.GetName(); name == "csi-fencepost-operator" || name == "csi-fencepost-provisioner" {
			want = append(want, o)
		}
	}
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		out, err := helm(values, "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-")
		must(t, err)
		got := map[string]map[string]any{}
		for _, o := range rendered(t, out) {
			got[chartKey(o)] = o.Object
		}
		for _, o := range want {
			same(t, chartKey(o), got[chartKey(o)], o.Object)
			delete(got, chartKey(o))
		}
		for name := range got {
			t.Errorf("%s is too many", name)
		}
	})
}

// Dashboard, alerts and what scrapes are those of deploy/monitoring and deploy/failover, under the
// release's name.
func TestTheChartHasDashboardAndAlerts(t *testing.T) {
	single.take(t)
	values := arrayIn(config.Enforce, "failover: {enabled: true}\nimage: {repository: csi-fencepost}\nmonitoring: {alerts: true, podMonitor: true, labels: {release: prometheus}}\n")
	dashboard, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	must(t, err)
	rules, monitor := shipped(t, "monitoring/prometheusrule.yaml")[0], shipped(t, "failover/podmonitor.yaml")[0]
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		out, err := helm(values, "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-")
		must(t, err)
		all := objects(t, out)
		got := findObject(t, all, "ConfigMap", "fence-csi-fencepost-dashboard")
		same(t, "the dashboard", got.Object["data"].(map[string]any), map[string]any{"csi-fencepost.json": string(dashboard)})
		alerts := findObject(t, all, "PrometheusRule", "fence-csi-fencepost")
		same(t, "the alerts", alerts.Object["spec"].(map[string]any), rules.Object["spec"].(map[string]any))
		failover := findObject(t, all, "PodMonitor", "csi-fencepost-failover")
		same(t, "failover's PodMonitor", failover.Object["spec"].(map[string]any), monitor.Object["spec"].(map[string]any))
		sidecars := findObject(t, all, "PodMonitor", "fence-csi-fencepost-sidecars")
		same(t, "the sidecars' PodMonitor", sidecars.Object["spec"].(map[string]any), map[string]any{
			"selector": map[string]any{}, "namespaceSelector": map[string]any{"matchNames": []any{"array-system"}},
			"podMetricsEndpoints": monitor.Object["spec"].(map[string]any)["podMetricsEndpoints"],
		})
		for _, o := range []*unstructured.Unstructured{got, alerts, failover, sidecars} {
			if o.GetLabels()["release"] != "prometheus" {
				t.Errorf("%s: labels %q", chartKey(o), o.GetLabels())
			}
		}
		if got.GetLabels()["grafana_dashboard"] != "1" || got.GetNamespace() != "ops" {
			t.Errorf("%s: labels %q", chartKey(got), got.GetLabels())
		}
	})
}

// With monitoring.metricsFrom only that namespace reaches the ports of metrics and probes, and everybody, as the API
// servers, that of the webhook. By default, and of what does not run, there is no NetworkPolicy. The API server takes
// each, and stores what the chart has.
func TestTheChartLetsOneNamespaceReachTheMetrics(t *testing.T) {
	single.take(t)
	whole.use(t)
	const both = "failover: {enabled: true}\ninjection: {enabled: true, by: Webhook}\nimage: {repository: csi-fencepost}\n"
	const from, toFailover, toWebhook = "monitoring: {metricsFrom: prometheus-of-ours}\n", "csi-fencepost-failover", "fence-csi-fencepost-webhook"
	namespaces := []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "prometheus-of-ours"}}}}
	metrics := map[string]any{"from": namespaces, "ports": []any{map[string]any{"protocol": "TCP", "port": float64(9810)}}}
	everybody := map[string]any{"ports": []any{map[string]any{"protocol": "TCP", "port": float64(8443)}}}
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		render := func(values string) ([]byte, error) {
			return helm(values, "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-")
		}
		for values, want := range map[string][]string{
			arrayIn(config.Enforce, both):      nil,
			arrayIn(config.Enforce, from):      nil,
			arrayIn(config.Enforce, both+from): {toFailover, toWebhook},
			arrayIn(config.Enforce, strings.Replace(both, "by: Webhook", "by: Policy", 1)+from): {toFailover},
		} {
			out, err := render(values)
			must(t, err)
			got := map[string]*unstructured.Unstructured{}
			for _, o := range objects(t, out) {
				if o.GetKind() == "NetworkPolicy" {
					got[o.GetName()] = o
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s\nhas %d NetworkPolicies, want %v", values, len(got), want)
			}
			for _, name := range want {
				o := got[name]
				if o == nil {
					t.Fatalf("%s\nhas no NetworkPolicy %s", values, name)
				}
				pods := findObject(t, objects(t, out), "Deployment", name)
				if pods.GetNamespace() != o.GetNamespace() {
					t.Errorf("%s: namespace %s, and its pods are in %s", name, o.GetNamespace(), pods.GetNamespace())
				}
				selector, _, _ := unstructured.NestedMap(pods.Object, "spec", "selector")
				ingress := []any{metrics}
				if name == toWebhook {
					ingress = []any{everybody, metrics}
				}
				body, err := json.Marshal(map[string]any{"podSelector": selector, "policyTypes": []any{"Ingress"}, "ingress": ingress})
				must(t, err)
				plain := map[string]any{}
				must(t, json.Unmarshal(body, &plain))
				has, err := json.Marshal(o.Object["spec"])
				must(t, err)
				is := map[string]any{}
				must(t, json.Unmarshal(has, &is))
				same(t, name, is, plain)
				applied(t, o)
			}
		}
		for values, says := range map[string]string{
			"failover: {enabled: true, pod: {hostNetwork: true}}\nimage: {repository: csi-fencepost}\n":                                       "leave it out, or failover.pod.hostNetwork",
			arrayIn(config.Enforce, "injection: {enabled: true, by: Webhook, webhook: {pod: {hostNetwork: true}}}\nimage: {repository: a}\n"): "leave it out, or injection.webhook.pod.hostNetwork",
		} {
			if _, err := render(values + from); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", values, err, says)
			}
		}
		if _, err := render("monitoring: {metricsFrom: 'a b'}"); err == nil || !strings.Contains(err.Error(), "monitoring/metricsFrom") {
			t.Errorf("a namespace that is none: %v", err)
		}
	})
}

// What is wrong is said by where it is and what would be right, before anything is applied.
func TestTheChartRefusesWrongValues(t *testing.T) {
	single.take(t)
	for name, c := range map[string]struct {
		values string
		says   []string
	}{
		"a mode that is none":                          {arrayIn("enforce"), []string{"drivers/0/mode", "'Observe', 'Enforce'"}},
		"no namespace":                                 {"drivers: [{name: a.example.com, mode: Observe}]", []string{"drivers/0", "namespace"}},
		"a name that is none":                          {"drivers: [{name: 'a\"b', namespace: storage, mode: Observe}]", []string{"drivers/0/name", "does not match"}},
		"a value that is misspelled":                   {"driver: []", []string{"additional properties 'driver' not allowed"}},
		"a field that no sidecar has":                  {arrayIn(config.Enforce, "  config: {fencing: {fenceafter: 60s}}\n"), []string{"drivers/0/config/fencing", "'fenceafter' not allowed"}},
		"a duration without a unit":                    {arrayIn(config.Enforce, "  config: {fencing: {suspectAfter: 30}}\n"), []string{"drivers/0/config/fencing/suspectAfter", "want string"}},
		"records where rights are not":                 {arrayIn(config.Enforce, "  config: {fencing: {namespace: other}}\n"), []string{"drivers/0/config/fencing/namespace", "'csi-fencepost'"}},
		"the mode in the configuration":                {arrayIn(config.Enforce, "  config: {mode: Observe}\n"), []string{"drivers/0/config", "'mode' not allowed"}},
		"Enforce, and nobody's":                        {"drivers: [{name: a.example.com, namespace: storage, mode: Enforce}]", []string{"drivers[0], a.example.com", "mode Enforce needs serviceAccounts", "kubectl get pods -n storage"}},
		"everybody's account":                          {"drivers: [{name: a.example.com, namespace: storage, serviceAccounts: [a, default], mode: Enforce}]", []string{"drivers[0], a.example.com", "default is the account of every pod in storage that names none"}},
		"one driver twice":                             {arrayIn(config.Observe, "- {name: array.example.com, namespace: other, mode: Observe}\n"), []string{"drivers[1], array.example.com", "named twice"}},
		"failover, and no image":                       {"failover: {enabled: true}", []string{"failover.enabled needs image.repository", "docs/use/install.md#the-image"}},
		"failover with other pods":                     {"failover: {pod: {containers: []}}", []string{"failover/pod", "'containers' not allowed"}},
		"failover with guards' evidence":               {"failover: {config: {evidence: {nodeDeleted: true}}}", []string{"failover/config/evidence", "'nodeDeleted' not allowed"}},
		"failover with a driver":                       {"failover: {config: {driver: {unpublishRevokesAccess: true}, unpublish: {unfenced: Refuse}}}", []string{"failover/config", "'driver'", "'unpublish'", "not allowed"}},
		"failover with a driver's agent":               {"failover: {config: {" + cutsStorage + "}}", []string{"failover/config/fencing/levels/0/agents/0", "'csiAddons' not allowed"}},
		"power here and elsewhere":                     {arrayIn(config.Enforce, "  config: {"+strings.Replace(cutsBoth, "{", "{apart: true, ", 1)+"}\n"), []string{"drivers[0], array.example.com: config.fencing.apart: csi-fencepost failover reads"}},
		"a time, and nobody who fences":                {arrayIn(config.Observe, "  config: {fencing: {fenceAfter: 60s}}\n"), []string{"drivers[0], array.example.com: config.fencing.fenceAfter and powerOn need config.failover.enabled"}},
		"pods of two drivers":                          {arrayIn(config.Observe, "- {name: b.example.com, namespace: array-system, serviceAccounts: [array-controller], mode: Observe, inject: {labels: {app: b}}}\ninjection: {enabled: true}\nimage: {repository: csi-fencepost}\n"), []string{"drivers[1], b.example.com: its pods run as array-controller, as those of array.example.com do", "inject.labels"}},
		"labels of two drivers that both may have":     {arrayIn(config.Observe, "  inject: {labels: {app: a}}\n- {name: b.example.com, namespace: array-system, serviceAccounts: [array-controller], mode: Observe, inject: {labels: {tier: b}}}\ninjection: {enabled: true}\nimage: {repository: csi-fencepost}\n"), []string{"drivers[1], b.example.com: its pods run as array-controller, as those of array.example.com do", "inject.labels with a label that has another value in each"}},
		"labels of one driver that the other has, too": {arrayIn(config.Observe, "  inject: {labels: {app: a}}\n- {name: b.example.com, namespace: array-system, serviceAccounts: [array-controller], mode: Observe, inject: {labels: {app: a, tier: b}}}\ninjection: {enabled: true}\nimage: {repository: csi-fencepost}\n"), []string{"drivers[1], b.example.com: its pods run as array-controller, as those of array.example.com do", "inject.labels with a label that has another value in each"}},
		"all pods, and nobody's":                       {"drivers: [{name: a.example.com, namespace: storage, mode: Observe, inject: {pods: All}}]\ninjection: {enabled: true}\nimage: {repository: csi-fencepost}\n", []string{"drivers[0], a.example.com: inject.pods: All is all pods of serviceAccounts, and none is named", "kubectl get pods -n storage"}},
		"injection, and no image":                      {arrayIn(config.Observe, "injection: {enabled: true}\n"), []string{"injection.enabled needs image.repository"}},
		"injection that is misspelled":                 {arrayIn(config.Observe, "  inject: {pods: all}\n"), []string{"drivers/0/inject/pods", "'Annotated', 'All'"}},
		"no flag of the sidecar":                       {arrayIn(config.Observe, "  inject: {args: [v=4]}\n"), []string{"drivers/0/inject/args/0"}},
		"pods move in Observe":                         {arrayIn(config.Observe, "  config: {failover: {enabled: true}}\n"), []string{"config.failover.enabled needs mode Enforce"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
				_, err := helm(c.values, "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-")
				for _, says := range c.says {
					if err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("%v, want it to say %q", err, says)
					}
				}
			})
		})
	}
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		for _, c := range []struct{ by, version, says string }{
			{"Policy", "1.35.0", "injection.by: Policy needs MutatingAdmissionPolicy: Kubernetes 1.36"},
			{"''", "1.29.0", "injection.enabled needs Kubernetes 1.30; this is v1.29.0"},
			{"webhook", "1.35.0", "injection/by"},
		} {
			if _, err := helm(arrayIn(config.Observe, "injection: {enabled: true, by: "+c.by+"}\nimage: {repository: csi-fencepost}\n"), "template", "fence", ownChart, "--kube-version="+c.version, "--namespace=ops", "-f=-"); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s on %s: %v, want it to say %q", c.by, c.version, err, c.says)
			}
		}
		byWebhook := arrayIn(config.Observe, "injection: {enabled: true}\nimage: {repository: csi-fencepost}\n")
		for name, fits := range map[string]bool{strings.Repeat("a", 41): true, strings.Repeat("a", 42): false, "a.b": false, "1a": false} {
			if _, err := helm(byWebhook, "template", name, ownChart, "--kube-version=1.35.0", "--namespace=ops", "-f=-"); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "and no Service may be") {
				t.Errorf("a release called %s: %v", name, err)
			}
		}
		if _, err := helm("", "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=csi-fencepost"); err == nil || !strings.Contains(err.Error(), "the namespace of the nodes' records") {
			t.Errorf("a release in the namespace of the records: %v", err)
		}
	})
}

// A chart that lost a file, as a link that somebody's tool leaves out, gives no release with
// fewer rights.
func TestTheChartFailsWhereAFileIsMissing(t *testing.T) {
	single.take(t)
	chart := filepath.Join(t.TempDir(), "csi-fencepost")
	must(t, os.CopyFS(chart, os.DirFS(ownChart)))
	must(t, os.Remove(filepath.Join(chart, "files/rbac/enforce.yaml")))
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		if _, err := helm(arrayIn(config.Enforce), "template", "fence", chart, "--kube-version=1.37.0", "--namespace=ops", "-f=-"); err == nil || !strings.Contains(err.Error(), "the chart is not whole: it lacks files/rbac/enforce.yaml") {
			t.Errorf("%v", err)
		}
	})
}

// helm lint has nothing to say, with each of the values.
func TestHelmLintTakesTheChart(t *testing.T) {
	single.take(t)
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		for name, c := range chartCases {
			if out, err := helm(c.values, "lint", ownChart, "--strict", "--namespace=ops", "-f=-"); err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
		injects := arrayIn(config.Enforce, "  inject: {pods: All, labels: {app: a}, volumes: [{name: a, emptyDir: {}}]}\ninjection: {enabled: true}\nimage: {repository: csi-fencepost}\n")
		for _, version := range []string{"1.30.0", "1.37.0"} {
			if out, err := helm(injects, "lint", ownChart, "--strict", "--namespace=ops", "--kube-version="+version, "-f=-"); err != nil {
				t.Errorf("injection on %s: %v\n%s", version, err, out)
			}
		}
	})
}

// What make chart packs is what the folder has.
func TestThePackedChartRendersWhatItsFolderDoes(t *testing.T) {
	single.take(t)
	folder := t.TempDir()
	path := strings.TrimSpace(string(mustOutput(t, nil, nil, "go", "run", "../../deploy/chart", "-source=../..", "-o="+folder)))
	values := chartCases["a Deployment of its own moves pods"].values
	eachHelm(t, func(t *testing.T, helm func(string, ...string) ([]byte, error)) {
		var out [2][]byte
		for i, chart := range []string{path, ownChart} {
			var err error
			out[i], err = helm(values, "template", "fence", chart, "--kube-version=1.37.0", "--namespace=ops", "-f=-")
			must(t, err)
		}
		if !bytes.Equal(out[0], out[1]) {
			t.Errorf("%s renders\n%s\nand the folder\n%s", path, out[0], out[1])
		}
		_, err := helm(values, "lint", path, "--strict", "--namespace=ops", "-f=-")
		must(t, err)
	})
}
