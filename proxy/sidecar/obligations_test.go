package sidecar

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate"
)

var (
	refusals = flag.Int("refusals", 0, "TestObligations: how many refusals are judged; 0: as many as -simulate-for allows, or a few seconds")
	waits    = flag.Bool("waits", false, "TestObligations: judge what waits at the end of schedules of the wide world, once everything has healed")
	owedTo   = flag.String("owed", "", "TestObligations: shrink the defects, a few of each reason, and write their scripts to this folder")
)

// TestObligations judges refusals against what becomes of the same state without
// csi-fencepost (package simulate, obligation.go), with -wide those of the wide world. What is known to fail fails no test:
// it is counted, and sanity/simulate/RESULTS.md has the table.
func TestObligations(t *testing.T) {
	o := simulate.Obligations{Factory: partsOfTier1, Wide: *wide || *waits, Waits: *waits, From: *firstSeed, Refusals: *refusals, Within: *atMost, Progress: func(text string) { fmt.Println("obligations:", text) }}
	if *refusals == 0 {
		o.Refusals = math.MaxInt
		if o.Within == 0 {
			o.Within, o.Progress = smokeOwed, nil
		}
	}
	began := time.Now()
	o.Run(t)
	r := result.Result{Part: "obligations", Began: began, Seconds: time.Since(began).Seconds()}
	o.Figures(&r)
	for _, f := range r.Figures {
		t.Logf("%s: %.0f", f.Name, f.Value)
	}
	for _, v := range []simulate.Verdict{simulate.Defect, simulate.Exception} {
		t.Logf("each %s, by what stands in the way and what is so:", v)
		for _, line := range o.Kinds(v) {
			t.Log(line)
		}
	}
	if *waits {
		for _, line := range o.WaitsBy() {
			t.Log(line)
		}
	}
	breaks := t.Errorf
	if *wide || *waits {
		breaks = t.Logf // what breaks there is known, and sanity/simulate/RESULTS.md counts it
	}
	for rule, n := range o.Broken {
		breaks("%d schedules break %s before anything is forked; TestSimulation shrinks them, with -seed=%d", n, rule, *firstSeed)
	}
	for _, j := range o.Judgements {
		if j.Broken != "" {
			breaks("the guarded run after a refusal breaks %s\n%s", j.Broken, j.Script())
		}
	}
	if n := o.Count(simulate.NotRepeated); n > 0 {
		t.Errorf("%d scripts did not lead to the state of their refusal again: %s", n, o.Kinds(simulate.NotRepeated))
	}
	if *owedTo != "" {
		writeOwed(t, &o)
	}
	if *refusals == 0 && o.Judged < fewJudged {
		t.Errorf("%d refusals were judged in %s, want %d", o.Judged, o.Within, fewJudged)
	}
}

const (
	// smokeOwed bounds what a test run has for it, and fewJudged is how many refusals
	// that is at least.
	smokeOwed = 10 * time.Second
	fewJudged = 3
	// eachReason is how many defects of a reason are shrunk, each for shrinkFor.
	eachReason = 1
	shrinkFor  = 20 * time.Second
)

func writeOwed(t *testing.T, o *simulate.Obligations) {
	count := map[string]int{}
	for _, j := range o.Judgements {
		if kind := string(j.Verdict) + j.Why + j.Hidden; j.Verdict == simulate.Defect && count[kind] < eachReason {
			count[kind]++
			small := j.Shrink(t, partsOfTier1, time.Now().Add(shrinkFor))
			path := filepath.Join(*owedTo, fmt.Sprintf("owed-%03d.txt", len(count)*10+count[kind]))
			if err := os.WriteFile(path, []byte(small.Script()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWhatIsStillOwed replays the refusals that are known to be defects, for the reasons
// that their scripts name. One that is none any more has to lose its mark: its script
// moves to what is served.
func TestWhatIsStillOwed(t *testing.T) {
	if testing.Short() {
		t.Skip("each is searched for what stands in the way, on one goroutine: without -short")
	}
	eachScript(t, "owed", func(t *testing.T, path, text string) {
		j, err := simulate.JudgeScript(t, partsOfTier1, text)
		if err != nil {
			t.Fatal(err)
		}
		if j.Verdict != simulate.Defect {
			t.Errorf("%s is no defect any more, but %s (hidden: %q): take it out of the folder of what is owed", path, j.Verdict, j.Hidden)
		}
		if way := "# What stands in the way then: " + j.Why + ".\n"; !strings.Contains(text, way) {
			t.Errorf("%s is a defect for other reasons than it names: %s", path, way)
		}
	})
}

// TestADeadlockIsNotItsNeighbour: without the one thing that each everyday deadlock is
// about (sanity/simulate/RESULTS.md), nothing that is owed is missed.
func TestADeadlockIsNotItsNeighbour(t *testing.T) {
	for script, thing := range map[string][]string{ // in pairs, what is replaced by what
		"never-attached":      {"power-off n2\nclock 60s\nnot-ready n2\n", ""},
		"registered-again":    {"delete-node n1\nrestart-kubelet n1 quick\n", ""},
		"scaled-in-while-out": {"mode bypass\n", "", "mode enforce\n", ""},
	} {
		t.Run(script, func(t *testing.T) {
			text, err := os.ReadFile("../../sanity/simulate/testdata/owed/" + script + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(thing); i += 2 {
				if !strings.Contains(string(text), thing[i]) {
					t.Fatalf("there is no %q", thing[i])
				}
			}
			j, err := simulate.JudgeScript(t, partsOfTier1, strings.NewReplacer(thing...).Replace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if j.Verdict != simulate.Kept && j.Verdict != simulate.NothingOwed {
				t.Errorf("it is %s (%s)", j.Verdict, j.Why)
			}
		})
	}
}

// TestWhatIsServed replays refusals that were defects once, and where nothing that is owed
// is missed any more: none is refused there, or the volume comes in time.
func TestWhatIsServed(t *testing.T) {
	eachScript(t, "served", func(t *testing.T, path, text string) {
		j, err := simulate.JudgeScript(t, partsOfTier1, text)
		if err != nil {
			t.Fatal(err)
		}
		if j.Verdict != simulate.Kept && j.Verdict != simulate.NothingOwed {
			t.Errorf("%s is %s (%s)", path, j.Verdict, j.Why)
		}
	})
}

// TestWhatATwinExcuses replays refusals that look like defects and have a twin: something
// that nobody could see would have made two writers.
func TestWhatATwinExcuses(t *testing.T) {
	eachScript(t, "excused", func(t *testing.T, path, text string) {
		j, err := simulate.JudgeScript(t, partsOfTier1, text)
		if err != nil {
			t.Fatal(err)
		}
		if j.Verdict != simulate.Exception {
			t.Errorf("%s is %s, and not an exception", path, j.Verdict)
		}
	})
}
