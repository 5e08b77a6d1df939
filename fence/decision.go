package fence

import "slices"

// Action is what to do with an intercepted call. The zero Action refuses.
type Action int

const (
	// Refuse is FAILED_PRECONDITION; the driver is not called.
	Refuse Action = iota
	// Wait is ABORTED: an operation is pending.
	Wait
	// Allow forwards to the driver (after Verdict.Unpublish, for a publish).
	Allow
	// Answer is OK without a call: what is asked for has been done.
	Answer
)

func (a Action) String() string {
	return [...]string{"refuse", "wait", "allow", "answer"}[a]
}

// Standing is what one holder's facts amount to.
type Standing struct {
	Holder   *Holder
	Reason   Reason
	Evidence *Evidence // what it rests on, or what does not count
	// Note is why evidence does not count, or what contradicts what.
	Note string
	// Unanswered tells that evidence does not count while nobody has said whether the machine is on.
	Unanswered bool
}

// Gone tells whether the holder no longer counts, once its unpublish succeeded.
func (s Standing) Gone() bool { return s.Reason.allows() }

// Verdict is the decision about one call.
type Verdict struct {
	Action Action
	Reason Reason
	// Blocking is the holder that a refusal is about; nil: none.
	Blocking *Standing
	// Unpublish are the holders that a publish must first unpublish, in order.
	Unpublish []Standing
	// Subject of an unpublish, when it is a holder.
	Subject *Standing
	// Contest has it written into the ledger that this holder is contested. A holder whose kubelet
	// does not say what it remembers is not contested: that kubelet is asked again.
	Contest bool
}

// JudgePublish decides whether the volume may be published to node ID target.
func JudgePublish(s Snapshot, target string) Verdict {
	if s.Target == nil {
		return Verdict{} // not a survey for a publish
	}
	if t := s.Holder(target); t != nil && t.State.Pending() {
		return leaving(t)
	}
	for i := range s.Holders {
		// By the node ID that its driver had for it before.
		if h := &s.Holders[i]; h.State.Pending() && !h.Unpublished && h.Machine().Compare(s.Target.Machine()).OneMachine() {
			return leaving(h)
		}
	}
	if st, fenced := targetFenced(&s); fenced {
		return Verdict{Action: Refuse, Reason: TargetFenced, Blocking: &st}
	}
	if t := s.Target; t.NodeName != "" && t.Node == nil {
		return Verdict{Action: Refuse, Reason: TargetGone, Blocking: &Standing{Holder: t, Reason: TargetGone}}
	}
	if t := s.Holder(target); t != nil && t.Detaching() && t.NodeName != s.Target.NodeName && !s.listedBesides(t, s.Target) {
		return renamed(&s, t)
	}
	if s.Target.Detaching() {
		// A late call of an attacher that has lost its leadership: whoever asks
		// for the volume anew makes another VolumeAttachment first.
		return leaving(s.Target)
	}
	if t := s.Holder(target); t != nil && t.State != TakenOver && !t.Same(s.Target) {
		if st := usurped(t, s.Target); !st.Gone() {
			return Verdict{Action: Refuse, Reason: st.Reason, Blocking: &st}
		}
	}
	v := Verdict{Action: Allow, Reason: NoOtherHolder}
	for i := range s.Holders {
		h := &s.Holders[i]
		if h == s.Holder(target) || h.NodeID == target && h.NodeName == s.Target.NodeName || h.State == TakenOver && !h.Observed() {
			continue
		}
		st := beside(h, s.Policy)
		if st.Reason == HolderWaits || h.NodeID == "" && st.Reason == HolderReleased {
			continue // there is nothing to unpublish, or nobody knows its ID
		}
		if h.NodeID == "" && st.Gone() {
			st.Reason = HolderUnknown
		}
		if !st.Gone() {
			return Verdict{Action: Refuse, Reason: st.Reason, Blocking: &st}
		}
		if h == s.Holder(h.NodeID) { // one unpublish is for all that have the ID
			v.Unpublish = append(v.Unpublish, st)
		}
		v.Reason = st.Reason
	}
	return v
}

// beside is the standing of a holder beside the node that asks.
func beside(h *Holder, p Policy) Standing {
	st := standing(h, p)
	if st.Reason == HolderReleased && kept(h) && h.OwnNode() && revocable(h) {
		// What a silent kubelet said last. Heard again, it mounts by its VolumeAttachment.
		st = unreleased(h, p)
	}
	if st.Gone() && wanted(h) {
		// The attacher was told to keep it there and the kubelet may be
		// about to mount it.
		st = Standing{Holder: h, Reason: HolderWanted}
	}
	return st
}

// usurped is the standing of a holder whose node ID another machine asks with. To
// the driver they are one, so nothing is unpublished and no access revoked. What
// the Node lists is what the machine that asks wants, not what the holder has.
func usurped(h, target *Holder) Standing {
	if h.Node != nil && h.machine() == nil && h.Node.UID == target.NodeUID {
		old := *h
		old.Sources = slices.DeleteFunc(slices.Clone(h.Sources), func(s Source) bool { return s == FromVolumesInUse || s == FromVolumesAttached })
		h = &old
	}
	return beside(h, Policy{})
}

// listedBesides tells whether the node that asks lists the volume under the node ID of holder t,
// whose machine it is not known to be. Nothing unpublishes the ID while it does, so that node does
// not wait for an unpublish.
func (s *Snapshot) listedBesides(t, asks *Holder) bool {
	return slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.NodeID == t.NodeID && h.NodeName == asks.NodeName })
}

// leaving is the verdict about a publish to a node that the volume is being
// taken from.
func leaving(target *Holder) Verdict {
	st := Standing{Holder: target, Reason: TargetLeaving}
	return Verdict{Action: Wait, Reason: TargetLeaving, Blocking: &st}
}

// renamed is the verdict about a publish to a node ID that the volume is being
// taken from under another node's name, target's. It waits for that unpublish; of
// one that is refused it says why, since no waiting ends that.
func renamed(s *Snapshot, target *Holder) Verdict {
	if v := JudgeUnpublish(*s, target.NodeID); v.Action == Refuse {
		return Verdict{Action: Refuse, Reason: v.Reason, Blocking: v.Blocking}
	}
	return leaving(target)
}

// targetFenced tells whether the node that asks for the volume is fenced itself:
// external-attacher's comparison with ListVolumes publishes to the old node
// again after a takeover.
func targetFenced(s *Snapshot) (Standing, bool) {
	t := *s.Target
	t.Evidence = slices.DeleteFunc(slices.Clone(t.Evidence), func(e Evidence) bool { return e.Kind == VolumeRelease })
	for i := range t.Evidence {
		t.Evidence[i].OwnWord = false // enough to keep a volume from it
	}
	st, decided := byEvidence(&t)
	if !decided || st.Reason != HolderFenced && st.Reason != HolderListed {
		return Standing{}, false
	}
	st.Reason = TargetFenced
	return st, true
}

// JudgeUnpublish decides whether the driver may see an unpublish of the volume
// for node ID nodeID.
func JudgeUnpublish(s Snapshot, nodeID string) Verdict {
	h := s.Holder(nodeID)
	if h == nil {
		return Verdict{Action: Allow, Reason: NotAHolder}
	}
	if h.Former != "" && h.OwnNode() && kept(h) && !h.State.Pending() {
		// Only the old name's VolumeAttachment is being deleted. It keeps Kubernetes
		// from every other detach of the volume (K8s operation_executor.go,
		// DetachVolume: one operation for each volume), and the machine keeps the
		// disk: nothing is asked of the driver.
		st := Standing{Holder: h, Reason: HolderRenamed}
		return Verdict{Action: Answer, Reason: HolderRenamed, Subject: &st}
	}
	if h.ListsAnew {
		// A late one of the VolumeAttachment of before. Nothing is asked of the driver.
		st := Standing{Holder: h, Reason: AlreadyTaken}
		return Verdict{Action: Answer, Reason: AlreadyTaken, Subject: &st}
	}
	v := JudgeHolder(s, h)
	for i := range s.Holders {
		other := &s.Holders[i]
		if v.Action == Refuse || other == h || other.NodeID != nodeID || nodeID == "" {
			continue
		}
		// To the driver they are one. The entry that a contest would be written into is
		// the first one's.
		if besides := JudgeHolder(s, other); besides.Action == Refuse && !other.waitsFor(h) {
			v, v.Contest = besides, false
		}
	}
	return v
}

// JudgeHolder is JudgeUnpublish for a holder of the snapshot: of several without
// a node ID, each by itself.
func JudgeHolder(s Snapshot, h *Holder) Verdict {
	if h.State == TakenOver && !h.Observed() {
		st := Standing{Holder: h, Reason: AlreadyTaken}
		return Verdict{Action: Answer, Reason: AlreadyTaken, Subject: &st}
	}
	st := standing(h, s.Policy)
	switch {
	case st.Reason == HolderWaits:
		return Verdict{Action: Allow, Reason: HolderWaits} // as one that is no holder
	case st.Gone() && kept(h):
		// A late unpublish of an earlier VolumeAttachment.
		st = Standing{Holder: h, Reason: HolderWanted}
		return Verdict{Action: Refuse, Reason: st.Reason, Blocking: &st}
	case st.Gone():
		return Verdict{Action: Allow, Reason: st.Reason, Subject: &st}
	case s.Policy.ForwardUnfenced && (unfenced(st.Reason) || st.Unanswered) && revocable(h):
		st.Reason = UnfencedForward
		return Verdict{Action: Allow, Reason: st.Reason, Subject: &st}
	}
	return Verdict{Action: Refuse, Reason: st.Reason, Blocking: &st, Contest: h.Node == nil || h.Node.Memory != MemoryUnsaid}
}

// unfenced tells whether a reason is one of those that `unpublish.unfenced: Forward` is about. A
// node that is alive, or may be, is not among them.
func unfenced(r Reason) bool {
	switch r {
	case HolderStale, HolderUnknown, EvidenceVoid, HolderListed:
		return true
	}
	return false
}

// Observed tells whether the volume is seen there again, so that a takenOver record is not
// the last word: the driver lists it there, as one does that has carried out an attach for
// which nobody waits any more; or the controller lists it as attached, or, where it was
// released, another VolumeAttachment says so. A dead kubelet's volumesInUse says nothing: it
// is frozen from before the takeover, and a takeover of a fenced node waits until
// volumesAttached lacks the volume. Of a node of which nothing was proven it says something
// once the node lives.
func (h *Holder) Observed() bool {
	inUse, attached := h.listing()
	a := h.Attachment
	switch {
	case h.From(FromDriver), h.ReleasedUnder != "" && a != nil && a.Attached && a.UID != h.ReleasedUnder:
		return true
	case h.ReleasedForGood():
		return false
	case h.ReleasedUnder != "" && inUse:
		return true // and nothing shows that it only wants it
	}
	return attached || h.Unproven && inUse && !revocable(h)
}

// wanted tells whether Kubernetes was told, or is about to be told, that the volume is attached to
// a node that lives, or may, and has not asked for it back.
func wanted(h *Holder) bool { return kept(h) && !revocable(h) }

// kept tells whether a VolumeAttachment that is not being deleted keeps the volume on the holder.
// It says attached a moment after the driver published; a publish of ours stands in the ledger
// before.
func kept(h *Holder) bool {
	a := h.Attachment
	return a != nil && a.DeletedAt.IsZero() && (a.Attached || h.State == Publishing)
}

// waitsFor tells whether what the Node lists in use has not been attached to it yet, and it is
// another machine than first, or its publish waits for the unpublish of that one, which has begun.
// A kubelet mounts by a VolumeAttachment that says attached, and after its Node lists the volume as
// attached (K8s operation_generator.go, GenerateVerifyControllerAttachedVolumeFunc). A machine that was
// renamed within a boot may go on with what it mounted before.
func (h *Holder) waitsFor(first *Holder) bool {
	_, attached := h.listing()
	a := h.Attachment
	if a == nil || a.Deleting() || a.Attached || attached || first.BootID != "" && first.BootID == h.BootID {
		return false
	}
	return first.State.Pending() || first.Machine().Compare(h.Machine()) == Other
}

// standing judges one holder, in the order of the design: released, fenced,
// revoked, then why not.
func standing(h *Holder, p Policy) Standing {
	if h.OnlyWants() {
		if st := unreleased(h, p); st.Gone() {
			return st // and so it is unpublished, if the driver has it there all the same
		}
		return Standing{Holder: h, Reason: HolderWaits}
	}
	if released(h) {
		return Standing{Holder: h, Reason: HolderReleased}
	}
	return unreleased(h, p)
}

// unreleased is the standing of one whose kubelet's word does not count.
func unreleased(h *Holder, p Policy) Standing {
	if st, decided := byEvidence(h); decided {
		if !st.Gone() && revoked(h, p) && (st.Reason == EvidenceVoid || st.Reason == HolderListed || st.Unanswered) {
			return Standing{Holder: h, Reason: HolderRevoked}
		}
		return st
	}
	if revoked(h, p) {
		return Standing{Holder: h, Reason: HolderRevoked}
	}
	switch h.liveness() {
	case Alive:
		if inUse, attached := h.listing(); !inUse && (!attached || h.Detaching()) && (contested(h) || h.reregistered()) {
			return Standing{Holder: h, Reason: HolderContested}
		}
		return Standing{Holder: h, Reason: HolderAlive}
	case Stale:
		return Standing{Holder: h, Reason: HolderStale}
	case Unknown:
		return Standing{Holder: h, Reason: HolderUnknown}
	default:
		return Standing{Holder: h, Reason: HolderUnwatched}
	}
}

// revoked tells whether an unpublish takes the access of a holder that does not show that it lives,
// for good.
func revoked(h *Holder, p Policy) bool {
	return p.UnpublishRevokesAccess && revocable(h) && !h.Shared
}

// revocable tells whether nothing shows that the holder lives, nor that a Node does that may be its
// own.
func revocable(h *Holder) bool {
	l := h.liveness()
	return (l == Stale || l == Unknown) && !(h.Perhaps() && h.Liveness != Stale && h.Liveness != Unknown)
}

// released tells whether the holder has let go by the kubelet's word, or by the ledger's memory of
// it. Neither lease nor Ready matter: a kubelet mounts only after it has reported the volume in use
// and seen it in volumesAttached (K8s operation_generator.go,
// GenerateVerifyControllerAttachedVolumeFunc). Nor does volumesAttached once the VolumeAttachment
// is being deleted, by which a kubelet would have to mount: the controller may have computed it
// from an old Node, and leaves it so until something else changes there (K8s
// node_status_updater.go, updateNodeStatus).
func released(h *Holder) bool {
	if h.ReleasedForGood() || h.NeverAttached() || h.LetGoAtDetach() || h.BootedAnew() {
		return true
	}
	m := h.machine()
	if m == nil {
		// A Node that is gone, or is another machine, has no word; what the
		// ledger wrote of it while it had one stands.
		inUse, attached := h.listing()
		return h.State == Released && !contested(h) && !inUse && !attached && !kept(h)
	}
	return !m.InUse && (!m.ListedAttached || h.Detaching()) && !contested(h)
}

// byEvidence judges the evidence for and against a fence. decided is false
// when there is none at all.
func byEvidence(h *Holder) (st Standing, decided bool) {
	var valid, void, on, unanswered *Evidence
	var why string
	for i := range h.Evidence {
		e := &h.Evidence[i]
		ok, note := e.holds(h)
		switch {
		case e.Unanswered && e.Void == "":
			unanswered = e
		case e.Unanswered:
		case e.On && (ok || e.readsHere(h)):
			on = e
		case e.On:
		case ok && (valid == nil || e.rank() > valid.rank()):
			valid = e
		case !ok && void == nil:
			void, why = e, note
		}
	}
	switch {
	case valid == nil && void == nil:
		return Standing{}, false
	case valid == nil:
		if l := h.liveness(); l == Alive || l == Unwatched {
			// Life says more than a void claim does.
			return Standing{}, false
		}
		return Standing{Holder: h, Reason: EvidenceVoid, Evidence: void, Note: why}, true
	}
	return weigh(h, valid, on, unanswered), true
}

// weigh holds valid evidence against what speaks against it.
func weigh(h *Holder, e, on, unanswered *Evidence) Standing {
	st := Standing{Holder: h, Evidence: e}
	_, attached := h.listing()
	switch {
	case e.Kind == StorageFence:
		// The node may live under it: the fence decides.
	case e.Living:
		if attached && !h.Detaching() {
			st.Reason, st.Note = EvidenceContradicted, "the node's own status still lists the volume"
			return st
		}
	case h.liveness() == Alive && (e.Kind != PowerReading || e.Missed == ""):
		st.Reason, st.Note = EvidenceContradicted, "the node renews its lease, so it runs"
		return st
	case on != nil && e.Kind.Claim():
		st.Reason, st.Note = EvidenceContradicted, on.String()+" reads the machine as on"
		return st
	case on != nil:
		st.Reason, st.Note = EvidenceContradicted, e.String()+" and "+on.String()+" read the machine differently"
		return st
	case unanswered != nil && e.Kind.Claim():
		st.Reason, st.Unanswered, st.Note = EvidenceContradicted, true, unanswered.Detail
		return st
	case e.Kind.Claim() && h.liveness() == Unwatched:
		st.Reason = HolderUnwatched
		return st
	}
	if attached && (e.Kind != VolumeRelease || kept(h)) {
		st.Reason = HolderListed
		return st
	}
	st.Reason = HolderFenced
	return st
}
