package explain

import (
	"fmt"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// A remedy is something that a person can do, with commands to paste.
type remedy struct {
	What     string   `json:"what"`
	Commands []string `json:"commands"`
}

const OutOfService = "node.kubernetes.io/out-of-service"

// remedies are what would unblock a holder, the gentlest first.
func remedies(s *fence.Snapshot, st fence.Standing) []remedy {
	h := st.Holder
	node := h.NodeName
	if node == "" {
		return []remedy{{What: fmt.Sprintf("Find out which machine %s is. If it does not use the volume, take the volume off it with the storage's own tools", h.Describe()), Commands: []string{}}}
	}
	// A new machine may have the name: what is done to the Node is done to it.
	own := h.OwnNode()
	machine := "node " + node
	if h.Node != nil && !own {
		machine = fmt.Sprintf("the older machine that was called %s (node ID %s)", node, h.NodeID)
	}
	off := remedy{What: fmt.Sprintf("If %s is off, and you have made sure that it is", machine), Commands: []string{confirmCommand(s, h)}}
	endPods := remedy{What: fmt.Sprintf("Delete the pods of node %s that use it, so that Kubernetes takes it off the node's volumesAttached", node),
		Commands: []string{PodsCommand(node), "kubectl delete pod -n NAMESPACE POD --force"}}
	if why, _ := h.Unprovable(); why != "" && (st.Reason == fence.HolderStale || st.Reason == fence.EvidenceVoid) {
		return []remedy{{What: fmt.Sprintf("Turn node %s off, delete its Node once it is off, and say so: %s", node, why),
			Commands: []string{"kubectl delete node " + printable.Word(node), confirmCommand(s, h)}}}
	}
	switch st.Reason {
	case fence.HolderAlive, fence.HolderWanted:
		return []remedy{
			{What: fmt.Sprintf("Let the pods on node %s that use it end; Kubernetes then detaches it by itself", node), Commands: []string{PodsCommand(node), DrainCommand(node)}},
			{What: "If the node is to be given up, turn it off, make sure that it is off, and say so", Commands: []string{confirmCommand(s, h)}},
		}
	case fence.HolderContested:
		return []remedy{
			{What: fmt.Sprintf("Reboot node %s: a new boot ID ends the doubt", node), Commands: []string{}},
			{What: "Or look on the node that nothing has the volume mounted or open, and say so", Commands: []string{releaseCommand(s, h)}},
		}
	case fence.HolderListed:
		return []remedy{endPods}
	case fence.EvidenceContradicted:
		if st.Evidence != nil && st.Evidence.Living {
			return []remedy{endPods}
		}
		if st.Unanswered {
			return []remedy{
				{What: "See whether csi-fencepost failover runs, which reads the power of nodes", Commands: []string{"kubectl get pods -n csi-fencepost-failover"}},
				{What: fmt.Sprintf("If it cannot answer, and %s is certainly off, say that it need not be asked (FILE is the sidecar's configuration)", machine),
					Commands: []string{confirmCommand(s, h) + " --config FILE --override-agent REASON"}},
			}
		}
		return []remedy{{What: fmt.Sprintf("Find out which is true: if node %s runs, turn it off, then say so again", node), Commands: []string{confirmCommand(s, h)}}}
	case fence.EvidenceVoid:
		if own && st.Evidence != nil && st.Evidence.Kind == fence.OutOfServiceTaint {
			return []remedy{{What: fmt.Sprintf("Make sure that node %s is off, then take the taint off and put it on again", node),
				Commands: []string{fmt.Sprintf("kubectl taint node %s %s-", printable.Word(node), OutOfService), taintCommand(node)}}, off}
		}
		look := remedy{What: fmt.Sprintf("Or look on node %s that nothing has the volume mounted or open, and say so", node), Commands: []string{releaseCommand(s, h)}}
		switch {
		case h.RegisteredAnew(): // whatever is said of the machine, it is there again
			return []remedy{look}
		case st.Evidence != nil && st.Evidence.Kind == fence.VolumeRelease:
			return []remedy{off, look}
		}
		return []remedy{off}
	case fence.HolderUnwatched:
		return []remedy{{What: "Watch the node's lease, to tell whether it lives", Commands: []string{"csi-fencepost explain pv " + printable.Word(volumeName(s)) + " --observe=20s"}}}
	}
	if !own {
		return []remedy{off, {What: "Or, if only this volume is free of it", Commands: []string{releaseCommand(s, h)}}}
	}
	return []remedy{off, {What: "Or, to let Kubernetes delete its pods too", Commands: []string{taintCommand(node)}}}
}

// remedyForFenced is for a node that asks for a volume and is fenced itself.
func remedyForFenced(st *fence.Standing) remedy {
	node := printable.Word(st.Holder.NodeName)
	if st.Evidence != nil && st.Evidence.Kind == fence.StorageFence {
		return remedy{What: fmt.Sprintf("Give node %s its access to the storage back, once nothing on it writes", st.Holder.NodeName),
			Commands: []string{"csi-fencepost fence on " + node + " --config FILE --reason 'WHY IT MAY'"}}
	}
	return remedy{What: fmt.Sprintf("Start node %s again, or have the pod run elsewhere; if it runs, what says that it is off is wrong", st.Holder.NodeName),
		Commands: []string{"csi-fencepost fence status " + node, "csi-fencepost fence withdraw " + node + " --reason 'WHY IT IS WRONG'"}}
}

// remediesOfLedger are for one that cannot be read. What only a newer version can read is
// whole, and not to be touched.
func remediesOfLedger(g *ledger.GarbledError) []remedy {
	if format.IsNewer(g) {
		return []remedy{{What: cli.UpperFirst(g.Unblock()), Commands: []string{}}}
	}
	return []remedy{
		{What: "Have it rebuilt from what VolumeAttachments and Nodes say; it shows what it would write, and writes it with --yes",
			Commands: []string{"csi-fencepost ledger repair " + printable.Word(g.PV)}},
		{What: "Or, once it is known which node uses the volume, correct the annotation, or remove it to have it rebuilt",
			Commands: []string{ledgerRemoval(g.PV)}},
	}
}

// PodsCommand lists a node's pods.
func PodsCommand(node string) string {
	return "kubectl get pods -A --field-selector spec.nodeName=" + printable.Word(node)
}

// DrainCommand drains a node.
func DrainCommand(node string) string {
	return "kubectl drain " + printable.Word(node) + " --ignore-daemonsets --delete-emptydir-data"
}

func taintCommand(node string) string {
	return fmt.Sprintf("kubectl taint node %s %s=nodeshutdown:NoExecute", printable.Word(node), OutOfService)
}

func confirmCommand(s *fence.Snapshot, h *fence.Holder) string {
	// A new machine that lives under the old name has to be told from it.
	other := h.Node != nil && !h.OwnNode()
	return "csi-fencepost fence confirm " + printable.Word(h.NodeName) + nodeIDFlag(s, h, other) + " --reason 'WHY YOU ARE SURE'"
}

func releaseCommand(s *fence.Snapshot, h *fence.Holder) string {
	return fmt.Sprintf("csi-fencepost release pv %s --node %s%s --reason 'WHY YOU ARE SURE'", printable.Word(volumeName(s)), printable.Word(h.NodeName), nodeIDFlag(s, h, false))
}

// nodeIDFlag chooses the holder where its node's name does not.
func nodeIDFlag(s *fence.Snapshot, h *fence.Holder, always bool) string {
	same := 0
	for i := range s.Holders {
		if s.Holders[i].NodeName == h.NodeName {
			same++
		}
	}
	if h.NodeID == "" || same < 2 && !always {
		return ""
	}
	return " --node-id " + printable.Word(h.NodeID)
}

func ledgerRemoval(pv string) string {
	return fmt.Sprintf("kubectl annotate pv %s %s-", printable.Word(pv), ledger.Annotation)
}

func volumeName(s *fence.Snapshot) string {
	if s.PV != "" {
		return s.PV
	}
	return s.Volume
}
