package kubeapi

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// injectCases are the project's own, and those of CSI_FENCEPOST_MANIFESTS.
func injectCases(t *testing.T) (files []string) {
	t.Helper()
	own, err := filepath.Glob("../../deploy/inject/testdata/cases/*.yaml")
	if err != nil || len(own) < 20 {
		t.Fatalf("%d manifests: %v", len(own), err)
	}
	for _, name := range own {
		if !strings.HasSuffix(name, ".golden.yaml") {
			files = append(files, name)
		}
	}
	if folder := os.Getenv("CSI_FENCEPOST_MANIFESTS"); folder != "" {
		vendors, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil || len(vendors) == 0 {
			t.Fatalf("CSI_FENCEPOST_MANIFESTS=%s has no .yaml file: %v", folder, err)
		}
		files = append(files, vendors...)
	}
	return files
}

// injected is a file after inject, and what inject has for another cluster; both
// are nil if there is nothing to guard in it.
func injected(t *testing.T, name string) (text, elsewhere []byte) {
	t.Helper()
	original, err := os.ReadFile(name)
	must(t, err)
	o := inject.Options{Mode: "Enforce", Failover: inject.InPod, Namespace: "storage"}
	r, err := inject.Inject([]inject.File{{Name: name, Text: original}}, o)
	if err != nil && strings.Contains(err.Error(), "--driver") {
		o.Drivers = []string{"array.example.com"}
		r, err = inject.Inject([]inject.File{{Name: name, Text: original}}, o)
	}
	if nothing := (*inject.NothingError)(nil); errors.As(err, &nothing) {
		t.Log(err)
		return nil, nil
	}
	must(t, err)
	return r.Files[0].Text, r.Elsewhere
}

// applyKnown is apply of an object that may lack a namespace, or be read back from
// the server; nil if the server does not know its kind.
func applyKnown(t *testing.T, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	t.Helper()
	m, err := whole.mapping(o)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	must(t, err)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.GetNamespace() == "" {
			o.SetNamespace("storage")
		}
		makeNamespace(t, o.GetNamespace())
	}
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	return whole.apply(t.Context(), o, dryRun)
}

func TestTheServerTakesEverythingThatIsInjected(t *testing.T) {
	single.take(t)
	whole.use(t)
	for _, name := range injectCases(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			kinds := map[string]int{}
			here, elsewhere := injected(t, name)
			authors, err := os.ReadFile(name)
			must(t, err)
			refused := map[string]bool{} // kinds, in the same words as what their author wrote
			for _, o := range append(objects(t, here), objects(t, elsewhere)...) {
				got, err := applyKnown(t, o, true)
				switch {
				case got != nil:
					kinds[o.GetKind()]++
				case !isOwn(name) && refusedAsWritten(t, authors, o, err):
					refused[o.GetKind()] = true
					t.Logf("the server does not take its author's %s %s of %s either: %v", o.GetKind(), o.GetName(), o.GetAPIVersion(), err)
				case err != nil:
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			n := kinds["Deployment"] + kinds["StatefulSet"]
			if noWorkload := n == 0 && !refused["Deployment"] && !refused["StatefulSet"]; len(kinds) > 0 && (noWorkload || kinds["ClusterRole"] == 0 || kinds["ConfigMap"] == 0) {
				t.Errorf("applied %v", kinds)
			}
		})
	}
}

// isOwn tells a case of the project's own, of which the server takes everything.
func isOwn(file string) bool { return strings.HasPrefix(file, "../../deploy/") }

// refusedAsWritten tells whether the server says the same of an object as its author wrote
// it; nil: it has no such kind.
func refusedAsWritten(t *testing.T, authors []byte, object *unstructured.Unstructured, why error) bool {
	t.Helper()
	for _, o := range objects(t, authors) {
		if o.GetKind() == object.GetKind() && o.GetName() == object.GetName() {
			got, err := applyKnown(t, o, true)
			if got == nil && fmt.Sprint(err) == fmt.Sprint(why) {
				return true
			}
		}
	}
	return false
}

// What is read back from a cluster has no comments. The annotation is enough.
func TestUninjectOfWhatTheServerHasStored(t *testing.T) {
	single.take(t)
	whole.use(t)
	for _, name := range []string{"env-and-comments", "two-attachers", "hosted-control-plane"} {
		file := "../../deploy/inject/testdata/cases/" + name + ".yaml"
		text, err := os.ReadFile(file)
		must(t, err)
		before := storedBare(t, workloadOf(t, text))
		with, _ := injected(t, file)
		after := storedBare(t, workloadOf(t, with))
		dump, err := yaml.Marshal(after.Object)
		must(t, err)
		if !bytes.Contains(dump, []byte("name: csi-fencepost\n")) {
			t.Errorf("%s: nothing was injected:\n%s", name, dump)
		}
		twice, err := inject.Inject([]inject.File{{Name: name, Text: dump}}, inject.Options{})
		must(t, err)
		for _, f := range twice.Findings {
			if strings.Contains(f.Text, "by hand") {
				t.Errorf("%s: what the server fills in is taken for a person's word: %s", name, f)
			}
		}
		r, err := inject.Uninject([]inject.File{{Name: name, Text: dump}})
		must(t, err)
		again := workloadOf(t, r.Files[0].Text)
		got, err := applyKnown(t, again, false)
		must(t, err)
		t.Cleanup(func() { remove(t, again) })
		if !reflect.DeepEqual(got.Object["spec"], before.Object["spec"]) || !reflect.DeepEqual(got.GetAnnotations(), before.GetAnnotations()) {
			t.Errorf("%s: after uninject\n%v\n%v\nwant\n%v\n%v", name, got.GetAnnotations(), got.Object["spec"], before.GetAnnotations(), before.Object["spec"])
		}
	}
}

// storedBare applies an object and returns what the server has of it.
func storedBare(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := applyKnown(t, o, false)
	must(t, err)
	return &unstructured.Unstructured{Object: bare(got)}
}
