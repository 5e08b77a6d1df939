package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// textStyle is how text is laid out.
type textStyle struct {
	width int
	color bool
}

// Widths of text: a line is never longer, but for commands to paste.
const (
	minWidth = 80
	maxWidth = 100
)

// styleOf w: colour only on a terminal, and not where NO_COLOR is set
// (https://no-color.org).
func styleOf(w io.Writer) textStyle {
	f, ok := terminal(w)
	if !ok {
		return textStyle{width: minWidth}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = minWidth
	}
	return textStyle{width: min(max(width, minWidth), maxWidth), color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Colours, as ANSI numbers them.
const (
	plain  = ""
	bold   = "1"
	red    = "1;31"
	green  = "1;32"
	yellow = "1;33"
)

// A printer lays text out. Errors of the writer are not looked at: whoever
// reads is gone.
type printer struct {
	w io.Writer
	textStyle
}

// newPrinter writes to w, in that style.
func newPrinter(w io.Writer, style textStyle) *printer { return &printer{w, style} }

func (p *printer) paint(color, s string) string {
	if !p.color || color == plain {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

// field prints a label and a text that is wrapped beside it.
func (p *printer) field(indent int, label, text string) {
	const column = 14
	for i, line := range wrap(text, p.width-indent-column) {
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(p.w, "%*s%-*s%s\n", indent, "", column, label, line)
	}
}

func (p *printer) heading(color, text string) {
	for _, line := range wrap(text, p.width) {
		fmt.Fprintf(p.w, "%s\n", p.paint(color, line))
	}
}

// paragraph prints wrapped text; further lines hang by hang more.
func (p *printer) paragraph(indent, hang int, text string) {
	for i, line := range wrap(text, p.width-indent-hang) {
		if i == 1 {
			indent += hang
		}
		fmt.Fprintf(p.w, "%*s%s\n", indent, "", line)
	}
}

func (p *printer) blank() { fmt.Fprintln(p.w) }

// wrap breaks text into lines of at most width characters, words whole.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
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

// countdown shows on a terminal what is waited for, in place; an empty what
// takes it away.
func countdown(w io.Writer, what string, left time.Duration) {
	if _, ok := terminal(w); !ok {
		return
	}
	if what == "" {
		fmt.Fprint(w, "\r\x1b[K")
		return
	}
	fmt.Fprintf(w, "\r\x1b[K%s: %d s", what, int(left.Seconds()+0.5))
}

// progress shows on a terminal how far it is, in place; an empty text takes it
// away.
func progress(w io.Writer, text string) {
	if _, ok := terminal(w); ok {
		fmt.Fprint(w, "\r\x1b[K"+text)
	}
}
