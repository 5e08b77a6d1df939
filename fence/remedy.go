package fence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// Remedy is one thing that a person can do so that a holder no longer stands in the way of a
// publish. Refusals, pages, Events and explain offer the same ones, in the same order.
type Remedy struct {
	// What is a sentence without its full stop.
	What string `json:"what"`
	// Commands are lines for a shell, whatever the names in them are. Never nil.
	Commands []string `json:"commands"`
}

// Remedies are what would end the standing, the gentlest first, each instead of the others.
func (s Standing) Remedies(of *Snapshot) []Remedy {
	return s.remedies(of, func(name, _ string) string { return printable.Word(name) })
}

// unblock is the remedies in a refusal: as many as it has room for whole, and of the first the
// sentence at least.
func (s Standing) unblock(of *Snapshot) string {
	const room = most - len(" To unblock: .")
	var text string
	for _, r := range s.remedies(of, typed) {
		next := strings.ToLower(r.What[:1]) + r.What[1:]
		whole := next
		if len(r.Commands) > 0 {
			whole += ": " + strings.Join(r.Commands, " ; ")
		}
		switch {
		case text == "" && len(whole) > room:
			return next
		case text == "":
			text = whole
		case len(text)+len("; ")+len(whole) <= room:
			text += "; " + whole
		}
	}
	return text
}

// remedies has names in commands as word writes them, which has a placeholder for one that it
// leaves to the reader.
func (s Standing) remedies(of *Snapshot, word func(name, placeholder string) string) []Remedy {
	w := ways{h: s.Holder, of: of, word: word}
	all := w.end(&s)
	for i := 1; i < len(all); i++ {
		what := strings.ToLower(all[i].What[:1]) + all[i].What[1:]
		comma := ""
		if strings.HasPrefix(what, "if ") || strings.HasPrefix(what, "to ") {
			comma = ","
		}
		all[i].What = "Or" + comma + " " + what
	}
	return all
}

// ways are what may be done about one holder of a volume.
type ways struct {
	h    *Holder
	of   *Snapshot
	word func(name, placeholder string) string
}

// end is how the standing ends.
func (w ways) end(s *Standing) []Remedy {
	node := "node " + w.word(w.h.NodeName, "NODE")
	switch e := s.Evidence; s.Reason {
	case TargetFenced:
		return []Remedy{w.comeBack(e)}
	case TargetGone:
		return []Remedy{way("Nothing to do: Kubernetes deletes its VolumeAttachment by itself, and the publish is tried again if the node comes back"),
			way("If it lasts for minutes, see which pods are still bound to the node", w.pods())}
	case TargetLeaving:
		return []Remedy{way("Nothing to do but wait for it to finish")}
	case HolderUnwatched:
		return []Remedy{way("Nothing to do but wait a few seconds; what shows then whether it lives", "csi-fencepost explain pv "+w.word(cmp.Or(w.of.PV, w.of.Volume), "PV")+" --observe=20s")}
	case HolderWanted:
		return []Remedy{way(fmt.Sprintf("End the pod that uses it on %s; Kubernetes then detaches it by itself", node), w.pods()), w.giveUp()}
	case HolderAlive:
		what := fmt.Sprintf("Let the pods on %s that use it end", node)
		if inUse, attached := w.h.listing(); inUse && !attached && w.h.Detaching() {
			// A kubelet lists what it uses and what it wants alike.
			what += ", also one that is back there and waits for it"
		}
		return w.declare([]Remedy{way(what, w.pods(), DrainCommand(w.word(w.h.NodeName, "NODE"))), w.giveUp()})
	case HolderContested:
		return w.declare(w.endDoubt(node))
	case HolderListed:
		return []Remedy{w.deletePods(node)}
	case EvidenceContradicted:
		switch {
		case e.Living:
			return []Remedy{w.deletePods(node)}
		case s.Unanswered:
			return []Remedy{
				way("See whether csi-fencepost failover runs, which reads the power of nodes", "kubectl get pods -n csi-fencepost-failover"),
				way(fmt.Sprintf("If it cannot answer, and %s is certainly off, say that it need not be asked (FILE is the sidecar's configuration)", node),
					w.confirmed()+" --config FILE --override-agent REASON"),
			}
		}
		return []Remedy{way(fmt.Sprintf("Find out which is true: if %s runs, it must be turned off before its volumes can move; then say so again", node), w.confirmed())}
	case EvidenceVoid:
		if !w.h.OwnNode() || w.unprovable() != "" {
			break
		}
		switch e.Kind {
		case OutOfServiceTaint:
			// The pause has the next taint stand for itself wherever both are watched.
			return []Remedy{way(fmt.Sprintf("Make sure that %s is off, then take the taint off and put it on again", node), w.untainted(), "sleep 5", w.tainted()), w.confirm()}
		case VolumeRelease:
			all := w.orFree(w.confirm())
			slices.Reverse(all)
			return all
		}
	}
	return w.prove(node)
}

// prove is for a holder of which nothing counts yet: what can be proven of a machine, and by
// whom, depends on what has become of its Node.
func (w ways) prove(node string) []Remedy {
	h := w.h
	switch {
	case h.NodeName == "":
		return []Remedy{way(fmt.Sprintf("Find out which machine node ID %s is; if it does not use the volume, detach it there with the storage's own tools", w.word(h.NodeID, "ID")))}
	case h.OwnNode() && w.unprovable() == "":
		return []Remedy{w.confirm(), way("To have Kubernetes delete its pods too, taint it once it is off", w.tainted())}
	case h.OwnNode(), h.RegisteredAnew() && !w.releasable():
		return []Remedy{way(fmt.Sprintf("Turn %s off, delete its Node once it is off, and say so", node), "kubectl delete node "+w.word(h.NodeName, "NODE"), w.confirmed())}
	case h.RegisteredAnew():
		// Whatever is said of the machine's power, it is there again.
		return []Remedy{way(fmt.Sprintf("Make sure that nothing on %s has the volume mounted or open, or that it is off, and say so", node), w.released())}
	case h.Node == nil && h.Heir != "" && w.releasable():
		return []Remedy{way(fmt.Sprintf("If it and node %s are one machine that has booted since, or it is off, say so", w.word(h.Heir, "NODE")), w.released())}
	}
	return w.orFree(w.confirm())
}

// endDoubt about a kubelet that may have forgotten a container.
func (w ways) endDoubt(node string) []Remedy {
	reboot := way(fmt.Sprintf("Reboot %s: a new boot ID ends the doubt", node))
	n := w.h.Node
	if !w.releasable() {
		return []Remedy{reboot}
	}
	look := way(fmt.Sprintf("Look on %s that nothing has the volume mounted or open, and say so", node), w.released())
	switch {
	case n != nil && n.OutOfService:
		look.What += ", then take the taint off"
		look.Commands = append(look.Commands, w.untainted())
		return []Remedy{look, reboot}
	case n != nil && n.Memory == MemoryUnsaid:
		return []Remedy{way(fmt.Sprintf("Let csi-fencepost reach the kubelet of %s (port 10250), which it asks again", node)), reboot, look}
	}
	return []Remedy{reboot, look}
}

// comeBack is for a node that asks for a volume and is fenced itself.
func (w ways) comeBack(e *Evidence) Remedy {
	node := w.word(w.h.NodeName, "NODE")
	if e.Kind == StorageFence {
		return way(fmt.Sprintf("Nothing, if the volume has moved; else let node %s come back: give it its access to the storage, once nothing on it writes", node),
			"csi-fencepost fence on "+node+" --config FILE --reason 'WHY IT MAY'")
	}
	return way(fmt.Sprintf("Nothing, if the volume has moved; else let node %s come back, or, if it runs, withdraw what says that it is off", node),
		"csi-fencepost fence status "+node, "csi-fencepost fence withdraw "+node+" --reason 'WHY IT IS WRONG'")
}

// declare adds, where only the Node's own word keeps a fence at the storage from counting, that
// somebody else may say whose address it is.
func (w ways) declare(all []Remedy) []Remedy {
	if w.h.ownWord() != "" {
		all = slices.Insert(all, 0, way("If it is cut off, declare every node's addresses in csiAddons.nodes"))
	}
	return all
}

// confirm that the machine is off.
func (w ways) confirm() Remedy {
	what := "Make sure that the machine is off, and say so"
	switch {
	case w.renamed():
		what = "Make sure that the older machine of that name is off, and say so"
	case w.h.OwnNode():
		what = fmt.Sprintf("Turn node %s off, make sure that it is off, and say so", w.word(w.h.NodeName, "NODE"))
	}
	return way(what, w.confirmed())
}

func (w ways) giveUp() Remedy {
	return way("If the node is to be given up, turn it off, make sure that it is off, and say so", w.confirmed())
}

// orFree adds to the first way that this one volume may be said to be free of the machine.
func (w ways) orFree(first Remedy) []Remedy {
	if !w.releasable() {
		return []Remedy{first}
	}
	return []Remedy{first, way("If only this volume is free of it, say so", w.released())}
}

func (w ways) deletePods(node string) Remedy {
	return way(fmt.Sprintf("Delete the pods of %s that use it, so that Kubernetes takes it off the node's volumesAttached", node), w.pods(), "kubectl delete pod -n NAMESPACE POD --force")
}

func way(what string, commands ...string) Remedy {
	return Remedy{what, append([]string{}, commands...)}
}

// unprovable says why nothing that is said of the machine's power counts; empty: it may.
func (w ways) unprovable() string {
	why, _ := w.h.Unprovable()
	return why
}

// releasable tells whether a release can name the volume and the machine, and be told from a
// release of another boot.
func (w ways) releasable() bool {
	n := w.h.Here()
	return w.of.PV != "" && w.h.NodeID != "" && (n == nil || n.BootID != "")
}

// renamed tells whether the machine under the live Node is not the holder's, or nothing tells.
func (w ways) renamed() bool { return w.h.Node != nil && !w.h.OwnNode() }

func (w ways) pods() string { return PodsCommand(w.word(w.h.NodeName, "NODE")) }

func (w ways) confirmed() string {
	return "csi-fencepost fence confirm " + w.word(w.h.NodeName, "NODE") + w.nodeID(w.renamed()) + reasoned
}

func (w ways) released() string {
	return "csi-fencepost release pv " + w.word(w.of.PV, "PV") + " --node " + w.word(w.h.NodeName, "NODE") + w.nodeID(false) + reasoned
}

const reasoned = " --reason 'WHY YOU ARE SURE'"

func (w ways) tainted() string { return w.taint("=nodeshutdown:NoExecute") }

func (w ways) untainted() string { return w.taint("-") }

func (w ways) taint(how string) string {
	return "kubectl taint node " + w.word(w.h.NodeName, "NODE") + " " + corev1.TaintNodeOutOfService + how
}

// nodeID is the flag that chooses the holder where its node's name does not.
func (w ways) nodeID(always bool) string {
	namesakes := 0
	for i := range w.of.Holders {
		if w.of.Holders[i].NodeName == w.h.NodeName {
			namesakes++
		}
	}
	if w.h.NodeID == "" || namesakes < 2 && !always {
		return ""
	}
	return " --node-id " + w.word(w.h.NodeID, "ID")
}

// PodsCommand lists the pods of a node, whose name is one word to a shell.
func PodsCommand(node string) string {
	return "kubectl get pods -A --field-selector spec.nodeName=" + node
}

// DrainCommand drains a node, whose name is one word to a shell.
func DrainCommand(node string) string {
	return "kubectl drain " + node + " --ignore-daemonsets --delete-emptydir-data"
}
