package evidence

import (
	"cmp"
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	// OurTaintValue of an out-of-service taint says that a sidecar of this
	// project put it on. It is never evidence, for no sidecar.
	OurTaintValue = "csi-fencepost"

	// shutdownTaint is put on by the cloud provider's controller when the
	// instance is stopped, and taken off only when the node is Ready again
	// (k8s.io/cloud-provider/api TaintNodeShutdown).
	shutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"

	// maxClean bounds what Sight remembers; well above any cluster's Nodes.
	maxClean = 20_000
)

// IsOurTaint tells whether a taint is the out-of-service taint of a sidecar of
// this project.
func IsOurTaint(t v1.Taint) bool {
	return t.Key == v1.TaintNodeOutOfService && t.Value == OurTaintValue
}

// Taint is a Source: somebody's word, given by a taint, that the node is off.
type Taint struct {
	kind    fence.Kind
	key     string
	records Records

	mu sync.Mutex
	// clean are the Nodes, by UID, that Sight saw without the taint, and for which the record held
	// no binding then. It only saves reads.
	clean map[types.UID]bool
}

// OutOfServiceTaint is the word of whoever put node.kubernetes.io/out-of-service
// on, other than csi-fencepost itself.
func OutOfServiceTaint(records Records) *Taint {
	return newTaint(fence.OutOfServiceTaint, v1.TaintNodeOutOfService, records)
}

// CloudShutdownTaint is the cloud provider's word that the instance is stopped.
func CloudShutdownTaint(records Records) *Taint {
	return newTaint(fence.CloudShutdownTaint, shutdownTaint, records)
}

func newTaint(kind fence.Kind, key string, records Records) *Taint {
	return &Taint{kind: kind, key: key, records: records, clean: map[types.UID]bool{}}
}

// Name implements Source.
func (t *Taint) Name() string { return string(t.kind) }

// Evidence implements Source. It binds a taint that is seen for the first time.
func (t *Taint) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	b, bound := t.binding(q.Record)
	if q.Node == nil {
		return t.left(&q, b, bound), nil
	}
	node := q.machine()
	if node == nil {
		return nil, nil // a taint on another machine
	}
	if _, on := t.find(node); !on && !bound {
		return t.ours(&q, node), nil
	}
	b, bound, err := t.settle(ctx, node, t.seen(node, q.LeaseRV, q.Lease), b, bound)
	if err != nil {
		return nil, err
	}
	if _, on := t.find(node); !on || !bound {
		return t.ours(&q, node), nil
	}
	return evidence(t.kind, &q, b, b.Void), nil
}

// ours reports a taint of our own, so that a person sees why it does not count.
func (t *Taint) ours(q *Question, node *v1.Node) []fence.Evidence {
	for _, taint := range node.Spec.Taints {
		if taint.Key == t.key && taint.Value == OurTaintValue {
			return evidence(t.kind, q, live(node, q.LeaseRV, OurTaintValue), fence.VoidOurs)
		}
	}
	return nil
}

// left is what the taint still says after it went with its Node: something while the node's lease
// is there, as it was when the taint was bound.
func (t *Taint) left(q *Question, b record.TaintBinding, bound bool) []fence.Evidence {
	if !bound || b.Void != "" || b.NodeUID != q.Holder.NodeUID || q.LeaseRV == "" || b.LeaseRV != q.LeaseRV {
		return nil
	}
	return evidence(t.kind, q, b, "")
}

// Sights tells whether Sight has anything to do for that Node, so that its lease
// is worth a read.
func (t *Taint) Sights(node *v1.Node) bool {
	return !t.records.ReadOnly && (t.On(node) || !t.isClean(node))
}

// On tells whether somebody else has put the taint on that Node.
func (t *Taint) On(node *v1.Node) bool {
	_, on := t.find(node)
	return on
}

// Unbound takes note of a Node, by its UID, that was seen without the taint, and
// of its record as it was read live after that; nil: there is none. If no binding
// stands in it, Sight need not read it until the taint was seen on.
func (t *Taint) Unbound(nodeUID types.UID, r *record.Record) {
	if _, bound := t.binding(r); !bound {
		t.setClean(nodeUID, true)
	}
}

// Sight tells of a Node that changed, so that a taint is bound when it
// is put on, voided when the node comes back, and forgotten when it is taken
// off, although no volume is asked for. A Node that has the taint on is read live, since
// a watch keeps no managedFields. The node's lease was read live after the Node was seen;
// nil: there is none.
//
// An outdated Node or lease does no harm: it is told by its resourceVersion.
func (t *Taint) Sight(ctx context.Context, node *v1.Node, lease *coordinationv1.Lease) error {
	_, on := t.find(node)
	if t.records.ReadOnly || !on && t.isClean(node) {
		return nil
	}
	r, err := t.records.Store.Get(ctx, node.Name)
	if err != nil {
		return err
	}
	b, bound := t.binding(r)
	if on || bound {
		leaseRV := ""
		if lease != nil {
			leaseRV = lease.ResourceVersion
		}
		_, bound, err = t.settle(ctx, node, t.seen(node, leaseRV, lease), b, bound)
	}
	t.setClean(node.UID, err == nil && !on && !bound)
	return err
}

// settle brings the binding up to what is seen of the node now: binds, voids or
// clears it. It returns the binding that stands then.
func (t *Taint) settle(ctx context.Context, node *v1.Node, now record.TaintBinding, b record.TaintBinding, bound bool) (record.TaintBinding, bool, error) {
	_, on := t.find(node)
	if !bound {
		if t.records.ReadOnly {
			return now, true, nil
		}
		r, err := t.records.Store.BindTaint(ctx, node.Name, t.key, now, t.records.Actor)
		if err != nil {
			return record.TaintBinding{}, false, err
		}
		b = r.Taints[t.key] // another sidecar's, if that was faster
	}
	if older(now.NodeRV, b.NodeRV) {
		return b, true, nil // what was seen is from before the binding
	}
	if !on {
		return t.clear(ctx, node, b)
	}
	why := changed(b, now)
	if why == "" || b.Void != "" || t.records.ReadOnly {
		b.Void = cmp.Or(b.Void, why)
		return b, true, nil
	}
	if _, err := t.records.Store.VoidTaint(ctx, node.Name, t.key, b, why, t.records.Actor); err != nil {
		return b, true, err
	}
	b.Void = why
	return b, true, nil
}

// seen is what a taint that is seen for the first time is bound to. A taint that may have
// been there before the node was last heard says nothing of what came after. That the
// cloud's controller says so it looks up itself, and takes it back by itself.
func (t *Taint) seen(node *v1.Node, leaseRV string, lease *coordinationv1.Lease) record.TaintBinding {
	value, on := t.find(node)
	b := live(node, leaseRV, value)
	b.Writer = taintWriter(node)
	if on && b.Void == "" && t.kind == fence.OutOfServiceTaint && !taintedAfter(node, leaseRV, lease) {
		b.Void = fence.VoidTaintBefore
	}
	return b
}

// clear forgets a binding whose taint is off.
func (t *Taint) clear(ctx context.Context, node *v1.Node, b record.TaintBinding) (record.TaintBinding, bool, error) {
	if t.records.ReadOnly {
		return record.TaintBinding{}, false, nil
	}
	r, err := t.records.Store.ClearTaint(ctx, node.Name, t.key, b, t.records.Actor)
	if err != nil {
		return b, true, err
	}
	b, bound := r.Taints[t.key]
	return b, bound, nil
}

func (t *Taint) binding(r *record.Record) (record.TaintBinding, bool) {
	if r == nil {
		return record.TaintBinding{}, false
	}
	b, bound := r.Taints[t.key]
	return b, bound
}

// Claimed tells whether a taint that somebody else put on says that the node is
// off. What it is worth is bound to the lease as it is when it is first seen, for
// good.
func Claimed(node *v1.Node) bool {
	_, tainted := claim(node, v1.TaintNodeOutOfService)
	_, shutDown := claim(node, shutdownTaint)
	return tainted || shutDown
}

func (t *Taint) find(node *v1.Node) (value string, on bool) { return claim(node, t.key) }

// claim returns the value of the taint that somebody else put on. Ours in its
// place means that it was taken off. The effect does not matter, as it does not
// to the attach-detach controller.
func claim(node *v1.Node, key string) (value string, on bool) {
	for _, taint := range node.Spec.Taints {
		if taint.Key == key && taint.Value != OurTaintValue {
			return taint.Value, true
		}
	}
	return "", false
}

func (t *Taint) isClean(node *v1.Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clean[node.UID]
}

func (t *Taint) setClean(node types.UID, clean bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !clean {
		delete(t.clean, node)
		return
	}
	if len(t.clean) >= maxClean {
		clear(t.clean) // the Nodes of long ago with the others
	}
	t.clean[node] = true
}

// live is what a taint seen now would be bound to. A node without a boot ID
// cannot be told from a rebooted one, so its taint is void from the start.
func live(node *v1.Node, leaseRV, value string) record.TaintBinding {
	b := record.TaintBinding{NodeUID: string(node.UID), BootID: node.Status.NodeInfo.BootID, SystemUUID: node.Status.NodeInfo.SystemUUID, LeaseRV: leaseRV, NodeRV: node.ResourceVersion, Value: value}
	if b.BootID == "" {
		b.Void = fence.VoidNoBootID
	}
	return b
}

// changed says what changed of the machine since the binding; empty: nothing.
func changed(b, now record.TaintBinding) string {
	return changedSince(b.Is(), now.Is(), b.LeaseRV, now.LeaseRV)
}

func changedSince(was, now fence.Machine, lease, nowLease string) string {
	if why := was.Since(now); why != "" {
		return why
	}
	if lease != nowLease && !older(nowLease, lease) {
		return fence.VoidLeaseChanged
	}
	return ""
}

// older tells whether version a of one object is known to be from before b.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// evidence of a taint, bound as b says.
func evidence(kind fence.Kind, q *Question, b record.TaintBinding, void string) []fence.Evidence {
	return []fence.Evidence{{
		Kind: kind, Source: b.Value, Detail: b.Wrote(),
		NodeName: q.Holder.NodeName, NodeID: q.Holder.NodeID,
		NodeUID: b.NodeUID, BootID: b.BootID, SystemUUID: b.SystemUUID, LeaseRV: b.LeaseRV,
		Void: void,
	}}
}
