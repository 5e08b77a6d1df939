package evidence

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Remediation is a Source: the word of a medik8s operator, given by an object of
// its own, that it has fenced a node.
//
//	object first seen            ─▶ bound in the node's record to UID and boot ID
//	object first seen to claim   ─▶ the lease of then is bound as well
//	bound, all three as then     ─▶ evidence
//	bound, one of them changed   ─▶ void, for good: another remediation is another object
//
// Neither operator confirms what it claims: the one calls a fence agent's reboot
// or off and asks for no status, the other waits for some time. It is a claim,
// and to be used only where the operator of the cluster says so.
type Remediation struct {
	kind     fence.Kind
	resource resource
	// claims says in the object's words that the node is fenced; empty: not yet.
	claims  func(*remediation) string
	client  rest.Interface
	records Records
}

// FenceAgentsRemediations is the word of fence-agents-remediation: its condition
// FenceAgentActionSucceeded. client is of any group.
func FenceAgentsRemediations(client rest.Interface, records Records) *Remediation {
	return &Remediation{
		kind: fence.FenceAgentsRemediation, resource: fenceAgentsRemediations, client: client, records: records,
		claims: func(r *remediation) string {
			if c := r.condition("FenceAgentActionSucceeded"); c != nil {
				return "FenceAgentActionSucceeded: " + cmp.Or(c.Message, c.Reason)
			}
			return ""
		},
	}
}

// SelfNodeRemediations is the word of self-node-remediation: a phase from
// Reboot-Completed on, by which it assumes that the node has rebooted itself.
func SelfNodeRemediations(client rest.Interface, records Records) *Remediation {
	return &Remediation{
		kind: fence.SelfNodeRemediation, resource: selfNodeRemediations, client: client, records: records,
		claims: func(r *remediation) string {
			switch phase := r.Status.Phase; phase {
			case "Reboot-Completed", "Fencing-Completed":
				return "phase " + phase
			}
			return ""
		},
	}
}

// Name implements Source.
func (s *Remediation) Name() string { return string(s.kind) }

const (
	// requested and claimed are the Value of a binding.
	requested = "requested"
	claimed   = "claimed"

	voidForbidden = "csi-fencepost may not list the objects that would say more: its ClusterRole lacks get and list for "
)

// Evidence implements Source. The objects are read live; those that are seen for
// the first time are bound.
func (s *Remediation) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	objects, err := s.list(ctx, q.Holder.NodeName)
	if apierrors.IsForbidden(err) {
		// Other evidence must not fail for it.
		return evidence(s.kind, &q, unbound(&q), voidForbidden+s.resource.plural+"."+s.resource.group), nil
	}
	if err != nil {
		return nil, err
	}
	r := q.Record
	if node := q.machine(); node != nil {
		if r, err = s.settle(ctx, node, q.LeaseRV, r, objects); err != nil {
			return nil, err
		}
	}
	var found []fence.Evidence
	for i := range objects {
		b, bound := binding(r, s.key(&objects[i]))
		words := s.claims(&objects[i])
		if !bound || words == "" || b.Value != claimed && b.Void == "" || b.NodeUID != q.Holder.NodeUID || !s.stands(&q, b) {
			continue
		}
		e := evidence(s.kind, &q, b, b.Void)
		e[0].Source, e[0].Detail = objects[i].Metadata.Name, words
		found = append(found, e...)
	}
	return found, nil
}

// stands tells whether a claim still says something. With the Node gone it does only while the
// lease is there, unchanged. Of another machine under the Node's name it says nothing.
func (s *Remediation) stands(q *Question, b record.TaintBinding) bool {
	if q.machine() != nil {
		return true
	}
	return q.Node == nil && b.Void == "" && q.LeaseRV != "" && q.LeaseRV == b.LeaseRV
}

// Sight binds the remediations of that Node, and voids and forgets the bindings
// that are over, although no volume is asked for. leaseRV is the resourceVersion
// of the node's lease, read live after the Node was; empty: there is none.
func (s *Remediation) Sight(ctx context.Context, node *v1.Node, leaseRV string) error {
	if s.records.ReadOnly {
		return nil
	}
	objects, err := s.list(ctx, node.Name)
	if err != nil {
		return err
	}
	r, err := s.records.Store.Get(ctx, node.Name)
	if err != nil {
		return err
	}
	_, err = s.settle(ctx, node, leaseRV, r, objects)
	return err
}

// list reads the remediations of a node live, those that are being taken back
// left out.
func (s *Remediation) list(ctx context.Context, node string) ([]remediation, error) {
	var all objectList[remediation]
	if node == "" {
		return nil, nil
	}
	if there, err := s.resource.list(ctx, s.client, &all); err != nil || !there {
		return nil, err
	}
	return slices.DeleteFunc(all.Items, func(r remediation) bool {
		return r.node() != node || r.Metadata.DeletionTimestamp != nil || r.Metadata.UID == ""
	}), nil
}

// settle brings the bindings up to what is seen now, in one write if any.
func (s *Remediation) settle(ctx context.Context, node *v1.Node, leaseRV string, r *record.Record, objects []remediation) (*record.Record, error) {
	if r == nil {
		r = record.New(node.Name)
	}
	seen := *r
	seen.Audit = slices.Clip(r.Audit) // others read it too
	seen.Taints = map[string]record.TaintBinding{}
	for key, b := range r.Taints {
		seen.Taints[key] = b
	}
	changed := s.bind(&seen, node, leaseRV, objects)
	if !changed || s.records.ReadOnly {
		return &seen, nil
	}
	return s.records.Store.Update(ctx, node.Name, func(r *record.Record) (bool, error) {
		return s.bind(r, node, leaseRV, objects), nil
	})
}

// bind changes the bindings in r; false: there was nothing to change.
func (s *Remediation) bind(r *record.Record, node *v1.Node, leaseRV string, objects []remediation) (changed bool) {
	live := map[string]bool{}
	for i := range objects {
		key := s.key(&objects[i])
		live[key] = true
		before, bound := binding(r, key)
		after := s.next(before, bound, node, leaseRV, s.claims(&objects[i]) != "")
		if reflect.DeepEqual(after, before) {
			continue
		}
		changed = true
		if r.Taints == nil {
			r.Taints = map[string]record.TaintBinding{}
		}
		r.Taints[key] = after
		s.audit(r, "BindRemediation", key+": "+after.Value+", node UID "+after.NodeUID+", boot ID "+after.BootID+", lease "+after.LeaseRV+" "+after.Void)
	}
	for key := range r.Taints {
		if strings.HasPrefix(key, s.prefix()) && !live[key] {
			// A UID never comes back.
			changed = true
			delete(r.Taints, key)
			s.audit(r, "ClearRemediation", key+": the object is gone")
		}
	}
	return changed
}

// next is the binding that follows: seen, claims, void.
func (s *Remediation) next(b record.TaintBinding, bound bool, node *v1.Node, leaseRV string, claims bool) record.TaintBinding {
	now := live(node, leaseRV, requested)
	now.BoundAt = stamp()
	if claims {
		now.Value = claimed
	}
	switch {
	case !bound:
		return now
	case b.Void != "" || older(now.NodeRV, b.NodeRV):
		return b
	case b.Value == requested:
		// A sign of life before the claim is no contradiction, a boot is.
		if why := changedSince(b.Is(), now.Is(), "", ""); why != "" {
			b.Void = why
			return b
		}
		if claims {
			return now
		}
		return b
	}
	b.Void = changed(b, now)
	return b
}

func (s *Remediation) prefix() string { return string(s.kind) + "/" }

func (s *Remediation) key(r *remediation) string { return s.prefix() + r.Metadata.UID }

func (s *Remediation) audit(r *record.Record, action, detail string) {
	r.Note(s.records.Actor, action, strings.TrimSpace(detail))
}

// stamp is for people: nothing is decided by it.
func stamp() string { return time.Now().UTC().Format(time.RFC3339) }

func binding(r *record.Record, key string) (record.TaintBinding, bool) {
	if r == nil {
		return record.TaintBinding{}, false
	}
	b, bound := r.Taints[key]
	return b, bound
}

// unbound is for what is said of the holder without having been bound.
func unbound(q *Question) record.TaintBinding {
	return record.TaintBinding{NodeUID: q.Holder.NodeUID, BootID: q.Holder.BootID, SystemUUID: q.Holder.SystemUUID, LeaseRV: q.LeaseRV}
}
