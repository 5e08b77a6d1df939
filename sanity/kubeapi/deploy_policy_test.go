package kubeapi

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// podOf are the names of a workload's containers, and behind them those of its init containers.
func podOf(t *testing.T, workload *unstructured.Unstructured) (containers []string) {
	t.Helper()
	for _, field := range []string{"containers", "initContainers"} {
		list, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", field)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			containers = append(containers, fmt.Sprint(c.(map[string]any)["name"]))
		}
	}
	return containers
}

// inNamespace puts objects that name none into a namespace, as kubectl -n does.
func inNamespace(t *testing.T, manifests []byte, namespace string) []byte {
	t.Helper()
	var all []string
	for _, o := range objects(t, manifests) {
		cluster := slices.Contains([]string{"Namespace", "CSIDriver", "ClusterRole", "ClusterRoleBinding"}, o.GetKind())
		if o.GetNamespace() == "" && !cluster {
			o.SetNamespace(namespace)
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return []byte(strings.Join(all, "---\n"))
}

// An operator has its own manifest of the controller, and writes it whenever
// what is stored differs: each in its own way.
var operators = map[string]func(ctx context.Context, original *unstructured.Unstructured) (*unstructured.Unstructured, error){
	"server-side apply": func(ctx context.Context, original *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return whole.apply(ctx, original, false)
	},
	"update": func(ctx context.Context, original *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		api, err := whole.apiOf(original)
		if err != nil {
			return nil, err
		}
		return api.Update(ctx, original, metav1.UpdateOptions{})
	},
	"merge patch": func(ctx context.Context, original *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		api, err := whole.apiOf(original)
		if err != nil {
			return nil, err
		}
		body, err := original.MarshalJSON()
		if err != nil {
			return nil, err
		}
		return api.Patch(ctx, original.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	},
	"delete and create": func(ctx context.Context, original *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		api, err := whole.apiOf(original)
		if err != nil {
			return nil, err
		}
		if err := api.Delete(ctx, original.GetName(), metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return api.Create(ctx, original, metav1.CreateOptions{})
	},
}

// vendorVariants are workloads as vendors write them, with what differs.
var vendorVariants = map[string]*strings.Replacer{
	"as it is":               strings.NewReplacer(),
	"native":                 strings.NewReplacer(),
	"native beside another":  strings.NewReplacer("      containers:\n", "      initContainers: [{name: early, image: registry.example.com/early:v1}]\n      containers:\n"),
	"flag and value apart":   strings.NewReplacer("- --csi-address=/csi/csi.sock\n        - --timeout", "- --csi-address\n        - /csi/csi.sock\n        - --timeout"),
	"no arguments of its":    strings.NewReplacer("mountPath: /csi\n      volumes", "mountPath: /run/csi\n      volumes", "        args:\n        - --v=2\n        - --csi-address=/csi/csi.sock\n        - --timeout=15s\n        - --leader-election\n", ""),
	"arguments in command":   strings.NewReplacer("args:\n        - --v=2\n", "command:\n        - /csi-attacher\n        - --v=2\n"),
	"annotations of its own": strings.NewReplacer("  labels:\n    app: array-controller #", "  annotations: {owner: vendor}\n  labels:\n    app: array-controller #"),
	"a StatefulSet":          strings.NewReplacer("kind: Deployment", "kind: StatefulSet", "  replicas: 2\n", "  replicas: 2\n  serviceName: array-controller\n"),
}

// vendorIn is the fixture in a namespace of its own: policies that were deleted
// act for a moment longer.
func vendorIn(t *testing.T, namespace string) []byte {
	return []byte(strings.ReplaceAll(string(vendor(t)), "array-system", namespace))
}

func workloadOf(t *testing.T, manifests []byte) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects(t, manifests) {
		if o.GetKind() == "Deployment" || o.GetKind() == "StatefulSet" {
			return o
		}
	}
	t.Fatal("no workload")
	return nil
}

// effective applies the policies, and waits until the API server goes by them.
func effective(t *testing.T, policies []byte, probe *unstructured.Unstructured) {
	t.Helper()
	applyAll(t, policies)
	api, err := whole.apiOf(probe)
	if err != nil {
		t.Fatal(err)
	}
	try := func(kind types.PatchType, body string) (*unstructured.Unstructured, error) {
		return api.Patch(t.Context(), probe.GetName(), kind, []byte(body), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		touched, err := try(types.MergePatchType, `{"metadata":{"labels":{"probe":"1"}}}`)
		mutates := err == nil && slices.Contains(podOf(t, touched), "csi-fencepost")
		_, refused := try(types.JSONPatchType, `[{"op":"replace","path":"/spec/template/spec/containers/2/name","value":"probe"}]`)
		if mutates && refused != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policies have no effect: %v, %v", err, refused)
		}
	}
}

func TestAnOperatorThatRevertsEveryEditKeepsGettingTheSidecar(t *testing.T) {
	single.take(t)
	whole.use(t)
	for variant, change := range vendorVariants {
		t.Run(variant, func(t *testing.T) {
			original := vendorIn(t, "variant-"+strings.ToLower(strings.ReplaceAll(variant, " ", "-")))
			manifests := []byte(change.Replace(string(original)))
			native := fmt.Sprintf("--native-sidecar=%t", strings.HasPrefix(variant, "native"))
			if variant != "as it is" && variant != "native" && string(manifests) == string(original) {
				t.Fatal("nothing is changed")
			}
			applyAll(t, manifests)
			want := meaning(t, workloadOf(t, csiFencepost(t, manifests, "inject", "--mode=Enforce", native)))
			effective(t, csiFencepost(t, manifests, "inject", "--mode=Enforce", "--as-policy", native), workloadOf(t, manifests))
			for how, write := range operators {
				var generation int64
				for i := range 3 {
					stored, err := write(t.Context(), workloadOf(t, manifests))
					if err != nil {
						t.Fatalf("%s: %v", how, err)
					}
					same(t, how, bare(stored), want)
					if i > 0 && how != "delete and create" && stored.GetGeneration() != generation {
						t.Errorf("%s: generation %d after %d: the same write rolls the pods out again", how, stored.GetGeneration(), generation)
					}
					generation = stored.GetGeneration()
				}
			}
		})
	}
}

// A policy of the other form takes the sidecar of the one before out of what is stored, as a
// rollout restart or kubectl apply leaves it there, and refuses a native one that would never end.
func TestAPolicyReplacesTheOtherFormOfTheSidecar(t *testing.T) {
	single.take(t)
	whole.use(t)
	manifests := vendorIn(t, "other-form")
	applyAll(t, manifests)
	forms := []string{"--native-sidecar=false", "--native-sidecar", "--native-sidecar=false"}
	wants := map[string]map[string]any{} // as no policy changes them yet
	for _, form := range forms {
		wants[form] = meaning(t, workloadOf(t, csiFencepost(t, manifests, "inject", "--mode=Enforce", form)))
	}
	if reflect.DeepEqual(wants[forms[0]], wants[forms[1]]) {
		t.Fatal("both forms are the same: nothing is shown")
	}
	for i, form := range forms {
		want := wants[form]
		policies := csiFencepost(t, manifests, "inject", "--mode=Enforce", "--as-policy", form)
		if i == 0 {
			applyAll(t, policies)
		}
		for _, o := range objects(t, policies) {
			_, err := whole.apply(t.Context(), o, false)
			must(t, err)
		}
		api, err := whole.apiOf(workloadOf(t, manifests))
		must(t, err)
		var got map[string]any
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			stored, err := api.Patch(t.Context(), "array-controller", types.MergePatchType, []byte(`{"metadata":{"annotations":{"restarted":null}}}`), metav1.PatchOptions{})
			if err == nil {
				got = bare(stored)
			}
			if err == nil && reflect.DeepEqual(got, want) {
				break
			}
			if time.Now().After(deadline) {
				same(t, form, got, want)
				t.Fatalf("write %d: %v", i, err)
			}
		}
	}
}

// A Kubernetes that does not know native sidecars drops their restart policy. What is left is
// refused for its probes, so that the pods that run stay.
func TestAServerWithoutNativeSidecarsRefusesOne(t *testing.T) {
	single.take(t)
	whole.use(t)
	manifests := vendorIn(t, "no-native-sidecars")
	namespaces(t, manifests)
	injected := workloadOf(t, csiFencepost(t, manifests, "inject", "--native-sidecar"))
	if _, err := whole.apply(t.Context(), injected, true); err != nil {
		t.Fatal(err)
	}
	inits, _, err := unstructured.NestedSlice(injected.Object, "spec", "template", "spec", "initContainers")
	must(t, err)
	delete(inits[0].(map[string]any), "restartPolicy")
	must(t, unstructured.SetNestedSlice(injected.Object, inits, "spec", "template", "spec", "initContainers"))
	if _, err := whole.apply(t.Context(), injected, true); err == nil || !strings.Contains(err.Error(), "initContainers[0].livenessProbe") {
		t.Errorf("error %v", err)
	}
}

// What the policy was not rendered from is refused: the pods that run keep their
// guard. And what is not its workload is not its business.
func TestAPolicyRefusesWhatWouldGetPastTheGuard(t *testing.T) {
	single.take(t)
	whole.use(t)
	manifests := vendorIn(t, "policy-refuses")
	applyAll(t, manifests)
	original := workloadOf(t, manifests)
	effective(t, csiFencepost(t, manifests, "inject", "--mode=Enforce", "--as-policy"), original)
	for what, change := range map[string]struct{ from, to, says string }{
		"another address":   {"- --csi-address=/csi/csi.sock\n        - --timeout", "- --csi-address=/csi/driver.sock\n        - --timeout", "would get past csi-fencepost"},
		"another container": {"- name: csi-attacher", "- name: attacher", "container csi-fencepost is missing"},
	} {
		changed := workloadOf(t, []byte(strings.Replace(string(manifests), change.from, change.to, 1)))
		api, err := whole.apiOf(changed)
		if err != nil {
			t.Fatal(err)
		}
		_, err = api.Update(t.Context(), changed, metav1.UpdateOptions{})
		if err == nil || !strings.Contains(err.Error(), change.says) || !strings.Contains(err.Error(), "inject --as-policy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := original.DeepCopy()
	other.SetName("another")
	if stored, err := whole.apply(t.Context(), other, true); err != nil || slices.Contains(podOf(t, stored), "csi-fencepost") {
		t.Errorf("another workload: %v", err)
	}
	namespaces(t, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: elsewhere}\n"))
	other = original.DeepCopy()
	other.SetNamespace("elsewhere")
	if stored, err := whole.apply(t.Context(), other, true); err != nil || slices.Contains(podOf(t, stored), "csi-fencepost") {
		t.Errorf("the same name in another namespace: %v", err)
	}
}

// argsOf are the pod's containers, and the attacher among them with its
// arguments.
func argsOf(t *testing.T, workload *unstructured.Unstructured) (containers []any, attacher map[string]any, args []string) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	attacher = containers[slices.Index(podOf(t, workload), "csi-attacher")].(map[string]any)
	if args, _, err = unstructured.NestedStringSlice(attacher, "args"); err != nil {
		t.Fatal(err)
	}
	return containers, attacher, args
}

// addArgs appends to the attacher's arguments.
func addArgs(t *testing.T, workload *unstructured.Unstructured, words ...string) *unstructured.Unstructured {
	t.Helper()
	containers, attacher, args := argsOf(t, workload)
	if err := unstructured.SetNestedStringSlice(attacher, append(args, words...), "args"); err != nil {
		t.Fatal(err)
	}
	changed := workload.DeepCopy()
	if err := unstructured.SetNestedSlice(changed.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	return changed
}

// addressesOf are the sockets that the attacher's flags name, read as Go's flag
// package reads them.
func addressesOf(t *testing.T, workload *unstructured.Unstructured) (found []string) {
	t.Helper()
	_, _, args := argsOf(t, workload)
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") || name != "csi-address" {
			continue
		}
		if !has {
			i++
			value = args[i]
		}
		found = append(found, value)
	}
	return found
}

// Of several addresses the attacher takes the last: none may be the driver's.
func TestNoFurtherAddressLeadsThePolicysAttacherPastTheGuard(t *testing.T) {
	single.take(t)
	whole.use(t)
	for variant, socket := range map[string]string{"as it is": "/csi/csi.sock", "flag and value apart": "/csi/csi.sock", "no arguments of its": "/run/csi/socket"} {
		t.Run(variant, func(t *testing.T) {
			original := vendorIn(t, "further-"+strings.ToLower(strings.ReplaceAll(variant, " ", "-")))
			manifests := []byte(vendorVariants[variant].Replace(string(original)))
			applyAll(t, manifests)
			effective(t, csiFencepost(t, manifests, "inject", "--mode=Enforce", "--as-policy"), workloadOf(t, manifests))
			guarded, err := whole.apply(t.Context(), workloadOf(t, manifests), false)
			if err != nil {
				t.Fatal(err)
			}
			guarded.SetManagedFields(nil)
			guarded.SetResourceVersion("")
			if got := addressesOf(t, guarded); !slices.Equal(got, []string{"/fencepost/csi.sock"}) {
				t.Fatalf("%q", got)
			}
			for from, workload := range map[string]*unstructured.Unstructured{"its manifest": workloadOf(t, manifests), "what is stored": guarded} {
				tryFurther(t, from, workload, socket)
			}
		})
	}
}

func tryFurther(t *testing.T, from string, workload *unstructured.Unstructured, socket string) {
	t.Helper()
	api, err := whole.apiOf(workload)
	if err != nil {
		t.Fatal(err)
	}
	update := func(words []string) (*unstructured.Unstructured, error) {
		return api.Update(t.Context(), addArgs(t, workload, words...), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	for _, words := range [][]string{
		{"--csi-address=" + socket}, {"-csi-address=" + socket}, {"--csi-address", socket}, {"-csi-address", socket},
		{"-csi-address", socket, "--v=5", "--csi-address=" + socket}, {"-csi-address=/fencepost/csi.sock"},
	} {
		stored, err := update(words)
		if err != nil {
			t.Errorf("%s and %q: %v", from, words, err)
			continue
		}
		if got := slices.Compact(addressesOf(t, stored)); !slices.Equal(got, []string{"/fencepost/csi.sock"}) {
			t.Errorf("%s and %q: the attacher may go to %q", from, words, got)
		}
	}
	for _, words := range [][]string{
		{"--csi-address=/else.sock"}, {"-csi-address=/else.sock"}, {"--csi-address", "/else.sock"}, {"-csi-address", "/else.sock"},
		{"--csi-address=unix://" + socket}, {"--csi-address"}, {"-csi-address="}, {"--attacher-csi-address=" + socket}, {"-attacher-csi-address", socket},
		{"--csi-address", "--csi-address=/fencepost/csi.sock"}, {"--csi-address=/else.sock", "--csi-address=/fencepost/csi.sock"},
	} {
		_, err := update(words)
		if err == nil || !strings.Contains(err.Error(), "another socket than /fencepost/csi.sock") || !strings.Contains(err.Error(), "inject --as-policy") {
			t.Errorf("%s and %q are not refused as they should be: %v", from, words, err)
		}
	}
}

// A manifest that names an old socket before the one that holds is not refused
// for it.
func TestAManifestWithTwoAddressesIsPointedAtTheGuard(t *testing.T) {
	single.take(t)
	whole.use(t)
	original := string(vendorIn(t, "two-addresses"))
	manifests := []byte(strings.Replace(original, "- --csi-address=/csi/csi.sock\n        - --timeout", "- -csi-address=/old.sock\n        - --csi-address=/csi/csi.sock\n        - --timeout", 1))
	if string(manifests) == original {
		t.Fatal("nothing is changed")
	}
	applyAll(t, manifests)
	effective(t, csiFencepost(t, manifests, "inject", "--mode=Enforce", "--as-policy"), workloadOf(t, manifests))
	for range 2 {
		stored, err := whole.apply(t.Context(), workloadOf(t, manifests), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := addressesOf(t, stored); !slices.Equal(got, []string{"/fencepost/csi.sock", "/fencepost/csi.sock"}) {
			t.Errorf("%q", got)
		}
	}
}

func TestTheAPIServerTakesThePolicies(t *testing.T) {
	single.take(t)
	whole.use(t)
	policies := csiFencepost(t, vendor(t), "inject", "--mode=Enforce", "--as-policy")
	snapshot(t, "policy.yaml", policies)
	dryRun(t, policies)
}
