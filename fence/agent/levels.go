package agent

import (
	"slices"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
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
	// Poll is how often a node that holds volumes is asked whatever its lease says; 0: never. A
	// level is polled if all of its agents are.
	Poll time.Duration
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

// covers tells whether the level covers the node. An empty level confirms nothing, so it covers no
// node.
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

// Polled is the level by which the node's power is asked whatever its lease says, alone, and how
// often: the first that covers the node. None: that one is not polled, or there is none.
func (l Levels) Polled(node string) (Levels, time.Duration) {
	for i, level := range l {
		if level.covers(node) {
			if every := level.poll(); every > 0 {
				return l[i : i+1], every
			}
			break
		}
	}
	return nil, 0
}

// poll is as often as all of its agents are; 0: one of them is not, or reads no power.
func (l Level) poll() (every time.Duration) {
	for _, b := range l {
		if b.Poll <= 0 || b.Agent.Proves() != fence.PowerReading {
			return 0
		}
		every = max(every, b.Poll)
	}
	return every
}

// Covers tells whether some level can fence the node: one all of whose agents
// cover it. The other levels are passed over for that node.
func (l Levels) Covers(node string) bool {
	return slices.ContainsFunc(l, func(level Level) bool { return level.covers(node) })
}
