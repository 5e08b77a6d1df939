package bed

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod that uses volumes on a node.
type Pod struct {
	Name  string
	stage *Stage
	uid   types.UID
}

// Pod starts a pod with those volumes on a node; nil: on any of the stage's.
func (s *Stage) Pod(name string, on *Node, volumes ...*Volume) *Pod {
	s.T.Helper()
	none := int64(1)
	spec := s.PodSpec(on, volumes...)
	spec.TerminationGracePeriodSeconds = &none
	return s.createPod(name, spec)
}

func (s *Stage) createPod(name string, spec corev1.PodSpec) *Pod {
	s.T.Helper()
	pod, err := s.Client.CoreV1().Pods(s.Name).Create(s.ctx(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Name}, Spec: spec}, metav1.CreateOptions{})
	s.must("pod "+name, err)
	return &Pod{Name: name, stage: s, uid: pod.UID}
}

// PodSpec is the spec of such a pod, for a controller's template.
func (s *Stage) PodSpec(on *Node, volumes ...*Volume) corev1.PodSpec {
	spec := corev1.PodSpec{
		NodeSelector: map[string]string{stageLabel: s.Name},
		Containers:   []corev1.Container{{Name: "db", Image: "db"}},
	}
	if on != nil {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: on.Name}
	}
	for _, v := range volumes {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Claim()}}})
		if mode := v.PV().Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
			spec.Containers[0].VolumeDevices = append(spec.Containers[0].VolumeDevices, corev1.VolumeDevice{Name: v.Name, DevicePath: "/dev/" + v.Name})
		} else {
			spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/data/" + v.Name})
		}
	}
	if s.disks != nil && len(volumes) > 0 {
		databaseContainer(&spec.Containers[0], &spec, volumes[0])
	}
	return spec
}

// DeafPod starts a pod on a real node whose container SIGTERM does not end: it writes on
// for so long after the pod's deletion, until it is killed.
func (s *Stage) DeafPod(name string, on *Node, grace time.Duration, v *Volume) *Pod {
	s.T.Helper()
	seconds := int64(grace.Seconds())
	spec := s.PodSpec(on, v)
	spec.TerminationGracePeriodSeconds = &seconds
	spec.Containers[0].Args[0] = "deaf"
	return s.createPod(name, spec)
}

// Get reads the pod; nil: it is gone.
func (p *Pod) Get() *corev1.Pod {
	pod, err := p.stage.Client.CoreV1().Pods(p.stage.Name).Get(p.stage.ctx(), p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && p.uid != "" && pod.UID != p.uid {
		return nil
	}
	p.stage.must("pod "+p.Name, err)
	return pod
}

// Running tells whether the pod runs.
func (p *Pod) Running() bool {
	pod := p.Get()
	return pod != nil && pod.Status.Phase == corev1.PodRunning
}

// WaitRunning waits until the pod runs, and says how long that took.
func (p *Pod) WaitRunning(limit time.Duration) time.Duration {
	p.stage.T.Helper()
	return p.stage.WaitFor(limit, "pod "+p.Name+" is Running", p.Running)
}

// Terminate deletes the pod in the ordinary way; its container has its grace period.
func (p *Pod) Terminate() {
	p.stage.T.Helper()
	p.stage.must("delete pod "+p.Name, ignoreNotFound(p.stage.Client.CoreV1().Pods(p.stage.Name).Delete(p.stage.ctx(), p.Name, metav1.DeleteOptions{})))
}

// Delete is Terminate that waits until it is gone.
func (p *Pod) Delete() {
	p.stage.T.Helper()
	p.Terminate()
	p.stage.WaitFor(60*time.Second, "pod "+p.Name+" is gone", func() bool { return p.Get() == nil })
}

// ForceDelete removes the pod from the API at once, as people do with a pod
// that hangs in Terminating. Its containers may run on.
func (p *Pod) ForceDelete() {
	p.stage.T.Helper()
	now := int64(0)
	p.stage.must("force-delete pod "+p.Name, ignoreNotFound(p.stage.Client.CoreV1().Pods(p.stage.Name).Delete(p.stage.ctx(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})))
}

// Events are the messages of the pod's Events, as `kubectl describe pod` shows
// them, oldest first.
func (p *Pod) Events() []string { return p.stage.Events("Pod", p.Name) }

// Events are the messages of an object's Events.
func (s *Stage) Events(kind, name string) []string {
	namespace := s.Name
	if kind == "PersistentVolume" || kind == "Node" {
		namespace = metav1.NamespaceDefault
	}
	list, err := s.Client.CoreV1().Events(namespace).List(s.ctx(), metav1.ListOptions{FieldSelector: fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", kind), fields.OneTermEqualSelector("involvedObject.name", name)).String()})
	s.must("events of "+name, err)
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Reason+": "+e.Message)
	}
	return out
}

// WaitEvent waits for an Event on an object whose text contains all of parts.
func (s *Stage) WaitEvent(kind, name string, limit time.Duration, parts ...string) string {
	s.T.Helper()
	var found string
	s.WaitFor(limit, "an Event on "+kind+" "+name+" with "+strings.Join(parts, ", "), func() bool {
		for _, text := range s.Events(kind, name) {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(text, part)
			}
			if all {
				found = text
			}
		}
		return found != ""
	})
	return found
}

func contains(text, part string) bool { return strings.Contains(text, part) }

func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TolerantPod is a Pod that no taint evicts.
func (s *Stage) TolerantPod(name string, on *Node, volumes ...*Volume) *Pod {
	s.T.Helper()
	spec := s.PodSpec(on, volumes...)
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return s.createPod(name, spec)
}
