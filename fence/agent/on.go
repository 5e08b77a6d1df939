package agent

import (
	"context"
	"fmt"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// On gives power or access back with the agents that took it: those that read
// Off, from the last level to the first (a BMC answers only once its outlet has
// power). An agent that reads On is left alone, and so is one that cannot be
// read, unless it cuts storage and m.Fenced says what a fence cut: a fence that is
// lifted by half, or of addresses that the machine has left, reads Unclear, and is
// to be lifted all the same. State is On if every agent that covers the node reads
// on in the end, Off if one still reads off.
func (l Levels) On(ctx context.Context, m Machine) Outcome {
	r := &run{m: m}
	var seen verdicts
	for i := len(l) - 1; i >= 0; i-- {
		level := l[i]
		if !level.covers(m.Node) {
			continue
		}
		states := make([]State, len(level))
		level.each(func(j int, b Bounded) { states[j] = r.restore(ctx, b, i+1) })
		for j, b := range level {
			seen = append(seen, verdict{b, i + 1, states[j]})
		}
	}
	return r.outcome(seen.restored(m), seen)
}

func (r *run) restore(ctx context.Context, b Bounded, level int) State {
	cut := func(s State) bool {
		return s == Off || s == Unclear && b.Agent.Proves() == fence.StorageFence && len(r.m.Fenced) > 0
	}
	state := r.read(ctx, b, where{level, 1})
	for attempt := 1; cut(state) && attempt <= b.attempts() && ctx.Err() == nil; attempt++ {
		if attempt > 1 {
			sleep(ctx, retryAfter)
		}
		at := where{level, attempt}
		if err := r.act(ctx, b, "on", at, b.Agent.On); err != nil {
			state = r.read(ctx, b, at)
		} else {
			state = r.poll(ctx, b, at, On)
		}
	}
	return state
}

// restored tells what On came to.
func (v verdicts) restored(m Machine) Outcome {
	if len(v) == 0 {
		return Outcome{Why: fmt.Sprintf("no level of agents covers node %s", m.Node)}
	}
	why := list(v)
	switch {
	case v.any(Off):
		return Outcome{State: Off, Kind: v.kind(Off), Why: why}
	case v.any(Unclear):
		return Outcome{Why: why}
	}
	return Outcome{State: On, Kind: v.kind(On), Why: why}
}
