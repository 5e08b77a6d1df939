package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

// saying is a part that writes this result.
func saying(t *testing.T, name string, r result.Result, exit string) part {
	t.Helper()
	made := filepath.Join(t.TempDir(), "made.json")
	r.Part, r.Command, r.Began = name, "sh", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.Add("things", 1234567, "things")
	if err := r.Write(made); err != nil {
		t.Fatal(err)
	}
	return part{name: name, needs: made, about: "About it.", command: func(_ options, file string) []string {
		return []string{"sh", "-c", "cp " + made + " " + file + "; exit " + exit}
	}}
}

func proven(t *testing.T, p part, o options, sources string) outcome {
	t.Helper()
	return p.prove(t.Context(), o, of(t, sources), io.Discard)
}

// of is a place whose one file has that text.
func of(t *testing.T, sources string) place {
	t.Helper()
	file := filepath.Join(os.TempDir(), t.Name()+".go")
	if err := os.WriteFile(file, []byte(sources), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	return place{files: []string{file}}
}

func TestAPartThatIsMissingOrFailsIsNamed(t *testing.T) {
	o := options{kept: t.TempDir()}
	silent := part{name: "silent", needs: os.DevNull, command: func(options, string) []string { return []string{"true"} }}
	absent := part{name: "absent", needs: "/nowhere"}
	for _, tt := range []struct {
		part  part
		label string
		says  string
	}{
		{saying(t, "good", result.Result{}, "0"), "ran now", ""},
		{saying(t, "failed", result.Result{Failures: []string{"two writers"}}, "1"), "FAILED", "1 failures, the first: two writers"},
		{saying(t, "exits", result.Result{}, "1"), "FAILED", "exit status 1"},
		{silent, "MISSING", "missing: it wrote no result"},
		{absent, "MISSING", "missing: there is no /nowhere"},
	} {
		got := proven(t, tt.part, o, "s")
		if got.label() != tt.label || !strings.Contains(got.fault(), tt.says) || (tt.says == "") != (got.fault() == "") {
			t.Errorf("%s: %s, %q", tt.part.name, got.label(), got.fault())
		}
		if err := verdict([]outcome{got}); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.part.name+": ") {
			t.Errorf("%s: the verdict is %v", tt.part.name, err)
		}
	}
}

func TestAnEarlierResultIsUsedOnlyIfAskedForAndOfTheSameSources(t *testing.T) {
	o := options{kept: t.TempDir()}
	p := saying(t, "part", result.Result{}, "0")
	if got := proven(t, p, o, "one"); got.reused {
		t.Fatal("reused what was never made")
	}
	if got := proven(t, p, o, "one"); got.reused {
		t.Error("reused without being asked")
	}
	o.reuse = true
	if got := proven(t, p, o, "one"); !got.reused || got.label() != "reused from 2026-01-02 03:04 UTC" {
		t.Errorf("not reused: %s", got.label())
	}
	if got := proven(t, p, o, "two"); got.reused {
		t.Error("a result of other sources is reused")
	}
	o.only = []string{"part"}
	if got := proven(t, p, o, "two"); got.reused {
		t.Error("a part that is asked for is reused")
	}
	o.only = []string{"another"}
	if got := proven(t, p, o, "three"); got.result != nil || !strings.HasPrefix(got.fault(), "missing") {
		t.Errorf("a part that is not asked for: %s, %s", got.label(), got.fault())
	}
	// One that failed is no result for later.
	failing := saying(t, "failing", result.Result{Failures: []string{"x"}}, "1")
	proven(t, failing, o, "one")
	if failing.kept(t.Context(), filepath.Join(o.kept, "failing.json"), of(t, "one")) != nil {
		t.Error("a failed part is kept")
	}
}

func TestAChangedFileIsAnotherSourceAndAPageIsNone(t *testing.T) {
	t.Chdir(t.TempDir())
	put := func(name, text string) string {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		sum, err := digest([]string{"b.md", "a.go", "deleted.go", "sanity/prove/results/c.json", ""})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := put("a.go", "x")
	if put("b.md", "page") != first {
		t.Error("a page changes the sources")
	}
	if err := os.MkdirAll(resultsIn, 0o755); err != nil {
		t.Fatal(err)
	}
	if put(resultsIn+"/c.json", "{}") != first {
		t.Error("a result changes the sources that it is of")
	}
	if put("a.go", "y") == first {
		t.Error("a changed file does not")
	}
}

func TestOfAnImportedPackageTheTestsDoNotCount(t *testing.T) {
	folders := []string{"cmd/x", "fence"}
	for name, want := range map[string]bool{"go.mod": true, "cmd/x/main.go": true, "cmd/x/main_test.go": true, "cmd/x/testdata/a/b.txt": true,
		"fence/fence.go": true, "fence/testdata/c.txt": true, "fence/fence_test.go": false, "fence/agent/agent.go": false, "docs/a.go": false} {
		if isPart(name, folders, "cmd/x") != want {
			t.Errorf("%s: is part of it: %v", name, !want)
		}
	}
}

func TestFiguresAreReadByPeople(t *testing.T) {
	for want, f := range map[string]result.Figure{
		"1,234,567 states": {Value: 1234567, Unit: "states"}, "0": {}, "999 x": {Value: 999, Unit: "x"}, "-1,000": {Value: -1000},
		"1,000.5 /s": {Value: 1000.5, Unit: "/s"}, "2.5 s": {Value: 2.5, Unit: "s"}, "90 s": {Value: 90, Unit: "s"}, "60 min": {Value: 3600, Unit: "s"},
	} {
		if got := figure(f); got != want {
			t.Errorf("%v is %q, want %q", f, got, want)
		}
	}
}

func TestThePageHasEveryFigureAndWhatIsLeft(t *testing.T) {
	r := result.Result{Part: "model", Command: "go test ./sanity/model -result=/somewhere/model.json", Seconds: 12,
		Failures: []string{"a failure\nof two lines"}, Left: []string{"`x | y`: a reason"}}
	r.Add("states | all", 5000, "states")
	text := string(page(place{commit: "v1", versions: "go1", machine: "m", when: time.Unix(0, 0).UTC()},
		[]outcome{{part: part{name: "model", about: "About it."}, result: &r}}))
	for _, want := range []string{"csi-fencepost v1, 1970-01-01 00:00 UTC", "| **model** | FAILED | 12 s |", `| | states \| all | 5,000 states |`,
		"## Model\n\nAbout it.", "go test ./sanity/model\n", "- a failure\n  of two lines\n", "- `x | y`: a reason\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "/somewhere") {
		t.Error("the page names a folder of this machine")
	}
}

func TestOnlyKnownPartsCanBeAskedFor(t *testing.T) {
	if _, err := parse([]string{"-only=model,magic"}, io.Discard); err == nil || !strings.Contains(err.Error(), `"magic"`) {
		t.Errorf("got %v", err)
	}
	o, err := parse([]string{"-only=model,mutants", "-fuzztime=1m"}, io.Discard)
	if err != nil || len(o.only) != 2 || o.fuzztime != time.Minute {
		t.Errorf("%+v, %v", o, err)
	}
}
