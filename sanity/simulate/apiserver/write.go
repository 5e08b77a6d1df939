package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What follows is the order of checks of a real API server (k8s.io/apiserver
// v0.37.2: pkg/registry/generic/registry/store.go and pkg/registry/rest), for
// the kinds that are modelled.

var errVersionOnCreate = errors.New("resourceVersion should not be set on objects to be created")

// createLocked is POST.
func (s *Server) createLocked(k *kind, o Object) (*stored, error) {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), s.version%100000))
	}
	if err := s.checkNamespaceLocked(k, o.GetNamespace()); err != nil {
		return nil, err
	}
	if err := s.beforeCreateLocked(k, o); err != nil {
		return nil, err
	}
	if s.tables[k.id].objects[keyOf(o.GetNamespace(), o.GetName())] != nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), o.GetName())
	}
	if o.GetResourceVersion() != "" && o.GetResourceVersion() != "0" {
		return nil, apierrors.NewInternalError(errVersionOnCreate)
	}
	return s.putLocked(k, o), nil
}

func (s *Server) checkNamespaceLocked(k *kind, namespace string) error {
	if k.namespaced && s.tables[kindsByPath["/namespaces"].id].objects[keyOf("", namespace)] == nil {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	}
	return nil
}

// beforeCreateLocked is rest.BeforeCreate, for a POST and, since Kubernetes 1.37
// with the system's fields wiped as well, for a PUT that creates.
func (s *Server) beforeCreateLocked(k *kind, o Object) error {
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	if k.defaults != nil {
		k.defaults(o)
	}
	now := s.stamp()
	o.SetCreationTimestamp(now)
	o.SetUID(s.newUIDLocked())
	o.SetSelfLink("")
	o.SetManagedFields(nil)
	if k.create != nil {
		k.create(o, now)
	}
	var errs field.ErrorList
	if k.validate != nil {
		errs = k.validate(o)
	} else {
		errs = validation.ValidateObjectMetaAccessor(o, k.namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(k.groupKind(), o.GetName(), errs)
	}
	return nil
}

// updating is a PUT or a PATCH under way.
type updating struct {
	kind        *kind
	subresource string
	manager     string
	namespace   string
	name        string
	uid         types.UID // has to be this one, if not empty
	// change makes the new object of the old one, which it must not touch.
	change func(old *stored) (Object, error)
}

// updateLocked is Store.Update. created: it was not there before.
func (s *Server) updateLocked(u updating) (out *stored, created bool, err error) {
	k := u.kind
	old := s.tables[k.id].objects[keyOf(u.namespace, u.name)]
	if old == nil {
		return s.createByUpdateLocked(u)
	}
	if u.uid != "" && u.uid != old.object.GetUID() {
		//lint:ignore ST1005 the API server's own words
		return nil, false, apierrors.NewConflict(k.resource(), u.name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", u.uid, old.object.GetUID()))
	}
	o, err := u.change(old)
	if err != nil {
		return nil, false, err
	}
	if err := checkVersion(k, u.name, o, old); err != nil {
		return nil, false, err
	}
	if err := s.beforeUpdate(u, o, old.object); err != nil {
		return nil, false, err
	}
	if emptied(o, old.object) {
		s.removeLocked(k, old)
		// Who took the last finalizer off gets the object back as sent.
		return &stored{object: o, key: old.key, version: old.version, proto: marshal(o)}, false, nil
	}
	if bytes.Equal(marshal(o), old.proto) && !(k.lateDefaults && old.created) {
		return old, false, nil // what changes nothing is not written
	}
	s.manage(u, o, old.object)
	return s.putLocked(k, o), false, nil
}

// createByUpdateLocked creates by PUT, as a Lease and an Event may be.
func (s *Server) createByUpdateLocked(u updating) (*stored, bool, error) {
	if !u.kind.createOnUpdate || u.subresource != "" || u.change == nil {
		return nil, false, apierrors.NewNotFound(u.kind.resource(), u.name)
	}
	if u.uid != "" {
		//lint:ignore ST1005 the API server's own words
		return nil, false, apierrors.NewConflict(u.kind.resource(), u.name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: ", u.uid))
	}
	o, err := u.change(nil)
	if err != nil {
		return nil, false, err
	}
	if err := s.checkNamespaceLocked(u.kind, u.namespace); err != nil {
		return nil, false, err
	}
	if err := s.beforeCreateLocked(u.kind, o); err != nil {
		return nil, false, err
	}
	return s.putLocked(u.kind, o), true, nil
}

// checkVersion is the optimistic lock.
func checkVersion(k *kind, name string, o Object, old *stored) error {
	version, err := parseVersion(o.GetResourceVersion())
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case version == 0 && k.unconditional:
		o.SetResourceVersion(old.object.GetResourceVersion())
		return nil
	case version == 0:
		return apierrors.NewInvalid(schema.GroupKind{Group: k.group, Kind: k.plural}, name,
			field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update")})
	case version != old.version:
		return apierrors.NewConflict(k.resource(), name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// beforeUpdate is rest.BeforeUpdate.
func (s *Server) beforeUpdate(u updating, o, old Object) error {
	k := u.kind
	if k.defaults != nil {
		k.defaults(o)
	}
	o.SetGeneration(old.GetGeneration())
	o.SetManagedFields(old.GetManagedFields())
	o.SetSelfLink("")
	if u.subresource == "status" {
		k.updateStatus(o, old, s.stamp())
		if k.statusMeta {
			metav1.ResetObjectMetaForStatus(o, old)
		}
	} else if k.update != nil {
		k.update(o, old)
	}
	if o.GetUID() == "" {
		o.SetUID(old.GetUID())
	}
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	if t := old.GetDeletionTimestamp(); t != nil {
		o.SetDeletionTimestamp(t)
	}
	if o.GetDeletionGracePeriodSeconds() == nil {
		o.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
	meta := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessorUpdate(o, old, meta)
	if k.validate != nil && u.subresource == "" {
		errs = append(errs, k.validate(o)...)
	} else {
		errs = append(errs, validation.ValidateObjectMetaAccessor(o, k.namespaced, validation.NameIsDNSSubdomain, meta)...)
	}
	if k.validateUpdate != nil && u.subresource == "" {
		errs = append(errs, k.validateUpdate(o, old)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(k.groupKind(), o.GetName(), errs)
	}
	return nil
}

// emptied tells whether the update took the last finalizer off an object that is
// being deleted, and so deletes it.
func emptied(o, old Object) bool {
	period := old.GetDeletionGracePeriodSeconds()
	return len(o.GetFinalizers()) == 0 && old.GetDeletionTimestamp() != nil && (period == nil || *period == 0)
}

// heartbeat and taints are the fields whose managers are kept: csi-fencepost reads from
// them when the API server saw a kubelet's heartbeat, and a taint put on.
const (
	heartbeat = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastHeartbeatTime":{}}}}}`
	taints    = `{"f:spec":{"f:taints":{}}}`
)

// manage keeps the managedFields entries of who wrote a Node's heartbeat by way of
// the subresource status, and its taints.
func (s *Server) manage(u updating, o, old Object) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	was := old.(*corev1.Node)
	fields, changed := taints, !equality.Semantic.DeepEqual(node.Spec.Taints, was.Spec.Taints)
	if u.subresource == "status" {
		fields, changed = heartbeat, !readyHeartbeat(node).Equal(readyHeartbeat(was))
	}
	of := func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == u.subresource && (f.Subresource == "status" || f.FieldsV1.GetRawString() == taints)
	}
	owns := slices.ContainsFunc(was.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return of(f) && f.Manager == u.manager })
	if !changed && (!owns || fields == taints) {
		return
	}
	now := s.stamp()
	node.ManagedFields = append(slices.DeleteFunc(slices.Clone(was.ManagedFields), of), metav1.ManagedFieldsEntry{Manager: u.manager, Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: u.subresource})
}

func readyHeartbeat(n *corev1.Node) *metav1.Time {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return &c.LastHeartbeatTime
		}
	}
	return nil
}

func parseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

// putRequestLocked is PUT, of the object or its status.
func (s *Server) putRequestLocked(c *call) (*stored, int, error) {
	out, created, err := s.updateLocked(updating{kind: c.kind, subresource: c.Subresource, manager: c.manager, namespace: c.Namespace, name: c.Name,
		uid: c.sent.GetUID(), change: func(*stored) (Object, error) { return clone(c.sent), nil }})
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return out, code, err
}
