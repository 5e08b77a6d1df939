package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Ask reads the machine's state, level by level, and changes nothing. It stops
// at the first level all of whose agents read Off, or at the first level all of
// whose agents read On, at least one of them the power: access that is open
// says nothing of the power, so levels behind it are asked.
//
// An agent that reads On contradicts a later level's Off of the same kind: the
// outcome is Unclear. A level of another kind is not contradicted: a machine
// with power may be cut off from its storage, and one without power is off
// although its access was left open.
func (l Levels) Ask(ctx context.Context, m Machine) Outcome {
	return l.AskHearing(ctx, m, func(string, State) {})
}

// AskHearing is Ask, which tells heard of each reading as it comes: an agent that does not answer
// keeps the outcome back for as long as it takes, and what another one has read is known before.
// heard must not block, and be safe for concurrent use.
func (l Levels) AskHearing(ctx context.Context, m Machine, heard func(agent string, s State)) Outcome {
	r := &run{m: m}
	var seen verdicts
	for i, level := range l {
		if !level.covers(m.Node) {
			continue
		}
		states := make([]State, len(level))
		level.each(func(j int, b Bounded) {
			states[j] = r.read(ctx, b, where{i + 1, 1})
			heard(b.Agent.Name(), states[j])
		})
		if o, done := seen.add(i+1, level, states); done {
			return r.outcome(o, seen)
		}
	}
	return r.outcome(seen.rest(m), seen)
}

// verdict is one agent's last reading.
type verdict struct {
	b     Bounded
	level int
	state State
}

func (v verdict) String() string {
	return fmt.Sprintf("agent %s of level %d reads %s", v.b.Agent.Name(), v.level, v.state)
}

// verdicts are those of all levels so far.
type verdicts []verdict

// add judges a level. done: no further level need be asked.
func (v *verdicts) add(n int, level Level, states []State) (o Outcome, done bool) {
	earlier := *v
	for i, b := range level {
		*v = append(*v, verdict{b, n, states[i]})
	}
	if all(states, Off) {
		kind := level.kind()
		if on := earlier.contradicting(level); len(on) > 0 {
			return Outcome{Why: contradiction(on, n)}, true
		}
		return Outcome{State: Off, Kind: kind, Level: n, Why: fmt.Sprintf("every agent of level %d reads off", n)}, true
	}
	if all(states, On) && level.kind() == fence.PowerReading && !earlier.any(Off) {
		return Outcome{State: On, Kind: fence.PowerReading, Level: n, Why: fmt.Sprintf("every agent of level %d reads on", n)}, true
	}
	return Outcome{}, false
}

// contradicting are the agents that read On of what the level reads Off of.
func (v verdicts) contradicting(level Level) (on []verdict) {
	kinds := map[fence.Kind]bool{}
	for _, b := range level {
		kinds[b.Agent.Proves()] = true
	}
	for _, one := range v {
		if one.state == On && kinds[one.b.Agent.Proves()] {
			on = append(on, one)
		}
	}
	return on
}

func contradiction(on []verdict, level int) string {
	return fmt.Sprintf("%s, but every agent of level %d reads off: neither is believed", list(on), level)
}

// rest is what no level confirmed. One outlet that is on is enough for a
// machine to run, whatever the others read.
func (v verdicts) rest(m Machine) Outcome {
	switch {
	case len(v) == 0:
		return Outcome{Why: fmt.Sprintf("no level of agents covers node %s", m.Node)}
	case v.any(On):
		return Outcome{State: On, Kind: v.kind(On), Why: list(v)}
	}
	return Outcome{Why: "no level confirms: " + list(v)}
}

func (v verdicts) any(s State) bool {
	for _, one := range v {
		if one.state == s {
			return true
		}
	}
	return false
}

func list(v []verdict) string {
	words := make([]string, len(v))
	for i, one := range v {
		words[i] = one.String()
	}
	return strings.Join(words, ", ")
}

// kind is what a level that confirms amounts to.
func (l Level) kind() fence.Kind {
	for _, b := range l {
		if b.Agent.Proves() == fence.PowerReading {
			return fence.PowerReading
		}
	}
	return fence.StorageFence
}

func all(states []State, want State) bool {
	for _, s := range states {
		if s != want {
			return false
		}
	}
	return len(states) > 0
}

// kind is what the agents that read s amount to.
func (v verdicts) kind(s State) fence.Kind {
	var level Level
	for _, one := range v {
		if one.state == s {
			level = append(level, one.b)
		}
	}
	return level.kind()
}
