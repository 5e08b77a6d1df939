package survey

import (
	"context"
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// learn reads what is to be known of the holders that matter: the live Node,
// the evidence, and last the lease.
func (g *gathering) learn(ctx context.Context, matters func(*fence.Holder) bool) error {
	for _, h := range g.sorted() {
		if !matters(h) {
			continue
		}
		if err := g.facts(ctx, h); err != nil {
			return err
		}
	}
	return g.orders(ctx, matters, g.wants(ctx, matters))
}

// orders learns in which order was written what leaves holders in doubt, whether their kubelets
// have restarted, and what Nodes were once they were being detached from. That takes requests, so
// what is proven of others is held against their leases once more; as it is if requests were made before.
func (g *gathering) orders(ctx context.Context, matters func(*fence.Holder) bool, took bool) error {
	for _, h := range g.sorted() {
		if !matters(h) {
			continue
		}
		read, err := g.order(ctx, h)
		if err != nil {
			return err
		}
		asked, err := g.kubelet(ctx, h)
		if err != nil {
			return err
		}
		past, err := g.atDetach(ctx, h)
		if err != nil {
			return err
		}
		took = took || asked || read || past
	}
	for _, h := range g.sorted() {
		if !took || !matters(h) || len(h.Evidence) == 0 {
			continue
		}
		if err := g.pulse(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// target learns of the node that asks for the volume. Its machine is what the
// ledger will name; whether it is fenced is only asked when it shows no life.
// itself tells whether a holder is that very node.
func (g *gathering) target(ctx context.Context, id, name string, itself func(*fence.Holder) bool) error {
	t, h := &fence.Holder{NodeID: id, NodeName: name, Attachment: g.attachmentOn(name, id)}, g.holders[id]
	if h != nil && h.NodeName == name {
		known := *h
		t = &known
	}
	// The live machine, also where the ledger names one that it replaced.
	t.State = fence.NotInLedger
	t.Take(fence.Machine{})
	if err := g.facts(ctx, t); err != nil {
		return err
	}
	if t.Node != nil && t.NodeUID == "" {
		// Its CSINode is newer than the index: the ID is the live machine's.
		t.Take(t.Node.Machine(name))
	}
	t.ReadySince, t.Kubelet = "", nil
	if t.Node != nil && t.Node.Ready {
		t.ReadySince = t.Node.ReadySince
	}
	if t.Node != nil && g.Kubelets != nil {
		t.Kubelet = g.Kubelets.Seen(name, t.Node.UID, t.Node.BootID)
	}
	g.survey.Target = t
	if h == nil || !itself(h) {
		return nil
	}
	if h.Machine().Compare(t.Machine()) == fence.Other {
		return g.facts(ctx, h) // another machine, of which the target says nothing
	}
	h.Node, h.Liveness, h.LeaseRV = t.Node, t.Liveness, t.LeaseRV
	if h.State == fence.NotInLedger {
		h.Take(t.Machine()) // as it may be adopted
	}
	return nil
}

// facts reads everything about one holder.
func (g *gathering) facts(ctx context.Context, h *fence.Holder) error {
	node, err := g.identify(ctx, h)
	if err != nil {
		return err
	}
	h.SystemElsewhere = h.SystemUUID != "" && g.Index.SystemShared(h.NodeName, h.SystemUUID)
	if h.State == fence.TakenOver && !h.Unproven && h.Node != nil && !h.Observed() && g.survey.Targets != nil {
		return nil // a publish asks no more of one that was taken from
	}
	seen, silent := g.Lives.Silent(h.NodeName)
	if silent = silent && node != nil && !evidence.Claimed(node); silent {
		// What the watch has seen is what evidence has to be about. Whether it is
		// still so is read below.
		h.LeaseRV, h.Liveness = seen, fence.Stale
	} else if err := g.pulse(ctx, h); err != nil {
		return err
	}
	if h.Liveness == fence.Alive && h.OwnNode() && !g.asksAlive(h) {
		// A living node vetoes claims, but it may be cut off from its storage, or be off since
		// it renewed its lease.
		if cut, err := g.fenced(ctx, h); err != nil || !cut {
			return err
		}
	}
	if err := g.evidence(ctx, h, node); err != nil || len(h.Evidence) == 0 && !silent {
		return err
	}
	// Read after the observation: a renewal in between is a sign of life.
	return g.pulse(ctx, h)
}

// heardSinceMade tells whether a kubelet has registered that Node, or has written its status since it
// was created. A Node that a person makes from a file says a boot of before, and whose fields it is is
// in the file, with times of before as well; where kubelet and controllers are one program (k3s) these
// become the controller's, and the heartbeat stays.
func heardSinceMade(node *corev1.Node) bool {
	if evidence.RegisteredByKubelet(node) {
		return true // whose status may not change for its next five minutes
	}
	made, ready := node.CreationTimestamp.Add(fence.StampResolution), fence.ReadyCondition(node)
	return ready != nil && ready.LastHeartbeatTime.After(made) && evidence.HeardAt(node).After(made)
}

// pulse reads the lease of the holder's node, and judges by it whether that lives.
func (g *gathering) pulse(ctx context.Context, h *fence.Holder) error {
	lease, err := g.lease(ctx, h.NodeName)
	if err != nil {
		return err
	}
	h.LeaseRV, g.pulses[h.NodeName] = "", lease
	if lease != nil {
		h.LeaseRV = lease.ResourceVersion
	}
	h.Liveness = g.Lives.Judge(h.NodeName, lease, h.Node != nil, h.Node != nil && h.Node.Ready)
	return nil
}

// asksAlive tells whether evidence matters of a living node, too: its kubelet does not use the
// volume but is not believed (an operator's release), or it has a taint that must be bound on first
// sight.
func (g *gathering) asksAlive(h *fence.Holder) bool {
	return h.Contest != nil || !h.Node.InUse && !h.Node.ListedAttached || h.Node.OutOfService
}

// fenced tells whether the node's record says that it is cut off from the driver's storage, or that
// it was read as off in this boot and since its last renewal, with something missing. A record that
// cannot be read says nothing here (see evidence).
func (g *gathering) fenced(ctx context.Context, h *fence.Holder) (bool, error) {
	if len(g.Sources) == 0 {
		return false, nil
	}
	rec, err := g.record(ctx, h.NodeName)
	var garbled *record.GarbledError
	if errors.As(err, &garbled) {
		return g.CutsStorage, nil
	}
	now := record.FencedMachine{NodeUID: h.Node.UID, BootID: h.Node.BootID, SystemUUID: h.Node.SystemUUID, LeaseRV: h.LeaseRV}
	return rec.StorageFenced(g.IDs.Driver) || rec.Early(now) != nil, err
}

// identify reads the live Node of a holder, and makes its machine the holder's
// where the ledger does not name one and the node ID is the machine's.
func (g *gathering) identify(ctx context.Context, h *fence.Holder) (*corev1.Node, error) {
	if h.NodeName == "" {
		return nil, nil
	}
	node, err := g.node(ctx, h.NodeName)
	if err != nil || node == nil {
		return nil, err
	}
	h.Node = g.live(node)
	h.Node.InUse, h.Node.ListedAttached = g.lists(node)
	h.Node.Synced = g.Index.Synced(h.NodeName, h.Node.UID, h.Node.BootID, h.Node.ReadySince) && g.Lives.Steady(h.NodeName, observe.SyncTime)
	if h.Detaching() {
		if g.survey.OnlyAttachment(h) && (h.Node.UID == h.NodeUID || heardSinceMade(node)) {
			heard := h.Node.HeardAt.Add(observe.BootTime - fence.StampResolution).After(h.Attachment.DeletedAt)
			_, silent := g.Lives.Silent(h.NodeName)
			h.Node.BootBefore, h.Node.BootedSince = g.Index.BootedSince(h.Attachment.Name, h.Attachment.UID, node, heard, silent)
		}
		// Again, after the Node was read: it may say what the kubelet has only just turned to.
		h.Attachment.Turned = h.Attachment.Turned || g.Index.TurnedSince(h.NodeName, h.Attachment.Name)
	}
	now, err := g.tell(ctx, h.Machine(), h.Node.Machine(h.NodeName))
	if err != nil {
		return nil, err
	}
	h.Node.NodeID = now.NodeID
	g.seen(h)
	if h.State == fence.TakenOver && !h.Unproven && h.ReleasedUnder == "" && h.Node.InUse && !h.Node.ListedAttached &&
		g.ownsID(h) && h.Machine().Ended(now) {
		*h = fence.Holder{NodeID: h.NodeID, NodeName: h.NodeName, Sources: h.Sources, Attachment: h.Attachment, Node: h.Node, ListsAnew: true}
		h.Take(now)
	}
	if h.State != fence.NotInLedger {
		return node, nil
	}
	if h.NodeUID == "" && g.ownsID(h) {
		h.NodeUID = h.Node.UID
	}
	if h.BootID == "" && h.NodeUID == h.Node.UID {
		h.Take(now)
	}
	return node, nil
}

// seen adds what the live Node lists to the holder's sources, where the index has
// not seen it yet: a Node that has registered anew. It speaks of the holder if it
// carries the holder's node ID, or none yet; or if nothing tells whether it is the
// holder's own: then it speaks of both machines that it may be.
func (g *gathering) seen(h *fence.Holder) {
	perhaps := h.Perhaps()
	if id := g.Index.NodeID(h.NodeName); id != "" && id != h.NodeID && !perhaps {
		return
	}
	// While it is being detached the controller lists it for that, whoever has the Node.
	addListed(h, h.Node.InUse, h.Node.ListedAttached && !(perhaps && h.Detaching()))
}

// tell is the live machine now with what tells whether it is machine was: where nothing but
// the driver's node ID does, that is read live.
func (g *gathering) tell(ctx context.Context, was, now fence.Machine) (fence.Machine, error) {
	if !was.RestsOnNodeID(now) {
		return now, nil
	}
	csiNode, err := g.Client.StorageV1().CSINodes().Get(ctx, now.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		now.NodeID = ""
		return now, nil
	}
	if err == nil {
		now.NodeID = g.IDs.NodeID(csiNode)
	}
	return now, err
}

// live is what a Node that was read live says, and what the index says of its machine.
func (g *gathering) live(node *corev1.Node) *fence.Node {
	n := nodeFacts(node)
	n.NodeID, n.SystemShared = g.Index.NodeID(node.Name), g.Index.SystemShared(node.Name, n.SystemUUID)
	return n
}

// ownsID tells whether the node ID is the one that the live machine of that name carries, or
// neither has one.
func (g *gathering) ownsID(h *fence.Holder) bool { return g.Index.NodeID(h.NodeName) == h.NodeID }

func (g *gathering) evidence(ctx context.Context, h *fence.Holder, node *corev1.Node) error {
	if h.NodeName == "" || len(g.Sources) == 0 {
		return nil
	}
	rec, err := g.record(ctx, h.NodeName)
	var garbled *record.GarbledError
	if errors.As(err, &garbled) {
		if g.CutsStorage {
			return garbled // it may be cut off from its storage
		}
		// Its claims do not count; the kubelet's word and other sources do.
		h.Evidence = []fence.Evidence{{Kind: fence.OperatorConfirmation, NodeID: h.NodeID, NodeUID: h.NodeUID, Void: garbled.Error()}}
		return nil
	}
	if err != nil {
		return err
	}
	q := evidence.Question{Holder: *h, Volume: g.volume, Driver: g.IDs.Driver, Node: node, LeaseRV: h.LeaseRV, Record: rec}
	if lease := g.pulses[h.NodeName]; lease != nil && lease.ResourceVersion == h.LeaseRV {
		q.Lease = lease
	}
	h.Evidence = nil
	for _, s := range g.Sources {
		q.Holder.Evidence = slices.Clip(h.Evidence)
		found, err := s.Evidence(ctx, q)
		if err != nil {
			return err
		}
		h.Evidence = append(h.Evidence, found...)
	}
	return nil
}

// lease reads a node's lease; nil: there is none.
func (g *gathering) lease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	if node == "" {
		return nil, nil
	}
	lease, err := g.leases.get(ctx, g.Limit, node, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return g.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

// record reads a node's record.
func (g *gathering) record(ctx context.Context, node string) (*record.Record, error) {
	return g.records.get(ctx, g.Limit, node, func(ctx context.Context) (*record.Record, error) { return g.Records.Get(ctx, node) })
}

// nodeFacts takes from a Node what a decision asks.
func nodeFacts(node *corev1.Node) *fence.Node {
	m := fence.MachineOf(node)
	n := m.Live()
	n.ReadyUnknown = true
	for _, t := range node.Spec.Taints {
		n.OutOfService = n.OutOfService || t.Key == corev1.TaintNodeOutOfService
	}
	if c := fence.ReadyCondition(node); c != nil {
		n.Ready, n.ReadyUnknown = c.Status == corev1.ConditionTrue, c.Status == corev1.ConditionUnknown
		n.ReadySince = c.LastTransitionTime.UTC().Format(time.RFC3339)
		n.HeardAt = evidence.HeardAt(node)
		if !n.HeardAt.IsZero() {
			n.ReadyAt = c.LastTransitionTime.Add(n.HeardAt.Sub(c.LastHeartbeatTime.Time))
		}
	}
	return n
}
