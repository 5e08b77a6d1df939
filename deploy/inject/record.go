package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// recordPrefix of the annotation that says what was put in, by the name of the
// attacher's container. Annotations outlive comments.
const recordPrefix = "inject.csi-fencepost.io/"

// A record is enough to take one sidecar out again where the marks are lost.
type record struct {
	Driver         string               `json:"driver"`
	Namespace      string               `json:"namespace"`
	ServiceAccount string               `json:"serviceAccount"`
	Mode           config.Mode          `json:"mode"`
	Failover       bool                 `json:"failover,omitempty"` // in the pod
	Apart          bool                 `json:"apart,omitempty"`
	Container      string               `json:"container"`
	Native         bool                 `json:"native,omitempty"`
	Image          string               `json:"image"`
	SELinuxType    string               `json:"seLinuxType,omitempty"`
	Volumes        []string             `json:"volumes"`
	Command        []string             `json:"command,omitempty"`
	Args           []string             `json:"args,omitempty"`
	Mounts         []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	AgentsSecrets  []string             `json:"agentsSecrets,omitempty"`
	AgentDirs      string               `json:"agentDirs,omitempty"`
	TLSSecret      string               `json:"tlsSecret,omitempty"`
	MetricsFrom    string               `json:"metricsFrom,omitempty"`
	WithoutRights  bool                 `json:"withoutRights,omitempty"`
	// Sidecar as it was put in: what differs from it was changed by a person.
	Sidecar *corev1.Container `json:"sidecar,omitempty"`
}

// record is of the sidecar before a person's changes are carried over to it.
func (p *Plan) record(o Options, put corev1.Container) (map[string]string, error) {
	r := record{
		Driver: p.Driver, Namespace: p.Namespace, ServiceAccount: p.ServiceAccount, Mode: p.Mode, Failover: p.Failover, Apart: p.Apart,
		Container: put.Name, Native: p.Native, Image: put.Image, SELinuxType: p.seLinuxType, AgentsSecrets: o.AgentsSecrets, AgentDirs: o.AgentDirs, TLSSecret: o.TLSSecret, MetricsFrom: o.MetricsFrom, WithoutRights: p.withoutRights, Sidecar: &put,
		Command: p.Attacher.CommandBefore, Args: p.Attacher.ArgsBefore, Mounts: p.Attacher.VolumeMountsBefore,
	}
	for _, v := range p.Volumes {
		r.Volumes = append(r.Volumes, v.Name)
	}
	text, err := json.Marshal(r)
	return map[string]string{recordPrefix + p.Attacher.Container: string(text)}, err
}

// records of a workload, by the attacher's container.
func records(annotations map[string]any) (map[string]record, error) {
	found := map[string]record{}
	for name, value := range annotations {
		container, ours := strings.CutPrefix(name, recordPrefix)
		if !ours {
			continue
		}
		var r record
		text, _ := value.(string)
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return nil, fmt.Errorf("annotation %s cannot be read: %w", name, format.ExplainIn([]byte(text), &r, err))
		}
		found[container] = r
	}
	return found, nil
}

// failover as it was chosen.
func (r record) failover() Failover {
	switch {
	case r.Apart:
		return Apart
	case r.Failover:
		return InPod
	}
	return NoFailover
}

// keys of the documents that were added with it.
func (r record) keys() (map[string]bool, error) {
	p := &Plan{Driver: r.Driver, Namespace: r.Namespace, ServiceAccount: r.ServiceAccount, Mode: config.Enforce, Failover: true, Apart: r.Apart}
	if err := errors.Join(p.addDocuments(""), p.addAuthorization(), p.addNetworkPolicy(&metav1.LabelSelector{}, 1, "")); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, d := range p.Documents {
		found[d.key()] = true
	}
	return found, nil
}
