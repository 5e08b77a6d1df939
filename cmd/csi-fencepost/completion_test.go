package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
)

// What a shell's script asks while somebody types, and what it is offered.
func TestSubcommandsFlagsAndTheirWordsAreCompleted(t *testing.T) {
	for _, c := range []struct{ typed, want, not string }{
		{"|", "explain\twho holds a volume", ""},
		{"|", "completion\t", "__complete"},
		{"fence|", "withdraw\n", "explain"},
		{"fence|status|--o", "--output\tHow to print it", "--kubeconfig"},
		{"explain|", "pvc\n", "explain"},
		{"explain|pod|db-0|-o|", "yaml\n", "pvc"},
		{"doctor|--b", "--bundle\tWrite an archive", "--yes"},
		{"run|--leader-election-n", "--leader-election-namespace\t", "--config"},
		{"completion|", "powershell\n", ""},
	} {
		words := strings.Split(c.typed, "|")
		if len(words) > 1 && words[0] == "" {
			words = words[1:]
		}
		stdout, _ := commandLine(t, cli.ExitOK, append([]string{"__complete"}, words...)...)
		clitest.Says(t, stdout, c.want)
		if c.not != "" && strings.Contains(stdout, c.not) {
			t.Errorf("%s: offers %s:\n%s", c.typed, c.not, stdout)
		}
	}
}

func TestACompletionScriptIsPrintedForEachShell(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -o default", "zsh": "#compdef csi-fencepost", "fish": "complete -c csi-fencepost", "powershell": "Register-ArgumentCompleter"} {
		stdout, _ := commandLine(t, cli.ExitOK, "completion", shell)
		clitest.Says(t, stdout, want)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	script, _ := commandLine(t, cli.ExitOK, "completion", "bash")
	check := exec.Command(bash, "-n")
	check.Stdin = strings.NewReader(script)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash does not read it: %v\n%s", err, out)
	}
	for want, args := range map[string][]string{
		"it takes the name of a shell, got 0 arguments: bash, zsh, fish or powershell": {"completion"},
		`shell "tcsh" is not known`: {"completion", "tcsh"},
	} {
		_, stderr := commandLine(t, cli.ExitUsage, args...)
		clitest.Says(t, stderr, want)
	}
}
