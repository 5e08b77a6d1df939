package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// server is the API server of all tests.
var server struct {
	cluster *controlplane.Cluster
	client  dynamic.Interface
	mapper  meta.RESTMapper
}

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(controlplane.RunTests(m, share))
}

func share(_ context.Context, cluster *controlplane.Cluster) (err error) {
	server.cluster = cluster
	admin := cluster.Admin()
	if server.client, err = dynamic.NewForConfig(admin); err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfig(admin)
	if err != nil {
		return err
	}
	server.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(api))
	return nil
}

// manifests are the project's own, and those of CSI_FENCEPOST_MANIFESTS.
func manifests(t *testing.T) (files []string) {
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

// injected are the objects of a file after inject; nil if there is nothing to
// guard in it.
func injected(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	o := inject.Options{Mode: "Enforce", Failover: true, Namespace: "storage"}
	r, err := inject.Inject([]inject.File{{Name: name, Text: text}}, o)
	if err != nil && strings.Contains(err.Error(), "--driver") {
		o.Driver = "array.example.com"
		r, err = inject.Inject([]inject.File{{Name: name, Text: text}}, o)
	}
	if nothing := (*inject.NothingError)(nil); errors.As(err, &nothing) {
		t.Log(err)
		return nil
	}
	must(t, err)
	return objects(t, r.Files[0].Text)
}

// objects reads a stream as kubectl does.
func objects(t *testing.T, text []byte) (all []*unstructured.Unstructured) {
	t.Helper()
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		if o.IsList() {
			must(t, o.EachListItem(func(item runtime.Object) error {
				all = append(all, item.(*unstructured.Unstructured))
				return nil
			}))
		} else if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// resource is the API of an object; false if the server does not know its kind.
func resource(t *testing.T, o *unstructured.Unstructured) (dynamic.ResourceInterface, bool) {
	t.Helper()
	kind := o.GroupVersionKind()
	mapping, err := server.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, false
	}
	must(t, err)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return server.client.Resource(mapping.Resource), true
	}
	if o.GetNamespace() == "" {
		o.SetNamespace("storage")
	}
	_, err = server.cluster.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return server.client.Resource(mapping.Resource).Namespace(o.GetNamespace()), true
}

// apply is kubectl apply --server-side, with every unknown or repeated field an
// error.
func apply(t *testing.T, o *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	api, known := resource(t, o)
	if !known {
		return nil, nil
	}
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	data, err := json.Marshal(o.Object)
	must(t, err)
	force := true
	return api.Patch(t.Context(), o.GetName(), "application/apply-patch+yaml", data,
		metav1.PatchOptions{FieldManager: "inject-test", Force: &force, DryRun: dryRun, FieldValidation: "Strict"})
}

func TestTheServerTakesEverythingThatIsInjected(t *testing.T) {
	for _, name := range manifests(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			kinds := map[string]int{}
			for _, o := range injected(t, name) {
				got, err := apply(t, o, metav1.DryRunAll)
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				if got != nil {
					kinds[o.GetKind()]++
				}
			}
			if n := kinds["Deployment"] + kinds["StatefulSet"]; len(kinds) > 0 && (n == 0 || kinds["ClusterRole"] == 0 || kinds["ConfigMap"] == 0) {
				t.Errorf("applied %v", kinds)
			}
		})
	}
}

// What is read back from a cluster has no comments. The annotation is enough.
func TestUninjectOfWhatTheServerHasStored(t *testing.T) {
	for _, name := range []string{"env-and-comments", "two-attachers", "hosted-control-plane"} {
		file := "../../deploy/inject/testdata/cases/" + name + ".yaml"
		text, err := os.ReadFile(file)
		must(t, err)
		before := stored(t, controller(t, objects(t, text)))
		after := stored(t, controller(t, injected(t, file)))
		dump, err := yaml.Marshal(after.Object)
		must(t, err)
		if !bytes.Contains(dump, []byte("name: csi-fencepost\n")) {
			t.Errorf("%s: nothing was injected:\n%s", name, dump)
		}
		r, err := inject.Uninject([]inject.File{{Name: name, Text: dump}})
		must(t, err)
		got, err := apply(t, controller(t, objects(t, r.Files[0].Text)))
		must(t, err)
		if !reflect.DeepEqual(got.Object["spec"], before.Object["spec"]) || !reflect.DeepEqual(got.GetAnnotations(), before.GetAnnotations()) {
			t.Errorf("%s: after uninject\n%v\n%v\nwant\n%v\n%v", name, got.GetAnnotations(), got.Object["spec"], before.GetAnnotations(), before.Object["spec"])
		}
	}
}

func controller(t *testing.T, all []*unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == "Deployment" || o.GetKind() == "StatefulSet" {
			return o
		}
	}
	t.Fatal("no controller")
	return nil
}

// stored applies an object and returns what the server has of it, without what
// the server adds to each version.
func stored(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := apply(t, o)
	must(t, err)
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(got.Object, "metadata", field)
	}
	delete(got.Object, "status")
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
