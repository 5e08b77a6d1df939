package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/transparency/wire"
)

// count is how many outcomes are a comparison.
func count(outcomes []wire.Outcome) (n int) {
	for _, o := range outcomes {
		if o.Fits {
			n++
		}
	}
	return n
}

// printCalls writes a row for each RPC and a column for each property, and below
// what the exceptions are and what is at fault. It returns the number of faults.
func printCalls(out io.Writer, properties []wire.Property, outcomes []wire.Outcome) (faults int) {
	fmt.Fprintf(out, "Every RPC, made directly and through csi-fencepost; what caller and driver saw is\n")
	fmt.Fprintf(out, "  =  the same    a,b  the same but for that exception    !  different    blank: means nothing here\n\n")
	for i, p := range properties {
		fmt.Fprintf(out, "%s%s\n", strings.Repeat("│ ", i), "┌ "+p.Name)
	}
	for row := range slices.Chunk(outcomes, len(properties)) {
		for _, o := range row {
			fmt.Fprintf(out, "%-2s", mark(o))
			if o.Fault() {
				faults++
			}
		}
		fmt.Fprintln(out, strings.TrimPrefix(row[0].Method.Path, "/"))
	}
	printExceptions(out, outcomes)
	for _, o := range outcomes {
		if o.Fault() {
			printFault(out, o)
		}
	}
	return faults
}

// mark is an outcome in one or two characters.
func mark(o wire.Outcome) string {
	switch {
	case !o.Fits:
		return ""
	case o.Fault():
		return "!"
	case len(o.Differences) == 0:
		return "="
	}
	marks := ""
	for i, e := range wire.Exceptions {
		if slices.ContainsFunc(o.Differences, func(d wire.Difference) bool { return d.Exception == e.Name }) {
			marks += string(rune('a' + i))
		}
	}
	return marks
}

// printExceptions writes each exception with the first difference of its kind.
func printExceptions(out io.Writer, outcomes []wire.Outcome) {
	fmt.Fprintln(out, "\nNamed exceptions:")
	for i, e := range wire.Exceptions {
		fmt.Fprintf(out, "  %c  %s: %s\n", 'a'+i, e.Name, e.Why)
		for _, o := range outcomes {
			at := slices.IndexFunc(o.Differences, func(d wire.Difference) bool { return d.Exception == e.Name })
			if at >= 0 {
				fmt.Fprintf(out, "     %s: %s\n", o.Method.Path, o.Differences[at])
				break
			}
		}
	}
}

func printFault(out io.Writer, o wire.Outcome) {
	fmt.Fprintf(out, "\n%s, %s, differs:\n", o.Method.Path, o.Property)
	if o.Err != nil {
		fmt.Fprintf(out, "  it could not be compared: %v\n", o.Err)
	}
	for _, d := range o.Differences {
		if d.Exception == "" {
			fmt.Fprintf(out, "  %s\n", d)
		}
	}
}
