package operate

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

const fenceTestHelp = `csi-fencepost fence test [NODE...] --config FILE tells whether the configuration is able to fence every node.
It logs in to the devices and reads, and touches no power. Where something is wrong it ends with exit code 1.`

// runFenceTest is `csi-fencepost fence test`.
func runFenceTest(ctx context.Context, args []string, stdout, _ io.Writer) error {
	fs, flags, agents := cli.NewFlags("fence test", fenceTestHelp), cluster.Flags{}, cluster.AgentFlags{}
	flags.Register(fs)
	agents.Register(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	c, err := flags.OpenWithAgents(fs.Name())
	if err != nil {
		return err
	}
	set, done, err := agents.Build(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	machines, err := cluster.ReadMachines(ctx, c, set.Driver)
	if err != nil {
		return err
	}
	t := newTrial(c.Config, set, machines, fs.Args())
	t.run(ctx, c)
	t.print(stdout)
	return t.verdict()
}

// A trial finds out whether nodes could be fenced.
type trial struct {
	agents   *sidecar.AgentSet
	machines *cluster.Machines
	nodes    []string
	readings [][]cluster.ReadingView // by node
	faults   []agent.Fault
	// general faults, of no node.
	general []string
	notes   []string
}

// newTrial is of the named nodes, or of all.
func newTrial(c *config.Configuration, set *sidecar.AgentSet, m *cluster.Machines, named []string) *trial {
	t := &trial{agents: set, machines: m, nodes: named, notes: slices.Clone(set.Notes)}
	for _, err := range set.Faults {
		t.general = append(t.general, cli.OneLineOf(err))
	}
	known := cluster.Configured(c)
	for _, name := range named {
		if m.Nodes[name] == nil && !slices.Contains(known, name) {
			t.general = append(t.general, fmt.Sprintf("there is no Node %s%s", name, cli.DidYouMean(name, m.Names())))
		}
	}
	if len(named) > 0 {
		return t
	}
	t.nodes = m.Names()
	for _, name := range known {
		if m.Nodes[name] == nil {
			t.notes = append(t.notes, "The configuration names node "+name+", and there is no such Node now.")
			t.nodes = append(t.nodes, name)
		}
	}
	slices.Sort(t.nodes)
	return t
}

// run checks every agent at every node, and reads.
func (t *trial) run(ctx context.Context, c *cluster.Cluster) {
	all := make([]agent.Machine, len(t.nodes))
	cluster.Each(t.nodes, func(i int, node string) { all[i] = c.Doubted(ctx, t.agents, t.machines.Machine(node)) })
	t.faults = t.agents.Levels.Check(ctx, all)
	t.readings = make([][]cluster.ReadingView, len(all))
	cluster.Each(all, func(i int, m agent.Machine) { t.readings[i] = cluster.ReadAgents(ctx, t.agents, m) })
	for i, node := range t.nodes {
		for _, r := range t.readings[i] {
			// A Checker that finds nothing may still not be able to read.
			if r.State == agent.Unclear.String() && !t.faulty(node, r.Agent) {
				t.faults = append(t.faults, agent.Fault{Node: node, Agent: r.Agent, Level: r.Level, Text: "it does not tell whether the node is on or off: " + r.Words()})
			}
		}
	}
}

func (t *trial) faulty(node, name string) bool {
	return slices.ContainsFunc(t.faults, func(f agent.Fault) bool { return f.Node == node && f.Agent == name })
}

func (t *trial) print(w io.Writer) {
	out := cli.NewTables(w)
	if rows := t.rows(); len(rows) > 0 {
		out.Print([]string{"NODE", "LEVEL", "AGENT", "READS", "TOOK", "RESULT"}, rows)
	}
	faults := slices.Clone(t.general)
	for _, f := range t.faults {
		faults = append(faults, f.String())
	}
	if len(faults) > 0 {
		out.Line("Faults:")
	}
	for _, fault := range faults {
		fmt.Fprintln(w, "- "+printable.Line(fault))
	}
	for i, note := range t.notes {
		if i == 0 {
			out.Gap()
		}
		fmt.Fprintln(w, "* "+printable.Line(note))
	}
	if len(faults) == 0 {
		out.Line(fmt.Sprintf("%s can be fenced. No power was touched.", cli.Count(len(t.nodes), "node")))
	}
}

// rows are one for each agent of each node.
func (t *trial) rows() (rows [][]string) {
	for i, node := range t.nodes {
		if len(t.readings[i]) == 0 {
			rows = append(rows, []string{node, "-", "none", "-", "-", "FAULT"})
		}
		for j, r := range t.readings[i] {
			name, result := node, "ok"
			if j > 0 {
				name = ""
			}
			if t.faulty(node, r.Agent) {
				result = "FAULT"
			}
			rows = append(rows, []string{name, fmt.Sprint(r.Level), r.Agent, r.State, r.Took, result})
		}
	}
	return rows
}

func (t *trial) verdict() error {
	if n := len(t.faults) + len(t.general); n > 0 {
		return fmt.Errorf("%s: not every node could be fenced; no power was touched", cli.Count(n, "fault"))
	}
	return nil
}
