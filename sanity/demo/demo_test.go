package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/bench/blackout"
)

func TestAStoryThatIsNotThereIsAnErrorThatListsThem(t *testing.T) {
	for _, c := range []struct {
		name string
		rest []string
		want []string
	}{
		{"nonsense", nil, []string{`no story "nonsense"`, "double-publish", "power-off"}},
		{"double-publish", []string{"power-off"}, []string{`"power-off" is not a flag`}},
	} {
		_, err := choose(c.name, false, c.rest)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v: error %v, want %q", c.name, c.rest, err, want)
			}
		}
	}
	if s, err := choose("double-publish", false, nil); err != nil || s.play == nil {
		t.Errorf("double-publish: %v", err)
	}
}

func TestAStoryNamesTheProgramThatIsMissingAndHowToGetIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := choose("power-off", false, nil); err == nil || !strings.Contains(err.Error(), "ipmi_sim") || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("without ipmi_sim: error %v", err)
	}
	program := filepath.Join(os.Getenv("PATH"), "ipmi_sim")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := choose("power-off", false, nil); err != nil {
		t.Errorf("with ipmi_sim: %v", err)
	}
}

// raced is a race in which everything happened those seconds after the power's end.
func raced(notReady, proven, published, running float64, moved int) *race {
	off := time.Now()
	at := func(s float64) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return off.Add(time.Duration(s * float64(time.Second)))
	}
	r := &race{lane: guarded, when: blackout.Moments{PowerOff: off, NotReady: at(notReady), Proven: at(proven)}}
	for range moved {
		r.when.Published, r.when.Running = append(r.when.Published, at(published)), append(r.when.Running, at(running))
	}
	return r
}

func TestTheVerdictOfPowerOffFailsUnlessEverythingIsAsPromised(t *testing.T) {
	waiting := raced(48, 0, 0, 0, 0)
	for name, c := range map[string]struct {
		alone, guarded *race
		want           string // empty: as promised
	}{
		"as promised":               {waiting, raced(48, 14, 16, 18, databases), ""},
		"one is missing":            {waiting, raced(48, 14, 16, 18, databases-1), "only 19 of 20"},
		"published late":            {waiting, raced(48, 14, 31, 32, databases), "promised were 30s"},
		"running late":              {waiting, raced(48, 14, 16, 61, databases), "promised were 1m0s"},
		"moved without a proof":     {waiting, raced(48, 0, 16, 18, databases), "before its node was proven dead"},
		"moved before the proof":    {waiting, raced(48, 17, 16, 18, databases), "before its node was proven dead"},
		"alone it moves as well":    {raced(48, 0, 20, 22, 1), raced(48, 14, 16, 18, databases), "compares nothing"},
		"alone it was not noticed":  {raced(0, 0, 0, 0, 0), raced(48, 14, 16, 18, databases), "compares nothing"},
		"nothing happened anywhere": {raced(0, 0, 0, 0, 0), raced(0, 0, 0, 0, 0), "only 0 of 20"},
	} {
		err := judgeRace(c.alone, c.guarded)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTheVerdictOfPowerOffFailsOnAViolation(t *testing.T) {
	alone, r := raced(48, 0, 0, 0, 0), raced(48, 14, 16, 18, databases)
	alone.found = []array.Violation{{Kind: array.TakenInUse}} // not ours to promise
	if err := judgeRace(alone, r); err != nil {
		t.Fatal(err)
	}
	r.found = []array.Violation{{Kind: array.TakenInUse}}
	if err := judgeRace(alone, r); err == nil || !strings.Contains(err.Error(), "the oracle saw") {
		t.Errorf("error %v, want the oracle's finding", err)
	}
}

func TestAStoryThatIsStoppedKeepsNothing(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	n := bed.NewRun(ctx, nil)
	func() {
		defer func() { _ = recover() }()
		n.Fatalf("waited in vain")
	}()
	if !n.Failed() {
		t.Error("a story that failed keeps no logs")
	}
	stop()
	if n.Failed() {
		t.Error("a story that was stopped keeps its folder")
	}
}
