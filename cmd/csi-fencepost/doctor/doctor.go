package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

const doctorHelp = `csi-fencepost doctor [NODE | node/NODE] says, driver by driver, whether it is guarded and with which rights, and what
would happen if a node died now; with NODE, of that one in full. It changes nothing, and asks no agent and no driver.
Each finding is broken, look at or ok. Exit code: 0, nothing is broken; 1, something is, or it could not be looked at.
--bundle FILE also writes what somebody who helps needs, with no secrets in it.`

// Command is `csi-fencepost doctor`.
func Command() cli.Command {
	return cli.Command{Name: "doctor", Summary: "is every driver guarded, and what would happen if a node died now", Run: run}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs, flags := cli.NewFlags("doctor", doctorHelp), cluster.Flags{}
	fs.Output("text", "json", "yaml")
	bundle := fs.String("bundle", "", "Write an archive (.tar.gz) with what was read, logs and /statusz to this file; - is standard output.")
	flags.Register(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	node, _ := strings.CutPrefix(fs.Arg(0), "node/")
	if fs.NArg() > 1 || fs.NArg() == 1 && node == "" {
		return fs.Wrong("it takes one NODE or none, got %s", strings.Join(fs.Args(), ", "))
	}
	c, err := flags.Open(fs.Name())
	if err != nil {
		return err
	}
	d, err := look(ctx, c, node)
	if err != nil {
		return err
	}
	if *bundle != "" {
		if err := d.writeBundle(ctx, *bundle, stdout, stderr); err != nil {
			return err
		}
	}
	if *bundle != "-" {
		if err := fs.Print(stdout, &d.Report, func(w io.Writer) { d.print(w, cli.StyleOf(stdout)) }); err != nil {
			return err
		}
	}
	if n := d.count(Broken, ""); n > 0 {
		return fmt.Errorf("doctor: broken: %s", cli.Count(n, "finding"))
	}
	return nil
}

// look reads the cluster and judges it.
func look(ctx context.Context, c *cluster.Cluster, node string) (*doctoring, error) {
	f, err := readFacts(ctx, c)
	if err != nil {
		return nil, err
	}
	d := &doctoring{facts: f, holdings: f.held(), workloads: map[string]workload{}, wires: map[string][]wired{}, own: map[string]*process{},
		Report: Report{APIVersion: config.APIVersion, Kind: "DoctorReport", Findings: []Finding{}, Drivers: []Driver{}, Policies: []Policy{}, Fates: []Fate{}, Notes: []string{}}}
	if node != "" {
		if err := d.name(node); err != nil {
			return nil, err
		}
	}
	d.lookAtPolicies()
	d.lookAtDrivers(ctx)
	d.lookAtState()
	d.lookAtNodes(node)
	for i := range d.Drivers {
		d.Drivers[i].Grade = d.worst(d.Drivers[i].Name)
	}
	d.sort()
	d.MissingRights = append([]string{}, f.missing...)
	return d, nil
}

// name takes note of the node that was asked for.
func (d *doctoring) name(node string) error {
	n, r := d.nodes[node], d.records[node]
	if held := func(at place) bool { return at.node == node }; n == nil && r == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(d.holdings.pvs)), held) {
		if !d.sees("nodes") {
			return errors.New("the node is not known: missing right: list nodes")
		}
		return fmt.Errorf("nothing is known of a node %s%s", node, cli.DidYouMean(node, sorted(d.nodes)))
	}
	d.Node = &Node{Name: node, Exists: n != nil, Ready: n != nil && fence.NodeReady(n), Record: cluster.RecordWords(r)}
	if n == nil { // what it holds is shown all the same
		d.nodes[node] = &corev1.Node{}
		d.nodes[node].Name = node
	}
	return nil
}
