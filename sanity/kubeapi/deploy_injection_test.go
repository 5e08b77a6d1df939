package kubeapi

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// A controllerPod is one external-attacher in a file of manifests, whose pods the policies of the chart
// change in a namespace of their own.
type controllerPod struct {
	name              string // of the test
	driver, namespace string // which are of this test alone
	account           string
	container         string // external-attacher
	several           bool   // attachers are in its pod
	replicas          int64
	// template as its author has it, and as inject writes it.
	template, injected corev1.PodTemplateSpec
}

// controllersOf are those that inject finds in a file.
func controllersOf(t *testing.T, name string) (all []controllerPod) {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	run := func(drivers ...string) *inject.Result {
		native := true
		o := inject.Options{Namespace: "storage", Image: "csi-fencepost:dev", Native: &native, Drivers: drivers, HTTPPort: portOf[filepath.Base(name)]}
		r, err := inject.Inject([]inject.File{{Name: name, Text: text}}, o)
		if err != nil && len(drivers) == 0 && strings.Contains(err.Error(), "Say it with --driver") {
			o.Drivers = []string{"array.example.com"}
			r, err = inject.Inject([]inject.File{{Name: name, Text: text}}, o)
		}
		if nothing := (*inject.NothingError)(nil); errors.As(err, &nothing) || err != nil && !isOwn(name) {
			t.Logf("%s: %v", name, err)
			return nil
		}
		must(t, err)
		return r
	}
	first := run()
	if first == nil {
		return nil
	}
	for _, p := range first.Plans {
		c := controllerPod{name: strings.TrimSuffix(filepath.Base(name), ".yaml"), account: p.ServiceAccount, container: p.Attacher.Container}
		for _, other := range first.Plans {
			c.several = c.several || other.Kind == p.Kind && other.Name == p.Name && other != p
		}
		if len(first.Plans) > 1 {
			c.name += "/" + p.Attacher.Container
		}
		c.driver = regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(c.name, "-") + ".example.com"
		c.namespace = "inject-" + strings.TrimSuffix(c.driver, ".example.com")
		// The name that is the CSIDriver's, if there is one: others are refused.
		r := run(p.Name + "/" + p.Attacher.Container + "=" + p.Driver)
		c.template, c.replicas = templateOf(t, text, p)
		c.injected, _ = templateOf(t, r.Files[0].Text, p)
		for i := range c.injected.Spec.Volumes {
			if m := c.injected.Spec.Volumes[i].ConfigMap; m != nil && m.Name == "csi-fencepost-"+p.Driver {
				m.Name = "csi-fencepost-" + c.driver
			}
		}
		all = append(all, c)
	}
	return all
}

// templateOf is the pod template of a plan's workload in a file.
func templateOf(t *testing.T, text []byte, p *inject.Plan) (template corev1.PodTemplateSpec, replicas int64) {
	t.Helper()
	for _, o := range objects(t, text) {
		if o.GetKind() != p.Kind || o.GetName() != p.Name {
			continue
		}
		replicas = 1
		if n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
			replicas = n
		}
		of, _, err := unstructured.NestedMap(o.Object, "spec", "template")
		must(t, err)
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(of, &template))
		// Nobody here makes the claims of a StatefulSet.
		claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
		for _, claim := range claims {
			name, _, _ := unstructured.NestedString(claim.(map[string]any), "metadata", "name")
			template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}
		return template, replicas
	}
	t.Fatalf("%s %s is not in it", p.Kind, p.Name)
	return template, 0
}

// portOf are the cases with a port of their own for metrics and probes: inject refuses a native sidecar
// on the network of the node without one, for the sake of a Kubernetes that has none.
var portOf = map[string]int32{"hostnetwork.yaml": 9810, "azuredisk.yaml": 9810}

// create makes a pod of a template, as a dry run, and returns what would be stored.
func create(t *testing.T, namespace string, template corev1.PodTemplateSpec, warnings *[]string) (*corev1.Pod, error) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller", Namespace: namespace, Labels: template.Labels, Annotations: template.Annotations}, Spec: *template.Spec.DeepCopy()}
	return warned(t, warnings).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
}

// makeAccount makes a service account in a namespace: no pod is let in without it.
func makeAccount(t *testing.T, namespace, name string) {
	t.Helper()
	makeNamespace(t, namespace)
	_, err := whole.apply(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name, "namespace": namespace}}}, false)
	must(t, err)
}

// injection renders the policies of the chart.
func injection(t *testing.T, values map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(values)
	must(t, err)
	return mustOutput(t, nil, text, helmTool.build(t), "template", "fence", ownChart, "--kube-version=1.37.0", "--namespace=ops", "-f=-", "--show-only=templates/injection.yaml")
}

// injects are values with that driver.
func injects(c controllerPod, how map[string]any) map[string]any {
	return map[string]any{"name": c.driver, "namespace": c.namespace, "serviceAccounts": []string{c.account}, "mode": "Observe", "inject": how}
}

// meant is what a pod is to Kubernetes, without what differs from one pod to the next. Volumes and
// mounts have no order: the token of the service account is put in before the policies act.
func meant(t *testing.T, pod *corev1.Pod) map[string]any {
	t.Helper()
	pod = pod.DeepCopy()
	slices.SortFunc(pod.Spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			slices.SortFunc(containers[i].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
		}
	}
	text, err := json.Marshal(pod)
	must(t, err)
	var o map[string]any
	must(t, json.Unmarshal(regexp.MustCompile("kube-api-access-[a-z0-9]{5}").ReplaceAll(text, []byte("kube-api-access")), &o))
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "namespace"} {
		unstructured.RemoveNestedField(o, "metadata", field)
	}
	delete(o, "status")
	return o
}

// notInjected are the cases that the policies refuse, and inject does not, by words of the refusal.
var notInjected = map[string]string{
	// Rights and configuration belong into another cluster, which the chart does not reach.
	"hosted-control-plane": "external-attacher has a --kubeconfig of another cluster",
}

// A pod that the policies change is the pod of the template that inject writes, field by field. The
// only difference: a pod does not say how many it is one of, so --leader-election is always given.
func TestThePoliciesOfTheChartDoWhatInjectDoes(t *testing.T) {
	single.take(t)
	whole.use(t)
	var all []controllerPod
	var drivers []any
	for _, name := range injectCases(t) {
		for _, c := range controllersOf(t, name) {
			how := map[string]any{"pods": "All", "httpPort": portOf[filepath.Base(name)]}
			if c.several {
				how["attacher"] = c.container
			}
			all, drivers = append(all, c), append(drivers, injects(c, how))
			makeAccount(t, c.namespace, c.account)
			makeAccount(t, c.namespace+"-plain", c.account)
		}
	}
	applyAll(t, injection(t, map[string]any{"drivers": drivers, "injection": map[string]any{"enabled": true, "onProblem": "Refuse"}, "image": map[string]any{"repository": "csi-fencepost", "tag": "dev"}}))
	compared, deadline := 0, time.Now().Add(time.Minute) // until all policies hold
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			if c.replicas < 2 {
				electing(&c.injected)
			}
			want, err := create(t, c.namespace+"-plain", c.injected, nil)
			must(t, err)
			var got *corev1.Pod
			for ; ; time.Sleep(100 * time.Millisecond) {
				got, err = create(t, c.namespace, c.template, nil)
				if says := notInjected[c.name]; says != "" && err != nil && strings.Contains(err.Error(), says) {
					return
				}
				if err == nil && hasSidecar(got) || time.Now().After(deadline) {
					break
				}
			}
			must(t, err)
			same(t, c.name, meant(t, got), meant(t, want))
			compared++
		})
	}
	if compared < 14 {
		t.Errorf("%d pods were compared", compared)
	}
}

// electing adds --leader-election to the sidecar, where the policies have it.
func electing(template *corev1.PodTemplateSpec) {
	for i := range template.Spec.InitContainers {
		c := &template.Spec.InitContainers[i]
		if at := slices.Index(c.Args, "--kube-api-qps=400"); c.Name == "csi-fencepost" && !slices.Contains(c.Args, "--leader-election") {
			c.Args = slices.Insert(c.Args, at, "--leader-election")
		}
	}
}

// hasSidecar tells whether csi-fencepost is in a pod.
func hasSidecar(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool { return c.Name == "csi-fencepost" })
}

// warned is a client that notes the warnings of the API server.
func warned(t *testing.T, warnings *[]string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(whole.bed.Cluster.Admin())
	config.QPS, config.Burst = 1000, 1000
	config.WarningHandler = note{warnings}
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

type note struct{ warnings *[]string }

func (n note) HandleWarningHeader(_ int, _, text string) {
	if n.warnings != nil {
		*n.warnings = append(*n.warnings, text)
	}
}
