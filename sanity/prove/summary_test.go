package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

var update = flag.Bool("update", false, "write the table of docs/proof.md from the kept results")

func TestThePageForPeopleSaysWhatTheKeptResultsSay(t *testing.T) {
	page, kept := filepath.Join(root, proofPage), filepath.Join(root, resultsIn)
	if *update {
		if err := writeSummary(page, kept); err != nil {
			t.Fatal(err)
		}
	}
	text, err := summary(kept)
	if err != nil {
		t.Fatal(err)
	}
	now := []byte(read(t, proofPage))
	want, err := tool.Between(now, "make prove", text)
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if string(now) != string(want) {
		t.Errorf("%s is not what %s says: go test ./sanity/prove -run %s -update", proofPage, resultsIn, t.Name())
	}
}

// What sums a part up is there: a figure that was renamed would be left out in silence.
func TestEachKeptResultHasTheFiguresThatSumItUp(t *testing.T) {
	for _, p := range parts {
		r, err := result.Read(filepath.Join(root, resultsIn, p.name+".json"))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.counts {
			if one := (part{counts: []string{name}}); len(one.counted(r)) == 0 {
				t.Errorf("the result of %s has no figure that begins with %q", p.name, name)
			}
		}
	}
}

func TestTheSummaryHidesNoFailureAndNoPartThatWasNotRun(t *testing.T) {
	kept := t.TempDir()
	r := result.Result{Part: "simulation", Command: "c", Began: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Failures: []string{"two writers"},
		Figures: []result.Figure{{Name: "tier 1: schedules", Value: 1234567, Unit: "schedules"}, {Name: "tier 1: others", Value: 8}}}
	if err := r.Write(filepath.Join(kept, "simulation.json")); err != nil {
		t.Fatal(err)
	}
	text, err := summary(kept)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| simulation | tier 1: 1,234,567 schedules | **1: IT DOES NOT HOLD** | 2026-01-02 |\n", "| model | not run yet | | |\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	if err := os.WriteFile(filepath.Join(kept, "model.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := summary(kept); err == nil {
		t.Error("a result that cannot be read is passed over")
	}
}
