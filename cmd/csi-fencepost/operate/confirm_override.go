package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// readingOn asks the node's agents and returns those that read on; none if
// nobody says that one is wrong.
func (f *confirmFlags) readingOn(ctx context.Context, c *cluster.Cluster, now *cluster.Node) ([]cluster.ReadingView, error) {
	if f.overrideAgent == "" {
		return nil, nil
	}
	agents, done, err := f.agents.Build(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := errors.Join(agents.Faults...); err != nil {
		return nil, err
	}
	on := slices.DeleteFunc(cluster.ReadAgents(ctx, agents, c.Doubted(ctx, agents, cluster.MachineOf(f.node, now.Node, now.NodeID(agents.Driver)))), func(r cluster.ReadingView) bool {
		return r.State != agent.On.String()
	})
	if c.Config.Fencing.Apart {
		apart, err := readingOnApart(ctx, c, f.node)
		return append(on, apart...), err
	}
	if len(on) == 0 {
		return nil, fmt.Errorf("no fence agent reads node %s as on, so there is none to override: leave --override-agent out", f.node)
	}
	return on, nil
}

// readingOnApart are csi-fencepost failover itself, which reads the power where fencing.apart
// is set and cannot be asked here, and its agents that read on when it last answered.
func readingOnApart(ctx context.Context, c *cluster.Cluster, node string) ([]cluster.ReadingView, error) {
	r, err := c.Records().Get(ctx, node)
	if err != nil {
		return nil, err
	}
	views := []cluster.ReadingView{{Agent: fencer.FailoverAgent, State: agent.Unclear.String()}}
	if r == nil {
		return views, nil
	}
	for i := range r.Questions {
		q := &r.Questions[i]
		if !r.Vouched(q) {
			continue
		}
		for _, name := range q.Answer.On {
			if !slices.ContainsFunc(views, func(v cluster.ReadingView) bool { return v.Agent == name }) {
				views = append(views, cluster.ReadingView{Agent: name, State: agent.On.String(), Detail: "as csi-fencepost failover said last"})
			}
		}
	}
	return views, nil
}

func printOverrides(w io.Writer, on []cluster.ReadingView) {
	p := cli.NewPrinter(w, cli.StyleOf(w))
	for _, r := range on {
		if r.State != agent.On.String() {
			p.Paragraph(0, 2, "! Whatever csi-fencepost "+r.Agent+" says or does not say of its power: that this is not to be waited for will be written too.")
			continue
		}
		p.Paragraph(0, 2, fmt.Sprintf("! Agent %s reads it as ON (%s). That it is wrong will be written too.", r.Agent, r.Words()))
	}
}

// override writes the words that agents are wrong, of the machine that is
// confirmed.
func (f *confirmFlags) override(ctx context.Context, c *cluster.Cluster, by string, on []cluster.ReadingView, b *binding) error {
	for _, r := range on {
		i := slices.IndexFunc(b.machines, func(m record.Machine) bool { return m.NodeUID != "" })
		if i < 0 {
			return fmt.Errorf("agent %s cannot be overridden: nothing says which Node's machine node %s was", r.Agent, f.node)
		}
		m := b.machines[i]
		if _, err := c.Records().OverrideAgent(ctx, f.node, record.Override{Agent: r.Agent, By: by, Reason: f.overrideAgent, Machine: m}); err != nil {
			return err
		}
	}
	return nil
}
