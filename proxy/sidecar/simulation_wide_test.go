package sidecar

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/simulate"
)

var (
	wide     = flag.Bool("wide", false, "TestSimulationWide in the place of TestSimulation: -schedules of the wide world; TestObligations: of the wide world")
	shrinkTo = flag.String("shrink-to", "", "TestSimulationWide: write what failing schedules shrink to into this folder")
	shrinks  = flag.Int("shrink", 3, "TestSimulationWide: how many schedules of each broken rule are shrunk")
)

// smokeWide bounds what a test run has for the wide world.
const smokeWide = 8 * time.Second

// TestSimulationWide explores the wide world (sanity/simulate/wide.go). What fails there
// is known, and counted: the figures are printed, and fail nobody.
func TestSimulationWide(t *testing.T) {
	c := simulate.Campaign{Factory: partsOfTier1, Wide: true, Enough: 1_000_000, From: *firstSeed, Schedules: 400, Within: bound(smokeWide)}
	if *wide {
		c.Schedules, c.Within = max(*schedules, 1), *atMost
	}
	c.Run(t)
	t.Logf("%d schedules of the wide world, %d of them fail", c.Ran(), len(c.Failures))
	rules := map[string][]simulate.Result{}
	for _, f := range c.Failures {
		rules[f.Rule] = append(rules[f.Rule], f)
	}
	for rule, failed := range rules {
		t.Logf("%6d break %s, such as seed %d: %s", len(failed), rule, failed[0].Seed, failed[0].Violation)
		if rule == "stuck" {
			var seeds []uint64
			for _, f := range failed {
				seeds = append(seeds, f.Seed)
			}
			t.Logf("       seeds %v", seeds)
			continue
		}
		for _, f := range failed {
			t.Logf("       seed %d: %s", f.Seed, f.Violation)
		}
	}
	t.Log("what was excused there:")
	for _, line := range c.WideLimits() {
		t.Log(line)
	}
	t.Log("what the end waited for a person for:")
	for _, line := range c.Waits() {
		t.Log(line)
	}
	if *shrinkTo == "" {
		return
	}
	for rule, failed := range rules {
		slices.SortFunc(failed, func(a, b simulate.Result) int { return len(a.Trace) - len(b.Trace) })
		for _, f := range failed[:min(*shrinks, len(failed))] {
			small := simulate.Shrink(t, partsOfTier1, f)
			path := filepath.Join(*shrinkTo, fmt.Sprintf("%s-%d.txt", rule, f.Seed))
			if err := os.WriteFile(path, []byte(small.Script()), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestTheWideWorldDrawsItsEvents: each comes up in some of the first schedules.
func TestTheWideWorldDrawsItsEvents(t *testing.T) {
	const enough = 600
	left := map[string]bool{"another driver": true, "two versions": true, simulate.OldTaint: true, simulate.SlowLists: true, simulate.Away: true, simulate.Back: true, simulate.SecondPV: true, simulate.DropPV: true}
	for seed := uint64(1); seed <= enough && len(left) > 0; seed++ {
		r := simulate.RandomWide(t, partsOfTier1, seed)
		for _, e := range r.Trace {
			delete(left, e.Verb)
		}
		if r.Setup.Neighbour {
			delete(left, "another driver")
		}
		if r.Setup.Versions {
			delete(left, "two versions")
		}
	}
	for verb := range left {
		t.Errorf("%s is drawn in none of %d schedules", verb, enough)
	}
}

// TestWhatBreaksInTheWideWorld replays schedules that are known to fail (sanity/simulate/RESULTS.md). One
// that fails no more has to lose its mark: its script moves to the stories that hold.
func TestWhatBreaksInTheWideWorld(t *testing.T) {
	eachScript(t, "wide", func(t *testing.T, path, text string) {
		setup, events, err := simulate.ParseScript(text)
		if err != nil {
			t.Fatal(err)
		}
		rule, _, _ := strings.Cut(filepath.Base(path), "-")
		if r := simulate.Narrate(t, partsOfTier1, setup, events, nil); r.Rule != rule {
			t.Errorf("%s is known to break %s, and breaks %q (%s): take it out of the folder of what breaks", path, rule, r.Rule, r.Violation)
		}
	})
}

// eachScript runs a test for each script of a folder of those that are known to fail.
func eachScript(t *testing.T, folder string, run func(t *testing.T, path, text string)) {
	scripts, err := filepath.Glob("../../sanity/simulate/testdata/" + folder + "/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts (%v)", len(scripts), err)
	}
	for _, path := range scripts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			run(t, path, string(text))
		})
	}
}
