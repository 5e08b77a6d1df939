package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module makes a module of one file a package.
func module(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.test/m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func tests(body string) string {
	return "package p\n\nimport \"testing\"\n\n" + body
}

func TestOfAPackageThatFailsEverythingIsShownThatItsFailingTestsSaid(t *testing.T) {
	module(t, map[string]string{
		"good/p_test.go": tests("func TestGood(t *testing.T) { t.Log(\"quiet\") }\n"),
		"bad/p_test.go": tests("func TestFine(t *testing.T) { t.Log(\"quiet\") }\n" +
			"func TestBad(t *testing.T) { t.Log(\"before\"); t.Run(\"a\", func(t *testing.T) { t.Fatal(\"told\") }); t.Run(\"b\", func(t *testing.T) { t.Log(\"quiet\") }) }\n"),
		"ends/p_test.go":   tests("func TestEnds(t *testing.T) { panic(\"the end\") }\n"),
		"builds/p_test.go": tests("func TestBuilds(t *testing.T) { undefined() }\n"),
	})
	var out bytes.Buffer
	err := run(t.Context(), []string{"--", "./good", "./bad", "./ends", "./builds"}, &out)
	if err == nil {
		t.Error("no error")
	}
	text := out.String()
	for _, want := range []string{"ok  \texample.test/m/good\t", "--- FAIL: TestBad", "before", "told", "FAIL\texample.test/m/bad\t", "panic: the end",
		"undefined: undefined", "FAIL\texample.test/m/builds [build failed]", "FAILED:\n", "example.test/m/bad TestBad/a\n", "example.test/m/ends TestEnds\n", "example.test/m/builds\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.Contains(text, "quiet") || strings.Contains(text, "=== RUN") {
		t.Error("it says what passing tests said")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestWhatPassesIsALineEachAndNoError(t *testing.T) {
	module(t, map[string]string{"p_test.go": tests("func TestGood(t *testing.T) { t.Log(\"quiet\") }\n"), "none/p.go": "package p\n"})
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--", "-count=1", "./..."}, &out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "ok  \texample.test/m\t") || !strings.Contains(text, "?   \texample.test/m/none\t") || strings.Contains(text, "FAIL") || strings.Contains(text, "quiet") {
		t.Error(text)
	}
}

func TestATestThatCannotBeBegunIsAnError(t *testing.T) {
	module(t, map[string]string{"p.go": "package p\n"})
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--", "./nosuch"}, &out); err == nil {
		t.Errorf("no error: %s", out.String())
	}
	if err := run(t.Context(), nil, &out); err == nil {
		t.Error("nothing to test, and no error")
	}
}

func TestTheSlowestAreTenInOrder(t *testing.T) {
	var all []took
	for i := range 12 {
		all = append(all, took{fmt.Sprintf("p%02d", i), float64(i)})
	}
	lines := strings.Split(strings.TrimSuffix(slowest(all), "\n"), "\n")
	if len(lines) != shown || !strings.HasSuffix(lines[0], "11.0 s  p11") || !strings.HasSuffix(lines[9], "2.0 s  p02") {
		t.Errorf("%q", lines)
	}
	if slowest([]took{{"cached", 0}}) != "" {
		t.Error("what took no time is shown")
	}
}

// c is made of b, b of a; d's tests are made of b; e's tests changed alone, and f
// is made of e.
func TestWhatIsMadeOfAChangeIsTestedAndNothingElse(t *testing.T) {
	all := map[string]*pkg{}
	for name, p := range map[string]pkg{"a": {}, "b": {Imports: []string{"a"}}, "c": {Imports: []string{"b"}}, "d": {TestImports: []string{"b"}},
		"e": {}, "f": {Imports: []string{"e"}}, "g": {Imports: []string{"d"}}} {
		p.ImportPath, p.Dir, p.TestGoFiles = name, "/m/"+name, []string{"x_test.go"}
		all[name] = &p
	}
	far := distances(all, "/m", []string{"a/testdata/x.yaml", "e/e_test.go", "README.md"})
	if got := fmt.Sprint(far); got != "map[a:0 b:1 c:2 d:2 e:0]" {
		t.Error(got)
	}
	if got := within(far, 1); !slices.Equal(got, []string{"a", "e", "b"}) {
		t.Error(got)
	}
}

func TestEachRigIsThere(t *testing.T) {
	for _, folder := range slices.Concat(rigs, despite) {
		if _, err := os.Stat(filepath.Join("../..", folder)); err != nil {
			t.Error(err)
		}
	}
}

// A test that waits for its turn is not slow.
func TestWhatATestWaitedIsNotItsOwn(t *testing.T) {
	s := &suite{parents: map[string]bool{}, became: map[string]string{}, waited: map[string]float64{}}
	s.take(event{Action: "output", Test: "TestA", Output: "    main_test.go:75: its turn came after 400.5s\n"})
	s.take(event{Action: "pass", Test: "TestA", Elapsed: 410.5})
	s.take(event{Action: "pass", Test: "TestB", Elapsed: 20})
	if want := []took{{"TestA", 10}, {"TestB", 20}}; !slices.Equal(s.took, want) {
		t.Errorf("%v, want %v", s.took, want)
	}
}

func TestAPackageThatFellOutOfTheCommandsIsNamedBeforeAnyIsTested(t *testing.T) {
	good := tests("func TestGood(t *testing.T) {}\n")
	module(t, map[string]string{"a/p_test.go": good, "b/p_test.go": good, "b/c/p_test.go": good, "none/p.go": "package p\n"})
	for _, c := range []struct {
		but   string
		words []string
		want  string // empty: they are all tested
	}{
		{"", []string{"--", "-count=1", "./..."}, ""},
		{"", []string{"--", "-timeout", "30m", "./a", "--", "./b/..."}, ""},
		{"", []string{"--", "./a", "--", "./b"}, "example.test/m/b/c"},
		{"", []string{"--", "-run=./b/c", "./a", "./b"}, "example.test/m/b/c"},
		{"^$|/b/c$", []string{"--", "./a", "--", "./b"}, ""},
		{"^$|/b$", []string{"--", "./a"}, "example.test/m/b/c"},
		{"(", []string{"--", "./..."}, "-but: "},
	} {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"-every", "-but=" + c.but}, c.words...), &out)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s, but %q: %v", c.words, c.but, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0):
			t.Errorf("%s, but %q: %v, and it printed %q", c.words, c.but, err, out.String())
		}
	}
}
