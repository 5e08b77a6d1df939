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
	if len(on) == 0 {
		return nil, fmt.Errorf("no fence agent reads node %s as on, so there is none to override: leave --override-agent out", f.node)
	}
	return on, nil
}

func printOverrides(w io.Writer, on []cluster.ReadingView) {
	p := cli.NewPrinter(w, cli.StyleOf(w))
	for _, r := range on {
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
