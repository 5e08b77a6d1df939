package fence

import (
	"cmp"
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
	name := cmp.Or(s.PV, s.Volume)
	if v.Blocking == nil {
		return clip(fmt.Sprintf("csi-fencepost refuses: nothing is known of volume %s", short(name)), most) + tail(v.Reason)
	}
	return Compose(fmt.Sprintf("volume %s: %s", short(name), v.Blocking.why()), v.Blocking.unblock(s), v.Reason)
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

// why the holder blocks.
func (s Standing) why() string {
	h := s.Holder
	who := h.Describe()
	switch s.Reason {
	case HolderAlive:
		return who + " holds it, is alive and may be writing to it" + h.ownWord()
	case HolderWanted:
		return fmt.Sprintf("%s holds it, and its VolumeAttachment %s is not being deleted", who, h.Attachment.Name)
	case HolderContested:
		switch {
		case h.Node != nil && h.Node.OutOfService:
			return who + " says that it does not use it, but lives with the out-of-service taint on, which has Kubernetes detach mounted volumes; its kubelet may have forgotten a container that still writes" + h.ownWord()
		case h.Node != nil && h.Node.Memory == MemoryUnsaid:
			return who + " says that it does not use it, but it had to give the volume up by force, and its kubelet, which answered before, does not say whether it has restarted since and forgotten a container that still writes" + h.ownWord()
		}
		return who + " says that it does not use it, but its kubelet has restarted, or was refused, while the volume was in use, and may have forgotten a container that still writes" + h.ownWord()
	case HolderStale:
		if why, _ := h.Unprovable(); why != "" {
			return fmt.Sprintf("%s holds it, has stopped renewing its lease, and nothing can prove that it has stopped writing: %s", who, why)
		}
		return who + " holds it, has stopped renewing its lease, and nothing proves that it has stopped writing"
	case HolderUnknown:
		return h.lost(who)
	case HolderUnwatched:
		return who + " holds it, and csi-fencepost has not watched the node for long enough to tell whether it lives (it has just started, or the API server was away)"
	case HolderListed:
		return fmt.Sprintf("%s is fenced (%s), but Kubernetes still lists the volume in the node's volumesAttached, so a kubelet that returns would mount it", who, s.Evidence)
	case EvidenceVoid:
		return fmt.Sprintf("%s holds it, and %s does not prove it fenced: %s", who, s.Evidence, s.Note)
	case EvidenceContradicted:
		if s.Evidence.Living {
			return fmt.Sprintf("%s holds it; %s says that it does not use it, but %s", who, s.Evidence, s.Note)
		}
		return fmt.Sprintf("%s holds it; %s says that it is fenced, but %s", who, s.Evidence, s.Note)
	case TargetFenced:
		return fmt.Sprintf("%s, which asks for it, is fenced (%s)", who, s.Evidence)
	case TargetGone:
		return who + ", which asks for it, is gone from Kubernetes, so that its kubelet cannot mount it"
	case TargetLeaving:
		return fmt.Sprintf("an unpublish from %s is pending", who)
	}
	return who + " may hold it and nothing is known of it"
}

// ownWord says of a fence at the storage that it does not count of a node that lives, since nobody
// but its Node says whose address is cut off; empty: there is none.
func (h *Holder) ownWord() string {
	for i := range h.Evidence {
		if _, why := h.Evidence[i].holds(h); why == VoidOwnWord {
			return fmt.Sprintf("; %s does not count: only its Node says whose address that is", &h.Evidence[i])
		}
	}
	return ""
}

// lost says what has become of a machine of which nothing is heard: no Node is known to be it,
// or it has no lease.
func (h *Holder) lost(who string) string {
	const unproven = "nothing proves that it has stopped writing"
	switch {
	case h.Node == nil && h.Heir != "":
		return fmt.Sprintf("%s held it and is gone from Kubernetes, node %s has its ID now, and nothing proves that the old one has stopped writing", who, short(h.Heir))
	case h.NodeName == "":
		return who + " held it, no Node has that ID, and nothing proves that its machine has stopped writing"
	case h.reregistered():
		return who + " held it, was deleted from Kubernetes and has registered again, and " + unproven
	case h.backAnew():
		return who + " held it, was deleted from Kubernetes and has registered again after a boot, and nothing proves that no pod that the boot began uses it"
	case h.Perhaps():
		return who + " held it, nothing tells whether the machine that has its Node now is the same one, and " + unproven
	case h.OwnNode() && h.LeaseRV == "":
		return who + " holds it, has no lease to renew, and " + unproven
	case h.Node != nil && h.NodeUID != "":
		return who + " held it, another machine has that name now, and nothing proves that the old one has stopped writing"
	}
	return who + " held it and is gone from Kubernetes, and nothing proves that its machine has stopped writing"
}
