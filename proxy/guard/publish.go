package guard

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// publication is one ControllerPublishVolume under way:
//
//	survey ─▶ judge ─▶ (mark leaving ─▶ unpublish ─▶ survey ─▶ judge …) ─▶ record ─▶ publish ─▶ verify
//
// It may end anywhere; the caller's retry finds in the ledger what was begun.
type publication struct {
	*Guard
	driver  proxy.Driver
	req     *spec.ControllerPublishVolumeRequest
	started time.Time
	// shared tells that many nodes may have the volume at once. Only whom a ledger names stands in
	// its way.
	shared bool

	// from are the holders that this very call has unpublished, each with the token of its entry.
	from   []fence.Holder
	forced []string // boots (ledger.Ledger.ForcedIn)
	// wrote is the entry that this call wrote for the node that asks; first: it is the first of its node.
	wrote    ledger.Entry
	first    bool
	suspects []string // node IDs at which the driver itself pointed
}

// rounds bounds how often a call starts over because something changed between
// its judgement and its write.
const rounds = 6

func (p *publication) run(ctx context.Context) (*spec.ControllerPublishVolumeResponse, error) {
	for range rounds {
		resp, err := p.round(ctx)
		if errors.Is(err, errAgain) || isConflict(err) {
			continue
		}
		return resp, err
	}
	return nil, pendingError(p.req.GetVolumeId())
}

func (p *publication) round(ctx context.Context) (*spec.ControllerPublishVolumeResponse, error) {
	s, err := p.survey(ctx)
	if err != nil {
		return nil, p.unjudged(CallPublish, p.req.GetVolumeId(), p.req.GetNodeId(), err)
	}
	v := fence.JudgePublish(s.Snapshot, p.req.GetNodeId())
	if v.Reason == fence.TargetLeaving && p.abandoned(s, v.Blocking.Holder) {
		return nil, p.finishLeaving(ctx, s, v.Blocking.Holder.NodeID)
	}
	if v.Action != fence.Allow {
		return nil, p.refuse(p.decision(s, v), s, v)
	}
	if s.Book.Loose() {
		return nil, p.unwritten(CallPublish, s, &looseError{s.PV})
	}
	if pending := slices.DeleteFunc(slices.Clone(v.Unpublish), func(st fence.Standing) bool { return st.Holder.Unpublished }); len(pending) > 0 {
		if err := p.takeOver(ctx, s, pending); err != nil {
			return nil, err
		}
		return nil, errAgain // judge again before anything is published
	}
	token, err := p.record(ctx, s)
	if err != nil {
		return nil, p.unwritten(CallPublish, s, err)
	}
	return p.forward(ctx, s, v, token)
}

func (p *publication) survey(ctx context.Context) (*survey.Survey, error) {
	ctx, cancel := p.surveyContext(ctx)
	defer cancel()
	s, err := p.Surveyor.Publish(ctx, p.req.GetVolumeId(), p.req.GetNodeId(), p.suspects)
	if err == nil {
		p.reportSetAside(s.Book)
		for i := range s.Holders {
			h := &s.Holders[i]
			h.Unpublished = slices.ContainsFunc(p.from, func(done fence.Holder) bool {
				return done.NodeID == h.NodeID && done.Token == h.Token && done.Call == h.Call
			})
		}
		if p.shared {
			s.KeepRecorded()
		}
	}
	return s, err
}

// abandonedAfter is how long a pending unpublish waits at least to be finished by
// whoever began it: longer than external-attacher's --timeout, which is 15 s by default
// and a minute in what we deploy. The ledger says of a call that has longer.
const abandonedAfter = 2 * time.Minute

// afterDeadline is what a driver has to let go of a call that was given up.
const afterDeadline = time.Minute

// longestCall bounds a call whose caller has set no deadline, and longest any call.
const (
	longestCall = 10 * time.Minute
	longest     = 24 * time.Hour
)

// limited gives the call a deadline, if it has none, or one that is absurd.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, longest)
	}
	return context.WithTimeout(ctx, longestCall)
}

// secondsLeft is what a call that is limited has left, rounded up.
func secondsLeft(ctx context.Context) int {
	deadline, _ := ctx.Deadline()
	return max(0, int(math.Ceil(time.Until(deadline).Seconds())))
}

// abandoned tells whether an unpublish of the node that asks was begun and not finished, and nobody
// is there to finish it: its VolumeAttachment was removed by hand and made again.
func (p *publication) abandoned(s *survey.Survey, h *fence.Holder) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Target.Attachment == nil || s.Target.Detaching() || h.Detaching() {
		delete(p.leaving, h.Token)
		return false
	}
	call, wait := "", abandonedAfter
	if e := s.Book.Ledger.Get(h.NodeID); e != nil && e.Token == h.Token {
		call, wait = e.Call, max(wait, time.Duration(min(e.LeavingSeconds, int(longest.Seconds())))*time.Second+afterDeadline)
	}
	seen := p.leaving[h.Token]
	if seen.attachment != s.Target.Attachment.UID || seen.call != call {
		// Another one may have been made and stripped, and begun an unpublish, since; or another
		// process has begun one.
		p.leaving[h.Token] = sight{s.Target.Attachment.UID, call, time.Now()}
		return false
	}
	return time.Since(seen.since) >= wait
}

// answered notes what has become of the unpublish for which e was written. The driver may carry one
// out yet to which it has given no final answer: then, and where an earlier one was begun that nobody
// here has seen, what waits for them to be over (abandoned) waits anew. before is the call of before.
func (g *Guard) answered(e ledger.Entry, before string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if seen, ok := g.leaving[e.Token]; ok && seen.call == before && final(err) {
		seen.call = e.Call
		g.leaving[e.Token] = seen
		return
	}
	delete(g.leaving, e.Token)
}

// callOf is the last call that the ledger knows by the entry of a node ID; empty: none.
func callOf(l *ledger.Ledger, nodeID string) string {
	if e := l.Get(nodeID); e != nil {
		return e.Call
	}
	return ""
}

// sight is since when a VolumeAttachment was seen to be there, and not to be deleted, and nobody
// to have called the driver.
type sight struct {
	attachment string // its UID
	call       string // ledger.Entry.Call
	since      time.Time
}

// finishLeaving finishes an abandoned unpublish of the node that asks, by the ID that it has or had,
// if it is still right.
func (p *publication) finishLeaving(ctx context.Context, s *survey.Survey, nodeID string) error {
	v := fence.JudgeUnpublish(s.Snapshot, nodeID)
	if v.Action != fence.Allow {
		return p.refuse(p.decision(s, v), s, v)
	}
	u := &unpublication{Guard: p.Guard, driver: p.driver, req: p.unpublishOf(nodeID)}
	s.Subject = nodeID
	if _, err := u.forward(ctx, s, v); err != nil {
		return err
	}
	return errAgain
}

// unpublishOf is the request with which this call itself unpublishes the volume
// from a node: with its own secrets.
func (p *publication) unpublishOf(nodeID string) *spec.ControllerUnpublishVolumeRequest {
	return &spec.ControllerUnpublishVolumeRequest{VolumeId: p.req.GetVolumeId(), NodeId: nodeID, Secrets: p.req.GetSecrets()}
}

// takeOver unpublishes the holders that are proven not to write any more: first
// all are marked leaving, then each is unpublished with the request's own
// secrets.
func (p *publication) takeOver(ctx context.Context, s *survey.Survey, gone []fence.Standing) error {
	l, read := s.Ledger(), s.Book.Ledger
	for _, st := range gone {
		l.Put(leavingEntry(ctx, s, l, st))
	}
	if err := p.write(ctx, EffectLeaving, s, l); err != nil {
		return p.unwritten(CallPublish, s, err)
	}
	for i, st := range gone {
		entry := *l.Get(st.Holder.NodeID)
		err := Do(EffectUnpublish, func() error {
			if stale(s) {
				return errAgain
			}
			_, err := unpublishAll(ctx, p.driver, p.unpublishOf(st.Holder.NodeID), p.Surveyor.NowCalled(s, st.Holder), s)
			return unpublished(st, err)
		})
		p.answered(entry, callOf(read, entry.NodeID), err)
		if err != nil {
			for _, left := range gone[i+1:] { // they were marked, and not called
				p.answered(*l.Get(left.Holder.NodeID), callOf(read, left.Holder.NodeID), nil)
			}
			if errors.Is(err, errAgain) {
				return err
			}
			p.putBack(ctx, s, st, entry, err)
			return p.refuseUnpublish(s, st, err)
		}
		p.forced = append(p.forced, forcedIn(s, &st)...)
		h := *st.Holder
		h.Token, h.Call = entry.Token, entry.Call
		p.from = append(slices.DeleteFunc(p.from, func(before fence.Holder) bool { return before.NodeID == h.NodeID }), h)
	}
	return nil
}

// putBack writes down again that the volume was taken from a holder before, where the
// driver's answer to the unpublish of what it listed there ends that call: nobody else is to
// wait for it.
func (p *publication) putBack(ctx context.Context, s *survey.Survey, st fence.Standing, entry ledger.Entry, err error) {
	if st.Holder.State != fence.TakenOver || !st.Holder.From(fence.FromDriver) || !final(err) {
		return
	}
	_ = p.update(ctx, EffectCut, s, func(l *ledger.Ledger) bool {
		if !stands(l, entry) || !markTaken(l, st.Holder, entry.Token, st.Holder.Unproven) {
			return false
		}
		l.Get(st.Holder.NodeID).ReleasedUnder = st.Holder.ReleasedUnder
		return true
	}) // else it stays leaving, and whoever comes next goes on from there
}

// stands tells whether no call was made by an entry of the ledger since that one was written. Whose
// call is under way goes on to need it.
func stands(l *ledger.Ledger, entry ledger.Entry) bool {
	e := l.Get(entry.NodeID)
	return e != nil && e.Token == entry.Token && e.Call == entry.Call
}

// final tells whether the driver is through with a call that it answers so, as external-attacher
// has it (kubernetes-csi/external-attacher pkg/attacher/attacher.go, isFinalError).
func final(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// record writes the new holder down, directly before the publish, and the taken
// ones as takenOver. The token tells this publication from a later one.
func (p *publication) record(ctx context.Context, s *survey.Survey) (string, error) {
	l := s.Ledger()
	for i := range p.from {
		h := &p.from[i]
		if markTaken(l, h, h.Token, false) && !h.Node.Lists() {
			l.Get(h.NodeID).ReleasedUnder = "" // there is nothing that it would explain
		}
	}
	l.Forced(p.forced...)
	if p.shared {
		return "", p.recordShared(ctx, s, l)
	}
	t := s.Target
	known := l.Get(t.NodeID)
	if e := known; e != nil && (t.Attachment == nil || e.OnlyUnder != t.Attachment.UID) {
		e.OnlyUnder = "" // it is published by another one now
	}
	// The copy has the node that asks as well, where there was no ledger.
	first := s.Book.Ledger.Get(t.NodeID) == nil && p.Seal.first(ctx, s)
	token, again := "", false
	if e := known; e != nil && sameMachine(e, t) && (e.State == fence.Publishing || e.State == fence.Held) {
		// A retry is written down already. An adopted holder is published to now.
		if e.State == fence.Held {
			e.State, e.From, e.ReleasedUnder, e.ReadySince = fence.Publishing, "", "", t.ReadySince
		}
		again = stands(l, p.wrote) // else another process has published by it, now or before
		e.Call = s.NewToken()
		token = e.Token
	} else {
		e := survey.EntryOf(t, fence.Publishing, s.NewToken())
		e.Contest = nil
		if known != nil {
			e.Contest = stillContested(known, t)
			displaced(l, known, t)
		}
		l.Put(e)
		token = e.Token
	}
	l.Get(t.NodeID).Kubelet = ranBefore(s, first && !l.WasForcedIn(t.BootID))
	p.first = first || p.first && again
	p.wrote = *l.Get(t.NodeID)
	err := p.write(ctx, EffectRecord, s, l)
	if err == nil {
		p.Seal.gave(s.Book)
	}
	return token, err
}

// failed writes down what is known of a first publish that the driver did not carry out: one
// that it is through with named nobody whom the ledger named before, and is taken off again, as
// the seal knows the node; of another one, by which VolumeAttachment alone the node can have it.
// Either way no kubelet mounts before external-attacher says attached of one. The seal has to
// hold still.
func (p *publication) failed(ctx context.Context, s *survey.Survey, err error) {
	if !p.first || errors.Is(err, errAgain) || s.Target.Node == nil || s.Target.Attachment == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	holds, knows := p.Seal.still(ctx, s.Volume, types.UID(s.Target.Node.UID))
	if !holds {
		return
	}
	_ = p.update(ctx, EffectCut, s, func(l *ledger.Ledger) bool {
		e := l.Get(p.req.GetNodeId())
		if !stands(l, p.wrote) || e.State != fence.Publishing {
			return false
		}
		if final(err) && knows {
			return l.Cut(e.NodeID, e.Token)
		}
		e.OnlyUnder = s.Target.Attachment.UID
		return true
	}) // else it stays, as one of which that is not known
}

// displaced notes that a machine's entry goes since another one asks under its node ID, which was
// proven gone: nobody knows in which boot it mounted last.
func displaced(l *ledger.Ledger, e *ledger.Entry, t *fence.Holder) {
	if e.State != fence.TakenOver && !e.Machine().Compare(t.Machine()).OneMachine() {
		l.Forced(ledger.AnyBoot)
	}
}

// stillContested is the contest that outlives a publish to the node that has the
// volume already: one of the boot that is running, in which it may still be
// mounted whatever the kubelet has forgotten.
func stillContested(e *ledger.Entry, t *fence.Holder) *fence.Contest {
	switch {
	case e.State == fence.TakenOver || e.Machine().Compare(t.Machine()) == fence.Other:
		return nil
	case e.Contest != nil && t.BootID != "" && e.Contest.BootID == t.BootID:
		return e.Contest
	case registeredAgain(e, t):
		return &fence.Contest{BootID: t.BootID}
	}
	return nil
}

// ranBefore is the kubelet's process that was seen to run on the machine that asks before it can
// have had the volume in this boot; nil: not known. A first publish (Seal.first), in a boot in which
// nobody had to give it up, is after what was seen by now. Any other entry of the machine may be of
// what it has mounted still, also one of an earlier boot: it mounts again after a boot without a
// publish. Then it is what that one names, in that boot and under that Node.
func ranBefore(s *survey.Survey, first bool) *fence.Process {
	e := s.Book.Ledger.Get(s.Target.NodeID)
	switch {
	case first:
		return s.Target.Kubelet
	case e == nil, e.Machine().Compare(s.Target.Machine()) != fence.Same:
		return nil
	}
	return e.Kubelet
}

// registeredAgain tells whether the machine has held the volume since before its Node was deleted.
// A Node that is made anew lists nothing at first, whatever is mounted.
func registeredAgain(e *ledger.Entry, t *fence.Holder) bool {
	return e.NodeUID != t.NodeUID && e.Machine().MayRunOn(t.Machine())
}

// sameMachine tells whether the entry is of the machine that asks.
func sameMachine(e *ledger.Entry, t *fence.Holder) bool {
	return e.NodeUID == t.NodeUID && e.BootID == t.BootID && e.Machine().Compare(t.Machine()) != fence.Other
}

// forward publishes, and answers only if the ledger still names this
// publication: another process may have judged in the meantime that nobody
// holds the volume here.
func (p *publication) forward(ctx context.Context, s *survey.Survey, v fence.Verdict, token string) (*spec.ControllerPublishVolumeResponse, error) {
	var resp *spec.ControllerPublishVolumeResponse
	err := Do(EffectPublish, func() (err error) {
		if stale(s) {
			return errAgain
		}
		resp, err = p.driver.Publish(ctx, p.req)
		return err
	})
	if status.Code(err) == codes.FailedPrecondition && p.suspects == nil {
		err = p.lookForHolder(s, err)
	}
	if err != nil {
		p.failed(ctx, s, err)
		return nil, err
	}
	if err := p.verify(ctx, s, token); err != nil {
		return nil, err
	}
	d := p.decision(s, v)
	p.Reporter.Decided(d)
	if len(p.from) > 0 {
		p.Reporter.TookOver(d, p.from, time.Since(p.started))
	}
	return resp, nil
}

// lookForHolder looks for a holder after the driver refused although no other was known. The node
// IDs that its message names are only suspects; what they are is surveyed.
func (p *publication) lookForHolder(s *survey.Survey, refusal error) error {
	p.suspects = []string{}
	for _, id := range p.Surveyor.Index.NodeIDs() {
		if id != p.req.GetNodeId() && namesID(status.Convert(refusal).Message(), id) {
			p.suspects = append(p.suspects, id)
		}
	}
	looked, err := p.survey(context.Background())
	if err != nil {
		return refusal
	}
	v := fence.JudgePublish(looked.Snapshot, p.req.GetNodeId())
	if v.Reason == fence.TargetGone {
		return refusal // it is not called again
	}
	for i := range looked.Holders {
		h := &looked.Holders[i]
		if h.NodeID == p.req.GetNodeId() || !h.From(fence.FromDriver) {
			continue
		}
		// Of one that was taken over, and cannot be now, what the driver says stands: it may
		// be about to let it go.
		if v.Action == fence.Allow || h.State != fence.TakenOver {
			return errAgain
		}
	}
	return refusal
}

// namesID tells whether text contains id as a word of its own.
func namesID(text, id string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], id)
		if i < 0 {
			return false
		}
		before, after := at+i-1, at+i+len(id)
		if (before < 0 || !wordByte(text[before])) && (after >= len(text) || !wordByte(text[after])) {
			return true
		}
		at += i + 1
	}
}

func wordByte(b byte) bool {
	return b == '-' || b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// verify reads the ledger once more after the driver said yes. While another
// process is unpublishing this very node it waits: that unpublish may have
// reached the driver before our publish did, and then the disk is an orphan that
// no ledger names.
func (p *publication) verify(ctx context.Context, s *survey.Survey, token string) error {
	if s.Book.Canonical() == nil || p.shared {
		return nil // no ledger names it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	for leaving := false; ; leaving = true {
		book, err := p.Surveyor.Ledgers.Read(ctx, s.Volume, s.PVNames())
		if err != nil && leaving {
			return lostRace(s) // as when the time is up
		}
		if err != nil {
			return p.unjudged(CallPublish, s.Volume, p.req.GetNodeId(), err)
		}
		e := book.Ledger.Get(p.req.GetNodeId())
		switch {
		case book.Missing:
			// It went with its PersistentVolume, or moved to one that this process
			// does not know yet. Nobody has said that the volume is given away, and
			// an unpublish could take it from who writes.
			return lostRace(s)
		case e == nil || e.State == fence.TakenOver:
			p.undo(ctx, s)
			return lostRace(s)
		case !e.State.Pending() && p.another(s, book):
			return lostRace(s) // judged again, one of the two is refused
		case !e.State.Pending() && e.Token == token && e.OnlyUnder != "":
			if token, err = p.hasIt(ctx, s, token); err != nil {
				return err
			}
			continue // the entry may have changed before that was written
		case !e.State.Pending() && e.Token == token:
			return nil
		case !e.State.Pending():
			return lostRace(s) // another publication's
		}
		select {
		case <-ctx.Done():
			return lostRace(s) // it stays leaving: whoever goes on unpublishes it
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// another tells whether the ledger names another node that may have the volume, and that it did not
// name when this publish was recorded. Another process has found another PersistentVolume of the
// volume to be the canonical one, and each has written to its own.
func (p *publication) another(s *survey.Survey, now *ledger.Book) bool {
	return slices.ContainsFunc(now.Ledger.Holders, func(e ledger.Entry) bool {
		if e.NodeID == p.req.GetNodeId() || e.State == fence.TakenOver {
			return false
		}
		was := s.Book.Ledger.Get(e.NodeID)
		return was == nil || was.State == fence.TakenOver
	})
}

// hasIt writes down, before external-attacher is told, that the node may have the volume from
// now on, although an earlier publish of it failed (fence.Holder.NeverAttached). Its
// VolumeAttachment will say so, too, but whoever may write its status can take that back. The
// entry's new token, which it returns, keeps an earlier call that fails only now from writing
// the opposite.
func (p *publication) hasIt(ctx context.Context, s *survey.Survey, token string) (string, error) {
	var has string
	err := p.update(ctx, EffectRecord, s, func(l *ledger.Ledger) bool {
		has = token
		e := l.Get(p.req.GetNodeId())
		if e == nil || e.Token != token || e.State.Pending() || e.OnlyUnder == "" {
			return false
		}
		has = s.NewToken()
		e.OnlyUnder, e.Token = "", has
		return true
	})
	if err != nil {
		return "", p.unwritten(CallPublish, s, err)
	}
	return has, nil
}

// undo takes back a publish that nobody was told of and that the ledger no
// longer names: another process has given the volume away meanwhile.
func (p *publication) undo(ctx context.Context, s *survey.Survey) {
	token := ""
	err := p.update(ctx, EffectLeaving, s, func(l *ledger.Ledger) bool {
		if e := l.Get(p.req.GetNodeId()); e != nil && e.State != fence.TakenOver {
			token = ""
			return false
		}
		token = s.NewToken()
		e := survey.EntryOf(s.Target, fence.Leaving, token)
		e.LeavingSeconds = secondsLeft(ctx)
		l.Put(e)
		return true
	})
	if err != nil || token == "" {
		return
	}
	err = Do(EffectUnpublish, func() error {
		_, err := p.driver.Unpublish(ctx, p.unpublishOf(p.req.GetNodeId()))
		return err
	})
	if err != nil {
		return // it stays leaving: its next unpublish goes on from there
	}
	_ = p.update(ctx, EffectCut, s, func(l *ledger.Ledger) bool {
		return stands(l, ledger.Entry{NodeID: p.req.GetNodeId(), Token: token}) && l.Cut(p.req.GetNodeId(), token)
	})
}
