package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

// printTable prints the case for a terminal.
func printTable(out io.Writer, here place, all []outcome) error {
	fmt.Fprintf(out, "\n\nThe case for safety, %s UTC, csi-fencepost %s, %s; %s\n\n", here.when.Format("2006-01-02 15:04"), here.commit, here.versions, here.machine)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, o := range all {
		fmt.Fprintf(table, "%s\t%s\t\n", strings.ToUpper(o.part.name), o.label())
		if o.result == nil {
			fmt.Fprintf(table, "\t%s\t\n", firstLine(o.fault()))
			continue
		}
		for _, failure := range o.failures() {
			fmt.Fprintf(table, "\tFAILED: %s\t\n", firstLine(failure))
		}
		for _, f := range o.result.Figures {
			fmt.Fprintf(table, "\t%s\t%s\n", f.Name, figure(f))
		}
		fmt.Fprintf(table, "\ttime\t%s\n\t%s\t\n", duration(o.result.Seconds), repeatable(strings.Fields(o.result.Command)))
	}
	err := table.Flush()
	if names := those(all, func(o outcome) bool { return o.quick }); names != "" {
		fmt.Fprintf(out, "\nQUICK, and so no case for safety: %s.\n", names)
	}
	if names := those(all, func(o outcome) bool { return o.fault() != "" }); names != "" {
		fmt.Fprintf(out, "\nTHE CASE DOES NOT HOLD: %s.\n", names)
	}
	return err
}

// those names the parts of which it is so.
func those(all []outcome, so func(outcome) bool) string {
	var names []string
	for _, o := range all {
		if so(o) {
			names = append(names, o.part.name)
		}
	}
	return strings.Join(names, ", ")
}

// figure as a person reads it: whole numbers with thousands set apart.
func figure(f result.Figure) string {
	text := strconv.FormatFloat(f.Value, 'f', -1, 64)
	if f.Unit == "s" {
		return duration(f.Value)
	}
	whole, part, broken := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if broken {
		whole += "." + part
	}
	return strings.TrimSpace(whole + " " + f.Unit)
}

func duration(seconds float64) string {
	switch {
	case seconds < 10:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 600:
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}

func firstLine(text string) string {
	line, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if more {
		line += " …"
	}
	return line
}
