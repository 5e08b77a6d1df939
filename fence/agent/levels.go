package agent

import (
	"slices"
	"time"
)

// Bounded is an Agent with the limits that it is called under.
type Bounded struct {
	Agent Agent
	// Timeout bounds each single call, and how long the readings after an Off
	// are waited for; 0: 20 s.
	Timeout time.Duration
	// Attempts is how often Off (or On) is sent before the next level; less
	// than 1: once.
	Attempts int
}

// Level is a set of agents that must all confirm.
type Level []Bounded

// Levels are tried in order, as in Pacemaker.
type Levels []Level

// defaultTimeout is for a Bounded without one.
const defaultTimeout = 20 * time.Second

func (b Bounded) timeout() time.Duration {
	if b.Timeout <= 0 {
		return defaultTimeout
	}
	return b.Timeout
}

func (b Bounded) attempts() int { return max(b.Attempts, 1) }

// covers: an empty level confirms nothing, so it covers no node.
func (l Level) covers(node string) bool {
	for _, b := range l {
		if !b.Agent.Covers(node) {
			return false
		}
	}
	return len(l) > 0
}

func (l Level) attempts() int {
	n := 1
	for _, b := range l {
		n = max(n, b.attempts())
	}
	return n
}

// Covers tells whether some level can fence the node: one all of whose agents
// cover it. The other levels are passed over for that node.
func (l Levels) Covers(node string) bool {
	return slices.ContainsFunc(l, func(level Level) bool { return level.covers(node) })
}
