package model

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

var (
	resultFile = flag.String("result", "", "write what was found into this file")
	whole      = flag.Bool("whole", false, "explore the world of two replicas too, which takes minutes (make model)")
)

// explored: the world of two replicas is left to make model, unless it is asked for.
func explored(t *testing.T, defines []string) bool {
	left := !*whole && slices.Contains(defines, "REPLICAS=2")
	if left {
		t.Logf("left to make model: %s", strings.Join(defines, " "))
	}
	return !left
}

func TestMain(m *testing.M) {
	flag.Parse()
	found.began = time.Now()
	code := m.Run()
	if err := report(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// report writes what was found, if anybody asked for it.
func report() error {
	if *resultFile == "" {
		return nil
	}
	r := result.Result{Part: "model", Command: "make model", Began: found.began, Seconds: time.Since(found.began).Seconds(),
		Figures: found.figures, Failures: found.failed}
	r.Add("states of all searches together", found.states, "states")
	for _, a := range Assumptions {
		r.Left = append(r.Left, "assumed: "+a.Text)
	}
	for _, g := range Guards {
		if g.HeldBy != "" {
			r.Left = append(r.Left, "not needed in the model: "+g.Rule+": "+g.HeldBy)
		}
	}
	for _, g := range Unexplored {
		r.Left = append(r.Left, "nothing is shown of "+g.Switch+": "+g.Rule)
	}
	return r.Write(*resultFile)
}

// found is what the searches of this run add up to.
var found struct {
	sync.Mutex
	began   time.Time
	figures []result.Figure
	states  float64
	failed  []string
}

func add(name string, value float64, unit string) {
	found.Lock()
	defer found.Unlock()
	found.figures = append(found.figures, result.Figure{Name: name, Value: value, Unit: unit})
}

func fail(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	found.Lock()
	defer found.Unlock()
	found.failed = append(found.failed, fmt.Sprintf(format, args...))
}

// search runs one exploration. An error of it fails the test: nothing is known then.
func search(t *testing.T, s Search) *Outcome {
	t.Helper()
	s.Memory, s.Optimized = 3800, *whole
	o, err := s.Run(t.Context(), t.TempDir())
	if err != nil {
		fail(t, "%v: %v", s.Defines, err)
		t.FailNow()
	}
	t.Logf("%s: %.0f states, %.0f transitions, depth %.0f, %.0f MB, %.1f s: %s", strings.Join(s.Defines, " "), o.States, o.Transitions, o.Depth, o.Memory, o.Seconds, verdict(o))
	found.Lock()
	found.states += o.States
	found.Unlock()
	return o
}

func verdict(o *Outcome) string {
	if o.Violation == "" {
		return "complete, no violation"
	}
	return fmt.Sprintf("%s, after %d steps", o.Violation, len(o.Trail))
}

// Rules R1 and R2 hold in every state of every world.
func TestModelHoldsTheRules(t *testing.T) {
	for _, w := range Worlds {
		if !explored(t, w.Defines) {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			o := search(t, Search{Defines: w.Defines, Shortest: true})
			if o.Violation != "" {
				fail(t, "%s: %s:\n%s", w.Name, o.Violation, strings.Join(o.Trail, "\n"))
			}
			add(w.Name+": states", o.States, "states")
			add(w.Name+": transitions", o.Transitions, "transitions")
			add(w.Name+": depth", o.Depth, "steps")
			add(w.Name+": memory", o.Memory, "MB")
			add(w.Name+": time", o.Seconds, "s")
		})
	}
}

// A model that holds the rules without a guard would not notice its loss in the
// product either.
func TestModelNeedsEachGuard(t *testing.T) {
	caught := 0
	for _, g := range Guards {
		if !explored(t, append([]string{g.Switch}, g.World...)) {
			continue
		}
		t.Run(g.Switch, func(t *testing.T) {
			o := search(t, Search{Defines: append([]string{g.Switch}, g.World...), Shortest: true})
			switch {
			case o.Violation == "" && g.HeldBy == "":
				fail(t, "without %s (%s) the rules hold all the same", g.Switch, g.Rule)
			case o.Violation != "" && g.HeldBy != "":
				fail(t, "without %s the rules break, although %s is said to hold them: %s", g.Switch, g.HeldBy, o.Violation)
			case o.Violation != "":
				caught++
				add("steps to the violation without "+g.Switch, float64(len(o.Trail)), "steps")
			}
		})
	}
	add("guards taken out", float64(len(Guards)), "guards")
	add("found by a violation", float64(caught), "guards")
}

// What the product assumes is written down because something breaks without it.
func TestModelNeedsEachAssumption(t *testing.T) {
	for _, a := range Assumptions {
		if !explored(t, append([]string{a.Switch}, a.World...)) {
			continue
		}
		t.Run(a.Switch, func(t *testing.T) {
			o := search(t, Search{Defines: append([]string{a.Switch}, a.World...), Shortest: true})
			if o.Violation == "" {
				fail(t, "with %s the rules hold all the same: the assumption (%s) is not needed", a.Switch, a.Text)
				return
			}
			add("steps to the violation with "+a.Switch, float64(len(o.Trail)), "steps")
		})
	}
}

// A search that came to its end by running out of something proves nothing.
func TestModelCutShortIsNoResult(t *testing.T) {
	tiny := []string{"REPLICAS=1", "FAULTS=0", "MOVES=1"}
	s := Search{Defines: tiny, Memory: 3800, Depth: 20}
	if o, err := s.Run(t.Context(), t.TempDir()); err == nil {
		t.Errorf("a search to depth 20 is a result: %+v", o)
	}
	s = Search{Defines: tiny, Shortest: true, Memory: 2}
	if o, err := s.Run(t.Context(), t.TempDir()); err == nil {
		t.Errorf("a search in 2 MB is a result: %+v", o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if o, err := (Search{Defines: tiny, Memory: 3800}).Run(ctx, t.TempDir()); err == nil {
		t.Errorf("a search that was ended is a result: %+v", o)
	}
}
