package kubeapi

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// overlay is a kustomization of the vendor's manifests with our component.
func overlay(t *testing.T, manifests []byte, flags ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	csiFencepost(t, vendor(t), append([]string{"inject", "--mode=Enforce", "--as-kustomize", filepath.Join(folder, "fencepost")}, flags...)...)
	for name, text := range map[string][]byte{
		"vendor.yaml":        manifests,
		"kustomization.yaml": []byte("resources: [vendor.yaml]\ncomponents: [fencepost]\n"),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestKustomizeBuildsWhatInjectWrites(t *testing.T) {
	single.take(t)
	whole.use(t)
	kustomize := kustomizeTool.build(t)
	folder := overlay(t, vendor(t))
	got := mustOutput(t, nil, nil, kustomize, "build", folder)
	want := csiFencepost(t, vendor(t), "inject", "--mode=Enforce")
	namespaces(t, want)
	sameAll(t, got, want)
	snapshot(t, "kustomize-build.yaml", got)
	for _, name := range []string{"kustomization.yaml", "fencepost.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, "fencepost", name))
		if err != nil {
			t.Fatal(err)
		}
		shipped := filepath.Join("../../deploy/kustomize/component", name)
		if *rewrite {
			if err := os.WriteFile(shipped, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(shipped); err != nil || !bytes.Equal(have, text) {
			t.Errorf("%s is not what --as-kustomize writes: %v", shipped, err)
		}
	}
}

// With and without init containers of the vendor's, which the component has to have seen.
func TestKustomizeBuildsANativeSidecar(t *testing.T) {
	single.take(t)
	whole.use(t)
	kustomize := kustomizeTool.build(t)
	got := mustOutput(t, nil, nil, kustomize, "build", overlay(t, vendor(t), "--native-sidecar"))
	want := csiFencepost(t, vendor(t), "inject", "--mode=Enforce", "--native-sidecar")
	namespaces(t, want)
	sameAll(t, got, want)
	// A chart may render a list without anything in it: to a JSON patch that is not no list.
	empty := bytes.Replace(vendor(t), []byte("      containers:\n"), []byte("      initContainers: []\n      containers:\n"), 1)
	folder := t.TempDir()
	csiFencepost(t, empty, "inject", "--mode=Enforce", "--native-sidecar", "--as-kustomize", filepath.Join(folder, "fencepost"))
	must(t, os.WriteFile(filepath.Join(folder, "vendor.yaml"), empty, 0o644))
	must(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte("resources: [vendor.yaml]\ncomponents: [fencepost]\n"), 0o644))
	sameAll(t, mustOutput(t, nil, nil, kustomize, "build", folder), want)
	more := bytes.Replace(vendor(t), []byte("      containers:\n"), []byte("      initContainers: [{name: early, image: registry.example.com/early:v1}]\n      containers:\n"), 1)
	if out, err := output(t, nil, nil, kustomize, "build", overlay(t, more, "--native-sidecar")); err == nil || !strings.Contains(err.Error(), "initContainers") {
		t.Errorf("an init container that the component has not seen: %v; it built\n%s", err, out)
	}
}

// An upgrade of the driver that the component does not fit any more must not
// build a controller that gets past the guard.
func TestKustomizeFailsWhereTheManifestHasChanged(t *testing.T) {
	single.take(t)
	whole.use(t)
	kustomize := kustomizeTool.build(t)
	for what, change := range map[string]struct{ from, to, says string }{
		"another name of the workload": {"  name: array-controller\n  namespace: array-system\n  labels:", "  name: array-csi\n  namespace: array-system\n  labels:", "array-controller"},
		"another order of containers":  {"- name: csi-attacher", "- name: csi-resizer", "containers/2/name"},
		"another argument":             {"- --timeout=15s", "- --timeout=20s", "containers/2/args"},
	} {
		changed := strings.Replace(string(vendor(t)), change.from, change.to, 1)
		if changed == string(vendor(t)) {
			t.Fatalf("%s: nothing is changed", what)
		}
		out, err := output(t, nil, nil, kustomize, "build", overlay(t, []byte(changed)))
		if err == nil || !strings.Contains(err.Error(), change.says) {
			t.Errorf("%s: error %v, want one of %s; it built\n%s", what, err, change.says, out)
		}
	}
}
