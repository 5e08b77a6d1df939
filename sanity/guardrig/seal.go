package guardrig

import (
	"context"
	"errors"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// Etcd is what the Lease of the seal stands in.
type Etcd struct {
	// Revision that the next write has; each counts it on.
	Revision uint64
	// Lease of the seal; nil: there is none.
	Lease *coordinationv1.Lease
	// Away tells that no request is answered.
	Away bool
}

// Sealing has the guard seal the ledgers for who calls from now on.
func (r *Rig) Sealing() *Etcd {
	r.T.Helper()
	e := &Etcd{Revision: 1000}
	r.Client.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() != "csi-fencepost" {
			return false, nil, nil
		}
		if get, ok := a.(clienttesting.GetAction); ok && a.GetVerb() == "get" && get.GetName() != "seal-"+DriverName {
			return false, nil, nil // a node's record
		}
		if e.Away {
			return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
		}
		resource := coordinationv1.Resource("leases")
		switch a := a.(type) {
		case clienttesting.UpdateAction: // a CreateAction is one, too
			lease := a.GetObject().(*coordinationv1.Lease).DeepCopy()
			if e.Lease != nil && lease.ResourceVersion != e.Lease.ResourceVersion || e.Lease == nil && a.GetVerb() == "update" {
				return true, nil, apierrors.NewConflict(resource, lease.Name, errors.New("it has changed"))
			}
			lease.ResourceVersion = strconv.FormatUint(e.Revision, 10)
			e.Revision++
			e.Lease = lease
			return true, lease.DeepCopy(), nil
		default:
			if e.Lease == nil {
				return true, nil, apierrors.NewNotFound(resource, "seal")
			}
			return true, e.Lease.DeepCopy(), nil
		}
	})
	s := guard.NewSeal(r.T.Context(), r.Guard.Surveyor, r.Client.CoordinationV1(), "this process")
	r.Guard.Seal, r.Guard.Surveyor.Seal = s, s
	r.Reconnect()
	return e
}

// Reconnect has another attacher call from now on.
func (r *Rig) Reconnect() { r.caller = new(proxy.Caller) }

// Disconnect has somebody call of whom nobody knows who it is.
func (r *Rig) Disconnect() { r.caller = nil }

// By is the context of a call by the attacher.
func (r *Rig) By(ctx context.Context) context.Context {
	if r.caller == nil {
		return ctx
	}
	return proxy.WithCaller(ctx, r.caller)
}
