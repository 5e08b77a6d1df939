package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	declaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	testName    = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)[A-Z]\w*$`)
)

// declared are the tests of the repository, by the folder of their package.
func declared(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
			all[folder] = append(all[folder], m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wrongTest says what is wrong with what a page shows as code: a go test of this repository,
// or a test by its name, which is of the package in, if that is not empty. It returns that
// package for what follows.
func wrongTest(text, in string, all map[string][]string) (fault, next string) {
	if testName.MatchString(text) {
		for folder, tests := range all {
			if (in == "" || folder == in) && slices.Contains(tests, text) {
				return "", in
			}
		}
		return "there is no such test " + strings.TrimSpace("in "+in), in
	}
	for _, words := range splitShell(text) {
		at, module := slices.Index(words, "go"), ""
		if at >= 0 && at+2 < len(words) && words[at+1] == "-C" {
			at, module = at+2, words[at+2]+"/"
		}
		if at < 0 || at+1 >= len(words) || words[at+1] != "test" {
			continue
		}
		tests, folder, run := []string(nil), "", ""
		for i, w := range words {
			if path, ok := strings.CutPrefix(w, "./"); ok {
				path, deep := strings.CutSuffix(module+path, "/...")
				for f := range all {
					if f == path || deep && strings.HasPrefix(f, path+"/") {
						folder, tests = path, append(tests, all[f]...)
					}
				}
				if folder != path {
					return "there are no tests in " + w, in
				}
			}
			if w == "-run" && i+1 < len(words) {
				run = words[i+1]
			}
		}
		if placeholder(run) {
			in = folder // of the names behind it
			continue
		}
		for one := range strings.SplitSeq(run, "|") {
			if pattern, err := regexp.Compile(one); err != nil || !slices.ContainsFunc(tests, pattern.MatchString) {
				return "-run " + one + " runs no test of " + folder, in
			}
		}
	}
	return "", in
}

// datedPage tells of the commit that it names.
const datedPage = "sanity/prove/RESULTS.md"

func TestEveryTestThatAPageNamesExists(t *testing.T) {
	all, count := declared(t), 0
	for _, p := range pages(t) {
		if p.path == datedPage {
			continue
		}
		look := func(number int, text, in string) string {
			fault, in := wrongTest(text, in, all)
			if fault != "" {
				t.Errorf("%s:%d: %s: %s", p.path, number, text, fault)
			}
			count++
			return in
		}
		for _, b := range p.blocks {
			if shellLike[b.language] {
				for i, l := range strings.Split(b.text, "\n") {
					look(b.line+i, l, "")
				}
			}
		}
		in := ""
		for _, l := range p.prose {
			if heading.MatchString(l.text) {
				in = ""
			}
			for _, m := range inlineCode.FindAllStringSubmatch(l.text, -1) {
				in = look(l.number, m[1], in)
			}
		}
	}
	if count < 500 {
		t.Errorf("only %d pieces of code were found on all pages", count)
	}
}

func TestTheCheckOfTestsFindsWhatIsWrong(t *testing.T) {
	all := map[string][]string{"fence": {"TestA", "TestOther"}, "sanity/docs": {"TestB"}}
	for _, c := range []struct {
		text, in string
		right    bool
	}{
		{"TestA", "", true}, {"TestA", "fence", true}, {"TestA", "sanity/docs", false}, {"TestC", "", false},
		{"go test ./fence -run 'A|Oth' -v", "", true}, {"go test ./fence -run 'TestA|TestB'", "", false}, {"nice go test ./fence -run TestB", "", false},
		{"go test ./sanity/...", "", true}, {"go test ./sanity/... -run TestB", "", true}, {"go test ./sanity", "", false}, {"go test ./fence", "", true},
		{"go test ./fence -run NAME", "", true}, {"Testing", "", true},
	} {
		if fault, _ := wrongTest(c.text, c.in, all); (fault == "") != c.right {
			t.Errorf("%s: %q", c.text, fault)
		}
	}
	if _, in := wrongTest("go test ./fence -run NAME", "", all); in != "fence" {
		t.Errorf("the names behind are of %q", in)
	}
}
