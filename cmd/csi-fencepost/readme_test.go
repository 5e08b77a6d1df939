package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

const repository = "../.."

// readFile returns a file of the repository.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// words are the text without its line breaks.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestReadmeShowsTheRefusalThatPeopleRead(t *testing.T) {
	refused := fence.Verdict{
		Action:   fence.Refuse,
		Reason:   fence.HolderStale,
		Blocking: &fence.Standing{Holder: &fence.Holder{NodeName: "n1", NodeID: "n1"}, Reason: fence.HolderStale},
	}
	message := refused.Message(&fence.Snapshot{PV: "pv-1"})
	if !strings.Contains(words(readFile(t, "README.md")), words(message)) {
		t.Errorf("README.md does not show: %s", message)
	}
}

// Commands, make targets and links are held by sanity/docs, on every page.
func TestReadmeNamesOnlyFlagsThatRunHas(t *testing.T) {
	readme := readFile(t, "README.md")
	flags := newRunFlags().set
	for _, match := range regexp.MustCompile("`--([a-z-]+)[=`]").FindAllStringSubmatch(readme, -1) {
		if flags.Lookup(match[1]) == nil {
			t.Errorf("README.md names --%s, which run does not have", match[1])
		}
	}
}

// What the README promises is what is run before a change is taken.
func TestCIRunsTheCommandsOfTheReadme(t *testing.T) {
	commands := strings.Split(readFile(t, ".ci/run"), "\n")
	for _, want := range []string{"set -euo pipefail", "make test", "make lint"} {
		if !slices.Contains(commands, want) {
			t.Errorf(".ci/run does not run %q", want)
		}
	}
	if !strings.Contains(readFile(t, "README.md"), "\nmake test\n") {
		t.Error("README.md does not name make test")
	}
}
