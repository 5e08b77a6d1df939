package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// scenario is one failure of the field.
type scenario struct {
	// name of the stage: a short DNS label.
	name string
	// rule that it holds up, as a sentence.
	rule string
	// from is where the case was reported, as owner/repository#number.
	from    string
	options bed.StageOptions
	// ownBed gives it a control plane to itself.
	ownBed bool
	// guardedOnly: there is nothing to compare with Kubernetes alone.
	guardedOnly bool
	// story plays it. It must go through without csi-fencepost as well (see
	// play.guarded), unless guardedOnly.
	story func(p *play)
}

// play is a scenario being played, with csi-fencepost or with Kubernetes alone.
type play struct {
	*bed.Stage
	t *testing.T

	outcomes []string
}

// guarded tells whether csi-fencepost is there.
func (p *play) guarded() bool { return !p.Options.Alone }

// outcome notes what came of it, for the catalogue.
func (p *play) outcome(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.outcomes = append(p.outcomes, text)
	p.Log("outcome: %s", text)
}

// within waits for something that csi-fencepost promises. With Kubernetes
// alone it is only noted whether it comes.
func (p *play) within(limit time.Duration, what string, ok func() bool) (time.Duration, bool) {
	p.t.Helper()
	if p.guarded() {
		return p.WaitFor(limit, what, ok), true
	}
	for began := time.Now(); time.Since(began) < limit; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return time.Since(began), true
		}
	}
	return limit, false
}

// runScenario plays s with csi-fencepost, or with Kubernetes alone, and returns
// what came of it.
func runScenario(t *testing.T, s scenario, alone bool) string {
	t.Helper()
	var b *bed.Bed
	if s.ownBed {
		b = bed.New(t, shared.programs, clocks)
	} else {
		b = sharedBed(t)
	}
	options, name := s.options, s.name
	options.Alone = alone
	if alone {
		name += "-k"
	}
	if !options.Failover && !strings.Contains(options.Config, "maxUnhealthy") {
		// Other scenarios' dead nodes are no storm.
		options.Config += "\nfencing: {maxUnhealthy: 100%}"
	}
	p := &play{Stage: b.Stage(t, name, options), t: t}
	if !alone {
		defer p.NoViolations() // also of a story that stopped half-way
	}
	s.story(p)
	return strings.Join(append(p.outcomes, seen(p.Array.Violations())...), "; ")
}

// seen sums up what the oracle saw.
func seen(violations []array.Violation) []string {
	var double, could, taken int
	for _, v := range violations {
		switch v.Kind {
		case array.DoubleWrite:
			double += v.Count
		case array.CouldDoubleWrite:
			could++
		case array.TakenInUse:
			taken++
		}
	}
	var out []string
	if double > 0 {
		out = append(out, fmt.Sprintf("**two nodes wrote at once (%d writes mixed up)**", double))
	} else if could > 0 {
		out = append(out, "**two nodes could write at once**")
	}
	if taken > 0 {
		out = append(out, "**volume taken from a node that used it**")
	}
	return out
}
