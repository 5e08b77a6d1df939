package record_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
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

func TestALockThatIsWaitedForIsToldOncePerHolder(t *testing.T) {
	lockTest(t, func(t *testing.T, _ *leasetest.Server, s *record.Store) {
		var told []string
		telling := s.TellWaits(func(holder, lease string) {
			name, _, _ := strings.Cut(holder, "_")
			told = append(told, name+" by "+lease)
		})
		release(t, lock(t, telling, "z"))
		for _, who := range []string{"a", "b"} {
			other := lock(t, s, who)
			time.AfterFunc(5*term, func() { release(t, other) })
			release(t, lock(t, telling, "z"))
		}
		if lease := record.LeaseName("n1"); !slices.Equal(told, []string{"a by " + lease, "b by " + lease}) {
			t.Errorf("told were %q", told)
		}
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

// hanging is an API server that does not answer while it hangs.
type hanging struct {
	coordination.LeasesGetter
	hangs *atomic.Bool
}

func (h hanging) Leases(namespace string) coordination.LeaseInterface {
	return hangingLeases{h.LeasesGetter.Leases(namespace), h.hangs}
}

type hangingLeases struct {
	coordination.LeaseInterface
	hangs *atomic.Bool
}

func (h hangingLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.LeaseInterface.Get(ctx, name, o)
}

func TestALockWhoseRenewalHangsIsLostByTheTimeAnotherCanTakeIt(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, _ *record.Store) {
		hangs := new(atomic.Bool)
		l := lock(t, record.NewStore(hanging{server.Client().CoordinationV1(), hangs}, ns), "a")
		hangs.Store(true)
		begun := time.Now()
		<-l.Lost()
		if waited := time.Since(begun); waited > term {
			t.Errorf("lost after %s, another one can have it after %s", waited, term)
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

func TestALockNeedsAnIdentityAndASecond(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		if _, err := s.Lock(t.Context(), "n1", "", term); err == nil || !strings.Contains(err.Error(), "needs an identity") {
			t.Errorf("by nobody: %v", err)
		}
		if _, err := s.Lock(t.Context(), "n1", "a", time.Second-1); err == nil || !strings.Contains(err.Error(), "at least 1s") {
			t.Errorf("for less than a second: %v", err)
		}
		if server.Requests() != 0 {
			t.Error("the API server was asked")
		}
		l, err := s.Lock(t.Context(), "n1", "a", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		release(t, l)
	})
}

func TestALockShowsWhoseItIsAndForHowLong(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		l, err := s.Lock(t.Context(), "n1", "a", term+time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		lease := server.Lease(ns, record.LeaseName("n1"))
		// Rounded up: the others would take a shorter one too early.
		if got := *lease.Spec.LeaseDurationSeconds; got != 21 {
			t.Errorf("for %d s", got)
		}
		if !lease.Spec.AcquireTime.Equal(lease.Spec.RenewTime) || lease.Spec.LeaseTransitions != nil {
			t.Errorf("spec %+v", lease.Spec)
		}
		if got := lease.Annotations[record.NodeAnnotation]; got != "n1" {
			t.Errorf("of node %q", got)
		}
		release(t, l)
		release(t, lock(t, s, "b"))
		if lease = server.Lease(ns, record.LeaseName("n1")); *lease.Spec.LeaseDurationSeconds != 20 || *lease.Spec.LeaseTransitions != 1 {
			t.Errorf("the next one's: %+v", lease.Spec)
		}
	})
}

func TestEachRenewalShowsWhateverTheClocksSay(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		shown := time.Now().Add(time.Hour) // by a writer whose clock is ahead
		server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1")},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: shown}}})
		later := func(what string) {
			t.Helper()
			renewed := server.Lease(ns, record.LeaseName("n1")).Spec.RenewTime.Time
			if !renewed.After(shown) {
				t.Errorf("%s: renewed at %s, which is not after %s", what, renewed, shown)
			}
			shown = renewed
		}
		l := lock(t, s, "a")
		later("taken")
		if err := l.Held(t.Context()); err != nil {
			t.Fatal(err)
		}
		later("held")
		release(t, l)
		later("let go")
	})
}

func TestAHolderThatAskedForNoDurationIsWatchedForOurs(t *testing.T) {
	for name, seconds := range map[string]*int32{"none": nil, "zero": ptr.To[int32](0), "negative": ptr.To[int32](-1)} {
		t.Run(name, func(t *testing.T) {
			lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
				server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1")},
					Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("x"), LeaseDurationSeconds: seconds}})
				begun := time.Now()
				l := lock(t, s, "a")
				if waited := time.Since(begun); waited < term || waited > term+5*time.Second {
					t.Errorf("taken after %s", waited)
				}
				release(t, l)
			})
		})
	}
}

func TestWritersThatAreFasterOnlyDelayTheLock(t *testing.T) {
	for name, faster := range map[string]struct {
		exists bool
		do     func(*testing.T, *leasetest.Server, *record.Store)
	}{
		"created": {false, func(t *testing.T, _ *leasetest.Server, s *record.Store) { confirm(t, s, "n1", "c1") }},
		"changed": {true, func(t *testing.T, _ *leasetest.Server, s *record.Store) { confirm(t, s, "n1", "c1") }},
		"deleted": {true, func(_ *testing.T, server *leasetest.Server, _ *record.Store) {
			server.Delete(ns, record.LeaseName("n1"))
		}},
		"locked and let go":  {true, func(t *testing.T, _ *leasetest.Server, s *record.Store) { release(t, lock(t, s, "b")) }},
		"locked, first ever": {false, func(t *testing.T, _ *leasetest.Server, s *record.Store) { lock(t, s, "b").Abandon() }},
	} {
		t.Run(name, func(t *testing.T) {
			lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
				if faster.exists {
					confirm(t, s, "n1", "c0")
				}
				server.BeforeNextWrite(func() { faster.do(t, server, s) })
				begun := time.Now()
				l := lock(t, s, "a")
				if !strings.HasPrefix(holder(server), "a_") {
					t.Errorf("the holder is %q", holder(server))
				}
				if waited := time.Since(begun); name == "locked, first ever" != (waited >= term) {
					t.Errorf("waited %s", waited)
				}
				release(t, l)
				if name == "created" || name == "changed" {
					get(t, s, "n1") // and what they wrote is there
				}
			})
		})
	}
}

func TestALockThatIsTakenIsKnownToBeLostAtTheNextRenewal(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		l := lock(t, s, "a")
		lease := server.Lease(ns, record.LeaseName("n1"))
		lease.Spec.HolderIdentity = ptr.To("thief")
		server.Put(lease)
		begun := time.Now()
		<-l.Lost()
		if waited := time.Since(begun); waited > term/4 {
			t.Errorf("known after %s", waited)
		}
		if err := l.Release(t.Context()); err != nil || holder(server) != "thief" {
			t.Errorf("the holder is %q, %v", holder(server), err)
		}
	})
}

func TestALockOutlivesAShortAbsenceOfTheAPIServer(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		l := lock(t, s, "a")
		server.SetDown(true)
		if err := l.Held(t.Context()); err == nil || errors.Is(err, record.ErrLockLost) {
			t.Errorf("nobody can tell whose it is: %v", err)
		}
		time.Sleep(3*term/4 - time.Second)
		server.SetDown(false)
		time.Sleep(2 * term)
		select {
		case <-l.Lost():
			t.Error("it is lost")
		default:
		}
		if err := l.Held(t.Context()); err != nil {
			t.Error(err)
		}
		release(t, l)
	})
}

func TestAnAbandonedLockIsLostAtOnceAndWritesNothing(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		l := lock(t, s, "a")
		l.Abandon()
		<-l.Lost()
		writes := server.Writes()
		_, err := l.Update(t.Context(), func(r *record.Record) (bool, error) { r.Note("a", "x", "y"); return true, nil })
		if !errors.Is(err, record.ErrLockLost) {
			t.Errorf("Update: %v", err)
		}
		if err := l.Held(t.Context()); !errors.Is(err, record.ErrLockLost) {
			t.Errorf("Held: %v", err)
		}
		time.Sleep(term)
		if server.Writes() != writes {
			t.Errorf("%d writes", server.Writes()-writes)
		}
		l.Abandon() // does nothing
	})
}

func TestReleaseLetsGoWhateverOthersWrite(t *testing.T) {
	for name, faster := range map[string]func(*testing.T, *leasetest.Server, *record.Store){
		"changed": func(t *testing.T, _ *leasetest.Server, s *record.Store) { confirm(t, s, "n1", "c1") },
		"deleted": func(_ *testing.T, server *leasetest.Server, _ *record.Store) {
			server.Delete(ns, record.LeaseName("n1"))
		},
		"taken": func(_ *testing.T, server *leasetest.Server, _ *record.Store) {
			lease := server.Lease(ns, record.LeaseName("n1"))
			lease.Spec.HolderIdentity = ptr.To("thief")
			server.Put(lease)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
				l := lock(t, s, "a")
				server.BeforeNextWrite(func() { faster(t, server, s) })
				release(t, l)
				left := ""
				if server.Lease(ns, record.LeaseName("n1")) != nil {
					left = holder(server)
				}
				if name == "taken" != (left == "thief") || name != "taken" && left != "" {
					t.Errorf("the holder is %q", left)
				}
				release(t, l) // does nothing
			})
		})
	}
}

func TestWhatStandsInTheWayOfALockIsSaid(t *testing.T) {
	const record1 = "cannot write the record of node n1 (Lease csi-fencepost/node-n1): "
	update := func(l *record.Lock) error {
		_, err := l.Update(context.Background(), func(r *record.Record) (bool, error) { r.Note("a", "x", "y"); return true, nil })
		return err
	}
	for name, tt := range map[string]struct {
		forbid string
		do     func(*record.Lock) error
		says   string
	}{
		"read":      {"get", func(l *record.Lock) error { return l.Held(context.Background()) }, "cannot read the record of node n1"},
		"renew":     {"update", func(l *record.Lock) error { return l.Held(context.Background()) }, record1},
		"write":     {"update", update, record1},
		"let go":    {"update", func(l *record.Lock) error { return l.Release(context.Background()) }, record1},
		"ask whose": {"get", func(l *record.Lock) error { return l.Release(context.Background()) }, "cannot read the record of node n1"},
	} {
		t.Run(name, func(t *testing.T) {
			lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
				l := lock(t, s, "a")
				server.Forbid(tt.forbid)
				if err := tt.do(l); err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "forbidden") {
					t.Errorf("error %v", err)
				}
				l.Abandon()
			})
		})
	}
	t.Run("take", func(t *testing.T) {
		lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
			for _, verb := range []string{"get", "create"} {
				server.Forbid(verb)
				if _, err := s.Lock(t.Context(), "n1", "a", term); err == nil || !strings.Contains(err.Error(), "cannot lock node n1") || !strings.Contains(err.Error(), "forbidden") {
					t.Errorf("error %v", err)
				}
			}
		})
	})
	t.Run("no namespace", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := record.NewStore(leasetest.NewInMemory(t).Client().CoordinationV1(), ns)
			if _, err := s.Lock(t.Context(), "n1", "a", term); err == nil || !strings.Contains(err.Error(), "kubectl create namespace csi-fencepost") {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("its holder", func(t *testing.T) {
		lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
			l := lock(t, s, "a")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Lock(ctx, "n1", "b", term); err == nil || !strings.Contains(err.Error(), "node n1 is locked by "+holder(server)) {
				t.Errorf("error %v", err)
			}
			go func() { time.Sleep(term); server.SetDown(true) }()
			var locked *record.LockedError
			if _, err := s.Lock(t.Context(), "n1", "b", term); err == nil || errors.As(err, &locked) || !strings.Contains(err.Error(), "cannot lock node n1") {
				t.Errorf("without the API server: %v", err)
			}
			l.Abandon()
		})
	})
}

func TestALockNeedsTheAPIServer(t *testing.T) {
	lockTest(t, func(t *testing.T, server *leasetest.Server, s *record.Store) {
		server.SetDown(true)
		if _, err := s.Lock(t.Context(), "n1", "a", term); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Fatalf("error %v", err)
		}
	})
}
