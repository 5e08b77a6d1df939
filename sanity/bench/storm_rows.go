package main

import (
	"fmt"
	"strings"
	"time"
)

// middle of a list that is in order.
func middle(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func first(list []float64) float64 { return list[0] }
func last(list []float64) float64  { return list[len(list)-1] }

// stormRows adds the rows of one kind.
func (b *bench) stormRows(k *stormKind) {
	what := func(text string) string {
		return fmt.Sprintf("storm of %d volumes on %d machines, %s: %s", b.volumesOf(k), b.stormNodes, k.name, text)
	}
	add := func(r row) { b.rows = append(b.rows, r) }
	sides := []*stormSample{k.guarded}
	if k.alone != nil {
		sides = append(sides, k.alone)
	}
	for _, f := range stormFigures {
		for i, s := range sides {
			add(row{what: what(f.name), path: stormPath(b, i), p50: f.words(s, k.guarded)})
		}
	}
	for i, s := range sides {
		add(row{what: what("calls of the driver, publishes and unpublishes; violations that the oracle saw"), path: stormPath(b, i), p50: s.driverWords()})
	}
	for i, s := range sides {
		add(row{what: what("calls of external-attacher that were not answered with yes"), path: stormPath(b, i), p50: waitingWords(s.waiting)})
	}
	if k.waiting {
		add(row{what: what(fmt.Sprintf("the same while nothing was proven, until %s after the last node's taint", inVain)), path: stormPath(b, 0), p50: waitingWords(k.guarded.held)})
	}
	if k.stuck {
		add(row{what: what("end of the hang → the stuck volume is published elsewhere"), path: stormPath(b, 0), p50: fmt.Sprintf("%.1f s", k.guarded.afterFreed)})
	}
	for i, s := range sides {
		add(row{what: what("the machine's cores, from the first proof until the last pod runs"), path: stormPath(b, i), cpu: s.cores.String()})
	}
	b.stormRequests(k, what, add)
	b.stormGoals(k, what)
}

// The goals of a storm: seconds from proof to the last publish, how many times
// sooner than with the operator, and how many times all of the driver's time,
// divided by how many calls it is given at once.
const (
	stormWithin, stormSooner, stormDriver = 60, 2, 2
)

// stormGoals holds a kind against them. One that waits, or has a stuck volume,
// does so on purpose.
func (b *bench) stormGoals(k *stormKind, what func(string) string) {
	if k.stuck || k.waiting {
		return
	}
	if k.takes == 0 {
		b.limit(what("proof of its node → last volume published elsewhere"), stormWithin, last(k.guarded.moved), "s")
	} else {
		b.limit(what("the same, in times of the driver's own time divided by the calls at once"), stormDriver, last(k.guarded.moved)/(k.guarded.driver/attacherWorkers), "times")
	}
	if k.alone != nil {
		b.least(what("power off → last volume published elsewhere, Kubernetes alone and its perfect operator take"), stormSooner, last(k.alone.total)/last(k.guarded.total), "times as long")
	}
}

func stormPath(b *bench, side int) string {
	return []string{b.fencepost[0].name, "Kubernetes alone, perfect operator"}[side]
}

// stormRequests adds what csi-fencepost used.
func (b *bench) stormRequests(k *stormKind, what func(string) string, add func(row)) {
	f := k.guarded
	reads, writes, kinds := f.requests.kinds.of(b.volumesOf(k))
	add(row{what: what("requests for each volume, background included"), path: stormPath(b, 0), api: fmt.Sprintf("%.1f + %.1f (%s)", reads, writes, kinds)})
	add(row{what: what("requests in the busiest second; on average until the last pod runs"), path: stormPath(b, 0),
		api: fmt.Sprintf("%d; %.0f a second", peak(f.requests.at, time.Second), float64(len(f.requests.at))/f.took.Seconds())})
	add(row{what: what("memory, and CPU for each volume; " + plural(f.restarts, "restart")), path: stormPath(b, 0), memory: f.memory.String(),
		cpu: fmt.Sprintf("%.1f ms", 1e3*f.cpu.Seconds()/float64(b.volumesOf(k)))})
}

// stormFigure is a row of times of a side.
type stormFigure struct {
	name string
	of   func(*stormSample) []float64
}

var stormFigures = []stormFigure{
	{"power off → first / last node proven", func(s *stormSample) []float64 { return []float64{first(s.proofs), last(s.proofs)} }},
	{"proof of its node → first / median / last volume published elsewhere", func(s *stormSample) []float64 { return thirds(s.moved) }},
	{"power off → first / median / last volume published elsewhere", func(s *stormSample) []float64 { return thirds(s.total) }},
	{"power off → first / median / last pod runs elsewhere", func(s *stormSample) []float64 { return thirds(s.running) }},
}

func thirds(list []float64) []float64 { return []float64{first(list), middle(list), last(list)} }

// words are the side's times, with their ratio to those of csi-fencepost.
func (f stormFigure) words(s, own *stormSample) string {
	var times, ratios []string
	for i, t := range f.of(s) {
		times = append(times, fmt.Sprintf("%.1f", t))
		ratios = append(ratios, fmt.Sprintf("%.1f", t/f.of(own)[i]))
	}
	text := strings.Join(times, " / ") + " s"
	if s != own {
		text += " (× " + strings.Join(ratios, " / ") + ")"
	}
	return text
}

// attacherWorkers is --worker-threads of the advised flags: as many calls reach
// the driver at once.
const attacherWorkers = 100

func (s *stormSample) driverWords() string {
	return fmt.Sprintf("%d, at most %d at once; all of the driver's time, %.1f s, divided by %d at once: %.1f s; %s",
		s.calls, s.atOnce, s.driver, attacherWorkers, s.driver/attacherWorkers, plural(s.violations, "violation"))
}

func waitingWords(t workerTime) string {
	all, codes := t.waiting()
	if all.calls == 0 {
		return fmt.Sprintf("none of %d", t["OK"].calls)
	}
	calls := float64(all.calls)
	return fmt.Sprintf("%d of %d, on average each held a worker for %.0f ms, %.0f %% of them for at most 100 ms (%s)",
		all.calls, all.calls+t["OK"].calls, 1e3*all.seconds/calls, 100*float64(all.quick)/calls, codes)
}
