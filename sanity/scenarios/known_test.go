package scenarios

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/scenarios/outcome"
)

// A mark is on a story that is known to fail with csi-fencepost: what it holds up is
// not so yet. The story's expectations stay as they have to be. It is left out of
// TestScenario and the like, shown as failing in the catalogue, and played by
// TestKnownToFail, for which a story that passes is an error: its mark has to go.
type mark struct {
	// why are sentences for the catalogue: what is stuck, and what the rule will be.
	why string
	// fails is a regular expression for what the story then says. With any other
	// failure it does not fail as it is known to.
	fails string
}

// unmarked are those without a mark.
func unmarked(scenarios []scenario) []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.known != nil })
}

func marked(scenarios []scenario) []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.known == nil })
}

var knownFlag = flag.Bool("known-to-fail", false, "TestKnownToFail plays the stories that are known to fail with csi-fencepost")

// TestKnownToFail plays those that are known to fail, with csi-fencepost, and fails
// for each that does not fail as its mark says, and for each in which the storage
// array saw a violation: a mark is for what is stuck, never for what is unsafe.
func TestKnownToFail(t *testing.T) {
	stories := marked(everyStory)
	if !*knownFlag {
		t.Skipf("%d stories that are known to fail with csi-fencepost are not played: -known-to-fail plays them, CATALOGUE.md says why they fail", len(stories))
	}
	t.Parallel()
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("%s", s.rule)
			how := playMarked(t, s, func(*ended) {})
			t.Logf("fails as it is known to: %s", how)
		})
	}
}

// playMarked plays a marked story with csi-fencepost and returns how it failed. It is
// an error of t if the story passes, fails otherwise than its mark says, or if the
// storage array saw a violation.
func playMarked(t *testing.T, s scenario, begun func(*ended)) (how string) {
	t.Helper()
	var end *ended
	run := bed.NewRun(t.Context(), lines{t})
	// The control plane is made outside of the run: it stays for others, and what
	// fails in its start is no failure of the story.
	b := bedFor(t, s)
	err := run.Do(func() error {
		playOn(b, failing{run}, s, false, func(e *ended) { end = e; begun(e) })
		return nil
	})
	var o outcome.Outcome
	if end != nil {
		end.note(&o)
	}
	if err := s.known.judge(err, o); err != nil {
		t.Errorf("%s: %v", s.name, err)
	}
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), s.stageName()+": ")
}

// judge says how a play is not what the mark says; nil: it failed as it is known to.
func (m *mark) judge(failure error, o outcome.Outcome) error {
	switch {
	case o.Violated():
		return fmt.Errorf("the oracle saw: %s: no mark covers that", strings.Join(o.Seen(), ", "))
	case failure == nil:
		return fmt.Errorf("it PASSED, and is marked as known to fail with csi-fencepost: take the mark away")
	case !regexp.MustCompile(m.fails).MatchString(failure.Error()):
		return fmt.Errorf("it failed otherwise than its mark says (%s): %w", m.fails, failure)
	}
	return nil
}

// failing is a run as a story's t.
type failing struct{ *bed.Run }

func (f failing) Error(args ...any) { f.Helper(); f.Errorf("%s", sprint(args)) }
func (f failing) Fatal(args ...any) { f.Helper(); f.Fatalf("%s", sprint(args)) }

func sprint(args []any) string { return strings.TrimSuffix(fmt.Sprintln(args...), "\n") }

// lines logs what is written to it.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Helper()
	l.t.Logf("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// A T is what a story fails through: a *testing.T, or a run whose failure is looked at.
type T interface {
	bed.T
	Error(args ...any)
	Fatal(args ...any)
}

func TestAMarkCoversTheFailureThatItNames(t *testing.T) {
	m := &mark{why: "w.", fails: "in vain: pod db2 is Running"}
	stuck := fmt.Errorf("two-wait: waited 1m0s in vain: pod db2 is Running")
	for _, tt := range []struct {
		what    string
		failure error
		o       outcome.Outcome
		says    string
	}{
		{"as it says", stuck, outcome.Outcome{}, ""},
		{"a story that passes", nil, outcome.Outcome{}, "take the mark away"},
		{"another failure", context.DeadlineExceeded, outcome.Outcome{}, "otherwise than its mark says"},
		{"stuck and unsafe", stuck, outcome.Outcome{TakenInUse: 1}, "no mark covers that"},
		{"unsafe, and passes", nil, outcome.Outcome{DoubleWrites: 1}, "no mark covers that"},
	} {
		err := m.judge(tt.failure, tt.o)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.says)
		}
	}
}

func TestAMarkSaysWhy(t *testing.T) {
	for _, s := range marked(everyStory) {
		if _, err := regexp.Compile(s.known.fails); err != nil || s.known.fails == "" {
			t.Errorf("story %s: its mark says that it fails with %q: %v", s.name, s.known.fails, err)
		}
		if !strings.HasSuffix(s.known.why, ".") || strings.Contains(s.known.why, "|") {
			t.Errorf("story %s: its mark says why with %q, which are no sentences for a table", s.name, s.known.why)
		}
	}
}
