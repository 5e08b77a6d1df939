package fence

// Reason is why a call was allowed or refused. Each has a text that a person
// reads in `kubectl describe pod`, and a section in the runbook.
type Reason string

const (
	// Undecided is the zero Reason: nothing was judged, so nothing is allowed.
	Undecided Reason = ""

	NoOtherHolder  Reason = "NoOtherHolder"
	HolderReleased Reason = "HolderReleased"
	// HolderWaits is of a node that only wants the volume (Holder.OnlyWants).
	HolderWaits     Reason = "HolderWaits"
	HolderFenced    Reason = "HolderFenced"
	HolderRevoked   Reason = "HolderRevoked"
	NotAHolder      Reason = "NotAHolder"
	AlreadyTaken    Reason = "AlreadyTakenOver"
	UnfencedForward Reason = "UnfencedForward"
	// HolderRenamed is of an unpublish for a name that the node had before; under its present name
	// it keeps the volume.
	HolderRenamed Reason = "HolderRenamed"

	TargetFenced  Reason = "TargetFenced"
	TargetLeaving Reason = "TargetLeaving"
	// TargetGone is of a publish to a node without a Node by which its kubelet could mount the
	// volume. external-attacher asks by the CSINode, which outlives its Node for a moment.
	TargetGone Reason = "TargetGone"

	HolderAlive     Reason = "HolderAlive"
	HolderWanted    Reason = "HolderWanted"
	HolderContested Reason = "HolderContested"
	HolderStale     Reason = "HolderStale"
	HolderUnknown   Reason = "HolderUnknown"
	HolderUnwatched Reason = "HolderUnwatched"
	// HolderListed is of a holder that is fenced while Kubernetes still lists the volume in the
	// Node's volumesAttached, so that a kubelet that returns would mount it.
	HolderListed Reason = "HolderStillListed"
	// EvidenceVoid is of a holder of which there is evidence that does not count.
	EvidenceVoid Reason = "EvidenceVoid"
	// EvidenceContradicted is of a holder of which two sources say opposite things.
	EvidenceContradicted Reason = "EvidenceContradicted"

	// The following are found while acting, not by the decision.

	LedgerUnreadable  Reason = "LedgerUnreadable"
	UnpublishFailed   Reason = "UnpublishFailed"
	APIUnavailable    Reason = "APIUnavailable"
	OperationPending  Reason = "OperationPending"
	LostRace          Reason = "LostRace"
	UnpublishEveryone Reason = "UnpublishFromAllNodes"
	// DriverBusy is of a call that got no turn, so that nothing was judged.
	DriverBusy Reason = "DriverBusy"
)

// allows tells whether a holder of that standing no longer counts.
func (r Reason) allows() bool {
	switch r {
	case HolderReleased, HolderWaits, HolderFenced, HolderRevoked:
		return true
	}
	return false
}
