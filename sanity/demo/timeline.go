package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// lane is one of the two columns.
type lane int

const (
	both lane = iota
	alone
	guarded
)

// timeline prints what happens in two columns, as it happens.
type timeline struct {
	out    io.Writer
	colour bool
	width  int // of a column
	began  time.Time

	mu sync.Mutex
}

func newTimeline(out *os.File) *timeline {
	t := &timeline{out: out, width: 44, began: time.Now()}
	if term.IsTerminal(int(out.Fd())) {
		t.colour = os.Getenv("NO_COLOR") == ""
		if columns, _, err := term.GetSize(int(out.Fd())); err == nil && columns > 60 {
			t.width = min((columns-14)/2, 60)
		}
	}
	return t
}

type style string

const (
	plain  style = ""
	bold   style = "1"
	red    style = "31;1"
	green  style = "32;1"
	yellow style = "33"
	dim    style = "2"
)

func (t *timeline) paint(s style, text string) string {
	if !t.colour || s == plain {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// head prints the columns' titles and starts the clock.
func (t *timeline) head() {
	t.began = time.Now()
	fmt.Fprintf(t.out, "\n          %s  %s\n", t.paint(bold, pad("KUBERNETES ALONE", t.width)), t.paint(bold, "WITH CSI-FENCEPOST"))
	fmt.Fprintf(t.out, " ───────┬%s┬%s\n", strings.Repeat("─", t.width+2), strings.Repeat("─", t.width+1))
}

// say prints a line in a lane, wrapped to its column; a text for both lanes
// stands across them.
func (t *timeline) say(l lane, s style, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clock := fmt.Sprintf("%6.1fs", time.Since(t.began).Seconds())
	text := fmt.Sprintf(format, args...)
	if l == both {
		for i, line := range wrap(text, 2*t.width) {
			if i > 0 {
				clock = strings.Repeat(" ", len(clock))
			}
			fmt.Fprintf(t.out, " %s │ %s\n", t.paint(dim, clock), t.paint(s, line))
		}
		return
	}
	for i, line := range wrap(text, t.width) {
		if i > 0 {
			clock = strings.Repeat(" ", len(clock))
		}
		left, right := strings.Repeat(" ", t.width), ""
		if l == alone {
			left = t.paint(s, pad(line, t.width))
		} else {
			right = t.paint(s, line)
		}
		fmt.Fprintf(t.out, " %s │ %s │ %s\n", t.paint(dim, clock), left, right)
	}
}

// step prints what happens to the world of both lanes.
func (t *timeline) step(format string, args ...any) {
	t.say(both, bold, "▶ "+format, args...)
}

// verdict prints the table of what came of it; the first row is its head.
func (t *timeline) verdict(rows [][3]string) {
	fmt.Fprintf(t.out, "\n %s\n", t.paint(bold, "VERDICT"))
	for i, r := range rows {
		s := plain
		if i == 0 {
			s = dim
		}
		fmt.Fprintf(t.out, "   %s %s %s\n", pad(r[0], 30), t.paint(s, pad(r[1], 34)), t.paint(s, r[2]))
	}
}

func pad(s string, width int) string {
	if n := utf8.RuneCountInString(s); n < width {
		return s + strings.Repeat(" ", width-n)
	}
	return s
}

// wrap breaks text at spaces; a word that is too long is broken.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		for utf8.RuneCountInString(word) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			runes := []rune(word)
			lines, word = append(lines, string(runes[:width])), string(runes[width:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
