package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

func TestTheSideThatMayNotWakeLacksThatRightAlone(t *testing.T) {
	manifests, err := deploy.Enforce(deploy.Names{Namespace: "ns", ServiceAccount: "sa", Driver: "d"})
	if err != nil {
		t.Fatal(err)
	}
	muted := mute(string(manifests))
	if strings.Contains(muted, "csi-fencepost-enforce") {
		t.Error("it has a role of the other side's")
	}
	same := strings.ReplaceAll(string(manifests), "csi-fencepost-enforce", "csi-fencepost-muted")
	lost, kept := 0, strings.Split(muted, "\n")
	for _, line := range strings.Split(same, "\n") {
		if len(kept) > 0 && kept[0] == line {
			kept = kept[1:]
			continue
		}
		lost++
	}
	if lost != 3 || len(kept) != 0 {
		t.Errorf("%d lines are gone, %d are new; want the three of the right to touch VolumeAttachments gone:\n%s", lost, len(kept), muted)
	}
}

// waitingLane is a lane with one volume that a sight follows, by hand.
func waitingLane(p *plane) (*waitSight, *waitLane, *waitMoments) {
	l := &waitLane{waitCase: &waitCase{ends: "it ends"}, side: woken, volumes: []*bed.Volume{{Name: "pv"}}}
	l.lanes = []*waitLane{l}
	m := &waitMoments{}
	return &waitSight{plane: p, byVA: map[string]*waitMoments{"va": m}, byPod: map[string]*waitMoments{"ns/pod": m},
		volumes: map[*bed.Volume]*waitMoments{l.volumes[0]: m}}, l, m
}

func attachment(touch string, attached bool, text string) []storagev1.VolumeAttachment {
	va := storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", Annotations: map[string]string{waiting.RetryAnnotation: touch}},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached}}
	if text != "" {
		va.Status.AttachError = &storagev1.VolumeError{Message: text}
	}
	return []storagev1.VolumeAttachment{va, {ObjectMeta: metav1.ObjectMeta{Name: "another's"}}}
}

func TestAWaitIsTimedFromTheEndOfItsReason(t *testing.T) {
	s, l, m := waitingLane(&plane{Run: bed.NewRun(t.Context(), nil)})
	cases := []*waitCase{l.waitCase}
	now := time.Now()
	after := func(seconds float64) time.Time { return now.Add(time.Duration(seconds * float64(time.Second))) }
	s.sawAttachments(attachment("1", false, "refused"), after(-80))
	s.sawAttachments(attachment("2", false, "refused"), after(-60))
	s.ending(l)
	s.ended(l)
	m.gone = now
	s.sawAttachments(attachment("2", false, "refused"), after(0.2))
	s.sawAttachments(attachment("3", false, "refused"), after(0.4))
	if s.done(cases) {
		t.Error("done, though nothing is published")
	}
	s.sawAttachments(attachment("3", true, ""), after(1.5))
	s.sawAttachments(attachment("3", true, ""), after(9))
	s.sawPods([]corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}}, after(2))
	if s.done(cases) {
		t.Error("done, though the pod does not run")
	}
	s.sawPods([]corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}}, after(3))
	if !s.done(cases) {
		t.Error("not done")
	}
	lanesOf(cases, s)
	if l.refusedFor[0] != 80 || l.published[0] != 1.5 || l.running[0] != 3 || m.touches != 1 {
		t.Errorf("refused for %v s, published after %v, running after %v, %d wake-ups; want 80, 1.5, 3 and the one that came after the end", l.refusedFor, l.published, l.running, m.touches)
	}
}

func TestAVolumeThatDidNotWaitEndsTheMeasurement(t *testing.T) {
	p := &plane{Run: bed.NewRun(t.Context(), nil)}
	s, l, _ := waitingLane(p)
	s.sawAttachments(attachment("", true, ""), time.Now())
	defer func() {
		found := recover()
		if failure, ok := found.(bed.Failure); !ok || !strings.Contains(failure.Error(), "before its reason ended") {
			t.Errorf("panic %v, want one about the volume", found)
		}
	}()
	s.ending(l)
	t.Error("a volume that was attached before its reason ended is measured")
}

func TestTheTableSaysWhatDidNotComeInTime(t *testing.T) {
	lanes := []*waitLane{{published: []float64{1, 3}, running: []float64{2}}}
	if got, want := waitText(lanes), "2.0 / 3.0; 2.0 / 2.0 (1 not published within 2m30s) (1 pods not running by then)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := waitText(nil); got != "–" {
		t.Errorf("a side that was not measured reads %q", got)
	}
}
