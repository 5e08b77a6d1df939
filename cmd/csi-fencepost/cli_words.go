package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/nearest"
)

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func orDash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func listedOrNot(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// count is a number and its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ago, roughly: it compares two machines' clocks.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return fmt.Sprintf("%s in the future", (-d).Round(time.Second))
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	case d >= 10*time.Minute:
		return d.Round(time.Minute).String() + " ago"
	}
	return d.Round(time.Second).String() + " ago"
}

// took rounds a duration to what a person reads.
func took(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// oneLineOf is an error, the parts of a joined one after another.
func oneLineOf(err error) string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return err.Error()
	}
	text := ""
	for line := range slices.Values(joined.Unwrap()) {
		if text != "" {
			text += "; "
		}
		text += line.Error()
	}
	return text
}

// oneLine keeps what people and devices wrote from breaking the table, or the
// terminal.
func oneLine(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 {
		return ' '
	}
	return r
}

// didYouMean names the nearest names.
func didYouMean(name string, names []string) string {
	near := like(name, names)
	if len(near) == 0 {
		return fmt.Sprintf(", nor one with a name like it (there are %d)", len(names))
	}
	return "; did you mean " + strings.Join(near, ", ") + "?"
}

// like are the nearest names, of those that may well be meant.
func like(name string, names []string) []string {
	return nearest.Names(name, names, max(2, len(name)/3))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellQuote makes one word of s for a shell.
func shellQuote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
