package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/bench/blackout"
)

const (
	failoverNodes = 3
	// leasePhase is how long a kubelet waits between two renewals: the power goes
	// at a random moment of it.
	leasePhase = 10 * time.Second
	// failoverLimit is how long a side is given, from the power's end on.
	failoverLimit = 6 * time.Minute
	maxVolumes    = 100
)

// failover measures what happens when the node of many volumes loses power:
// with csi-fencepost, and with Kubernetes alone and an operator who puts the
// out-of-service taint on at the very moment of NotReady. Each run has a control
// plane of its own, on which both lose a node at the same moment.
func (b *bench) failover(ctx context.Context) error {
	var kinds []*failoverKind
	for _, k := range failoverKinds {
		if !slices.Contains(b.kinds, k.key) {
			continue
		}
		if k.runs == 0 {
			k.runs = b.failovers
		}
		kinds = append(kinds, &k)
	}
	for _, k := range kinds {
		for run := range k.runs {
			b.progress("  failover %d of %d, %s", run+1, k.runs, k.name)
			if err := b.onPlane(ctx, false, func(p *plane) error { return b.failoverRun(p, k) }); err != nil {
				return err
			}
		}
	}
	for _, k := range kinds {
		b.failoverRows(k)
	}
	b.failoverNotes()
	return nil
}

// failoverSample is one failover; times in seconds.
type failoverSample struct {
	notReady      float64 // since the power's end
	proof         float64 // the same; alone: until the operator's taint
	first, all    float64 // published elsewhere, since the proof
	total         float64 // all published, since the power's end
	running       float64 // all pods, since the power's end
	violations    int
	reads, writes float64 // of csi-fencepost's account, for each volume
	kinds         string
}

// failoverSide is one of the two that are compared.
type failoverSide struct {
	name    string
	alone   bool // Kubernetes
	dbs     *blackout.Databases
	done    bool
	tainted bool  // by the operator
	asked   tally // of the API server by csi-fencepost's account, until all had moved
	volumes int
}

func (b *bench) failoverRun(p *plane, k *failoverKind) error {
	sides := []*failoverSide{{name: "guarded"}}
	if k.compared && len(k.alone) < b.beside {
		sides = append(sides, &failoverSide{name: "alone", alone: true})
	}
	for _, s := range sides {
		stage := p.bed.Stage(p, s.name, bed.StageOptions{Alone: s.alone, Nodes: failoverNodes, Failover: true, AttacherArgs: k.attacher, FencepostArgs: k.fencepost})
		levels := ""
		if !s.alone {
			levels = stage.BMCs()
		}
		stage.StartFailover(levels, "maxUnhealthy: 40%")
		s.dbs = blackout.New(stage, b.volumes)
		b.progress("    %s: %d databases run", s.name, b.volumes)
	}
	if err := sleep(p.ctx, 2*time.Second+rand.N(leasePhase)); err != nil {
		return err
	}
	if _, err := p.audit.next(sides[0].name); err != nil {
		return err
	}
	for _, s := range sides {
		s.dbs.PowerOff()
	}
	if err := b.watchFailover(p, sides); err != nil {
		return err
	}
	k.guarded = append(k.guarded, sides[0].sample())
	for _, s := range sides[1:] {
		k.alone = append(k.alone, s.sample())
	}
	return nil
}

// watchFailover waits until all sides have moved everything, and plays the
// operator of Kubernetes alone.
func (b *bench) watchFailover(p *plane, sides []*failoverSide) error {
	for began, left := time.Now(), len(sides); left > 0; {
		for _, s := range sides {
			m := s.dbs.Moments()
			if s.alone && !s.tainted && !m.NotReady.IsZero() {
				s.tainted = true
				s.dbs.Old.Taint(bed.OutOfServiceTaint)
			}
			if s.done || len(m.Running) < b.volumes || len(m.Published) < b.volumes {
				continue
			}
			left--
			if err := b.over(p, s); err != nil {
				return err
			}
		}
		if time.Since(began) > failoverLimit {
			return fmt.Errorf("not all have moved within %s: %s", failoverLimit, sides)
		}
		if err := sleep(p.ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// over notes what a side asked until it had moved everything.
func (b *bench) over(p *plane, s *failoverSide) (err error) {
	s.done = true
	b.progress("    %s", s)
	if !s.alone {
		s.volumes = b.volumes
		s.asked, err = p.audit.next(s.name)
	}
	return err
}

// String tells the moments of a side, in seconds since the power's end.
func (s *failoverSide) String() string {
	m := s.dbs.Moments()
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return fmt.Sprintf("%.1f", t.Sub(m.PowerOff).Seconds())
	}
	span := func(list []time.Time) string {
		if len(list) == 0 {
			return "none"
		}
		return fmt.Sprintf("%d in %s–%s", len(list), at(list[0]), at(list[len(list)-1]))
	}
	return fmt.Sprintf("%s: last lease %s s, proven %s, tainted %s, NotReady %s, pods deleted %s, published %s, running %s, violations %d", s.name,
		at(m.LastLease), at(m.Proven), at(m.Tainted), at(m.NotReady), span(m.Deleted), span(m.Published), span(m.Running), len(s.dbs.Stage.Array.Violations()))
}

func (s *failoverSide) sample() failoverSample {
	f := sampleOf(s.dbs.Moments(), len(s.dbs.Stage.Array.Violations()))
	if s.volumes > 0 {
		f.reads, f.writes, f.kinds = s.asked.of(s.volumes)
	}
	return f
}

// sampleOf is what the moments of a failover that is over amount to.
func sampleOf(m blackout.Moments, violations int) failoverSample {
	start := m.Proven
	if start.IsZero() {
		start = m.Tainted
	}
	since := func(t, from time.Time) float64 { return t.Sub(from).Seconds() }
	last := slices.MaxFunc(m.Published, time.Time.Compare)
	return failoverSample{notReady: since(m.NotReady, m.PowerOff), proof: since(start, m.PowerOff),
		first: since(m.Published[0], start), all: since(last, start), total: since(last, m.PowerOff),
		running: since(slices.MaxFunc(m.Running, time.Time.Compare), m.PowerOff), violations: violations}
}

// failoverRows adds the rows of one kind of runs, each figure of both sides.
func (b *bench) failoverRows(k *failoverKind) {
	figuresOf := []struct {
		guarded, alone string
		of             func(failoverSample) float64
	}{
		{"power off → proof (the BMC's reading is on record)", "power off → the operator's taint, at the moment of NotReady", func(s failoverSample) float64 { return s.proof }},
		{"proof → first volume published elsewhere", "taint → first volume published elsewhere", func(s failoverSample) float64 { return s.first }},
		{fmt.Sprintf("proof → all %d", b.volumes), fmt.Sprintf("taint → all %d", b.volumes), func(s failoverSample) float64 { return s.all }},
		{fmt.Sprintf("power off → all %d published elsewhere", b.volumes), fmt.Sprintf("power off → all %d published elsewhere", b.volumes), func(s failoverSample) float64 { return s.total }},
		{fmt.Sprintf("power off → all %d pods running", b.volumes), fmt.Sprintf("power off → all %d pods running", b.volumes), func(s failoverSample) float64 { return s.running }},
	}
	const alone = "Kubernetes alone, perfect operator"
	what := func(runs int) string {
		return fmt.Sprintf("failover of %d volumes of one node, %s, %s: ", b.volumes, k.name, plural(runs, "run"))
	}
	add := func(r row) { b.rows = append(b.rows, r) }
	for _, f := range figuresOf {
		add(row{what: what(len(k.guarded)) + f.guarded, path: b.fencepost[0].name, p50: figures(k.guarded, f.of).text(1) + " s"})
		if len(k.alone) > 0 {
			add(row{what: what(len(k.alone)) + f.alone, path: alone, p50: figures(k.alone, f.of).text(1) + " s"})
		}
	}
	const oracle = "violations that the oracle saw, in all runs"
	add(row{what: what(len(k.guarded)) + oracle, path: b.fencepost[0].name, p50: violations(k.guarded)})
	if len(k.alone) > 0 {
		add(row{what: what(len(k.alone)) + oracle, path: alone, p50: violations(k.alone)})
	}
	last := k.guarded[len(k.guarded)-1]
	add(row{what: what(1) + "requests for each volume, background included", path: b.fencepost[0].name,
		api: fmt.Sprintf("%.1f + %.1f (%s)", last.reads, last.writes, last.kinds)})
}

func violations(samples []failoverSample) string {
	n := 0
	for _, s := range samples {
		n += s.violations
	}
	return fmt.Sprint(n)
}

func (b *bench) failoverNotes() {
	b.note("Failover: the pods of a StatefulSet, one ReadWriteOnce volume each, on one of %d nodes, which loses power at a random moment of its lease; each run is on a control plane of its own, "+
		"both sides on it at the same time, each with its own nodes. csi-fencepost asks the node's BMC (OpenIPMI's ipmi_sim), its configuration is as shipped, its flags as deploy/sidecar has them ("+strings.Join(deployed, " ")+") where the row does not say otherwise. "+
		"Kubernetes alone has an operator who puts the out-of-service taint on within a fraction of a second after NotReady; without one it never recovers a StatefulSet. "+
		"The advised flags of external-attacher are `%s`. %s.", failoverNodes, strings.Join(advised, " "), b.managerWords())
	if b.failovers < 10 {
		b.note("Failover: %s are few. The figures of 10 at random phases of the lease: `go run ./sanity/bench -only=failover -failovers=10`.", plural(b.failovers, "run"))
	}
}

// managerWords says which flags of Kubernetes' own both sides had.
func (b *bench) managerWords() string {
	if len(b.manager) == 0 {
		return "kube-controller-manager and kube-scheduler have their default limits on requests"
	}
	return "kube-controller-manager has, for both sides, " + strings.Join(b.manager, " ")
}
