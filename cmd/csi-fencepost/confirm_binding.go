package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// A binding is what a confirmation will be bound to.
type binding struct {
	machines []record.Machine
	covered  []holding
	// registeredAgain: their machine runs on under a new Node, or ran until it
	// was turned off; a word about the node is not believed of them.
	registeredAgain []holding
	garbled         []string
	// live: the Node of today is bound. watch: its lease has to be silent.
	live, watch bool
}

// bind chooses the machines that are confirmed: the live Node's, and those of
// every holding, or only the ones with nodeID.
func bind(now *nodeNow, held *holdings, nodeID string) (*binding, error) {
	chosen := held.all
	if nodeID != "" {
		chosen = slices.DeleteFunc(slices.Clone(held.all), func(h holding) bool { return h.nodeID != nodeID })
		if len(chosen) == 0 && !now.carries(nodeID) {
			return nil, fmt.Errorf("node %s has no machine with node ID %s; it has %s", now.name, nodeID, cli.OrNone(strings.Join(now.ids(held), ", ")))
		}
	}
	if now.node == nil && len(chosen) == 0 {
		names := slices.Compact(slices.Sorted(slices.Values(held.nodes)))
		return nil, fmt.Errorf("nothing is known of a node %s: there is no Node, and no ledger or VolumeAttachment names it%s", now.name, cli.DidYouMean(now.name, names))
	}
	b := &binding{garbled: held.garbled}
	older := func(h holding) bool { return now.isOlder(h) }
	b.live = now.node != nil && (nodeID == "" || len(chosen) == 0 || !allOf(chosen, older))
	b.watch = b.live || now.node == nil && now.lease != nil
	if b.live {
		b.machines = append(b.machines, record.Machine{NodeID: nodeID, NodeUID: now.uid(), BootID: now.bootID(), SystemUUID: now.systemUUID(), LeaseRV: now.leaseRV()})
	}
	for _, h := range chosen {
		b.add(now, h)
	}
	return b, nil
}

func (b *binding) add(now *nodeNow, h holding) {
	if h.nodeUID == now.uid() && now.node != nil && !now.isOlder(h) {
		b.covered = append(b.covered, h)
		return
	}
	if now.hasAnew(h) {
		b.registeredAgain = append(b.registeredAgain, h)
		return
	}
	b.covered = append(b.covered, h)
	m := record.Machine{NodeID: h.nodeID, NodeUID: h.nodeUID, BootID: h.bootID, SystemUUID: h.systemUUID}
	if !slices.Contains(b.machines, m) {
		b.machines = append(b.machines, m)
	}
	// A deleted Node's lease is there for a moment longer. The word has to
	// count before it goes, and after.
	if m.LeaseRV = now.leaseRV(); now.node == nil && m.LeaseRV != "" && !slices.Contains(b.machines, m) {
		b.machines = append(b.machines, m)
	}
}

// isOlder: the holding is of another machine than the live Node's, for certain:
// the same machine may register again under a new UID, but not with another
// boot ID without a reboot. A new machine may register under the old one's
// Node; then the driver's node ID tells them apart, or, where that is made of the
// name, the machines' own UUIDs, as in the sidecar (package survey, replaced).
func (n *nodeNow) isOlder(h holding) bool {
	if n.node == nil || h.bootID == "" || n.bootID() == "" || h.bootID == n.bootID() {
		return false
	}
	id := n.nodeID(h.driver)
	return h.nodeUID != "" && (h.nodeUID != n.uid() || id != "" && id != h.nodeID || fence.OtherSystem(h.systemUUID, n.systemUUID()))
}

// hasAnew: the holding's machine is the live Node's, and was another Node's.
func (n *nodeNow) hasAnew(h holding) bool {
	if n.node == nil {
		return false
	}
	m := fence.Holder{NodeUID: h.nodeUID, BootID: h.bootID, SystemUUID: h.systemUUID,
		Node: &fence.Node{UID: n.uid(), BootID: n.bootID(), SystemUUID: n.systemUUID()}}
	return m.RegisteredAnew()
}

// ids are all node IDs that are known of the node.
func (n *nodeNow) ids(held *holdings) []string {
	var ids []string
	for _, h := range held.all {
		ids = append(ids, h.nodeID)
	}
	if n.csiNode != nil {
		for _, d := range n.csiNode.Spec.Drivers {
			ids = append(ids, d.NodeID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func allOf[T any](all []T, f func(T) bool) bool {
	return !slices.ContainsFunc(all, func(t T) bool { return !f(t) })
}

// printBinding says what the word will be bound to, and what it unblocks.
func printBinding(w io.Writer, now *nodeNow, b *binding) {
	p := cli.NewPrinter(w, cli.StyleOf(w))
	p.Heading(cli.Bold, "That node "+now.name+" is off will be written of:")
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
		if h.bootID != now.bootID() {
			how = "after a boot"
		}
		p.Paragraph(0, 2, fmt.Sprintf("! Not %s: its machine has registered again under a new Node %s (boot ID %s). To free that volume alone: csi-fencepost release pv %s --node %s --node-id %s --reason TEXT",
			h.pv, how, now.bootID(), cli.ShellQuote(h.pv), cli.ShellQuote(now.name), cli.ShellQuote(h.nodeID)))
	}
	for _, pv := range b.garbled {
		p.Paragraph(0, 2, fmt.Sprintf("! The ledger of PersistentVolume %s cannot be read, so it may be missing here: csi-fencepost explain pv %s", pv, cli.ShellQuote(pv)))
	}
}

func machineText(m record.Machine, now *nodeNow) string {
	text := "the live Node"
	switch {
	case m.NodeUID == "":
		text = "a machine without a known Node"
	case now.node == nil:
		text = "the machine whose Node is gone"
	case m.NodeUID != now.uid(), m.BootID != now.bootID():
		text = "an older machine of that name"
	}
	for _, part := range []struct{ name, value string }{{"node ID", m.NodeID}, {"node UID", m.NodeUID}, {"boot ID", m.BootID}, {"lease", m.LeaseRV}} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text
}

func holdingText(h holding, now *nodeNow) string {
	text := fmt.Sprintf("%s (driver %s, node ID %s)", h.pv, h.driver, h.nodeID)
	if now.node == nil || h.handle == "" || h.nodeUID != now.uid() || now.isOlder(h) {
		return text
	}
	ids := &csi.Identity{Driver: h.driver}
	if _, listed := ids.NodeLists(now.node, h.handle); listed {
		text += ": once Kubernetes has taken it off the node's volumesAttached (delete the pods there that use it)"
	}
	return text
}
