package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// attachCycles measures pods that start with a volume and go again, on a whole
// control plane with kubelets and external-attacher: with Kubernetes alone, and
// with csi-fencepost between attacher and driver.
func (b *bench) attachCycles(ctx context.Context) error {
	return b.onPlane(ctx, false, func(p *plane) error {
		alone, err := newCycleSide(p, "alone", true)
		if err != nil {
			return err
		}
		guarded, err := newCycleSide(p, "guarded", false)
		if err != nil {
			return err
		}
		b.progress("  waiting %s for the nodes to be known to live", aliveAfter)
		if err := sleep(ctx, aliveAfter); err != nil {
			return err
		}
		b.progress("  %d attach cycles on each side", b.cycles)
		sides := []*cycleSide{alone, guarded}
		for _, s := range sides { // the first attach writes finalizers that stay
			if _, err := s.cycle(); err != nil {
				return err
			}
		}
		found, err := alternate(b.cycles, sides, (*cycleSide).cycle)
		if err != nil {
			return err
		}
		b.cycleRows(found[0], found[1])
		return b.memoryRow(fmt.Sprintf("resident memory after %d attach cycles", b.cycles+1), b.fencepost[0].name, guarded.stage.Fencepost)
	})
}

// cycleSide is a driver with a node and a volume on a plane.
type cycleSide struct {
	plane  *plane
	stage  *bed.Stage
	volume *bed.Volume
	seen   *attachmentTimes
	cycles int
}

func newCycleSide(p *plane, name string, alone bool) (*cycleSide, error) {
	s := &cycleSide{plane: p, stage: p.bed.Stage(p, name, bed.StageOptions{Nodes: 1, Alone: alone})}
	s.volume = s.stage.Volume("disk", bed.VolumeOptions{})
	attachment := csi.AttachmentName(s.volume.Handle, s.stage.Driver, s.stage.Nodes[0].Name)
	events, err := p.client.StorageV1().VolumeAttachments().Watch(p.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + attachment})
	if err != nil {
		return nil, err
	}
	p.Cleanup(events.Stop)
	s.seen = &attachmentTimes{}
	go s.seen.follow(events)
	return s, nil
}

// cycleSample is one attach cycle.
type cycleSample struct {
	attach, detach time.Duration // of the VolumeAttachment: made → attached, deleted → gone
	asked          tally         // of the API server, by the driver's account
	cpu            time.Duration // of csi-fencepost
}

func (s *cycleSide) cycle() (c cycleSample, err error) {
	s.cycles++
	if _, err := s.plane.audit.next(s.stage.Name); err != nil {
		return c, err
	}
	cpu, err := s.cpu()
	if err != nil {
		return c, err
	}
	s.seen.reset()
	pod := s.stage.Pod(fmt.Sprintf("db-%d", s.cycles), s.stage.Nodes[0], s.volume)
	pod.WaitRunning(cycleTimeout)
	pod.Delete()
	s.stage.WaitFor(cycleTimeout, "the VolumeAttachment is gone", func() bool {
		c.attach, c.detach = s.seen.durations()
		return c.detach > 0
	})
	after, err := s.cpu()
	if err != nil {
		return c, err
	}
	c.cpu = after - cpu
	c.asked, err = s.plane.audit.next(s.stage.Name)
	return c, err
}

const cycleTimeout = 2 * time.Minute

func (s *cycleSide) cpu() (time.Duration, error) {
	if s.stage.Fencepost == nil {
		return 0, nil
	}
	return cpuTime(s.stage.Fencepost.Pid())
}

// attachmentTimes are the moments at which a watch showed one VolumeAttachment's
// life.
type attachmentTimes struct {
	mu                            sync.Mutex
	made, attached, deleted, gone time.Time
}

func (t *attachmentTimes) follow(events watch.Interface) {
	for e := range events.ResultChan() {
		if va, ok := e.Object.(*storagev1.VolumeAttachment); ok {
			t.saw(e.Type, va, time.Now())
		}
	}
}

func (t *attachmentTimes) saw(what watch.EventType, va *storagev1.VolumeAttachment, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note := func(is bool, at *time.Time) {
		if is && at.IsZero() {
			*at = now
		}
	}
	note(what == watch.Added, &t.made)
	note(va.Status.Attached, &t.attached)
	note(va.DeletionTimestamp != nil, &t.deleted)
	note(what == watch.Deleted, &t.gone)
}

func (t *attachmentTimes) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made, t.attached, t.deleted, t.gone = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

// durations of attach and detach; detach is 0 until the object is gone.
func (t *attachmentTimes) durations() (attach, detach time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone.IsZero() {
		return 0, 0
	}
	return t.attached.Sub(t.made), t.gone.Sub(t.deleted)
}

func (b *bench) cycleRows(alone, guarded []cycleSample) {
	for _, c := range []struct {
		name string
		of   func(cycleSample) time.Duration
	}{
		{"attach (VolumeAttachment made → attached)", func(s cycleSample) time.Duration { return s.attach }},
		{"detach (VolumeAttachment deleted → gone)", func(s cycleSample) time.Duration { return s.detach }},
	} {
		ms := func(s cycleSample) float64 { return c.of(s).Seconds() * 1e3 }
		b.rows = append(b.rows,
			row{what: "attach cycle: " + c.name, path: "Kubernetes alone", p50: figures(alone, ms).text(0) + " ms"},
			row{what: "attach cycle: " + c.name, path: b.fencepost[0].name, p50: figures(guarded, ms).text(0) + " ms, + " + differences(guarded, alone, ms).text(0) + " ms"})
	}
	asked, n := tally{}, len(guarded)
	for _, s := range guarded {
		asked.add(s.asked)
	}
	reads, writes, kinds := asked.of(n)
	b.rows = append(b.rows, row{what: "attach cycle: requests of one cycle, background and repeated calls included", path: b.fencepost[0].name,
		cpu: figures(guarded, func(s cycleSample) float64 { return s.cpu.Seconds() * 1e6 }).text(0) + " µs in a cycle",
		api: fmt.Sprintf("%.3g + %.3g (%s)", reads, writes, kinds)})
}
