package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

// look reads everything that the plan for the node rests on, the lease last.
func (w *worker) look(ctx context.Context) (*state, error) {
	// Whether to ask comes first: after an answer, a look that is slow does not ask again.
	since := time.Since(w.asked)
	s := &state{Name: w.name, OffForLeast: w.OffFor, Covered: w.Fencer.Covers(w.name), CoveredPower: w.Fencer.CoversPower(w.name), Answer: w.answer, Answers: w.answers, AskDue: w.askDue(), FenceAfter: w.FenceAfter, PowerOn: w.PowerOn, Revokes: w.UnpublishRevokesAccess}
	var err error
	if s.Node, err = w.node(ctx); err != nil {
		return nil, err
	}
	fences, err := w.Fencer.FencesOf(ctx, w.name)
	if err != nil {
		return nil, err
	}
	s.Fence = about(fences, s.Node)
	for _, f := range fences {
		s.Standing = append(s.Standing, f.ID)
	}
	if s.Lease, err = w.lease(ctx); err != nil {
		return nil, err
	}
	s.LeaseRV = versionOf(s.Lease)
	s.Life = w.Lives.Judge(w.name, s.Lease, s.Node != nil, s.ready())
	s.Age, _, _ = w.Lives.Unchanged(w.name)
	s.Overdue = w.Lives.Overdue(w.name)
	if fell, read, off := w.polls.off(w.name, s.LeaseRV); off && time.Since(read) <= readFor {
		s.ReadsOff, s.OffFor = true, read.Sub(fell)
	}
	if s.early() {
		s.Storm, _ = w.Lives.Storm()
		s.AskDue = w.earlyDue(s, since)
	}

	volumes := w.heldBy(w.name)
	s.Holds = len(w.holders(s.Node, volumes)) > 0
	s.Moved = w.moved(s.Node, volumes)
	if s.Moved.Handle == "" {
		w.movedAt = time.Time{}
	} else if w.movedAt.IsZero() {
		w.movedAt = time.Now()
	}
	s.MovedLong = s.Moved.Handle != "" && time.Since(w.movedAt) >= movedLong
	if ready := fence.ReadyCondition(s.Node); ready != nil {
		s.Synced = w.Nodes.Synced(w.name, string(s.Node.UID), s.Node.Status.NodeInfo.BootID, ready.LastTransitionTime.UTC().Format(time.RFC3339)) && w.Lives.Steady(w.name, observe.SyncTime)
	}
	s.Leaving = slices.ContainsFunc(volumes, held.leaving)
	s.Attached = w.Nodes.AttachmentsOn(w.name)
	if err := w.prove(ctx, s, volumes); err != nil {
		return nil, err
	}
	if !s.podsMatter() {
		return s, nil
	}
	if s.Pods, s.Kept, err = w.podsOf(ctx); err != nil {
		return nil, err
	}
	if s.cutDue() {
		s.Brake, s.BrakeWords, err = w.brakes(ctx, s, volumes)
	}
	return s, err
}

func (w *worker) node(ctx context.Context) (*corev1.Node, error) {
	n, err := w.Client.CoreV1().Nodes().Get(ctx, w.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read node %s: %w", w.name, err)
	}
	return n, nil
}

// lease reads the node's lease; nil: there is none.
func (w *worker) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	l, err := w.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, w.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the lease of node %s: %w", w.name, err)
	}
	return l, nil
}

// versionOf is the lease's resourceVersion; empty: there is none.
func versionOf(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	return l.ResourceVersion
}

// still fails if the node has renewed its lease, booted, or opted out or in, since the
// look: it is asked right before anything is done to the node or its pods. It returns
// the Node as it is now.
func (w *worker) still(ctx context.Context, s *state) (*corev1.Node, error) {
	n, err := w.node(ctx)
	if err != nil {
		return nil, err
	}
	lease, err := w.lease(ctx)
	if err != nil {
		return nil, err
	}
	same := (n == nil) == (s.Node == nil) && versionOf(lease) == s.LeaseRV &&
		(n == nil || n.UID == s.Node.UID && n.Status.NodeInfo.BootID == s.Node.Status.NodeInfo.BootID && OptedOut(n.Annotations) == s.optedOut())
	if !same {
		return nil, errChanged
	}
	return n, nil
}

// held is a volume that the node may hold, and whose it is.
type held struct {
	Driver
	observe.Held
}

// heldBy are the volumes of the drivers that the node may hold, by driver and handle.
func (c *Controller) heldBy(node string) (all []held) {
	for _, d := range c.Drivers {
		for _, h := range d.Index.HeldBy(node) {
			all = append(all, held{d, h})
		}
	}
	return all
}

// holders are the drivers of which the node may hold a volume.
func (w *worker) holders(n *corev1.Node, volumes []held) (all []Driver) {
	for _, d := range w.Drivers {
		holds := func(h held) bool {
			return h.IDs.Driver == d.IDs.Driver && (h.Attachment != "" || h.Entry != nil && h.Entry.State != fence.TakenOver)
		}
		if slices.ContainsFunc(volumes, holds) || n != nil && len(d.IDs.NodeHandles(n)) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// leaving tells whether the volume is being taken from the node. A volume that nobody has taken is
// not leaving, and neither is one that a takeover took.
func (h held) leaving() bool {
	return h.Detaching || h.Entry != nil && (h.Entry.State == fence.Leaving || h.Entry.State == fence.Released)
}

// taken tells whether a takeover took the volume, so that no pod waits for the node. What a dead
// kubelet's volumesInUse lists is frozen from before, unless the node has booted since
// (fence.Holder.ListsAnew).
func (h held) taken(n *corev1.Node) bool {
	if n == nil || h.Attachment != "" || h.Entry == nil || h.Entry.State != fence.TakenOver {
		return false
	}
	inUse, attached := h.IDs.NodeLists(n, h.Handle)
	return !attached && !(inUse && h.Entry.Machine().Ended(fence.MachineOf(n)))
}

// moved is a volume that the node's status lists in use, and that was, or is being, taken
// from it; zero: none.
func (w *worker) moved(n *corev1.Node, volumes []held) observe.MovedVolume {
	if n == nil {
		return observe.MovedVolume{}
	}
	for _, name := range n.Status.VolumesInUse {
		for _, d := range w.Drivers {
			handle, ours := d.IDs.HandleOf(name)
			kept := func(h held) bool { return h.IDs.Driver == d.IDs.Driver && d.IDs.Same(h.Handle, handle) && h.Kept() }
			if ours && !slices.ContainsFunc(volumes, kept) {
				return observe.MovedVolume{Driver: d.IDs.Driver, Handle: handle}
			}
		}
	}
	return observe.MovedVolume{}
}

// prove has the decision judge the evidence, as it judges the unpublish of a
// volume that the node uses: pods move only if their volumes will, of whichever driver, and of
// whichever machine had the name of a Node that is gone.
func (w *worker) prove(ctx context.Context, s *state, volumes []held) error {
	proof := fence.Kind("")
	for i, h := range w.judged(s, volumes) {
		if h.NodeUID == "" {
			return nil
		}
		h.Evidence = agentEvidence(s, &h)
		claims, err := w.claimsOf(ctx, s, h)
		if err != nil {
			return err
		}
		h.Evidence = append(h.Evidence, claims...)
		e := h.Proof()
		if e == nil {
			return nil
		}
		if i == 0 {
			proof = e.Kind
		}
	}
	s.Proof = proof
	return nil
}

// judged is the node's machine as the holder of a volume of each driver that has one there, or of
// any one where there is none. Where the Node is gone it is each machine that the ledgers name, if
// they name any: a VolumeAttachment alone does not tell which one it was.
func (w *worker) judged(s *state, volumes []held) (all []fence.Holder) {
	if s.Node == nil {
		if all = w.named(s, volumes); len(all) > 0 {
			return all
		}
	}
	holders := w.holders(s.Node, volumes)
	if len(holders) == 0 {
		holders = w.Drivers[:1]
	}
	for _, d := range holders {
		m, live := fence.Machine{}, (*fence.Node)(nil)
		if s.Node != nil {
			// Without the system a word about an earlier machine of this Node would be taken for one about this.
			m, live = own(s.Node, w.shared(s.Node))
			live.Ready = s.ready()
		}
		m.NodeName, m.NodeID = w.name, cmp.Or(d.Index.NodeID(w.name), ledgerID(d, volumes), w.name)
		all = append(all, fence.User(m, live, s.Life, s.LeaseRV))
	}
	return all
}

// ledgerID is the node ID by which that driver's volumes were published to the node; empty: none.
func ledgerID(d Driver, volumes []held) string {
	for _, v := range volumes {
		if v.IDs.Driver == d.IDs.Driver && v.Entry != nil && v.Entry.State != fence.TakenOver {
			return v.Entry.NodeID
		}
	}
	return ""
}

// named are the machines that the ledgers name, each once for each driver. A machine of which a ledger
// has no Node UID cannot be told from others.
func (w *worker) named(s *state, volumes []held) (all []fence.Holder) {
	seen := map[string][]fence.Machine{} // by driver
	for _, v := range volumes {
		if v.Entry == nil || v.Entry.State == fence.TakenOver || v.Entry.NodeUID == "" {
			continue
		}
		m, driver := v.Entry.Machine(), v.IDs.Driver
		m.NodeName, m.NodeID = w.name, cmp.Or(v.Index.NodeID(w.name), m.NodeID, w.name)
		if slices.Contains(seen[driver], m) {
			continue
		}
		seen[driver] = append(seen[driver], m)
		all = append(all, fence.User(m, nil, s.Life, s.LeaseRV))
	}
	return all
}

// agentEvidence is what the record and the agents' last answer amount to. Where
// we have agents ourselves that read what a fence of the record is about, the record alone
// is but a hint. Access to the storage that is open says nothing of the power.
func agentEvidence(s *state, h *fence.Holder) (found []fence.Evidence) {
	answer := s.answerOf(h)
	heard := s.Covered && answer != nil && !s.AskDue
	if f := s.Fence; f != nil && (!s.reads(f.Kind) || heard && answer.State == agent.Off) {
		void := f.Void
		switch {
		case f.Lifting:
			void = fence.VoidLifting
		case !f.Vouched:
			void = fence.VoidUnvouched
		}
		own := f.OwnWord || f.Kind == fence.StorageFence && heard && answer.OwnWord
		found = append(found, fence.Evidence{Kind: f.Kind, OwnWord: own, Source: f.Source, NodeName: h.NodeName, NodeID: h.NodeID,
			NodeUID: f.NodeUID, BootID: f.BootID, SystemUUID: f.SystemUUID, LeaseRV: f.LeaseRV, Missed: f.Missed, Void: void})
	}
	if a := answer; heard && s.Node == nil && a.State == agent.Off && a.Kind == fence.PowerReading && s.Fence != nil && s.Fence.ID != a.Fence {
		// It was written down too, and that of another machine of the name took its place: the
		// record has one fence of the power at a time.
		found = append(found, fence.Evidence{Kind: a.Kind, Source: strings.Join(a.Agents, ", "), NodeName: h.NodeName, NodeID: h.NodeID,
			NodeUID: a.Machine.NodeUID, BootID: a.Machine.BootID, SystemUUID: a.Machine.SystemUUID, LeaseRV: a.Machine.LeaseRV})
	}
	if heard && answer.State == agent.On && answer.Kind != fence.StorageFence {
		found = append(found, fence.Evidence{Kind: fence.PowerReading, Source: answer.Why, On: true, NodeName: h.NodeName, NodeID: h.NodeID,
			NodeUID: h.NodeUID, BootID: h.BootID, SystemUUID: h.SystemUUID, LeaseRV: h.LeaseRV})
	}
	return found
}

// reads tells whether agents of our own read what a fence of that kind is about.
func (s *state) reads(kind fence.Kind) bool {
	if kind == fence.PowerReading {
		return s.CoveredPower
	}
	return s.Covered
}

// answerOf is the agents' last answer about that holder's machine; nil: they were not asked.
func (s *state) answerOf(h *fence.Holder) *fencer.Answer {
	if s.Node != nil || len(s.Answers) == 0 {
		return s.Answer
	}
	t := targetOf(h, s.LeaseRV)
	for i := range s.Answers {
		if sameMachine(&s.Answers[i].about, &t) {
			return &s.Answers[i].Answer
		}
	}
	return nil
}

// claimsOf asks the sources of the operator's word, each with what those before it said.
func (w *worker) claimsOf(ctx context.Context, s *state, h fence.Holder) ([]fence.Evidence, error) {
	if len(w.Sources) == 0 {
		return nil, nil
	}
	rec, err := w.Records.Get(ctx, w.name)
	var garbled *noderecord.GarbledError
	if errors.As(err, &garbled) {
		return nil, nil // its claims do not count; the guard says so
	}
	if err != nil {
		return nil, err
	}
	q := evidence.Question{Holder: h, Node: s.Node, LeaseRV: s.LeaseRV, Lease: s.Lease, Record: rec}
	var found []fence.Evidence
	for _, from := range w.Sources {
		q.Holder.Evidence = slices.Concat(h.Evidence, found)
		e, err := from.Evidence(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("%s of node %s: %w", from.Name(), w.name, err)
		}
		found = append(found, e...)
	}
	return found, nil
}

// earlyDue tells whether a node whose power was seen to go is to be asked about again: every half
// second, until nothing is to be heard before its lease is silent. A node that was only found to be
// proven off is asked about like a silent one, and where there is no answer, more and more rarely,
// as polls are.
func (w *worker) earlyDue(s *state, since time.Duration) bool {
	switch {
	case w.askNow.Load():
		return true
	case s.ReadsOff:
		return s.AskDue || since >= earlyEvery && !(s.provenEarly() && s.OffFor >= s.OffForLeast)
	case w.silent > 0:
		return since >= pauseOf(w.AskEvery, w.silent-1)
	}
	return s.AskDue
}

func (w *worker) askDue() bool {
	return w.askNow.Load() || w.answer == nil || time.Since(w.asked) >= w.AskEvery
}
