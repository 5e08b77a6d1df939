package explain

import (
	"fmt"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// remediesOfLedger are for one that cannot be read. What only a newer version can read is
// whole, and not to be touched.
func remediesOfLedger(g *ledger.GarbledError) []fence.Remedy {
	if format.IsNewer(g) {
		return []fence.Remedy{{What: cli.UpperFirst(g.Unblock()), Commands: []string{}}}
	}
	return []fence.Remedy{
		{What: "Have it rebuilt from what VolumeAttachments and Nodes say; it shows what it would write, and writes it with --yes",
			Commands: []string{"csi-fencepost ledger repair " + printable.Word(g.PV)}},
		{What: "Or, once it is known which node uses the volume, correct the annotation, or remove it to have it rebuilt",
			Commands: []string{ledgerRemoval(g.PV)}},
	}
}

func ledgerRemoval(pv string) string {
	return fmt.Sprintf("kubectl annotate pv %s %s-", printable.Word(pv), ledger.Annotation)
}
