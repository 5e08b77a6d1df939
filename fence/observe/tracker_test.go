package observe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

const suspectAfter = 15 * time.Second

// tracked runs f in a bubble of fake time with a running Tracker.
func tracked(t *testing.T, maxUnhealthy float64, f func(t *testing.T, tr *Tracker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(suspectAfter, maxUnhealthy)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go tr.Run(ctx)
		f(t, tr)
	})
}

// after lets time pass and the heartbeat of that moment run.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// leaseOf is a kubelet's lease of 40 s.
func leaseOf(node, version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: version}}
}

func expect(t *testing.T, tr *Tracker, node, version string, want fence.Liveness) {
	t.Helper()
	if got := tr.Judge(node, leaseOf(node, version), true, false); got != want {
		t.Fatalf("node %s with lease version %s is %s, want %s", node, version, got, want)
	}
}

func TestFirstSightOfALeaseIsNoSignOfLife(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "7"))
		expect(t, tr, "n1", "7", fence.Unwatched)
		after(suspectAfter - time.Second)
		expect(t, tr, "n1", "7", fence.Unwatched)
		after(time.Second)
		expect(t, tr, "n1", "7", fence.Stale)
	})
}

func TestALeaseSaysItselfHowLongItMayBeUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(0, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go tr.Run(ctx)
		leases := map[string]*coordinationv1.Lease{}
		for node, seconds := range map[string]int32{"edge": 120, "quick": 24, "hasty": -1, "never": math.MaxInt32} {
			leases[node] = leaseOf(node, "1")
			leases[node].Spec.LeaseDurationSeconds = &seconds
		}
		leases["says nothing"] = leaseOf("says nothing", "1")
		for _, l := range leases {
			tr.Observe(l)
		}
		begun := time.Now()
		for _, turn := range []struct {
			at   time.Duration
			node string
		}{{10 * time.Second, "hasty"}, {11 * time.Second, "quick"}, {15 * time.Second, "says nothing"}, {35 * time.Second, "edge"}, {10 * time.Minute, "never"}} {
			after(turn.at - time.Millisecond - time.Since(begun))
			if _, silent := tr.Silent(turn.node); silent {
				t.Errorf("%s is silent before %s", turn.node, turn.at)
			}
			if _, suspect, _ := tr.Unchanged(turn.node); suspect {
				t.Errorf("%s is suspect before %s", turn.node, turn.at)
			}
			after(time.Millisecond)
			if _, silent := tr.Silent(turn.node); !silent {
				t.Errorf("%s is not silent after %s", turn.node, turn.at)
			}
			if got := tr.Judge(turn.node, leases[turn.node], true, true); got != fence.Stale {
				t.Errorf("%s is %s after %s", turn.node, got, turn.at)
			}
			if _, suspect, _ := tr.Unchanged(turn.node); !suspect {
				t.Errorf("%s is not suspect after %s", turn.node, turn.at)
			}
		}
	})
}

func TestAKubeletThatIsToldAnotherDurationIsHeldAgainstThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(0, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go tr.Run(ctx)
		tr.Observe(leaseOf("n1", "1"))
		next, seconds := leaseOf("n1", "2"), int32(120)
		next.Spec.LeaseDurationSeconds = &seconds
		tr.Observe(next)
		after(suspectAfter + 10*time.Second)
		if got := tr.Judge("n1", next, true, true); got != fence.Alive {
			t.Errorf("25 s after a renewal that is for 120 s: %s", got)
		}
		after(10 * time.Second)
		if got := tr.Judge("n1", next, true, true); got != fence.Stale {
			t.Errorf("35 s after it: %s", got)
		}
	})
}

func TestWhatIsConfiguredIsStrongerThanALease(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		l, seconds := leaseOf("n1", "1"), int32(120)
		l.Spec.LeaseDurationSeconds = &seconds
		tr.Observe(l)
		after(suspectAfter)
		if got := tr.Judge("n1", l, true, true); got != fence.Stale {
			t.Errorf("after the configured %s: %s", suspectAfter, got)
		}
	})
}

// writtenLease is one that the API server last wrote then.
func writtenLease(node, version string, at time.Time) *coordinationv1.Lease {
	l := leaseOf(node, version)
	l.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}, {Manager: "kubelet", Time: &metav1.Time{Time: at}}, {Manager: "long ago", Time: &metav1.Time{Time: time.Unix(0, 0)}}}
	return l
}

func TestANodeIsOverdueByTheAPIServersClockFromTheStart(t *testing.T) {
	then := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the API server's clock is its own
	for name, tt := range map[string]struct {
		age  time.Duration
		want bool
	}{"just due": {suspectAfter, false}, "overdue": {suspectAfter + time.Second, true}, "long": {overdueFor - time.Second, true}, "for too long": {overdueFor, false}, "newest": {0, false}} {
		t.Run(name, func(t *testing.T) {
			tracked(t, 1, func(t *testing.T, tr *Tracker) {
				tr.Observe(writtenLease("old", "1", then.Add(-tt.age)))
				tr.Observe(writtenLease("new", "2", then))
				tr.Observe(leaseOf("unstamped", "3"))
				after(time.Second)
				if got := tr.Overdue("old"); got != tt.want {
					t.Errorf("a lease that was written %s before another is overdue: %v", tt.age, got)
				}
				if tr.Overdue("new") || tr.Overdue("unstamped") || tr.Overdue("unknown") {
					t.Error("one that is the newest, has no stamp or was never seen is overdue")
				}
				if _, silent := tr.Silent("old"); silent {
					t.Error("it was not watched, and is silent")
				}
			})
		})
	}
}

func TestANodeThatRenewsOrHasNoLeaseIsNotOverdue(t *testing.T) {
	then := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		for _, n := range []string{"behind", "gone", "dead"} {
			tr.Observe(writtenLease(n, "1", then.Add(-time.Minute)))
		}
		tr.Observe(writtenLease("new", "2", then))
		after(time.Second)
		if !tr.Overdue("behind") || !tr.Overdue("gone") || !tr.Overdue("dead") {
			t.Fatal("one of them is not overdue")
		}
		tr.Observe(writtenLease("behind", "3", then.Add(-30*time.Second))) // by another API server's clock
		tr.Absent("gone")
		after(time.Second)
		if tr.Overdue("behind") || tr.Overdue("gone") || !tr.Overdue("dead") {
			t.Errorf("overdue: one that was just seen to renew %v, one without a lease %v, and the dead one %v", tr.Overdue("behind"), tr.Overdue("gone"), tr.Overdue("dead"))
		}
	})
}

func TestWhereTooManyWouldBeOverdueNoneIs(t *testing.T) {
	then := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	tracked(t, 0.4, func(t *testing.T, tr *Tracker) {
		for i, age := range []time.Duration{0, 0, 0, time.Minute, time.Minute} {
			tr.Observe(writtenLease(fmt.Sprint("n", i), "1", then.Add(-age)))
		}
		after(time.Second)
		if !tr.Overdue("n3") || !tr.Overdue("n4") {
			t.Error("two of five, which is the share, are not overdue")
		}
		// Whoever writes leases can write any stamp.
		tr.Observe(writtenLease("n0", "2", then.AddDate(100, 0, 0)))
		after(time.Second)
		for i := range 5 {
			if tr.Overdue(fmt.Sprint("n", i)) {
				t.Errorf("n%d is overdue where all would be", i)
			}
		}
	})
}

// After an outage of the API server each is that has not renewed its lease yet, and in a large
// cluster these are fewer than the share long before they are few.
func TestAfterAnOutageNoCrowdOfLivingNodesIsOverdue(t *testing.T) {
	back := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	tracked(t, 0.4, func(t *testing.T, tr *Tracker) {
		const nodes = 100
		for i := range nodes {
			tr.Observe(writtenLease(fmt.Sprint("n", i), "1", back.Add(-time.Minute)))
		}
		for i := range nodes {
			tr.Observe(writtenLease(fmt.Sprint("n", i), "2", back.Add(time.Duration(i)*100*time.Millisecond)))
			after(500 * time.Millisecond) // so that each heartbeat sees one more
			overdue := 0
			for j := range nodes {
				if tr.Overdue(fmt.Sprint("n", j)) {
					overdue++
				}
			}
			if overdue > overdueMost {
				t.Fatalf("%d are overdue once %d have renewed", overdue, i+1)
			}
		}
	})
}

func TestFirstSightMayBeTheLiveRead(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		expect(t, tr, "n1", "7", fence.Unwatched)
		after(suspectAfter)
		expect(t, tr, "n1", "7", fence.Stale)
	})
}

func TestAChangedVersionIsAliveForSuspectAfterAndThenStale(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "7"))
		after(3 * time.Second)
		tr.Observe(leaseOf("n1", "8"))
		expect(t, tr, "n1", "8", fence.Alive)
		after(suspectAfter - time.Millisecond)
		expect(t, tr, "n1", "8", fence.Alive)
		after(time.Millisecond)
		expect(t, tr, "n1", "8", fence.Stale)
	})
}

func TestARenewedLeaseIsNeverStale(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "0"))
		for i := 1; i <= 60; i++ {
			after(10 * time.Second)
			tr.Observe(leaseOf("n1", fmt.Sprint(i)))
			expect(t, tr, "n1", fmt.Sprint(i), fence.Alive)
		}
	})
}

func TestALiveReadThatDiffersIsAChangeSeenNow(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "7"))
		after(time.Minute)
		// The watch is stuck; the live read is not.
		expect(t, tr, "n1", "9", fence.Alive)
		after(suspectAfter)
		expect(t, tr, "n1", "9", fence.Stale)
	})
}

func TestALowerVersionIsAChangeToo(t *testing.T) {
	// After etcd is restored from a backup, versions begin again lower down.
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "900"))
		after(time.Minute)
		expect(t, tr, "n1", "12", fence.Alive)
	})
}

func TestResetLetsEveryAgeBeginAnew(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("dead", "1"))
		tr.Observe(leaseOf("living", "1"))
		after(20 * time.Second)
		tr.Observe(leaseOf("living", "2"))
		after(2 * time.Second)
		expect(t, tr, "dead", "1", fence.Stale)

		tr.Reset("the API server was away")
		expect(t, tr, "dead", "1", fence.Unwatched)
		expect(t, tr, "living", "2", fence.Alive)

		after(13 * time.Second) // 15 s after living's change
		expect(t, tr, "living", "2", fence.Unwatched)
		after(2 * time.Second)
		expect(t, tr, "dead", "1", fence.Stale)
		expect(t, tr, "living", "2", fence.Stale)
	})
}

func TestSilentIsWhatWasWatchedForLongEnough(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		silent := func(node, want string) {
			t.Helper()
			if version, ok := tr.Silent(node); version != want || ok != (want != "") {
				t.Errorf("node %s: version %q, silent %v; want %q", node, version, ok, want)
			}
		}
		tr.Observe(leaseOf("n1", "1"))
		tr.Absent("n2")
		after(suspectAfter - time.Second)
		silent("n1", "")
		after(time.Second)
		silent("n1", "1")
		silent("n2", "")
		silent("n3", "")
		tr.Observe(leaseOf("n1", "2"))
		silent("n1", "")
		after(suspectAfter)
		silent("n1", "2")
		tr.Absent("n1")
		silent("n1", "")
	})
}

func TestForgottenNodeIsAFirstSightAgain(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "1"))
		after(suspectAfter)
		expect(t, tr, "n1", "1", fence.Stale)
		tr.Forget("n1")
		if _, _, ok := tr.Unchanged("n1"); ok {
			t.Fatal("a forgotten node has an age")
		}
		expect(t, tr, "n1", "2", fence.Unwatched)
	})
}

func TestWithoutNodeOrLeaseANodeIsUnknownUnlessReady(t *testing.T) {
	tests := []struct {
		name               string
		lease, node, ready bool
		want               fence.Liveness
	}{
		{name: "no Node, no lease", want: fence.Unknown},
		{name: "no Node, a lease left behind", lease: true, want: fence.Unknown},
		{name: "registered, Ready, no lease yet", node: true, ready: true, want: fence.Alive},
		{name: "not Ready, no lease", node: true, want: fence.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tracked(t, 1, func(t *testing.T, tr *Tracker) {
				var lease *coordinationv1.Lease
				if tt.lease {
					lease = leaseOf("n1", "")
				}
				for range 2 { // at once, and after any wait
					if got := tr.Judge("n1", lease, tt.node, tt.ready); got != tt.want {
						t.Fatalf("got %s, want %s", got, tt.want)
					}
					after(time.Minute)
				}
			})
		})
	}
}

func TestADeletedLeaseOfALivingNodeLeavesItAliveForSuspectAfter(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "1"))
		tr.Observe(leaseOf("n1", "2"))
		tr.Absent("n1")
		if got := tr.Judge("n1", nil, true, false); got != fence.Alive {
			t.Fatalf("a node seen to live a moment ago is %s", got)
		}
		after(suspectAfter)
		if got := tr.Judge("n1", nil, true, false); got != fence.Unknown {
			t.Fatalf("a node that is not Ready and has no lease is %s", got)
		}
		// Its kubelet creates the lease again.
		tr.Observe(leaseOf("n1", "9"))
		expect(t, tr, "n1", "9", fence.Alive)
	})
}

func TestStaleIsToldOncePerStretch(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		var mu sync.Mutex
		var told []string
		tr.OnStale(func(node string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, node)
		})
		expectTold := func(want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Fatalf("told of %v, want %v", told, want)
			}
		}
		tr.Observe(leaseOf("b", "1"))
		tr.Observe(leaseOf("a", "1"))
		tr.Absent("gone")
		after(suspectAfter - period)
		expectTold()
		after(2 * period)
		expectTold("a", "b")
		after(time.Minute)
		expectTold("a", "b")
		tr.Observe(leaseOf("b", "2"))
		after(time.Minute)
		expectTold("a", "b", "b")
		tr.Reset("test")
		after(time.Minute)
		expectTold("a", "b", "b", "a", "b")
	})
}

func TestASuspendedProcessJudgesNobody(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "1"))
		after(10 * time.Second)
		// The heartbeat is what a suspension stops, so let it be old.
		suspend(tr, time.Minute)
		expect(t, tr, "n1", "1", fence.Unwatched)
		after(suspectAfter)
		expect(t, tr, "n1", "1", fence.Stale)
	})
}

// suspend makes it look as if the last heartbeat were d ago on both clocks, and
// the leases as old.
func suspend(tr *Tracker, d time.Duration) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.beat.at = tr.beat.at.Add(-d)
	tr.beat.wallAt = tr.beat.wallAt.Add(-d)
	for _, l := range tr.leases {
		l.since = l.since.Add(-d)
	}
}

func TestTheFirstCallAfterASuspensionComesBeforeTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(suspectAfter, 1)
		tr.Observe(leaseOf("n1", "1"))
		// No Run: the heartbeat stands still while the clock runs on.
		time.Sleep(time.Hour)
		expect(t, tr, "n1", "1", fence.Unwatched)
		if storm, _ := tr.Storm(); storm {
			t.Fatal("a suspension looks like a storm")
		}
	})
}

func TestAPausedMachineIsSeenOnTheWallClock(t *testing.T) {
	for _, jump := range []time.Duration{time.Minute, -time.Minute} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := NewTracker(suspectAfter, 1)
				var mu sync.Mutex
				var offset time.Duration
				tr.beat.wall = func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return wallClock().Add(offset)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go tr.Run(ctx)
				tr.Observe(leaseOf("n1", "1"))
				after(20 * time.Second)
				expect(t, tr, "n1", "1", fence.Stale)

				mu.Lock()
				offset = jump
				mu.Unlock()
				expect(t, tr, "n1", "1", fence.Unwatched)
				after(suspectAfter)
				expect(t, tr, "n1", "1", fence.Stale)
			})
		})
	}
}

func TestAShortHiccupIsNoSuspension(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "1"))
		after(suspectAfter)
		tr.mu.Lock()
		tr.beat.at = tr.beat.at.Add(-maxGap + period)
		tr.beat.wallAt = tr.beat.wallAt.Add(-maxGap + period)
		tr.mu.Unlock()
		expect(t, tr, "n1", "1", fence.Stale)
	})
}

// seeNodes lets n leases be seen.
func seeNodes(tr *Tracker, n int) {
	for i := range n {
		tr.Observe(leaseOf(fmt.Sprint("n", i), "1"))
	}
}

// renewAllBut renews the leases of n nodes but the first few.
func renewAllBut(tr *Tracker, n, few int) {
	for i := few; i < n; i++ {
		l, _, _ := tr.Unchanged(fmt.Sprint("n", i))
		tr.Observe(leaseOf(fmt.Sprint("n", i), fmt.Sprint("v", time.Now().UnixNano(), l)))
	}
}

func TestStormFromThreeNodesOnAboveTheShare(t *testing.T) {
	tests := []struct {
		watched, stale int
		share          float64
		want           bool
	}{
		{1, 1, 0.4, false},
		{2, 2, 0.4, false},
		{3, 1, 0.4, false},
		{3, 2, 0.4, true},
		{5, 2, 0.4, false}, // exactly the share
		{5, 3, 0.4, true},
		{100, 29, 0.29, false},
		{100, 30, 0.29, true},
		{10, 10, 1, false},
		{3, 1, 0, true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d of %d stale, share %v", tt.stale, tt.watched, tt.share), func(t *testing.T) {
			tracked(t, tt.share, func(t *testing.T, tr *Tracker) {
				seeNodes(tr, tt.watched)
				tr.Absent("no lease, not counted")
				after(suspectAfter)
				renewAllBut(tr, tt.watched, tt.stale)
				storm, text := tr.Storm()
				if storm != tt.want {
					t.Fatalf("storm is %v (%s), want %v", storm, text, tt.want)
				}
				if want := fmt.Sprintf("%d of %d", tt.stale, tt.watched); storm && !strings.Contains(text, want) {
					t.Fatalf("text %q does not say %q", text, want)
				}
			})
		})
	}
}

func TestAfterAStormEveryAgeBeginsAnew(t *testing.T) {
	tracked(t, 0.4, func(t *testing.T, tr *Tracker) {
		seeNodes(tr, 5)
		after(suspectAfter)
		renewAllBut(tr, 5, 3)
		if storm, _ := tr.Storm(); !storm {
			t.Fatal("3 of 5 stale nodes are no storm")
		}
		expect(t, tr, "n0", "1", fence.Stale)
		renewAllBut(tr, 5, 2) // one comes back: 2 of 5 are not more than 40%
		after(period)
		expect(t, tr, "n0", "1", fence.Unwatched)
		if storm, text := tr.Storm(); storm {
			t.Fatalf("the storm is not over: %s", text)
		}
		after(suspectAfter - period - time.Second)
		renewAllBut(tr, 5, 2)
		expect(t, tr, "n0", "1", fence.Unwatched)
		after(time.Second + period)
		expect(t, tr, "n0", "1", fence.Stale)
	})
}

func TestTheTrackerIsSafeForConcurrentUse(t *testing.T) {
	tr := NewTracker(time.Millisecond, 0.4)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); tr.Run(ctx) }()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			node := fmt.Sprint("n", worker)
			for i := range 200 {
				tr.Observe(leaseOf(node, fmt.Sprint(i)))
				tr.Judge(node, leaseOf(node, fmt.Sprint(i)), true, true)
				tr.Storm()
				tr.Absent(node)
				tr.Reset("test")
				tr.Forget(node)
			}
		})
	}
	wg.Wait()
	cancel()
	<-done
}

func TestALeaseIsSteadyOnceItWasRenewedForLongWithoutABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, version := NewTracker(time.Minute, 1), 0
		renew := func(every time.Duration, times int) {
			for range times {
				time.Sleep(every)
				version++
				tr.nowLocked() // as the heartbeat does, so that no pause is seen
				tr.beat.strike(time.Now())
				tr.Observe(leaseOf("n", fmt.Sprint(version)))
			}
		}
		want := func(what string, want bool) {
			t.Helper()
			if got := tr.Steady("n", SyncTime); got != want {
				t.Errorf("%s: %v", what, got)
			}
		}
		want("never seen", false)
		renew(4*time.Second, 2)
		want("seen to change once", false)
		renew(4*time.Second, 18)
		want("72 s later", false)
		renew(4*time.Second, 1)
		want("76 s later", true)
		for range 4 {
			time.Sleep(4 * time.Second)
			tr.beat.strike(time.Now())
		}
		want("a break of 16 s", true)
		time.Sleep(4500 * time.Millisecond)
		tr.beat.strike(time.Now())
		want("a break of 20.5 s", false)
		renew(time.Second, 1)
		want("renewed after it", false)
		renew(4*time.Second, 19)
		want("steady again", true)
		tr.Absent("n")
		want("without a lease", false)
		renew(4*time.Second, 10)
		want("not long after it", false)
		renew(4*time.Second, 10)
		want("long after it", true)
		tr.Reset("a watch broke")
		want("what was not watched", false)
	})
}

func TestARenewalThatWasDueIsLate(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		version := 0
		renew := func(after time.Duration) string {
			time.Sleep(after)
			version++
			tr.Observe(leaseOf("n1", fmt.Sprint(version)))
			return fmt.Sprint(version)
		}
		late := func(v string) bool { _, late := tr.Late("n1", v); return late }
		renew(0)
		renew(4 * time.Second) // how long before that it was renewed nobody has watched
		renew(10 * time.Second)
		v := renew(11 * time.Second)
		time.Sleep(14 * time.Second)
		if late(v) {
			t.Error("by two renewals it is not known when the next one is due")
		}
		v = renew(0)
		time.Sleep(16 * time.Second) // the longest was 14 s
		if late(v) {
			t.Error("late within two seconds of the longest that was watched")
		}
		time.Sleep(time.Second)
		if !late(v) {
			t.Error("not late although a renewal was due")
		}
		if late("other") {
			t.Error("a lease that has been renewed since is late")
		}
		tr.Reset("a break")
		if late(v) {
			t.Error("late after a break in the watching")
		}
		time.Sleep(17 * time.Second) // what was not watched before may have been a renewal
		if late(v) {
			t.Error("late after a break in the watching, and no renewal since")
		}
		v = renew(3 * time.Second)
		time.Sleep(17 * time.Second)
		if !late(v) {
			t.Error("a break counts as the longest time between two renewals")
		}
	})
}

func TestNothingIsLateWhileTheAPIServerIsAway(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		var away atomic.Bool
		go tr.Probe(t.Context(), func(context.Context) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		})
		for i := range 6 {
			tr.Observe(leaseOf("n1", fmt.Sprint(i)))
			time.Sleep(10 * time.Second)
		}
		away.Store(true)
		time.Sleep(2500 * time.Millisecond)
		if _, late := tr.Late("n1", "5"); late {
			t.Error("it is late, and the API server does not answer")
		}
	})
}

// A kubelet writes its lease at each start, so that one that starts again and again seems to renew
// it every few seconds.
func TestARenewalIsNotLateBeforeTheLeaseSaysSo(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		for i := range 9 {
			tr.Observe(leaseOf("n1", fmt.Sprint(i)))
			time.Sleep(3 * time.Second)
		}
		if _, late := tr.Late("n1", "8"); late {
			t.Error("late before the 10 s that a kubelet has")
		}
		time.Sleep(8500 * time.Millisecond)
		if _, late := tr.Late("n1", "8"); late {
			t.Error("late within two seconds of them")
		}
		time.Sleep(time.Second)
		if _, late := tr.Late("n1", "8"); !late {
			t.Error("not late after 12 s")
		}
	})
}

// No API server takes any, as in an outage of its writes.
func TestWhereAllAreLateNoneIs(t *testing.T) {
	tracked(t, 0.4, func(t *testing.T, tr *Tracker) {
		lives := func(names ...string) {
			for range 5 {
				for _, n := range names {
					tr.Observe(leaseOf(n, fmt.Sprint(time.Now())))
				}
				time.Sleep(10 * time.Second)
			}
		}
		late := func() bool { _, late := tr.Late("n1", tr.Version("n1")); return late }
		lives("n1", "n2", "n3", "n4", "n5")
		time.Sleep(3 * time.Second)
		if late() {
			t.Error("n1 is late, with all others")
		}
		lives("n1", "n2", "n3", "n4", "n5")
		for _, n := range []string{"n2", "n3", "n4", "n5"} {
			tr.Observe(leaseOf(n, "last"))
		}
		time.Sleep(5500 * time.Millisecond) // the longest was 13 s
		if !late() {
			t.Error("n1 alone is not late")
		}
	})
}

// A device that reads off now and then must not keep a dead node from being fenced.
func TestWhatAgentsReadBrakesAndBeginsNoAgeAnew(t *testing.T) {
	tracked(t, 0.4, func(t *testing.T, tr *Tracker) {
		for _, n := range []string{"n1", "n2", "n3"} {
			tr.Observe(leaseOf(n, "1"))
		}
		for i := range 5 {
			time.Sleep(10 * time.Second)
			for _, n := range []string{"n2", "n3"} {
				tr.Observe(leaseOf(n, fmt.Sprint(2+i)))
			}
			for _, off := range []bool{true, false} {
				tr.ReadsOff("n2", off)
				if storm, words := tr.Storm(); storm != off && i > 1 {
					t.Errorf("storm %v while n2 reads off: %v: %s", storm, off, words)
				}
			}
		}
		if age, _, _ := tr.Unchanged("n1"); age < 50*time.Second {
			t.Errorf("n1 is silent for %s", age)
		}
	})
}

func TestTheVersionOfALeaseIsTheLastThatWasSeen(t *testing.T) {
	tracked(t, 1, func(t *testing.T, tr *Tracker) {
		tr.Observe(leaseOf("n1", "7"))
		tr.Observe(leaseOf("n1", "8"))
		tr.Absent("n2")
		for node, want := range map[string]string{"n1": "8", "n2": "", "n3": ""} {
			if got := tr.Version(node); got != want {
				t.Errorf("%s: %q", node, got)
			}
		}
		tr.Absent("n1")
		if got := tr.Version("n1"); got != "" {
			t.Errorf("of a lease that was deleted: %q", got)
		}
	})
}
