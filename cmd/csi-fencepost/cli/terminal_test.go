package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
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

// What a subcommand prints itself, laid out or not, is no more than text.
func TestNothingThatASubcommandPrintsIsMoreThanText(t *testing.T) {
	for _, format := range []string{"text", "json", "yaml"} {
		table := []Command{{Name: "show", Run: func(_ context.Context, _ []string, stdout, stderr io.Writer) error {
			fmt.Fprintln(stderr, "warning: "+hostile)
			return PrintAs(stdout, format, map[string]string{"name": hostile}, func(w io.Writer) { fmt.Fprintln(w, hostile) })
		}}}
		var stdout, stderr strings.Builder
		if code := Run(t.Context(), table, []string{"show"}, &stdout, &stderr); code != ExitOK {
			t.Errorf("%s: exit code %d: %s", format, code, stderr.String())
		}
		if all := stdout.String() + stderr.String(); strings.ContainsAny(all, "\x1b\a\r\u202e\u009b") {
			t.Errorf("%s: printed %q", format, all)
		}
		var back map[string]string
		if format == "json" && (json.Unmarshal([]byte(stdout.String()), &back) != nil || back["name"] != hostile) {
			t.Errorf("JSON says another thing: %q", stdout.String())
		}
	}
}

// The program's own colours and countdowns are for terminals, and reach them.
func TestOwnColoursPassTheFilterAndOthersDoNot(t *testing.T) {
	table := []Command{{Name: "show", Run: func(_ context.Context, _ []string, stdout, _ io.Writer) error {
		p := NewPrinter(stdout, Style{Width: MinWidth, Color: true})
		p.Heading(Red, "\x1b[2Jred")
		fmt.Fprintln(p.W, "\x1b[2Jplain")
		return nil
	}}}
	var stdout, stderr strings.Builder
	Run(t.Context(), table, []string{"show"}, &stdout, &stderr)
	if got, want := stdout.String(), "\x1b[1;31m[2Jred\x1b[0m\n [2Jplain\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	table[0].Run = func(_ context.Context, _ []string, stdout, _ io.Writer) error {
		if file, ok := Terminal(stdout); !ok || file != terminal || !StyleOf(stdout).Color {
			t.Error("behind the filter a terminal is not known any more")
		}
		return nil
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	out, errs := UnderName("kubectl-fencepost", terminal, terminal)
	Run(t.Context(), table, []string{"show"}, out, errs)
}

// A manifest that is handed on is somebody's file: what is piped stays byte for byte.
func TestAFileThatIsHandedOnStaysAsItIsButOnATerminal(t *testing.T) {
	table := []Command{{Name: "show", Run: func(_ context.Context, _ []string, stdout, _ io.Writer) error {
		_, err := io.WriteString(Verbatim(stdout), hostile)
		return err
	}}}
	var stdout, stderr strings.Builder
	if Run(t.Context(), table, []string{"show"}, &stdout, &stderr); stdout.String() != hostile {
		t.Errorf("handed on as %q", stdout.String())
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	filtered := printable.Writer{To: terminal}
	if Verbatim(filtered) != io.Writer(filtered) {
		t.Error("a terminal is handed the file past the filter")
	}
}
