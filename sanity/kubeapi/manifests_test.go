package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// objects parses a stream of manifests, as kubectl does.
func objects(t *testing.T, manifests []byte) []*unstructured.Unstructured {
	t.Helper()
	all, err := parse(manifests)
	if err != nil {
		t.Fatalf("%v in\n%s", err, manifests)
	}
	return all
}

func parse(manifests []byte) (all []*unstructured.Unstructured, err error) {
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if object.IsList() {
			err = object.EachListItem(func(item runtime.Object) error {
				all = append(all, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, err
			}
		} else if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// findObject is the object of a kind and name among them.
func findObject(t *testing.T, all []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// mapping is how the API server calls an object's kind.
func (s *server) mapping(object *unstructured.Unstructured) (*meta.RESTMapping, error) {
	kind := object.GroupVersionKind()
	return s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// apiOf is the API of an object's kind, in its namespace.
func (s *server) apiOf(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	mapping, err := s.mapping(object)
	if err != nil {
		return nil, err
	}
	if object.GetNamespace() == "" {
		return s.dynamic.Resource(mapping.Resource), nil
	}
	return s.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

// apply is `kubectl apply --server-side` as an administrator who insists; it
// returns what is stored. An unknown field is an error.
func (s *server) apply(ctx context.Context, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	api, err := s.apiOf(object)
	if err != nil {
		return nil, err
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: "sanity", Force: new(bool), FieldValidation: metav1.FieldValidationStrict}
	*options.Force = true
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	stored, err := api.Patch(ctx, object.GetName(), "application/apply-patch+yaml", body, options)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return stored, nil
}

// applyAll applies manifests, which stay until the test ends.
func applyAll(t *testing.T, manifests []byte) {
	t.Helper()
	for _, object := range objects(t, manifests) {
		if _, err := whole.apply(t.Context(), object, false); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remove(t, object) })
	}
}

// applied applies an object, and fails unless the API server stores the spec as it is written, with nothing more.
func applied(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	makeNamespace(t, object.GetNamespace())
	stored, err := whole.apply(t.Context(), object, false)
	must(t, err)
	defer remove(t, object)
	wants, err := json.Marshal(object.Object["spec"])
	must(t, err)
	has, err := json.Marshal(stored.Object["spec"])
	must(t, err)
	if string(has) != string(wants) {
		t.Errorf("of %s %s the API server stores\n%s\nwant\n%s", object.GetKind(), object.GetName(), has, wants)
	}
}

// remove deletes an object. Namespaces stay: nothing here ends them.
func remove(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	if object.GetKind() == "Namespace" {
		return
	}
	api, err := whole.apiOf(object)
	if err == nil {
		background := metav1.DeletePropagationBackground
		err = api.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
	}
	if err != nil {
		t.Errorf("deleting %s %s: %v", object.GetKind(), object.GetName(), err)
	}
}
