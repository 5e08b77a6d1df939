package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
func controllersOf(t *testing.T, name string) []controllerPod {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return controllersIn(t, name, text)
}

func controllersIn(t *testing.T, name string, text []byte) (all []controllerPod) {
	t.Helper()
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

// attacherVariants are pods of vendors with what inject goes by in the attacher.
var attacherVariants = map[string]*strings.Replacer{
	"a user and a label of its own": inAttacher("securityContext: {runAsUser: 7, runAsGroup: 8, runAsNonRoot: true, seLinuxOptions: {type: spc_t, level: 's0:c1,c2'}}"),
	"root by its own word":          inAttacher("securityContext: {runAsUser: 0, privileged: true}"),
	"not root by its own word":      inAttacher("securityContext: {runAsNonRoot: true}"),
	"a user of the pod":             ofPod("securityContext: {runAsUser: 0, fsGroup: 7, seccompProfile: {type: Unconfined}}"),
	"nobody of the pod is root":     ofPod("securityContext: {runAsNonRoot: true}"),
	"a user that OpenShift gives":   strings.NewReplacer("labels: {app: array-controller}", "labels: {app: array-controller}\n      annotations: {openshift.io/required-scc: restricted-v2}"),
	"the user of OpenShift's image": strings.NewReplacer("labels: {app: array-controller}", "labels: {app: array-controller}\n      annotations: {openshift.io/required-scc: privileged}"),
	"a probe in the socket's place": inAttacher("livenessProbe: {exec: {command: [ls, /csi]}}"),
	"a hook in the socket's place":  inAttacher("lifecycle: {preStop: {exec: {command: [ls, /csi]}}}"),
	"a file beside the socket":      strings.NewReplacer("- --timeout=15s", "- --tls-file=/csi/tls.crt"),
	"a folder that only looks so":   strings.NewReplacer("- --timeout=15s", "- --log_dir=/csi2/log"),
	"a part of a volume":            strings.NewReplacer("          mountPath: /csi\n      volumes", "          mountPath: /csi/\n          subPath: sockets\n          readOnly: true\n      volumes"),
	"a volume in a volume":          strings.NewReplacer("          mountPath: /csi\n      volumes:\n", "          mountPath: /\n        - {name: inner, mountPath: /csi}\n      volumes:\n      - {name: inner, emptyDir: {}}\n"),
	"ports that are taken":          strings.NewReplacer(`args: ["--endpoint=$(CSI_ENDPOINT)"]`, `args: ["--endpoint=$(CSI_ENDPOINT)", "--metrics-address=:9811", "--port=9812"]`+"\n        ports: [{containerPort: 9810}]"),
	"higher limits":                 strings.NewReplacer("- --timeout=15s", "- --timeout=1m30s\n        - --worker-threads=1000\n        - -kube-api-qps\n        - '3.5'\n        - --kube-api-burst=201"),
	"limits that are none":          strings.NewReplacer("- --timeout=15s", "- --timeout=60\n        - --worker-threads=many\n        - --kube-api-qps=$(NONE)\n        - --kube-api-burst=1e3"),
	"a short limit":                 strings.NewReplacer("- --timeout=15s", "- -timeout=59.9s"),
	"an attacher before 3.2":        strings.NewReplacer("csi-attacher:v4.10.0", "csi-attacher:v3.1.0"),
	"an attacher from 3.2 on":       strings.NewReplacer("csi-attacher:v4.10.0", "csi-attacher:3.2.1@sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
	"an attacher of a port":         strings.NewReplacer("registry.k8s.io/sig-storage/csi-attacher:v4.10.0", "localhost:2000/csi-attacher"),
	"one of many sidecars":          strings.NewReplacer("registry.k8s.io/sig-storage/csi-attacher:v4.10.0", "registry.example.com/csi-sidecars:v1", "- --timeout=15s", "- --controllers=*\n        - --attacher-timeout=15s"),
	"an API server of its own":      inAttacher("env: [{name: KUBERNETES_SERVICE_HOST, value: api.example.com}, {name: KUBERNETES_SERVICE_PORT, value: '6443'}]"),
	"variables of variables":        strings.NewReplacer("- --csi-address=/csi/csi.sock\n        - --timeout=15s\n        - --leader-election\n", "- --csi-address=unix://$(SOCKET)\n        - --timeout=$(TIMEOUT)\n        command: [/csi-attacher, '--leader-election-namespace=$(NODE)']\n        env: [{name: FOLDER, value: /csi}, {name: SOCKET, value: $(FOLDER)/csi.sock}, {name: TIMEOUT, value: 20s}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]\n"),
}

// inAttacher is a line more in the attacher of testdata/vendor.yaml, ofPod one in its pod.
func inAttacher(line string) *strings.Replacer {
	return strings.NewReplacer("csi-attacher:v4.10.0\n", "csi-attacher:v4.10.0\n        "+line+"\n")
}

func ofPod(line string) *strings.Replacer {
	return strings.NewReplacer("      serviceAccountName: array-controller\n", "      serviceAccountName: array-controller\n      "+line+"\n")
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

// injection renders how the chart puts the sidecar into pods: by policies of the API server, or, as for an
// older one, by its webhook.
func injection(t *testing.T, by string, values map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(values)
	must(t, err)
	version := map[string]string{byPolicy: "1.37.0", byWebhook: "1.33.0"}[by]
	return mustOutput(t, nil, text, helmTool.build(t), "template", fmt.Sprint("fence", releasesOfInjection.Add(1)), ownChart, "--kube-version="+version, "--namespace=ops", "-f=-", "--show-only=templates/injection.yaml")
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
	eachWay(t, doesWhatInjectDoes)
}

func doesWhatInjectDoes(t *testing.T, by string) {
	var all []controllerPod
	var drivers []any
	add := func(found []controllerPod, port int32) {
		for _, c := range found {
			how := map[string]any{"pods": "All", "httpPort": port}
			if c.several {
				how["attacher"] = c.container
			}
			c.namespace += strings.ToLower("-" + by)
			all, drivers = append(all, c), append(drivers, injects(c, how))
			makeAccount(t, c.namespace, c.account)
			makeAccount(t, c.namespace+"-plain", c.account)
		}
	}
	for _, name := range injectCases(t) {
		add(controllersOf(t, name), portOf[filepath.Base(name)])
	}
	for _, variants := range []map[string]*strings.Replacer{vendorVariants, attacherVariants} {
		for name, change := range variants {
			text := change.Replace(string(vendor(t)))
			if text == string(vendor(t)) && name != "as it is" && name != "native" {
				t.Fatalf("%s: nothing is changed", name)
			}
			add(controllersIn(t, "../../deploy/"+name, []byte(text)), 0)
		}
	}
	for some := range slices.Chunk(drivers, 30) { // the policies of more do not go into a ConfigMap
		putIn(t, by, injection(t, by, map[string]any{"drivers": some, "injection": map[string]any{"enabled": true, "onProblem": "Refuse"}, "image": map[string]any{"repository": "csi-fencepost", "tag": "dev"}}))
	}
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
	if compared < 14+len(vendorVariants)+len(attacherVariants) {
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

// ofVendor is the pod template of testdata/vendor.yaml, changed.
func ofVendor(t *testing.T, change ...string) corev1.PodTemplateSpec {
	t.Helper()
	text := strings.NewReplacer(change...).Replace(string(vendor(t)))
	if len(change) > 0 && text == string(vendor(t)) {
		t.Fatalf("%q changes nothing", change)
	}
	template, _ := templateOf(t, []byte(text), &inject.Plan{Kind: "Deployment", Name: "array-controller"})
	return template
}

const annotated = "labels: {app: array-controller}\n      annotations: {csi-fencepost.io/inject: enabled}"

// asks is a change that puts the annotation on the pod.
var asks = []string{"labels: {app: array-controller}\n    spec", annotated + "\n    spec"}

// cannotBeGuarded are pods that ask for it and cannot get it, and what they are told.
var cannotBeGuarded = map[string]struct {
	change []string
	says   string
}{
	"a misspelled annotation":     {[]string{"labels: {app: array-controller}\n    spec", strings.Replace(annotated, "enabled", "Enabled", 1) + "\n    spec"}, "the annotation csi-fencepost.io/inject is Enabled, and may be enabled or disabled"},
	"an account without rights":   {append([]string{"serviceAccountName: array-controller", "serviceAccountName: other"}, asks...), "runs as service account other, which is not among the driver's serviceAccounts"},
	"no attacher":                 {append([]string{"name: csi-attacher", "name: a", "csi-attacher:v4.10.0", "mirror:v1"}, asks...), "no container of it is external-attacher: name it in drivers[].inject.attacher"},
	"two attachers":               {append([]string{"csi-provisioner:v5.3.0", "csi-attacher:v5.3.0"}, asks...), "more than one container is external-attacher"},
	"an attacher before the pod":  {append([]string{"      containers:\n", "      initContainers: [{name: early, image: csi-attacher}]\n      containers:\n", "csi-attacher:v4.10.0", "mirror:v1", "name: csi-attacher", "name: a"}, asks...), "external-attacher is an init container"},
	"a shell":                     {append([]string{"        - --v=2\n", "        - -c\n", "csi-attacher:v4.10.0\n", "csi-attacher:v4.10.0\n        command: [/bin/sh]\n"}, asks...), "is started by a shell"},
	"a word that is no flag":      {append([]string{"- --timeout=15s", "- --leader-election\n        - 'true'"}, asks...), "no flag of external-attacher is read behind true"},
	"a variable from elsewhere":   {append([]string{"- --csi-address=/csi/csi.sock\n        - --timeout=15s\n        - --leader-election\n", "- --csi-address=$(A)\n        env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]\n"}, asks...), "--csi-address=$(?) is no path of a socket that can be read in the pod"},
	"a variable that is not here": {append([]string{"- --csi-address=/csi/csi.sock\n        - --timeout", "- --csi-address=$(ADDRESS)\n        - --timeout"}, asks...), "--csi-address=$(ADDRESS) is no path"},
	"an address that is no path":  {append([]string{"- --csi-address=/csi/csi.sock\n        - --timeout", "- --csi-address=tcp://10.0.0.1:80\n        - --timeout"}, asks...), "--csi-address=tcp://10.0.0.1:80 is no path"},
	"a path that goes up":         {append([]string{"- --csi-address=/csi/csi.sock\n        - --timeout", "- --csi-address=/csi/../csi/csi.sock\n        - --timeout"}, asks...), "is no path of a socket"},
	"a socket in no volume":       {append([]string{"- --csi-address=/csi/csi.sock\n        - --timeout", "- --csi-address=/other/csi.sock\n        - --timeout"}, asks...), "the driver's socket /other/csi.sock is in none of the volumes"},
	"another cluster":             {append([]string{"- --timeout=15s", "- --kubeconfig=/k"}, asks...), "a --kubeconfig of another cluster"},
	"a name that is taken":        {append([]string{"- name: csi-provisioner", "- name: csi-fencepost"}, asks...), "a csi-fencepost, or its volumes, are in the pod already"},
	"a volume that is taken":      {append([]string{"      - name: socket-dir\n        emptyDir", "      - {name: fencepost-config, emptyDir: {}}\n      - name: socket-dir\n        emptyDir"}, asks...), "a csi-fencepost, or its volumes, are in the pod already"},
	"no controllers":              {append([]string{"sig-storage/csi-attacher:v4.10.0", "sig-storage/csi-sidecars:v1"}, asks...), "csi-sidecars has no --controllers"},
	"two addresses":               {append([]string{"sig-storage/csi-attacher:v4.10.0", "sig-storage/csi-sidecars:v1", "- --timeout=15s", "- --controllers=attacher\n        - --attacher-csi-address=/csi/csi.sock"}, asks...), "--attacher-csi-address leads past --csi-address"},
}

// everyday are pods that are none of the policies' business, by how the driver's pods are chosen.
var everyday = map[string]struct {
	change []string
	pods   []string
}{
	"another account":         {[]string{"serviceAccountName: array-controller", "serviceAccountName: other"}, []string{"All", "Annotated"}},
	"that says disabled":      {[]string{asks[0], strings.Replace(asks[1], "enabled", "disabled", 1)}, []string{"All", "Annotated"}},
	"the node plugin":         {[]string{"csi-attacher:v4.10.0", "csi-node-driver-registrar:v2", "name: csi-attacher", "name: registrar"}, []string{"All", "Annotated"}},
	"with another label":      {[]string{"labels: {app: array-controller}\n    spec", "labels: {app: node}\n    spec"}, []string{"All", "Annotated"}},
	"without labels":          {[]string{"      labels: {app: array-controller}\n    spec", "      labels: {}\n    spec"}, []string{"All", "Annotated"}},
	"csi-sidecars without it": {[]string{"sig-storage/csi-attacher:v4.10.0", "sig-storage/csi-sidecars:v1", "name: csi-attacher", "name: s", "- --timeout=15s", "- --controllers=provisioner,resizer"}, []string{"All", "Annotated"}},
}

// injectionStage has the policies of the chart, one driver in a namespace of each name: how its pods
// are chosen, and what becomes of those that cannot be guarded. It returns how they begin.
func injectionStage(t *testing.T, by, prefix string) string {
	t.Helper()
	if by == byWebhook {
		prefix += "-webhook" // policies that were deleted act for a moment longer
	}
	for _, onProblem := range []string{"Refuse", "Warn"} {
		var drivers []any
		for _, pods := range []string{"All", "Annotated"} {
			c := controllerPod{driver: strings.ToLower(pods+"-"+onProblem) + "." + prefix, namespace: prefix + strings.ToLower("-"+pods+"-"+onProblem), account: "array-controller"}
			drivers = append(drivers, injects(c, map[string]any{"pods": pods, "labels": map[string]string{"app": "array-controller"}}))
			makeAccount(t, c.namespace, c.account)
			makeAccount(t, c.namespace, "other")
		}
		putIn(t, by, injection(t, by, map[string]any{"drivers": drivers, "injection": map[string]any{"enabled": true, "onProblem": onProblem}, "image": map[string]any{"repository": "csi-fencepost", "tag": "dev"}}))
	}
	for _, namespace := range []string{"-all-refuse", "-annotated-refuse", "-all-warn", "-annotated-warn"} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			var said []string
			pod, err := create(t, prefix+namespace, ofVendor(t, asks...), nil)
			_, refused := create(t, prefix+namespace, ofVendor(t, cannotBeGuarded["no attacher"].change...), &said)
			if err == nil && hasSidecar(pod) && (refused != nil || len(said) > 0) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the policies have no effect: %v, %v, %q", namespace, err, refused, said)
			}
		}
	}
	return prefix
}

// A pod that is to be guarded and cannot be is refused, with what would be right, or let in as it is
// with a warning, as the administrator chooses.
func TestAPodThatCannotBeGuardedIsRefusedOrWarnedOf(t *testing.T) {
	eachWay(t, refusesOrWarns)
}

func refusesOrWarns(t *testing.T, by string) {
	stage := injectionStage(t, by, "problems")
	for name, c := range cannotBeGuarded {
		t.Run(name, func(t *testing.T) {
			for _, pods := range []string{"all", "annotated"} {
				if _, err := create(t, stage+"-"+pods+"-refuse", ofVendor(t, c.change...), nil); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "resulted in error") {
					t.Errorf("%s: %v, want it to say %q", pods, err, c.says)
				}
				var said []string
				got, err := create(t, stage+"-"+pods+"-warn", ofVendor(t, c.change...), &said)
				must(t, err)
				if !strings.Contains(strings.Join(said, "\n"), c.says) || strings.Contains(strings.Join(said, "\n"), "resulted in error") {
					t.Errorf("%s: warnings %q, want %q", pods, said, c.says)
				}
				if wants := strings.Contains(c.says, "in the pod already"); hasSidecar(got) && !wants {
					t.Errorf("%s: it was changed all the same: %v", pods, got.Spec)
				}
			}
		})
	}
}

// A pod that is nobody's to guard is let in as it is, without a word.
func TestThePoliciesLeaveEverydayPodsAlone(t *testing.T) {
	eachWay(t, leavesEverydayPodsAlone)
}

func leavesEverydayPodsAlone(t *testing.T, by string) {
	stage := injectionStage(t, by, "everyday")
	for _, account := range []string{"array-controller", "other"} {
		makeAccount(t, stage+"-plain", account)
	}
	for name, c := range everyday {
		for _, pods := range c.pods {
			for _, onProblem := range []string{"refuse", "warn"} {
				var said []string
				got, err := create(t, stage+"-"+strings.ToLower(pods)+"-"+onProblem, ofVendor(t, c.change...), &said)
				must(t, err)
				want, err := create(t, stage+"-plain", ofVendor(t, c.change...), nil)
				must(t, err)
				if same(t, name, meant(t, got), meant(t, want)); len(said) > 0 {
					t.Errorf("%s, %s: %q", name, pods, said)
				}
			}
		}
	}
}

// In a driver whose unguarded pods are refused, a pod that was to be guarded does not drop out of the
// policies: by a template that has lost its annotation, as one that is rolled back has, or by labels,
// an account or a container that the vendor's next version calls otherwise.
func TestAPodDoesNotDropOutOfThePolicies(t *testing.T) {
	eachWay(t, dropsNoPod)
}

func dropsNoPod(t *testing.T, by string) {
	stage := injectionStage(t, by, "drops")
	named := controllerPod{driver: "named." + stage, namespace: stage + "-named", account: "array-controller"}
	makeAccount(t, named.namespace, named.account)
	putIn(t, by, injection(t, by, map[string]any{"drivers": []any{injects(named, map[string]any{"pods": "All", "attacher": "csi-attacher"})},
		"injection": map[string]any{"enabled": true, "onProblem": "Refuse"}, "image": map[string]any{"repository": "csi-fencepost", "tag": "dev"}}))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		pod, err := create(t, named.namespace, ofVendor(t), nil)
		_, refused := create(t, named.namespace, ofVendor(t, cannotBeGuarded["a shell"].change...), nil)
		if err == nil && hasSidecar(pod) && refused != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policies have no effect: %v, %v", err, refused)
		}
	}
	other := []string{"serviceAccountName: array-controller", "serviceAccountName: other"}
	for name, c := range map[string]struct {
		namespace string
		change    []string
		says      string // empty: it is let in as it is
	}{
		"without the annotation":                           {"annotated-refuse", nil, "in spec.template.metadata no annotation csi-fencepost.io/inject"},
		"without the annotation, where it is warned":       {"annotated-warn", nil, ""},
		"with it, and another label":                       {"annotated-refuse", []string{"labels: {app: array-controller}\n    spec", strings.Replace(annotated, "app: array-controller", "app: renamed", 1) + "\n    spec"}, "it has not the labels of the driver's inject.labels"},
		"the same, and all are meant":                      {"all-refuse", []string{"labels: {app: array-controller}\n    spec", strings.Replace(annotated, "app: array-controller", "app: renamed", 1) + "\n    spec"}, "it has not the labels of the driver's inject.labels"},
		"another account, and the driver's name":           {"all-refuse", append([]string{"- --timeout=15s", "- --driver-name=all-refuse." + stage}, other...), "it runs as service account other"},
		"the same in a variable":                           {"annotated-refuse", append([]string{"csi-attacher:v4.10.0\n", "csi-attacher:v4.10.0\n        env: [{name: DRIVER, value: annotated-refuse." + stage + "}]\n"}, other...), "it runs as service account other"},
		"another account, and a longer name":               {"all-refuse", append([]string{"- --timeout=15s", "- --driver-name=my.all-refuse." + stage}, other...), ""},
		"another account, and the name where it is warned": {"all-warn", append([]string{"- --timeout=15s", "- --driver-name=all-warn." + stage}, other...), ""},
		"a container that is called otherwise":             {"named", []string{"name: csi-attacher", "name: attacher"}, "no container is called csi-attacher, as drivers[].inject.attacher of the chart has it, and attacher is external-attacher"},
	} {
		pod, err := create(t, stage+"-"+c.namespace, ofVendor(t, c.change...), nil)
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		case c.says == "" && (err != nil || hasSidecar(pod)):
			t.Errorf("%s: %v", name, err)
		}
	}
	// What an annotation on all of a vendor's pods does not keep from running.
	template := ofVendor(t, append([]string{"csi-attacher:v4.10.0", "csi-node-driver-registrar:v2", "name: csi-attacher", "name: registrar"}, asks...)...)
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node", Namespace: stage + "-all-refuse", Labels: template.Labels, Annotations: template.Annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "node", UID: "u", Controller: &yes}}}, Spec: template.Spec}
	if got, err := warned(t, nil).CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || hasSidecar(got) {
		t.Errorf("a node plugin with the annotation: %v", err)
	}
	// A guard that is there does not make up for flags that are not read.
	injected, _ := templateOf(t, csiFencepost(t, vendor(t), "inject"), &inject.Plan{Kind: "Deployment", Name: "array-controller"})
	for i := range injected.Spec.Containers {
		if c := &injected.Spec.Containers[i]; c.Name == "csi-attacher" {
			c.Args = slices.Insert(c.Args, 0, "--leader-election", "true")
		}
	}
	if _, err := create(t, stage+"-all-refuse", injected, nil); err == nil || !strings.Contains(err.Error(), "no flag of external-attacher is read behind true") {
		t.Errorf("an attacher that reads no flag: %v", err)
	}
}

// Whatever the arguments of external-attacher are, a pod that is let in has an attacher that calls
// csi-fencepost, as inject reads a pod; and no expression of the policies fails.
func TestNoArgumentsLeadAPodsAttacherPastTheGuard(t *testing.T) {
	single.take(t)
	whole.use(t)
	injectionStage(t, byPolicy, "arguments")
	refused, guarded := 0, 0
	for _, words := range [][]string{
		nil, {}, {""}, {"-"}, {"--"}, {"="}, {"--="}, {"---csi-address=/csi/csi.sock"}, {"--csi-address"}, {"-csi-address="}, {"$("}, {"--csi-address=$("}, {"--csi-address=$()"}, {"--csi-address=$(A)"}, {"--csi-address=$$(A)"}, {"--csi-address=)$(A"},
		{"--csi-address=/csi/csi.sock"}, {"-csi-address=/csi/csi.sock"}, {"--csi-address", "/csi/csi.sock"}, {"-csi-address", "/csi/csi.sock", "--v=5"}, {"--csi-address=unix:///csi/csi.sock"}, {" --csi-address=/csi/csi.sock\n"},
		{"--csi-address=/csi/csi.sock", "--csi-address=/csi/csi.sock"}, {"--csi-address=/old.sock", "--csi-address=/csi/csi.sock"}, {"--csi-address=/csi/csi.sock", "-csi-address", "/old.sock"}, {"--csi-address=/csi/csi.sock", "--csi-address"},
		{"--csi-address=/fencepost/csi.sock"}, {"--csi-address=/csi/csi.sock", "--attacher-csi-address=/csi/csi.sock"}, {"--csi-address=/csi/csi.sock", "--timeout"}, {"--csi-address=/csi/csi.sock", "--timeout", "5s", "--worker-threads=", "--kube-api-qps"},
		{"--leader-election", "--csi-address=/csi/csi.sock"}, {"--leader-election", "false", "--csi-address=/csi/csi.sock"}, {"--csi-address=//csi//csi.sock"}, {"--csi-address=/csi/"}, {"--csi-address=/"}, {"--csi-address=/csi/a b"}, {"--csi-address=/csi/\"x\\"},
		{"--kubeconfig=", "--csi-address=/csi/csi.sock"}, {"--timeout=99999999999999999999s", "--worker-threads=99999999999999999999999", "--csi-address=/csi/csi.sock"}, {"--timeout=1000000h1000000h9000000h", "--csi-address=/csi/csi.sock"},
	} {
		template := ofVendor(t, asks...)
		template.Spec.Containers[2].Args = words
		template.Spec.Containers[2].Env = []corev1.EnvVar{{Name: "A", Value: "$(A)"}, {Name: "A", Value: "$(B)"}, {Name: "B", Value: "/csi/csi.sock"}}
		pod, err := create(t, "arguments-all-refuse", template, nil)
		if err != nil {
			if refused++; !strings.Contains(err.Error(), "csi-fencepost does not guard this pod of all-refuse.arguments: ") {
				t.Errorf("%q: %v", words, err)
			}
			continue
		}
		guarded++
		for _, wire := range inject.Wires(&pod.Spec, nil) {
			if wire.Err != nil || wire.Guard == nil {
				t.Errorf("%q became %q: %v, it calls %s", words, pod.Spec.Containers[2].Args, wire.Err, wire.Socket)
			}
		}
	}
	if refused < 10 || guarded < 10 {
		t.Errorf("%d refused, %d guarded", refused, guarded)
	}
}

// A pod that is guarded already, by whatever way, is let in as it is; and one that is not, because the
// first policy is gone, or somebody changed the pod after it, is refused by the second.
func TestThePoliciesTakeAGuardThatIsThereAndMissOneThatIsNot(t *testing.T) {
	single.take(t)
	whole.use(t)
	injectionStage(t, byPolicy, "there")
	for name, args := range map[string][]string{"a container": {}, "native": {"--native-sidecar"}} {
		template, _ := templateOf(t, csiFencepost(t, vendor(t), append([]string{"inject"}, args...)...), &inject.Plan{Kind: "Deployment", Name: "array-controller"})
		var said []string
		got, err := create(t, "there-all-refuse", template, &said)
		must(t, err)
		makeAccount(t, "there-plain", "array-controller")
		want, err := create(t, "there-plain", template, nil)
		must(t, err)
		if same(t, name, meant(t, got), meant(t, want)); len(said) > 0 {
			t.Errorf("%s: %q", name, said)
		}
		for i := range template.Spec.Containers {
			if c := &template.Spec.Containers[i]; c.Name == "csi-attacher" {
				c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--csi-address") })
				c.Args = append(c.Args, "--csi-address=/fencepost/other.sock")
			}
		}
		if _, err := create(t, "there-all-refuse", template, nil); err == nil || !strings.Contains(err.Error(), "are in the pod already, and external-attacher does not call it") {
			t.Errorf("%s: an attacher that calls past it: %v", name, err)
		}
	}
	_, err := whole.admin.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Patch(t.Context(), "csi-fencepost-inject-all-refuse.there", types.MergePatchType,
		[]byte(`{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"is":"none"}}}}}`), metav1.PatchOptions{})
	must(t, err)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := create(t, "there-all-refuse", ofVendor(t), nil)
		if err != nil && strings.Contains(err.Error(), "external-attacher calls /csi/csi.sock, where no csi-fencepost listens") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the first policy is gone: %v", err)
		}
	}
}

// The largest pods of vendors are a tenth of this one: the API server's limits on what expressions may
// cost are far away.
func TestThePoliciesChangeALargePod(t *testing.T) {
	single.take(t)
	whole.use(t)
	injectionStage(t, byPolicy, "large")
	template := ofVendor(t, asks...)
	for i := range 30 {
		c := *template.Spec.Containers[1].DeepCopy()
		c.Name = fmt.Sprint("more-", i)
		for range 60 {
			c.Args = append(c.Args, "--more="+strings.Repeat("x", 200))
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("MORE", len(c.Env)), Value: strings.Repeat("$(A) ", 40)})
		}
		template.Spec.Containers = append(template.Spec.Containers, c)
	}
	attacher := &template.Spec.Containers[2]
	for range 60 {
		attacher.Args = append(attacher.Args, "--more="+strings.Repeat("$(A)x", 40))
		attacher.Env = append(attacher.Env, corev1.EnvVar{Name: fmt.Sprint("MORE", len(attacher.Env)), Value: strings.Repeat("$(A) ", 40)})
	}
	pod, err := create(t, "large-all-refuse", template, nil)
	must(t, err)
	if wires := inject.Wires(&pod.Spec, nil); len(wires) != 1 || wires[0].Guard == nil {
		t.Errorf("%+v", wires)
	}
}

// On the node's network any port may be taken: without one that is named there is neither port nor
// probe. inject refuses a native sidecar then, for the sake of a Kubernetes that has none.
func TestThePoliciesTakeNoPortOfANode(t *testing.T) {
	single.take(t)
	whole.use(t)
	injectionStage(t, byPolicy, "port")
	pod, err := create(t, "port-all-refuse", ofVendor(t, "      serviceAccountName:", "      hostNetwork: true\n      serviceAccountName:"), nil)
	must(t, err)
	c := pod.Spec.InitContainers[0]
	if c.Name != "csi-fencepost" || len(c.Ports) > 0 || c.LivenessProbe != nil || c.ReadinessProbe != nil || slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--http-endpoint") }) {
		t.Errorf("%+v", c)
	}
}

// What the values say of the sidecar is in it.
func TestThePoliciesPutInWhatTheValuesSay(t *testing.T) {
	single.take(t)
	whole.use(t)
	c := controllerPod{driver: "values.example.com", namespace: "inject-values", account: "array-controller"}
	for _, namespace := range []string{c.namespace, "inject-values-plain"} {
		makeAccount(t, namespace, c.account)
	}
	secret := map[string]any{"name": "bmc", "secret": map[string]any{"secretName": "bmc", "optional": true, "defaultMode": 256, "items": []any{map[string]any{"key": "user", "path": "user"}}}}
	applyAll(t, injection(t, byPolicy, map[string]any{"drivers": []any{injects(c, map[string]any{"pods": "All", "httpPort": 9999, "seLinuxType": "spc_t",
		"args": []string{"--agent-dirs=/agents", "--note=${VOLUMES}$(A)"}, "resources": map[string]any{"limits": map[string]any{"memory": "2Gi", "cpu": "1"}}, "volumes": []any{secret}, "volumeMounts": []any{map[string]any{"name": "bmc", "mountPath": "/bmc", "readOnly": true}}})},
		"injection": map[string]any{"enabled": true, "native": false, "imagePullSecrets": []string{"registry", "of-the-vendor"}}, "image": map[string]any{"repository": "csi-fencepost", "tag": "dev"}}))
	no := false
	r, err := inject.Inject([]inject.File{{Name: "vendor.yaml", Text: vendor(t)}}, inject.Options{Native: &no, HTTPPort: 9999, SELinuxType: "spc_t", Image: "csi-fencepost:dev"})
	must(t, err)
	template, _ := templateOf(t, r.Files[0].Text, r.Plans[0])
	optional, mode := true, int32(256)
	template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: "bmc", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "bmc", Optional: &optional, DefaultMode: &mode, Items: []corev1.KeyToPath{{Key: "user", Path: "user"}}}}})
	for i := range template.Spec.Volumes {
		if m := template.Spec.Volumes[i].ConfigMap; m != nil {
			m.Name = "csi-fencepost-values.example.com"
		}
	}
	sidecar := &template.Spec.Containers[len(template.Spec.Containers)-1]
	sidecar.Args = append(sidecar.Args, "--agent-dirs=/agents", "--note=${VOLUMES}$(A)")
	sidecar.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi"), "cpu": resource.MustParse("1")}}
	template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "of-the-vendor"}, {Name: "registry"}}
	sidecar.VolumeMounts = append(sidecar.VolumeMounts, corev1.VolumeMount{Name: "bmc", MountPath: "/bmc", ReadOnly: true})
	want, err := create(t, "inject-values-plain", template, nil)
	must(t, err)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		given := ofVendor(t)
		given.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "of-the-vendor"}}
		got, err := create(t, c.namespace, given, nil)
		if err == nil && hasSidecar(got) {
			same(t, "the pod", meant(t, got), meant(t, want))
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policies have no effect: %v", err)
		}
	}
}
