package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-fencepost/csi-fencepost/fence/nearest"
)

// OrNone is s, or the word none.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// OrDash is s, or a dash.
func OrDash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

// UpperFirst is s with a capital letter.
func UpperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// Either is yes or no.
func Either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// Count is a number and its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Ago is how long ago that is, roughly: it compares two machines' clocks.
func Ago(d time.Duration) string {
	if d < 0 {
		return duration.HumanDuration(-d) + " in the future"
	}
	return duration.HumanDuration(d) + " ago"
}

// Took rounds a duration to what a person reads.
func Took(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// OneLineOf is an error, the parts of a joined one after another.
func OneLineOf(err error) string {
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

// DidYouMean names the nearest names.
func DidYouMean(name string, names []string) string {
	near := Like(name, names)
	if len(near) == 0 {
		return fmt.Sprintf(", nor one with a name like it (there are %d)", len(names))
	}
	return "; did you mean " + strings.Join(near, ", ") + "?"
}

// Like are the nearest names, of those that may well be meant.
func Like(name string, names []string) []string {
	return nearest.Names(name, names, max(2, len(name)/3))
}
