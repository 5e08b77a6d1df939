package fence

import "fmt"

// Kind is what a piece of evidence is.
type Kind string

const (
	OutOfServiceTaint    Kind = "OutOfServiceTaint"
	CloudShutdownTaint   Kind = "CloudShutdownTaint"
	OperatorConfirmation Kind = "OperatorConfirmation"
	// VolumeRelease is an operator's word that one volume is free of one node.
	VolumeRelease Kind = "VolumeRelease"
	NodeDeleted   Kind = "NodeDeleted"
	// PowerReading is a fence agent's own reading of a machine's power.
	PowerReading Kind = "PowerReading"
	// StorageFence is access revoked at the storage, confirmed by its own list.
	StorageFence Kind = "StorageFence"
	// FenceAgentsRemediation and SelfNodeRemediation are what medik8s' operators
	// say of a node that they fenced, or waited for.
	FenceAgentsRemediation Kind = "FenceAgentsRemediation"
	SelfNodeRemediation    Kind = "SelfNodeRemediation"
)

// Claim tells whether somebody says so, and nothing measured it. A claim counts only
// of a node that was watched and shows no life.
func (k Kind) Claim() bool { return k != PowerReading && k != StorageFence }

// known tells whether this version knows the kind. One from a later version proves nothing to it.
func (k Kind) known() bool {
	switch k {
	case OutOfServiceTaint, CloudShutdownTaint, OperatorConfirmation, VolumeRelease, NodeDeleted, PowerReading, StorageFence,
		FenceAgentsRemediation, SelfNodeRemediation:
		return true
	}
	return false
}

// Evidence says that a node, or one volume's access from it, is fenced. It is
// bound to the machine it was observed of; any later change of the node's
// lease, boot ID or UID voids it.
type Evidence struct {
	Kind Kind `json:"kind"`
	// Source is who says so: an agent's name, an operator, a taint's value.
	Source string `json:"source,omitempty"`
	// Detail is what was read, in the source's own words.
	Detail string `json:"detail,omitempty"`

	NodeName string `json:"node,omitempty"`
	NodeID   string `json:"nodeID,omitempty"`
	NodeUID  string `json:"nodeUID,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	// SystemUUID of the machine that it is about; empty: the source does not know.
	SystemUUID string `json:"systemUUID,omitempty"`
	// LeaseRV is the resourceVersion of the node's lease, read after the
	// observation. Empty: there was no lease.
	LeaseRV string `json:"leaseRV,omitempty"`

	// Living tells that a volume was released from a node that lived, where a person had looked. The
	// node may go on living, and being on.
	Living bool `json:"living,omitempty"`
	// Attachment is then the UID of the VolumeAttachment that was being deleted; empty:
	// there was none. Kubelets mount by none that is being deleted (K8s
	// operation_generator.go, GenerateVerifyControllerAttachedVolumeFunc).
	Attachment string `json:"attachment,omitempty"`

	// Missed says what a machine that runs would have done while this one was read as off, twice,
	// and did not. With it a reading of the power counts although the lease was not silent for long
	// yet: it is bound to that lease, so that the next renewal voids it.
	Missed string `json:"missed,omitempty"`

	// OwnWord says, of a fence at the storage, that nobody but its Node says whose the address is
	// that is cut off. The node may have another, so that of a node that shows life it says nothing.
	OwnWord bool `json:"ownWord,omitempty"`

	// Void says why it does not count although it is there; empty: it counts
	// as far as its source can tell.
	Void string `json:"void,omitempty"`
	// On tells that the source read the machine as running. That contradicts claims.
	On bool `json:"on,omitempty"`
	// Unanswered tells that the source was asked whether the machine runs, and has not said; Detail
	// says why not. No claim counts until it has.
	Unanswered bool `json:"unanswered,omitempty"`
}

// rank orders evidence by how much it proves by itself, so that the order in which
// sources answer does not matter.
func (e *Evidence) rank() int {
	switch {
	case e.Kind == StorageFence:
		return 4
	case e.Kind == PowerReading:
		return 3
	case e.Living:
		return 2
	case e.Kind == VolumeRelease:
		return 1
	}
	return 0
}

// Void reasons that a source or the decision gives.
const (
	VoidLeaseChanged = "the node has renewed its lease since"
	VoidBootChanged  = "the node has booted since"
	VoidNoBootID     = "the node reports no boot ID, so it cannot be told from a rebooted one"
	VoidOtherMachine = "it is about another machine of the same name"
	// VoidSystemShared is said where what told which machine an agent reads went with the Node.
	VoidSystemShared = "its Node is gone, and another node reports its system UUID, so that nothing tells whose power that was"
	// VoidNotUnique is said where the boot ID is a count, and the system UUID is not known, or is not
	// the node's own.
	VoidNotUnique   = "the node's boot IDs are counts, and no system UUID that it alone has tells it from another machine"
	VoidUnbound     = "it does not say which machine it is about"
	VoidUnknownKind = "this version of csi-fencepost does not know this kind of evidence"
	// VoidRegisteredAgain is said where the Node is another object, and the boot is the same.
	VoidRegisteredAgain = "its kubelet has registered again since, under the same boot ID"
	// VoidBackAnew is said where the Node is another object, and the system UUID is the same.
	VoidBackAnew = "the machine has booted and registered again since"
	// VoidNameTaken is said where the Node is gone, and with it the lease that the evidence is bound
	// to; whether that had changed first, nobody can tell any more.
	VoidNameTaken = "another machine has its name by now, so whether it came back before that, nobody can tell"
	// VoidLeaseGone is said where the lease that the evidence is bound to was deleted.
	VoidLeaseGone = "the node's lease is gone since, so whether it came back before that, nobody can tell"
	// VoidLifting is said of a storage fence that may be in place no more.
	VoidLifting = "its access is being given back, and nothing says yet how far that has come"
	VoidOurs    = "csi-fencepost put this taint on itself"
	// VoidOwnWord is said where whoever writes the Node's status may have named an address that is
	// cut off.
	VoidOwnWord = "the node shows life, or may, and nobody but its Node says that what is cut off is its address"
	// VoidUnvouched is said of a fence that stands in the record alone (record.Vouched).
	VoidUnvouched = "nobody who may fence vouches for it: a csi-fencepost of before wrote it, or somebody who may only write the rest of the record"
	// VoidUnclaimed is said of a person's word that stands in the record alone.
	VoidUnclaimed = "nobody who may say so vouches for it: a csi-fencepost of before wrote it, or somebody who may only write the rest of the record; say it once more"
	// VoidTaintBefore is said where who put the taint on, and when, does not show any more.
	VoidTaintBefore = "it may have been there before the node was last heard; if the node is off now, take the taint off, and put it on again some seconds later"
	// VoidOlderVersion is said of evidence that is bound to no boot and no lease.
	VoidOlderVersion = "an older csi-fencepost wrote it, which did not say in which boot; say it once more"
	// VoidNodeGone is said where whatever the evidence is bound to is gone.
	VoidNodeGone = "its Node has been deleted since, so that nobody can tell whether it had come back before; say it once more"
	// VoidListedSince and VoidAttachedSince end a release from a living node.
	VoidListedSince   = "the node has listed the volume in use since"
	VoidAttachedSince = "the volume's VolumeAttachment there is not the one that was being deleted then, so pods there may use the volume again"
)

// holds tells whether e counts for h now; if not, why.
func (e *Evidence) holds(h *Holder) (bool, string) {
	if e.Void != "" {
		return false, e.Void
	}
	if e.NodeID != "" && e.NodeID != h.NodeID {
		return false, VoidOtherMachine
	}
	if e.NodeUID == "" && e.NodeID == "" {
		return false, VoidUnbound
	}
	if !e.Kind.known() {
		return false, VoidUnknownKind
	}
	if e.OwnWord && h.MayLive() {
		return false, VoidOwnWord
	}
	if e.Kind == StorageFence && h.RegisteredAnew() {
		return e.cutsOffAnew(h)
	}
	if e.NodeUID != h.NodeUID || !e.speaksOf(h.Machine()) {
		return false, VoidOtherMachine
	}
	m := h.machine()
	// ofHeir tells that the evidence is of the machine that took over the Node, or may be. Of the
	// holder's machine is what names the boot of the publish, unless the other has that count of
	// boots, too.
	ofHeir := m == nil && h.Node != nil && h.Node.UID == h.NodeUID &&
		(e.BootID != h.BootID || e.BootID == h.Node.BootID && e.machine().Compare(h.live()) != Other)
	if e.Kind == StorageFence && h.standIn() == nil && !ofHeir {
		// It speaks of the volume's access, not of the machine's life.
		return true, ""
	}
	if e.Kind == VolumeRelease {
		why := e.Ended(h)
		return why == "", why
	}
	switch {
	case m == nil && h.reregistered():
		return false, VoidRegisteredAgain
	case ofHeir, m == nil && h.standIn() != nil:
		return false, VoidOtherMachine
	case m == nil && h.backAnew():
		return false, VoidBackAnew // with the pods that the boot began, whenever that was
	case m == nil && h.Node == nil && e.LeaseRV != h.LeaseRV:
		return false, e.leaseWord(h)
	case m == nil && h.Node == nil && e.Kind == PowerReading && !e.On && h.SystemElsewhere:
		return false, VoidSystemShared
	case m == nil && e.LeaseRV != h.LeaseRV && e.LeaseRV != "":
		return false, VoidNameTaken
	case m == nil:
		return true, ""
	}
	if why := e.machine().Since(h.live()); why != "" {
		return false, why
	}
	if e.LeaseRV != h.LeaseRV {
		return false, e.leaseWord(h)
	}
	return true, ""
}

// speaksOf tells whether e is about that machine: what is proven has to be of its system, too,
// where both are known.
func (e *Evidence) speaksOf(m Machine) bool {
	is := e.machine().Compare(m)
	return !otherSystem(e.SystemUUID, m.SystemUUID) && is != Other && (is != Uncertain || m.NodeUID == "")
}

// machine that e is about.
func (e *Evidence) machine() Machine {
	return Machine{NodeName: e.NodeName, NodeUID: e.NodeUID, NodeID: e.NodeID, BootID: e.BootID, SystemUUID: e.SystemUUID}
}

// readsHere tells whether the evidence was read of the boot and the lease of the Node under which
// the holder's machine is now. That is no proof about the machine, and enough against one.
func (e *Evidence) readsHere(h *Holder) bool {
	return e.Void == "" && h.Here() != nil && e.Ended(h) == ""
}

// Ended says what ended a release of one volume since it was made; empty: nothing. It
// is bound to the boot in which the machine was then, and to its lease, unless the
// machine lived and a person had looked there: then to its not using the volume again.
func (e *Evidence) Ended(h *Holder) string {
	n := h.Here()
	switch {
	case n == nil && e.Living, n == nil && e.LeaseRV != "" && e.LeaseRV != h.LeaseRV:
		return VoidNodeGone
	case n == nil:
		return ""
	case e.BootID == "" || n.BootID == "":
		return VoidNoBootID
	case e.BootID != n.BootID:
		return VoidBootChanged
	case !e.Living && e.LeaseRV != h.LeaseRV:
		return e.leaseWord(h)
	case e.Living && n.InUse:
		return VoidListedSince
	case e.Living && h.Attachment != nil && (!h.Attachment.Deleting() || h.Attachment.UID != e.Attachment):
		return VoidAttachedSince
	}
	return ""
}

// cutsOffAnew judges a storage fence of a holder whose machine is there again under another Node. A
// storage fence cuts off whatever runs there, under any name, but only what was read of that
// machine as it is registered now says that it is still in place.
func (e *Evidence) cutsOffAnew(h *Holder) (bool, string) {
	switch {
	case e.NodeUID == h.Node.UID && h.is().OneMachine() && e.speaksOf(h.live()):
		return true, ""
	case e.NodeUID != h.NodeUID:
		return false, VoidOtherMachine
	case h.reregistered():
		return false, VoidRegisteredAgain
	}
	return false, VoidBackAnew
}

// leaseWord says what became of the lease that e is bound to.
func (e *Evidence) leaseWord(h *Holder) string {
	if h.LeaseRV == "" {
		return VoidLeaseGone
	}
	return VoidLeaseChanged
}

func (e *Evidence) String() string {
	s := string(e.Kind)
	if e.Source != "" {
		s += fmt.Sprintf(" (%s)", e.Source)
	}
	return s
}
