package operate

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// A binding is what a confirmation will be bound to.
type binding struct {
	machines []record.Machine
	covered  []cluster.Holding
	// registeredAgain are those whose machine runs on under a new Node, or ran until it was turned
	// off; a word about the node is not believed of them.
	registeredAgain []cluster.Holding
	garbled         []string
	// live tells that the Node of today is bound; watch, that its lease has to be silent.
	live, watch bool
}

// bind chooses the machines that are confirmed: the live Node's, and those of
// every holding, or only the ones with nodeID; of these, where older machines had it, only
// they.
func bind(now *cluster.Node, held *cluster.Holdings, nodeID string) (*binding, error) {
	chosen := held.All
	if nodeID != "" {
		chosen = slices.DeleteFunc(slices.Clone(held.All), func(h cluster.Holding) bool { return h.NodeID != nodeID })
		if len(chosen) == 0 && !now.Carries(nodeID) {
			return nil, fmt.Errorf("node %s has no machine with node ID %s; it has %s", now.Name, nodeID, cli.OrNone(strings.Join(now.IDs(held), ", ")))
		}
	}
	if now.Node == nil && len(chosen) == 0 {
		names := slices.Compact(slices.Sorted(slices.Values(held.Nodes)))
		return nil, fmt.Errorf("nothing is known of a node %s: there is no Node, and no ledger or VolumeAttachment names it%s", now.Name, cli.DidYouMean(now.Name, names))
	}
	b := &binding{garbled: held.Garbled}
	older := func(h cluster.Holding) bool { return now.IsOlder(h) }
	b.live = now.Node != nil
	if nodeID != "" && slices.ContainsFunc(chosen, older) {
		b.live, chosen = false, slices.DeleteFunc(chosen, func(h cluster.Holding) bool { return !older(h) })
	}
	b.watch = b.live || now.Node == nil && now.Lease != nil
	if b.live {
		b.machines = append(b.machines, record.Machine{NodeID: nodeID, NodeUID: now.UID(), BootID: now.BootID(), SystemUUID: now.SystemUUID(), LeaseRV: now.LeaseRV()})
	}
	for _, h := range chosen {
		b.add(now, h)
	}
	return b, nil
}

func (b *binding) add(now *cluster.Node, h cluster.Holding) {
	if h.NodeUID == now.UID() && now.Node != nil && !now.IsOlder(h) {
		b.covered = append(b.covered, h)
		return
	}
	if now.HasAnew(h) {
		b.registeredAgain = append(b.registeredAgain, h)
		return
	}
	b.covered = append(b.covered, h)
	m := record.Machine{NodeID: h.NodeID, NodeUID: h.NodeUID, BootID: h.BootID, SystemUUID: h.SystemUUID}
	if !slices.ContainsFunc(b.machines, m.Equal) {
		b.machines = append(b.machines, m)
	}
	// A deleted Node's lease is there for a moment longer. The word has to
	// count before it goes, and after.
	if m.LeaseRV = now.LeaseRV(); now.Node == nil && m.LeaseRV != "" && !slices.ContainsFunc(b.machines, m.Equal) {
		b.machines = append(b.machines, m)
	}
}

// printBinding says what the word will be bound to, and what it unblocks.
func printBinding(w io.Writer, now *cluster.Node, b *binding) {
	p := cli.NewPrinter(w, cli.StyleOf(w))
	p.Heading(cli.Bold, "That node "+now.Name+" is off will be written of:")
	for _, m := range b.machines {
		p.Paragraph(2, 2, "- "+machineText(m, now))
	}
	if len(b.covered) == 0 {
		p.Heading(cli.Plain, "No volume is known to be held there.")
	} else {
		p.Heading(cli.Bold, "Volumes that it unblocks:")
	}
	for _, h := range b.covered {
		p.Paragraph(2, 2, "- "+holdingText(h, now))
	}
	for _, h := range b.registeredAgain {
		how := "without having been off"
		if h.BootID != now.BootID() {
			how = "after a boot"
		}
		p.Paragraph(0, 2, fmt.Sprintf("! Not %s: its machine has registered again under a new Node %s (boot ID %s). To free that volume alone: csi-fencepost release pv %s --node %s --node-id %s --reason TEXT",
			h.PV, how, now.BootID(), printable.Word(h.PV), printable.Word(now.Name), printable.Word(h.NodeID)))
	}
	for _, pv := range b.garbled {
		p.Paragraph(0, 2, fmt.Sprintf("! The ledger of PersistentVolume %s cannot be read, so it may be missing here: csi-fencepost explain pv %s", pv, printable.Word(pv)))
	}
}

func machineText(m record.Machine, now *cluster.Node) string {
	text := "the live Node"
	switch {
	case m.NodeUID == "":
		text = "a machine without a known Node"
	case now.Node == nil:
		text = "the machine whose Node is gone"
	case m.NodeUID != now.UID(), m.BootID != now.BootID():
		text = "an older machine of that name"
	}
	for _, part := range []struct{ name, value string }{{"node ID", m.NodeID}, {"node UID", m.NodeUID}, {"boot ID", m.BootID}, {"lease", m.LeaseRV}} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text
}

func holdingText(h cluster.Holding, now *cluster.Node) string {
	text := fmt.Sprintf("%s (driver %s, node ID %s)", h.PV, h.Driver, h.NodeID)
	if now.Node == nil || h.Handle == "" || h.NodeUID != now.UID() || now.IsOlder(h) {
		return text
	}
	ids := &csi.Identity{Driver: h.Driver}
	if _, listed := ids.NodeLists(now.Node, h.Handle); listed {
		text += ": once Kubernetes has taken it off the node's volumesAttached (delete the pods there that use it)"
	}
	return text
}
