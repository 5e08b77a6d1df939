package kubeapi

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the snapshots of testdata/snapshots anew; their diff is a change of what users get")

// snapshot compares with what was kept.
func snapshot(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "snapshots", name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./sanity/kubeapi -rewrite)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not the snapshot any more (go test ./sanity/kubeapi -rewrite, and look at the diff); it is now\n%s", path, got)
	}
}

// meaning is what an object means to Kubernetes: what the API server would store,
// its defaults put in, without what only says who wrote it and when.
func meaning(t *testing.T, object *unstructured.Unstructured) map[string]any {
	t.Helper()
	stored, err := whole.apply(t.Context(), object, true)
	if err != nil {
		t.Fatal(err)
	}
	return bare(stored)
}

func bare(stored *unstructured.Unstructured) map[string]any {
	o := stored.DeepCopy()
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	delete(o.Object, "status")
	// A Job carries its UID in its labels too.
	return rename(o.Object, string(stored.GetUID()), "UID").(map[string]any)
}

// rename replaces a text wherever it stands.
func rename(v any, old, text string) any {
	switch v := v.(type) {
	case string:
		if v == old {
			return text
		}
	case map[string]any:
		for key := range v {
			v[key] = rename(v[key], old, text)
		}
	case []any:
		for i := range v {
			v[i] = rename(v[i], old, text)
		}
	}
	return v
}

// same compares two meanings.
func same(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, _ := yaml.Marshal(got)
	w, _ := yaml.Marshal(want)
	t.Errorf("%s: got\n%s\nwant\n%s", what, g, w)
}

// sameAll compares two streams of manifests, object by object, in any order.
func sameAll(t *testing.T, got, want []byte) {
	t.Helper()
	key := func(o *unstructured.Unstructured) string {
		return fmt.Sprint(o.GetKind(), " ", o.GetNamespace(), "/", o.GetName())
	}
	left := map[string]*unstructured.Unstructured{}
	for _, o := range objects(t, got) {
		left[key(o)] = o
	}
	for _, o := range objects(t, want) {
		if left[key(o)] == nil {
			t.Errorf("%s is missing", key(o))
			continue
		}
		same(t, key(o), meaning(t, left[key(o)]), meaning(t, o))
		delete(left, key(o))
	}
	for name := range left {
		t.Errorf("%s is too many", name)
	}
}

// vendor is the fixture: a driver's manifests.
func vendor(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/vendor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// namespaces makes those that manifests name: without them not even a dry run
// goes into one.
func namespaces(t *testing.T, manifests []byte) {
	t.Helper()
	for _, o := range objects(t, manifests) {
		name := o.GetNamespace()
		if o.GetKind() == "Namespace" {
			name = o.GetName()
		}
		if name != "" {
			makeNamespace(t, name)
		}
	}
}

func makeNamespace(t *testing.T, name string) {
	t.Helper()
	_, err := whole.apply(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}, false)
	must(t, err)
}

// dryRun has the API server look at every manifest.
func dryRun(t *testing.T, manifests []byte) {
	t.Helper()
	namespaces(t, manifests)
	for _, o := range objects(t, manifests) {
		if _, err := whole.apply(t.Context(), o, true); err != nil {
			t.Error(err)
		}
	}
}
