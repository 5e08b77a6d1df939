package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/code"
	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

const guarded = `package a

func may(n int, who string) bool {
	if n < 0 {
		return false
	}
	total = n
	switch {
	case who == "x", !known(who):
		return false
	}
	switch who {
	case "a", "b":
		log()
	case "c":
		klog.Info("c")
		return true
	}
	return true
}

func (l *List) put() { l.n = l.n + 1 }
`

func parsed(t *testing.T, text string) *source {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "a/a.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &source{name: "a/a.go", text: text, set: set, file: file}
}

func TestEachGuardAndEachStatementIsTakenOut(t *testing.T) {
	var got []string
	for _, m := range parsed(t, guarded).guardsOut() {
		got = append(got, fmt.Sprintf("%d %s, %s: %s => %s", m.Line, m.Func, m.Operator, m.Old, m.New))
		if _, err := parser.ParseFile(token.NewFileSet(), "", m.applied(guarded), 0); err != nil {
			t.Errorf("%s is no Go: %v", m, err)
		}
	}
	slices.Sort(got)
	want := []string{
		`10 may, answer turned round: return false => return true`,
		`13 may, value out: case "a", "b": => case "a":`,
		`13 may, value out: case "a", "b": => case "b":`,
		`14 may, statement out: log() => (left out)`,
		`15 may, case out: case "c": => (left out)`,
		`17 may, answer turned round: return true => return false`,
		`19 may, answer turned round: return true => return false`,
		`22 List.put, statement out: func (l *List) put() { l.n = l.n + 1 } => (left out)`,
		`4 may, guard out: if n < 0 { => if false && (n < 0) {`,
		`5 may, answer turned round: return false => return true`,
		`7 may, statement out: total = n => (left out)`,
		`9 may, case out: case who == "x", !known(who): => case false && (who == "x"), !known(who):`,
		`9 may, case out: case who == "x", !known(who): => case who == "x", false && (!known(who)):`,
		`9 may, negation dropped: case who == "x", !known(who): => case who == "x", known(who):`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const named = `package a

var patience = 2 * time.Second

func f(all []int, err error) (bool, bool) {
	if err != nil {
		return false, false
	}
	if err := each(all, func(n int) error {
		if n > 0 {
			return err
		}
		return nil
	}); err != nil || // comments and
		len(all) > 1 { // lines do not count
		return true, err == nil
	}
	return false, slices.ContainsFunc(all, func(n int) bool { return n > 0 })
}
`

// Neither where code stands nor what a function in it does is part of a name.
func TestAMutantIsNamedByItsFunctionAndByWhatIsChanged(t *testing.T) {
	s := parsed(t, named)
	all := s.guardsOut()
	for _, g := range []struct{ kind, at string }{{"ARITHMETIC_BASE", "* time"}, {"CONDITIONALS_BOUNDARY", "> 1"}, {"INVERT_LOGICAL", "|| //"}} {
		m, err := s.operator(g.kind, s.file.FileStart+token.Pos(strings.Index(named, g.at)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	number(all)
	var got []string
	for _, m := range all {
		got = append(got, strings.ReplaceAll(m.key(), "\n", " | "))
	}
	slices.Sort(got)
	want := []string{
		`a f | answer turned round: return false, false`,
		`a f | answer turned round: return false, false #2`,
		`a f | answer turned round: return false, slices.ContainsFunc(all, func(n int) bool { })`,
		`a f | answer turned round: return true, err == nil`,
		`a f | conditionals boundary: len(all) > 1`,
		`a f | guard out: err != nil`,
		`a f | guard out: err != nil || len(all) > 1`,
		`a f | guard out: n > 0`,
		`a f | invert logical: err != nil || len(all) > 1`,
		`a patience | arithmetic base: 2 * time.Second`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatGremlinsNamesIsMade(t *testing.T) {
	s := parsed(t, guarded)
	at := func(text string) token.Pos {
		return s.file.FileStart + token.Pos(strings.Index(guarded, text))
	}
	m, err := s.operator("CONDITIONALS_BOUNDARY", at("< 0"))
	if err != nil || m.New != "if n <= 0 {" || m.Func != "may" {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := s.operator("ARITHMETIC_BASE", at("+ 1")); err != nil || !strings.Contains(m.New, "l.n - 1") {
		t.Errorf("%v, %v", m, err)
	}
	for _, wrong := range []string{"CONDITIONALS_NEGATION", "A_NEW_ONE"} {
		if m, err := s.operator(wrong, at("+ 1")); err == nil {
			t.Errorf("%s of a + is %v", wrong, m)
		}
	}
}

// little is a module with a guard that a test holds up, one that none does, and a
// loop that ends.
var little = map[string]string{
	"go.mod": "module example.com/a\ngo 1.26\n",
	"a/a.go": `package a

func May(n int) bool {
	if n < 0 {
		return false
	}
	if n > 100 {
		return false
	}
	return true
}

func Rest(n int) (out int) {
	for n > 0 {
		n = n / 2
	}
	unused := n
	out = unused
	return out
}
`,
	"a/a_test.go": `package a
import "testing"
func TestMay(t *testing.T) { if May(-1) || !May(1) || Rest(7) != 0 { t.Error("wrong") } }
`,
}

func smallScratch(t *testing.T) *scratch {
	t.Helper()
	c := &scratch{target: target{Folder: "a", Guards: true, Tests: []test{{Folder: "a"}}}, folder: t.TempDir()}
	for name, text := range little {
		path := filepath.Join(c.folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestAGuardThatNoTestHoldsUpSurvives(t *testing.T) {
	c := smallScratch(t)
	s, err := readSource(c.folder, "a/a.go")
	if err != nil {
		t.Fatal(err)
	}
	mutants := s.guardsOut()
	for _, all := range []*crew{{plain: []*scratch{c}}, assembled(t, c, mutants)} {
		all.limit.tests = 3 * time.Second
		outcomes, err := all.tryAll(t.Context(), mutants, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		holdsUp(t, outcomes, all.built != nil)
	}
	if text, _ := os.ReadFile(filepath.Join(c.folder, "a/a.go")); string(text) != little["a/a.go"] {
		t.Error("the change is not taken back")
	}
}

func assembled(t *testing.T, c *scratch, mutants []mutant) *crew {
	t.Helper()
	all, err := assemble(t.Context(), c, mutants, 1, io.Discard)
	if err != nil || all.built == nil || slices.Contains(all.switched, false) {
		t.Fatalf("%+v, %v", all, err)
	}
	return all
}

// holdsUp: behind switches and built one by one, the same becomes of the mutants,
// but that behind a switch a variable is used always.
func holdsUp(t *testing.T, outcomes []outcome, switched bool) {
	t.Helper()
	got := map[string]fate{}
	for _, o := range outcomes {
		got[fmt.Sprintf("%d %s", o.Line, o.Operator)] = o.Fate
		if o.Fate == killed && o.By != "TestMay" {
			t.Errorf("%s is killed by %q", o.mutant, o.By)
		}
	}
	want := map[string]fate{"4 guard out": killed, "7 guard out": survived, "8 answer turned round": survived,
		"15 statement out": endless, "18 statement out": unbuilt}
	if switched {
		want["18 statement out"] = survived
	}
	for what, want := range want {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
}

const branches = `package main

func f(a, b, c bool, x, y int) (n int) {
	if (a && b) || !c {
		n = n + 1
	}
	for i := 0; i < 3; i++ {
		if x == i {
			continue
		}
		n = n + 2
	}
	switch {
	case x <= y && y > 1, x != 2:
		n = n + 20
	case g(a):
		n = n + 40
	}
	n = n + 80
	return n
}

func g(a bool) bool {
	if a {
		return true
	}
	return false
}
`

const compareAll = `
var mutantNumber int

func mutant(n int) bool { return n == mutantNumber }

func main() {
	for n, plain := range all {
		mutantNumber = n
		for i := range 8 * 16 {
			a, b, c, x, y := i&1 != 0, i&2 != 0, i&4 != 0, i>>3&3, i>>5
			if got, want := f(a, b, c, x, y), plain(a, b, c, x, y); got != want {
				println("mutant", n, a, b, c, x, y, "is", got, "and built by itself", want)
			}
		}
	}
}
`

// Behind its switch a mutant does what it does when it is built by itself.
func TestASwitchIsItsMutant(t *testing.T) {
	s := parsed(t, branches)
	mutants := s.guardsOut()
	for _, g := range []struct{ kind, at string }{{"INVERT_LOGICAL", "&& b"}, {"INVERT_LOGICAL", "|| !c"}, {"CONDITIONALS_NEGATION", "== i"}, {"CONDITIONALS_BOUNDARY", "<= y"},
		{"CONDITIONALS_NEGATION", "<= y"}, {"CONDITIONALS_BOUNDARY", "> 1"}, {"INVERT_LOGICAL", "&& y"}, {"CONDITIONALS_NEGATION", "!= 2"}, {"INVERT_LOOPCTRL", "continue"}} {
		m, err := s.operator(g.kind, s.file.FileStart+token.Pos(strings.Index(branches, g.at)))
		if err != nil {
			t.Fatal(err)
		}
		mutants = append(mutants, m)
	}
	var wraps []wrap
	plain, table := "", "\nvar all = map[int]func(a, b, c bool, x, y int) int{0: f0"
	for n, m := range append([]mutant{{}}, mutants...) {
		if n > 0 {
			w, ok := s.wrapOf(m, n)
			if !ok {
				t.Fatalf("%s has no switch", m)
			}
			wraps = append(wraps, w)
			table += fmt.Sprintf(", %d: f%d", n, n)
		}
		text := strings.TrimPrefix(m.applied(branches), "package main\n")
		text = strings.NewReplacer("func f(", fmt.Sprintf("func f%d(", n), "func g(", fmt.Sprintf("func g%d(", n), "g(a):", fmt.Sprintf("g%d(a):", n),
			"(g(a))", fmt.Sprintf("(g%d(a))", n)).Replace(text)
		plain += text
	}
	program := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(program, []byte(s.wrapped(wraps)+plain+table+"}\n"+compareAll), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "run", program).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// With a break in it, an endless loop would end, and a function without another
// return would not be built; nor would a continue for the break of a switch that
// is in no loop. One such mutant would take all switches with it.
func TestABranchThatMayNotBeBuiltIsBuiltByItself(t *testing.T) {
	const branches = `package a

func f(all []int) int {
	for {
		for _, n := range all {
			if n > 1 {
				continue
			}
		}
		if len(all) > 9 {
			continue
		}
		return 1
	}
}

func g(all []int) (f func(int)) {
	for range all {
		f = func(n int) {
			switch {
			case n > 1:
				break
			}
		}
		switch {
		case len(all) > 1:
			break
		}
	}
	switch {
	case len(all) > 2:
		break
	}
	return f
}
`
	s, at := parsed(t, branches), 0
	for _, want := range []struct {
		branch string
		ok     bool
	}{{"continue", true}, {"continue", false}, {"break", false}, {"break", true}, {"break", false}} {
		at += strings.Index(branches[at:], want.branch)
		m, err := s.operator("INVERT_LOOPCTRL", s.file.FileStart+token.Pos(at))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.wrapOf(m, 1); ok != want.ok {
			t.Errorf("line %d has a switch: %t", m.Line, ok)
		}
		at++
	}
}

func TestTestsThatDoNotPassByThemselvesKillNothing(t *testing.T) {
	c := smallScratch(t)
	broken := strings.Replace(little["a/a_test.go"], "May(-1)", "May(1)", 1)
	if err := os.WriteFile(filepath.Join(c.folder, "a/a_test.go"), []byte(broken), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (&crew{plain: []*scratch{c}}).baseline(t.Context()); err == nil || !strings.Contains(err.Error(), "do not pass without any mutant") {
		t.Errorf("got %v", err)
	}
}

func TestWhatWasTriedIsUsedAgainOnlyWhereNothingHasChanged(t *testing.T) {
	c := smallScratch(t)
	digest := func() string {
		sum, err := c.digest()
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	sources, file := digest(), keptFile(filepath.Join(t.TempDir(), "mutants.json"), c.target)
	if readKept(file, sources) != nil {
		t.Error("what was never tried is used again")
	}
	left := outcome{mutant: mutant{File: "a/a.go", Func: "May", Operator: "guard out", Of: "x"}, Fate: survived}
	tried := count([]outcome{{Fate: killed, By: "TestMay"}, left, {Fate: killed, By: "TestMay"}})
	tried.Sources, tried.When = sources, time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	if err := tried.write(file); err != nil {
		t.Fatal(err)
	}
	k := readKept(file, digest())
	if k == nil || k.compiled() != 3 || k.Fates[killed] != 2 || len(k.Survivors) != 1 || k.Survivors[0] != left {
		t.Fatalf("got %+v", k)
	}
	k.Reused = true
	var r result.Result
	report(&r, []target{c.target}, []kept{*k}, nil)
	if !slices.ContainsFunc(r.Figures, func(f result.Figure) bool {
		return f.Name == c.target.Folder+", mutants (tried 2026-01-02 03:04 UTC, nothing has changed since)"
	}) {
		t.Errorf("the result does not say so: %+v", r.Figures)
	}
	if err := os.WriteFile(filepath.Join(c.folder, "a/a_test.go"), []byte(little["a/a_test.go"]+"// more"), 0o644); err != nil {
		t.Fatal(err)
	}
	if readKept(file, digest()) != nil {
		t.Error("used again, though a test has changed")
	}
}

func TestSurvivorsAreHeldAgainstTheList(t *testing.T) {
	survivor := func(of string) outcome {
		return outcome{mutant: mutant{File: "a/a.go", Func: "May", Operator: "conditionals boundary", Of: of}, Fate: survived}
	}
	one, other, dead := survivor("n > 100"), survivor("x > y"), survivor("n < 0")
	second, third := one, one
	second.Nth, third.Nth = 2, 3
	one.File, dead.Fate = "a/b.go", killed // in another file of the package
	list := filepath.Join(t.TempDir(), "survivors.txt")
	text := "# a comment\n\na May\nconditionals boundary: n > 100\nconditionals boundary: n > 100 #2\nNobody asks\nfor 100.\n\n" +
		"a May\nconditionals boundary: n < 0\nwas so once\n\nb F\nguard out: x\nnot tried\n"
	if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	reasons, err := readSurvivors(list)
	if err != nil || len(reasons) != 4 || reasons[one.key()] != "Nobody asks for 100." || reasons[second.key()] != reasons[one.key()] {
		t.Fatalf("%v, %v", reasons, err)
	}
	faults := compare(count([]outcome{one, second, other, dead}).Survivors, reasons, []string{"a"})
	if len(faults) != 2 || !strings.Contains(faults[0], "does not say why") || !strings.Contains(faults[0], "x > y") || !strings.Contains(faults[1], "take it out: a May\n\tconditionals boundary: n < 0") {
		t.Errorf("faults: %q", faults)
	}
	if faults := compare([]outcome{one, third}, reasons, []string{"a"}); len(faults) != 3 {
		t.Errorf("with the third instead of the second: %q", faults)
	}
	if faults := compare([]outcome{one}, reasons, nil); len(faults) != 0 {
		t.Errorf("of what was not mutated whole: %q", faults)
	}
	for _, wrong := range []string{"a May\nguard out: x\n", "a May\nx\nwhy\n", "May\nguard out: x\nwhy\n", "a May\nguard in: x\nwhy\n",
		"a f\nguard out: x\nwhy\n\na f\nguard out: x\nwhy\n"} {
		if err := os.WriteFile(list, []byte(wrong), 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := readSurvivors(list); err == nil || !strings.Contains(err.Error(), list+":") {
			t.Errorf("%q is read as %v, %v", wrong, r, err)
		}
	}
}

// An entry for a function that is there no more, or for a mutant that is not made of
// it any more, would be a reason for nothing.
func TestTheListNamesMutantsThatAreThere(t *testing.T) {
	reasons, err := readSurvivors("survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string][]string{}
	for key := range reasons {
		folder, _, _ := strings.Cut(key, " ")
		if there[folder] == nil {
			there[folder] = everyMutant(t, folder)
		}
		if !slices.Contains(there[folder], key) {
			t.Errorf("survivors.txt lists %q; the nearest of the package: %s", key, code.Nearest(key, there[folder]))
		}
	}
}

// everyMutant is the keys of a package's mutants. Those of operators are gremlins',
// which is not asked here: each that it could name is taken for there.
func everyMutant(t *testing.T, folder string) (keys []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		s, err := readSource("../..", filepath.Join(folder, filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.guardsOut()...)
		for n := range ast.Preorder(s.file) {
			at := operatorOf(n)
			if !at.IsValid() {
				continue
			}
			for kind, becomes := range mutations {
				if _, ok := becomes[s.tokenAt(at)]; ok {
					m, err := s.operator(kind, at)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, m)
				}
			}
		}
	}
	number(all)
	for _, m := range all {
		keys = append(keys, m.key())
	}
	return keys
}
