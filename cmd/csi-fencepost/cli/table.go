package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// Tables prints tables, and lines between them.
type Tables struct {
	w     io.Writer
	begun bool
}

// NewTables prints to w.
func NewTables(w io.Writer) *Tables { return &Tables{w: w} }

// Gap keeps what is printed apart from what was before.
func (t *Tables) Gap() {
	if t.begun {
		fmt.Fprintln(t.w)
	}
	t.begun = true
}

// Line prints a text on a line of its own, control characters taken out.
func (t *Tables) Line(text string) {
	t.Gap()
	fmt.Fprintln(t.w, printable.Line(text))
}

// Print writes a table without spaces at the ends of its lines.
func (t *Tables) Print(head []string, rows [][]string) {
	t.Gap()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		for i := range row {
			row[i] = printable.Line(row[i])
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush() // into memory
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(t.w, strings.TrimRight(line, " \n"))
	}
}
