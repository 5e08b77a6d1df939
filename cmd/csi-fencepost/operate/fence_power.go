package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

const fenceOffHelp = `csi-fencepost fence off NODE --reason TEXT --config FILE has the fence agents turn a node off, and asks them whether it is.
It is refused while the node is Ready and renews its lease, unless --force is given.`

const fenceOnHelp = `csi-fencepost fence on NODE --reason TEXT --config FILE gives a node its power, or its access to the storage, back.
That the node is off counts no more from then on. Access to the storage is not given back to a node that goes on and lists
volumes which were moved off it, unless --force is given.`

// powerFlags are the flags and arguments of `csi-fencepost fence off` and `on`.
type powerFlags struct {
	*claimFlags
	agents cluster.AgentFlags
	driver string
	yes    bool
	force  bool
	node   string
}

func parsePowerFlags(command, help string, args []string) (*powerFlags, error) {
	f := &powerFlags{claimFlags: newClaimFlags(command, help)}
	f.set.BoolVar(&f.yes, "yes", false, "Do not ask.")
	forced := "Also if the node is Ready and renews its lease."
	if command == "fence on" {
		forced = "Also if the node lists volumes that were moved off it, or nothing tells: two nodes may write to them then."
	}
	f.set.BoolVar(&f.force, "force", false, forced)
	f.agents.Register(f.set)
	f.set.StringVar(&f.driver, "driver", "", "The CSI driver whose storage is cut, where agents cut storage and there is no --csi-address.")
	if err := f.parse(args, "NODE"); err != nil {
		return f, err
	}
	f.node = f.set.Arg(0)
	if !f.yes && !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, f.set.Wrong("standard input is no terminal, so that nobody can be asked: give --yes if node %s is the one that you mean", f.node)
	}
	return f, nil
}

// runFenceOff is `csi-fencepost fence off`.
func runFenceOff(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return runFencePower(ctx, "fence off", fenceOffHelp, args, stdout, stderr, (*powerFlags).off)
}

// runFenceOn is `csi-fencepost fence on`.
func runFenceOn(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return runFencePower(ctx, "fence on", fenceOnHelp, args, stdout, stderr, (*powerFlags).on)
}

func runFencePower(ctx context.Context, command, help string, args []string, stdout, stderr io.Writer, do func(*powerFlags, context.Context, *powering) error) error {
	f, err := parsePowerFlags(command, help, args)
	if err != nil {
		return err
	}
	c, err := f.cluster.OpenWithAgents(command)
	if err != nil {
		return err
	}
	p, done, err := f.prepare(ctx, c, stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	return do(f, ctx, p)
}

// powering is what turns a node off or on.
type powering struct {
	*cluster.Cluster
	now      *cluster.Node
	target   fencer.Target
	agents   *sidecar.AgentSet
	fencer   *fencer.Fencer
	out, err io.Writer

	cut string        // the driver's storage fence that proves, when it was shown; empty: none
	off fencer.Answer // that the machine is off, as a fence says and its agents read then
}

// prepare reads the node and makes its agents.
func (f *powerFlags) prepare(ctx context.Context, c *cluster.Cluster, stdout, stderr io.Writer) (*powering, func(), error) {
	agents, done, err := f.agents.Build(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	p := &powering{Cluster: c, agents: agents, out: stdout, err: stderr}
	if err = p.complete(ctx, f); err != nil {
		done()
		return nil, nil, err
	}
	return p, done, nil
}

func (p *powering) complete(ctx context.Context, f *powerFlags) (err error) {
	if err := errors.Join(p.agents.Faults...); err != nil {
		return fmt.Errorf("%w; csi-fencepost fence test says more", err)
	}
	if p.now, err = cluster.ReadNode(ctx, p.Client, f.node); err != nil {
		return err
	}
	if !p.agents.Levels.Covers(f.node) {
		return fmt.Errorf("no level of fence agents covers node %s (fencing.levels)%s", f.node, leftOut(p.agents.Notes))
	}
	driver, err := f.driverName(p.agents)
	if err != nil {
		return err
	}
	if p.target, err = p.machine(ctx, driver); err != nil {
		return err
	}
	for _, note := range p.agents.Notes {
		fmt.Fprintln(p.err, "* "+note)
	}
	o := fencer.Options{Levels: narrate(p.agents.Levels, f.node, p.out), Records: p.Records().TellWaits(p.waits), Nodes: p.Client.CoreV1(), Leases: p.Client.CoordinationV1(),
		CSINodes: p.Client.StorageV1(), Driver: driver, Actor: cluster.Operator(ctx, p.Client)}
	if o.Levels.Seek(f.node) {
		all, err := cluster.ReadMachines(ctx, p.Cluster, driver)
		if err != nil {
			return err
		}
		o.Machines = all.Known
	}
	p.fencer, err = fencer.New(o)
	return err
}

// waits says whose lock is waited for, and what ends it if nobody does.
func (p *powering) waits(holder, lease string) {
	fmt.Fprintf(p.err, "* Node %s is locked by %s, which fences it or gives it its power back: waiting until it is through. "+
		"If nobody of that name is at it any more: kubectl patch lease -n %s %s --type=merge -p '{\"spec\":{\"holderIdentity\":null}}'\n",
		p.now.Name, printable.Line(holder), p.Config.Fencing.Namespace, printable.Word(lease))
}

func leftOut(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return ". " + strings.Join(notes, " ")
}

// noDriver stands for the driver where no agent cuts a driver's storage.
const noDriver = "none"

// driverName is whose storage is cut.
func (f *powerFlags) driverName(agents *sidecar.AgentSet) (string, error) {
	switch {
	case agents.Driver != "" && f.driver != "" && agents.Driver != f.driver:
		return "", f.set.Wrong("--driver is %s, and the one on --csi-address calls itself %s", f.driver, agents.Driver)
	case agents.Driver != "":
		return agents.Driver, nil
	case f.driver != "":
		return f.driver, nil
	}
	for _, m := range agents.Covering(f.node) {
		if m.Agent.Proves() == fence.StorageFence {
			return "", f.set.Wrong("agent %s cuts the node off from storage: --driver names the CSI driver whose storage that is", m.Agent.Name())
		}
	}
	return noDriver, nil
}

// machine is the one that is meant: the live Node's, else the only one that the
// ledgers know under that name.
func (p *powering) machine(ctx context.Context, driver string) (fencer.Target, error) {
	t := fencer.Target{Node: p.now.Name, UID: p.now.UID(), BootID: p.now.BootID(), SystemUUID: p.now.SystemUUID(), NodeID: p.now.NodeID(driver), LeaseRV: p.now.LeaseRV()}
	if p.now.Node != nil {
		return t, nil
	}
	held, err := cluster.ReadHoldings(ctx, p.Client, p.now)
	if err != nil {
		return t, err
	}
	for _, h := range held.All {
		if h.NodeUID == "" || h.NodeUID == t.UID && h.Compare(fence.Machine{NodeUID: t.UID, BootID: t.BootID, SystemUUID: t.SystemUUID}) != fence.Other {
			continue
		}
		if t.UID != "" {
			return t, fmt.Errorf("there is no Node %s, and the ledgers name several machines of that name: which one the agents would turn off cannot be told. Turn it off by hand, and say so: csi-fencepost fence confirm %s --reason TEXT", p.now.Name, printable.Word(p.now.Name))
		}
		t.UID, t.BootID, t.SystemUUID, t.ProviderID = h.NodeUID, h.BootID, h.SystemUUID, h.ProviderID
		if h.Driver == driver {
			t.NodeID = h.NodeID
		}
	}
	if t.UID == "" {
		return t, fmt.Errorf("there is no Node %s, and no ledger names a machine of it%s", p.now.Name, cli.DidYouMean(p.now.Name, held.Nodes))
	}
	return t, nil
}

// off turns the node off and says whether that is proven.
func (f *powerFlags) off(ctx context.Context, p *powering) error {
	if err := f.mayTurnOff(ctx, p); err != nil {
		return err
	}
	if !f.yes && !ask(ctx, os.Stdin, p.out, f.node, fmt.Sprintf("This turns node %s off at once. Type its name to go on: ", f.node)) {
		return errors.New("nothing was turned off")
	}
	fmt.Fprintf(p.out, "Turning node %s off.\n", f.node)
	a, err := p.fencer.Off(ctx, p.target, f.reason, f.force)
	if err != nil {
		return err
	}
	if a.State != agent.Off {
		return fmt.Errorf("node %s is not proven off: %s. Nothing of it counts as fenced", f.node, a.Why)
	}
	fmt.Fprintf(p.out, "Node %s is %s: %s.\nThe sidecars see it by themselves. To give it back: csi-fencepost fence on %s --reason TEXT\n",
		f.node, provenWord(a.Kind), strings.TrimSuffix(a.Why, "."), printable.Word(f.node))
	return nil
}

func provenWord(kind fence.Kind) string {
	if kind == fence.StorageFence {
		return "cut off from the storage"
	}
	return "off"
}

// mayTurnOff refuses a node that shows that it lives.
func (f *powerFlags) mayTurnOff(ctx context.Context, p *powering) error {
	if f.force || !fence.NodeReady(p.now.Node) {
		return nil
	}
	err := watchSilence(ctx, p.Client, p.now, p.err)
	var alive *aliveError
	if errors.As(err, &alive) {
		return fmt.Errorf("node %s is Ready and %s: it was not turned off. To drain it first: %s; to turn it off all the same, give --force", f.node, alive.why, fence.DrainCommand(printable.Word(f.node)))
	}
	return err
}

// showFences prints the fences that are about to be undone. A fence that is made after it
// is not: the node may have died again meanwhile, and its volumes have moved.
func (p *powering) showFences(ctx context.Context) error {
	r, err := p.Records().Get(ctx, p.target.Node)
	if err != nil {
		return err
	}
	s := r.Fence(fence.PowerReading, "")
	if r.Vouched(s) && s.Phase == record.Fenced && s.Machine.NodeUID == p.target.UID && s.Machine.BootID == p.target.BootID && s.Machine.LeaseRV == p.target.LeaseRV {
		a, err := p.fencer.Ask(ctx, p.target)
		if err != nil {
			return err
		}
		if a.State == agent.Off && a.Kind == fence.PowerReading {
			p.off = a
		}
		// What was read may have ended the fence.
		if r, err = p.Records().Get(ctx, p.target.Node); err != nil {
			return err
		}
	}
	p.target.Fences = []string{}
	for _, s := range []*record.Fence{r.Fence(fence.PowerReading, p.fencer.Driver), r.Fence(fence.StorageFence, p.fencer.Driver)} {
		if s != nil {
			p.target.Fences = append(p.target.Fences, s.ID)
			fmt.Fprintf(p.out, "Node %s is %s since %s: %s (fence %s).\n", p.target.Node, cluster.FenceWords(s), s.StartedAt, s.Reason, s.ID)
		}
	}
	if s := r.Fence(fence.StorageFence, p.fencer.Driver); r.Vouched(s) && s.Phase == record.Fenced {
		p.cut = s.ID
	}
	return nil
}

// mayWrite fails if a machine that goes on, cut off from the storage, would write to
// what was moved off it once it has its access back: R1. A machine that was off boots first. After
// a boot since its own driver's fence it has mounted nothing of that driver. Volumes of every
// other driver count all the same: two may serve one storage, and what is given back may
// have been cut by somebody else, as by a NetworkFence, in this boot.
func (p *powering) mayWrite(ctx context.Context, n *corev1.Node) error {
	r, err := p.Records().Get(ctx, p.now.Name)
	if err != nil {
		return err
	}
	if r.Fence(fence.StorageFence, p.fencer.Driver) == nil && !p.cutsStorage() {
		return nil
	}
	const all = "To give it its access back all the same: --force"
	if n == nil {
		return fmt.Errorf("there is no Node %s, so that nothing tells whether its machine goes on and uses what was moved off it. Once that machine is off for good, or has booted: --force", p.now.Name)
	}
	now, err := cluster.ReadNode(ctx, p.Client, p.now.Name)
	if err != nil {
		return err
	}
	if m := p.off.Machine; now.UID() == m.NodeUID && now.BootID() == m.BootID && now.LeaseRV() == m.LeaseRV {
		return nil
	}
	but := ""
	if p.booted(r, n) {
		but = p.fencer.Driver
	}
	found, err := observe.Moved(ctx, p.Client, n, but)
	if err != nil {
		return fmt.Errorf("it cannot be read what node %s uses: %w. %s", n.Name, err, all)
	}
	if len(found) == 0 {
		return nil
	}
	var moved []string
	for _, v := range found {
		if v.Driver != p.fencer.Driver {
			v.Handle += " of driver " + v.Driver
		}
		moved = append(moved, v.Handle)
	}
	const shown = 5
	more := ""
	if len(moved) > shown {
		more = fmt.Sprintf(" and %d more", len(moved)-shown)
	}
	return fmt.Errorf("the kubelet of node %s lists in use what was moved off it (volume %s%s): with its access back the node would write to that, if it is mounted there, beside the node that has it now. "+
		"Let the pods there end that use it or wait for it, or reboot the node: %s. %s", n.Name, strings.Join(moved[:min(len(moved), shown)], ", "), more, fence.DrainCommand(printable.Word(n.Name)), all)
}

// booted tells whether the Node has booted since the driver's own fence, that proved when it was
// shown, cut it off.
func (p *powering) booted(r *record.Record, n *corev1.Node) bool {
	s := r.Fence(fence.StorageFence, p.fencer.Driver)
	if s == nil || s.ID != p.cut {
		return false
	}
	was := s.Machine.Is().Compare(fence.MachineOf(n))
	return was == fence.Rebooted || was == fence.ReturnedAnew
}

// cutsStorage tells whether an agent cuts the node off from the storage, whether or not anybody has
// written down that it did.
func (p *powering) cutsStorage() bool {
	return slices.ContainsFunc(p.agents.Covering(p.now.Name), func(m sidecar.Member) bool { return m.Agent.Proves() == fence.StorageFence })
}

// on gives the node back what was cut.
func (f *powerFlags) on(ctx context.Context, p *powering) error {
	if err := p.showFences(ctx); err != nil {
		return err
	}
	if !f.yes && !ask(ctx, os.Stdin, p.out, f.node, fmt.Sprintf("This turns node %s on. Type its name to go on: ", f.node)) {
		return errors.New("nothing was turned on")
	}
	fmt.Fprintf(p.out, "Turning node %s on.\n", f.node)
	reason := f.reason
	if f.force {
		reason += " (--force)"
	} else {
		p.target.Still = p.mayWrite
	}
	a, err := p.fencer.On(ctx, p.target, reason)
	if err != nil {
		return err
	}
	if a.State != agent.On {
		return fmt.Errorf("node %s does not read on: %s", f.node, a.Why)
	}
	fmt.Fprintf(p.out, "Node %s is on: %s.\n", f.node, strings.TrimSuffix(a.Why, "."))
	return nil
}
