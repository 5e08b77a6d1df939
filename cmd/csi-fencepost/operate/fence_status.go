package operate

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const fenceStatusHelp = `csi-fencepost fence status [NODE] lists what is claimed of the nodes and, with --config, what each fence agent reads.
It changes nothing.`

// runFenceStatus is `csi-fencepost fence status`.
func runFenceStatus(ctx context.Context, args []string, stdout, _ io.Writer) error {
	fs, flags, agents := cli.NewFlags("fence status", fenceStatusHelp), cluster.Flags{}, cluster.AgentFlags{}
	fs.Output("text", "json", "yaml")
	flags.Register(fs)
	agents.Register(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 1 {
		return fs.Wrong("it takes one NODE or none, got %d arguments", fs.NArg())
	}
	c, err := flags.Open(fs.Name())
	if err != nil {
		return err
	}
	status, err := readStatus(ctx, c.Records(), fs.Arg(0))
	if err != nil {
		return err
	}
	if flags.Config == "" {
		status.Notes = append(status.Notes, "The fence agents were not asked: --config names the sidecar's configuration, where it and the files that it names are.")
	} else if err := status.ask(ctx, c, &agents, fs.Arg(0)); err != nil {
		return err
	}
	return fs.Print(stdout, status, func(w io.Writer) { printStatus(w, status) })
}

// A fenceStatus is the output of `fence status`; its JSON is stable as an
// explanation's is.
type fenceStatus struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Nodes and what their agents read; null: they were not asked.
	Nodes   []cluster.NodeStatus `json:"nodes"`
	Records []*record.Record     `json:"records"`
	// Garbled records, in words.
	Garbled []string `json:"garbled"`
	Notes   []string `json:"notes"`
}

func readStatus(ctx context.Context, store *record.Store, node string) (*fenceStatus, error) {
	records, garbled, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	s := &fenceStatus{APIVersion: config.APIVersion, Kind: "FenceStatus", Records: []*record.Record{}, Garbled: []string{}, Notes: []string{}}
	for _, r := range records {
		if node == "" || r.Node == node {
			s.Records = append(s.Records, r)
		}
	}
	for _, g := range garbled {
		if node == "" || g.Node == node {
			s.Garbled = append(s.Garbled, g.Error())
		}
	}
	return s, nil
}

// ask adds the nodes, and what every agent reads of each.
func (s *fenceStatus) ask(ctx context.Context, c *cluster.Cluster, flags *cluster.AgentFlags, only string) error {
	agents, done, err := flags.Build(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	machines, err := cluster.ReadMachines(ctx, c, agents.Driver)
	if err != nil {
		return err
	}
	s.Notes = append(s.Notes, agents.Notes...)
	for _, err := range agents.Faults {
		s.Notes = append(s.Notes, err.Error())
	}
	names := s.nodes(machines, only)
	s.Nodes = make([]cluster.NodeStatus, len(names))
	for i, name := range names {
		s.Nodes[i] = cluster.NodeStatus{Node: name, Liveness: machines.Liveness(name), Record: cluster.RecordWords(s.record(name)), Agents: []cluster.ReadingView{}}
	}
	cluster.Each(names, func(i int, name string) {
		s.Nodes[i].Agents = cluster.ReadAgents(ctx, agents, c.Doubted(ctx, agents, machines.Machine(name)))
	})
	return nil
}

// nodes are those of the cluster, and those of which only a record claims something.
func (s *fenceStatus) nodes(machines *cluster.Machines, only string) []string {
	if only != "" {
		return []string{only}
	}
	names := machines.Names()
	for _, r := range s.Records {
		if !r.OnlyIdentity() {
			names = append(names, r.Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *fenceStatus) record(node string) *record.Record {
	for _, r := range s.Records {
		if r.Node == node {
			return r
		}
	}
	return nil
}

// printStatus writes the nodes and the claims as tables, and the audit trails
// below.
func printStatus(w io.Writer, s *fenceStatus) {
	t := cli.NewTables(w)
	if s.Nodes != nil {
		t.Print([]string{"NODE", "LIVENESS", "RECORD", "AGENT", "LEVEL", "READS", "TOOK", "DETAIL"}, nodeRows(s.Nodes))
	}
	claims := claimRows(s.Records)
	switch {
	case len(claims) > 0:
		t.Print([]string{"NODE", "CLAIM", "BY", "SINCE", "COUNTS", "ABOUT", "ID"}, claims)
	case s.Nodes == nil:
		t.Line("Nothing is claimed of any node.")
	}
	if audits := auditRows(s.Records); len(audits) > 0 {
		t.Print([]string{"AUDIT", "NODE", "ACTOR", "ACTION", "DETAIL"}, audits)
	}
	for _, r := range s.Records {
		if r.Identity == nil {
			continue
		}
		for _, b := range r.Identity.Bound {
			switch b.Other {
			case "":
			case record.EarlierMachine:
				t.Line(fmt.Sprintf("! Node %s has %s (%s) of an earlier machine under it, by which no fence agent acts. If it is that machine with another board: csi-fencepost fence bind %s --same-machine --reason TEXT",
					r.Node, b.Value, b.Kind, printable.Word(r.Node)))
			default:
				t.Line(fmt.Sprintf("! Node %s says that its machine is %s (%s), and so does node %s, to which that is bound: no fence agent acts by it for %[1]s.", r.Node, b.Value, b.Kind, b.Other))
			}
			if b.Since != "" {
				t.Line(fmt.Sprintf("! Node %s says that its machine is %s (%s) since, and was known by %s first: no fence agent acts by it. If it is that machine: csi-fencepost fence bind %s --reason TEXT, with --same-machine if it is the one before with another board",
					r.Node, b.Since, b.Kind, b.Value, printable.Word(r.Node)))
			}
		}
	}
	for _, g := range s.Garbled {
		t.Line("! " + g)
	}
	for _, note := range s.Notes {
		t.Line("* " + note)
	}
}

// nodeRows are one for each agent; a node's own columns stand in its first.
func nodeRows(nodes []cluster.NodeStatus) (rows [][]string) {
	for _, n := range nodes {
		first := []string{n.Node, n.Liveness, cli.OrDash(n.Record)}
		if len(n.Agents) == 0 {
			rows = append(rows, append(first, "none", "-", "-", "-", "no level covers it"))
		}
		for _, a := range n.Agents {
			rows = append(rows, append(first, a.Agent, fmt.Sprint(a.Level), a.State, a.Took, a.Words()))
			first = []string{"", "", ""}
		}
	}
	return rows
}

func claimRows(records []*record.Record) (rows [][]string) {
	for _, r := range records {
		for i := range r.Fences {
			f := &r.Fences[i]
			about := machineColumn(record.Machine{NodeUID: f.Machine.NodeUID}) + ", agents " + cli.OrNone(strings.Join(f.Agents, ", ")) + ": " + f.Reason
			rows = append(rows, []string{r.Node, cluster.FenceWords(f), f.Actor, f.StartedAt, fenceCounts(r, f), about, f.ID})
		}
		for i := range r.Questions {
			q := &r.Questions[i]
			rows = append(rows, []string{r.Node, "asked whether it is off", cli.OrDash(q.Actor), q.At, answerCounts(r, q), machineColumn(record.Machine{NodeUID: q.NodeUID}) + ", for " + q.Driver, q.ID})
		}
		for _, o := range r.Overrides {
			rows = append(rows, []string{r.Node, "agent " + o.Agent + " is wrong", o.By, o.At, overrideCounts(r, &o), machineColumn(o.Machine) + ": " + o.Reason, o.ID})
		}
		for _, c := range r.Confirmations {
			for _, m := range c.Machines {
				rows = append(rows, []string{r.Node, "node is off", cli.OrDash(c.By), c.At, countsWord(r.Doubt(c.Of(&m))), machineColumn(m) + ": " + c.Reason, c.ID})
			}
		}
		for _, key := range slices.Sorted(maps.Keys(r.Taints)) {
			b := r.Taints[key]
			about := key + " on node UID " + b.NodeUID
			if wrote := b.Wrote(); wrote != "" {
				about += ", " + wrote
			}
			rows = append(rows, []string{r.Node, "taint", cli.OrDash(b.Value), b.BoundAt, countsWord(b.Void), about, "-"})
		}
		for _, rel := range r.Releases {
			rows = append(rows, []string{r.Node, "volume released", cli.OrDash(rel.By), rel.At, releaseCounts(r, &rel), "volume " + rel.Volume + " of " + rel.Driver + " from node ID " + rel.NodeID + ": " + rel.Reason, rel.ID})
		}
	}
	return rows
}

// countsWord is the record's own word. Whether the node was heard of since is judged anew at each
// use.
func countsWord(void string) string {
	if void != "" {
		return "no: " + void
	}
	return "yes, unless the node shows life"
}

// releaseCounts is countsWord of a release.
func releaseCounts(r *record.Record, rel *record.Release) string {
	if void := r.Doubt(rel); void != "" || rel.Life != record.Living {
		return countsWord(void)
	}
	return "yes, unless the node boots, lists the volume or is given it again"
}

// answerCounts says what was answered, and since when, for people: each process goes by the
// answer to a question of its own.
func answerCounts(r *record.Record, q *record.Question) string {
	switch a := q.Answer; {
	case a == nil:
		return "no answer yet"
	case !r.Vouched(q):
		return "no: nobody who may fence vouches for the answer of " + a.Actor
	default:
		return fmt.Sprintf("answered %s at %s by %s: %s", a.State, cli.OrDash(a.At), a.Actor, cli.OrDash(a.Why))
	}
}

// overrideCounts is countsWord of an override.
func overrideCounts(r *record.Record, o *record.Override) string {
	if doubt := r.Doubt(o); doubt != "" {
		return countsWord(doubt)
	}
	return "until the node shows life"
}

// fenceCounts is countsWord of a fence.
func fenceCounts(r *record.Record, f *record.Fence) string {
	switch {
	case f.BeingLifted():
		return countsWord(fence.VoidLifting + " (" + f.LiftReason + ")")
	case f.Phase == record.Fenced:
		return countsWord(r.Doubt(f))
	case f.Phase == record.Fencing:
		return "not yet"
	}
	return "no: " + cli.OrDash(f.Why)
}

func machineColumn(m record.Machine) string {
	var parts []string
	if m.NodeID != "" {
		parts = append(parts, "node ID "+m.NodeID)
	}
	if m.NodeUID != "" {
		parts = append(parts, "node UID "+m.NodeUID)
	}
	return strings.Join(parts, ", ")
}

func auditRows(records []*record.Record) (rows [][]string) {
	for _, r := range records {
		for _, a := range r.Audit {
			rows = append(rows, []string{a.At, r.Node, a.Actor, a.Action, cli.OrDash(a.Detail)})
		}
	}
	// RFC 3339 in UTC sorts as text.
	slices.SortStableFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows
}
