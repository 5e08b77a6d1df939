package code

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func written(t *testing.T, files map[string]string) *Package {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(root, "a"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "a", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Open(root, "a")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A function is found in whichever file it is; tests, and what is built elsewhere,
// are not the package.
func TestAFunctionIsFoundByItsName(t *testing.T) {
	p := written(t, map[string]string{
		"one.go":      "package a\nfunc F() {}\nfunc (t *T) M() {}\nfunc (l List[K, V]) Len() {}\n",
		"two.go":      "package a\nfunc Twice() {}\n",
		"three.go":    "package a\nfunc Twice() {}\n",
		"one_test.go": "package a\nfunc TestF() {}\n",
		"other.go":    "//go:build never\n\npackage a\nfunc F() {}\n",
	})
	for name, file := range map[string]string{"F": "a/one.go", "T.M": "a/one.go", "List.Len": "a/one.go"} {
		if f, err := p.Func(name); err != nil || f.File.Name != file {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	for name, want := range map[string]string{"M": "package a has no function M; the nearest: ", "TestF": "package a has no function TestF", "Twice": "package a has 2 functions Twice"} {
		if _, err := p.Func(name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, err := Open(t.TempDir(), "b"); err == nil {
		t.Error("a folder that is not there is a package")
	}
}

// Neither the breaking of a line nor a comment is part of a name.
func TestANameDoesNotChangeWithTheLines(t *testing.T) {
	p := written(t, map[string]string{"a.go": `package a

func f() {
	if err := g(
		1, // the first
		2,
	); err != nil ||
		x*y+z > 0 {
		return
	}
}
`})
	f, err := p.Func("f")
	if err != nil {
		t.Fatal(err)
	}
	n := f.Decl.Body.List[0].(*ast.IfStmt)
	for node, want := range map[ast.Node]string{n.Init: "err := g(1, 2)", n.Cond: "err != nil || x*y+z > 0"} {
		if got := Print(node); got != want {
			t.Errorf("it is printed as %s, want %s", got, want)
		}
	}
	for text, want := range map[string]string{"a+b  *c": "a + b*c", "x=1": "x = 1", "a; \n b": "a; b", "return  1,2": "return 1, 2"} {
		if got := Normal(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestTheNearestAreNamed(t *testing.T) {
	if got := Nearest("err != nil", []string{"n > 2", "err == nil", "errs != nil", "x", "x"}); !strings.HasPrefix(got, "`errs != nil`, `err == nil`, `") {
		t.Errorf("got %s", got)
	}
	if got := Nearest("a", nil); got != "none" {
		t.Errorf("got %s", got)
	}
}
