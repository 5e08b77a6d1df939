package main

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/code"
	"github.com/csi-fencepost/csi-fencepost/sanity/mutants/guards"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// faults are what a promise names, and is not there.
func (p promise) faults(t *testing.T) (all []string) {
	t.Helper()
	check := func(kind string, names []string, there func(name string) bool) {
		for _, name := range names {
			if !there(name) {
				all = append(all, p.rule+": there is no "+kind+" "+name)
			}
		}
	}
	rules := violations(t)
	check("rule of the simulation", p.simulation.names, func(name string) bool { return slices.Contains(rules, name) })
	model := read(t, "sanity/model/fencepost.pml")
	check("property of the model", p.model.names, func(name string) bool { return strings.Contains(model, "\ninline "+name+"(") && asserts(model, name) })
	catalogue := read(t, "sanity/scenarios/CATALOGUE.md")
	check("story of this promise", p.stories, func(name string) bool { return strings.Contains(catalogue, "\n| `"+name+"` | "+p.rule+": ") })
	targets := mutated(t)
	check("package that is mutated,", p.mutants, func(name string) bool { return slices.Contains(targets, name) })
	check("fuzz target", p.fuzz, func(name string) bool {
		folder, function, _ := strings.Cut(name, " ")
		return slices.Contains(functions(t, folder), function)
	})
	check("guard", p.guards, func(name string) bool {
		_, err := guards.Find(name)
		return err == nil
	})
	return all
}

// violations are the rules that the simulation calls violated.
func violations(t *testing.T) (rules []string) {
	t.Helper()
	p, err := code.Open(root, "sanity/simulate")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range p.Files {
		for n := range ast.Preorder(file.AST) {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				continue
			}
			rule, err := strconv.Unquote(code.Print(call.Args[0]))
			if function, ok := call.Fun.(*ast.SelectorExpr); ok && function.Sel.Name == "violation" && err == nil {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

// asserts tells whether the inline has an assertion.
func asserts(model, name string) bool {
	_, after, _ := strings.Cut(model, "\ninline "+name+"(")
	body, _, _ := strings.Cut(after, "\n}")
	return strings.Contains(body, "assert(")
}

// mutated are the packages that sanity/mutants changes.
func mutated(t *testing.T) (all []string) {
	t.Helper()
	p, err := code.Open(root, "sanity/mutants")
	if err != nil {
		t.Fatal(err)
	}
	var declarations []ast.Decl
	for _, file := range p.Files {
		declarations = append(declarations, file.AST.Decls...)
	}
	for _, d := range declarations {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != token.VAR || d.Specs[0].(*ast.ValueSpec).Names[0].Name != "targets" {
			continue
		}
		for _, e := range d.Specs[0].(*ast.ValueSpec).Values[0].(*ast.CompositeLit).Elts {
			folder, unsorted := "", false
			for _, field := range e.(*ast.CompositeLit).Elts {
				switch field := field.(*ast.KeyValueExpr); field.Key.(*ast.Ident).Name {
				case "Folder":
					folder, _ = strconv.Unquote(field.Value.(*ast.BasicLit).Value)
				case "Unsorted": // not mutated unless asked for
					unsorted = true
				}
			}
			if !unsorted {
				all = append(all, folder)
			}
		}
	}
	return all
}

// functions are the fuzz functions of a folder.
func functions(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
	}
	return all
}

func TestWhatAPromiseIsAttackedByIsThere(t *testing.T) {
	for i, p := range promises {
		for _, fault := range p.faults(t) {
			t.Error(fault)
		}
		if want := "R" + strconv.Itoa(i+1); p.rule != want || p.text == "" || len(p.stories) < 2 || len(p.stories) > 5 || len(p.mutants) == 0 {
			t.Errorf("the promise after %d others is %s, with stories %q and mutants of %q", i, p.rule, p.stories, p.mutants)
		}
	}
}

// Each promise that a story holds up has a row.
func TestEachPromiseOfAStoryHasARow(t *testing.T) {
	found := regexp.MustCompile("(?m)^\\| `[^`]+` \\| (R\\d+): ").FindAllStringSubmatch(read(t, "sanity/scenarios/CATALOGUE.md"), -1)
	if len(found) < 50 {
		t.Fatalf("only %d stories were found", len(found))
	}
	for _, m := range found {
		if !slices.ContainsFunc(promises, func(p promise) bool { return p.rule == m[1] }) {
			t.Errorf("stories hold up %s, of which there is no row", m[1])
		}
	}
}

// A check that takes everything would find nothing.
func TestTheCheckOfPromisesFindsWhatIsGone(t *testing.T) {
	for _, p := range []promise{
		{rule: "R1", simulation: checked{names: []string{"R9"}}},
		{rule: "R1", model: checked{names: []string{"holdsR9"}}},
		{rule: "R1", model: checked{names: []string{"wipe"}}}, // it asserts nothing
		{rule: "R1", stories: []string{"nothing"}},
		{rule: "R1", stories: []string{"force-detach"}}, // it holds up R2
		{rule: "R1", mutants: []string{"fence/nothing"}},
		{rule: "R1", fuzz: []string{"fence/ledger FuzzNothing"}},
		{rule: "R1", fuzz: []string{"csi/nothing FuzzParse"}},
		{rule: "R1", guards: []string{"nothing"}},
	} {
		if got := p.faults(t); len(got) != 1 {
			t.Errorf("%+v: %q", p, got)
		}
	}
}

func TestEveryLinkAndTargetOfThePromisesIsThere(t *testing.T) {
	text := promisesText()
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1)
	for _, page := range []string{"../../docs/design/model.md", "../mutants/guards/GUARDS.md", cataloguePage} {
		if !slices.ContainsFunc(links, func(m []string) bool { return m[1] == page }) {
			t.Errorf("no link leads to %s", page)
		}
	}
	for _, m := range links {
		read(t, filepath.Join("sanity/prove", m[1]))
	}
	for _, m := range regexp.MustCompile("`make ([a-z]+)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(read(t, "Makefile"), "\n"+m[1]+":") {
			t.Errorf("the Makefile has no target %s", m[1])
		}
	}
	if rows := strings.Count(text, "\n| **R"); rows != len(promises) {
		t.Errorf("%d rows for %d promises", rows, len(promises))
	}
	for row := range strings.Lines(text) {
		if strings.HasPrefix(row, "|") && strings.Count(row, "|") != 9 {
			t.Errorf("a row has not eight cells: %s", row)
		}
	}
}
