package waiting

import (
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// maxRecent bounds what Recent keeps.
const maxRecent = 100

// Said is one judged call as it is shown to people, and how often it came.
type Said struct {
	guard.Decision
	// Verdict in one word, as the metric has it: allow, would refuse.
	Verdict string
	// From names the nodes that the volume was taken from; empty: none.
	From []string
	// First and Last time that it was said, and how often in between.
	First, Last time.Time
	Times       int
}

// Recent are the last decisions, at most 100. A call that is repeated and
// answered the same stays one entry, so that the retries of one volume do not
// push out what is known of the others. It is safe for concurrent use, and the
// zero Recent is empty.
type Recent struct {
	mu   sync.Mutex
	said []Said // the one that was said last is last
}

// List are the decisions, the newest first.
func (r *Recent) List() []Said {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Said, 0, len(r.said))
	for i := len(r.said) - 1; i >= 0; i-- {
		all = append(all, r.said[i])
	}
	return all
}

// decided takes note of a decision.
func (r *Recent) decided(d guard.Decision, verdict string) {
	r.add(Said{Decision: d, Verdict: verdict})
}

// tookOver takes note of a publish for which other nodes were unpublished.
func (r *Recent) tookOver(d guard.Decision, from []fence.Holder) {
	said := Said{Decision: d, Verdict: "took over"}
	for i := range from {
		said.From = append(said.From, from[i].Describe())
	}
	r.add(said)
}

func (r *Recent) add(said Said) {
	now := time.Now()
	said.First, said.Last, said.Times = now, now, 1
	if h := said.Holder; h != nil {
		// Its evidence may be large, and is not shown.
		said.Holder = &fence.Holder{NodeName: h.NodeName, NodeID: h.NodeID}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.said) - 1; i >= 0; i-- {
		old := &r.said[i]
		if old.Call != said.Call || old.Volume != said.Volume || old.NodeID != said.NodeID {
			continue
		}
		if old.Verdict == said.Verdict && old.Reason == said.Reason && old.Text == said.Text {
			said.First, said.Times = old.First, old.Times+1
			r.said = append(r.said[:i], r.said[i+1:]...)
		}
		break
	}
	if len(r.said) >= maxRecent {
		r.said = append(r.said[:0], r.said[1:]...)
	}
	r.said = append(r.said, said)
}
