package apiserver

import (
	"bytes"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// deleteLocked is Store.Delete: at once, or, for an object with finalizers and for a
// pod with time to end, by marking it. It returns the object as it is then, or was
// last.
func (s *Server) deleteLocked(k *kind, namespace, name string, options *metav1.DeleteOptions) (o *stored, gone bool, err error) {
	old := s.tables[k.id].objects[keyOf(namespace, name)]
	if old == nil {
		return nil, false, apierrors.NewNotFound(k.resource(), name)
	}
	if err := checkPreconditions(k, old.object, options.Preconditions); err != nil {
		return nil, false, err
	}
	next := clone(old.object)
	graceful, period := false, int64(0)
	if k.graceful {
		var pending bool
		if graceful, pending, period = s.grace(next, options); pending {
			return old, false, nil
		}
	}
	waits := len(next.GetFinalizers()) > 0
	if !graceful {
		if !waits {
			return s.removeLocked(k, old), true, nil
		}
		s.mark(next)
	}
	if !bytes.Equal(marshal(next), old.proto) {
		old = s.putLocked(k, next)
	}
	if waits || period > 0 {
		return old, false, nil
	}
	// A pod that is deleted by force is first marked, then taken away: two writes.
	return s.removeLocked(k, old), true, nil
}

func checkPreconditions(k *kind, o Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	resource := schema.GroupResource{Group: k.group, Resource: k.kind}
	if p.UID != nil && *p.UID != o.GetUID() {
		return apierrors.NewConflict(resource, o.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, o.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
		return apierrors.NewConflict(resource, o.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, o.GetResourceVersion()))
	}
	return nil
}

// mark is markAsDeleting, for what is not deleted gracefully.
func (s *Server) mark(o Object) {
	now := s.stamp()
	if o.GetDeletionTimestamp() == nil && o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	if t := o.GetDeletionTimestamp(); t == nil || t.After(now.Time) {
		o.SetDeletionTimestamp(&now)
	}
	o.SetDeletionGracePeriodSeconds(new(int64(0)))
}

// grace is rest.BeforeDelete for pods: it marks the pod and says how many seconds
// it has. pending: it is being deleted already, and not later than asked.
func (s *Server) grace(o Object, options *metav1.DeleteOptions) (graceful, pending bool, period int64) {
	if g := options.GracePeriodSeconds; g != nil && *g < 0 {
		options.GracePeriodSeconds = new(int64(1))
	}
	if o.GetDeletionTimestamp() != nil {
		return s.shorten(o, options.GracePeriodSeconds)
	}
	pod := o.(*corev1.Pod)
	switch {
	case pod.Spec.NodeName == "", pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
	case options.GracePeriodSeconds != nil:
		period = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		period = max(*pod.Spec.TerminationGracePeriodSeconds, 0)
	}
	until := metav1.NewTime(s.stamp().Add(time.Duration(period) * time.Second))
	o.SetDeletionTimestamp(&until)
	o.SetDeletionGracePeriodSeconds(&period)
	if o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	return true, false, period
}

// shorten gives a pod that is being deleted less time; never more.
func (s *Server) shorten(o Object, asked *int64) (graceful, pending bool, period int64) {
	has := o.GetDeletionGracePeriodSeconds()
	switch {
	case has == nil || *has == 0:
		return false, false, 0
	case asked == nil || *asked >= *has:
		return false, true, 0
	}
	period = *asked
	until := metav1.NewTime(o.GetDeletionTimestamp().Add(time.Duration(period-*has) * time.Second))
	if now := s.stamp(); until.Before(&now) {
		until = now
		if period != 0 {
			period = 1
		}
	}
	o.SetDeletionTimestamp(&until)
	o.SetDeletionGracePeriodSeconds(&period)
	return true, false, period
}

// deleted is what DELETE answers: the object, or a Status that names what is gone.
func (c *call) deleted(last *stored, gone bool) []byte {
	if c.kind.returnsDeleted || !gone {
		return c.encode(last)
	}
	return encodeStatus(&metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: last.object.GetName(), Group: c.kind.group, Kind: c.kind.plural, UID: last.object.GetUID(),
	}}, c.proto)
}
