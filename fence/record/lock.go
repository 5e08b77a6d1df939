package record

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// ErrLockLost tells that somebody else has the lock, or it could not be renewed in time.
var ErrLockLost = errors.New("the lock of the node's record is not held any more")

// LockedError tells that another one has the lock and did not let go in time.
type LockedError struct {
	Node, Holder string
	Err          error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("node %s is locked by %s, which fences it or gives it its power back: %v", e.Node, e.Holder, e.Err)
}

func (e *LockedError) Unwrap() error { return e.Err }

// Lock is held by one actor at a time: whoever fences the node. It is the spec
// of the record's Lease, and renewed in the background until Release or Abandon.
//
// It is not client-go's leader election: what is claimed of the node stands in the same Lease, and
// lock and claim have to change in one compare-and-swap.
type Lock struct {
	store    *Store
	node     string
	holder   string
	duration time.Duration

	lost chan struct{}
	stop context.CancelFunc
	done chan struct{}

	mu sync.Mutex
	// renewed is when the last renewal that succeeded was begun, on our own
	// monotonic clock. The others measure from when they have seen it, later.
	renewed time.Time
	over    bool
}

// Lock takes the lock of the node's record, and creates the Lease if there is
// none. A lock that another one holds is waited for until ctx ends (a
// *LockedError): it is taken only after it was let go, or was watched unchanged
// for as long as its holder asked for, on this process's own monotonic clock.
// Two Locks of one identity exclude each other too. A duration below a second
// is an error.
func (s *Store) Lock(ctx context.Context, node, identity string, duration time.Duration) (*Lock, error) {
	if identity == "" || duration < time.Second {
		return nil, fmt.Errorf("the lock of node %s needs an identity and a duration of at least 1s, not %q and %s", node, identity, duration)
	}
	l := &Lock{store: s, node: node, holder: identity + "_" + string(uuid.NewUUID()), duration: duration,
		lost: make(chan struct{}), done: make(chan struct{})}
	if err := l.acquire(ctx); err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.keep(background)
	return l, nil
}

// TellWaits is s, whose Lock tells once of each other holder that it waits for, and by which Lease
// of the namespace that one holds it.
func (s *Store) TellWaits(tell func(holder, lease string)) *Store {
	telling := *s
	telling.waits = tell
	return &telling
}

// sight is what was seen of another one's lock.
type sight struct {
	spec  coordinationv1.LeaseSpec
	since time.Time
}

func (l *Lock) acquire(ctx context.Context) error {
	var seen sight
	for {
		asked := time.Now()
		lease, err := l.store.lease(ctx, l.node)
		if err != nil {
			return l.refused(ctx, &seen, err)
		}
		if lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") != "" && !l.outlived(&seen, lease, asked) {
			if err := sleep(ctx, wait.Jitter(l.poll(), 0.2)); err != nil {
				return l.refused(ctx, &seen, err)
			}
			continue
		}
		err = l.take(ctx, lease)
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			if err := sleep(ctx, wait.Jitter(10*time.Millisecond, 1)); err != nil {
				return l.refused(ctx, &seen, err)
			}
		default:
			return l.refused(ctx, &seen, err)
		}
	}
}

// outlived tells whether the lock was seen, unchanged, for as long as its holder asked for. asked
// is when the read that shows it now was begun.
func (l *Lock) outlived(seen *sight, lease *coordinationv1.Lease, asked time.Time) bool {
	if seen.since.IsZero() || !reflect.DeepEqual(seen.spec, lease.Spec) {
		holder := *lease.Spec.HolderIdentity
		if l.store.waits != nil && holder != ptr.Deref(seen.spec.HolderIdentity, "") {
			l.store.waits(holder, lease.Name)
		}
		*seen = sight{spec: *lease.Spec.DeepCopy(), since: time.Now()}
		return false
	}
	wanted := l.duration
	if d := lease.Spec.LeaseDurationSeconds; d != nil && *d > 0 {
		wanted = time.Duration(*d) * time.Second
	}
	return asked.Sub(seen.since) >= wanted
}

func (l *Lock) poll() time.Duration { return min(l.duration/10, 2*time.Second) }

func (l *Lock) refused(ctx context.Context, seen *sight, err error) error {
	if holder := ptr.Deref(seen.spec.HolderIdentity, ""); holder != "" && ctx.Err() != nil {
		return &LockedError{Node: l.node, Holder: holder, Err: err}
	}
	return fmt.Errorf("cannot lock node %s: %w", l.node, err)
}

// take writes the lock over what was read. A conflict is the API server's.
func (l *Lock) take(ctx context.Context, lease *coordinationv1.Lease) error {
	begun := time.Now()
	absent := lease == nil
	if absent {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName(l.node), Namespace: l.store.namespace}}
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[NodeAnnotation] = l.node
	spec := &lease.Spec
	if !absent {
		spec.LeaseTransitions = ptr.To(ptr.Deref(spec.LeaseTransitions, 0) + 1)
	}
	spec.HolderIdentity = ptr.To(l.holder)
	spec.LeaseDurationSeconds = ptr.To(int32((l.duration + time.Second - 1) / time.Second))
	spec.RenewTime = later(spec.RenewTime)
	spec.AcquireTime = ptr.To(*spec.RenewTime)
	var err error
	leases := l.store.client.Leases(l.store.namespace)
	if absent {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if apierrors.IsNotFound(err) {
		if absent {
			return l.store.explain("write", l.node, err)
		}
		return apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, err)
	}
	if err == nil {
		l.mu.Lock()
		l.renewed = begun
		l.mu.Unlock()
	}
	return err
}

// later than the last one, so that a renewal always shows.
func later(last *metav1.MicroTime) *metav1.MicroTime {
	t := time.Now().UTC().Truncate(time.Microsecond)
	if last != nil && !t.After(last.Time) {
		t = last.Add(time.Microsecond)
	}
	return &metav1.MicroTime{Time: t}
}

// Held asks live whether the lock is still ours, and renews it in the same
// compare-and-swap: after a nil error nobody else can have it for its duration.
// ErrLockLost: it is another one's; any other error: nobody can tell.
func (l *Lock) Held(ctx context.Context) error { return l.renew(ctx) }

func (l *Lock) renew(ctx context.Context) error {
	for {
		begun := time.Now()
		lease, err := l.store.lease(ctx, l.node)
		if err != nil {
			return err
		}
		if err := l.ours(lease); err != nil {
			return err
		}
		lease.Spec.RenewTime = later(lease.Spec.RenewTime)
		_, err = l.store.client.Leases(l.store.namespace).Update(ctx, lease, metav1.UpdateOptions{})
		switch {
		case err == nil:
			l.mu.Lock()
			l.renewed = begun
			l.mu.Unlock()
			return nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			if err := sleep(ctx, wait.Jitter(5*time.Millisecond, 1)); err != nil {
				return l.store.explain("write", l.node, err)
			}
		default:
			return l.store.explain("write", l.node, err)
		}
	}
}

// ours is an error unless the Lease, read live, names us as its holder. Once lost, always lost.
func (l *Lock) ours(lease *coordinationv1.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
	case lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") != l.holder:
		l.endLocked()
	default:
		return nil
	}
	if lease == nil {
		return fmt.Errorf("%w: its Lease %s/%s is gone", ErrLockLost, l.store.namespace, LeaseName(l.node))
	}
	return fmt.Errorf("%w: its holder is %q", ErrLockLost, ptr.Deref(lease.Spec.HolderIdentity, ""))
}

func (l *Lock) endLocked() {
	if !l.over {
		l.over = true
		close(l.lost)
	}
}

// keep renews the lock, and says that it is lost once it may be another one's.
func (l *Lock) keep(ctx context.Context) {
	defer close(l.done)
	for {
		if sleep(ctx, l.duration/4) != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, l.duration/4)
		err := l.renew(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		if err != nil && time.Since(l.renewed) >= l.duration/2+l.duration/4 {
			// It can run out before the next renewal is over.
			l.endLocked()
		}
		over := l.over
		l.mu.Unlock()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot renew the lock of the node's record", "node", l.node, "lost", over)
		}
		if over {
			return
		}
	}
}

// Lost is closed when the lock is known to be another one's, or could not be
// renewed and is about to run out.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Update is Store.Update, written only while the lock is ours: both are one
// compare-and-swap. ErrLockLost: nothing was written.
func (l *Lock) Update(ctx context.Context, change func(*Record) (bool, error)) (*Record, error) {
	return l.store.update(ctx, l.node, l.ours, change)
}

// Release lets the lock go at once. An error leaves it to run out.
func (l *Lock) Release(ctx context.Context) error {
	l.Abandon()
	for {
		lease, err := l.store.lease(ctx, l.node)
		if err != nil {
			return err
		}
		if lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") != l.holder {
			return nil
		}
		lease.Spec.HolderIdentity = nil
		lease.Spec.RenewTime = later(lease.Spec.RenewTime)
		_, err = l.store.client.Leases(l.store.namespace).Update(ctx, lease, metav1.UpdateOptions{})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return l.store.explain("write", l.node, err)
		}
		if err := sleep(ctx, wait.Jitter(5*time.Millisecond, 1)); err != nil {
			return l.store.explain("write", l.node, err)
		}
	}
}

// Abandon stops renewing and leaves the lock to run out, as the death of this
// process would.
func (l *Lock) Abandon() {
	l.stop()
	<-l.done
	l.mu.Lock()
	l.endLocked()
	l.mu.Unlock()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
