package fencer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// look is one live look at a node.
type look struct {
	node    *corev1.Node // nil: there is none
	leaseRV string       // read after node; empty: there is none
}

func (f *Fencer) look(ctx context.Context, name string) (look, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	node, err := f.Nodes.Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err != nil {
		return look{}, fmt.Errorf("cannot read Node %s: %w", name, err)
	}
	rv, err := f.lease(ctx, name)
	return look{node, rv}, err
}

// lease reads the resourceVersion of the node's lease; empty: there is none.
func (f *Fencer) lease(ctx context.Context, node string) (string, error) {
	lease, err := f.Leases.Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the lease of node %s: %w", node, err)
	}
	return lease.ResourceVersion, nil
}

// another says why the Node is not the machine that is meant; empty: it is, or
// there is no Node of that name.
func (l look) another(t Target) string {
	switch {
	case l.node == nil:
		return ""
	case string(l.node.UID) != t.UID || t.machine().Compare(fence.MachineOf(l.node)) == fence.Other:
		return fence.VoidOtherMachine
	case l.node.Status.NodeInfo.BootID != t.BootID:
		return fence.VoidBootChanged
	}
	return ""
}

// changed says why an observation between the two looks is void; empty: it is
// not. A node may live under a storage fence.
func changed(t Target, before, after look, kind fence.Kind) string {
	switch {
	case (before.node == nil) != (after.node == nil):
		return "its Node was created or deleted meanwhile"
	case kind == fence.StorageFence && after.node != nil && string(after.node.UID) == t.UID:
		return ""
	case after.another(t) != "":
		return after.another(t)
	case before.leaseRV != after.leaseRV && kind != fence.StorageFence:
		return fence.VoidLeaseChanged
	}
	return ""
}

// machine as the agents are told of it.
func (l look) machine(t Target) agent.Machine {
	m := agent.Machine{Node: t.Node, UID: t.UID, BootID: t.BootID, NodeID: t.NodeID, SystemUUID: t.SystemUUID, ProviderID: t.ProviderID}
	if l.node == nil {
		return m
	}
	m.SystemUUID, m.ProviderID = l.node.Status.NodeInfo.SystemUUID, l.node.Spec.ProviderID
	for _, a := range l.node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			m.Addresses = append(m.Addresses, a.Address)
		}
	}
	return m
}

// fencedMachine is machine with what is in doubt of it where agents ask, and with the
// blocks that its storage fence named: the node may have come back under other addresses.
//
// onTrust: its Node is gone, nobody has bound which machine it was, and t alone says it.
//
// known is what the record said of its storage fences; nil: no agent cuts that.
func (f *Fencer) fencedMachine(ctx context.Context, t Target, l look) (m agent.Machine, onTrust bool, known *known, err error) {
	m = l.machine(t)
	seek := f.Levels.Seek(t.Node)
	if !seek && !f.CoversStorage(t.Node) {
		return m, false, nil, nil
	}
	r, mark, err := f.Records.GetMarked(ctx, t.Node)
	var garbled *record.GarbledError
	if errors.As(err, &garbled) && !f.CoversStorage(t.Node) {
		m.Doubts = AllDoubts(err)
		return m, false, nil, nil // that it is on can still contradict somebody
	}
	if err != nil {
		return m, false, nil, err
	}
	if seek {
		if f.unbound(r, m) {
			onTrust = l.node == nil
			r = f.boundNow(ctx, t.Node, r)
		}
		m.Doubts = Doubts(r, f.Driver, m, l.node == nil, f.ReadOnly)
	}
	if !f.CoversStorage(t.Node) {
		return m, onTrust, nil, nil
	}
	bound := f.bind(t, l)
	// What nobody vouches for names no address, or a machine would read as cut off by that alone. A
	// fence that is being lifted proves nothing, and is to be taken back by whoever opens it (takeBack).
	if s := r.Fence(fence.StorageFence, f.Driver); s != nil && (r.Vouched(s) || s.BeingLifted()) && oneMachine(s.Machine, bound) {
		m.Fenced = blocks(s)
	}
	return m, onTrust, f.knownOf(r, mark, l, bound), nil
}

// blocks are those that the fence cut, or was read to cut.
func blocks(s *record.Fence) []string {
	all := append(cutBlocks(s), agent.Blocks(s.What)...)
	slices.Sort(all)
	return slices.Compact(all)
}

// cutBlocks are the blocks that the agents were told to cut.
func cutBlocks(s *record.Fence) []string {
	var all []string
	for _, step := range s.Steps {
		if step.Action == "off" {
			all = append(all, agent.Blocks(step.Detail)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// oneMachine tells whether both are one machine, registered under one Node or
// under two. One Node may have had two machines.
func oneMachine(a, b record.FencedMachine) bool {
	return a.Is().Compare(b.Is()).OneMachine()
}

// otherMachine tells whether they are known to be two machines, which oneMachine does not have to
// know.
func otherMachine(a, b record.FencedMachine) bool {
	return a.Is().Compare(b.Is()) == fence.Other
}

// laterBoot tells whether b is machine a, known to have booted since.
func laterBoot(a, b record.FencedMachine) bool {
	return oneMachine(a, b) && a.BootID != "" && b.BootID != "" && a.BootID != b.BootID
}

// remove is a without those of b, and never nil.
func remove(a, b []string) []string {
	return slices.DeleteFunc(append([]string{}, a...), func(one string) bool { return slices.Contains(b, one) })
}

// hosts are the blocks of single addresses. What is none is left out.
func hosts(addresses []string) (all []string) {
	for _, text := range addresses {
		if one, err := netip.ParseAddr(text); err == nil {
			one = one.Unmap().WithZone("")
			all = append(all, netip.PrefixFrom(one, one.BitLen()).String())
		}
	}
	return all
}

// addresses are the blocks of the machine that an off would name now, by the storage agents,
// or by its Node where they name none. told: none of the agents failed to answer.
func (f *Fencer) addresses(ctx context.Context, m agent.Machine) (blocks []string, told bool) {
	told = true
	for _, level := range f.storage {
		for _, st := range (agent.Levels{level}).Ask(ctx, m).Steps {
			blocks, told = append(blocks, st.Named...), told && st.Err == ""
		}
	}
	if len(blocks) == 0 {
		blocks = hosts(m.Addresses)
	}
	return blocks, told
}

// overlap tells whether a block of one list overlaps one of the other.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(text string) bool {
		one, err := netip.ParsePrefix(text)
		return err == nil && slices.ContainsFunc(b, func(text string) bool {
			other, err := netip.ParsePrefix(text)
			return err == nil && one.Overlaps(other)
		})
	})
}

// unknownMachine is why an answer could not be bound to anything.
const unknownMachine = "it has no Node, and no ledger names its machine"

// bind is the machine as the record names it.
func (f *Fencer) bind(t Target, l look) record.FencedMachine {
	m := record.FencedMachine{NodeUID: t.UID, BootID: t.BootID, SystemUUID: t.SystemUUID, LeaseRV: l.leaseRV}
	if l.node != nil {
		m.SystemUUID = l.node.Status.NodeInfo.SystemUUID
	}
	if t.NodeID != "" && f.Driver != "" {
		m.NodeIDs = map[string]string{f.Driver: t.NodeID}
	}
	return m
}

// observe asks the agents between two looks. Whatever changes in between makes
// the answer unclear. An error is the API server's. The flight is told when the agents begin to be
// asked, and what they say.
func (f *Fencer) observe(ctx context.Context, t Target, fl *flight) (Answer, error) {
	if t.UID == "" {
		return Answer{Why: unknownMachine, Machine: record.FencedMachine{LeaseRV: t.LeaseRV}, read: time.Now()}, nil
	}
	before, err := f.look(ctx, t.Node)
	if err != nil {
		return Answer{}, err
	}
	if why := before.another(t); why != "" {
		return Answer{Why: why, Machine: f.bind(t, before), read: time.Now()}, nil
	}
	machine, onTrust, known, err := f.fencedMachine(ctx, t, before)
	if err != nil {
		return Answer{}, err
	}
	fl.asks()
	hears := func(name string, s agent.State) { f.hears(fl, name, s) }
	var outcome agent.Outcome
	var missed string
	if t.Missed == nil {
		outcome = f.read(ctx, machine, t.StorageOnly, hears)
		if onTrust && outcome.State == agent.Off {
			// By another node's machine, which may be off, this one, which may run, would be taken for
			// off. To find that out costs all records, so that it is not done at each question.
			if f.doubt(ctx, &machine, nil); len(machine.Doubts) > 0 {
				outcome = f.read(ctx, machine, t.StorageOnly, hears)
			}
		}
	} else {
		outcome, missed = f.twice(ctx, machine, t, hears)
	}
	fl.heardAll()
	read := time.Now()
	after, err := f.look(ctx, t.Node)
	if err != nil {
		return Answer{}, err
	}
	a := f.answer(outcome, f.bind(t, after), read)
	a.known, a.missed = known, missed
	if known != nil && a.Kind == fence.StorageFence {
		a.OwnWord = ownWord(outcome.Steps, known.told)
	}
	early := t.Missed != nil
	if early && a.State == agent.Off && missed == "" {
		a = Answer{Why: a.Why + ", twice, and nothing is missing yet that a machine that runs would have done", OffTwice: true,
			On: a.On, Steps: a.Steps, Machine: a.Machine, read: read, torn: true}
	}
	why := changed(t, before, after, a.Kind)
	if why == "" && early && after.leaseRV != t.LeaseRV {
		why = fence.VoidLeaseChanged // nothing is missing of one that Missed was not asked about
	}
	if why != "" {
		// What was read as on stays so: a boot meanwhile is no reason to doubt it.
		a = Answer{Why: why, On: a.On, Steps: a.Steps, Machine: a.Machine, read: read, torn: true}
	}
	return a, nil
}

// twice reads a machine by the level that is polled, and once more where that reads off, and finds
// out what is missing. No other level is asked, which may always have read off.
func (f *Fencer) twice(ctx context.Context, m agent.Machine, t Target, hears func(string, agent.State)) (o agent.Outcome, missed string) {
	polled, _ := f.Levels.Polled(m.Node)
	first := polled.AskHearing(ctx, m, hears)
	if first.State != agent.Off {
		return first, ""
	}
	select {
	case <-ctx.Done():
	case <-time.After(readAgain):
	}
	began := time.Now()
	o = polled.AskHearing(ctx, m, hears)
	o.Steps = slices.Concat(first.Steps, o.Steps)
	if o.State == agent.Off {
		missed = t.Missed(began, checked(o.Steps))
	}
	return o, missed
}

// checked tells whether every device that read off said that it is the machine's.
func checked(steps []agent.Step) bool {
	return !slices.ContainsFunc(steps, func(st agent.Step) bool { return st.Action == "status" && st.State == agent.Off && !st.Checked })
}

// read asks the levels. A machine with power may be cut off from its storage by
// a later level, where the levels stop at the power.
func (f *Fencer) read(ctx context.Context, m agent.Machine, storageOnly bool, heard func(string, agent.State)) agent.Outcome {
	if storageOnly {
		return f.storage.Ask(ctx, m)
	}
	o := f.Levels.AskHearing(ctx, m, heard)
	if o.State != agent.On || o.Kind != fence.PowerReading || !f.storage.Covers(m.Node) {
		return o
	}
	s := f.storage.Ask(ctx, m)
	s.Steps = append(o.Steps, s.Steps...)
	if s.State != agent.Off {
		o.Steps = s.Steps
		return o
	}
	s.Why += ", the machine has power"
	return s
}

// answer puts an outcome into words.
func (f *Fencer) answer(o agent.Outcome, m record.FencedMachine, read time.Time) Answer {
	a := Answer{State: o.State, Kind: o.Kind, Why: o.Why, Machine: m, Steps: o.Steps, Outstanding: o.Outstanding, read: read}
	on, _ := readers(o.Steps, agent.On)
	for _, name := range on {
		if f.proves[name] == fence.PowerReading {
			a.On = append(a.On, name)
		}
	}
	if a.Kind == fence.StorageFence {
		a.Storage = a.State
	} else if f.open(o.Steps) {
		a.Storage = agent.On
	}
	if a.State != agent.Unclear {
		a.Agents, a.Detail = readers(o.Steps, a.State)
	}
	a.Uncut = a.State != agent.Off && slices.ContainsFunc(o.Steps, func(st agent.Step) bool {
		return st.Action == "status" && st.Err == "" && st.State != agent.Off && f.proves[st.Agent] == fence.StorageFence
	})
	return a
}
