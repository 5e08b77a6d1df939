package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// The names of the component's files.
const (
	KustomizationFile = "kustomization.yaml"
	DocumentsFile     = "fencepost.yaml"
)

// Component returns the files of a component that changes what the plans change,
// and adds their documents. The plans are those of one set of manifests.
func Component(plans []*inject.Plan, documents []byte) ([]inject.File, error) {
	if len(plans) == 0 {
		return nil, errors.New("no plan, so nothing for a component to change")
	}
	c := component{APIVersion: "kustomize.config.k8s.io/v1alpha1", Kind: "Component"}
	files := []inject.File{}
	if len(documents) > 0 {
		c.Resources = []string{DocumentsFile}
		files = append(files, inject.File{Name: DocumentsFile, Text: documents})
	}
	for _, p := range plans {
		patches, err := patches(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", p.Where, p.Kind, p.Name, err)
		}
		c.Patches = append(c.Patches, patches...)
	}
	var out bytes.Buffer
	fmt.Fprint(&out, `# Puts csi-fencepost into the controller of the driver: a kustomize component.
# Written by csi-fencepost inject --as-kustomize; after an upgrade of the driver,
# have it written anew. Name it in your own kustomization:
#
#   resources: [the driver's manifests]
#   components: [this folder]
`)
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, err
	}
	out.Write(text)
	return append([]inject.File{{Name: KustomizationFile, Text: out.Bytes()}}, files...), nil
}

type component struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Resources  []string    `json:"resources,omitempty"`
	Patches    []patchItem `json:"patches"`
}

type patchItem struct {
	Target *target `json:"target,omitempty"`
	Patch  string  `json:"patch"`
}

type target struct {
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
}

// An operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patches are two: kustomize applies a JSON patch to whatever matches its
// target, be it nothing, without a word. A merge patch that matches nothing is
// an error to it; so one goes ahead, with the annotations.
func patches(p *inject.Plan) ([]patchItem, error) {
	merge, err := yaml.Marshal(map[string]any{
		"apiVersion": p.APIVersion, "kind": p.Kind,
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "annotations": p.Annotations},
	})
	if err != nil {
		return nil, err
	}
	var operations bytes.Buffer
	for _, o := range jsonPatch(p) {
		text, err := yaml.Marshal([]operation{o})
		if err != nil {
			return nil, err
		}
		operations.Write(text)
	}
	group, version, _ := strings.Cut(p.APIVersion, "/")
	return []patchItem{
		{Patch: string(merge)},
		{Target: &target{group, version, p.Kind, p.Name}, Patch: operations.String()},
	}, nil
}

// jsonPatch tests that everything is as the plan has seen it, and changes it.
// A test that fails ends kustomize's build.
func jsonPatch(p *inject.Plan) []operation {
	const pod = "/spec/template/spec"
	attacher := fmt.Sprintf("%s/containers/%d", pod, p.Attacher.Index)
	operations := []operation{{"test", attacher + "/name", p.Attacher.Container}}
	for _, list := range []struct {
		field         string
		before, after []string
	}{{"command", p.Attacher.CommandBefore, p.Attacher.Command}, {"args", p.Attacher.ArgsBefore, p.Attacher.Args}} {
		if slices.Equal(list.before, list.after) {
			continue
		}
		if len(list.before) > 0 {
			operations = append(operations, operation{"test", attacher + "/" + list.field, list.before})
		}
		operations = append(operations, operation{"add", attacher + "/" + list.field, list.after})
	}
	operations = append(operations, operation{"add", attacher + "/volumeMounts", p.Attacher.VolumeMounts})
	switch {
	case p.Native && p.Beside == nil: // no list yet: a test without a value is one that nothing is there
		operations = append(operations, operation{"test", pod + "/initContainers", nil}, operation{"add", pod + "/initContainers", []any{p.Sidecar}})
	case p.Native && len(p.Beside) == 0:
		operations = append(operations, operation{"test", pod + "/initContainers", []any{}}, operation{"add", pod + "/initContainers/-", p.Sidecar})
	case p.Native:
		operations = append(operations, operation{"add", pod + "/initContainers/-", p.Sidecar})
	default:
		operations = append(operations, operation{"add", pod + "/containers/-", p.Sidecar})
	}
	for _, v := range p.Volumes {
		operations = append(operations, operation{"add", pod + "/volumes/-", v})
	}
	return operations
}
