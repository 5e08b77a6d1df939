package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const confirmHelp = `csi-fencepost fence confirm NODE --reason TEXT says that the node is off: its volumes may move.
It is refused while the node renews its lease.`

// confirmFlags are the flags and arguments of `csi-fencepost fence confirm`.
type confirmFlags struct {
	*claimFlags
	nodeID string
	yes    bool
	node   string
	// overrideAgent is why an agent that reads on is wrong; empty: none is.
	overrideAgent string
	agents        cluster.AgentFlags
}

func parseConfirmFlags(args []string) (*confirmFlags, error) {
	f := &confirmFlags{claimFlags: newClaimFlags("fence confirm", confirmHelp)}
	f.set.StringVar(&f.nodeID, "node-id", "", "Only the machine with this node ID of a driver, for example an old one of which a new machine has the name.")
	f.set.BoolVar(&f.yes, "yes", false, "Do not ask.")
	f.set.StringVar(&f.overrideAgent, "override-agent", "", "Why a fence agent that reads on is wrong: its device is broken. With fencing.apart: why csi-fencepost failover need not be waited for. It is kept in the audit trail. Needs --config.")
	f.agents.Register(f.set)
	if err := f.parse(args, "NODE"); err != nil {
		return f, err
	}
	switch given := f.set.Changed("override-agent"); {
	case given && strings.TrimSpace(f.overrideAgent) == "":
		return nil, f.set.Wrong("--override-agent is empty: how is it known that the device is wrong?")
	case given && f.cluster.Config == "":
		return nil, f.set.Wrong("--override-agent needs --config, to find the agents that read on")
	}
	f.node = f.set.Arg(0)
	if !f.yes && !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, f.set.Wrong("standard input is no terminal, so that nobody can be asked: give --yes if you are sure that node %s is off", f.node)
	}
	return f, nil
}

// runFenceConfirm is `csi-fencepost fence confirm`.
func runFenceConfirm(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseConfirmFlags(args)
	if err != nil {
		return err
	}
	c, err := f.open()
	if err != nil {
		return err
	}
	return f.confirm(ctx, c, stdout, stderr)
}

// confirm reads, watches, asks, reads again, and writes.
func (f *confirmFlags) confirm(ctx context.Context, c *cluster.Cluster, stdout, stderr io.Writer) error {
	now, err := cluster.ReadNode(ctx, c.Client, f.node)
	if err != nil {
		return err
	}
	held, err := cluster.ReadHoldings(ctx, c.Client, now)
	if err != nil {
		return err
	}
	b, err := bind(now, held, f.nodeID)
	if err != nil {
		return err
	}
	if b.watch {
		if err := watchSilence(ctx, c.Client, now, stderr); err != nil {
			return f.butOlder(err, now, held)
		}
	}
	wrong, err := f.readingOn(ctx, c, now)
	if err != nil {
		return err
	}
	printBinding(stdout, now, b)
	printOverrides(stdout, wrong)
	if !f.yes && !ask(ctx, os.Stdin, stdout, f.node, fmt.Sprintf("If node %s still writes, this destroys data. Type its name to confirm that it is off: ", f.node)) {
		return errors.New("nothing was written")
	}
	if b.watch {
		// A person may have thought about it for a while.
		if err := stillSilent(ctx, c.Client, now); err != nil {
			return err
		}
	}
	by := cluster.Operator(ctx, c.Client)
	if err := f.override(ctx, c, by, wrong, b); err != nil {
		return err
	}
	id, err := c.Records().Confirm(ctx, f.node, record.Confirmation{By: by, Reason: f.reason, Machines: b.machines})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Confirmed: node %s is off. The sidecars see it by themselves.\nTo take it back: csi-fencepost fence withdraw %s --id %s --reason TEXT\n", f.node, printable.Word(f.node), id)
	return nil
}

// butOlder adds, to the error that the node lives, how to speak of the older machines
// of its name alone.
func (f *confirmFlags) butOlder(err error, now *cluster.Node, held *cluster.Holdings) error {
	var alive *aliveError
	if f.nodeID != "" || !errors.As(err, &alive) {
		return err
	}
	var ids []string
	for _, h := range held.All {
		if now.IsOlder(h) && !slices.Contains(ids, h.NodeID) {
			ids = append(ids, h.NodeID)
		}
	}
	for _, id := range ids {
		err = fmt.Errorf("%w; of the older machine of its name with node ID %s, if that one is off, say it alone: csi-fencepost fence confirm %s --node-id %s --reason TEXT",
			err, id, printable.Word(f.node), printable.Word(id))
	}
	return err
}

// ask has the node's name typed.
func ask(ctx context.Context, in io.Reader, out io.Writer, node, question string) bool {
	fmt.Fprint(out, question)
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		typed <- strings.TrimSpace(line)
	}()
	select {
	case line := <-typed:
		return line == node
	case <-ctx.Done():
		return false
	}
}
