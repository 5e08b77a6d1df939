package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// isWorkload tells whether it is of the kinds that csi-fencepost is put into.
func isWorkload(apiVersion, kind string) bool {
	return (strings.HasPrefix(apiVersion, "apps/") || strings.HasPrefix(apiVersion, "extensions/")) && (kind == "Deployment" || kind == "StatefulSet")
}

// FromObject reads a Deployment or StatefulSet, decoded from YAML or JSON. An
// error says what is wrong with it.
func FromObject(object map[string]any) (*Workload, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("it is no object of Kubernetes: %w", err)
	}
	var o struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Spec       struct {
			Replicas *int32                  `json:"replicas"`
			Selector *metav1.LabelSelector   `json:"selector"`
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	// As the API server reads it: case matters in the names of fields, and what is
	// changed is changed by these names.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &o); err != nil {
		return nil, fmt.Errorf("it is no %v as Kubernetes has it: %w", object["kind"], format.ExplainIn(data, &o, err))
	}
	if !isWorkload(o.APIVersion, o.Kind) {
		return nil, fmt.Errorf("%s %s is neither a Deployment nor a StatefulSet of apps/v1", o.APIVersion, o.Kind)
	}
	if o.Spec.Template == nil || len(o.Spec.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("%s %s has no pod template: spec.template.spec.containers is missing", o.Kind, o.Metadata.Name)
	}
	return &Workload{APIVersion: o.APIVersion, Kind: o.Kind, ObjectMeta: o.Metadata, Replicas: o.Spec.Replicas, Selector: o.Spec.Selector, Template: *o.Spec.Template}, nil
}

// name for messages.
func (w *Workload) name() string {
	if w.ObjectMeta.Namespace == "" {
		return w.Kind + " " + w.ObjectMeta.Name
	}
	return w.Kind + " " + w.ObjectMeta.Namespace + "/" + w.ObjectMeta.Name
}

// replicas that it asks for: one, if it asks for nothing.
func (w *Workload) replicas() int32 {
	if w.Replicas == nil {
		return 1
	}
	return *w.Replicas
}

func (w *Workload) serviceAccount() string {
	for _, name := range []string{w.Template.Spec.ServiceAccountName, w.Template.Spec.DeprecatedServiceAccount} {
		if name != "" {
			return name
		}
	}
	return "default"
}

// attachers are the indices of the containers that run external-attacher.
func (w *Workload) attachers() (found []int) {
	for i := range w.Template.Spec.Containers {
		if isAttacher(&w.Template.Spec.Containers[i]) {
			found = append(found, i)
		}
	}
	return found
}

// inTheWay says why an attacher in this workload cannot be guarded, if so.
func (w *Workload) inTheWay() error {
	pod := &w.Template.Spec
	for i := range pod.InitContainers {
		if isAttacher(&pod.InitContainers[i]) {
			return fmt.Errorf("%s: external-attacher runs as init container %s; csi-fencepost goes beside one in containers only", w.name(), pod.InitContainers[i].Name)
		}
	}
	for _, c := range containersOf(pod) {
		if isSidecar(c) {
			return fmt.Errorf("%s: container %s is csi-fencepost already, put in by other means (deploy/sidecar/patch.yaml, a policy, values of a chart): nothing is to be done, or take that out first", w.name(), c.Name)
		}
	}
	if w.ObjectMeta.Name == "" {
		return errors.New("the " + w.Kind + " has no metadata.name")
	}
	return nil
}

// isSidecar tells whether a container is csi-fencepost.
func isSidecar(c *corev1.Container) bool {
	return slices.Contains(c.Args, "run") && slices.ContainsFunc(c.Args, func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "listen=")
	})
}
