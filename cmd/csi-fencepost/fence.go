package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const fenceHelp = `csi-fencepost fence status [NODE]                what is claimed of the nodes, and what each fence agent reads
csi-fencepost fence test [NODE...]               whether the configuration is able to fence them; touches no power
csi-fencepost fence off NODE --reason TEXT       turn a node off, and prove it
csi-fencepost fence on NODE --reason TEXT        give it its power, or its access to the storage, back
csi-fencepost fence confirm NODE --reason TEXT   say that a node is off, so that its volumes may move
csi-fencepost fence withdraw NODE --reason TEXT  take such a word back

csi-fencepost fence SUBCOMMAND --help lists the flags.
`

const fenceCommands = "status, test, off, on, confirm, withdraw"

// runFence is `csi-fencepost fence`.
func runFence(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usagef("fence: no subcommand is given: one of %s", fenceCommands)
	}
	switch args[0] {
	case "status":
		return runFenceStatus(ctx, args[1:], stdout)
	case "confirm":
		return runFenceConfirm(ctx, args[1:], stdout, stderr)
	case "withdraw":
		return runFenceWithdraw(ctx, args[1:], stdout)
	case "test":
		return runFenceTest(ctx, args[1:], stdout)
	case "off":
		return runFenceOff(ctx, args[1:], stdout, stderr)
	case "on":
		return runFenceOn(ctx, args[1:], stdout, stderr)
	case "-h", "--help", "help":
		_, err := io.WriteString(stdout, fenceHelp)
		return err
	}
	return usagef("fence: unknown subcommand %q: one of %s", args[0], fenceCommands)
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
	printUsage(w, what, f.set)
}

// records of the cluster.
func (c *cluster) records() *record.Store {
	return record.NewStore(c.client.CoordinationV1(), c.config.Fencing.Namespace)
}

// open makes the client for a word that the sidecars ask for.
func (f *claimFlags) open() (*cluster, error) {
	c, err := f.cluster.open(f.set.Name())
	if err != nil {
		return nil, err
	}
	return c, believed(c.config)
}

// believed: a claim that the sidecar does not ask for is not worth writing.
func believed(c *config.Configuration) error {
	if !c.Evidence.OperatorConfirmation {
		return errors.New("the configuration switches operators' words off (evidence.operatorConfirmation: false), so that it would not count")
	}
	return nil
}
