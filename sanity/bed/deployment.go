package bed

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
)

// Deployment is a Deployment of one replica that uses volumes.
type Deployment struct {
	Name  string
	stage *Stage
}

// Deployment makes one on a node; nil: on any of the stage's. With Recreate the
// old pod is gone before the new one is made; otherwise maxSurge is 0, and the
// new one is made while the old one ends.
func (s *Stage) Deployment(name string, recreate bool, on *Node, volumes ...*Volume) *Deployment {
	s.T.Helper()
	one, none := int32(1), int64(1)
	labels := map[string]string{"app": name}
	spec := s.PodSpec(on, volumes...)
	spec.TerminationGracePeriodSeconds = &none
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if !recreate {
		surge, unavailable := intstr.FromInt32(0), intstr.FromInt32(1)
		strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}
	}
	_, err := s.Client.AppsV1().Deployments(s.Name).Create(s.ctx(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Name},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Strategy: strategy, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}, metav1.CreateOptions{})
	s.must("deployment "+name, err)
	return &Deployment{Name: name, stage: s}
}

// MoveTo changes the template so that the pod runs on that node: a rollout.
func (d *Deployment) MoveTo(n *Node) {
	d.stage.T.Helper()
	api := d.stage.Client.AppsV1().Deployments(d.stage.Name)
	d.stage.must("rollout of "+d.Name, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment, err := api.Get(d.stage.ctx(), d.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		deployment.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Name}
		_, err = api.Update(d.stage.ctx(), deployment, metav1.UpdateOptions{})
		return err
	}))
}

// WaitRunningOn waits until the one pod that is not ending runs on that node.
func (d *Deployment) WaitRunningOn(n *Node, limit time.Duration) time.Duration {
	d.stage.T.Helper()
	return d.stage.WaitFor(limit, "deployment "+d.Name+" runs on "+n.Name, func() bool {
		pod := d.pod()
		return pod != nil && pod.Spec.NodeName == n.Name && pod.Status.Phase == corev1.PodRunning
	})
}

// pod is the pod that is not ending, if there is just one.
func (d *Deployment) pod() *corev1.Pod {
	list, err := d.stage.Client.CoreV1().Pods(d.stage.Name).List(d.stage.ctx(), metav1.ListOptions{LabelSelector: "app=" + d.Name})
	d.stage.must("pods of "+d.Name, err)
	var found *corev1.Pod
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			if found != nil {
				return nil
			}
			found = &list.Items[i]
		}
	}
	return found
}

// Drain does what `kubectl drain` does: it cordons the node and evicts the pods
// of the stage's namespace that run there.
func (n *Node) Drain() {
	n.stage.T.Helper()
	n.Cordon()
	pods := n.stage.Client.CoreV1().Pods(n.stage.Name)
	list, err := pods.List(n.stage.ctx(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	n.stage.must("pods of node "+n.Name, err)
	for i := range list.Items {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: list.Items[i].Name, Namespace: n.stage.Name}}
		n.stage.must("eviction", ignoreNotFound(pods.EvictV1(n.stage.ctx(), eviction)))
	}
}

// Uncordon lets new pods in again.
func (n *Node) Uncordon() {
	n.stage.T.Helper()
	n.update(func(node *corev1.Node) { node.Spec.Unschedulable = false })
}
