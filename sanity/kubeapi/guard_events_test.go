package kubeapi

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	selectors "k8s.io/apimachinery/pkg/fields"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

func TestARefusalIsToldOnceInTheSameWordsHoweverOftenItIsRetried(t *testing.T) {
	r := newRig(t, "events", bed.StageOptions{})
	v, target := r.volume("v"), r.node("target")
	old := r.deadHolder(v, "old", false)
	pod := r.waitingPod(v, target)
	r.attachment(v, target)
	r.settle()
	text := r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, old.name, "fence confirm")
	for range 20 {
		if again := r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown); again != text {
			t.Fatalf("the text changed from %q to %q", text, again)
		}
	}
	time.Sleep(2 * time.Second)
	for _, object := range []struct{ kind, name, namespace string }{
		{"PersistentVolume", v.Name, metav1.NamespaceDefault}, {"Node", old.name, metav1.NamespaceDefault}, {"Pod", pod, r.Name},
	} {
		events := r.eventsOn(object.kind, object.name, object.namespace)
		if len(events) != 1 {
			t.Errorf("%d Events on %s %s, want one", len(events), object.kind, object.name)
			continue
		}
		if e := events[0]; e.Message != text || e.Count > 1 || e.Type != corev1.EventTypeWarning || e.Reason != "VolumePublishRefused" {
			t.Errorf("the Event on %s says %d times %s %s %q, the caller was told %q", object.kind, e.Count, e.Type, e.Reason, e.Message, text)
		}
	}

	old.confirm()
	r.settle()
	r.must(r.publish(v.Handle, target))
	r.WaitEvent("PersistentVolume", v.Name, 5*time.Second, "VolumeTakenOver", old.name, target.name)
	r.WaitEvent("Node", old.name, 5*time.Second, "VolumeTakenOver", v.Name)
	r.WaitEvent("Pod", pod, 5*time.Second, "VolumeTakenOver", old.name)
}

func TestARefusedUnpublishIsToldOnVolumeAndNode(t *testing.T) {
	r := newRig(t, "events-unpublish", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attach(v, n)
	r.deleting(v, n)
	var text string
	for range 20 {
		text = r.wantRefused(r.unpublish(v.Handle, n), fence.HolderAlive, n.name)
	}
	time.Sleep(2 * time.Second)
	for kind, name := range map[string]string{"PersistentVolume": v.Name, "Node": n.name} {
		events := r.eventsOn(kind, name, metav1.NamespaceDefault)
		if len(events) != 1 || events[0].Message != text || events[0].Count > 1 || events[0].Reason != "VolumeUnpublishRefused" {
			t.Errorf("on %s there are %d Events: %+v", kind, len(events), events)
		}
	}
}

func (r *rig) eventsOn(kind, name, namespace string) []corev1.Event {
	r.t.Helper()
	list, err := r.Client.CoreV1().Events(namespace).List(r.ctx(), metav1.ListOptions{FieldSelector: selectors.AndSelectors(
		selectors.OneTermEqualSelector("involvedObject.kind", kind), selectors.OneTermEqualSelector("involvedObject.name", name)).String()})
	r.must(err)
	return list.Items
}

// waitingPod is a Pod that was scheduled to n and waits for v there.
func (r *rig) waitingPod(v *bed.Volume, n *node) string {
	r.t.Helper()
	name := "waits-for-" + v.Name
	_, err := r.Client.CoreV1().Pods(r.Name).Create(r.ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:   n.name,
			Containers: []corev1.Container{{Name: "db", Image: "db"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Name}}}},
		},
	}, metav1.CreateOptions{})
	r.must(err)
	return name
}
