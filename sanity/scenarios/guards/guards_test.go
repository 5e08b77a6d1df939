package guards

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

func patches(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.patch")
	if err != nil || len(files) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryGuardCanStillBeTakenOut: a patch that does not apply proves nothing.
func TestEveryGuardCanStillBeTakenOut(t *testing.T) {
	for _, file := range patches(t) {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "apply", "--check", "--verbose", path)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not apply any more (%v): take the same guard out of the code as it is now, and write the patch anew\n%s", file, err, out)
		} else if !strings.Contains(string(out), "Checking patch ") {
			t.Errorf("%s changes nothing: %s", file, out)
		}
	}
}

// TestEveryPatchSaysWhatItTakesOutOfWhichStory: play.sh reads it.
func TestEveryPatchSaysWhatItTakesOutOfWhichStory(t *testing.T) {
	var stories strings.Builder
	files, err := filepath.Glob("../*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		stories.WriteString(read(t, file))
	}
	table := read(t, filepath.Join(root, "docs", "GUARDS.md"))
	for _, file := range patches(t) {
		head, _, found := strings.Cut(read(t, file), "\ndiff --git ")
		guard := regexp.MustCompile(`(?m)^Guard: \S.*$`).FindString(head)
		expect := regexp.MustCompile(`(?m)^Expect: (\S.*)$`).FindStringSubmatch(head)
		if !found || guard == "" || expect == nil {
			t.Errorf("%s: it has to begin with the lines Guard: and Expect:, and then a diff of git", file)
			continue
		}
		if _, err := regexp.CompilePOSIX(expect[1]); err != nil {
			t.Errorf("%s: Expect: %v", file, err)
		}
		name := strings.TrimSuffix(file, ".patch")
		story, _, _ := strings.Cut(name, ".")
		if !regexp.MustCompile(`(?m)^\s*name:\s+"` + regexp.QuoteMeta(story) + `",$`).MatchString(stories.String()) {
			t.Errorf("%s: there is no scenario %q", file, story)
		}
		if !strings.Contains(table, "| `"+name+"` |") {
			t.Errorf("docs/GUARDS.md has no row for `%s`: play it, and say what came of it", name)
		}
	}
}
