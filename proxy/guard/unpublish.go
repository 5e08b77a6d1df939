package guard

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// unpublication is one ControllerUnpublishVolume under way:
//
//	survey ─▶ judge ─▶ mark leaving ─▶ unpublish ─▶ cut
type unpublication struct {
	*Guard
	driver proxy.Driver
	req    *spec.ControllerUnpublishVolumeRequest
}

func (u *unpublication) run(ctx context.Context) (*spec.ControllerUnpublishVolumeResponse, error) {
	for range rounds {
		resp, err := u.round(ctx)
		if errors.Is(err, errAgain) || isConflict(err) {
			continue
		}
		return resp, err
	}
	return nil, pendingError(u.req.GetVolumeId())
}

func (u *unpublication) round(ctx context.Context) (*spec.ControllerUnpublishVolumeResponse, error) {
	s, err := u.survey(ctx)
	if err != nil {
		return nil, u.unjudged(CallUnpublish, u.req.GetVolumeId(), u.req.GetNodeId(), err)
	}
	if unguarded(s) {
		return u.driver.Unpublish(ctx, u.req)
	}
	if u.req.GetNodeId() == "" {
		return u.everyone(ctx, s)
	}
	v := fence.JudgeUnpublish(s.Snapshot, s.Subject)
	d := decisionOf(CallUnpublish, s, s.Subject, v)
	switch v.Action {
	case fence.Answer:
		u.Reporter.Decided(d)
		return &spec.ControllerUnpublishVolumeResponse{}, nil
	case fence.Allow:
		resp, err := u.forward(ctx, s, v)
		if err == nil {
			u.Reporter.Decided(d)
		}
		return resp, err
	}
	if err := u.contest(ctx, s, v); err != nil {
		return nil, err
	}
	return nil, u.refuse(d, s, v)
}

func (u *unpublication) survey(ctx context.Context) (*survey.Survey, error) {
	ctx, cancel := u.surveyContext(ctx)
	defer cancel()
	s, err := u.Surveyor.Unpublish(ctx, u.req.GetVolumeId(), u.req.GetNodeId())
	if err == nil {
		u.reportSetAside(s.Book)
	}
	return s, err
}

// unguarded tells whether the PVs say that many may write, and no ledger says otherwise of the node
// that it is about, nor one of a PV that was created again.
func unguarded(s *survey.Survey) bool {
	if s.Writers != csi.Multi || slices.Contains(s.Book.Before, s.Subject) || s.Subject == "" && len(s.Book.Before) > 0 {
		return false
	}
	for i := range s.Holders {
		if h := &s.Holders[i]; h.State != fence.NotInLedger && (s.Subject == "" || h.NodeID == s.Subject) {
			return false
		}
	}
	return true
}

// forward marks the holder leaving, unpublishes and cuts it, by its token. It is
// kept as taken over where its node goes on to list the volume, and where nothing
// but the configuration (unpublish.unfenced: Forward) let the call through: what
// names it still must not stop the publish that the operator chose to have.
func (u *unpublication) forward(ctx context.Context, s *survey.Survey, v fence.Verdict) (*spec.ControllerUnpublishVolumeResponse, error) {
	req := u.req
	if s.Subject != req.GetNodeId() {
		// A new machine under the holder's name: the disk is on the old one.
		req = proto.Clone(req).(*spec.ControllerUnpublishVolumeRequest)
		req.NodeId = s.Subject
	}
	if v.Subject == nil {
		if err := u.Surveyor.Ledgers.Confirm(ctx, s.Book); err != nil {
			return nil, u.unwritten(CallUnpublish, s, err)
		}
		if stale(s) {
			return nil, errAgain
		}
		resp, err := u.driver.Unpublish(ctx, req)
		if h := s.Holder(s.Subject); status.Code(err) == codes.NotFound && h != nil && h.OnlyAsked {
			return &spec.ControllerUnpublishVolumeResponse{}, nil // its machine is gone, and never had it
		}
		return resp, err
	}
	l, before := s.Ledger(), callOf(s.Book.Ledger, v.Subject.Holder.NodeID)
	entry := leavingEntry(ctx, s, l, *v.Subject)
	l.Put(entry)
	if err := u.write(ctx, EffectLeaving, s, l); err != nil {
		return nil, u.unwritten(CallUnpublish, s, err)
	}
	now := u.Surveyor.NowCalled(s, v.Subject.Holder)
	if h := s.Holder(now); h != nil && h.Attachment != nil && h.Attachment.Attached && !h.Detaching() {
		now = "" // it has it by that one, too, and nobody takes it from there
	}
	var resp *spec.ControllerUnpublishVolumeResponse
	err := Do(EffectUnpublish, func() (err error) {
		if stale(s) {
			return errAgain
		}
		resp, err = unpublishAll(ctx, u.driver, req, now, s)
		return unpublished(*v.Subject, err)
	})
	u.answered(entry, before, err)
	if err != nil {
		return nil, err
	}
	if resp == nil {
		resp = &spec.ControllerUnpublishVolumeResponse{} // NOT_FOUND of a machine proven off
	}
	err = u.update(ctx, EffectCut, s, func(l *ledger.Ledger) bool {
		if !stands(l, entry) {
			return false
		}
		l.Forced(forcedIn(s, v.Subject)...)
		if unproven := v.Reason == fence.UnfencedForward; unproven || listsOn(v.Subject, entry) {
			return markTaken(l, v.Subject.Holder, entry.Token, unproven)
		}
		return l.Cut(entry.NodeID, entry.Token)
	})
	if err != nil {
		// The disk is off; the caller's retry is idempotent and cuts it then.
		return nil, u.unwritten(CallUnpublish, s, err)
	}
	return resp, nil
}

// listsOn tells whether the status of a node that was proven gone still says that it uses the
// volume, as it did when it was last heard; or whether that of a node that was released for good
// says so of a pod that is back, or names it as attached. Without its entry it would count as a
// holder again, of which nothing is proven: a release is bound to the entry's token, and other
// evidence may be taken away.
func listsOn(st *fence.Standing, entry ledger.Entry) bool {
	n := st.Holder.Node
	if n == nil || !st.Gone() {
		return false
	}
	if st.Reason == fence.HolderReleased {
		return entry.ReleasedUnder != "" && n.Lists()
	}
	return n.InUse
}

// forcedIn are the boots in which the machines of a node ID may have the volume mounted all the
// same, of which st was proven gone: of one it was neither its kubelet's word that it has not, nor
// a device's that it is off. What cut it off may end in the same boot, and a person may have been
// wrong.
func forcedIn(s *survey.Survey, st *fence.Standing) (boots []string) {
	for i := range s.Holders {
		h := &s.Holders[i]
		if h.NodeID != st.Holder.NodeID || h.State == fence.TakenOver && h != st.Holder {
			continue
		}
		one, refused := st, false
		if h != st.Holder {
			v := fence.JudgeHolder(s.Snapshot, h)
			one, refused = v.Subject, v.Action == fence.Refuse
		}
		switch {
		case !refused && (one == nil || !mayRunOn(one)): // or it only waits
		case h.OwnNode():
			boots = append(boots, h.BootID, h.Node.BootID) // after a boot it mounts again without a publish
		default:
			boots = append(boots, ledger.AnyBoot) // it may have booted since it was seen
		}
	}
	return boots
}

// mayRunOn tells whether neither its kubelet says that it has let go, nor a device that it is off.
func mayRunOn(st *fence.Standing) bool {
	off := st.Reason == fence.HolderFenced && st.Evidence != nil && st.Evidence.Kind == fence.PowerReading
	return st.Reason != fence.HolderReleased && !off
}

// contest writes down that we refused this holder's unpublish, and that its
// kubelet, Ready and synced, listed the volume then: the one fact from which a later "not
// in use" can be believed.
func (u *unpublication) contest(ctx context.Context, s *survey.Survey, v fence.Verdict) error {
	c := ContestDue(v)
	if c == nil || s.OneOfMany(v.Blocking.Holder) || s.SealUnused {
		return nil // one of many: written down, it would be a single writer; what is not known now is asked again
	}
	h, l := v.Blocking.Holder, s.Ledger()
	e := survey.EntryOf(h, fence.Held, s.NewToken())
	if known := l.Get(h.NodeID); known != nil {
		e = *known
	}
	e.Contest, e.From = c, "" // who asks for the unpublish knows of it too
	if e.State == fence.Released {
		e.State, e.ReleasedUnder = fence.Held, "" // it was, before
	}
	l.Put(e)
	if err := u.write(ctx, EffectContest, s, l); err != nil {
		return u.unwritten(CallUnpublish, s, err)
	}
	return nil
}

// ContestDue is what an unpublish that is refused by that verdict has to write down
// of its holder; nil: nothing, or it stands there already.
func ContestDue(v fence.Verdict) *fence.Contest {
	if !v.Contest || v.Blocking.Holder.State == fence.TakenOver {
		return nil
	}
	h := v.Blocking.Holder
	if registering(h) {
		return nil
	}
	c := contestOf(h)
	if h.State != fence.NotInLedger && h.Contest != nil && reflect.DeepEqual(h.Contest, c) {
		return nil
	}
	return c
}

// registering tells whether its Node is there and lists nothing, and its driver is not, or not yet.
// Which machine it is can be told when the driver is there; an entry without a machine could never
// be released by its kubelet's word.
func registering(h *fence.Holder) bool {
	return h.State == fence.NotInLedger && h.NodeUID == "" && h.Node != nil && !h.Node.InUse && !h.Node.ListedAttached
}

// contestOf is the contest that the facts about h amount to now.
func contestOf(h *fence.Holder) *fence.Contest {
	c := &fence.Contest{BootID: cmp.Or(h.FormerBoot, h.BootID)}
	own := h.OwnNode()
	// Then what it lists is from before the boot, or waited for. Of a renamed node the
	// detach is the old name's: nothing was mounted in a boot under the new one.
	unmounted := own && (h.Node.BootedSince || h.FormerBoot != "" && !h.Attachment.Deleting())
	if h.Perhaps() {
		// The boot under which it may write now, if that is its Node.
		c.BootID = h.Node.BootID
	}
	if own && h.Node.BootID != "" && !unmounted {
		// The boot under which it may write now: a pod that comes back after a
		// reboot mounts again without a publish.
		c.BootID = h.Node.BootID
	}
	moved := h.FormerBoot != ""
	if h.Contest != nil && (h.Node == nil || unmounted || moved || !h.Contest.OtherBoot(c.BootID)) {
		*c = *h.Contest // a contest of an earlier boot would hide this one
	}
	// The entry is the old name's, whose Node may be there: the word of another Node's
	// kubelet ends no contest of it.
	if own && !moved && h.Node.InUse && h.Speaks() {
		c.SeenReadySince = h.Node.ReadySince
	}
	if own && h.Node.Memory == fence.MemoryLost {
		c.SeenReadySince = "" // what lists the volume no more is not the process that did
	}
	return c
}

// markTaken marks a holder's entry as taken over, in the boot of what its Node lists: it may have
// booted since the publish, with the volume.
func markTaken(l *ledger.Ledger, h *fence.Holder, token string, unproven bool) bool {
	if !l.MarkTaken(h.NodeID, token, unproven) {
		return false
	}
	if e := l.Get(h.NodeID); h.OwnNode() && h.Node.InUse && e.BootID != h.Node.BootID {
		e.BootID, e.Kubelet = h.Node.BootID, nil
	}
	return true
}

// everyone judges an unpublish without a node ID, which means from all nodes: it
// is forwarded only if no node may still write.
func (u *unpublication) everyone(ctx context.Context, s *survey.Survey) (*spec.ControllerUnpublishVolumeResponse, error) {
	var gone []fence.Standing
	for i := range s.Holders {
		v := fence.JudgeHolder(s.Snapshot, &s.Holders[i])
		if v.Action == fence.Refuse {
			v.Reason = fence.UnpublishEveryone
			d := decisionOf(CallUnpublish, s, "", v)
			return nil, u.refuse(d, s, v)
		}
		if h := &s.Holders[i]; v.Subject != nil && h.State != fence.TakenOver && h.NodeID != "" {
			gone = append(gone, *v.Subject)
		}
	}
	l := s.Ledger()
	for _, st := range gone {
		l.Put(leavingEntry(ctx, s, l, st))
	}
	if err := u.write(ctx, EffectLeaving, s, l); err != nil {
		return nil, u.unwritten(CallUnpublish, s, err)
	}
	if stale(s) {
		return nil, errAgain
	}
	resp, err := u.driver.Unpublish(ctx, u.req)
	if err != nil {
		return nil, err
	}
	leaving := append([]ledger.Entry(nil), l.Holders...)
	return resp, u.update(ctx, EffectCut, s, func(l *ledger.Ledger) (changed bool) {
		for i := range gone {
			l.Forced(forcedIn(s, &gone[i])...)
		}
		for _, e := range leaving {
			if e.State.Pending() && stands(l, e) {
				changed = l.Cut(e.NodeID, e.Token) || changed
			}
		}
		return changed
	})
}

// leavingEntry is the ledger entry of a holder whose unpublish is about to be
// forwarded. What the kubelet's word released stays released even if its Node
// goes away meanwhile. ctx is the call's that unpublishes it.
func leavingEntry(ctx context.Context, s *survey.Survey, l *ledger.Ledger, st fence.Standing) ledger.Entry {
	e := survey.EntryOf(st.Holder, fence.Leaving, "")
	known, h := l.Get(st.Holder.NodeID), st.Holder
	switch {
	case known == nil:
	case known.State == fence.TakenOver && (h.Token != known.Token || !h.From(fence.FromDriver)):
	case h.State != fence.NotInLedger || known.NodeName == h.NodeName:
		// Of one that was taken over and that the driver lists, too: it is the same that was
		// taken before, and a release of it is bound to the token.
		e, e.Unproven = *known, false
	}
	if e.Token == "" {
		e.Token = s.NewToken()
	}
	if !e.State.Pending() {
		e.LeavingSeconds = 0
	}
	e.LeavingSeconds, e.Call = max(e.LeavingSeconds, secondsLeft(ctx)), s.NewToken()
	e.State = fence.Leaving
	if st.Reason != fence.HolderReleased || h.NeverAttached() {
		// That it never had it rests on its VolumeAttachment, each time.
		e.ReleasedUnder = ""
		return e
	}
	e.State = fence.Released
	switch {
	case h.Detaching() && (h.OwnNode() || h.LetGoAtDetach()):
		e.ReleasedUnder = h.Attachment.UID
	case !h.ReleasedForGood():
		e.ReleasedUnder = ""
	}
	if n := st.Holder.Node; e.Contest != nil && st.Holder.OwnNode() && e.Contest.OtherBoot(n.BootID) {
		// It stays, as what the reboot ended: judged again, the node would be
		// contested for a taint that is still on.
		e.BootID = n.BootID
		return e
	}
	e.Contest = nil
	return e
}

// unpublishAll unpublishes from the node ID of the request, and then from now, if not empty, by
// which the driver knows the same machine today: which of the two it knows the volume to be
// published to is its own affair. s is what was judged.
func unpublishAll(ctx context.Context, driver proxy.Driver, req *spec.ControllerUnpublishVolumeRequest, now string, s *survey.Survey) (*spec.ControllerUnpublishVolumeResponse, error) {
	resp, err := driver.Unpublish(ctx, req)
	if now == "" || err != nil && !unknownNode(err) {
		return resp, err
	}
	if stale(s) {
		return nil, errAgain
	}
	again := proto.Clone(req).(*spec.ControllerUnpublishVolumeRequest)
	again.NodeId = now
	second, failed := driver.Unpublish(ctx, again)
	if failed != nil && err == nil && unknownNode(failed) {
		return resp, nil
	}
	return second, failed
}

// unknownNode tells whether the driver says that it knows no such node ID.
func unknownNode(err error) bool {
	code := status.Code(err)
	return code == codes.NotFound || code == codes.InvalidArgument
}

// unpublished turns the driver's answer into what it means for the holder: of a
// machine that is gone, NOT_FOUND is success (its VM is gone, and its disk with it
// from there).
func unpublished(st fence.Standing, err error) error {
	if status.Code(err) == codes.NotFound && machineGone(st) {
		return nil
	}
	return err
}

// machineGone tells whether the machine was proven off, or let the volume go and then its Node
// went, or never had it. A volume that was released or cut off says nothing of the machine.
func machineGone(st fence.Standing) bool {
	switch st.Reason {
	case fence.HolderFenced:
		return st.Evidence != nil && st.Evidence.Kind != fence.VolumeRelease && st.Evidence.Kind != fence.StorageFence
	case fence.HolderReleased:
		return st.Holder.NodeName != "" && st.Holder.Node == nil || st.Holder.NeverAttached()
	}
	return false
}
