package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// pollWaits is how often VolumeAttachments and pods are looked at: not by a
// watch, which an outage of the API server would break.
const pollWaits = 200 * time.Millisecond

// waitMoments of one volume. The zero time: not yet.
type waitMoments struct {
	// asked is when a pod began to want it, refused when its VolumeAttachment first
	// had an error; gone when the reason was; attached and running when they were
	// seen.
	asked, refused, gone, attached, running time.Time
	touch                                   string // the last wake-up
	touches                                 int    // of them since the reason is gone
	said                                    string // the last error
}

// waitSight looks at all VolumeAttachments and pods.
type waitSight struct {
	plane *plane

	mu      sync.Mutex
	byVA    map[string]*waitMoments // VolumeAttachment
	byPod   map[string]*waitMoments // namespace/name
	volumes map[*bed.Volume]*waitMoments
}

// newWaitSight looks until the plane ends.
func newWaitSight(p *plane) *waitSight {
	s := &waitSight{plane: p, byVA: map[string]*waitMoments{}, byPod: map[string]*waitMoments{}, volumes: map[*bed.Volume]*waitMoments{}}
	ctx, stop := context.WithCancel(p.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for sleep(ctx, pollWaits) == nil {
			s.look(ctx)
		}
	}()
	p.Cleanup(func() { stop(); <-ended })
	return s
}

// follow begins with a lane whose pods are asked for on target.
func (s *waitSight) follow(l *waitLane, target *bed.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range l.volumes {
		m := &waitMoments{asked: time.Now()}
		s.volumes[v] = m
		s.byVA[csi.AttachmentName(v.Handle, l.stage.Driver, target.Name)] = m
		s.byPod[l.stage.Name+"/new-"+v.Name] = m
	}
}

// look skips what cannot be read: it is looked again.
func (s *waitSight) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	fromCache := metav1.ListOptions{ResourceVersion: "0"}
	if vas, err := s.plane.client.StorageV1().VolumeAttachments().List(ctx, fromCache); err == nil {
		s.sawAttachments(vas.Items, time.Now())
	}
	if pods, err := s.plane.client.CoreV1().Pods("").List(ctx, fromCache); err == nil {
		s.sawPods(pods.Items, time.Now())
	}
}

func (s *waitSight) sawAttachments(vas []storagev1.VolumeAttachment, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range vas {
		va := &vas[i]
		m := s.byVA[va.Name]
		if m == nil {
			continue
		}
		if e := va.Status.AttachError; e != nil {
			m.said = e.Message
			if m.refused.IsZero() {
				m.refused = now
			}
		}
		if va.Status.Attached && m.attached.IsZero() {
			m.attached = now
		}
		if touch := va.Annotations[waiting.RetryAnnotation]; touch != m.touch {
			m.touch = touch
			if !m.gone.IsZero() {
				m.touches++
			}
		}
	}
}

func (s *waitSight) sawPods(pods []corev1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range pods {
		p := &pods[i]
		if m := s.byPod[p.Namespace+"/"+p.Name]; m != nil && p.Status.Phase == corev1.PodRunning && m.running.IsZero() {
			m.running = now
		}
	}
}

// ending notes that a reason is about to end, so that nothing counts as published
// before it was gone; ended, that it has: what is measured counts from there.
func (s *waitSight) ending(l *waitLane) { s.note(l, false) }
func (s *waitSight) ended(l *waitLane)  { s.note(l, true) }

// begins notes the beginning of an outage that no VolumeAttachment can tell.
func (s *waitSight) begins(c *waitCase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range c.lanes {
		for _, v := range l.volumes {
			s.volumes[v].refused = time.Now()
		}
	}
}

func (s *waitSight) note(l *waitLane, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range l.volumes {
		m := s.volumes[v]
		if !over && !m.attached.IsZero() {
			s.plane.Fatalf("%s of %s was attached before its reason ended: %s", v.Name, l.side, l.ends)
		}
		m.gone = time.Now()
	}
}

// refused waits until every VolumeAttachment has an error, but those of Kubernetes
// alone: without a driver nobody is there to write one.
func (s *waitSight) refused(ctx context.Context, cases []*waitCase) error {
	for began := time.Now(); ; {
		missing := s.missing(cases, func(l *waitLane, m *waitMoments) bool { return m.refused.IsZero() && l.side != alone })
		if len(missing) == 0 {
			return nil
		}
		if time.Since(began) > 2*time.Minute {
			return fmt.Errorf("not refused within 2 minutes: %s", strings.Join(missing, ", "))
		}
		if err := sleep(ctx, pollWaits); err != nil {
			return err
		}
	}
}

func (s *waitSight) done(cases []*waitCase) bool {
	return len(s.missing(cases, func(_ *waitLane, m *waitMoments) bool { return m.attached.IsZero() || m.running.IsZero() })) == 0
}

func (s *waitSight) missing(cases []*waitCase, lacks func(*waitLane, *waitMoments) bool) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cases {
		c.each(func(l *waitLane, v *bed.Volume) {
			if lacks(l, s.volumes[v]) {
				names = append(names, v.Name)
			}
		})
	}
	slices.Sort(names)
	return names
}

// story tells what a lane has come to, for the progress.
func (s *waitSight) story(l *waitLane) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, v := range l.volumes {
		m := s.volumes[v]
		text := fmt.Sprintf("%s/%s after %d wake-ups", m.since(m.attached), m.since(m.running), m.touches)
		if m.attached.IsZero() {
			text += " (" + m.said + ")"
		}
		out = append(out, text)
	}
	return fmt.Sprintf("%s, %s: %s", l.key, l.side, strings.Join(out, ", "))
}

// since is a moment in seconds after the reason was gone.
func (m *waitMoments) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.1f", t.Sub(m.gone).Seconds())
}

// lanesOf gives each lane its figures. What was seen between the two notes of a
// reason's end counts as at once.
func lanesOf(cases []*waitCase, s *waitSight) (lanes []*waitLane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cases {
		c.each(func(l *waitLane, v *bed.Volume) { l.figures(s.volumes[v]) })
		lanes = append(lanes, c.lanes...)
	}
	return lanes
}

func (l *waitLane) figures(m *waitMoments) {
	if m.refused.IsZero() {
		m.refused = m.asked
	}
	l.refusedFor = append(l.refusedFor, m.gone.Sub(m.refused).Seconds())
	if !m.attached.IsZero() {
		l.published = append(l.published, max(0, m.attached.Sub(m.gone).Seconds()))
	}
	if !m.running.IsZero() {
		l.running = append(l.running, max(0, m.running.Sub(m.gone).Seconds()))
	}
}
