package guards

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/code"
)

const root = "../../.."

// What cannot be taken out, or is no Go without it, proves nothing.
func TestEveryGuardCanBeTakenOut(t *testing.T) {
	c := newChecker(t)
	for _, g := range All() {
		files, err := g.TakeOut(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if g.Like != "" {
			continue // checked for that one
		}
		folders := map[string]bool{}
		for name := range files {
			folders[filepath.Dir(name)] = true
		}
		for folder := range folders {
			if err := c.check(folder, files); err != nil {
				t.Errorf("guard %s: without it this is no Go any more: %v", g.Name, err)
			}
		}
	}
}

// A checker type-checks packages against what the go command has built.
type checker struct {
	set      *token.FileSet
	importer types.Importer
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	folders := map[string]bool{}
	for _, g := range All() {
		for _, e := range g.Edits {
			folders["./"+e.Package] = true
		}
	}
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Sorted(maps.Keys(folders))...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	built := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		built[name] = file
	}
	set := token.NewFileSet()
	return &checker{set, importer.ForCompiler(set, "gc", func(name string) (io.ReadCloser, error) { return os.Open(built[name]) })}
}

// check checks a package of the repository, in which some files have another text.
func (c *checker) check(folder string, instead map[string]string) error {
	p, err := code.Open(root, folder)
	if err != nil {
		return err
	}
	var parsed []*ast.File
	for _, f := range p.Files {
		text := f.Text
		if changed, ok := instead[f.Name]; ok {
			text = changed
		}
		file, err := parser.ParseFile(c.set, f.Name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, file)
	}
	_, err = (&types.Config{Importer: c.importer}).Check(folder, c.set, parsed, nil)
	return err
}

func TestTheCheckFindsWhatIsNoGo(t *testing.T) {
	c := newChecker(t)
	if err := c.check("fence", nil); err != nil {
		t.Error(err)
	}
	wrong := Edit{"fence", "Reason.allows", ItemIn{Item: "HolderNobodyKnows", Behind: "HolderRevoked"}}
	files, err := Guard{Edits: []Edit{wrong}}.TakeOut(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.check("fence", files); err == nil || !strings.Contains(err.Error(), "HolderNobodyKnows") {
		t.Errorf("%v", err)
	}
}

func TestTheTableIsWhole(t *testing.T) {
	stories := scenarios(t)
	seen := map[string]bool{}
	for i, g := range All() {
		if !stories[g.Story()] {
			t.Errorf("%s: there is no scenario %q", g.Name, g.Story())
		}
		if seen[g.Name] {
			t.Errorf("%s is there twice", g.Name)
		}
		seen[g.Name] = true
		if len(g.Edits) == 0 || g.Says == "" || g.Expect == "" || g.Then == "" {
			t.Errorf("%s lacks something: %+v", g.Name, g)
		}
		if g.Like != "" && (len(table[i].Edits) > 0 || table[i].Says != "") {
			t.Errorf("%s is like %s and has edits or words of its own", g.Name, g.Like)
		}
		if _, err := regexp.CompilePOSIX(g.Expect); err != nil {
			t.Errorf("%s: Expect: %v", g.Name, err)
		}
	}
}

// scenarios are the names of all stories: the field name of a literal in the tests.
func scenarios(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "sanity/scenarios/*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for n := range ast.Preorder(file) {
			if field, ok := n.(*ast.KeyValueExpr); ok && code.Print(field.Key) == "name" {
				if value, err := strconv.Unquote(code.Print(field.Value)); err == nil {
					names[value] = true
				}
			}
		}
	}
	if len(names) < 50 {
		t.Fatalf("only %d scenarios were found", len(names))
	}
	return names
}

func TestThePageIsThatOfTheTable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, PageFile))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != Page() {
		t.Errorf("%s is not what the table says: make docs writes it", PageFile)
	}
}

const before = `package p

import (
	"fmt"
	"os"
)

func (t *T) f(all []int) error {
	// The first of all.
	if err := first(all); err != nil {
		return err
	}
	if len(all) > 2 ||
		t.empty() {
		fmt.Println("many")
	}
	for i := range all {
		t.add(i, all[i])
	}
	switch len(all) {
	case 1, 2:
		t.n = 2
	case 3:
		return os.ErrNotExist
	}
	return last(all, T{n: 1, m: 2})
}
`

func TestWhatEachChangeMakes(t *testing.T) {
	for _, c := range []struct {
		change   Change
		old, new string // of before
	}{
		{IfOut{"err := first(all); err != nil"}, "if err := first(all); err != nil {\n\t\treturn err\n\t}", ""},
		{IfNever{"err := first(all); err != nil"}, "; err != nil", "; false && (err != nil)"},
		{IfAlways{"len(all) > 2 || t.empty()"}, "len(all) > 2 ||\n\t\tt.empty()", "true"},
		{CaseOut{"2"}, "case 1, 2:\n\t\tt.n = 2", ""},
		{LoopOut{"all"}, "for i := range all {\n\t\tt.add(i, all[i])\n\t}", ""},
		{StatementOut{"t.n=2"}, "t.n = 2", ""},
		{ItemOut{Item: "1"}, "1, 2:", "2:"},
		{ItemOut{Item: "m: 2"}, ", m: 2", ""},
		{ItemOut{Item: "i"}, "i, ", ""},
		{ItemIn{Item: "4", Behind: "3"}, "3:", "3, 4:"},
		{Becomes{"t.empty()", "a || b"}, "t.empty()", "(a || b)"},
		{Becomes{"return err", "continue"}, "return err", "continue"},
		{Becomes{`fmt.Println("many")`, "t.many()"}, `fmt.Println("many")`, "t.many()"},
		{Before{"t.n = 2", "wait()"}, "t.n = 2", "wait()\nt.n = 2"},
	} {
		want := strings.Replace(before, c.old, c.new, 1)
		if strings.Contains(want, "t.many()") {
			want = strings.Replace(want, `"fmt"`, `_ "fmt"`, 1) // not used any more
		}
		got, err := takenOut(t, c.change)
		if err != nil || got != want {
			t.Errorf("%#v: %v\n%s", c.change, err, got)
		}
	}
}

func takenOut(t *testing.T, changes ...Change) (string, error) {
	t.Helper()
	top := t.TempDir()
	if err := os.WriteFile(filepath.Join(top, "a.go"), []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	g := Guard{Name: "story"}
	for _, c := range changes {
		g.Edits = append(g.Edits, Edit{".", "T.f", c})
	}
	files, err := g.TakeOut(top)
	return files["a.go"], err
}

func TestWhatIsNotThereAnyMoreIsSaidWithWhatIsNearest(t *testing.T) {
	for want, changes := range map[string][]Change{
		"function T.f of package . (a.go) has no `if` whose condition is `len(all) > 3 || t.empty()` any more; the nearest: `len(all) > 2 || t.empty()`": {IfOut{"len(all) > 3 || t.empty()"}},
		"has no case `9` any more; the nearest: `1`, `2`, `3`: " + tableFile + " names it, change it there":                                              {CaseOut{"9"}},
		"has the expression `all` 6 times, want 1": {Becomes{"all", "none"}},
		"two changes to the same code of a.go":     {IfOut{"err := first(all); err != nil"}, StatementOut{"return err"}},
	} {
		if _, err := takenOut(t, changes...); err == nil || !strings.HasPrefix(err.Error(), "guard story: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	gone := Guard{Name: "story", Edits: []Edit{{"fence", "Reason.allow", IfOut{"true"}}}}
	if _, err := gone.TakeOut(root); err == nil || !strings.Contains(err.Error(), "package fence has no function Reason.allow; the nearest: `Reason.allows`") {
		t.Errorf("got %v", err)
	}
}

func TestWhatCameOfAScenarioIsReadOutOfItsLog(t *testing.T) {
	g := Guard{Name: "a.second", Expect: "the oracle saw: Taken(InUse)?"}
	for log, want := range map[string]string{
		"x\n    the oracle saw: TakenInUse\n    --- FAIL: TestScenario/a (3.00s)\n": "",
		"    --- PASS: TestScenario/a (3.00s)\n":                                    "PASSED WITHOUT ITS GUARD",
		"    --- FAIL: TestScenario/a (3.00s)\n":                                    "FAILED FOR ANOTHER REASON",
		"    --- FAIL: TestScenario/ab (3.00s)\n":                                   "NOT PLAYED",
		"": "NOT PLAYED",
	} {
		var out strings.Builder
		err := g.judge(log, &out)
		if want == "" && (err != nil || !strings.Contains(out.String(), "FAILED AS IT SHOULD")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q is %v, want %q", log, err, want)
		}
	}
}
