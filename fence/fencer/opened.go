package fencer

import (
	"context"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// A fence is lifted in the record only where every agent that cuts storage reads what it cut as
// open. It proves what it did before where nothing was sent that could have opened any of that.

// opened tells whether the agents read as open what the fence cut. Of another
// machine's they are asked, and nothing is changed.
func (u *undoing) opened(ctx context.Context, a *Answer) bool {
	switch {
	case u.fence == nil:
		return false
	case u.own():
		return u.open(a.Steps) && (u.action == "lift" || len(u.theirs) == 0) // which nobody has read
	case u.open(a.Steps) && u.named(a.Steps):
		return true
	case len(blocks(u.fence)) == 0:
		return false
	}
	m := u.fence.Machine
	// What it was known by may be another machine's by now: no agent looks for it by that.
	o := u.storage.Ask(ctx, agent.Machine{Node: u.t.Node, UID: m.NodeUID, BootID: m.BootID, Fenced: blocks(u.fence)})
	a.Steps = append(a.Steps, o.Steps...)
	return u.open(o.Steps) && u.named(o.Steps)
}

// named tells whether what the storage agents read as open has all that the fence cut. Agents whose
// words have no blocks know machines by the node's name.
func (u *undoing) named(all []agent.Step) bool {
	cut := blocks(u.fence)
	for _, st := range all {
		read := agent.Blocks(st.Detail)
		if st.Action != "status" || st.State != agent.On || u.proves[st.Agent] != fence.StorageFence || len(read) == 0 {
			continue
		}
		if len(cut) == 0 || slices.ContainsFunc(cut, func(b string) bool { return !slices.Contains(read, b) }) {
			return false
		}
	}
	return true
}

// untouched tells whether nothing was sent that could have given back what the fence cut.
func (u *undoing) untouched(all []agent.Step) bool {
	if u.fence == nil {
		return true
	}
	cut := blocks(u.fence)
	return !slices.ContainsFunc(all, func(st agent.Step) bool {
		if st.Action != "on" || u.proves[st.Agent] != fence.StorageFence {
			return false
		}
		sent := agent.Blocks(st.Detail)
		return len(sent) == 0 || len(cut) == 0 || slices.ContainsFunc(sent, func(b string) bool { return slices.Contains(cut, b) })
	})
}

// open tells whether agents that cut storage were read, and each reads the access as open.
func (f *Fencer) open(all []agent.Step) bool {
	counts := map[agent.State]int{}
	for _, s := range []agent.State{agent.Unclear, agent.On, agent.Off} {
		names, _ := readers(all, s)
		for _, name := range names {
			if f.proves[name] == fence.StorageFence {
				counts[s]++
			}
		}
	}
	return counts[agent.On] > 0 && counts[agent.Off]+counts[agent.Unclear] == 0
}
