package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// consult asks the fence agents about the holders that may write, and takes what
// they read into account as the sidecar does with what it reads itself.
func (x *explaining) consult(ctx context.Context, l *Look) error {
	if x.asked == nil {
		return nil
	}
	l.readings = map[string][]cluster.ReadingView{}
	for i := range l.Survey.Holders {
		h := &l.Survey.Holders[i]
		_, st, held := l.Survey.Snapshot.Alone(*h)
		if !held || st.Gone() && st.Reason != fence.HolderFenced || MerelyWaits(h) || h.NodeName == "" || l.readings[h.NodeName] != nil {
			continue
		}
		now, err := cluster.ReadNode(ctx, x.c.Client, h.NodeName)
		if err != nil {
			l.notes = append(l.notes, "The fence agents of node "+h.NodeName+" were not asked: "+err.Error())
			continue
		}
		views := cluster.ReadAgents(ctx, x.asked, x.c.Doubted(ctx, x.asked, cluster.MachineOf(h.NodeName, now.Node, h.NodeID)))
		l.readings[h.NodeName] = views
		if h.Node != nil && !h.OwnNode() || h.NodeUID == "" {
			continue // the agents know nodes by name, and that is another machine
		}
		// What the lease says after the reading is what it is bound to.
		if now, err = cluster.ReadNode(ctx, x.c.Client, h.NodeName); err != nil {
			return err
		}
		x.believe(l, h.NodeName, h.NodeUID, now, views)
	}
	l.notes = append(l.notes, x.agentNotes()...)
	return nil
}

// believe makes evidence of readings, in place of what the record kept of these
// agents.
func (x *explaining) believe(l *Look, node, uid string, now *cluster.Node, views []cluster.ReadingView) {
	found := x.evidenceOf(views)
	named := func(e fence.Evidence) bool {
		return e.Kind == fence.PowerReading && slices.ContainsFunc(views, func(v cluster.ReadingView) bool {
			return v.State != agent.Unclear.String() && slices.Contains(strings.Split(e.Source, ", "), v.Agent)
		})
	}
	l.eachHolder(func(h *fence.Holder) {
		if h.NodeName != node || h.NodeUID != uid {
			return
		}
		h.Evidence = slices.DeleteFunc(slices.Clone(h.Evidence), named)
		for _, e := range found {
			e.NodeName, e.NodeID, e.NodeUID = node, h.NodeID, uid
			e.BootID, e.LeaseRV = h.BootID, now.LeaseRV()
			if now.Node != nil {
				e.BootID = now.BootID()
			}
			if o := l.records[node].OverrideOf(e.Source, record.FencedMachine{NodeUID: e.NodeUID, BootID: e.BootID, LeaseRV: e.LeaseRV}); o != nil && e.On {
				e.Void = "an operator says that this agent is wrong: " + o.Reason
			}
			h.Evidence = append(h.Evidence, e)
			l.asked = append(l.asked, e)
		}
	})
}

// evidenceOf is what the readings of one node prove: each "on" is against, and a
// level all of whose agents read "off", with no agent against it, is for.
// Agents that cut storage are shown, and not judged by.
func (x *explaining) evidenceOf(views []cluster.ReadingView) []fence.Evidence {
	var found []fence.Evidence
	levels := map[int][]string{} // that read off
	wanted := map[int]int{}
	power := map[string]bool{}
	for _, m := range x.asked.Members {
		wanted[m.Level]++
		power[m.Agent.Name()] = m.Agent.Proves() == fence.PowerReading
	}
	for _, v := range views {
		switch {
		case !power[v.Agent]:
		case v.State == agent.On.String():
			found = append(found, fence.Evidence{Kind: fence.PowerReading, Source: v.Agent, Detail: v.Detail, On: true})
		case v.State == agent.Off.String():
			levels[v.Level] = append(levels[v.Level], v.Agent)
		}
	}
	if len(found) > 0 {
		return found
	}
	for level := 1; level <= len(x.asked.Levels); level++ {
		if off := levels[level]; len(off) > 0 && len(off) == wanted[level] {
			return []fence.Evidence{{Kind: fence.PowerReading, Source: strings.Join(off, ", "), Detail: fmt.Sprintf("every agent of level %d reads off", level)}}
		}
	}
	return nil
}
