package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
	"github.com/csi-fencepost/csi-fencepost/proxy/statusz"
)

const (
	StatuszPath     = "/statusz"
	StatuszJSONPath = "/statusz.json"
)

// Board is what /statusz is put together from. It is shown before the driver and
// the guard are there: that is when somebody asks why.
type Board struct {
	started   time.Time
	version   string
	config    *config.Configuration // nil with --no-kubernetes
	elects    bool                  // there is a leader election
	ready     *Readiness
	leads     atomic.Bool
	agents    readings
	questions questions

	mu     sync.Mutex
	driver string
	parts  *boardParts // nil until the guard is built
}

// boardParts are what knows the state of the guard and of failover. Where failover is apart from
// the guards, waiting, recent and underWay are nil.
type boardParts struct {
	levels   agent.Levels
	waiting  interface{ List() []waiting.Call }
	recent   interface{ List() []waiting.Said }
	underWay func() []string
	index    nodesIndex
	lives    *observe.Tracker
	records  *noderecord.Store
	mover    *failover.Controller // nil: failover is off
}

// NewBoard makes the board of a sidecar. config is nil where nothing is guarded;
// elects tells whether there is a leader election.
func NewBoard(version string, config *config.Configuration, elects bool, ready *Readiness) *Board {
	return &Board{started: time.Now(), version: version, config: config, elects: elects, ready: ready}
}

// Serve adds the page and its JSON to mux.
func (b *Board) Serve(mux *http.ServeMux) {
	h := statusz.NewHandler(b.collect)
	mux.Handle(StatuszPath, h)
	mux.Handle(StatuszJSONPath, h)
}

func (b *Board) SetDriver(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.driver = name
}

// SetLeads tells whether this process leads, or stands by.
func (b *Board) SetLeads(leads bool) { b.leads.Store(leads) }

func (b *Board) setParts(p *boardParts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts = p
}

// collect puts the State together.
func (b *Board) collect(ctx context.Context) *statusz.State {
	b.mu.Lock()
	driver, parts := b.driver, b.parts
	b.mu.Unlock()
	s := statusz.New(time.Now())
	s.Driver, s.Version, s.Started, s.Mode, s.Leader = driver, b.version, b.started.UTC(), "None", "Alone"
	s.Host, _ = os.Hostname()
	if b.config != nil {
		s.Mode = string(b.config.Mode)
	}
	if b.elects {
		s.Leader = "Standby"
		if b.leads.Load() {
			s.Leader = "Leading"
		}
	}
	s.Ready, s.Checks = b.ready.checked()
	if note := b.questions.words(); note != "" {
		s.Notes = append(s.Notes, note)
	}
	if parts == nil {
		return s
	}
	if parts.waiting != nil {
		for _, w := range parts.waiting.List() {
			s.Waiting = append(s.Waiting, waitingShown(&w))
		}
		for _, d := range parts.recent.List() {
			s.Decisions = append(s.Decisions, decisionShown(&d))
		}
		s.UnderWay = parts.underWay()
	}
	s.Agents = b.agents.view(parts.levels)
	b.collectNodes(ctx, s, parts)
	return s
}

func waitingShown(w *waiting.Call) statusz.Waiting {
	v := statusz.Waiting{Call: w.Call, Volume: w.Volume, PV: w.PV, Node: w.NodeName, NodeID: w.NodeID, Holder: w.Holder,
		Reason: string(w.Reason), Text: w.Text, Since: w.Since.UTC(), Times: w.Times}
	if w.Reason != fence.Undecided {
		v.Runbook = w.Reason.Section()
	}
	return v
}

func decisionShown(d *waiting.Said) statusz.Decision {
	v := statusz.Decision{Call: d.Call, Volume: d.Volume, PV: d.PV, Node: d.NodeName, NodeID: d.NodeID, Verdict: d.Verdict,
		Reason: string(d.Reason), Text: d.Text, From: d.From, First: d.First.UTC(), Last: d.Last.UTC(), Times: d.Times}
	if d.Holder != nil {
		v.Holder = cmp.Or(d.Holder.NodeName, d.Holder.NodeID)
	}
	return v
}

// collectNodes adds the nodes that are silent, or of which something is claimed.
func (b *Board) collectNodes(ctx context.Context, s *statusz.State, p *boardParts) {
	records, garbled, err := p.records.List(ctx)
	if err != nil {
		s.Notes = append(s.Notes, "What is claimed of the nodes is not known: "+err.Error())
	}
	for _, g := range garbled {
		s.Notes = append(s.Notes, g.Error())
	}
	if storm, words := p.lives.Storm(); storm {
		s.Notes = append(s.Notes, "Storm: "+words+". Nothing is fenced until it is over.")
	}
	seen := newSeen(p)
	seen.addClaimed(records)
	s.Watched = seen.addSilent()
	if p.mover != nil {
		if now := p.mover.Polling(); now.Nodes > 0 {
			s.Polling = statusz.Polling{Nodes: now.Nodes, PeriodMS: now.Period.Milliseconds(), Short: now.Short, OldestMS: now.Oldest.Milliseconds()}
		}
	}
	all := seen.all()
	for _, n := range all {
		if st := n.failover; st != nil && st.Brake != failover.NoBrake {
			s.Brakes = append(s.Brakes, statusz.Brake{Node: n.name, Reason: string(st.Brake), Text: st.BrakeWords})
		}
	}
	if more := len(all) - statusz.MaxShown; more > 0 {
		all = all[:statusz.MaxShown]
		s.Notes = append(s.Notes, fmt.Sprintf("%d more nodes are not shown.", more))
	}
	for _, n := range all {
		if ctx.Err() != nil {
			s.Notes = append(s.Notes, "Not all nodes were looked at: it took too long.")
			break
		}
		s.Nodes = append(s.Nodes, n.view(p))
	}
	slices.SortStableFunc(s.Nodes, func(a, b statusz.Node) int {
		return cmp.Or(cmp.Compare(urgency(&a), urgency(&b)), strings.Compare(a.Name, b.Name))
	})
}

// urgency orders the nodes: what somebody waits for comes first.
func urgency(n *statusz.Node) int {
	if n.State == statusz.Gone && len(n.Volumes) == 0 {
		return len(byUrgency)
	}
	return slices.Index(byUrgency, n.State)
}

var byUrgency = []string{statusz.Suspected, statusz.Gone, statusz.Fencing, statusz.Lifting, statusz.Fenced, statusz.StorageFenced, statusz.Confirmed, statusz.Unwatched, statusz.Alive}

// note keeps what an agent answered, for people.
func (a metered) note(m agent.Machine, action, result, detail string, err error, since time.Time) {
	v := statusz.Asked{Node: m.Node, Action: action, Result: result, Detail: detail, At: since.UTC(), TookMS: time.Since(since).Milliseconds()}
	if err != nil {
		v.Error = fence.Clip(err.Error())
	}
	a.seen.note(a.Name(), v)
}

// questions are what came of those to csi-fencepost failover. It is safe for concurrent use.
type questions struct {
	mu    sync.Mutex
	node  string // that the last one was about
	why   string // nobody has answered it; empty: somebody has
	since time.Time
	last  time.Time
}

// questionShown is how long a question that nobody has answered is shown: nobody may ask again.
const questionShown = 15 * time.Minute

func (q *questions) note(node string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.why = ""
		return
	}
	if q.last = time.Now(); q.why == "" {
		q.since = q.last
	}
	q.node, q.why = node, err.Error()
	var unanswered *fencer.UnansweredError
	if errors.As(err, &unanswered) {
		q.why = unanswered.Why
	}
}

// words say that nobody answers; empty: the last question was answered, or is long ago.
func (q *questions) words() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.why == "" || time.Since(q.last) > questionShown {
		return ""
	}
	return fmt.Sprintf("csi-fencepost failover has answered no question whether a machine is on since %s (the last one about node %s): %s. "+
		"Until it does, no claim that a node is off counts. Look whether it runs, and leads: kubectl get pods,leases -n %s",
		q.since.UTC().Format(time.RFC3339), q.node, q.why, deploy.ApartNamespace)
}

// readings are each agent's last calls, one for each node. It is safe for
// concurrent use.
type readings struct {
	mu    sync.Mutex
	calls map[string][]statusz.Asked // by agent, the newest last
}

// maxReadings bounds what is kept of one agent.
const maxReadings = 50

func (r *readings) note(agent string, v statusz.Asked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[string][]statusz.Asked{}
	}
	calls := slices.DeleteFunc(r.calls[agent], func(old statusz.Asked) bool { return old.Node == v.Node })
	if len(calls) >= maxReadings {
		calls = slices.Delete(calls, 0, 1)
	}
	r.calls[agent] = append(calls, v)
}

// view are all agents of the levels, asked or not.
func (r *readings) view(levels agent.Levels) []statusz.Agent {
	r.mu.Lock()
	defer r.mu.Unlock()
	views := []statusz.Agent{}
	for i, level := range levels {
		for _, b := range level {
			v := statusz.Agent{Name: b.Agent.Name(), Proves: string(b.Agent.Proves()), Level: i + 1, State: "NeverAsked", Last: []statusz.Asked{}}
			v.Last = append(v.Last, r.calls[v.Name]...)
			slices.Reverse(v.Last)
			if len(v.Last) > 0 {
				v.State = "Answers"
				if v.Last[0].Error != "" {
					v.State = "Fails"
				}
			}
			views = append(views, v)
		}
	}
	return views
}
