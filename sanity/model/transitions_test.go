package model

import (
	"path/filepath"
	"slices"
	"testing"
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
		if r.File != "-" {
			mustDeclare(t, "transitions.tsv, "+r.Name, r.File, r.Function)
		}
	}
	for _, g := range Guards {
		mustDeclare(t, "guards.go, "+g.Switch, g.File, g.Function)
	}
}

func mustDeclare(t *testing.T, where, file, function string) {
	t.Helper()
	there, err := declares(filepath.Join(root, file), function)
	if err != nil {
		t.Errorf("%s: %v", where, err)
	} else if !there {
		t.Errorf("%s: %s has no function %s", where, file, function)
	}
}

func TestTheCheckOfTransitionsFindsWhatIsMissing(t *testing.T) {
	file := filepath.Join(root, "fence/decision.go")
	for function, want := range map[string]bool{"JudgePublish": true, "Standing.Gone": true, "Gone": false, "JudgeAll": false} {
		if got, err := declares(file, function); err != nil || got != want {
			t.Errorf("declares(%s, %s) = %v, %v, want %v", file, function, got, err, want)
		}
	}
	got := named("inline one(x)\n{\n}\nproctype Replica(byte me)\n{\ntwo:\n\tskip\n}\n\nproctype World()\n{\nend:\n\tskip\n}\n")
	if !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("named found %q, want one and two", got)
	}
}
