package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// quantity is something that must not grow.
type quantity string

const (
	resident    quantity = "resident memory of its own (RssAnon), MiB"
	heap        quantity = "heap in use, MiB"
	goroutines  quantity = "goroutines"
	descriptors quantity = "file descriptors"
	series      quantity = "metric series"
	leases      quantity = "Leases in its namespace"
	recordBytes quantity = "bytes of the largest node's record"
	pvNotes     quantity = "annotations of ours on PersistentVolumes"
	pvBytes     quantity = "their bytes"
	nodeNotes   quantity = "annotations of ours on Nodes"
	nodeBytes   quantity = "bytes of these"
	taints      quantity = "nodes tainted out of service"
	attachments quantity = "VolumeAttachments"
	events      quantity = "Events per minute"
)

// look is what was seen at one moment.
type look struct {
	at              time.Time
	calm, failovers int64 // loops so far
	events          float64
	values          map[quantity]float64
}

func (k look) String() string {
	v := k.values
	return fmt.Sprintf("%d calm loops, %d failovers; %.1f MiB (heap %.1f), %.0f goroutines, %.0f descriptors, %.0f series; %.0f Leases (largest record %.0f B), %.0f+%.0f annotations (%.0f+%.0f B), %.0f Events",
		k.calm, k.failovers, v[resident], v[heap], v[goroutines], v[descriptors], v[series], v[leases], v[recordBytes], v[pvNotes], v[nodeNotes], v[pvBytes], v[nodeBytes], k.events)
}

const mib = 1 << 20

// look reads everything. What cannot be read is an error: a soak that is blind
// has proven nothing.
func (g *ground) look(ctx context.Context) (look, error) {
	k := look{at: time.Now(), calm: g.calm.Load(), failovers: g.failovers.Load(), values: map[quantity]float64{}}
	if err := errors.Join(g.lookAtProcess(k.values), g.lookAtMetrics(k.values), g.lookAtObjects(ctx, k.values)); err != nil {
		return k, err
	}
	var err error
	k.events, err = g.countEvents(ctx)
	return k, err
}

func (g *ground) lookAtProcess(v map[quantity]float64) error {
	p, err := procfs.NewProc(g.stage.Fencepost.Pid())
	if err != nil {
		return err
	}
	fds, err := p.FileDescriptorsLen()
	if err != nil {
		return err
	}
	status, err := p.NewStatus()
	v[descriptors], v[resident] = float64(fds), float64(status.RssAnon)/mib
	return err
}

func (g *ground) lookAtMetrics(v map[quantity]float64) error {
	code, body := g.stage.HTTP(g.stage.Fencepost, "/metrics")
	if code != 200 {
		return fmt.Errorf("/metrics answers %d: %s", code, body)
	}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") {
			continue
		}
		v[series]++
		number, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			v[goroutines] = number
		case "go_memstats_heap_inuse_bytes":
			v[heap] = number / mib
		}
	}
	if v[goroutines] == 0 || v[heap] == 0 {
		return errors.New("/metrics has no go_goroutines or no go_memstats_heap_inuse_bytes")
	}
	return nil
}

func (g *ground) lookAtObjects(ctx context.Context, v map[quantity]float64) error {
	recorded, err := g.client.CoordinationV1().Leases(config.Default().Fencing.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	v[leases] = float64(len(recorded.Items))
	for _, l := range recorded.Items {
		v[recordBytes] = max(v[recordBytes], float64(len(l.Annotations[record.Annotation])))
	}
	pvs, err := g.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pv := range pvs.Items {
		count(pv.Annotations, v, pvNotes, pvBytes)
	}
	nodes, err := g.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		count(n.Annotations, v, nodeNotes, nodeBytes)
		if bed.OutOfService(&n) {
			v[taints]++
		}
	}
	vas, err := g.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	v[attachments] = float64(len(vas.Items))
	return nil
}

// count adds what is ours of an object's annotations.
func count(annotations map[string]string, v map[quantity]float64, notes, bytes quantity) {
	for key, value := range annotations {
		if strings.Contains(key, "csi-fencepost") {
			v[notes]++
			v[bytes] += float64(len(key) + len(value))
		}
	}
}

// countEvents counts them without reading them.
func (g *ground) countEvents(ctx context.Context) (float64, error) {
	list, err := g.client.CoreV1().Events("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	n := float64(len(list.Items))
	if list.RemainingItemCount != nil {
		n += float64(*list.RemainingItemCount)
	}
	return n, nil
}
