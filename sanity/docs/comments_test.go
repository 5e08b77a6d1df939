package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A comment that says "name: predicate" of a declaration leaves to the reader who does what, and a
// sentence that begins with "One that", of what it speaks. In config.go the former is no comment of
// its own: make docs makes of it the cell beside the field's name.
func TestCommentsAreSentences(t *testing.T) {
	root, read := "../..", 0
	for _, folder := range []string{"cmd", "csi", "deploy", "fence", "proxy", "sanity"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
				return err
			}
			if filepath.ToSlash(path) == "../../fence/config/config.go" {
				return nil
			}
			read++
			found, err := faults(path, nil, folder != "sanity")
			for _, text := range found {
				t.Error(text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 300 {
		t.Errorf("only %d files were read", read)
	}
}

func TestTheCheckOfCommentsFindsWhatIsNoSentence(t *testing.T) {
	const text = `package a

// Big: it is large.
func Big() {}

// small is not large: it is small.
func small() {}

type T struct {
	// On: it runs.
	On bool
	// Off tells that it does not run; see: On.
	Off bool
	// Unix, Linux: names of nothing here.
	A int
}

const (
	// Zero: nothing.
	Zero = iota
	// One is one.
	One
)

// errGone: it is gone.
var errGone = 1

// all holds fences. One
// that is over stays; no one that is not.
var all = 1

func f() {
	// local: it is here.
	local := 1
	_ = local
}
`
	got, err := faults("a.go", text, true)
	want := []string{"Big", "On", "Zero", "errGone", "One that", "local"}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%q, %v", got, err)
	}
	for i, name := range want {
		if !strings.Contains(got[i], ": "+name) {
			t.Errorf("got %s, want %s", got[i], name)
		}
	}
	if got, _ := faults("a.go", text, false); len(got) != len(want)-1 {
		t.Errorf("%q", got)
	}
}

var (
	nameAlone = regexp.MustCompile(`^([A-Za-z]\w*): `)
	pronoun   = regexp.MustCompile(`(^|[.:] )(One (that|of which|whose))\b`)
)

// faults are the comments of a Go file that begin with a name and a colon, and stand above a line
// that has that name; and, if asked, those with a sentence that begins with such a pronoun.
func faults(path string, text any, pronouns bool) (found []string, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	names := map[int][]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			line := files.Position(id.Pos()).Line
			names[line] = append(names[line], id.Name)
		}
		return true
	})
	for _, c := range parsed.Comments {
		at := files.Position(c.Pos())
		m := nameAlone.FindStringSubmatch(c.Text())
		if m != nil && slices.Contains(names[files.Position(c.End()).Line+1], m[1]) {
			found = append(found, fmt.Sprintf("%s:%d: %s: … is no sentence: say who does what, as Go's comments do (%s tells whether …), or say nothing", at.Filename, at.Line, m[1], m[1]))
		}
		if m := pronoun.FindStringSubmatch(strings.Join(strings.Fields(c.Text()), " ")); m != nil && pronouns {
			found = append(found, fmt.Sprintf("%s:%d: %s: a sentence begins so; say what it is", at.Filename, at.Line, m[2]))
		}
	}
	return found, nil
}
