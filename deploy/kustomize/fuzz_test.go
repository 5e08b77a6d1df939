package kustomize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// Whatever the manifests say: the component is YAML with two patches for each
// workload, and each patch has operations that kustomize knows.
func FuzzComponent(f *testing.F) {
	names, err := filepath.Glob("../inject/testdata/cases/*.yaml")
	if err != nil || len(names) < 10 {
		f.Fatalf("%d manifests: %v", len(names), err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err != nil {
			f.Fatal(err)
		} else if !strings.HasSuffix(name, ".golden.yaml") {
			f.Add(text, "array.example.com")
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, driver string) {
		r, err := inject.Inject([]inject.File{{Name: "f.yaml", Text: text}}, inject.Options{Drivers: strings.Fields(driver), Namespace: "storage", Separate: true})
		if err != nil || len(r.Plans) == 0 {
			return
		}
		files, err := Component(r.Plans, r.Documents)
		if err != nil {
			return
		}
		var c component
		if err := yaml.UnmarshalStrict(files[0].Text, &c); err != nil {
			t.Fatalf("%v in\n%s", err, files[0].Text)
		}
		if c.Kind != "Component" || len(c.Patches) != 2*len(r.Plans) {
			t.Errorf("a %s with %d patches for %d workloads", c.Kind, len(c.Patches), len(r.Plans))
		}
		for _, p := range c.Patches {
			if p.Target == nil {
				continue
			}
			var operations []operation
			if err := yaml.UnmarshalStrict([]byte(p.Patch), &operations); err != nil || len(operations) == 0 {
				t.Fatalf("%v in\n%s", err, p.Patch)
			}
			for _, o := range operations {
				if o.Op != "test" && o.Op != "add" || !strings.HasPrefix(o.Path, "/spec/template/") {
					t.Errorf("the operation %+v", o)
				}
			}
		}
	})
}
