package bed

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodOf is whatever pod has that name now.
func (s *Stage) PodOf(name string) *Pod { return &Pod{Name: name, stage: s} }

// UID of the pod; empty: there is none.
func (p *Pod) UID() types.UID {
	if pod := p.Get(); pod != nil {
		return pod.UID
	}
	return ""
}

// RunsOn tells whether the pod runs on that node.
func (p *Pod) RunsOn(n *Node) bool {
	pod := p.Get()
	return pod != nil && pod.Spec.NodeName == n.Name && pod.Status.Phase == corev1.PodRunning
}

// PodName is the name of the deployment's one pod that is not ending; empty:
// there is not just one.
func (d *Deployment) PodName() string {
	if pod := d.pod(); pod != nil {
		return pod.Name
	}
	return ""
}
