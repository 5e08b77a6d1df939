package operate

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const withdrawHelp = `csi-fencepost fence withdraw NODE --reason TEXT takes back what says that the node is off: confirmations, words that
an agent is wrong, and fences. It gives no power back: csi-fencepost fence on NODE does. Of a storage fence that is
being given back (fence status says so) it is the last resort: first csi-fencepost fence on NODE, if the node lives, or
csi-fencepost fence off NODE, if it has died.`

// runFenceWithdraw is `csi-fencepost fence withdraw`.
func runFenceWithdraw(ctx context.Context, args []string, stdout, _ io.Writer) error {
	f := newClaimFlags("fence withdraw", withdrawHelp)
	var ids []string
	f.set.StringArrayVar(&ids, "id", nil, "The confirmation or fence to withdraw, as fence status lists it; may be given several times. Default: all of the node.")
	if err := f.parse(args, "NODE"); err != nil {
		return err
	}
	c, err := f.cluster.Open(f.set.Name())
	if err != nil {
		return err
	}
	w := &withdrawal{store: c.Records(), node: f.set.Arg(0), by: cluster.Operator(ctx, c.Client), reason: f.reason}
	if err := w.run(ctx, ids); err != nil {
		return err
	}
	return w.print(stdout)
}

// A withdrawal takes back what is claimed of one node.
type withdrawal struct {
	store            *record.Store
	node, by, reason string

	confirmations, overrides int
	fences                   []record.Fence
}

// run withdraws the claims with these IDs, or all if none is named.
func (w *withdrawal) run(ctx context.Context, ids []string) error {
	r, err := w.store.Get(ctx, w.node)
	if err != nil || r == nil {
		return err
	}
	all := len(ids) == 0
	ofFence := func(id string) bool { return r.FenceByID(id) != nil }
	if others := slices.DeleteFunc(slices.Clone(ids), ofFence); all || len(others) > 0 {
		if w.confirmations, err = w.store.Withdraw(ctx, w.node, w.by, w.reason, others...); err != nil {
			return err
		}
	}
	if all {
		if w.overrides, err = w.store.WithdrawOverrides(ctx, w.node, w.by, w.reason); err != nil {
			return err
		}
	}
	return w.endFences(ctx, func(id string) bool { return all || slices.Contains(ids, id) })
}

// endFences voids those that count, or are still to be lifted. Another one that is
// under way is left alone: it proves nothing yet, and whoever fences would write it
// anew.
func (w *withdrawal) endFences(ctx context.Context, chosen func(id string) bool) error {
	_, err := w.store.Update(ctx, w.node, func(r *record.Record) (bool, error) {
		w.fences = nil
		for i := range r.Fences {
			f := r.Fences[i]
			if f.Standing() && chosen(f.ID) && r.WithdrawFence(f.ID, w.reason, w.by) {
				w.fences = append(w.fences, f)
			}
		}
		return len(w.fences) > 0, nil
	})
	return err
}

func (w *withdrawal) print(out io.Writer) error {
	if w.confirmations+w.overrides+len(w.fences) == 0 {
		return fmt.Errorf("there is no confirmation of node %s and no fence that counts; csi-fencepost fence status lists what there is", w.node)
	}
	if w.confirmations > 0 {
		fmt.Fprintf(out, "Withdrawn: %s that node %s is off.\n", cli.Count(w.confirmations, "confirmation"), w.node)
	}
	if w.overrides > 0 {
		fmt.Fprintf(out, "Withdrawn: %s that an agent of node %s is wrong.\n", cli.Count(w.overrides, "word"), w.node)
	}
	for i := range w.fences {
		fmt.Fprintf(out, "Withdrawn: that node %s is %s.\n", w.node, cluster.FenceWords(&w.fences[i]))
		switch {
		case w.fences[i].BeingLifted():
			node := printable.Word(w.node)
			fmt.Fprintf(out, "The storage may still refuse some of it, and nothing says so any more. If the node lives, give it the rest back first: "+
				"csi-fencepost fence on %s --reason TEXT\nIf it has died, cut it off anew first: csi-fencepost fence off %s --reason TEXT\n", node, node)
		case w.fences[i].Kind == fence.StorageFence:
			fmt.Fprintf(out, "The storage still refuses the node. To give its access back: csi-fencepost fence on %s --reason TEXT\n", printable.Word(w.node))
		}
	}
	fmt.Fprintln(out, "The sidecars see it by themselves.")
	return nil
}
