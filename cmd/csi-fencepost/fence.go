package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const fenceHelp = `csi-fencepost fence status [NODE]                what is claimed of the nodes, by whom, and whether it still counts
csi-fencepost fence confirm NODE --reason TEXT   say that a node is off, so that its volumes may move
csi-fencepost fence withdraw NODE --reason TEXT  take such a word back

csi-fencepost fence SUBCOMMAND --help lists the flags.
`

// runFence is `csi-fencepost fence`.
func runFence(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usagef("fence: no subcommand is given: one of status, confirm, withdraw")
	}
	switch args[0] {
	case "status":
		return runFenceStatus(ctx, args[1:], stdout)
	case "confirm":
		return runFenceConfirm(ctx, args[1:], stdout, stderr)
	case "withdraw":
		return runFenceWithdraw(ctx, args[1:], stdout)
	case "test", "off", "on":
		return usagef("fence %s: fence agents are not in this version yet; turn the node off by other means and say so: csi-fencepost fence confirm NODE --reason TEXT", args[0])
	case "-h", "--help", "help":
		_, err := io.WriteString(stdout, fenceHelp)
		return err
	}
	return usagef("fence: unknown subcommand %q: one of status, confirm, withdraw", args[0])
}

// claimFlags are those of the commands that write what an operator says.
type claimFlags struct {
	cluster clusterFlags
	reason  string
	set     *pflag.FlagSet
}

func newClaimFlags(command string) *claimFlags {
	f := &claimFlags{set: newFlagSet(command)}
	f.set.StringVar(&f.reason, "reason", "", "Why: how it is known. It is kept in the audit trail. Required.")
	return f
}

// parse reads the flags and exactly the arguments that are named.
func (f *claimFlags) parse(args []string, names ...string) error {
	f.cluster.register(f.set)
	if err := parseFlags(f.set, args); err != nil {
		return err
	}
	if got := f.set.NArg(); got != len(names) {
		return usagef("%s: it takes %s, got %d arguments: csi-fencepost %[1]s %[2]s --reason TEXT", f.set.Name(), strings.Join(names, " "), got)
	}
	if strings.TrimSpace(f.reason) == "" {
		return usagef("%s: --reason is missing: how is it known? For example --reason 'pulled the power cord'", f.set.Name())
	}
	return nil
}

func (f *claimFlags) help(w io.Writer, what string) {
	fmt.Fprintf(w, "%s\n\nFlags:\n%s", what, f.set.FlagUsages())
}

// records of the cluster.
func (c *cluster) records() *record.Store {
	return record.NewStore(c.client.CoordinationV1(), c.config.Fencing.Namespace)
}

// believed: a claim that the sidecar does not ask for is not worth writing.
func believed(c *config.Configuration) error {
	if !c.Evidence.OperatorConfirmation {
		return errors.New("the configuration switches operators' words off (evidence.operatorConfirmation: false), so that it would not count")
	}
	return nil
}

// runFenceWithdraw is `csi-fencepost fence withdraw`.
func runFenceWithdraw(ctx context.Context, args []string, stdout io.Writer) error {
	f := newClaimFlags("fence withdraw")
	var ids []string
	f.set.StringArrayVar(&ids, "id", nil, "The confirmation to withdraw, as fence status lists it; may be given several times. Default: all of the node.")
	if err := f.parse(args, "NODE"); errors.Is(err, errHelp) {
		f.help(stdout, "csi-fencepost fence withdraw NODE --reason TEXT takes back confirmations that the node is off.")
		return nil
	} else if err != nil {
		return err
	}
	c, err := f.cluster.open(f.set.Name())
	if err != nil {
		return err
	}
	node := f.set.Arg(0)
	n, err := c.records().Withdraw(ctx, node, operator(ctx, c.client), f.reason, ids...)
	switch {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("there is no confirmation of node %s; csi-fencepost fence status lists those that there are", node)
	case n == 1:
		fmt.Fprintf(stdout, "Withdrawn: the confirmation that node %s is off. The sidecars see it by themselves.\n", node)
	default:
		fmt.Fprintf(stdout, "Withdrawn: %d confirmations that node %s is off. The sidecars see it by themselves.\n", n, node)
	}
	return nil
}

// runFenceStatus is `csi-fencepost fence status`.
func runFenceStatus(ctx context.Context, args []string, stdout io.Writer) error {
	fs, output, flags := newFlagSet("fence status"), "", clusterFlags{}
	fs.StringVarP(&output, "output", "o", "text", "How to print it: text, json or yaml.")
	flags.register(fs)
	switch err := parseFlags(fs, args); {
	case errors.Is(err, errHelp):
		fmt.Fprintf(stdout, "csi-fencepost fence status [NODE] lists what is claimed of the nodes.\n\nFlags:\n%s", fs.FlagUsages())
		return nil
	case err != nil:
		return err
	case fs.NArg() > 1:
		return usagef("fence status: it takes one NODE or none, got %d arguments", fs.NArg())
	case output != "text" && output != "json" && output != "yaml":
		return usagef("fence status: --output is %q: it has to be text, json or yaml", output)
	}
	c, err := flags.open(fs.Name())
	if err != nil {
		return err
	}
	status, err := readStatus(ctx, c.records(), fs.Arg(0))
	if err != nil {
		return err
	}
	return printAs(stdout, output, status, func(w io.Writer) { printStatus(w, status) })
}

// A fenceStatus is the output of `fence status`; its JSON is stable as an
// explanation's is.
type fenceStatus struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Records    []*record.Record `json:"records"`
	// Garbled records, in words.
	Garbled []string `json:"garbled"`
}

func readStatus(ctx context.Context, store *record.Store, node string) (*fenceStatus, error) {
	records, garbled, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	s := &fenceStatus{APIVersion: config.APIVersion, Kind: "FenceStatus", Records: []*record.Record{}, Garbled: []string{}}
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

// printStatus writes the claims as a table, and the audit trails below.
func printStatus(w io.Writer, s *fenceStatus) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush()
	claims, audits := claimRows(s.Records), auditRows(s.Records)
	if len(claims) == 0 {
		fmt.Fprintln(table, "Nothing is claimed of any node.")
	} else {
		printRows(table, []string{"NODE", "CLAIM", "BY", "SINCE", "COUNTS", "ABOUT", "ID"}, claims)
	}
	if len(audits) > 0 {
		fmt.Fprintln(table)
		printRows(table, []string{"AUDIT", "NODE", "ACTOR", "ACTION", "DETAIL"}, audits)
	}
	for _, g := range s.Garbled {
		fmt.Fprintf(table, "\n! %s\n", g)
	}
}

func printRows(w io.Writer, head []string, rows [][]string) {
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			if strings.TrimSpace(cell) == "" {
				row[i] = "-"
			}
			row[i] = strings.Map(oneLine, row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
}

// oneLine keeps what people wrote from breaking the table, or the terminal.
func oneLine(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func claimRows(records []*record.Record) (rows [][]string) {
	for _, r := range records {
		for _, c := range r.Confirmations {
			for _, m := range c.Machines {
				rows = append(rows, []string{r.Node, "node is off", c.By, c.At, countsWord(c.Void, m.Void), machineColumn(m) + ": " + c.Reason, c.ID})
			}
		}
		for _, key := range slices.Sorted(maps.Keys(r.Taints)) {
			b := r.Taints[key]
			rows = append(rows, []string{r.Node, "taint", b.Value, b.BoundAt, countsWord(b.Void), key + " on node UID " + b.NodeUID, ""})
		}
		for _, rel := range r.Releases {
			rows = append(rows, []string{r.Node, "volume released", rel.By, rel.At, "until it is published there again", "volume " + rel.Volume + " of " + rel.Driver + " from node ID " + rel.NodeID + ": " + rel.Reason, rel.ID})
		}
	}
	return rows
}

// countsWord: the record's own word. Whether the node was heard of since is
// judged anew at each use.
func countsWord(voids ...string) string {
	for _, void := range voids {
		if void != "" {
			return "no: " + void
		}
	}
	return "yes, unless the node shows life"
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
			rows = append(rows, []string{a.At, r.Node, a.Actor, a.Action, a.Detail})
		}
	}
	// RFC 3339 in UTC sorts as text.
	slices.SortStableFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows
}
