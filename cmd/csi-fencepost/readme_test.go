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

func TestReadmeNamesOnlyWhatIsThere(t *testing.T) {
	readme := readFile(t, "README.md")
	flags := newRunFlags().set
	for _, match := range regexp.MustCompile("`--([a-z-]+)[=`]").FindAllStringSubmatch(readme, -1) {
		if flags.Lookup(match[1]) == nil {
			t.Errorf("README.md names --%s, which run does not have", match[1])
		}
	}
	makefile := readFile(t, "Makefile")
	for _, match := range regexp.MustCompile("(?:^|\n|`)make ([a-z]+)").FindAllStringSubmatch(readme, -1) {
		if !strings.Contains(makefile, "\n"+match[1]+":") {
			t.Errorf("README.md names make %s, which the Makefile does not have", match[1])
		}
	}
	for _, match := range regexp.MustCompile(`\]\(([^):]+)\)`).FindAllStringSubmatch(readme, -1) {
		if heading, here := strings.CutPrefix(match[1], "#"); here {
			if !strings.Contains(strings.ToLower(readme), "\n## "+strings.ReplaceAll(heading, "-", " ")+"\n") {
				t.Errorf("README.md links to its section %s, which is not there", match[1])
			}
			continue
		}
		if _, err := os.Stat(filepath.Join(repository, match[1])); err != nil {
			t.Errorf("README.md links to %s: %v", match[1], err)
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
