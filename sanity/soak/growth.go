package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// allowance is by how much the floor of a quantity may rise from the first third
// to the last: more, and something is kept that should not be.
type allowance struct {
	quantity quantity
	// absolute, in the quantity's unit, and relative to the first third: the sum.
	absolute, relative float64
	// most, if not 0, is a limit in place of these: the quantity grows by design
	// until it has reached it.
	most float64
}

// allowances. A garbage-collected heap breathes, hence the share; a goroutine or a
// descriptor more or fewer is a call under way, of which a busy machine has more at
// any time; of objects there may be none more.
var allowances = []allowance{
	{quantity: resident, absolute: 8, relative: 0.2},
	{quantity: heap, absolute: 4, relative: 0.2},
	{quantity: goroutines, absolute: 6, relative: 0.1},
	{quantity: descriptors, absolute: 6},
	// A new status code from the API server brings the buckets of its histogram.
	{quantity: series, absolute: 60},
	// One for each node that was ever found off, and the seal's.
	{quantity: leases, most: perNode},
	// The audit trail of a node: 16 KiB at most (package record), beside the rest.
	{quantity: recordBytes, most: 32 << 10},
	{quantity: pvNotes, most: perVolume}, // the ledger
	{quantity: pvBytes, absolute: 1024},
	{quantity: nodeNotes},
	{quantity: nodeBytes, absolute: 256},
	{quantity: taints, absolute: 2},
	{quantity: attachments, absolute: 3},
	{quantity: events, absolute: 10, relative: 0.5},
}

// perNode stands for the number of machines that lose power and one more, perVolume for
// that of the volumes.
const (
	perNode   = -1
	perVolume = -2
)

// minThird is how many looks a third has to have for its floor to mean anything.
const minThird = 5

// line is one quantity, judged.
type line struct {
	allowance
	first, last float64
	allowed     float64
	grew        bool
}

// verdict is what a soak came to.
type verdict struct {
	ran time.Duration // from the first loop's start
	// kubernetes is the version of the control plane.
	kubernetes string
	looks      []look
	lines      []line
	faults     []string // what else went wrong
}

// newVerdict holds the floors of the last third against those of the first. failing
// is how many machines lose power, volumes how many volumes there are.
func newVerdict(looks []look, failing, volumes int) *verdict {
	v := &verdict{looks: looks}
	third := len(looks) / 3
	if third < minThird {
		v.faults = append(v.faults, fmt.Sprintf("%d looks are too few: %d are needed", len(looks), 3*minThird))
		return v
	}
	first, last := looks[:third], looks[len(looks)-third:]
	for name, part := range map[string][]look{"first": first, "last": last} {
		a, b := part[0], part[len(part)-1]
		if b.calm <= a.calm || b.failovers <= a.failovers {
			v.faults = append(v.faults, fmt.Sprintf("in the %s third there were %d calm loops and %d failovers: nothing is shown by that", name, b.calm-a.calm, b.failovers-a.failovers))
		}
	}
	for _, a := range allowances {
		switch a.most {
		case perNode:
			a.most = float64(failing) + 1
		case perVolume:
			a.most = float64(volumes)
		}
		v.lines = append(v.lines, a.judge(first, last))
	}
	return v
}

func (a allowance) judge(first, last []look) line {
	l := line{allowance: a, first: a.floor(first), last: a.floor(last)}
	if a.most > 0 {
		l.first, l.last = ceiling(first, a.quantity), ceiling(last, a.quantity)
		l.allowed, l.grew = a.most, l.last > a.most
		return l
	}
	l.allowed = l.first + a.absolute + a.relative*l.first
	l.grew = l.last > l.allowed
	return l
}

// floor is the least of the looks; of Events it is the rate: they are kept for an
// hour by the API server, and as many more must not come.
func (a allowance) floor(looks []look) float64 {
	if a.quantity == events {
		from, to := looks[0], looks[len(looks)-1]
		return max(0, (to.events-from.events)/to.at.Sub(from.at).Minutes())
	}
	least := math.Inf(1)
	for _, k := range looks {
		least = min(least, k.values[a.quantity])
	}
	return least
}

func ceiling(looks []look, q quantity) (most float64) {
	for _, k := range looks {
		most = max(most, k.values[q])
	}
	return most
}

// err says what grew, and what else is wrong; nil: nothing.
func (v *verdict) err() error {
	faults := append([]string(nil), v.faults...)
	for _, l := range v.lines {
		if l.grew {
			faults = append(faults, fmt.Sprintf("%s: %.6g in the first third, %.6g in the last, allowed %.6g", l.quantity, l.first, l.last, l.allowed))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(faults, "\n"))
}

// print writes the table.
func (v *verdict) print(out io.Writer) {
	if len(v.looks) > 0 {
		a, b := v.looks[0], v.looks[len(v.looks)-1]
		fmt.Fprintf(out, "Judged: %s, %d looks, %d calm loops (attach, detach, on two nodes), %d failovers with the return of the node; %d and %d before.\n\n",
			b.at.Sub(a.at).Round(1e9), len(v.looks), b.calm-a.calm, b.failovers-a.failovers, a.calm, a.failovers)
	}
	fmt.Fprintf(out, "| least of | first third | last third | allowed | |\n| --- | --- | --- | --- | --- |\n")
	for _, l := range v.lines {
		word, name := "", string(l.quantity)
		if l.grew {
			word = "GREW"
		}
		if l.most > 0 {
			name += " (the greatest)"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", name, tenths(l.first), tenths(l.last), tenths(l.allowed), word)
	}
	for _, f := range v.faults {
		fmt.Fprintf(out, "\n%s\n", f)
	}
}

// tenths is what a figure is worth.
func tenths(f float64) string { return strconv.FormatFloat(math.Round(10*f)/10, 'f', -1, 64) }
