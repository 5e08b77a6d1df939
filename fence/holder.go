package fence

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Liveness is what watching a node's lease says of the node. It compares
// whether the lease's resourceVersion changed, on this process's own monotonic
// clock, and never the clocks of two machines.
type Liveness int

const (
	// Unwatched means that the node has not been watched for suspectAfter yet: after a start, an
	// outage of the API server or a storm. It is the zero value: nothing is claimed.
	Unwatched Liveness = iota
	// Alive means that the lease was seen to change within suspectAfter, or that the node is Ready
	// and has no lease yet.
	Alive
	// Stale means that the lease was watched unchanged for suspectAfter or longer.
	Stale
	// Unknown means that there is no Node, or no lease.
	Unknown
)

func (l Liveness) String() string {
	switch l {
	case Alive:
		return "alive"
	case Stale:
		return "stale"
	case Unknown:
		return "unknown"
	default:
		return "not watched for long enough"
	}
}

// State is where a ledger entry stands in the life of a publication.
type State string

const (
	// NotInLedger is the state of a holder that another source names, and not the ledger.
	NotInLedger State = ""
	// Publishing is written before ControllerPublishVolume is forwarded. The node may hold the
	// volume from then on. It is not upgraded when the driver answers: that would be one more write
	// an attach cycle, for nothing that the decision asks.
	Publishing State = "publishing"
	// Held is the state of a holder that was adopted from another source than a publish of ours.
	Held State = "held"
	// Leaving is written before ControllerUnpublishVolume is forwarded.
	Leaving State = "leaving"
	// Released is Leaving of a holder that was judged released by the kubelet's word, which outlives
	// the Node. It, too, is written before the unpublish is forwarded.
	Released State = "released"
	// TakenOver means that the volume was unpublished from the holder, by a takeover of ours or by a
	// call that was let through. Such a holder has nothing any more; it answers a late unpublish.
	TakenOver State = "takenOver"
)

// Pending tells whether an unpublish for the entry was begun and not finished.
func (s State) Pending() bool { return s == Leaving || s == Released }

// Source is where a holder is known from.
type Source string

const (
	FromLedger          Source = "ledger"
	FromAttachment      Source = "VolumeAttachment"
	FromVolumesInUse    Source = "volumesInUse"
	FromVolumesAttached Source = "volumesAttached"
	FromDriver          Source = "published_node_ids"
)

// StampResolution is the resolution of the times that Kubernetes writes: one
// second, and one more because two of them are set off against each other.
const StampResolution = 2 * time.Second

// Contest marks a holder whose kubelet's silence is not believed: we refused
// its unpublish, or its Node became Ready after its VolumeAttachment was
// deleted. A kubelet that restarts after the controller took a mounted volume
// off volumesAttached forgets it and reports "not in use" while a container
// still writes.
type Contest struct {
	// BootID of the machine when it was contested. A new one ends the contest.
	BootID string `json:"bootID,omitempty"`
	// SeenReadySince is set once the kubelet was seen to list the volume after the
	// contest began, and that was its own word (Holder.Speaks): when its Ready condition last changed,
	// in the kubelet's own words. A kubelet that restarted has another one.
	SeenReadySince string `json:"seenReadySince,omitempty"`

	Later jsontext.Value `json:",embed"` // see package format
}

// OtherBoot tells whether the contest is about another boot than that one, which
// ended it. An empty boot ID is not known to be another.
func (c *Contest) OtherBoot(bootID string) bool {
	return c.BootID != "" && bootID != "" && c.BootID != bootID
}

// Node is one live read of a Node object.
type Node struct {
	UID    string
	BootID string
	// NodeID is the driver's there, as the CSINode says it; empty: it has none, or nobody asked.
	NodeID string
	// SystemUUID, ProviderID and MachineID as the Node reports them (Machine).
	SystemUUID, ProviderID, MachineID string
	// SystemShared tells whether another Node reports that system UUID, too.
	SystemShared bool
	Ready        bool
	// ReadyUnknown tells that the Ready condition is Unknown, which the node controller writes when
	// the kubelet is silent, or that there is none.
	ReadyUnknown bool
	// ReadySince is the Ready condition's lastTransitionTime as the Node says
	// it (the writer's clock, RFC 3339). It is compared for equality only.
	ReadySince string
	// BootBefore is the boot in which this Node was first read while its VolumeAttachment was
	// being deleted, if that is another one. Empty: it is not so, or nobody knows.
	BootBefore string
	// BootedSince tells that the node's boot began after the deletion of its VolumeAttachment. Then
	// nothing there has the volume mounted, whatever its kubelet lists. Where it is false, the boot
	// did not, or nobody knows.
	BootedSince bool
	// LetGo tells that, by what the API server still has of the Node, the kubelet took the volume
	// out of volumesInUse before the controller took it off volumesAttached, as a kubelet does that
	// has unmounted it, and that the volume was in neither since.
	LetGo bool
	// Synced tells that the node was watched being Ready since ReadySince, and renewing its lease,
	// for so long that what it lists is its kubelet's word. A kubelet that has restarted leaves the
	// list of the kubelet before it for a while (K8s pkg/kubelet/nodestatus/setters.go,
	// VolumesInUse).
	Synced bool
	// ReadyAt is ReadySince moved to the API server's clock, as far as the
	// API server's own stamp of the last heartbeat tells. Zero if unknown.
	ReadyAt time.Time
	// HeardAt is when the kubelet last wrote the Ready condition's heartbeat, by
	// the API server's clock. Zero if unknown.
	HeardAt time.Time
	// InUse and ListedAttached: the volume is in status.volumesInUse, in
	// status.volumesAttached.
	InUse, ListedAttached bool
	// Waits tells that the node only waits for the volume that it lists in use. Pods of the volume
	// are bound to the Node, and a live read after the Node's shows that none of them can have had
	// its volumes mounted; or the ledger is known to name the node if it ever had the volume.
	Waits bool
	// Memory is what its kubelet, asked after the Node was read, knows of what it has mounted.
	Memory Memory
	// OutOfService is set when the out-of-service taint is on.
	OutOfService bool
}

// Memory is what a kubelet knows of what it has mounted, as its process tells. Empty: nobody asked
// it, or had a reason to doubt it.
type Memory string

const (
	// MemoryWhole means that the kubelet is the process that ran before the volume was published
	// there (Holder.Kubelet). It has forgotten nothing.
	MemoryWhole Memory = "whole"
	// MemoryLost means that the kubelet has started since the volume was taken from volumesAttached
	// by force, or so little before that it may not have found it there (RestartSlack). It may have
	// forgotten the volume.
	MemoryLost Memory = "lost"
	// MemoryUnsaid means that the volume was taken by force, and that the kubelet, which was asked
	// before in that boot, does not say whether it has started since.
	MemoryUnsaid Memory = "unsaid"
)

// Doubted tells whether it may have forgotten a volume that was taken from it by force.
func (m Memory) Doubted() bool { return m == MemoryLost || m == MemoryUnsaid }

// Lists tells whether the Node's status names the volume at all; nil: there is no Node.
func (n *Node) Lists() bool { return n != nil && (n.InUse || n.ListedAttached) }

// Attachment is one live read of the VolumeAttachment for a volume and node.
type Attachment struct {
	Name, UID string
	PV        string // the PersistentVolume that it names; empty: none
	Attached  bool
	// Finalized tells that external-attacher has its finalizer on the VolumeAttachment, which it
	// takes off after the unpublish, and before it says that the volume is not attached any more
	// (kubernetes-csi/external-attacher pkg/controller/util.go, markAsDetached).
	Finalized bool
	// DeletedAt is the API server's deletionTimestamp; zero: not being deleted.
	DeletedAt time.Time
	// Turned tells that, after the deletion was seen, the node's kubelet was seen to change its word
	// of its readiness, or, where that is Unknown, to say anything. No clock has to say so. Where it
	// is false, the kubelet did not, or nobody was there to see it.
	Turned bool
}

// Holder is a node that may hold the volume. It is keyed by NodeID: a new
// machine under an old name is another holder. A Node that lists the volume under
// the node ID of a machine that it is not known to be is one more, after that one.
type Holder struct {
	NodeID   string
	NodeName string
	// NodeUID and BootID of the machine that holds the volume, from the ledger
	// or, for a holder that the ledger lacks, from the live Node.
	NodeUID string
	BootID  string
	// SystemUUID, ProviderID and MachineID of that machine; empty: not known.
	SystemUUID, ProviderID, MachineID string
	// SystemShared tells that another Node reported that system UUID when the volume was published;
	// SystemElsewhere, that another Node than the one of the holder's name reports it now, which may
	// be the same machine under another name.
	SystemShared, SystemElsewhere bool
	// ReadySince is the Node's when the volume was published to it: no kubelet
	// whose Node still says the same has changed its Ready condition since.
	// Empty: not noted.
	ReadySince string
	// Kubelet is the process that was seen to run there before the volume was first
	// published to the machine in this boot; nil: not known.
	Kubelet *Process
	Sources []Source

	State State
	Token string
	// Call is the ledger's: which of the calls by that publication.
	Call string
	// Unproven tells that the holder became TakenOver without proof that the node had stopped
	// writing (unpublish.unfenced: Forward).
	Unproven bool
	// ReleasedUnder is the ledger's (see ReleasedForGood).
	ReleasedUnder string
	// OnlyUnder is the ledger's (see NeverAttached).
	OnlyUnder string
	// Unpublished tells that the very call that is judged has unpublished the holder.
	Unpublished bool
	// OnlyAsked tells that the holder's Node is gone, that a VolumeAttachment is all that is left of
	// it, and that a sealed ledger says nothing of it (see OnlyWants).
	OnlyAsked bool
	// ListsAnew tells that the ledger says that the volume was taken from the holder, with proof,
	// and that its Node lists it in use in a later boot. So the node waits for the volume, or has it
	// by a publish of which the ledger does not tell, as of an etcd that was restored: the holder is
	// NotInLedger.
	ListsAnew bool
	Contest   *Contest

	// Node is the live Node of that name; nil if there is none. Its UID may be
	// another than NodeUID: then it is another machine.
	Node *Node
	// AtDetach is what the holder's Node was once its VolumeAttachment, which is the only one, was
	// being deleted, if the Node is gone by now or lists the volume in use. nil: nobody knows.
	AtDetach *Node
	// Heir is the name of another node that has the holder's node ID now: the
	// same machine under another name, or one that was given its ID. Empty: none.
	Heir string
	// Shared tells that another node, or another machine under the holder's name, has its node ID
	// now. Access that is revoked comes back with the next publish to that one.
	Shared bool
	// Former is the name of another node whose VolumeAttachment for this node ID is
	// being deleted: what this machine was called before. Empty: none.
	Former string
	// FormerBoot is the boot of the publish, where that was under the name of another
	// node, which does not list the volume, and this one does: the node was renamed, or
	// was given the ID. Empty: it was not so, or nobody knows the boot.
	FormerBoot string
	// Attachment for the volume on this node; nil if there is none.
	Attachment *Attachment
	Liveness   Liveness
	// LeaseRV is the resourceVersion of the node's lease, read after all else;
	// empty: there is no lease.
	LeaseRV  string
	Evidence []Evidence
}

// Deleting tells whether it is being deleted; nil: there is none.
func (a *Attachment) Deleting() bool { return a != nil && !a.DeletedAt.IsZero() }

// Detaching tells whether its VolumeAttachment is being deleted.
func (h *Holder) Detaching() bool { return h.Attachment.Deleting() }

// ReleasedForGood tells whether the node cannot have the volume again without another
// VolumeAttachment, whatever its Node lists, and whether it lives. The kubelet had let it
// go while this one was being deleted, and each later mount reads the VolumeAttachment
// live and fails (K8s operation_generator.go, GenerateVerifyControllerAttachedVolumeFunc;
// csi_attacher.go, verifyAttachmentStatus): what is listed in use is wanted, and
// volumesAttached is left over. Nor does it mount by one that is not attached. But once that
// very one is gone, another may have come and gone that nobody here saw: then what is listed
// in use is wanted only if its pods show that, and is not in volumesAttached.
func (h *Holder) ReleasedForGood() bool {
	if h.ReleasedUnder == "" || h.State != Released && h.State != TakenOver || h.Unproven {
		return false
	}
	if h.ReleasedUnderThis() {
		return true
	}
	inUse, attached := h.listing()
	return (h.Attachment == nil || !h.Attachment.Attached) && (!inUse || h.Node.Waits && !attached)
}

// ReleasedUnderThis tells whether the VolumeAttachment that is there, being deleted, is the
// one under which the volume was released.
func (h *Holder) ReleasedUnderThis() bool {
	return h.Detaching() && h.Attachment.UID == h.ReleasedUnder
}

// LetGoAtDetach tells whether the holder's Node showed, once its VolumeAttachment was being
// deleted, that its kubelet had let the volume go, and is believed: then it cannot mount it since,
// under whichever Node (ReleasedForGood). What it lists in use now a pod wants that is back.
func (h *Holder) LetGoAtDetach() bool {
	n := h.AtDetach
	if n == nil || h.Node != nil && !h.OwnNode() || !h.beingTaken() || n.InUse || n.OutOfService {
		return false
	}
	was := n.Machine(h.NodeName)
	return h.Machine().Compare(was).OneNode() && !h.Machine().RestsOnNodeID(was) && !restartedAfterDeletion(h, n)
}

// BootedAnew tells whether the holder's machine has booted since its VolumeAttachment is being
// deleted. What had the volume mounted has ended with the boot before, and by a VolumeAttachment that
// is being deleted nothing is mounted in this one (K8s csi_attacher.go, verifyAttachmentStatus):
// what its Node lists is left over, or wanted by a pod that is back. That it is the machine which the
// ledger names, and not another one that took its Node over, its system UUID has to tell.
//
// Under another Node it has to have been read in the boot in which the machine was given the volume; and
// then its kubelet may list the volume nowhere. Where nobody knows that the boot before lasted until the
// deletion, that one has ended all the same, and the kubelet of this one has to have listed what it has mounted.
func (h *Holder) BootedAnew() bool {
	n := h.Node
	if n == nil || !h.Detaching() || n.BootBefore == "" || n.BootID == h.BootID || h.Contest != nil && !h.Contest.OtherBoot(n.BootID) {
		return false
	}
	if h.OwnNode() {
		return n.BootedSince && h.State != NotInLedger && sameSystem(h.SystemUUID, n.SystemUUID) && !h.SystemShared && !n.SystemShared
	}
	return h.is() == ReturnedAnew && n.BootBefore == h.BootID && !counts(h.BootID) && !n.InUse && !n.ListedAttached &&
		(n.BootedSince || n.Synced && !n.OutOfService)
}

// beingTaken tells whether the ledger says that the holder has the volume, while Kubernetes is
// taking it away and nobody has doubted its kubelet yet.
func (h *Holder) beingTaken() bool {
	return (h.State == Publishing || h.State == Held) && h.NodeUID != "" && h.Detaching() && h.Contest == nil
}

// AsksAtDetach tells whether the holder stands in the way, and what its Node was once its
// VolumeAttachment was being deleted may end that.
func (h *Holder) AsksAtDetach(p Policy) bool {
	return (h.Node == nil || h.OwnNode() && h.Node.InUse) && h.beingTaken() && !standing(h, p).Gone()
}

// NeverAttached tells whether the machine never had the volume, though the ledger says that it
// was published there: it can have had it by one VolumeAttachment alone, and that is being
// deleted and never said attached. No kubelet mounts by such a one, and external-attacher
// publishes by it no more. That it was the only one was known when the ledger was sealed
// (package guard, Seal), and the machine was in none of its entries.
func (h *Holder) NeverAttached() bool {
	a := h.Attachment
	if h.OnlyUnder == "" || h.State != Publishing && h.State != Leaving || !a.Deleting() || a.UID != h.OnlyUnder {
		return false
	}
	_, attached := h.listing()
	return a.Finalized && !a.Attached && !attached && !h.From(FromDriver)
}

// OnlyWants tells whether the node wants the volume and never had it. A kubelet lists in
// volumesInUse what its pods desire and what it has mounted alike (K8s volume_manager.go,
// GetVolumesInUse). It mounts only what is attached to the node, so that without an entry in
// the ledger, a VolumeAttachment that says attached, volumesAttached and the driver's list
// there is nothing to mount; and that none of them was taken away by hand its pods show,
// which never ran, or the seal of the ledgers (package guard, Seal). A hostile kubelet that
// says so of its pods gives up what it has. Once its Node is gone it lists nothing, and its
// VolumeAttachment, whose publish failed or was refused, may be there yet: of that the seal tells
// alone.
func (h *Holder) OnlyWants() bool {
	inUse, attached := h.listing()
	return (h.OnlyAsked || inUse && h.Node.Waits) && !attached && h.State == NotInLedger && (h.Attachment == nil || !h.Attachment.Attached) && !h.From(FromDriver)
}

// Speaks tells whether what the Node lists in use is its kubelet's own word: it is Ready,
// and was watched so for long enough (Node.Synced), or it is Ready since before the
// publish, so that no restart shows.
func (h *Holder) Speaks() bool {
	n := h.Node
	return n != nil && n.Ready && (n.Synced || h.ReadySince != "" && h.ReadySince == n.ReadySince)
}

// Machine is the holder's: the one to which the volume was published.
func (h *Holder) Machine() Machine {
	return Machine{NodeName: h.NodeName, NodeUID: h.NodeUID, NodeID: h.NodeID, BootID: h.BootID,
		SystemUUID: h.SystemUUID, ProviderID: h.ProviderID, MachineID: h.MachineID, SystemShared: h.SystemShared}
}

// Take makes m the holder's machine.
func (h *Holder) Take(m Machine) {
	h.NodeUID, h.BootID, h.SystemUUID, h.ProviderID, h.MachineID = m.NodeUID, m.BootID, m.SystemUUID, m.ProviderID, m.MachineID
	h.SystemShared = m.SystemShared
}

// Machine is the Node's, under that name; nil: there is no Node.
func (n *Node) Machine(name string) Machine {
	if n == nil {
		return Machine{}
	}
	return Machine{NodeName: name, NodeUID: n.UID, NodeID: n.NodeID, BootID: n.BootID,
		SystemUUID: n.SystemUUID, ProviderID: n.ProviderID, MachineID: n.MachineID, SystemShared: n.SystemShared}
}

// is tells what the holder's machine is to the one of the live Node of its name. Without a
// Node it is Uncertain.
func (h *Holder) is() Sameness { return h.Machine().Compare(h.live()) }

// live is the machine of the live Node of the holder's name.
func (h *Holder) live() Machine { return h.Node.Machine(h.NodeName) }

// Same tells whether other, which has the holder's node ID, is known to be the holder's
// machine, or is all that is known of it. Two that nothing tells apart may be two: then
// nothing that is proven of the one is proven of the other. A Node's kubelet says of its
// machine what it likes, so while a Node of the holder's name is there that may be its
// machine, no other Node is it.
func (h *Holder) Same(other *Holder) bool {
	is := h.Machine().Compare(other.Machine())
	switch {
	case h.NodeUID != "" && h.NodeUID == other.NodeUID:
		return is.OneMachine()
	case h.NodeName == "", h.NodeUID == other.NodeUID, h.NodeName == other.NodeName && (h.NodeUID == "" || other.NodeUID == ""):
		return is != Other
	case h.NodeName != other.NodeName && h.Node != nil && h.is() != Other:
		return false // that Node is, or may be, the holder's
	}
	return is.OneMachine()
}

// machine returns the live Node if it is the holder's own machine.
func (h *Holder) machine() *Node {
	if !h.is().OneNode() {
		return nil
	}
	return h.Node
}

// OwnNode tells whether the live Node is the holder's own machine.
func (h *Holder) OwnNode() bool { return h.machine() != nil }

// Unprovable says why nothing that is said of the power of the holder's machine, by a
// device or a person, can count while its Node is as it is, and what a person can do
// then; empty: it can. A storage fence counts all the same. Guard, page, Events and
// explain say it in these words.
func (h *Holder) Unprovable() (why, unblock string) {
	if h.OwnNode() {
		why = h.live().Since(h.live())
	}
	if why != "" {
		unblock = fmt.Sprintf("turn the node off, delete its Node once it is off (kubectl delete node %[1]s), and say so with 'csi-fencepost fence confirm %[1]s --reason ...'", typed(h.NodeName, "NODE"))
	}
	return why, unblock
}

// reregistered tells whether the Node was deleted and its kubelet registered again, or may have:
// another UID, but the same boot, and so the same machine with the same containers.
func (h *Holder) reregistered() bool {
	return h.Node != nil && h.Node.UID != h.NodeUID && h.Machine().MayRunOn(h.live())
}

// backAnew tells whether the Node was deleted and the machine registered again after a boot, or may
// have.
func (h *Holder) backAnew() bool { return h.Node != nil && h.Machine().MayHaveReturned(h.live()) }

// RegisteredAnew tells whether the holder's machine is there again under another
// Node object, without a boot or after one, or may be.
func (h *Holder) RegisteredAnew() bool { return h.reregistered() || h.backAnew() }

// standIn returns the live Node where it is not the machine that the ledger
// names, and yet the volume may be in use there: it was registered again, or may be that
// machine in that boot all the same, or it carries the same node ID and lists the volume.
func (h *Holder) standIn() *Node {
	if h.Node == nil || h.machine() != nil {
		return nil
	}
	if h.Machine().MayRunOn(h.live()) || h.From(FromVolumesInUse) || h.From(FromVolumesAttached) {
		return h.Node
	}
	return nil
}

// listing tells how the live Node that is, or stands for, the holder lists the volume.
func (h *Holder) listing() (inUse, attached bool) {
	for _, n := range []*Node{h.machine(), h.standIn()} {
		if n != nil {
			return n.InUse, n.ListedAttached
		}
	}
	return false, false
}

// Here returns the live Node under which the holder's machine is, or may be: its own,
// one that stands in for it, one under which it has registered anew, and one that has
// its node ID, which the driver cannot tell from it. nil: none.
func (h *Holder) Here() *Node {
	n := h.Node
	if n != nil && (h.NodeUID == "" || h.OwnsID() || h.OwnNode() || h.standIn() != nil || h.RegisteredAnew()) {
		return n
	}
	return nil
}

// MayLive tells whether its Node shows life, or was not watched for long enough to show none.
func (h *Holder) MayLive() bool {
	return h.Here() != nil && (h.Liveness == Alive || h.Liveness == Unwatched)
}

// OwnsID tells whether the holder's driver is registered with its node ID under the live Node
// of its name.
func (h *Holder) OwnsID() bool { return h.NodeID != "" && h.Node != nil && h.Node.NodeID == h.NodeID }

// Perhaps tells whether the live Node, which has the UID of the holder's, may be the holder's
// own machine's, or another's that took it over: nothing tells.
func (h *Holder) Perhaps() bool {
	return h.Node != nil && h.NodeUID != "" && h.Node.UID == h.NodeUID && h.is() == Uncertain
}

// liveness of the holder itself: the lease of a node of that name says nothing
// of another machine.
func (h *Holder) liveness() Liveness {
	if h.standIn() != nil {
		return h.Liveness
	}
	if h.machine() == nil {
		if h.Liveness == Unwatched && h.Node != nil {
			return Unwatched
		}
		return Unknown
	}
	return h.Liveness
}

// From tells whether source names the holder.
func (h *Holder) From(source Source) bool {
	for _, s := range h.Sources {
		if s == source {
			return true
		}
	}
	return false
}

// Snapshot is everything that a decision about one volume rests on, gathered
// whole before it is judged.
type Snapshot struct {
	// Volume is the CSI volume handle; PV the PersistentVolume's name, if any.
	Volume string
	PV     string
	// Holders, in a stable order, takenOver entries among them. Of those with one node
	// ID the ledger's is the first.
	Holders []Holder
	// Target is what is known of the node that a publish is for, holder or
	// not; nil for an unpublish. One with a NodeName and no Node is gone.
	Target *Holder
	Policy Policy
}

// Holder returns the holder with that node ID; of several the first, which is the
// ledger's if that has one.
func (s *Snapshot) Holder(nodeID string) *Holder {
	for i := range s.Holders {
		if s.Holders[i].NodeID == nodeID {
			return &s.Holders[i]
		}
	}
	return nil
}

// Policy is the part of the configuration that the decision asks.
type Policy struct {
	// UnpublishRevokesAccess declares that the driver takes access from a client that does not let
	// go when its volume is unpublished.
	UnpublishRevokesAccess bool
	// ListsPublishedNodes declares that the driver's list of published nodes is the whole truth. A
	// node that it does not name has no access to the volume.
	ListsPublishedNodes bool
	// ForwardUnfenced has an unpublish of a stale or unknown, unfenced holder forwarded
	// (unpublish.unfenced: Forward).
	ForwardUnfenced bool
}
