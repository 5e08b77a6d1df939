package sidecar

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/statusz"
)

// seenNodes are the nodes of one State.
type seenNodes struct {
	parts *boardParts
	nodes map[string]*seenNode
}

// seenNode is what is known of one of them.
type seenNode struct {
	name     string
	record   *noderecord.Record // nil: nothing is claimed
	failover *failover.Status   // nil: failover does not work on it
	// silent for so long; watched false: nobody can tell.
	silent           time.Duration
	watched, suspect bool
	exists, ready    bool
	attached         bool // some VolumeAttachment names it
}

func newSeen(p *boardParts) *seenNodes {
	return &seenNodes{parts: p, nodes: map[string]*seenNode{}}
}

// add is the node of that name, made at the first call.
func (s *seenNodes) add(name string) *seenNode {
	if s.nodes[name] == nil {
		s.nodes[name] = &seenNode{name: name}
	}
	return s.nodes[name]
}

// addClaimed adds the nodes of which something is claimed. What a machine is known by stands
// in the record of each node, and is no claim about what it does.
func (s *seenNodes) addClaimed(records []*noderecord.Record) {
	for _, r := range records {
		if !r.OnlyIdentity() {
			s.add(r.Node).record = r
		}
	}
}

// addSilent adds the nodes that are silent, those that are gone and still hold
// something, and those that failover works on. It returns how many are watched.
func (s *seenNodes) addSilent() (watched int) {
	p := s.parts
	if p.mover != nil {
		for _, st := range p.mover.Status() {
			s.add(st.Node).failover = &st
		}
	}
	p.index.EachNode(func(n *corev1.Node) {
		age, suspect, ok := p.lives.Unchanged(n.Name)
		if ok {
			watched++
		}
		if suspect {
			s.add(n.Name)
		}
		if seen := s.nodes[n.Name]; seen != nil {
			seen.exists, seen.ready, seen.silent, seen.watched, seen.suspect = true, fence.NodeReady(n), age, ok, suspect
		}
	})
	for _, name := range p.index.Holding() {
		if p.index.Node(name) == nil {
			s.add(name)
		}
		if n := s.nodes[name]; n != nil {
			n.attached = true
		}
	}
	return watched
}

// all are the nodes, the most urgent first.
func (s *seenNodes) all() []*seenNode {
	all := slices.Collect(maps.Values(s.nodes))
	slices.SortFunc(all, func(a, b *seenNode) int {
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), strings.Compare(a.name, b.name))
	})
	return all
}

// urgency as of the view, as far as it can be told without a look into every
// ledger for every node: that is done for those alone that are shown.
func (n *seenNode) urgency() int {
	state := n.state()
	if state == statusz.Gone && !n.attached && n.failover == nil {
		return len(byUrgency)
	}
	return slices.Index(byUrgency, state)
}

func (n *seenNode) view(p *boardParts) statusz.Node {
	v := statusz.Node{Name: n.name, State: n.state(), SilentSeconds: int(n.silent.Seconds()), Volumes: []string{}, Evidence: []statusz.Evidence{}, Audit: []statusz.Audit{}}
	for _, h := range p.index.HeldBy(n.name) {
		if h.Attachment != "" || h.Entry != nil && h.Entry.State != fence.TakenOver {
			v.Volumes = append(v.Volumes, cmp.Or(h.PV, h.Handle))
		}
	}
	if p.mover != nil {
		if r, polled := p.mover.Power(n.name); polled {
			v.Power = statusz.Power{State: r.State.String(), Why: r.Why, AgeSeconds: int(time.Since(r.At).Seconds())}
		}
	}
	if st := n.failover; st != nil {
		v.Awaited, v.Proof = st.Awaited, string(st.Proof)
	}
	if n.record != nil {
		v.Evidence, v.Audit = evidenceViews(n.record), auditViews(n.record)
	}
	return v
}

// state in one word, by what is claimed and then by what was watched.
func (n *seenNode) state() string {
	if r := n.record; r != nil {
		for i := range r.Fences {
			switch f := &r.Fences[i]; {
			case f.UnderWay():
				return statusz.Fencing
			case f.Phase == noderecord.Fenced && r.Doubt(f) != "":
				// It proves nothing.
			case f.Phase == noderecord.Fenced && f.Kind == fence.PowerReading:
				return statusz.Fenced
			case f.Phase == noderecord.Lifting:
				return statusz.Lifting
			case f.Phase == noderecord.Fenced:
				return statusz.StorageFenced
			}
		}
		if slices.ContainsFunc(r.Confirmations, func(c noderecord.Confirmation) bool { return confirms(r, c) }) {
			return statusz.Confirmed
		}
	}
	switch {
	case !n.exists:
		return statusz.Gone
	case n.suspect:
		return statusz.Suspected
	case n.watched || n.ready:
		return statusz.Alive
	}
	return statusz.Unwatched
}

// confirms tells whether the confirmation counts of at least one machine.
func confirms(r *noderecord.Record, c noderecord.Confirmation) bool {
	return slices.ContainsFunc(c.Machines, func(m noderecord.Machine) bool { return r.Vouched(c.Of(&m)) })
}

// evidenceViews are the claims of a record, those that count first.
func evidenceViews(r *noderecord.Record) []statusz.Evidence {
	all := []statusz.Evidence{}
	for i := len(r.Fences) - 1; i >= 0; i-- {
		all = append(all, fenceView(r, &r.Fences[i]))
	}
	for _, c := range slices.Backward(r.Confirmations) {
		e := statusz.Evidence{Kind: string(fence.OperatorConfirmation), Source: c.By, Detail: c.Reason, At: clock(c.At), Phase: "Counts"}
		if !confirms(r, c) {
			e.Phase = "Void"
		}
		for _, m := range c.Machines {
			e.Why = cmp.Or(e.Why, r.Doubt(c.Of(&m)))
		}
		all = append(all, e)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Taints)) {
		b := r.Taints[key]
		all = append(all, statusz.Evidence{Kind: "Taint", Detail: strings.TrimSuffix(key+"="+b.Value+", "+b.Wrote(), ", "), At: clock(b.BoundAt), Phase: phaseOf(b.Void), Why: b.Void})
	}
	for _, rel := range slices.Backward(r.Releases) {
		void := r.Doubt(&rel)
		all = append(all, statusz.Evidence{Kind: string(fence.VolumeRelease), Source: rel.By, Detail: rel.Volume + ": " + rel.Reason, At: clock(rel.At), Phase: phaseOf(void), Why: void})
	}
	for _, o := range slices.Backward(r.Overrides) {
		void := r.Doubt(&o)
		all = append(all, statusz.Evidence{Kind: "AgentOverride", Source: o.By, Detail: "agent " + o.Agent + ": " + o.Reason, At: clock(o.At), Phase: phaseOf(void), Why: void})
	}
	slices.SortStableFunc(all, func(a, b statusz.Evidence) int { return phaseRank(a.Phase) - phaseRank(b.Phase) })
	return all
}

func phaseRank(phase string) int {
	return slices.Index([]string{"Fencing", "Lifting", "Counts", "Failed", "Lifted", "Void"}, phase)
}

func phaseOf(void string) string {
	if void != "" {
		return "Void"
	}
	return "Counts"
}

func fenceView(r *noderecord.Record, f *noderecord.Fence) statusz.Evidence {
	e := statusz.Evidence{Kind: string(f.Kind), Source: strings.Join(f.Agents, ", "), Detail: f.What, At: clock(cmp.Or(f.EndedAt, f.StartedAt)), Phase: string(f.Phase), Why: f.Why}
	switch {
	case f.Phase == noderecord.Lifting:
		e.Why = r.Doubt(f) + " (" + f.LiftReason + ")"
	case f.UnderWay():
		e.Phase = "Fencing"
	case r.Doubt(f) != "":
		e.Phase, e.Why = "Void", r.Doubt(f)
	case f.Phase == noderecord.Fenced:
		e.Phase, e.Why = "Counts", f.Reason
	}
	if f.Driver != "" {
		e.Detail = strings.TrimSuffix("driver "+f.Driver+": "+e.Detail, ": ")
	}
	for _, st := range f.Steps {
		e.Steps = append(e.Steps, statusz.Step{Agent: st.Agent, Action: st.Action, State: st.State, Detail: st.Detail, Error: st.Err, At: clock(st.At), TookMS: st.TookMS})
	}
	return e
}

// auditViews are the trail, the newest first.
func auditViews(r *noderecord.Record) []statusz.Audit {
	all := []statusz.Audit{}
	for _, a := range slices.Backward(r.Audit) {
		all = append(all, statusz.Audit{At: clock(a.At), Actor: a.Actor, Action: a.Action, Detail: a.Detail})
	}
	return all
}

// clock reads a record's time; zero: it is none.
func clock(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
