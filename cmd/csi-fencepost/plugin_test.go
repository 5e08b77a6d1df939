package main

import (
	"os"
	"strings"
	"testing"
)

func TestAsAPluginItNamesItsCommandsAsTheyAreTyped(t *testing.T) {
	var out, errs strings.Builder
	stdout, stderr := underName("/usr/local/bin/kubectl-fencepost", &out, &errs)
	text := "csi-fencepost explain pv x; csi-fencepost\n  fence confirm n1; csi-fencepost run --listen; csi-fencepost: no; namespace csi-fencepost"
	if n, err := stdout.Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if want := "kubectl fencepost explain pv x; kubectl fencepost\n  fence confirm n1; csi-fencepost run --listen; csi-fencepost: no; namespace csi-fencepost"; out.String() != want {
		t.Errorf("got  %s\nwant %s", out.String(), want)
	}
	if run(t.Context(), []string{"explain"}, stdout, stderr) != exitUsage || !strings.Contains(errs.String(), "kubectl fencepost explain pv NAME") {
		t.Errorf("the error says: %s", errs.String())
	}
	if same, _ := underName("/usr/bin/csi-fencepost", &out, &errs); same != &out {
		t.Error("under its own name it renames too")
	}
}

func TestAPluginsTextIsColouredOnATerminalToo(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if stdout, _ := underName("kubectl-fencepost", tty, tty); !styleOf(stdout).color {
		t.Error("no colour")
	}
}

// Every subcommand but run is renamed.
func TestAPluginKnowsEverySubcommand(t *testing.T) {
	for _, c := range commands() {
		if c.Name != "run" && !typed.MatchString("csi-fencepost "+c.Name) {
			t.Errorf("csi-fencepost %s is not named as a plugin's", c.Name)
		}
	}
}
