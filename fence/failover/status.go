package failover

import (
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// Status is what failover makes of one node now, for people.
type Status struct {
	Node string
	// Life as it was judged at the last look, which was At.
	Life fence.Liveness
	At   time.Time
	// Holds tells that the node holds volumes of the driver.
	Holds bool
	// Proof is the kind of evidence by which it cannot write; empty: none.
	Proof fence.Kind
	// Awaited says in words what would let its volumes move; empty where it is
	// proven off, or lives.
	Awaited string
	// Agents' last answer, and when; zero: they have not been asked.
	Answer   fencer.Answer
	Answered time.Time
	// Brake that keeps it from being fenced, and in words what would release it.
	Brake      Brake
	BrakeWords string
	// Fenced tells that somebody has fenced the node, and that nobody has said that it is over.
	Fenced bool
}

// Status tells what is made of the nodes under work, by name. Without Run there
// are none.
func (c *Controller) Status() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Status, 0, len(c.work))
	for _, w := range c.work {
		if w.seen != nil {
			all = append(all, w.seen.status(w))
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// sight is the last look at a node, kept for people alone.
type sight struct {
	state
	at, asked time.Time
}

// note keeps a look. Nothing is decided by it.
func (w *worker) note(s *state) {
	seen := &sight{state: *s, at: time.Now(), asked: w.asked}
	seen.Pods = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = seen
}

func (s *sight) status(w *worker) Status {
	out := Status{Node: s.Name, Life: s.Life, At: s.at, Holds: s.Holds, Proof: s.Proof, Brake: s.Brake, BrakeWords: s.BrakeWords, Fenced: s.fenced()}
	if s.Answer != nil {
		out.Answer, out.Answered = *s.Answer, s.asked
	}
	why, _ := unprovable(s.Node, w.shared(s.Node))
	if s.suspect() && s.Holds && s.Proof == "" && (s.Answer == nil || s.Answer.State != agent.Off || s.othersFence() || why != "") {
		_, out.Awaited = w.awaited(&s.state)
	}
	return out
}
