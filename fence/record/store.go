package record

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// conflicts is how an Update goes about writers that are faster: nine tries in about three seconds.
var conflicts = wait.Backoff{Steps: 8, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5}

// Store reads and writes the nodes' records. It keeps nothing in memory.
type Store struct {
	client    coordination.LeasesGetter
	namespace string
	waits     func(holder, lease string) // nil: nobody is told
}

// NewStore is a Store in that namespace, which has to exist.
func NewStore(client coordination.LeasesGetter, namespace string) *Store {
	return &Store{client: client, namespace: namespace}
}

// Check asks whether a record could be made, one that vouches for a fence of that kind and
// driver unless kind is empty, and makes none: a namespace that is not there (Nowhere), and
// a right that a policy asks for, are otherwise found out at the first one.
func (s *Store) Check(ctx context.Context, kind fence.Kind, driver string) error {
	const none = "of-no-node"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: none, Namespace: s.namespace}}
	if kind != "" {
		lease.Annotations = map[string]string{FencedAnnotation: digest(&Fence{Kind: kind, Driver: driver, Phase: Fenced})}
	}
	_, err := s.client.Leases(s.namespace).Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		err = s.explain("write", none, err)
	}
	return err
}

// Nowhere tells whether err is of a write of a record whose namespace does not exist.
func Nowhere(err error) bool { return errors.Is(err, errNowhere) }

var errNowhere = errors.New("does not exist")

// Namespace of the records.
func (s *Store) Namespace() string { return s.namespace }

// Get reads a node's record live; nil: there is none. A record that cannot be
// understood is a *GarbledError.
func (s *Store) Get(ctx context.Context, node string) (*Record, error) {
	_, r, err := s.read(ctx, node)
	return r, err
}

// read returns a nil Lease if there is none.
func (s *Store) read(ctx context.Context, node string) (*coordinationv1.Lease, *Record, error) {
	lease, err := s.lease(ctx, node)
	if lease == nil || err != nil {
		return nil, nil, err
	}
	r, err := FromLease(lease, node)
	return lease, r, err
}

// lease reads the Lease live; nil: there is none.
func (s *Store) lease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	if node == "" {
		return nil, errors.New("a record is kept by the node's name, and it is empty")
	}
	lease, err := s.client.Leases(s.namespace).Get(ctx, LeaseName(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain("read", node, err)
	}
	return lease, nil
}

// List reads all records live, by the name of their Lease. The garbled ones are
// in garbled; err is set only if nothing could be read.
func (s *Store) List(ctx context.Context) (records []*Record, garbled []*GarbledError, err error) {
	leases, err := s.client.Leases(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the nodes' records in namespace %s: %w", s.namespace, err)
	}
	for i := range leases.Items {
		lease := &leases.Items[i]
		node, ok := NodeOf(lease)
		if !ok {
			continue
		}
		r, err := FromLease(lease, node)
		var bad *GarbledError
		switch {
		case errors.As(err, &bad):
			garbled = append(garbled, bad)
		case r != nil:
			records = append(records, r)
		}
	}
	return records, garbled, nil
}

// Update changes a node's record by compare-and-swap, and creates it if there
// is none. change is given what is live, and is called again with what another
// writer wrote if that one was faster; it must not keep the Record. If it
// returns false or an error, nothing is written, but that what has ended is vouched for no
// more. Update returns the record as
// it stands then.
func (s *Store) Update(ctx context.Context, node string, change func(*Record) (bool, error)) (*Record, error) {
	return s.update(ctx, node, func(*coordinationv1.Lease) error { return nil }, change)
}

// Mark tells whether anybody has had a record's lock between two reads of it. The
// zero Mark is of a record that nobody has locked yet.
type Mark struct {
	// Holder of the lock; empty: nobody has it.
	Holder string

	acquired    time.Time
	transitions int32
}

func markOf(lease *coordinationv1.Lease) Mark {
	if lease == nil {
		return Mark{}
	}
	m := Mark{Holder: ptr.Deref(lease.Spec.HolderIdentity, ""), transitions: ptr.Deref(lease.Spec.LeaseTransitions, 0)}
	if t := lease.Spec.AcquireTime; t != nil {
		m.acquired = t.UTC()
	}
	return m
}

// GetMarked is Get, with the Mark of the same read.
func (s *Store) GetMarked(ctx context.Context, node string) (*Record, Mark, error) {
	lease, r, err := s.read(ctx, node)
	return r, markOf(lease), err
}

// UpdateMarked is Update, with the Mark of what change is given.
func (s *Store) UpdateMarked(ctx context.Context, node string, change func(*Record, Mark) (bool, error)) (*Record, error) {
	var m Mark
	mark := func(lease *coordinationv1.Lease) error {
		m = markOf(lease)
		return nil
	}
	return s.update(ctx, node, mark, func(r *Record) (bool, error) { return change(r, m) })
}

// update writes only to a Lease that may be written; nil: there is none yet.
func (s *Store) update(ctx context.Context, node string, may func(*coordinationv1.Lease) error, change func(*Record) (bool, error)) (*Record, error) {
	backoff := conflicts
	for {
		r, err := s.tryUpdate(ctx, node, may, change)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return r, err
		}
		if backoff.Steps == 0 {
			return nil, s.explain("write", node, err)
		}
		klog.FromContext(ctx).V(4).Info("Another writer changed the node's record first, trying again", "node", node)
		select {
		case <-ctx.Done():
			return nil, s.explain("write", node, ctx.Err())
		case <-time.After(backoff.Step()):
		}
	}
}

// tryUpdate returns a conflict as the API server gave it.
func (s *Store) tryUpdate(ctx context.Context, node string, may func(*coordinationv1.Lease) error, change func(*Record) (bool, error)) (*Record, error) {
	lease, r, err := s.read(ctx, node)
	if err != nil {
		return nil, err
	}
	if err := may(lease); err != nil {
		return nil, err
	}
	if r == nil {
		r = New(node)
		if lease != nil {
			r.readVouches(lease)
		}
	}
	before := r.Clone()
	changed, err := change(r)
	if err != nil {
		return nil, err
	}
	if !changed {
		r = before
	}
	if reflect.DeepEqual(before, r) && !r.vouchesChange() {
		return before, nil
	}
	if err := s.write(ctx, node, lease, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (s *Store) write(ctx context.Context, node string, lease *coordinationv1.Lease, r *Record) error {
	absent := lease == nil
	if absent {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName(node), Namespace: s.namespace}}
	}
	err := r.ToLease(lease)
	if err != nil {
		return s.explain("write", node, err)
	}
	if absent {
		_, err = s.client.Leases(s.namespace).Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = s.client.Leases(s.namespace).Update(ctx, lease, metav1.UpdateOptions{})
	}
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return err
	case !absent && apierrors.IsNotFound(err):
		// Somebody deleted it since: for Update that is a conflict like another.
		return apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, err)
	}
	return s.explain("write", node, err)
}

// explain adds to an error of the API server which record it is about.
func (s *Store) explain(verb, node string, err error) error {
	if verb == "write" && apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot write the record of node %s: namespace %s, where the records are kept (fencing.namespace), %w; "+
			"create it: kubectl create namespace %s: %w", node, s.namespace, errNowhere, s.namespace, err)
	}
	return fmt.Errorf("cannot %s the record of node %s (Lease %s/%s): %w", verb, node, s.namespace, LeaseName(node), err)
}
