package cli

import (
	"io"
	"os"
	"strings"
	"testing"
)

func TestAPluginsTextIsColouredOnATerminalToo(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if stdout, _ := UnderName("kubectl-fencepost", tty, tty); !StyleOf(stdout).Color {
		t.Error("no colour")
	}
}

// As a plugin of kubectl the program names its own subcommands otherwise, and
// changes nothing else.
func FuzzPluginText(f *testing.F) {
	f.Add("csi-fencepost explain pv x; csi-fencepost\n  fence confirm n1; csi-fencepost run")
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		stdout, _ := UnderName("kubectl-fencepost", &out, io.Discard)
		if n, err := io.WriteString(stdout, text); n != len(text) || err != nil {
			t.Errorf("wrote %d of %d bytes: %v", n, len(text), err)
		}
		back := strings.ReplaceAll(out.String(), "kubectl fencepost", "csi-fencepost")
		if strings.ReplaceAll(text, "kubectl fencepost", "csi-fencepost") != back {
			t.Errorf("%q became %q", text, out.String())
		}
	})
}
