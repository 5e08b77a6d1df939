package guard

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

// writeTimeout bounds a ledger write, which does not end with its caller.
const writeTimeout = 10 * time.Second

// errAgain starts a call over: it must be judged again.
var errAgain = errors.New("judge again")

func isConflict(err error) bool { return errors.Is(err, ledger.ErrConflict) }

// surveyContext leaves the caller a fifth of its deadline for the answer. In a
// storm a call waits longest for its first request: that is no sign of an API
// server that does not answer.
func (g *Guard) surveyContext(ctx context.Context) (context.Context, context.CancelFunc) {
	end := func() {}
	if deadline, ok := ctx.Deadline(); ok {
		ctx, end = context.WithTimeout(ctx, time.Until(deadline)*4/5)
	}
	_ = g.Surveyor.Limit.Turn(ctx) // if it does not come in time, the first read says so
	ctx, cancel := context.WithTimeout(ctx, survey.Timeout)
	return ctx, func() { cancel(); end() }
}

func pendingError(volume string) error {
	return reasonError(fence.OperationPending, fence.Compose("volume "+volume+": another publish or unpublish of it is under way", "nothing to do but wait for it to finish", fence.OperationPending))
}

func busyError(volume string, most int) error {
	return reasonError(fence.DriverBusy, fence.Compose(fmt.Sprintf("volume %s: as many publishes and unpublishes are under way as driver.maxConcurrentCalls allows (%d)", volume, most),
		"nothing to do but wait: the call is repeated; if the driver can do more at once, raise driver.maxConcurrentCalls", fence.DriverBusy))
}

func lostRace(s *survey.Survey) error {
	return reasonError(fence.LostRace, fence.Compose("volume "+nameOf(s)+": another csi-fencepost changed its ledger during the call", "nothing to do; the call is repeated", fence.LostRace))
}

func nameOf(s *survey.Survey) string {
	if s.PV != "" {
		return s.PV
	}
	return s.Volume
}

// refuse tells a refusal to the Reporter and to the caller, in the same words.
func (g *Guard) refuse(d Decision, s *survey.Survey, v fence.Verdict) error {
	d.Text = v.Message(&s.Snapshot)
	g.Reporter.Decided(d)
	return reasonError(v.Reason, d.Text)
}

// refuseUnpublish is the answer where a holder is proven gone, and the driver does not unpublish.
func (p *publication) refuseUnpublish(s *survey.Survey, st fence.Standing, err error) error {
	d := p.decision(s, fence.Verdict{})
	said := csi.Redact(status.Convert(err).Message(), p.req.GetSecrets())
	why := fmt.Sprintf("volume %s: %s no longer counts (%s), but the driver cannot unpublish it from there: %s: %s",
		nameOf(s), st.Holder.Describe(), st.Reason, status.Code(err), said)
	holder := *st.Holder
	d.Action, d.Reason, d.Holder = fence.Refuse, fence.UnpublishFailed, &holder
	d.Text = fence.Compose(why, "look at what the driver says; the unpublish is tried again by itself", fence.UnpublishFailed)
	p.Reporter.Decided(d)
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return unreachableError(d.Text)
	case codes.Aborted:
		return abortedError(d.Text)
	}
	return refusedError(d.Text)
}

// unjudged is the answer where nothing could be gathered, so that nothing is allowed and the driver
// is not called.
func (g *Guard) unjudged(call, volume, nodeID string, err error) error {
	d := Decision{Call: call, Volume: volume, NodeID: nodeID, Action: fence.Refuse, Reason: fence.APIUnavailable}
	if names := g.Surveyor.Index.NodeNames(nodeID); len(names) > 0 {
		d.NodeName = names[0] // whose VolumeAttachment waits
	}
	var garbled *ledger.GarbledError
	if errors.As(err, &garbled) {
		d.Reason, d.PV = fence.LedgerUnreadable, garbled.PV
		d.Text = fence.Compose("volume "+garbled.PV+": "+garbled.Why(), garbled.Unblock(), d.Reason)
	} else {
		d.Text = fence.Compose(fmt.Sprintf("volume %s: who holds it cannot be found out: %s", volume, apiError(err)), unblockAPI(err), d.Reason)
	}
	g.Reporter.Decided(d)
	return reasonError(d.Reason, d.Text)
}

// unwritten is the answer where the ledger could not be written, so that the driver is not called.
func (g *Guard) unwritten(call string, s *survey.Survey, err error) error {
	if isConflict(err) {
		return err
	}
	text := fence.Compose(fmt.Sprintf("volume %s: its ledger cannot be written: %s", nameOf(s), apiError(err)), unblockAPI(err), fence.APIUnavailable)
	nodeID := s.Subject
	if s.Target != nil {
		nodeID = s.Target.NodeID
	}
	d := decisionOf(call, s, nodeID, fence.Verdict{Action: fence.Refuse, Reason: fence.APIUnavailable})
	if h := s.Holder(nodeID); h != nil && d.NodeName == "" {
		d.NodeName = h.NodeName
	}
	d.Text = text
	g.Reporter.Decided(d)
	return unreachableError(text)
}

// looseError is why no holder is named where the name may be gone at any moment. external-attacher
// publishes nothing of what is being deleted, so that this is seen only in a race, or of a
// PersistentVolume that somebody else keeps.
type looseError struct{ pv string }

func (e *looseError) Error() string {
	return "PersistentVolume " + e.pv + " is being deleted, and external-attacher does not keep it, so that the ledger would go with it"
}

// apiError says what the API server said, without what changes from try to try.
func apiError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) {
		return "the API server does not answer in time"
	}
	return err.Error()
}

// unblockAPI says what a person can do about it: not everything that cannot be
// found out is for the API server to tell.
func unblockAPI(err error) string {
	var garbled *record.GarbledError
	var answered apierrors.APIStatus
	var network *url.Error
	var loose *looseError
	_, driver := status.FromError(err)
	switch {
	case errors.As(err, &loose):
		return "to use the volume, let the PersistentVolume go, and make another one for it"
	case apierrors.IsForbidden(err):
		return "give csi-fencepost's service account the right that is named (deploy/rbac)"
	case record.Nowhere(err):
		return "create the namespace of the records, with the rights in it (deploy/rbac); the call is repeated by itself"
	case errors.As(err, &garbled):
		return "mend the record as it says; the call is repeated by itself"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &answered), errors.As(err, &network):
		return "nothing, once the API server answers again"
	case driver:
		return "look at what the driver says; the call is repeated by itself"
	}
	return "see to what is named, unless it ends by itself; the call is repeated"
}

// observePublish and observeUnpublish judge as Enforce would and report it.
func (g *Guard) observePublish(ctx context.Context, req *spec.ControllerPublishVolumeRequest) {
	sctx, cancel := g.surveyContext(ctx)
	defer cancel()
	s, err := g.Surveyor.Publish(sctx, req.GetVolumeId(), req.GetNodeId(), nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Observe: cannot judge", "call", CallPublish, "volume", req.GetVolumeId())
		return
	}
	v := fence.JudgePublish(s.Snapshot, req.GetNodeId())
	g.observe(decisionOf(CallPublish, s, req.GetNodeId(), v), s, v)
}

func (g *Guard) observeUnpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) {
	sctx, cancel := g.surveyContext(ctx)
	defer cancel()
	s, err := g.Surveyor.Unpublish(sctx, req.GetVolumeId(), req.GetNodeId())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Observe: cannot judge", "call", CallUnpublish, "volume", req.GetVolumeId())
		return
	}
	if unguarded(s) || req.GetNodeId() == "" {
		return
	}
	v := fence.JudgeUnpublish(s.Snapshot, s.Subject)
	g.observe(decisionOf(CallUnpublish, s, s.Subject, v), s, v)
}

func (g *Guard) observe(d Decision, s *survey.Survey, v fence.Verdict) {
	d.Observed = true
	if v.Action == fence.Refuse || v.Action == fence.Wait {
		d.Text = v.Message(&s.Snapshot)
	}
	g.Reporter.Decided(d)
}

func decisionOf(call string, s *survey.Survey, nodeID string, v fence.Verdict) Decision {
	d := Decision{Call: call, Volume: s.Volume, PV: s.PV, NodeID: nodeID, Action: v.Action, Reason: v.Reason}
	switch {
	case s.Target != nil && s.Target.NodeName != "":
		d.NodeName = s.Target.NodeName
	case len(s.Targets) > 0:
		d.NodeName = s.Targets[0]
	}
	if v.Blocking != nil {
		holder := *v.Blocking.Holder
		d.Holder = &holder
	}
	if v.Subject != nil && d.NodeName == "" {
		d.NodeName = detached(v.Subject.Holder)
	}
	if d.NodeName == "" && d.Holder != nil && call == CallUnpublish {
		d.NodeName = detached(d.Holder)
	}
	return d
}

// detached is the node that an unpublish of the holder is for.
func detached(h *fence.Holder) string {
	if h.Former != "" && !h.Detaching() {
		return h.Former // only that one's VolumeAttachment is being deleted
	}
	return h.NodeName
}

func (p *publication) decision(s *survey.Survey, v fence.Verdict) Decision {
	d := decisionOf(CallPublish, s, p.req.GetNodeId(), v)
	d.Shared = p.shared
	return d
}

func (g *Guard) reportSetAside(b *ledger.Book) {
	for _, text := range b.SetAside {
		g.Reporter.SetAside(b.Canonical().Name, text)
	}
}
