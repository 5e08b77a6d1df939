package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// tables prints tables, and lines between them.
type tables struct {
	w     io.Writer
	begun bool
}

func newTables(w io.Writer) *tables { return &tables{w: w} }

// gap keeps what is printed apart from what was before.
func (t *tables) gap() {
	if t.begun {
		fmt.Fprintln(t.w)
	}
	t.begun = true
}

func (t *tables) line(text string) {
	t.gap()
	fmt.Fprintln(t.w, strings.Map(oneLine, text))
}

// print writes a table without spaces at the ends of its lines.
func (t *tables) print(head []string, rows [][]string) {
	t.gap()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		for i := range row {
			row[i] = strings.Map(oneLine, row[i])
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush() // into memory
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(t.w, strings.TrimRight(line, " \n"))
	}
}
