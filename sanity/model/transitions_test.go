package model

import (
	"slices"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/code"
)

const root = "../.."

// A transition without its row could drift away from the product unseen.
func TestEveryTransitionHasItsRow(t *testing.T) {
	rows, err := Transitions()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, r := range rows {
		have = append(have, r.Name)
	}
	names := named(source)
	if len(names) < 25 {
		t.Fatalf("only %d transitions were found in fencepost.pml", len(names))
	}
	for _, name := range names {
		if !slices.Contains(have, name) {
			t.Errorf("transitions.tsv has no row for %s of fencepost.pml", name)
		}
	}
	for _, name := range have {
		if !slices.Contains(names, name) {
			t.Errorf("transitions.tsv has a row for %s, which is not in fencepost.pml", name)
		}
	}
}

// A function that was renamed may have been changed: somebody has to look
// whether the model is still one of it.
func TestEveryTransitionNamesAFunctionOfTheProduct(t *testing.T) {
	rows, err := Transitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Package != "-" {
			mustDeclare(t, "transitions.tsv, "+r.Name, r.Package, r.Function)
		}
	}
	for _, g := range slices.Concat(Guards, Unexplored) {
		mustDeclare(t, "guards.go, "+g.Switch, g.Package, g.Function)
	}
}

func mustDeclare(t *testing.T, where, folder, function string) {
	t.Helper()
	p, err := code.Open(root, folder)
	if err == nil {
		_, err = p.Func(function)
	}
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

func TestTheCheckOfTransitionsFindsWhatIsMissing(t *testing.T) {
	got := named("inline one(x)\n{\n}\nproctype Replica(byte me)\n{\ntwo:\n\tskip\n}\n\nproctype World()\n{\nend:\n\tskip\n}\n")
	if !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("named found %q, want one and two", got)
	}
}
