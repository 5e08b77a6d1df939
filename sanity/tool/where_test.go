package tool

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program that writes its page again and again measures one commit all the time.
func TestWhatMeasuringWritesDoesNotMakeACheckoutDirty(t *testing.T) {
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=n@example"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(t.TempDir())
	files := []string{"sanity/soak/RESULTS.md", "sanity/bench/results.json", "sanity/prove/results/mutants.json", "sanity/bench/results.go"}
	git("init", "-q")
	for _, name := range files {
		write(name, "as committed")
	}
	git("add", ".")
	git("commit", "-qm", "all")
	clean, err := Revision(t.Context())
	if err != nil || clean == "" || strings.HasSuffix(clean, "-dirty") {
		t.Fatalf("a clean checkout is %q, error %v", clean, err)
	}
	for _, name := range files {
		write(name, "as written since")
		got, err := Revision(t.Context())
		wanted := clean
		if name == "sanity/bench/results.go" {
			wanted += "-dirty"
		}
		if err != nil || got != wanted {
			t.Errorf("with another %s it is %q, want %q, error %v", name, got, wanted, err)
		}
	}
}
