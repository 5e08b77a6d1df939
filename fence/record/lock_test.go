package record_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

const term = 20 * time.Second

func lockTest(t *testing.T, test func(t *testing.T, server *leasetest.Server, s *record.Store)) {
	synctest.Test(t, func(t *testing.T) {
		server := leasetest.NewInMemory(t, ns)
		test(t, server, record.NewStore(server.Client().CoordinationV1(), ns))
	})
}

func lock(t *testing.T, s *record.Store, identity string) *record.Lock {
	t.Helper()
	l, err := s.Lock(t.Context(), "n1", identity, term)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t *testing.T, l *record.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func holder(server *leasetest.Server) string {
	lease := server.Lease(ns, record.LeaseName("n1"))
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

func TestALockThatIsRenewedIsNeverTaken(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		first := lock(t, s, "a")
		ctx, cancel := context.WithTimeout(t.Context(), 10*term)
		defer cancel()
		_, err := s.Lock(ctx, "n1", "b", term)
		var locked *record.LockedError
		if !errors.As(err, &locked) || !strings.HasPrefix(locked.Holder, "a_") || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		if err := first.Held(t.Context()); err != nil {
			t.Fatal(err)
		}
		release(t, first)
	})
}

func TestALockIsTakenOnlyAfterItWasWatchedUnchangedForItsDuration(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		first := lock(t, s, "a")
		time.Sleep(3 * term / 2) // renewed meanwhile
		first.Abandon()
		begun := time.Now()
		second := lock(t, s, "b")
		if waited := time.Since(begun); waited < term || waited > term+5*time.Second {
			t.Errorf("taken after %s, the duration is %s", waited, term)
		}
		if err := first.Held(t.Context()); !errors.Is(err, record.ErrLockLost) {
			t.Errorf("the first one: %v", err)
		}
		if got := *server.Lease(ns, record.LeaseName("n1")).Spec.LeaseTransitions; got != 1 {
			t.Errorf("%d transitions", got)
		}
		release(t, second)
	})
}

func TestTheClockThatALockWasWrittenByDoesNotMatter(t *testing.T) {
	for name, renewed := range map[string]time.Duration{"an hour ago": -time.Hour, "in an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
				server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1")},
					Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("x"), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: time.Now().Add(renewed)}}})
				begun := time.Now()
				l := lock(t, s, "a")
				// The holder's own duration, not ours.
				if waited := time.Since(begun); waited < 40*time.Second || waited > 45*time.Second {
					t.Errorf("taken after %s", waited)
				}
				release(t, l)
			})
		})
	}
}

func TestAnotherWritersUpdateIsNoRenewalAndDoesNotBreakTheLock(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		l := lock(t, s, "a")
		confirm(t, s, "n1", "c1")
		server.BeforeNextWrite(func() { confirm(t, s, "n1", "c2") })
		if err := l.Held(t.Context()); err != nil {
			t.Fatal(err)
		}
		server.BeforeNextWrite(func() {
			if err := l.Held(t.Context()); err != nil {
				t.Error(err)
			}
		})
		confirm(t, s, "n1", "c3")
		if r := get(t, s, "n1"); len(r.Confirmations) != 3 {
			t.Errorf("%d confirmations", len(r.Confirmations))
		}
		if !strings.HasPrefix(holder(server), "a_") {
			t.Errorf("the holder is %q", holder(server))
		}
		l.Abandon()
		done := make(chan struct{})
		go func() { // somebody writes claims all the time
			for i := range 40 {
				confirm(t, s, "n1", string(rune('a'+i)))
				time.Sleep(time.Second)
			}
			close(done)
		}()
		begun := time.Now()
		second := lock(t, s, "b")
		if waited := time.Since(begun); waited > term+5*time.Second {
			t.Errorf("a dead holder's lock was taken after %s only", waited)
		}
		<-done
		release(t, second)
	})
}

func TestAReleasedLockIsFreeAtOnceAndKeepsTheRecord(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		first := lock(t, s, "a")
		confirm(t, s, "n1", "c1")
		release(t, first)
		begun := time.Now()
		second := lock(t, s, "a")
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("waited %s", waited)
		}
		if err := first.Release(t.Context()); err != nil || !strings.HasPrefix(holder(server), "a_") {
			t.Errorf("a second Release let the other one's lock go: %v", err)
		}
		release(t, second)
		get(t, s, "n1")
	})
}

func TestOneIdentityExcludesItselfToo(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		var in, locks atomic.Int32
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				l := lock(t, s, "a")
				if in.Add(1) > 1 {
					t.Error("two have the lock")
				}
				time.Sleep(2 * term)
				in.Add(-1)
				locks.Add(1)
				release(t, l)
			})
		}
		wg.Wait()
		if locks.Load() != 5 {
			t.Errorf("%d locks", locks.Load())
		}
	})
}

func TestALockThatCannotBeRenewedIsLostBeforeAnotherCanTakeIt(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		l := lock(t, s, "a")
		begun := time.Now()
		server.SetDown(true)
		<-l.Lost()
		if waited := time.Since(begun); waited >= term {
			t.Errorf("lost after %s, another one can have it after %s", waited, term)
		}
		server.SetDown(false)
		if err := l.Held(t.Context()); !errors.Is(err, record.ErrLockLost) {
			t.Errorf("held again: %v", err)
		}
		l.Abandon()
	})
}

func TestNothingIsWrittenUnderALostLock(t *testing.T) {
	for name, lose := range map[string]func(*leasetest.Server){
		"taken": func(server *leasetest.Server) {
			lease := server.Lease(ns, record.LeaseName("n1"))
			lease.Spec.HolderIdentity = ptr.To("thief")
			server.Put(lease)
		},
		"deleted": func(server *leasetest.Server) { server.Delete(ns, record.LeaseName("n1")) },
	} {
		t.Run(name, func(t *testing.T) {
			lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
				l := lock(t, s, "a")
				server.BeforeNextWrite(func() { lose(server) }) // between its read and its write
				_, err := l.Update(t.Context(), func(r *record.Record) (bool, error) {
					r.PutFence(record.Fence{ID: "f1", Kind: "PowerReading", Machine: record.FencedMachine{NodeUID: "u1"}, Phase: record.Fencing, Actor: "a"}, "Fence")
					return true, nil
				})
				if !errors.Is(err, record.ErrLockLost) {
					t.Fatalf("error %v", err)
				}
				if r, err := s.Get(t.Context(), "n1"); r.FenceByID("f1") != nil || err != nil {
					t.Fatalf("written: %+v, %v", r, err)
				}
				if err := l.Held(t.Context()); !errors.Is(err, record.ErrLockLost) {
					t.Fatalf("Held: %v", err)
				}
				l.Abandon()
			})
		})
	}
}

func TestALockNeedsTheAPIServer(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		server.SetDown(true)
		if _, err := s.Lock(t.Context(), "n1", "a", term); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Fatalf("error %v", err)
		}
	})
}
