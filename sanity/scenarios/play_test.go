package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/scenarios/outcome"
)

// scenario is one failure of the field.
type scenario struct {
	// name of the scenario, and of its stage: a DNS label.
	name string
	// stage is the name of its stage where name is too long for one.
	stage string
	// rule that it holds up, as a sentence.
	rule string
	// from is where the case was reported: references of Cases, with commas.
	from    string
	options bed.StageOptions
	// ownBed gives it a control plane to itself.
	ownBed bool
	// guardedOnly: there is nothing to compare with Kubernetes alone.
	guardedOnly bool
	// known marks it as known to fail with csi-fencepost; nil: it has to pass.
	known *mark
	// story plays it. It must go through without csi-fencepost as well (see
	// play.guarded), unless guardedOnly.
	story func(p *play)
}

// play is a scenario being played, with csi-fencepost or with Kubernetes alone.
type play struct {
	*bed.Stage
	t T

	addresses map[string]string // at the array, by node ID
	outcomes  []string
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
	for began := time.Now(); time.Since(began) < limit; bed.Pause(began) {
		if ok() {
			return time.Since(began), true
		}
	}
	return limit, false
}

// stageName is short: sockets' paths are made of it.
func (s scenario) stageName() string {
	if s.stage != "" {
		return s.stage
	}
	return s.name
}

// runScenario plays s with csi-fencepost, or with Kubernetes alone, and returns
// what came of it.
func runScenario(t *testing.T, s scenario, alone bool) string {
	t.Helper()
	var e *ended
	playScenario(t, s, alone, func(begun *ended) { e = begun })
	var o outcome.Outcome
	e.note(&o)
	return strings.Join(append([]string{o.Text}, o.Seen()...), "; ")
}

// playScenario plays s. begun is told where to look for what came of it, also of
// a story that stops half-way.
func playScenario(t *testing.T, s scenario, alone bool, begun func(*ended)) {
	t.Helper()
	playOn(bedFor(t, s), t, s, alone, begun)
}

// bedFor is the control plane that s is played on.
func bedFor(t *testing.T, s scenario) *bed.Bed {
	t.Helper()
	if s.ownBed {
		return bed.New(t, shared.programs, clocks)
	}
	return sharedBed(t)
}

// playOn plays s on a control plane.
func playOn(b *bed.Bed, t T, s scenario, alone bool, begun func(*ended)) {
	t.Helper()
	options, name := s.options, s.stageName()
	options.Alone = alone
	if alone {
		name += "-k"
	}
	if !options.Failover && !strings.Contains(options.Config, "maxUnhealthy") {
		// Other scenarios' dead nodes are no storm.
		options.Config += "\nfencing: {maxUnhealthy: 100%}"
	}
	p := &play{Stage: b.Stage(t, name, options), t: t}
	begun(&ended{p})
	if !alone {
		defer p.NoViolations()
	}
	s.story(p)
}

// ended is a play to be asked what came of it.
type ended struct{ play *play }

// note puts what the story noted, and what the oracle saw, into o.
func (e *ended) note(o *outcome.Outcome) {
	o.Text = strings.Join(e.play.outcomes, "; ")
	for _, v := range e.play.Array.Violations() {
		switch v.Kind {
		case array.DoubleWrite:
			o.DoubleWrites += v.Count
		case array.CouldDoubleWrite:
			o.CouldDoubleWrite++
		case array.TakenInUse:
			o.TakenInUse++
		}
	}
}
