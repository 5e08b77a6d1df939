package kustomize

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// What kustomize makes of a component is tested in sanity/kubeapi.
func TestEveryChangeIsTestedForFirst(t *testing.T) {
	p := &inject.Plan{
		APIVersion: "apps/v1", Kind: "Deployment", Namespace: "n", Name: "d",
		Attacher: inject.Attacher{Container: "csi-attacher", Index: 1,
			CommandBefore: []string{"/attacher"}, Command: []string{"/attacher"},
			ArgsBefore: []string{"--csi-address=/csi/csi.sock"}, Args: []string{"--csi-address=/fencepost/csi.sock"}},
		Sidecar: corev1.Container{Name: "csi-fencepost"},
	}
	files, err := Component([]*inject.Plan{p}, []byte("kind: ConfigMap\n"))
	if err != nil || len(files) != 2 || files[0].Name != "kustomization.yaml" || files[1].Name != "fencepost.yaml" {
		t.Fatalf("%v: %+v", err, files)
	}
	var c component
	if err := yaml.UnmarshalStrict(files[0].Text, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Resources) != 1 || len(c.Patches) != 2 || c.Patches[0].Target != nil || !strings.Contains(c.Patches[0].Patch, "name: d\n") {
		t.Fatalf("%+v", c)
	}
	var operations []operation
	if err := yaml.UnmarshalStrict([]byte(c.Patches[1].Patch), &operations); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range operations {
		got = append(got, o.Op+" "+strings.TrimPrefix(o.Path, "/spec/template/spec/"))
	}
	const want = "test containers/1/name, test containers/1/args, add containers/1/args, add containers/1/volumeMounts, add containers/-"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, ", "), want)
	}
}

// To a JSON patch no list and an empty one are two things: each is tested for as it was seen.
func TestTheListOfInitContainersIsTestedForAsItWas(t *testing.T) {
	for want, beside := range map[string][]string{"<nil>": nil, "[]": {}, "no test": {"early"}} {
		got := "no test"
		for _, o := range jsonPatch(&inject.Plan{Native: true, Beside: beside}) {
			if o.Op == "test" && strings.HasSuffix(o.Path, "/initContainers") {
				got = fmt.Sprint(o.Value)
			}
		}
		if got != want {
			t.Errorf("%q: tests for %s, want %s", beside, got, want)
		}
	}
}

func TestNoPlanIsNoComponent(t *testing.T) {
	if files, err := Component(nil, nil); err == nil || files != nil {
		t.Errorf("%v, %v", files, err)
	}
}
