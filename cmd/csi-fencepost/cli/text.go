package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// Style is how text is laid out.
type Style struct {
	Width int
	Color bool
}

// Widths of text: a line is never longer, but for commands to paste.
const (
	MinWidth = 80
	MaxWidth = 100
)

// StyleOf w: colour only on a terminal, and not where NO_COLOR is set
// (https://no-color.org).
func StyleOf(w io.Writer) Style {
	f, ok := Terminal(w)
	if !ok {
		return Style{Width: MinWidth}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = MinWidth
	}
	return Style{Width: min(max(width, MinWidth), MaxWidth), Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Colours, as ANSI numbers them.
const (
	Plain  = ""
	Bold   = "1"
	Red    = "1;31"
	Green  = "1;32"
	Yellow = "1;33"
)

// A Printer lays text out. Errors of the writer are not looked at: whoever
// reads is gone.
type Printer struct {
	W io.Writer
	Style
}

// NewPrinter writes to w, in that style.
func NewPrinter(w io.Writer, style Style) *Printer { return &Printer{w, style} }

// painted writes s in a colour, where there is colour.
func (p *Printer) painted(color, s string) {
	if p.Color && color != Plain {
		io.WriteString(past(p.W), "\x1b["+color+"m")
		defer io.WriteString(past(p.W), "\x1b[0m")
	}
	io.WriteString(p.W, s)
}

// Field prints a label and a text that is wrapped beside it.
func (p *Printer) Field(indent int, label, text string) {
	const column = 14
	for i, line := range Wrap(text, p.Width-indent-column) {
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(p.W, "%*s%-*s%s\n", indent, "", column, label, line)
	}
}

// Heading prints wrapped text in a colour.
func (p *Printer) Heading(color, text string) {
	for _, line := range Wrap(text, p.Width) {
		p.painted(color, line)
		fmt.Fprintln(p.W)
	}
}

// Paragraph prints wrapped text; further lines hang by hang more.
func (p *Printer) Paragraph(indent, hang int, text string) {
	for i, line := range Wrap(text, p.Width-indent-hang) {
		if i == 1 {
			indent += hang
		}
		fmt.Fprintf(p.W, "%*s%s\n", indent, "", line)
	}
}

// Blank prints an empty line.
func (p *Printer) Blank() { fmt.Fprintln(p.W) }

// Wrap breaks text into lines of at most width characters, words whole, control
// characters taken out.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(printable.Line(text)) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// Countdown shows on a terminal what is waited for, in place; an empty what
// takes it away.
func Countdown(w io.Writer, what string, left time.Duration) {
	if what == "" {
		Progress(w, "")
		return
	}
	Progress(w, fmt.Sprintf("%s: %d s", what, int(left.Seconds()+0.5)))
}

// Progress shows on a terminal how far it is, in place; an empty text takes it
// away.
func Progress(w io.Writer, text string) {
	if _, ok := Terminal(w); ok {
		fmt.Fprint(past(w), "\r\x1b[K"+printable.Line(text))
	}
}

// PrintPage writes a page that a Printer or a filter has written, over the last one on a
// terminal, elsewhere below it.
func PrintPage(w io.Writer, page []byte) {
	if _, ok := Terminal(w); ok {
		fmt.Fprint(past(w), "\x1b[H\x1b[2J")
	}
	past(w).Write(page)
}
