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
func saying(t *testing.T, name string, r result.Result, code string) part {
	t.Helper()
	return ending(t, name, r, "exit "+code)
}

// ending is one that ends with these words for a shell.
func ending(t *testing.T, name string, r result.Result, exit string) part {
	t.Helper()
	made := filepath.Join(t.TempDir(), "made.json")
	r.Part, r.Command, r.Began = name, "sh", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.Add("things", 1234567, "things")
	if err := r.Write(made); err != nil {
		t.Fatal(err)
	}
	return part{name: name, needs: made, about: "About it.", command: func(_ options, file string) []string {
		return []string{"sh", "-c", "cp " + made + ` "${0#-result=}"; ` + exit, "-result=" + file}
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
		{saying(t, "failed", result.Result{Failures: []string{"two writers"}}, "1"), "FAILED, ran now", "1 failures, the first: two writers"},
		{saying(t, "exits", result.Result{}, "1"), "FAILED, ran now", "exit status 1"},
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
}

func TestAFailedResultIsUsedAgainAsWhatItIs(t *testing.T) {
	o := options{kept: t.TempDir(), reuse: true}
	failing := saying(t, "failing", result.Result{Failures: []string{"two writers"}}, "1")
	proven(t, failing, o, "one")
	got := proven(t, failing, o, "one")
	if !got.reused || got.label() != "FAILED, reused from 2026-01-02 03:04 UTC" {
		t.Errorf("it is %s", got.label())
	}
	if err := verdict([]outcome{got}); err == nil || !strings.Contains(err.Error(), "failing: 1 failures, the first: two writers") {
		t.Errorf("the verdict is %v", err)
	}
	// What failed without a word of it in its result is not kept, nor what was there before.
	well := filepath.Join(t.TempDir(), "well")
	silent := ending(t, "silent", result.Result{}, "test -e "+well)
	if err := os.WriteFile(well, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	proven(t, silent, options{kept: o.kept}, "one")
	if err := os.Remove(well); err != nil {
		t.Fatal(err)
	}
	proven(t, silent, options{kept: o.kept}, "one")
	if got := proven(t, silent, o, "one"); got.reused {
		t.Error("a result that says nothing of its failure is used again as if it had succeeded")
	}
}

// sized is a part that can be run smaller, or for another time.
func sized(t *testing.T) part {
	p := saying(t, "sized", result.Result{}, "0")
	p.command = func(o options, file string) []string {
		size := o.fuzztime.String()
		if o.quick {
			size = "small"
		}
		return []string{"sh", "-c", `cp ` + p.needs + ` "${1#-result=}"`, size, "-result=" + file, "-reuse"}
	}
	return p
}

func TestAnEarlierResultOfAnotherCommandIsNotUsed(t *testing.T) {
	p := sized(t)
	o := options{kept: t.TempDir(), keptQuick: t.TempDir(), reuse: true, fuzztime: time.Minute}
	proven(t, p, o, "one")
	if got := proven(t, p, o, "one"); !got.reused {
		t.Errorf("not reused: %s", got.label())
	}
	o.only, o.fuzztime = []string{"another"}, time.Second
	if got := proven(t, p, o, "one"); got.result != nil || !strings.Contains(got.fault(), "missing: the earlier run was another: sh -c cp") || !strings.HasSuffix(got.fault(), " 1m0s") {
		t.Errorf("a result of another command: %s, %s", got.label(), got.fault())
	}
	o.only = nil
	if got := proven(t, p, o, "one"); got.reused {
		t.Error("a result of another command is reused")
	}
	// The stamp of a program that did not know of commands.
	text, err := os.ReadFile(stamp(p.file(o)))
	if err != nil {
		t.Fatal(err)
	}
	sources, _, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(stamp(p.file(o)), []byte(sources), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := proven(t, p, o, "one"); got.reused {
		t.Error("a result of nobody knows what command is reused")
	}
}

func TestAQuickResultSaysSoAndTakesNobodysPlace(t *testing.T) {
	p := sized(t)
	whole := options{kept: t.TempDir(), keptQuick: t.TempDir(), reuse: true, fuzztime: fuzzFor}
	quick := whole
	quick.quick = true
	proven(t, p, whole, "one")
	if got := proven(t, p, quick, "one"); got.reused || got.label() != "quick, ran now" {
		t.Errorf("the first quick one is %s", got.label())
	}
	if got := proven(t, p, quick, "one"); got.label() != "quick, reused from 2026-01-02 03:04 UTC" {
		t.Errorf("the second quick one is %s", got.label())
	}
	if got := proven(t, p, whole, "one"); got.label() != "reused from 2026-01-02 03:04 UTC" {
		t.Errorf("the whole one is %s", got.label())
	}
	if same := saying(t, "same", result.Result{}, "0"); same.quick(quick) {
		t.Error("a part that is never smaller is called quick")
	}
	for _, p := range parts {
		if got, want := p.quick(quick), p.name != "model" && p.name != "failover" && p.name != "catalogue"; got != want {
			t.Errorf("%s: quick is %v", p.name, got)
		}
		if p.quick(whole) {
			t.Errorf("%s: quick without -quick", p.name)
		}
	}
}

func TestAQuickRunWritesNoPageUnlessItIsNamed(t *testing.T) {
	for args, want := range map[string]string{"": pageFile, "-quick": "", "-quick -page=x.md": "x.md", "-quick -page=" + pageFile: pageFile, "-page=": ""} {
		o, err := parse(strings.Fields(args), io.Discard)
		if err != nil || o.page != want || o.kept != resultsIn || o.keptQuick == resultsIn {
			t.Errorf("%q: the page is %q, want %q (%v)", args, o.page, want, err)
		}
	}
}

func TestThePageIsWrittenOnlyIfEachPartHasAResult(t *testing.T) {
	var all []outcome
	for _, p := range parts {
		all = append(all, outcome{part: p, result: &result.Result{Part: p.name, Failures: []string{"it failed"}}})
	}
	o := options{page: filepath.Join(t.TempDir(), "RESULTS.md")}
	for what, some := range map[string][]outcome{"a part left out": all[1:], "one without a result": append([]outcome{{part: parts[0]}}, all[1:]...)} {
		if err := writePage(o, place{}, some, io.Discard); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(o.page); err == nil {
			t.Fatalf("with %s the page was written", what)
		}
	}
	if err := writePage(o, place{}, all, io.Discard); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(o.page); err != nil || !strings.Contains(string(text), "DOES NOT HOLD") {
		t.Errorf("of failed parts there is no page: %v", err)
	}
}

func TestFailuresAndQuickRunsCannotBeOverlooked(t *testing.T) {
	good := result.Result{Part: "model", Command: "c"}
	bad := result.Result{Part: "mutants", Command: "c", Failures: []string{"a failure\nof two lines", "another"}}
	all := []outcome{
		{part: part{name: "model", about: "About it."}, result: &good},
		{part: part{name: "mutants", about: "About it."}, result: &bad, quick: true},
		{part: part{name: "fuzzing", about: "About it."}, result: &good, err: os.ErrInvalid},
	}
	text := string(page(place{}, all))
	head, _, _ := strings.Cut(text, "| part |")
	for _, want := range []string{"**THE CASE DOES NOT HOLD: mutants FAILED** (2 failures, [the list](#mutants))", "**THE CASE DOES NOT HOLD: fuzzing FAILED** (1 ",
		"**This is no case for safety:** mutants ran with -quick"} {
		if !strings.Contains(head, want) {
			t.Errorf("the page does not begin with %q:\n%s", want, head)
		}
	}
	for _, want := range []string{"| **mutants** | **FAILED, quick, ran now** |", "| | **FAILED**: a failure … | |", "| | **FAILED**: another | |",
		"| | **FAILED**: invalid argument, and its result does not say of what | |", "**What failed**:\n\n- a failure\n  of two lines\n- another\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	var table strings.Builder
	if err := printTable(&table, place{}, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAILED, quick, ran now", "FAILED: a failure …", "THE CASE DOES NOT HOLD: mutants, fuzzing.\n", "QUICK, and so no case for safety: mutants.\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if sound := string(page(place{}, all[:1])); strings.Contains(sound, "DOES NOT HOLD") || strings.Contains(sound, "no case") {
		t.Errorf("a page without failures says that it does not hold:\n%s", sound)
	}
}

func TestOnlyTheSameCommandIsTheSameResult(t *testing.T) {
	if got := repeatable([]string{"go", "test", "-n=2", "-result=/a/b.json", "-reuse"}); got != "go test -n=2" {
		t.Errorf("got %q", got)
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
	for _, want := range []string{"csi-fencepost v1, 1970-01-01 00:00 UTC", "| **model** | **FAILED, ran now** | 12 s |", `| | states \| all | 5,000 states |`,
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
