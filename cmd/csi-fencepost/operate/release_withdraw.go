package operate

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const releaseWithdrawHelp = `csi-fencepost release withdraw pv NAME --node NODE --reason TEXT takes back that the node does not use that one volume
any more. What has moved since stays where it is.`

// runReleaseWithdraw is `csi-fencepost release withdraw`.
func runReleaseWithdraw(ctx context.Context, args []string, stdout io.Writer) error {
	f := newClaimFlags("release withdraw", releaseWithdrawHelp)
	var node string
	f.set.StringVar(&node, "node", "", "The node that the volume was released from. Required.")
	if err := f.parse(args, "pv", "NAME"); err != nil {
		return err
	}
	if kind := f.set.Arg(0); kind != "pv" && kind != "persistentvolume" {
		return f.set.Wrong("%q is never released, only pv: csi-fencepost release withdraw pv NAME --node NODE --reason TEXT", kind)
	}
	if strings.TrimSpace(node) == "" {
		return f.set.Wrong("--node is missing: the node that the volume was released from")
	}
	c, err := f.cluster.Open(f.set.Name())
	if err != nil {
		return err
	}
	pv, driver, err := explain.FindPV(ctx, c, f.set.Arg(1))
	if err != nil {
		return err
	}
	ids := &csi.Identity{Driver: driver}
	handle, _ := ids.PVHandle(pv)
	withdrawn, err := c.Records().WithdrawReleases(ctx, node, cluster.Operator(ctx, c.Client), f.reason, func(rel *record.Release) bool {
		return rel.Driver == driver && ids.Same(rel.Volume, handle)
	})
	if err != nil {
		return err
	}
	if len(withdrawn) == 0 {
		return fmt.Errorf("there is no release of PersistentVolume %s from node %s; csi-fencepost fence status lists what there is", pv.Name, node)
	}
	for i := range withdrawn {
		fmt.Fprintf(stdout, "Withdrawn: that node %s (ID %s) does not use PersistentVolume %s, which %s said at %s.\n", node, withdrawn[i].NodeID, pv.Name, withdrawn[i].By, withdrawn[i].At)
	}
	fmt.Fprintln(stdout, "The sidecars see it by themselves.")
	return nil
}
