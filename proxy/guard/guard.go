// Package guard holds the rules R1 and R2 in the two calls that package proxy
// intercepts:
//
//	call ─▶ survey (live) ─▶ judge (pure) ─┬─ refuse, in words ─▶ Reporter (package waiting)
//	                                       └─ ledger ─▶ driver ─▶ ledger ─▶ answer
//
// It guarantees that the driver sees no publish of a single-writer volume while
// another node may write to it, and no unpublish for a node on which it may be
// in use; that no permission rests on what this process remembers; and that a
// process killed at any Effect leaves what the caller's retry goes on from.
//
// It does not guarantee more than the evidence does: see package fence.
package guard

import (
	"context"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// Reporter is told what became of the intercepted calls: metrics, Events and
// the wake-up of what waits hang on it. It must not block.
type Reporter interface {
	// Decided is called once for each judged call. text is the refusal's; empty
	// for a call that was let through.
	Decided(d Decision)
	// TurnedAway is called for a call that is answered OperationPending, unjudged: another of
	// its volume is under way.
	TurnedAway(call, volume, nodeID string)
	// TookOver is called after a publish for which holders were unpublished.
	TookOver(d Decision, from []fence.Holder, took time.Duration)
	// SetAside is called for a ledger that is not this volume's.
	SetAside(pv, text string)
	// LedgerWriteFailed is called for each write that failed.
	LedgerWriteFailed()
}

// Decision is one judged call.
type Decision struct {
	Call     string // CallPublish or CallUnpublish
	Volume   string
	PV       string
	NodeID   string
	NodeName string
	Action   fence.Action
	Reason   fence.Reason
	Holder   *fence.Holder // the one that a refusal is about
	Text     string
	Observed bool // mode Observe: the call was forwarded all the same
	Shared   bool // a publish for many nodes
}

// The two calls, as decisions, metrics and log lines name them.
const (
	CallPublish   = "ControllerPublishVolume"
	CallUnpublish = "ControllerUnpublishVolume"
)

// Options are what a guard stands on; all but Seal are required.
type Options struct {
	Surveyor *survey.Surveyor
	Reporter Reporter
	// Seal of the ledgers; nil: none.
	Seal *Seal
	// Observe has the guard decide and report, forward everything, and write nothing.
	Observe bool
}

// New makes a Guard.
func New(o Options) *Guard {
	return &Guard{Options: o, busy: map[string]string{}, shared: map[string]int{}, leaving: map[string]sight{}}
}

// Guard is the proxy.Guard that holds the rules for single-writer volumes. It
// keeps nothing from call to call but which volumes have a call under way.
type Guard struct {
	Options

	mu   sync.Mutex
	busy map[string]string // the call that is under way, of volumes that are locked
	// shared is how many publishes for many nodes are under way, by volume.
	shared map[string]int
	// leaving is since when this process has seen an entry's unpublish pending, by token, while
	// Kubernetes wants the volume back on that very node.
	leaving map[string]sight
}

// ControllerPublishVolume publishes a volume if no other node may write to it,
// after unpublishing, itself, those that are proven not to.
func (g *Guard) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver proxy.Driver) (*spec.ControllerPublishVolumeResponse, error) {
	if err := ValidPublish(req); err != nil {
		return nil, err
	}
	if !g.Observe {
		ctx = g.Seal.enter(ctx)
	}
	if !csi.SingleWriter(req.GetVolumeCapability(), req.GetReadonly()) {
		return g.publishShared(ctx, req, driver)
	}
	if g.Observe {
		g.observePublish(ctx, req)
		return driver.Publish(ctx, req)
	}
	return g.publish(ctx, &publication{Guard: g, driver: driver, req: req})
}

// publish judges one publish and carries it out, while no other call of the volume does.
func (g *Guard) publish(ctx context.Context, p *publication) (*spec.ControllerPublishVolumeResponse, error) {
	if !g.lock(p.req.GetVolumeId(), CallPublish) {
		return nil, g.turnAway(CallPublish, p.req.GetVolumeId(), p.req.GetNodeId())
	}
	defer g.unlock(p.req.GetVolumeId())
	// A publish is what somebody waits for; the unpublishes of a dead node come
	// before it by themselves.
	ctx, cancel := limited(throttle.WithTurn(ctx, time.Now().Add(-TurnAhead)))
	defer cancel()
	p.started = time.Now()
	resp, err := p.run(ctx)
	_ = Do(EffectAnswer, func() error { return nil })
	return resp, err
}

// ControllerUnpublishVolume unpublishes a volume from a node that is proven not
// to use it. The request carries no capability: whether the volume has a single
// writer is told by its PVs and its ledger, and unknown is guarded.
func (g *Guard) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, driver proxy.Driver) (*spec.ControllerUnpublishVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, missing(CallUnpublish, "volume_id")
	}
	if g.Observe {
		g.observeUnpublish(ctx, req)
		return driver.Unpublish(ctx, req)
	}
	ctx = g.Seal.enter(ctx)
	if !g.lock(req.GetVolumeId(), CallUnpublish) {
		return nil, g.turnAway(CallUnpublish, req.GetVolumeId(), req.GetNodeId())
	}
	defer g.unlock(req.GetVolumeId())
	ctx, cancel := limited(throttle.WithTurn(ctx, time.Now()))
	defer cancel()
	u := &unpublication{Guard: g, driver: driver, req: req}
	return u.run(ctx)
}

// TurnAhead is how much later a call of less urgency may have come to be treated
// alike: publish before unpublish, calls before looking whether one is worth
// repeating. A turn grows older, so that nothing waits for ever.
const TurnAhead = 5 * time.Second

// ValidPublish is the answer to a publish that cannot be judged, with the code that
// the CSI spec gives it; nil: it can be.
func ValidPublish(req *spec.ControllerPublishVolumeRequest) error {
	switch {
	case req.GetVolumeId() == "":
		return missing(CallPublish, "volume_id")
	case req.GetNodeId() == "":
		return missing(CallPublish, "node_id")
	case req.GetVolumeCapability() == nil:
		return missing(CallPublish, "volume_capability")
	}
	return nil
}

func missing(call, field string) error {
	return invalidError("csi-fencepost: " + call + " without " + field + ": the CSI spec requires it")
}

// lock admits one operation per volume at a time, and no publish that is judged while
// one for many nodes is under way: its VolumeAttachment may be too new to be seen.
func (g *Guard) lock(volume, call string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[volume] != "" || call == CallPublish && g.shared[volume] > 0 {
		return false
	}
	g.busy[volume] = call
	return true
}

// turnAway is the answer to a call that lock does not admit.
func (g *Guard) turnAway(call, volume, nodeID string) error {
	g.Reporter.TurnedAway(call, volume, nodeID)
	return pendingError(volume)
}

func (g *Guard) unlock(volume string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, volume)
}

// UnderWay are the volumes with a call under way, by handle.
func (g *Guard) UnderWay() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	volumes := make([]string, 0, len(g.busy))
	for v := range g.busy {
		volumes = append(volumes, v)
	}
	slices.Sort(volumes)
	return volumes
}

// write is a compare-and-swap of the ledger against the survey that was judged.
// It survives the caller's cancellation: what was decided is written down.
func (g *Guard) write(ctx context.Context, e Effect, s *survey.Survey, l *ledger.Ledger) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := Do(e, func() error {
		book, err := g.Surveyor.Ledgers.Write(ctx, s.Book, l)
		if err == nil {
			s.Book = book
			if pv := book.Canonical(); pv != nil {
				g.Seal.noteVersion(pv.ResourceVersion)
			}
		}
		return err
	})
	if err != nil && !isConflict(err) {
		g.Reporter.LedgerWriteFailed()
	}
	return err
}

// freshFor is how old a judgement may be when the driver is called by it: a survey
// (survey.Timeout) and a write (writeTimeout) take less.
const freshFor = 30 * time.Second

// stale tells whether this process, or its machine, stood still since the survey began, as far as
// one of the two clocks tells. Whatever was judged is judged again.
func stale(s *survey.Survey) bool {
	return old(time.Since(s.Began), time.Now().Round(0).Sub(s.Began.Round(0)))
}

func old(monotonic, wall time.Duration) bool { return max(monotonic, wall) > freshFor }

// update changes the ledger as it is now, for changes that are right whatever
// else was written since. It starts from what this call itself wrote last, and
// reads only if somebody has written since: the write is held against it.
func (g *Guard) update(ctx context.Context, e Effect, s *survey.Survey, change func(*ledger.Ledger) bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := Do(e, func() error {
		if l := s.Book.Ledger.Clone(); change(l) {
			if _, err := g.Surveyor.Ledgers.Write(ctx, s.Book, l); !isConflict(err) {
				return err
			}
		}
		_, err := g.Surveyor.Ledgers.Update(ctx, s.Volume, s.PVNames(), change)
		return err
	})
	if err != nil {
		g.Reporter.LedgerWriteFailed()
	}
	return err
}
