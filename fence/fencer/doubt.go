package fencer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// says is what the machine's node says of it, by the variable that stands for it. Without a driver
// that is no node ID.
func says(m agent.Machine, driver string) map[string]record.Identifier {
	all := map[string]record.Identifier{
		agent.VarSystemUUID: {Kind: record.SystemUUID, Value: m.SystemUUID},
		agent.VarProviderID: {Kind: record.ProviderID, Value: m.ProviderID},
		agent.VarInstanceID: {Kind: record.InstanceID, Value: fence.InstanceID(m.ProviderID)},
		agent.VarNodeID:     {Kind: record.NodeID(driver), Value: m.NodeID},
	}
	maps.DeleteFunc(all, func(name string, c record.Identifier) bool {
		return c.Value == "" || name == agent.VarNodeID && driver == ""
	})
	return all
}

// Doubts say by which variables agents may find another machine than m, by the record r of
// its node; none: it has none. What nobody has bound to the node counts all the same where its
// Node is gone, or nobody binds (Observe): unbound.
func Doubts(r *record.Record, driver string, m agent.Machine, gone, unbound bool) map[string]agent.Doubt {
	known, doubts, uid := r.Known(), map[string]agent.Doubt{}, ""
	if gone {
		uid = m.UID
	}
	for name, one := range says(m, driver) {
		why := r.NotOwn(one, m.SystemUUID, uid)
		switch {
		case why != "" && !gone && r.Identity.Of(one.Kind).Other == record.EarlierMachine:
			doubts[name] = agent.Doubt{Why: why, Way: "name its device in nodeParameters, or delete its Node and restart its kubelet; if it is that machine with another board: csi-fencepost fence bind " + printable.Word(m.Node) + " --same-machine --reason TEXT"}
		case why != "":
			doubts[name] = doubtOf(m.Node, gone, why)
		case unbound:
		case !one.Tells():
			doubts[name] = agent.Doubt{Why: "it does not tell machines apart", Way: "name its device in nodeParameters"}
		case gone, known.Of(one.Kind).Value != "":
		default:
			doubts[name] = doubtOf(m.Node, gone, "it is not bound to the node yet: the process that leads and may fence does so, once no other node says it too")
		}
	}
	return unbindable(doubts)
}

// unbindable adds the way out of a doubt that nobody can end by binding: where the provider ID is
// the node's own and its instance ID is not, a node with another provider ID has that instance ID
// too.
func unbindable(doubts map[string]agent.Doubt) map[string]agent.Doubt {
	d, instance := doubts[agent.VarInstanceID]
	if _, provider := doubts[agent.VarProviderID]; instance && !provider {
		d.Way = "name its device in nodeParameters"
		doubts[agent.VarInstanceID] = d
	}
	return doubts
}

// doubtOf has the way out. Of a Node that is gone nothing can be bound.
func doubtOf(node string, gone bool, why string) agent.Doubt {
	if gone {
		return agent.Doubt{Why: why, Way: "turn it off by hand, and say so: csi-fencepost fence confirm " + printable.Word(node) + " --reason TEXT"}
	}
	return agent.Doubt{Why: why, Way: "name its device in nodeParameters, or say that it is the machine: csi-fencepost fence bind " + printable.Word(node) + " --reason TEXT, with --same-machine if it is the one before with another board"}
}

// AllDoubts are of a machine of which err keeps whose it is from being told. Nobody is to bind
// anything for that.
func AllDoubts(err error) map[string]agent.Doubt {
	doubt := agent.Doubt{Why: "whose it is cannot be told: " + err.Error(), Way: "it goes on once that can be read"}
	return map[string]agent.Doubt{agent.VarSystemUUID: doubt, agent.VarProviderID: doubt, agent.VarInstanceID: doubt, agent.VarNodeID: doubt}
}

// doubt puts into machine m, which is to be cut off or given its power back, what is not its
// node's own, with all read live: a watch may lag behind. What nobody has bound yet is bound
// first. Where that cannot be read all is in doubt: agents that go by nothing of it go on.
func (f *Fencer) doubt(ctx context.Context, m *agent.Machine, node *corev1.Node) {
	if !f.Levels.Seek(m.Node) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	doubts, err := f.doubts(ctx, *m, node)
	if err != nil {
		doubts = AllDoubts(err)
	}
	m.Doubts = doubts
}

func (f *Fencer) doubts(ctx context.Context, m agent.Machine, node *corev1.Node) (map[string]agent.Doubt, error) {
	now, err := f.sight(ctx)
	if err != nil {
		return nil, err
	}
	if now.unseen {
		return nil, errors.New("no Node was seen yet, and another may have it")
	}
	if _, err := f.bindNode(ctx, m.Node, now); err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	own, err := f.Records.Get(ctx, m.Node)
	if err != nil {
		return nil, err
	}
	said, err := f.said(ctx, node)
	if err != nil {
		return nil, err
	}
	gone := node == nil
	doubts := Doubts(own, f.Driver, m, gone, false)
	for name, one := range says(m, f.Driver) {
		o := now.other(m.Node, gone)(one)
		unbound := o.Node != "" && !o.Bound
		if d, is := doubts[name]; is {
			if unbound {
				d.Why += " (as node " + o.Node + " does now)"
				doubts[name] = d
			}
			continue
		}
		if gone && unbound { // the machine may be back under that name
			doubts[name] = doubtOf(m.Node, gone, "node "+o.Node+" says "+one.Value+" now")
			continue
		}
		// Its driver may just be being registered again.
		at := slices.IndexFunc(said, func(s record.Identifier) bool { return s.Kind == one.Kind })
		if at >= 0 && !said[at].Is(one) {
			doubts[name] = doubtOf(m.Node, gone, "the node says "+said[at].Value+" since, and was known by "+one.Value+" first")
			continue
		}
		other, err := f.another(ctx, m.Node, one, now.records)
		if err != nil {
			return nil, err
		}
		if other != "" {
			doubts[name] = doubtOf(m.Node, gone, "node "+other+" is known by "+one.Value+" as well")
		}
	}
	// Spelled otherwise a provider ID is nobody's, and the agent finds the same machine by it.
	if d, is := doubts[agent.VarInstanceID]; is && own.Known().Of(record.ProviderID).Value == "" {
		if _, is := doubts[agent.VarProviderID]; !is {
			doubts[agent.VarProviderID] = d
		}
	}
	return unbindable(doubts), nil
}

// unbound tells whether something by which agents find machine m is bound to nobody by the
// record r of its node, and might be.
func (f *Fencer) unbound(r *record.Record, m agent.Machine) bool {
	if f.ReadOnly || f.Machines == nil {
		return false
	}
	all := says(m, f.Driver)
	return slices.ContainsFunc(f.Levels.Seeks(m.Node), func(name string) bool {
		one := all[name]
		return one.Tells() && r.Known().Of(one.Kind).Value == ""
	})
}

// boundNow is the record r of a node once what is known of its machine is bound, as it is
// before a command: a question may be the first, and a build from before takes the vouch away
// with whatever it writes. What cannot be bound stays in doubt, and is not tried again at each
// question: that reads all records.
func (f *Fencer) boundNow(ctx context.Context, node string, r *record.Record) *record.Record {
	f.mu.Lock()
	wait := time.Until(f.notBefore[node]) > 0
	f.mu.Unlock()
	if wait {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	bound := false
	now, err := f.sight(ctx)
	if err == nil {
		bound, err = f.bindNode(ctx, node, now)
	}
	if err != nil || !bound {
		f.bindLater(node, err)
		return r
	}
	if anew, err := f.Records.Get(ctx, node); err == nil && anew != nil {
		return anew
	}
	return r
}

// bindLater has no question about the node bind anything for as long as Bind would wait.
func (f *Fencer) bindLater(node string, err error) {
	pause := bindEvery
	if apierrors.IsForbidden(err) {
		pause = bindAtLeast
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.notBefore, func(_ string, at time.Time) bool { return time.Until(at) <= 0 })
	f.notBefore[node] = time.Now().Add(pause)
}

// another is another node that has the value bound, by its Node as it is now; empty: none.
func (f *Fencer) another(ctx context.Context, node string, one record.Identifier, records map[string]*record.Record) (string, error) {
	for name, r := range records {
		if name == node || len(r.Shares([]record.Identifier{one})) == 0 {
			continue
		}
		now, err := f.look(ctx, name)
		if err != nil {
			return "", err
		}
		said, err := f.said(ctx, now.node)
		if err != nil {
			return "", err
		}
		if now.node != nil && slices.ContainsFunc(r.Claims(string(now.node.UID), said), func(c record.IdentityClaim) bool { return c.Bound && c.Meets(one) }) {
			return name, nil
		}
	}
	return "", nil
}

// Seeks tells whether agents of that node may go by what it says of its machine: by a variable, or
// by its node ID as a storage's client.
func (f *Fencer) Seeks(node string) bool { return f.Levels.Seek(node) || f.Levels.KnowsByID(node) }

// Withheld says why no agents may cut the machine off, since none can be told which it is;
// empty: some may.
func (f *Fencer) Withheld(ctx context.Context, t Target) (string, error) {
	levels := f.Levels
	if t.StorageOnly {
		levels = f.storage
	}
	if !levels.Seek(t.Node) {
		return "", nil
	}
	now, err := f.look(ctx, t.Node)
	if err != nil {
		return "", err
	}
	m := now.machine(t)
	f.doubt(ctx, &m, now.node)
	return levels.Withheld(m), nil
}
