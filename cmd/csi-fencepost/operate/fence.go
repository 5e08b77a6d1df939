package operate

import (
	"errors"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

const fenceHelp = `csi-fencepost fence status [NODE]                what is claimed of the nodes, and what each fence agent reads
csi-fencepost fence test [NODE...]               whether the configuration is able to fence them; touches no power
csi-fencepost fence off NODE --reason TEXT       turn a node off, and prove it
csi-fencepost fence on NODE --reason TEXT        give it its power, or its access to the storage, back
csi-fencepost fence confirm NODE --reason TEXT   say that a node is off, so that its volumes may move
csi-fencepost fence withdraw NODE --reason TEXT  take such a word back
csi-fencepost fence bind NODE --reason TEXT      say that what the Node says of its machine is true

csi-fencepost fence SUBCOMMAND --help lists the flags.
`

// Commands are fence, release, ledger and uninstall.
func Commands() []cli.Command {
	return []cli.Command{
		fenceCommand(),
		{Name: "release", Summary: "tell that a node no longer uses a volume", Run: runRelease},
		ledgerCommand(),
		{Name: "uninstall", Summary: "take away what csi-fencepost has left in the cluster", Run: runUninstall},
	}
}

// fenceCommand is `csi-fencepost fence`.
func fenceCommand() cli.Command {
	return cli.Group("fence", "status, confirm and withdraw the fencing of a node", fenceHelp,
		cli.Command{Name: "status", Run: runFenceStatus},
		cli.Command{Name: "test", Run: runFenceTest},
		cli.Command{Name: "off", Run: runFenceOff},
		cli.Command{Name: "on", Run: runFenceOn},
		cli.Command{Name: "confirm", Run: runFenceConfirm},
		cli.Command{Name: "withdraw", Run: runFenceWithdraw},
		cli.Command{Name: "bind", Run: runFenceBind})
}

// claimFlags are those of the commands that write what an operator says.
type claimFlags struct {
	cluster cluster.Flags
	reason  string
	set     *cli.Flags
}

func newClaimFlags(command, help string) *claimFlags {
	f := &claimFlags{set: cli.NewFlags(command, help)}
	f.set.StringVar(&f.reason, "reason", "", "Why: how it is known. It is kept in the audit trail. Required.")
	return f
}

// parse reads the flags and exactly the arguments that are named.
func (f *claimFlags) parse(args []string, names ...string) error {
	f.cluster.Register(f.set)
	if err := f.set.Parse(args); err != nil {
		return err
	}
	if got := f.set.NArg(); got != len(names) {
		return f.set.Wrong("it takes %s, got %d arguments: csi-fencepost %s %[1]s --reason TEXT", strings.Join(names, " "), got, f.set.Name())
	}
	if strings.TrimSpace(f.reason) == "" {
		return f.set.Wrong("--reason is missing: how is it known? For example --reason 'pulled the power cord'")
	}
	return nil
}

// open makes the client for a word that the sidecars ask for.
func (f *claimFlags) open() (*cluster.Cluster, error) {
	c, err := f.cluster.Open(f.set.Name())
	if err != nil {
		return nil, err
	}
	return c, believed(c.Config)
}

// believed is an error where a claim would not count: one that the sidecar does not ask for is not
// worth writing.
func believed(c *config.Configuration) error {
	if !c.Evidence.OperatorConfirmation {
		return errors.New("the configuration switches operators' words off (evidence.operatorConfirmation: false), so that it would not count")
	}
	return nil
}
