package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const bindHelp = `csi-fencepost fence bind NODE --reason TEXT says that what the Node says of its machine now (system UUID, provider ID,
node IDs) is true: fence agents may act by it. It is needed where a machine got a new board or was replaced under its
Node, or a driver names its nodes otherwise than before. Look first: a kubelet may claim another node's machine.
Kubernetes keeps the provider ID of a Node whichever machine it is: with a new board in the same machine, --same-machine
says that it is true. With --yes it has to be said which it is; --same-machine=false is another machine.`

// maxSystem is longer than what any firmware, or a kubelet in its place, has for a system UUID.
const maxSystem = 64

// runFenceBind is `csi-fencepost fence bind`.
func runFenceBind(ctx context.Context, args []string, stdout, _ io.Writer) error {
	f := newClaimFlags("fence bind", bindHelp)
	yes := f.set.Bool("yes", false, "Do not ask.")
	same := f.set.Bool("same-machine", false, "The provider ID is true of this machine, as it is of the one before with another board; =false: it is another machine.")
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
	system := record.Identifier{Kind: record.SystemUUID, Value: now.Node.Status.NodeInfo.SystemUUID}
	if !system.Tells() && system.Value != "" && len(system.Value) <= maxSystem {
		says = append(says, system) // it is what another one since is held against
	}
	records, _, err := c.Records().List(ctx)
	if err != nil {
		return err
	}
	first, err := notOwn(ctx, c.Client, now, says, records, *same)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(slices.Clone(says), func(c record.Identifier) bool { return first[c.Kind] != "" })
	showBinding(stdout, node, own, records)
	showNotOwn(stdout, says, first)
	if *yes && !f.set.Changed("same-machine") && slices.ContainsFunc(says, func(c record.Identifier) bool { return first[c.Kind] == record.EarlierMachine }) {
		return f.set.Wrong("nothing was bound: with --yes it has to be said which machine node %s is: --same-machine if it is the one before with another board, --same-machine=false if it is another one", node)
	}
	if !*yes && !ask(ctx, os.Stdin, stdout, node, fmt.Sprintf("This binds it to node %s. Type its name to go on: ", node)) {
		return errors.New("nothing was bound")
	}
	by := cluster.Operator(ctx, c.Client)
	// It is taken from the others first: no agent acts by what is bound to two.
	for _, r := range records {
		if r.Node == node || len(r.Shares(own)) == 0 {
			continue
		}
		if _, err := c.Records().Update(ctx, r.Node, func(r *record.Record) (bool, error) { return r.TakeFrom(own, node, f.reason, by), nil }); err != nil {
			return err
		}
	}
	if _, err := c.Records().Update(ctx, node, func(r *record.Record) (bool, error) {
		r.BindAs(now.UID(), says, first, f.reason, by)
		return true, nil
	}); err != nil {
		return err
	}
	fmt.Fprintln(stdout, printable.Line(fmt.Sprintf("It is bound to node %s%s. The sidecars see it by themselves.", node, butFor(says, first))))
	return nil
}

// butFor names what was not bound, for people.
func butFor(says []record.Identifier, first map[string]string) string {
	var words []string
	for _, c := range says {
		if first[c.Kind] != "" {
			words = append(words, c.Kind+" "+c.Value)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return ", but for " + strings.Join(words, " and ") + ": no fence agent acts by that"
}

// notOwn are the kinds of what the Node says that are not its machine's own whatever a person
// says of that, and who had them first. Kubernetes keeps the provider ID of a Node, whichever
// machine registers under it; and of an instance ID that a Node with another provider ID has
// too, the one of the two would lose it to the other. That nobody vouches for what the record
// says takes no doubt away.
func notOwn(ctx context.Context, client kubernetes.Interface, now *cluster.Node, says []record.Identifier, records []*record.Record, sameMachine bool) (map[string]string, error) {
	first, provider, instance := map[string]string{}, identifier(says, record.ProviderID), identifier(says, record.InstanceID)
	for _, r := range records {
		if r.Node == now.Name {
			was, marked := r.Identity.Of(record.SystemUUID), r.Identity.Of(record.ProviderID)
			another := was.NodeUID == now.UID() && !was.Late && !was.Is(record.Identifier{Kind: record.SystemUUID, Value: now.Node.Status.NodeInfo.SystemUUID})
			if !sameMachine && provider.Value != "" && (another || marked.Other == record.EarlierMachine && marked.NodeUID == now.UID()) {
				for _, c := range says { // a driver may take its node ID from the provider ID
					if (c.Meets(provider) || c.Meets(instance)) && !c.IsName(now.Name) {
						first[c.Kind] = record.EarlierMachine
					}
				}
			}
			continue
		}
		if !slices.ContainsFunc(r.Shares(says), func(b *record.Binding) bool { return b.Kind == record.InstanceID && b.Is(instance) }) {
			continue
		}
		other, err := cluster.ReadNode(ctx, client, r.Node)
		if err != nil {
			return nil, err
		}
		if theirs := identifier(fencer.Said(other.Node, nil), record.ProviderID); theirs.Value != "" && !theirs.Is(provider) {
			first[record.InstanceID] = cmp.Or(first[record.InstanceID], r.Node)
		}
	}
	return first, nil
}

func identifier(all []record.Identifier, kind string) (found record.Identifier) {
	if at := slices.IndexFunc(all, func(c record.Identifier) bool { return c.Kind == kind }); at >= 0 {
		found = all[at]
	}
	return found
}

// showNotOwn shows what is not bound as the node's own, and the way out.
func showNotOwn(out io.Writer, says []record.Identifier, first map[string]string) {
	for _, one := range says {
		switch who := first[one.Kind]; who {
		case "":
		case record.EarlierMachine:
			fmt.Fprintln(out, printable.Line(fmt.Sprintf("! %s %s is not bound: the Node has it of an earlier machine, which may be off while this one writes. If this is that one with another board, add --same-machine. If not, name its device in nodeParameters, or delete the Node and restart its kubelet.", one.Kind, one.Value)))
		default:
			fmt.Fprintln(out, printable.Line(fmt.Sprintf("! %s %s is not bound: node %s has it too, under another provider ID. Name the devices of both in nodeParameters; if that is not a machine of its own, delete its Node.", one.Kind, one.Value, who)))
		}
	}
}

// showBinding shows what the Node says, what was bound to it, and what others lose. A kubelet
// wrote it, and may have wanted lines of its own.
func showBinding(out io.Writer, node string, says []record.Identifier, records []*record.Record) {
	fmt.Fprintf(out, "Node %s says of its machine:\n", node)
	for _, one := range says {
		note := "new"
		for _, r := range records {
			if b := r.Identity.Of(one.Kind); r.Node == node && b.Value != "" {
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
