package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Asker asks fence agents (a *fencer.Fencer), or another process that has them (a
// *fencer.Apart). The error is then a *fencer.UnansweredError where that says nothing.
type Asker interface {
	// Covers tells whether there is somebody to ask about the node, CoversPower whether
	// there are agents of our own that read its power, AsksPower whether they or another
	// process's can be asked for that, CoversStorage whether there are some
	// that can tell whether its storage is cut off.
	Covers(node string) bool
	CoversPower(node string) bool
	AsksPower(node string) bool
	CoversStorage(node string) bool
	StorageAgents(node string) []string
	Ask(ctx context.Context, t fencer.Target) (fencer.Answer, error)
}

var (
	_ Asker = (*fencer.Fencer)(nil)
	_ Asker = (*fencer.Apart)(nil)
)

const (
	// patience with the agents. An answer that comes later wakes who waits, and is
	// used by the next call.
	patience = 4 * time.Second
	// hurry is the patience with agents that were late within lateFor, until they
	// answer again: enough for an answer that is there. A call to a driver has one of
	// few workers of external-attacher, and a device that hangs must not have them
	// all. Where somebody claims that the node is off, their contradiction is worth
	// the time.
	hurry   = 100 * time.Millisecond
	lateFor = time.Minute
	// glance is the patience with another process's agents where nobody claims that the node is off:
	// enough for one that can tell. That nobody can is said after 3.5 s, and changes nothing then.
	glance = 1500 * time.Millisecond
)

const (
	voidOverridden   = "an operator says that this agent is wrong: "
	voidUnansweredBy = "an operator says that the power need not be asked for: "
)

// AgentReadings is a Source: what the fence agents read of the holder's machine.
type AgentReadings struct {
	asker Asker

	mu   sync.Mutex
	late map[string]lateness // nodes, and when patience last ran out
}

// lateness is when the agents of a node were too late. unsaid: it was another process that said
// nothing, without which no claim counts, and whose answer wakes who waits: no call has to stay for
// it, whatever is claimed.
type lateness struct {
	at     time.Time
	unsaid bool
}

// Agents is the Source of the agents' own readings.
func Agents(f Asker) *AgentReadings { return &AgentReadings{asker: f, late: map[string]lateness{}} }

// Name implements Source.
func (*AgentReadings) Name() string { return "FenceAgents" }

// Evidence implements Source. It asks for a holder that shows no life, for a
// living one that the record says is cut off from the driver's storage, and for one that the
// record says was read as off since its last renewal, with something missing (record.Early). Agents
// that do not answer within 4 s (0.1 s, if they were late a moment ago and nobody
// claims that the node is off) give no evidence yet. Where the record has a storage
// fence nobody can tell then whether it stands: it is void for a holder of the
// ledger, so that a person's word is heard all the same, and an error for any other
// node, which may be the one that asks for the volume, and for a living one that lists
// it: that the agents cannot tell does not say that it writes. So is one that is being
// lifted, whatever the agents read. Where another process has the agents for power and does
// not answer in time, no claim counts, unless an operator overrides that process. A power fence in
// the record is no claim: it counts then, and not against an answer that the machine is on. A machine that has registered under another
// Node since its fence is asked for as it is registered now.
func (s *AgentReadings) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	t, ask := s.target(&q)
	if !ask {
		return nil, nil
	}
	most := s.patience(&q)
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	a, err := s.asker.Ask(limited, t)
	var unanswered *fencer.UnansweredError
	unsaid := errors.As(err, &unanswered) && ctx.Err() == nil
	late := err != nil && limited.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
	if err != nil && !late && !unsaid {
		return nil, err
	}
	if !t.StorageOnly { // or it says nothing of who reads the power
		s.remember(t.Node, late, most, unsaid, a.State)
	}
	found := readings(&q, &a)
	if unsaid {
		found = append(found, unsaidOf(&q, unanswered))
	}
	lifting := s.cut(&q) && q.Record.Fence(fence.StorageFence, q.Driver).BeingLifted() && a.Kind != fence.PowerReading
	if s.cut(&q) && a.Storage != agent.On && (a.State != agent.Off || lifting) {
		found = slices.DeleteFunc(found, func(e fence.Evidence) bool { return !e.On && !e.Unanswered })
		doubt, err := s.cannotTell(&q, late)
		return append(found, doubt...), err
	}
	return found, nil
}

// patience with the agents of that node.
func (s *AgentReadings) patience(q *Question) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, late := s.late[q.Holder.NodeName]
	switch {
	case late && time.Since(last.at) >= lateFor:
		delete(s.late, q.Holder.NodeName)
	case late && (last.unsaid || !saidOff(q)):
		return hurry
	}
	if node := q.Holder.NodeName; s.asker.AsksPower(node) && !s.asker.CoversPower(node) && !saidOff(q) && !early(q) {
		return glance
	}
	return patience
}

// early tells whether nobody here knows the node's lease to be silent, while the record says that
// it was read as off since the last renewal, with something missing. Only an answer makes that a
// proof.
func early(q *Question) bool {
	l := q.Holder.Liveness
	return (l == fence.Alive || l == fence.Unwatched) && q.Record.Early(bound(q)) != nil
}

// saidOff tells whether a person or a cloud says that the node is off, or has deleted it; or that
// the volume is free of it, of a node that was silent then; or a source that was asked before has
// such a claim, of which nothing need stand in the record yet.
func saidOff(q *Question) bool {
	claims := func(e fence.Evidence) bool { return e.Kind.Claim() && e.Void == "" && !e.Living }
	if q.Node == nil || Claimed(q.Node) || slices.ContainsFunc(q.Holder.Evidence, claims) {
		return true
	}
	if slices.ContainsFunc(releasesOf(q), func(rel *record.Release) bool {
		return rel.Life != record.Living && rel.Ended() == "" && q.Record.Vouched(rel)
	}) {
		return true
	}
	r := q.Record
	return r != nil && (len(r.Taints) > 0 || slices.ContainsFunc(r.Confirmations, func(c record.Confirmation) bool {
		return slices.ContainsFunc(c.Machines, func(m record.Machine) bool { return r.Vouched(c.Of(&m)) })
	}))
}

// remember when the agents of that node were too late for the patience that there was. What they
// have not found out after all is no answer, and a glance was no wait for one that a claim needs.
func (s *AgentReadings) remember(node string, late bool, most time.Duration, unsaid bool, read agent.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case late && most != hurry:
		s.late[node] = lateness{time.Now(), unsaid && most == patience}
	case read != agent.Unclear || !unsaid && s.late[node].unsaid:
		delete(s.late, node)
	}
}

// target is what to ask; false: nothing.
func (s *AgentReadings) target(q *Question) (fencer.Target, bool) {
	h := &q.Holder
	t := fencer.Target{Node: h.NodeName, UID: h.NodeUID, BootID: h.BootID, SystemUUID: h.SystemUUID, ProviderID: h.ProviderID, NodeID: h.NodeID, LeaseRV: q.LeaseRV, Claimed: saidOff(q)}
	if t.Node == "" || t.UID == "" || settled(h) {
		return t, false
	}
	cut := s.cut(q)
	covered := s.asker.Covers(t.Node) && (cut || !s.proven(q))
	if node := q.machine(); node != nil {
		t.BootID = node.Status.NodeInfo.BootID
	} else if node := q.anew(); node != nil && cut {
		t.UID, t.BootID, t.StorageOnly = string(node.UID), node.Status.NodeInfo.BootID, true
		return t, true
	} else if q.Node != nil {
		return t, false // the agents know nodes by name, and that is another machine
	}
	// Nothing that is read of the power of one that reports no boot counts.
	if cut && (h.Liveness == fence.Alive || !covered || t.BootID == "" && q.machine() != nil) {
		t.StorageOnly = true
		return t, true
	}
	switch h.Liveness {
	case fence.Stale, fence.Unknown:
		return t, covered
	case fence.Alive:
		return t, covered && early(q)
	case fence.Unwatched:
		p := q.Record.Fence(fence.PowerReading, "")
		return t, covered && (cut || p != nil && p.Machine.NodeUID == t.UID && (p.Missed == "" || early(q)))
	}
	return t, false
}

// proven tells whether the record says, and somebody vouches for it, that the machine is off, and
// nothing was heard of it since; there is nobody to ask about its power, so that is the proof.
func (s *AgentReadings) proven(q *Question) bool {
	f := q.Record.Fence(fence.PowerReading, "")
	return !s.asker.AsksPower(q.Holder.NodeName) && f != nil && f.Phase == record.Fenced && q.Record.Doubt(f) == "" &&
		f.Machine.Same(bound(q)) && f.Machine.LeaseRV == q.LeaseRV
}

// unsaidOf is evidence that nobody has said whether the holder's machine is on.
func unsaidOf(q *Question, err *fencer.UnansweredError) fence.Evidence {
	m := bound(q)
	e := fence.Evidence{Kind: fence.PowerReading, Source: fencer.FailoverAgent, Detail: err.Words(), Unanswered: true,
		NodeName: q.Holder.NodeName, NodeID: q.Holder.NodeID, NodeUID: m.NodeUID, BootID: m.BootID, SystemUUID: m.SystemUUID, LeaseRV: m.LeaseRV}
	if o := q.Record.OverrideOf(fencer.FailoverAgent, m); o != nil {
		e.Void = voidUnansweredBy + o.Reason
	}
	return e
}

// cut tells whether the record says that the node is cut off from the driver's storage, and there
// are agents that can tell.
func (s *AgentReadings) cut(q *Question) bool {
	return q.Record.StorageFenced(q.Driver) && s.asker.CoversStorage(q.Holder.NodeName)
}

// settled tells whether the ledger says that the holder has nothing any more, and nothing disputes
// it; no evidence is asked of such a holder.
func settled(h *fence.Holder) bool {
	listed := h.Node != nil && (h.Node.InUse || h.Node.ListedAttached)
	return h.Contest == nil && !listed && !h.From(fence.FromDriver) && (h.State == fence.Released || h.State == fence.TakenOver)
}

// cannotTell is the evidence where the record says that the storage is cut off, and the agents do
// not say whether it still is. Where an operator says that they are wrong, the record's word
// counts, unless the fence is being lifted.
func (s *AgentReadings) cannotTell(q *Question, late bool) ([]fence.Evidence, error) {
	f := q.Record.Fence(fence.StorageFence, q.Driver)
	m := bound(q)
	names := s.asker.StorageAgents(q.Holder.NodeName)
	if !f.BeingLifted() && q.Record.Vouched(f) && f.Machine.NodeUID == q.Holder.NodeUID && len(names) > 0 &&
		!slices.ContainsFunc(names, func(name string) bool { return !q.Record.Overridden(name, m) }) {
		return recorded(q, f), nil
	}
	how := "the fence agents (%s) do not say clearly whether it is still in place"
	if late {
		how = "the fence agents (%s) have not said in time whether it is still in place"
	}
	why := fmt.Sprintf(how, strings.Join(names, ", "))
	if f.BeingLifted() {
		why = fence.VoidLifting
	}
	return inDoubt(q, f, why)
}

// inDoubt is what a storage fence amounts to of which nobody can tell whether it is
// in place: why. It is void evidence where somebody else's word may be worth more.
func inDoubt(q *Question, f *record.Fence, why string) ([]fence.Evidence, error) {
	if q.Holder.State == fence.NotInLedger || usesAlive(q) && !slices.ContainsFunc(releasesOf(q), func(rel *record.Release) bool { return saysFree(rel, q).Void == "" }) {
		return nil, fmt.Errorf("node %s is cut off from the storage of %s (fence %s in its record), and %s. If it stays so, csi-fencepost fence withdraw %s --id %s --reason TEXT has the fence count no more",
			q.Holder.NodeName, q.Driver, f.ID, why, q.Holder.NodeName, f.ID)
	}
	found := recorded(q, f)
	found[0].Void = why
	return found, nil
}

// usesAlive tells whether the holder's machine lives and lists the volume. Beside void evidence
// that would read as a node that writes, and contest what it says later. Another machine that has
// its name says nothing of it.
func usesAlive(q *Question) bool {
	n := q.Holder.Node
	return (q.machine() != nil || q.anew() != nil) && q.Holder.Liveness == fence.Alive && n != nil && (n.InUse || n.ListedAttached)
}

// bound is the holder's machine as it is now.
func bound(q *Question) record.FencedMachine {
	m := record.FencedMachine{NodeUID: q.Holder.NodeUID, BootID: q.Holder.BootID, SystemUUID: q.Holder.SystemUUID, LeaseRV: q.LeaseRV}
	if node := q.machine(); node != nil {
		m.BootID = node.Status.NodeInfo.BootID
	}
	return m
}

// readings are an answer as evidence: off, and each agent that reads the power
// as on, which contradicts claims.
func readings(q *Question, a *fencer.Answer) []fence.Evidence {
	base := fence.Evidence{
		NodeName: q.Holder.NodeName, NodeID: q.Holder.NodeID,
		NodeUID: a.Machine.NodeUID, BootID: a.Machine.BootID, SystemUUID: a.Machine.SystemUUID, LeaseRV: a.Machine.LeaseRV,
	}
	var found []fence.Evidence
	if a.State == agent.Off {
		e := base
		e.Kind, e.Source, e.Detail, e.OwnWord = a.Kind, strings.Join(a.Agents, ", "), a.Detail, a.OwnWord
		if f := q.Record.Early(a.Machine); f != nil && a.Kind == fence.PowerReading {
			e.Missed = f.Missed
		}
		found = append(found, e)
	}
	for _, name := range a.On {
		e := base
		e.Kind, e.Source, e.On = fence.PowerReading, name, true
		if o := q.Record.OverrideOf(name, a.Machine); o != nil {
			e.Void = voidOverridden + o.Reason
		}
		found = append(found, e)
	}
	return found
}
