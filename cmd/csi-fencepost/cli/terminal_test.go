package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// A hostile manifest, node or driver writes what a terminal acts on: it clears the
// screen, hides a line, or turns it round.
const hostile = "a\x1b[2J\x1b]0;title\ab\rc\u202ed\u009bH\nsecond\tline"

func TestNoErrorReachesTheTerminalAsMoreThanText(t *testing.T) {
	table := []Command{{Name: "fail", Run: func(context.Context, []string, io.Writer, io.Writer) error { return errors.New(hostile) }}}
	var stdout, stderr strings.Builder
	if code := Run(t.Context(), table, []string{"fail"}, &stdout, &stderr); code != ExitFailure {
		t.Errorf("exit code %d", code)
	}
	if got, want := stderr.String(), "csi-fencepost: a [2J ]0;title b c d H\nsecond\tline\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestNothingThatIsLaidOutIsMoreThanText(t *testing.T) {
	var out strings.Builder
	p := NewPrinter(&out, Style{Width: MinWidth, Color: true})
	p.Field(2, "label", hostile)
	p.Heading(Plain, hostile)
	p.Paragraph(0, 2, hostile)
	if strings.ContainsAny(out.String(), "\x1b\a\r\t\u202e\u009b") || strings.Count(out.String(), "second line") != 3 {
		t.Errorf("printed %q", out.String())
	}
}
