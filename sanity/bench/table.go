package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// row is one line of the table. An empty cell is a figure that does not exist.
type row struct {
	section string // that measures it alone
	what    string
	path    string
	p50     string
	p99     string
	rate    string
	cpu     string
	allocs  string
	api     string // requests to the API server
	memory  string
}

func (r row) cells() []string {
	return []string{r.what, r.path, r.p50, r.p99, r.rate, r.cpu, r.allocs, r.api, r.memory, "`-only=" + r.section + "`"}
}

var columns = []string{"what", "path", "p50", "p99", "calls per second", "CPU of the process in between, per call",
	"its allocations per call", "API reads + writes of its account", "its resident memory, now / of that its own (the rest is its program file) / at most", "`go run ./sanity/bench`"}

// report is the whole document.
func (b *bench) report(ctx context.Context) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# What csi-fencepost costs\n\nWritten by `%s`; do not edit.\n\n", b.command())
	for _, line := range append(machine(ctx, b.load), b.versions...) {
		fmt.Fprintf(&out, "- %s\n", line)
	}
	fmt.Fprintf(&out, "- Median of %d rounds (attach cycles: %d, failovers: %d), in brackets the least and the greatest. Every round takes each path once, in an order that changes; "+
		"× is the ratio to the direct path, + the difference from it, within one round.\n", b.rounds, b.cycles, b.failovers)
	fmt.Fprintf(&out, "- %s: even the middle half of the rounds spreads by more than a factor of %g, so the figure is worth nothing. The machine is shared: only ratios travel.\n\n", worthlessMark, tooWide)
	writeTable(&out, columns, b.rows)
	if len(b.notes) > 0 {
		out.WriteString("\n")
	}
	for _, note := range b.notes {
		fmt.Fprintf(&out, "- %s\n", note)
	}
	fmt.Fprintf(&out, "\nThis run took %s.\n", time.Since(b.started).Round(time.Second))
	return out.String()
}

// command is what was typed, as far as it changes the table.
func (b *bench) command() string {
	text := "go run ./sanity/bench"
	if len(b.only) > 0 {
		text += " -only=" + strings.Join(b.only, ",")
	}
	text += fmt.Sprintf(" -rounds=%d -each=%s -cycles=%d -failovers=%d -volumes=%d", b.rounds, b.each, b.cycles, b.failovers, b.volumes)
	if len(b.kinds) < len(failoverKinds) {
		text += " -kinds=" + strings.Join(b.kinds, ",")
	}
	if len(b.manager) > 0 {
		text += " -manager=" + strings.Join(b.manager, ",")
	}
	return text + b.stormCommand()
}

func writeTable(out *strings.Builder, columns []string, rows []row) {
	fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
	for _, r := range rows {
		cells := r.cells()
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "–"
			}
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
}
