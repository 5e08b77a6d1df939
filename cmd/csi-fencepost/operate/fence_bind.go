package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/term"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const bindHelp = `csi-fencepost fence bind NODE --reason TEXT says that what the Node says of its machine now (system UUID, provider ID,
node IDs) is true: fence agents may act by it. It is needed where a machine got a new board or was replaced under its
Node, or a driver names its nodes otherwise than before. Look first: a kubelet may claim another node's machine.`

// runFenceBind is `csi-fencepost fence bind`.
func runFenceBind(ctx context.Context, args []string, stdout, _ io.Writer) error {
	f := newClaimFlags("fence bind", bindHelp)
	yes := f.set.Bool("yes", false, "Do not ask.")
	if err := f.parse(args, "NODE"); err != nil {
		return err
	}
	node := f.set.Arg(0)
	if !*yes && !term.IsTerminal(int(os.Stdin.Fd())) {
		return f.set.Wrong("standard input is no terminal, so that nobody can be asked: give --yes if what node %s says of its machine is true", node)
	}
	c, err := f.cluster.Open(f.set.Name())
	if err != nil {
		return err
	}
	now, err := cluster.ReadNode(ctx, c.Client, node)
	if err != nil {
		return err
	}
	if now.Node == nil {
		return fmt.Errorf("there is no Node %s that says which machine it is. Turn that off by hand, and say so: csi-fencepost fence confirm %s --reason TEXT", node, printable.Word(node))
	}
	says := fencer.Said(now.Node, now.CSINode)
	if len(says) == 0 {
		return fmt.Errorf("nothing that Node %s says tells its machine from others", node)
	}
	records, _, err := c.Records().List(ctx)
	if err != nil {
		return err
	}
	if err := sharedInstance(ctx, c.Client, node, says, records); err != nil {
		return err
	}
	showBinding(stdout, node, says, records)
	if !*yes && !ask(ctx, os.Stdin, stdout, node, fmt.Sprintf("This binds it to node %s. Type its name to go on: ", node)) {
		return errors.New("nothing was bound")
	}
	by := cluster.Operator(ctx, c.Client)
	// It is taken from the others first: no agent acts by what is bound to two.
	for _, r := range records {
		if r.Node == node || len(r.Shares(says)) == 0 {
			continue
		}
		if _, err := c.Records().Update(ctx, r.Node, func(r *record.Record) (bool, error) { return r.TakeFrom(says, node, f.reason, by), nil }); err != nil {
			return err
		}
	}
	if _, err := c.Records().Update(ctx, node, func(r *record.Record) (bool, error) {
		r.BindAs(now.UID(), says, f.reason, by)
		return true, nil
	}); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "It is bound to node %s. The sidecars see it by themselves.\n", node)
	return nil
}

// sharedInstance is an error where the instance ID is also that of a Node with another provider
// ID: to whichever of the two it is bound, the other one loses it.
func sharedInstance(ctx context.Context, client kubernetes.Interface, node string, says []record.Identifier, records []*record.Record) error {
	own := identifier(says, record.ProviderID)
	for _, r := range records {
		if r.Node == node || !slices.ContainsFunc(r.Shares(says), func(b *record.Binding) bool { return b.Kind == record.InstanceID }) {
			continue
		}
		other, err := cluster.ReadNode(ctx, client, r.Node)
		if err != nil {
			return err
		}
		if provider := identifier(fencer.Said(other.Node, nil), record.ProviderID); provider.Value != "" && !provider.Is(own) {
			return fmt.Errorf("instance ID %s is that of node %s too, whose provider ID is %s: programs cannot go by it. Name the devices of both in nodeParameters",
				printable.Word(identifier(says, record.InstanceID).Value), printable.Word(r.Node), printable.Word(provider.Value))
		}
	}
	return nil
}

func identifier(all []record.Identifier, kind string) (found record.Identifier) {
	if at := slices.IndexFunc(all, func(c record.Identifier) bool { return c.Kind == kind }); at >= 0 {
		found = all[at]
	}
	return found
}

// showBinding shows what the Node says, what was bound to it, and what others lose. A kubelet
// wrote it, and may have wanted lines of its own.
func showBinding(out io.Writer, node string, says []record.Identifier, records []*record.Record) {
	fmt.Fprintf(out, "Node %s says of its machine:\n", node)
	for _, one := range says {
		note := "new"
		for _, r := range records {
			if b := r.Known().Of(one.Kind); r.Node == node && b.Value != "" {
				note = "it said first: " + b.Value
			}
		}
		fmt.Fprintln(out, printable.Line(fmt.Sprintf("  %s: %s (%s)", one.Kind, one.Value, note)))
	}
	for _, r := range records {
		for _, b := range r.Shares(says) {
			if r.Node != node {
				fmt.Fprintln(out, printable.Line(fmt.Sprintf("! Node %s is known by %s %s, and loses that: is it not that node's machine?", r.Node, b.Kind, b.Value)))
			}
		}
	}
}
