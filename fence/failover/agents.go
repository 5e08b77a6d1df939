package failover

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Agents is the Fencer over package fencer.
type Agents struct {
	*fencer.Fencer
}

var _ Fencer = Agents{}

// Agents implements Fencer: the names of the agents that cover the node.
func (a Agents) Agents(node string) string {
	var names []string
	for _, level := range a.Levels {
		for _, bound := range level {
			if name := bound.Agent.Name(); bound.Agent.Covers(node) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 1 {
		return "agent " + names[0]
	}
	return "agents " + strings.Join(names, ", ")
}

// StorageOnly implements Fencer.
func (a Agents) StorageOnly(node string) bool {
	for _, level := range a.Levels {
		for _, bound := range level {
			if bound.Agent.Covers(node) && bound.Agent.Proves() != fence.StorageFence {
				return false
			}
		}
	}
	return true
}

func (a Agents) target(t Target) fencer.Target {
	return fencer.Target{Node: t.Node, UID: t.UID, BootID: t.BootID, NodeID: t.NodeID, LeaseRV: t.LeaseRV, Fences: t.Fences, Still: t.Still}
}

// Ask implements Fencer. An agent that reads on, and that an operator has
// declared broken, contradicts nobody.
func (a Agents) Ask(ctx context.Context, t Target) (Answer, error) {
	got, err := a.Fencer.Ask(ctx, a.target(t))
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{State: got.State, Kind: got.Kind, Why: got.Why}
	if len(got.On) > 0 && got.State != agent.Off {
		answer.State = agent.On
		r, err := a.Records.Get(ctx, t.Node)
		if err != nil {
			return Answer{}, err
		}
		broken := func(name string) bool { return r.Overridden(name, got.Machine) }
		if !slices.ContainsFunc(got.On, func(name string) bool { return !broken(name) }) {
			answer.State, answer.Why = agent.Unclear, got.Why+" (overridden by an operator)"
		}
	}
	return answer, nil
}

// Off implements Fencer.
func (a Agents) Off(ctx context.Context, t Target, reason string) (Answer, error) {
	got, err := a.Fencer.Off(ctx, a.target(t), reason, false)
	return Answer{State: got.State, Kind: got.Kind, Why: got.Why}, err
}

// On implements Fencer.
func (a Agents) On(ctx context.Context, t Target, reason string) error {
	_, err := a.Fencer.On(ctx, a.target(t), reason)
	return err
}

// Lift implements Fencer. Access that was not read as open stays on record, and
// is lifted again in the next pass.
func (a Agents) Lift(ctx context.Context, t Target, reason string) error {
	_, err := a.Fencer.Lift(ctx, a.target(t), a.Driver, reason)
	return err
}

// Void implements Fencer.
func (a Agents) Void(ctx context.Context, node, why string) error {
	_, err := a.Fencer.Void(ctx, node, why)
	return err
}

// FencesOf implements Fencer.
func (a Agents) FencesOf(ctx context.Context, node string) ([]Fence, error) {
	r, err := a.Records.Get(ctx, node)
	if err != nil {
		return nil, err
	}
	return standing(r, a.Driver), nil
}

// Fences implements Fencer. Records that cannot be read are left out: what they
// claim does not count. So are fences that failed, unless an off was taken: the
// machine may well be off.
func (a Agents) Fences(ctx context.Context) ([]Fence, error) {
	records, _, err := a.Records.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []Fence
	for _, r := range records {
		for i := range r.Fences {
			if f := &r.Fences[i]; f.Phase != record.Failed || slices.ContainsFunc(f.Steps, tookOff) {
				all = append(all, *fenceOf(r.Node, f))
			}
		}
	}
	return all, nil
}

func tookOff(s record.FenceStep) bool { return s.Action == "off" && s.Err == "" }

// standing are the fences that count, or are still to be lifted: the power fence,
// then the driver's storage fence.
func standing(r *record.Record, driver string) (all []Fence) {
	for _, kind := range []fence.Kind{fence.PowerReading, fence.StorageFence} {
		if f := r.Fence(kind, driver); f != nil && f.Standing() {
			all = append(all, *fenceOf(r.Node, f))
		}
	}
	return all
}

func fenceOf(node string, f *record.Fence) *Fence {
	out := &Fence{ID: f.ID, Node: node, NodeUID: f.Machine.NodeUID, BootID: f.Machine.BootID, LeaseRV: f.Machine.LeaseRV,
		SystemUUID: f.Machine.SystemUUID, Kind: f.Kind, Source: strings.Join(f.Agents, ", "), Cut: f.Phase == record.Fencing, Sidecar: f.BySidecar(), Lifting: f.Lifting != ""}
	out.Cut = out.Cut || slices.ContainsFunc(f.Steps, func(s record.FenceStep) bool { return s.Action == "off" })
	// A time that cannot be read is long ago: it only counts for the brakes.
	out.At, _ = time.Parse(time.RFC3339, f.StartedAt)
	if f.Phase == record.Fenced && f.Lifting == "" {
		// One that was cut anew began with the first.
		for _, s := range f.Steps {
			if at, err := time.Parse(time.RFC3339, s.At); err == nil && s.Action == "off" && at.After(out.At) {
				out.At = at
			}
		}
	}
	if !f.Current() {
		out.Void = f.Why
		if out.Void == "" {
			out.Void = string(f.Phase)
		}
	}
	return out
}
