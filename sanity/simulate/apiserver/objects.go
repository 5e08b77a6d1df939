package apiserver

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What follows is for the models of everybody else (kubelets, attacher,
// controllers, operators), where HTTP would be waste. No gate is asked, nothing is
// validated, status and the rest are written together. What it returns is a
// copy.

// Find is the object as it is now. ok: there is one.
func Find[T Object](s *Server, namespace, name string) (o T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.tables[kindOf(o).id].objects[keyOf(namespace, name)]
	if found == nil {
		return o, false
	}
	return clone(found.object.(T)), true
}

// FindAll are the objects of a namespace, or of all if it is empty, by name.
func FindAll[T Object](s *Server, namespace string) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	var out []T
	for _, o := range s.tables[kindOf(none).id].all() {
		if namespace == "" || o.object.GetNamespace() == namespace {
			out = append(out, clone(o.object.(T)))
		}
	}
	return out
}

// Put creates the object, or overwrites the one of that name whatever its version.
// A new one gets its UID and time of creation where it has none.
func Put[T Object](s *Server, o T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := kindOf(o)
	o = clone(o)
	dropKind(o)
	old := s.tables[k.id].objects[keyOf(o.GetNamespace(), o.GetName())]
	if old != nil && o.GetUID() == "" {
		o.SetUID(old.object.GetUID())
		o.SetCreationTimestamp(old.object.GetCreationTimestamp())
	}
	if o.GetUID() == "" {
		o.SetUID(s.newUIDLocked())
	}
	if t := o.GetCreationTimestamp(); t.IsZero() {
		o.SetCreationTimestamp(s.stamp())
	}
	if k.defaults != nil {
		k.defaults(o)
	}
	return clone(s.storeLocked(k, o).object.(T))
}

// Change changes an object, whatever its version, and returns it as it is then.
// What changes nothing is not written; an object that is being deleted goes with
// its last finalizer. The error is NotFound.
func Change[T Object](s *Server, namespace, name string, f func(T)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	k := kindOf(none)
	old := s.tables[k.id].objects[keyOf(namespace, name)]
	if old == nil {
		return none, apierrors.NewNotFound(k.resource(), name)
	}
	o := clone(old.object.(T))
	f(o)
	if emptied(o, old.object) {
		return clone(s.removeLocked(k, old).object.(T)), nil
	}
	if slices.Equal(marshal(o), old.proto) {
		return o, nil
	}
	return clone(s.storeLocked(k, o).object.(T)), nil
}

// storeLocked stores what came as a Go object in the form that a client would have
// sent, times in whole seconds above all.
func (s *Server) storeLocked(k *kind, o Object) *stored {
	return s.putLocked(k, decoded(k, marshal(o)))
}

// Remove deletes an object as a client's DELETE with these options would, with
// its finalizers and a pod's time to end. Errors are the API server's.
func Remove[T Object](s *Server, namespace, name string, options metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	_, _, err := s.deleteLocked(kindOf(none), namespace, name, &options)
	return err
}
