package guard

import (
	"context"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// publishShared publishes a volume that many nodes may have at once. It is judged only
// where a ledger names a node to which the volume was given as its single writer: by
// another PersistentVolume of its handle, or before its access modes were changed. To
// that node it was promised that no other has it. A publish that is for a reader beside
// one writer (MULTI_NODE_SINGLE_WRITER, CSI spec) breaks no promise.
//
// The ledger is read live, which is one request for each PersistentVolume of the handle.
// Where it cannot be read the driver is not called: what it says is not known.
func (g *Guard) publishShared(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver proxy.Driver) (*spec.ControllerPublishVolumeResponse, error) {
	g.Seal.shared(ctx, req.GetVolumeId())
	if g.Observe || csi.BesideAWriter(req.GetVolumeCapability()) {
		return driver.Publish(ctx, req)
	}
	if !g.lockShared(req.GetVolumeId()) {
		return nil, g.turnAway(CallPublish, req.GetVolumeId(), req.GetNodeId())
	}
	resp, promised, err := g.forwardShared(ctx, req, driver)
	g.unlockShared(req.GetVolumeId())
	if promised {
		return g.publish(ctx, &publication{Guard: g, driver: driver, req: req, shared: true})
	}
	return resp, err
}

// forwardShared publishes unless a ledger has a promise, and tells whether one has.
func (g *Guard) forwardShared(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver proxy.Driver) (resp *spec.ControllerPublishVolumeResponse, promised bool, err error) {
	pvs := g.Surveyor.Index.Volumes(req.GetVolumeId())
	if len(pvs) == 0 {
		resp, err = driver.Publish(ctx, req)
		return resp, false, err
	}
	book, err := g.readShared(ctx, req, pvs)
	if err != nil || promises(book, req.GetNodeId()) {
		return nil, err == nil, err
	}
	g.reportSetAside(book)
	if resp, err = driver.Publish(ctx, req); err == nil {
		d := Decision{Call: CallPublish, Volume: req.GetVolumeId(), NodeID: req.GetNodeId(), Action: fence.Allow, Reason: fence.NoOtherHolder, Shared: true}
		if pv := book.Canonical(); pv != nil { // it may be gone since the watch has shown it
			d.PV = pv.Name
		}
		g.Reporter.Decided(d)
	}
	return resp, false, err
}

// readShared reads the ledgers of the volume, as the survey of a call does.
func (g *Guard) readShared(ctx context.Context, req *spec.ControllerPublishVolumeRequest, pvs []string) (*ledger.Book, error) {
	ctx, cancel := g.surveyContext(ctx)
	defer cancel()
	book, err := g.Surveyor.Ledgers.Read(ctx, req.GetVolumeId(), pvs)
	if err != nil {
		return nil, g.unjudged(CallPublish, req.GetVolumeId(), req.GetNodeId(), err)
	}
	return book, nil
}

// promises tells whether a ledger names another node that may have the volume as its single writer,
// or the ledger of a PersistentVolume that was created again does; or whether there is an entry of
// the node ID that asks. That may be of another machine that has the ID, or of one that the volume
// is being taken from, or was, so that its next unpublish would be answered without a call.
func promises(b *ledger.Book, nodeID string) bool {
	return len(b.Before) > 0 || slices.ContainsFunc(b.Ledger.Holders, func(e ledger.Entry) bool {
		return e.NodeID == nodeID || e.State != fence.TakenOver || e.Unproven
	})
}

// lockShared admits a publish for many nodes, together with others of the kind.
func (g *Guard) lockShared(volume string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[volume] == CallPublish {
		return false
	}
	g.shared[volume]++
	return true
}

func (g *Guard) unlockShared(volume string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared[volume]--; g.shared[volume] == 0 {
		delete(g.shared, volume)
	}
}

// recordShared writes the ledger in which those that were unpublished are marked already.
// What many nodes may have at once has no entry of its own.
func (p *publication) recordShared(ctx context.Context, s *survey.Survey, l *ledger.Ledger) error {
	t := s.Target
	if e, h := l.Get(t.NodeID), s.Holder(t.NodeID); e != nil && h != nil && (e.State == fence.TakenOver || !h.Same(t)) {
		displaced(l, e, t)
		l.Cut(e.NodeID, e.Token) // it was judged (JudgePublish, usurped): it holds nothing any more
	}
	return p.write(ctx, EffectRecord, s, l)
}
