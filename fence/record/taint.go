package record

import (
	"context"
	"fmt"
	"reflect"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// TaintBinding binds a taint, which has no time of birth, to the machine that
// had it on when it was first seen.
type TaintBinding struct {
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID,omitempty"`
	// SystemUUID tells the machine from one that takes over its Node.
	SystemUUID string `json:"systemUUID,omitempty"`
	// LeaseRV is the resourceVersion of the node's lease at the first sight;
	// empty: there was no lease.
	LeaseRV string `json:"leaseRV,omitempty"`
	// NodeRV is the resourceVersion of the Node that had the taint on. Only a
	// later Node can show that it was taken off.
	NodeRV string `json:"nodeRV,omitempty"`
	// Value of the taint.
	Value string `json:"value,omitempty"`
	// Writer is the program that had written the Node's taints last, as the API server
	// names it, at the first sight. It is for people. Empty: nobody says.
	Writer string `json:"writer,omitempty"`
	// BoundAt, RFC 3339 on the writer's clock, is for people.
	BoundAt string `json:"boundAt"`
	// Void says why the taint does not count any more; empty: it does. It
	// stays until the taint was seen taken off.
	Void string `json:"void,omitempty"`

	Later format.Later `json:",embed"`
}

// Is the machine, as package fence compares it.
func (b TaintBinding) Is() fence.Machine {
	return fence.Machine{NodeUID: b.NodeUID, BootID: b.BootID, SystemUUID: b.SystemUUID}
}

// Wrote says who had written the taints; empty: nobody knows. The writer chooses its
// name, so that it is quoted.
func (b *TaintBinding) Wrote() string {
	if b.Writer == "" {
		return ""
	}
	return fmt.Sprintf("the taints were last written by %q", b.Writer)
}

// BindTaint binds a taint that is seen for the first time. If it is bound
// already, by whomever, that binding stands: look at the Record returned.
func (s *Store) BindTaint(ctx context.Context, node, key string, b TaintBinding, actor string) (*Record, error) {
	return s.Update(ctx, node, func(r *Record) (bool, error) {
		if _, bound := r.Taints[key]; bound {
			return false, nil
		}
		if r.Taints == nil {
			r.Taints = map[string]TaintBinding{}
		}
		b.BoundAt, b.Value, b.Writer = now(), clip(b.Value), clip(b.Writer)
		r.Taints[key] = b
		detail := fmt.Sprintf("%s=%s, node UID %s, boot ID %q, lease %q", key, b.Value, b.NodeUID, b.BootID, b.LeaseRV)
		if wrote := b.Wrote(); wrote != "" {
			detail += ", " + wrote
		}
		if b.Void != "" {
			detail += ": void, " + b.Void
		}
		r.audit(actor, "BindTaint", detail)
		return true, nil
	})
}

// VoidTaint writes down why a binding does not count any more. Only the binding
// that was judged is voided; another one since is left alone, and so is the
// reason of one that is void already.
func (s *Store) VoidTaint(ctx context.Context, node, key string, judged TaintBinding, why, actor string) (*Record, error) {
	return s.Update(ctx, node, func(r *Record) (bool, error) {
		b, bound := r.Taints[key]
		if !bound || !reflect.DeepEqual(b, judged) || b.Void != "" {
			return false, nil
		}
		b.Void = clip(why)
		r.Taints[key] = b
		r.audit(actor, "VoidTaint", key+": "+why)
		return true, nil
	})
}

// ClearTaint drops a binding because the taint was seen taken off. As in
// VoidTaint, only the binding that was judged.
func (s *Store) ClearTaint(ctx context.Context, node, key string, judged TaintBinding, actor string) (*Record, error) {
	return s.Update(ctx, node, func(r *Record) (bool, error) {
		b, bound := r.Taints[key]
		if !bound || !reflect.DeepEqual(b, judged) {
			return false, nil
		}
		delete(r.Taints, key)
		r.audit(actor, "ClearTaint", key+": seen taken off")
		return true, nil
	})
}
