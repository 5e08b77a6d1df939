package kubeapi

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/deploy/values"
)

// chartsVariable names a folder of vendors' charts, which are theirs and not in this repository,
// each under the name that --as-values has for it. They are part of the run exactly when it is set.
const chartsVariable = "CSI_FENCEPOST_CHARTS"

// The chart of proxmox is in its vendor's Go module.
const (
	proxmoxModule = "github.com/sergelogvinov/proxmox-csi-plugin@v0.13.0"
	proxmoxSum    = "h1:ezfbZIiCl00aa6rYFZXeawd6ucK0ACi7xbRbwIFQy/s="
)

func proxmoxChart(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", proxmoxModule)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	must(t, os.WriteFile(filepath.Join(cmd.Dir, "go.mod"), []byte("module charts\n"), 0o644))
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &module); err != nil || jsonErr != nil || module.Sum != proxmoxSum {
		t.Fatalf("%s: %v, %s, sum %s", proxmoxModule, err, module.Error, module.Sum)
	}
	return filepath.Join(module.Dir, "charts/proxmox-csi-plugin")
}

// ownValues of a release, which the values that are written must not take away.
var ownValues = map[string]string{
	"aws-ebs": `
sidecars: {attacher: {additionalArgs: [--retry-interval-start=2s]}}
controller: {initContainers: [{name: mine, image: registry.example.com/mine:v1}], volumes: [{name: mine, emptyDir: {}}]}`,
	"proxmox": `
initContainers: [{name: mine, image: registry.example.com/mine:v1}]
extraVolumes: [{name: mine, emptyDir: {}}]
controller: {attacher: {args: [--default-fstype=xfs, --retry-interval-start=2s]}}`,
	"democratic-csi": `
csiDriver: {name: org.democratic-csi.iscsi}
driver: {config: {driver: freenas-iscsi}}
controller: {extraContainers: [{name: mine, image: registry.example.com/mine:v1}], extraVolumes: [{name: mine, emptyDir: {}}], externalAttacher: {extraArgs: [--retry-interval-start=2s]}}`,
}

// The vendor's chart, given the values, renders the guarded pod, and the API server takes it.
func TestAVendorsChartRendersTheGuardedPodByValues(t *testing.T) {
	single.take(t)
	whole.use(t)
	charts := map[string]string{"proxmox": proxmoxChart(t)}
	if folder := os.Getenv(chartsVariable); folder != "" {
		for name := range ownValues {
			charts[name] = filepath.Join(folder, name)
		}
	}
	for name, chart := range charts {
		t.Run(name, func(t *testing.T) {
			for helm, build := range map[string]*tool{"Helm 3": helm3Tool, "Helm 4": helmTool} {
				program, env, folder := build.build(t), helmHome(t), t.TempDir()
				own, rendered := filepath.Join(folder, "own.yaml"), filepath.Join(folder, "rendered.yaml")
				must(t, os.WriteFile(own, []byte(ownValues[name]), 0o644))
				template := []string{"template", "x", chart, "--namespace=storage", "-f", own}
				before := mustOutput(t, env, nil, program, template...)
				must(t, os.WriteFile(rendered, before, 0o644))
				csiFencepost(t, nil, "inject", "-f", rendered, "--namespace=storage", "--as-values", name, "--values", filepath.Join(chart, "values.yaml"), "--values", own, "--output", folder)
				after := mustOutput(t, env, nil, program, append(template, "-f", filepath.Join(folder, "values.yaml"))...)
				lookAtGuarded(t, helm, controllerIn(t, before), controllerIn(t, after))
				documents, err := os.ReadFile(filepath.Join(folder, inject.DocumentsFile))
				must(t, err)
				dryRun(t, documents)
				dryRun(t, mustYAML(t, controllerIn(t, after)))
			}
		})
	}
}

// A release that had rights and configuration by the post-renderer is upgraded without: what was
// applied anew, as --as-values writes it, stays in the cluster, and all else of it goes.
func TestHelmLeavesWhatIsAppliedBesideAValuesFile(t *testing.T) {
	single.take(t)
	whole.use(t)
	const namespace = "values-keep"
	makeNamespace(t, namespace)
	for version, build := range map[string]*tool{"3": helm3Tool, "4": helmTool} {
		helm, chart := build.build(t), t.TempDir()
		env := append(helmHome(t), "KUBECONFIG="+whole.bed.Cluster.AdminKubeconfig())
		configMap := func(name string) string {
			return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + version + "\n  namespace: " + namespace + "\n"
		}
		rendered := filepath.Join(chart, "templates", "rendered.yaml")
		must(t, os.Mkdir(filepath.Dir(rendered), 0o755))
		must(t, os.WriteFile(filepath.Join(chart, "Chart.yaml"), []byte("apiVersion: v2\nname: x\nversion: 1.0.0\n"), 0o644))
		must(t, os.WriteFile(rendered, []byte(configMap("kept")+"---\n"+configMap("gone")), 0o644))
		upgrade := []string{"upgrade", "--install", "keep" + version, chart, "--namespace", namespace}
		mustOutput(t, env, nil, helm, upgrade...)
		documents, err := values.Keep([]byte(configMap("kept")))
		must(t, err)
		_, err = whole.apply(t.Context(), objects(t, documents)[0], false)
		must(t, err)
		must(t, os.Remove(rendered))
		mustOutput(t, env, nil, helm, upgrade...)
		list, err := clientOf(t, whole.bed.Cluster.AdminKubeconfig()).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		var left []string
		for _, m := range list.Items {
			left = append(left, m.Name)
		}
		if !slices.Contains(left, "kept"+version) || slices.Contains(left, "gone"+version) {
			t.Errorf("Helm %s: left are %q", version, left)
		}
	}
}

// controllerIn finds the workload that has an attacher.
func controllerIn(t *testing.T, manifests []byte) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects(t, manifests) {
		if (o.GetKind() == "Deployment" || o.GetKind() == "StatefulSet") && slices.ContainsFunc(podOf(t, o), func(name string) bool { return strings.HasSuffix(name, "attacher") }) {
			return o
		}
	}
	t.Fatalf("no controller in\n%s", manifests)
	return nil
}

func mustYAML(t *testing.T, o *unstructured.Unstructured) []byte {
	t.Helper()
	text, err := yaml.Marshal(o.Object)
	must(t, err)
	return text
}

func podSpecOf(t *testing.T, o *unstructured.Unstructured) (pod corev1.PodSpec) {
	t.Helper()
	spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	must(t, err)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod))
	return pod
}

// lookAtGuarded: the attacher's calls go to csi-fencepost, and csi-fencepost's to where the
// attacher's went; its own flags hold; nothing that was there is gone.
func lookAtGuarded(t *testing.T, helm string, before, after *unstructured.Unstructured) {
	t.Helper()
	was, is := podSpecOf(t, before), podSpecOf(t, after)
	wiresWere, wires := inject.Wires(&was, nil), inject.Wires(&is, nil)
	if len(wires) != 1 || wires[0].Guard == nil || len(wiresWere) != 1 || wiresWere[0].Guard != nil {
		t.Fatalf("%s: wired %+v, before %+v", helm, wires, wiresWere)
	}
	if !slices.Contains(wires[0].Guard.Args, "--csi-address="+wiresWere[0].Socket) {
		t.Errorf("%s: csi-fencepost calls %q, the driver is at %s", helm, wires[0].Guard.Args, wiresWere[0].Socket)
	}
	args := strings.Join(wires[0].Attacher.Args, " ")
	for flag, least := range map[string]string{"worker-threads": "100", "kube-api-qps": "100", "kube-api-burst": "200", "retry-interval-start": "2s"} {
		if at := strings.LastIndex(args, "--"+flag+"="); at < 0 || !strings.HasPrefix(args[at:], "--"+flag+"="+least) {
			t.Errorf("%s: --%s is not %s in %s", helm, flag, least, args)
		}
	}
	names := podOf(t, after)
	for _, name := range append(podOf(t, before), "csi-fencepost") {
		if !slices.Contains(names, name) {
			t.Errorf("%s: container %s is missing in %q", helm, name, names)
		}
	}
	for _, v := range was.Volumes {
		if !slices.ContainsFunc(is.Volumes, func(has corev1.Volume) bool { return has.Name == v.Name }) {
			t.Errorf("%s: volume %s is missing", helm, v.Name)
		}
	}
}

// The patch of a LinstorCluster is one of kustomize. The operator makes a kustomization of each of
// its components, with all patches in each, and applies nothing where one of them cannot be built.
// Here kustomize itself builds the one with the attacher, and one without, in both forms.
func TestThePatchOfALinstorClusterIsWhatInjectWrites(t *testing.T) {
	single.take(t)
	whole.use(t)
	kustomize := kustomizeTool.build(t)
	for _, form := range []string{"--native-sidecar=false", "--native-sidecar"} {
		folder := t.TempDir()
		cluster, deployment := filepath.Join(folder, "cluster.yaml"), workloadOf(t, vendor(t))
		must(t, os.WriteFile(cluster, []byte("kind: LinstorCluster\nmetadata: {name: linstorcluster}\n"), 0o644))
		csiFencepost(t, vendor(t), "inject", "--as-values=linstor", "--values", cluster, "--output", folder, form)
		text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
		must(t, err)
		var values struct {
			Spec struct{ Patches []map[string]any }
		}
		must(t, yaml.Unmarshal(text, &values))
		deployment.SetNamespace("") // the operator's own manifests name none
		kustomization, err := yaml.Marshal(map[string]any{"resources": []string{"deployment.yaml"}, "patches": values.Spec.Patches})
		must(t, err)
		must(t, os.WriteFile(filepath.Join(folder, "deployment.yaml"), mustYAML(t, deployment), 0o644))
		must(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), kustomization, 0o644))
		got := objects(t, mustOutput(t, nil, nil, kustomize, "build", folder))[0]
		for _, other := range []string{"kind: Deployment\nmetadata: {name: linstor-controller}", "kind: DaemonSet\nmetadata: {name: " + deployment.GetName() + "}"} {
			other = "apiVersion: apps/v1\n" + other + "\nspec: {template: {spec: {containers: [{name: csi-attacher}]}}}\n"
			must(t, os.WriteFile(filepath.Join(folder, "deployment.yaml"), []byte(other), 0o644))
			if built := objects(t, mustOutput(t, nil, nil, kustomize, "build", folder)); len(built) != 1 || !reflect.DeepEqual(built[0], objects(t, []byte(other))[0]) {
				t.Errorf("%s: built %v from\n%s", form, built, other)
			}
		}
		got.SetNamespace("array-system")
		want := workloadOf(t, csiFencepost(t, vendor(t), "inject", form))
		namespaces(t, vendor(t))
		same(t, form, inOrder(meaning(t, got)), inOrder(meaning(t, want)))
	}
}

// inOrder sorts a pod's lists by name: kustomize puts what is new first, and no order of them
// means anything here.
func inOrder(workload map[string]any) map[string]any {
	pod, _, _ := unstructured.NestedMap(workload, "spec", "template", "spec")
	for _, field := range []string{"containers", "initContainers", "volumes"} {
		if list, ok := pod[field].([]any); ok {
			slices.SortFunc(list, func(a, b any) int {
				return strings.Compare(fmt.Sprint(a.(map[string]any)["name"]), fmt.Sprint(b.(map[string]any)["name"]))
			})
		}
	}
	_ = unstructured.SetNestedMap(workload, pod, "spec", "template", "spec")
	return workload
}
