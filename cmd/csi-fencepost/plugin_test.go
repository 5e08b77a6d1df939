package main

import (
	"io"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
)

func TestAsAPluginItNamesItsCommandsAsTheyAreTyped(t *testing.T) {
	var out, errs strings.Builder
	stdout, stderr := cli.UnderName("/usr/local/bin/kubectl-fencepost", &out, &errs)
	text := "csi-fencepost explain pv x; csi-fencepost\n  fence confirm n1; csi-fencepost run --listen; csi-fencepost: no; namespace csi-fencepost"
	if n, err := stdout.Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if want := "kubectl fencepost explain pv x; kubectl fencepost\n  fence confirm n1; csi-fencepost run --listen; csi-fencepost: no; namespace csi-fencepost"; out.String() != want {
		t.Errorf("got  %s\nwant %s", out.String(), want)
	}
	if runProgram(t.Context(), []string{"explain"}, stdout, stderr) != cli.ExitUsage || !strings.Contains(errs.String(), "kubectl fencepost explain pv NAME") {
		t.Errorf("the error says: %s", errs.String())
	}
	if same, _ := cli.UnderName("/usr/bin/csi-fencepost", &out, &errs); same != &out {
		t.Error("under its own name it renames too")
	}
}

// Every subcommand is renamed but run and failover, which a container is told.
func TestAPluginKnowsEverySubcommand(t *testing.T) {
	for _, c := range commands() {
		var out strings.Builder
		stdout, _ := cli.UnderName("kubectl-fencepost", &out, &out)
		io.WriteString(stdout, "csi-fencepost "+c.Name)
		if c.Name != "run" && c.Name != "failover" && out.String() != "kubectl fencepost "+c.Name {
			t.Errorf("csi-fencepost %s is not named as a plugin's", c.Name)
		}
	}
}
