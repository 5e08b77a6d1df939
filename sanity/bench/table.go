package main

import (
	"fmt"
	"slices"
	"strings"
)

// row is one line of a table. An empty cell is a figure that does not exist.
type row struct {
	what   string
	path   string
	p50    string
	p99    string
	rate   string
	cpu    string
	allocs string
	api    string // requests to the API server
	memory string
}

func (r row) cells() []string {
	return []string{r.what, r.path, r.p50, r.p99, r.rate, r.cpu, r.allocs, r.api, r.memory}
}

var columns = []string{"what", "path", "p50", "p99", "calls per second", "CPU per call", "allocations per call", "API reads + writes", "memory: now / own / at most"}

// page is the whole document, a table for each section.
func page(all []result) string {
	var out strings.Builder
	fmt.Fprintf(&out, `# What csi-fencepost costs

Written by `+"`go run ./sanity/bench -o sanity/bench/RESULTS.md`"+` (`+"`make bench`"+`), which with `+"`-only=SECTION`"+` measures one section anew; do not edit. Nothing here fails a build; what was to be reached, and was not, stands in the second table.

- A figure is the median of all rounds, in brackets the least and the greatest. Every round takes each path once, in an order that changes; × is the ratio to the direct path, + the difference from it, within one round.
- %s: even the middle half of the rounds spreads by more than a factor of %g, so the figure is worth nothing. The machine is shared: only ratios travel.
- CPU and allocations are those of the process in between; API requests those of its account; its memory is resident: now, of that its own (the rest is its program file), and at most.

| section | what | measured | csi-fencepost | load average |
| --- | --- | --- | --- | --- |
`, worthlessMark, tooWide)
	for _, r := range all {
		fmt.Fprintf(&out, "| [%s](#%s) | %s | %s UTC | %s | %s |\n", r.Section, r.Section, about(r.Section), r.When.Format("2006-01-02 15:04"), measuredVersion(r), r.Load)
	}
	if rows := goalRows(all); len(rows) > 0 {
		out.WriteString("\n")
		writeTable(&out, goalColumns, rows)
	}
	for _, r := range all {
		r.print(&out)
	}
	return out.String()
}

func about(name string) string {
	for _, s := range sections {
		if s.name == name {
			return s.about
		}
	}
	return ""
}

// measuredVersion is csi-fencepost's own among the versions.
func measuredVersion(r result) string {
	for _, line := range r.Versions {
		if _, after, ok := strings.Cut(line, "csi-fencepost "); ok {
			version, _, _ := strings.Cut(after, ",")
			return version
		}
	}
	return ""
}

func (r result) print(out *strings.Builder) {
	fmt.Fprintf(out, "\n## %s\n\n%s%s, %s UTC", r.Section, strings.ToUpper(about(r.Section)[:1]), about(r.Section)[1:], r.When.Format("2006-01-02 15:04"))
	if r.Took != "" {
		fmt.Fprintf(out, ", in %s", r.Took)
	}
	fmt.Fprintf(out, ".\n\n```sh\n%s\n```\n\n- %s; load average %s\n", r.Command, r.Machine, r.Load)
	for _, line := range r.Versions {
		fmt.Fprintf(out, "- %s\n", line)
	}
	for _, g := range groups(r.Rows) {
		if g.title != "" {
			fmt.Fprintf(out, "\n### %s%s\n", strings.ToUpper(g.title[:1]), g.title[1:])
		}
		out.WriteString("\n")
		writeTable(out, columns, g.rows)
	}
	if len(r.Notes) > 0 {
		out.WriteString("\n")
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "- %s\n", note)
	}
}

// group is a table of its own: rows of which the first cell begins in the same way.
type group struct {
	title string
	rows  [][]string
}

// groups splits rows by what stands before the first colon, in their order, where each of
// these has so many rows that a heading is shorter than to repeat it.
func groups(rows [][]string) (all []group) {
	for _, row := range rows {
		title, what, found := strings.Cut(row[0], ": ")
		if !found {
			return []group{{rows: rows}}
		}
		if len(all) == 0 || all[len(all)-1].title != title {
			all = append(all, group{title: title})
		}
		last := &all[len(all)-1]
		last.rows = append(last.rows, append([]string{what}, row[1:]...))
	}
	if len(all) < 2 || len(rows) < 4*len(all) {
		return []group{{rows: rows}}
	}
	return all
}

// writeTable leaves out columns without a figure, and says what is measured once
// where rows that follow each other measure the same.
func writeTable(out *strings.Builder, columns []string, rows [][]string) {
	var used []int
	for i := range columns {
		if slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "" }) {
			used = append(used, i)
		}
	}
	line := func(cell func(int) string) {
		for _, i := range used {
			fmt.Fprintf(out, "| %s ", cell(i))
		}
		out.WriteString("|\n")
	}
	line(func(i int) string { return columns[i] })
	line(func(int) string { return "---" })
	for n, row := range rows {
		line(func(i int) string {
			switch {
			case i == 0 && n > 0 && rows[n-1][0] == row[0]:
				return ""
			case row[i] == "":
				return "–"
			}
			return strings.ReplaceAll(row[i], "|", `\|`)
		})
	}
}
