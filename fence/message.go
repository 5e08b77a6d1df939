package fence

import (
	"fmt"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// MaxMessage is the longest text, in bytes, that a refusal may have: it is
// stored in the VolumeAttachment's status and shown in an Event of the Pod.
const MaxMessage = 900

// Message says in words for `kubectl describe pod` why a call was refused, and
// what would unblock it. It does not change from retry to retry while the
// reason stays the same: changing text defeats the deduplication of Events.
func (v Verdict) Message(s *Snapshot) string {
	name := s.PV
	if name == "" {
		name = s.Volume
	}
	if v.Blocking == nil {
		return clip(fmt.Sprintf("csi-fencepost refuses: nothing is known of volume %s", short(name)), most) + tail(v.Reason)
	}
	why, unblock := v.Blocking.explain(name)
	return Compose(fmt.Sprintf("volume %s: %s", short(name), why), unblock, v.Reason)
}

// Runbook is the page that says more about each reason than a message can hold.
const Runbook = "https://github.com/csi-fencepost/csi-fencepost/blob/main/docs/use/runbook.md"

// Section is the address of the runbook's section on the reason.
func (r Reason) Section() string { return Runbook + "#" + strings.ToLower(string(r)) }

// Mark is what every refusal begins with: by it one is known again in what
// external-attacher writes down, which puts words of its own before it.
const Mark = "csi-fencepost: "

// Compose puts a refusal's parts into the one form that all refusals have.
func Compose(why, unblock string, reason Reason) string {
	end := tail(reason)
	unblock = clip(" To unblock: "+unblock+".", most)
	// What there is to say gives way to what there is to do, which may be a command.
	return clip(Mark+why+".", MaxMessage-len(unblock)-len(end)) + unblock + end
}

// tail names the reason and where to read about it. It is never cut off.
func tail(reason Reason) string {
	if reason == Undecided {
		return " [" + Runbook + "]"
	}
	return fmt.Sprintf(" [%s] %s", reason, reason.Section())
}

// longName is from where on a name is shortened: Kubernetes allows 253 bytes,
// CSI 256 for a node ID, and a message has room for both twice.
const longName = 110

// short cuts the middle out of a long name; both ends tell names apart.
func short(name string) string {
	name = printable.Line(name)
	if len(name) <= longName {
		return name
	}
	half := longName/2 - 2
	return strings.ToValidUTF8(name[:half], "") + "..." + strings.ToValidUTF8(name[len(name)-half:], "")
}

// typed is a name as it stands in a command, one word to a shell: kubelets, drivers and
// writers of ledgers choose them. A shortened one would be wrong there, so a long one is
// left to the reader.
func typed(name, placeholder string) string {
	if word := printable.Word(name); len(word) <= longName {
		return word
	}
	return placeholder
}

// most is the longest part, in bytes, of a message that has several.
const most = MaxMessage/2 - 20

// Clip makes s printable, and shortens it to less than half of MaxMessage.
func Clip(s string) string { return clip(s, most) }

func clip(s string, most int) string {
	s = printable.Line(s)
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-3], "") + "..."
}

// Describe names a holder as a person knows it.
func (h *Holder) Describe() string {
	switch {
	case h.NodeName == "":
		return fmt.Sprintf("node ID %s", short(h.NodeID))
	case h.NodeName == h.NodeID:
		return fmt.Sprintf("node %s", short(h.NodeName))
	}
	return fmt.Sprintf("node %s (ID %s)", short(h.NodeName), short(h.NodeID))
}

const (
	proveFenced  = "turn the node off and say so with 'csi-fencepost fence confirm %[1]s --reason ...', or taint it once it is off: kubectl taint node %[1]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	deleteIt     = "turn the node off, delete its Node once it is off (kubectl delete node %[1]s), and say so with 'csi-fencepost fence confirm %[1]s --reason ...'"
	confirmOlder = "make sure that the old machine is off and say so with 'csi-fencepost fence confirm %s --node-id %s --reason ...'"
	sayRenamed   = "if both are one machine that has booted since, or the old machine is off, say so with 'csi-fencepost release pv %s --node %s --reason ...'"
	lookThere    = "check that nothing on the node uses it and say so with 'csi-fencepost release pv %s --node %s --reason ...'"
	askFailover  = "see whether it runs: kubectl get pods -n csi-fencepost-failover; if it cannot answer and the node is certainly off, say so with 'csi-fencepost fence confirm %s --reason ... --config FILE --override-agent REASON'"
	confirmGone  = "make sure that the machine is off and say so with 'csi-fencepost fence confirm %s --reason ...', or, if only this volume is free of it, 'csi-fencepost release pv %s --node %s --reason ...'"
)

// explain returns why the holder blocks, and what would unblock it.
func (s Standing) explain(volume string) (why, unblock string) {
	h := s.Holder
	node := h.NodeName
	if node == "" {
		node = h.NodeID
	}
	node, volume = typed(node, "NODE"), typed(volume, "PV")
	who := h.Describe()
	switch s.Reason {
	case HolderAlive:
		ends := "let its pods there end (kubectl drain or delete)"
		if inUse, attached := h.listing(); inUse && !attached && h.Detaching() {
			// A kubelet lists what it uses and what it wants alike.
			ends += ", also one that is back there and waits for it"
		}
		return fmt.Sprintf("%s holds it, is alive and may be writing to it", who),
			ends + ", or, if the node is to be given up, turn it off"
	case HolderWanted:
		return fmt.Sprintf("%s holds it, and its VolumeAttachment %s is not being deleted", who, h.Attachment.Name),
			"end the pod that uses it there; Kubernetes then detaches it by itself"
	case HolderContested:
		if h.Node != nil && h.Node.OutOfService {
			return fmt.Sprintf("%s says that it does not use it, but lives with the out-of-service taint on, which has Kubernetes detach mounted volumes; its kubelet may have forgotten a container that still writes", who),
				fmt.Sprintf("check that nothing on the node uses it, then run 'csi-fencepost release pv %[1]s --node %[2]s --reason ...' and take the taint off (kubectl taint node %[2]s node.kubernetes.io/out-of-service-); or reboot the node", volume, node)
		}
		if h.Node != nil && h.Node.Memory == MemoryUnsaid {
			return fmt.Sprintf("%s says that it does not use it, but it had to give the volume up by force, and its kubelet, which answered before, does not say whether it has restarted since and forgotten a container that still writes", who),
				fmt.Sprintf("let csi-fencepost reach the node's kubelet (port 10250), which it asks again; or reboot the node, or check that nothing there uses it and run 'csi-fencepost release pv %s --node %s --reason ...'", volume, node)
		}
		return fmt.Sprintf("%s says that it does not use it, but its kubelet has restarted, or was refused, while the volume was in use, and may have forgotten a container that still writes", who),
			fmt.Sprintf("reboot the node, or check that nothing there uses it and run 'csi-fencepost release pv %s --node %s --reason ...'", volume, node)
	case HolderStale:
		if why, unblock := h.Unprovable(); why != "" {
			return fmt.Sprintf("%s holds it, has stopped renewing its lease, and nothing can prove that it has stopped writing: %s", who, why), unblock
		}
		return fmt.Sprintf("%s holds it, has stopped renewing its lease, and nothing proves that it has stopped writing", who),
			fmt.Sprintf(proveFenced, node)
	case HolderUnknown:
		if h.Node == nil && h.Heir != "" {
			return fmt.Sprintf("%s held it and is gone from Kubernetes, node %s has its ID now, and nothing proves that the old one has stopped writing", who, short(h.Heir)),
				fmt.Sprintf(sayRenamed, volume, node)
		}
		if h.NodeName == "" {
			return fmt.Sprintf("%s held it, no Node has that ID, and nothing proves that its machine has stopped writing", who),
				"find out which machine that is; if it does not use the volume, detach it there with the storage's own tools"
		}
		if h.backAnew() && !h.reregistered() {
			return fmt.Sprintf("%s held it, was deleted from Kubernetes and has registered again after a boot, and nothing proves that no pod that the boot began uses it", who),
				fmt.Sprintf(lookThere, volume, node)
		}
		if h.Perhaps() {
			return fmt.Sprintf("%s held it, nothing tells whether the machine that has its Node now is the same one, and nothing proves that it has stopped writing", who),
				fmt.Sprintf(confirmOlder, node, typed(h.NodeID, "ID"))
		}
		if h.OwnNode() && h.LeaseRV == "" {
			return fmt.Sprintf("%s holds it, has no lease to renew, and nothing proves that it has stopped writing", who),
				fmt.Sprintf(proveFenced, node)
		}
		if h.Node != nil && h.NodeUID != "" && !h.reregistered() {
			return fmt.Sprintf("%s held it, another machine has that name now, and nothing proves that the old one has stopped writing", who),
				fmt.Sprintf(confirmOlder, node, typed(h.NodeID, "ID"))
		}
		return fmt.Sprintf("%s held it and is gone from Kubernetes, and nothing proves that its machine has stopped writing", who),
			fmt.Sprintf(confirmGone, node, volume, node)
	case HolderUnwatched:
		return fmt.Sprintf("%s holds it, and csi-fencepost has not watched the node for long enough to tell whether it lives (it has just started, or the API server was away)", who),
			"nothing to do but wait a few seconds"
	case HolderListed:
		return fmt.Sprintf("%s is fenced (%s), but Kubernetes still lists the volume in the node's volumesAttached, so a kubelet that returns would mount it", who, s.Evidence),
			fmt.Sprintf("let Kubernetes detach it: delete the pods of node %s that use it (the out-of-service taint does that)", node)
	case EvidenceVoid:
		return fmt.Sprintf("%s holds it, and %s does not prove it fenced: %s", who, s.Evidence, s.Note),
			s.renew(volume, node)
	case EvidenceContradicted:
		if s.Evidence.Living {
			return fmt.Sprintf("%s holds it; %s says that it does not use it, but %s", who, s.Evidence, s.Note),
				fmt.Sprintf("let Kubernetes detach it: delete the pods of node %s that use it", node)
		}
		if s.Unanswered {
			return fmt.Sprintf("%s holds it; %s says that it is fenced, but %s", who, s.Evidence, s.Note), fmt.Sprintf(askFailover, node)
		}
		return fmt.Sprintf("%s holds it; %s says that it is fenced, but %s", who, s.Evidence, s.Note),
			"find out which is true: a node that runs must be turned off before its volumes can move"
	case TargetFenced:
		return fmt.Sprintf("%s, which asks for it, is fenced (%s)", who, s.Evidence),
			"nothing, if the volume has moved; else let the node come back"
	case TargetLeaving:
		return fmt.Sprintf("an unpublish from %s is pending", who),
			"nothing to do but wait for it to finish"
	}
	return fmt.Sprintf("%s may hold it and nothing is known of it", who), fmt.Sprintf(proveFenced, node)
}

// renew says how evidence of that kind is given anew.
func (s Standing) renew(volume, node string) string {
	if s.Holder.RegisteredAnew() {
		// Whatever is said of the machine, it is there again.
		return fmt.Sprintf(lookThere, volume, node)
	}
	if h := s.Holder; h.Node != nil && h.NodeUID != "" && !h.OwnNode() {
		return fmt.Sprintf(confirmOlder, node, typed(h.NodeID, "ID")) // the name is another machine's by now
	}
	if s.Holder.Node == nil {
		return fmt.Sprintf(confirmGone, node, volume, node)
	}
	if _, unblock := s.Holder.Unprovable(); unblock != "" {
		return unblock
	}
	if s.Evidence.Kind == VolumeRelease {
		return fmt.Sprintf(confirmGone, node, volume, node)
	}
	if s.Evidence.Kind == OutOfServiceTaint {
		return fmt.Sprintf("make sure that the node is off, then take the taint off and put it on again: kubectl taint node %[1]s node.kubernetes.io/out-of-service- ; sleep 5 ; kubectl taint node %[1]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", node)
	}
	return fmt.Sprintf(proveFenced, node)
}
