package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// words are the text without its line breaks.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestReadmeShowsTheRefusalThatPeopleRead(t *testing.T) {
	n1 := &fence.Node{UID: "uid-1", BootID: "boot-1"}
	refused := fence.Verdict{
		Action:   fence.Refuse,
		Reason:   fence.HolderStale,
		Blocking: &fence.Standing{Holder: &fence.Holder{NodeName: "n1", NodeID: "n1", NodeUID: "uid-1", BootID: "boot-1", Node: n1}, Reason: fence.HolderStale},
	}
	message := refused.Message(&fence.Snapshot{PV: "pv-1"})
	if !strings.Contains(words(clitest.ReadFile(t, "README.md")), words(message)) {
		t.Errorf("README.md does not show: %s", message)
	}
}

// What the README promises is what is run before a change is taken.
func TestCIRunsTheCommandsOfTheReadme(t *testing.T) {
	commands := strings.Split(clitest.ReadFile(t, ".ci/run"), "\n")
	for _, want := range []string{"set -euo pipefail", "make test", "make lint"} {
		if !slices.Contains(commands, want) {
			t.Errorf(".ci/run does not run %q", want)
		}
	}
	if !strings.Contains(clitest.ReadFile(t, "README.md"), "\nmake test\n") {
		t.Error("README.md does not name make test")
	}
}
