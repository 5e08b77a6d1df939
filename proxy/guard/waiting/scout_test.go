package waiting

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// agents are a source whose word nobody announces: asked how often, off or not,
// and how long the first question takes.
type agents struct {
	asked atomic.Int32
	off   atomic.Bool
	first atomic.Int64
}

func (*agents) Name() string { return "agents" }

func (a *agents) Evidence(ctx context.Context, q evidence.Question) ([]fence.Evidence, error) {
	if q.Holder.NodeID != guardrig.ID("old") {
		return nil, nil
	}
	a.asked.Add(1)
	time.Sleep(time.Duration(a.first.Swap(0)))
	if !a.off.Load() {
		return nil, nil
	}
	return guardrig.Says{fence.PowerReading}.Evidence(ctx, q)
}

// stale is a volume on node old, which is silent, with a publish to next and the
// unpublish of old refused for it.
func stale(t *testing.T, a *agents) *waiting {
	t.Helper()
	r := guardrig.Dead(t)
	r.Attachment("next", time.Time{})
	r.Guard.Surveyor.Sources = []evidence.Source{a}
	w := newWaiting(t, r)
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "[HolderStale]")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "[HolderStale]")
	w.waits(fence.HolderStale, fence.HolderStale)
	return w
}

// foundOut: nobody is woken while nothing changes, and both calls are soon after what ends their
// refusals, of which no event tells.
func (w *waiting) foundOut(ends *atomic.Bool) {
	w.T.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	w.wokenBy(ends)
}

func (w *waiting) wokenBy(ends *atomic.Bool) {
	w.T.Helper()
	if w.touched("next") != "" || w.touched("old") != "" {
		w.T.Error("woken although nothing has changed")
	}
	ends.Store(true)
	time.Sleep(scoutMost + time.Second)
	synctest.Wait()
	if w.touched("next") == "" || w.touched("old") == "" {
		w.T.Errorf("%v later not both are woken: next %q, old %q", scoutMost, w.touched("next"), w.touched("old"))
	}
}

// What a fence agent would read sends no event: without failover nobody asks it.
func TestASilentNodeThatWasSwitchedOffIsFoundOutWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{}
		w := stale(t, a)
		before := a.asked.Load()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// After 1, 3, 7, 15 and 31 s, then every 30 s, for both calls together.
		if looks := a.asked.Load() - before; looks < 20 || looks > 25 {
			t.Errorf("looked at %d times in ten minutes, want about 23", looks)
		}
		w.wokenBy(&a.off)
	})
}

// An autoscaler deletes the Node, and then ends the machine.
func TestAMachineWhoseNodeIsGoneAndThatIsSwitchedOffIsFoundOutWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{}
		w := stale(t, a)
		w.Must(w.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		w.Lives["old"] = fence.Unknown
		w.Refused(w.PublishTo("next"), codes.FailedPrecondition, "[HolderUnknown]")
		w.Refused(w.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "[HolderUnknown]")
		w.foundOut(&a.off)
	})
}

// oneKubelet is that of node old, which can be reached or not, and may be another process.
type oneKubelet struct {
	reached atomic.Bool
	another bool
	seen    *fence.Process
}

var ranBefore = fence.Process{Start: 1000, CPU: 1, Key: "key"}

func (k *oneKubelet) Seen(string, string, string) *fence.Process { return k.seen }

func (k *oneKubelet) Ask(context.Context, *corev1.Node, string) (*kubelet.Answer, error) {
	if !k.reached.Load() {
		return nil, errors.New("connection refused")
	}
	if k.another {
		return &kubelet.Answer{Process: fence.Process{Start: 2000, CPU: 1, Key: "key"}}, nil
	}
	return &kubelet.Answer{Process: ranBefore, Age: 24 * time.Hour}, nil
}

// After a partition the way to a kubelet may come later than its own way to the API server.
func TestAKubeletThatCanBeReachedAgainIsFoundOutWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for noted, want := range map[*fence.Process]bool{&ranBefore: true, nil: false} {
			r, k := guardrig.Published(t, fence.Policy{}), &oneKubelet{}
			r.Guard.Surveyor.Kubelets = k
			r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Kubelet = noted })
			r.Taint("old")
			r.Attachment("old", time.Now())
			r.Attachment("next", time.Time{})
			w := newWaiting(t, r)
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "[HolderContested]")
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "[HolderContested]")
			w.waits(fence.HolderContested, fence.HolderContested)
			w.Client.ClearActions()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if looks := len(w.Reads("persistentvolumes")); (looks > 0) != want || looks > 50 {
				t.Errorf("noted %v: looked at %d times in ten minutes", noted, looks)
			}
			if w.touched("next") != "" || w.touched("old") != "" {
				t.Error("woken although nothing has changed")
			}
			k.reached.Store(true)
			time.Sleep(scoutMost + time.Second)
			synctest.Wait()
			if next, old := w.touched("next") != "", w.touched("old") != ""; next != want || old != want {
				t.Errorf("noted %v, reached for %v: next is woken %t, old %t, want %t", noted, scoutMost, next, old, want)
			}
		}
	})
}

func TestAKubeletThatDidNotSayWhetherItHasRestartedIsFoundOutWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k := guardrig.Published(t, fence.Policy{}), &oneKubelet{seen: &ranBefore}
		r.Guard.Surveyor.Kubelets, r.ForcedFor = k, time.Minute
		r.Lists("old", false, false)
		r.Attachment("old", time.Now())
		r.Attachment("next", time.Time{})
		w := newWaiting(t, r)
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "[HolderContested]")
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "[HolderContested]")
		w.foundOut(&k.reached)
	})
}

func TestAKubeletThatHasSaidThatItIsAnotherProcessIsNotLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k := guardrig.Published(t, fence.Policy{}), &oneKubelet{another: true}
		k.reached.Store(true)
		r.Guard.Surveyor.Kubelets = k
		r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Kubelet = &ranBefore })
		r.Taint("old")
		r.Attachment("old", time.Now())
		w := newWaiting(t, r)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "[HolderContested]")
		w.Client.ClearActions()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if looks := len(w.Reads("persistentvolumes")); looks > 1 {
			t.Errorf("looked at %d times in ten minutes", looks)
		}
	})
}

func TestRepeatedCallsAreNotLookedAtMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{}
		w := stale(t, a)
		before := a.asked.Load()
		for range 20 {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			w.Refused(w.PublishTo("next"), codes.FailedPrecondition, "[HolderStale]")
			w.Refused(w.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "[HolderStale]")
			before += 2
		}
		if looks := a.asked.Load() - before; looks < 20 || looks > 25 {
			t.Errorf("looked at %d times in ten minutes, want about 23", looks)
		}
	})
}

// Of a node that lives, the watch tells whatever changes.
func TestNobodyLooksWhenTheSilentNodeIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stale(t, &agents{})
		w.Lives["old"] = fence.Alive
		w.Refused(w.PublishTo("next"), codes.FailedPrecondition, "[HolderAlive]")
		w.Refused(w.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "[HolderAlive]")
		time.Sleep(scoutMost)
		synctest.Wait()
		w.Client.ClearActions()
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks := len(w.Reads("persistentvolumes")); looks > 0 {
			t.Errorf("looked at %d times in an hour", looks)
		}
	})
}

func TestACallThatComesToWaitForAnotherNodeIsLookedAtSoonAndTheFirstNodesStillAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{}
		w := stale(t, a)
		time.Sleep(2*time.Minute + scoutMost/2) // it is looked at every 30 s by now
		w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, NodeID: guardrig.ID("next"), NodeName: "next", Action: fence.Refuse, Reason: fence.HolderStale,
			Holder: &fence.Holder{NodeName: "third"}})
		a.off.Store(true)
		time.Sleep(retryFirst)
		synctest.Wait()
		if next, old := w.touched("next"), w.touched("old"); next == "" || old == "" {
			t.Errorf("after %v not both are woken: next %q, old %q", retryFirst, next, old)
		}
	})
}

func TestASilentNodeIsNotLostSightOfAmongOthersThatLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Dead(t)
		r.Attachment("next", time.Time{})
		a := &agents{}
		r.Guard.Surveyor.Sources = []evidence.Source{a}
		w := newWaiting(t, r)
		for i := range 100 {
			w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: fmt.Sprint(i), NodeID: guardrig.ID("next"), Action: fence.Refuse, Reason: fence.HolderAlive,
				Holder: &fence.Holder{NodeName: "another"}})
		}
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "[HolderStale]")
		a.off.Store(true)
		time.Sleep(retryFirst)
		synctest.Wait()
		if w.touched("next") == "" {
			t.Error("not woken")
		}
	})
}

func TestWhoWaitsLooksInTurnOfTheOneThatWentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{}
		w := stale(t, a)
		for _, node := range []string{"next", "old"} {
			w.Must(w.Client.StorageV1().VolumeAttachments().Delete(t.Context(), w.w.attachment(waitingCall{volume: guardrig.Handle, nodeName: node}), metav1.DeleteOptions{}))
			w.w.Changed(observe.Change{Node: node}) // it is found to be gone
			synctest.Wait()
			if node == "next" {
				w.waits(fence.HolderStale)
				before := a.asked.Load()
				time.Sleep(time.Minute)
				synctest.Wait()
				if a.asked.Load() == before {
					t.Error("nobody looks any more")
				}
			}
		}
		w.waits()
		before := a.asked.Load()
		time.Sleep(time.Hour)
		if a.asked.Load() != before {
			t.Errorf("nobody waits, and the agent was asked %d times", a.asked.Load()-before)
		}
	})
}

func TestAnAgentThatHangsHoldsUpItsOwnCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agents{}
		w := stale(t, a)
		a.off.Store(true)
		a.first.Store(int64(time.Hour))
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		if next, old := w.touched("next"), w.touched("old"); (next == "") == (old == "") {
			t.Errorf("one of two hangs; woken are next %q and old %q", next, old)
		}
		time.Sleep(time.Hour)
	})
}

// turn is a source that notes when the request that asks it has its turn.
type turn struct{ time.Time }

func (*turn) Name() string { return "test" }

func (t *turn) Evidence(ctx context.Context, _ evidence.Question) ([]fence.Evidence, error) {
	t.Time = throttle.TurnOf(ctx)
	return nil, nil
}

// In a storm all wait for one limit on requests.
func TestAPublishGoesFirstThenAnUnpublishThenALookAtWhatWaits(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{})
	first, second := &turn{}, &turn{}
	r.Guard.Surveyor.Sources = []evidence.Source{first, second}
	r.Look()
	asked := func(what string) time.Time {
		if !first.Equal(second.Time) {
			t.Errorf("%s has its turn at %s, and then at %s", what, first, second)
		}
		return first.Time
	}
	w := New(r.Client, r.Guard.Surveyor, func(map[string]int) {})
	_, err := w.judge(t.Context(), waitingCall{call: guard.CallPublish, volume: guardrig.Handle, nodeID: guardrig.ID("next")})
	r.Must(err)
	look := asked("a look")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	unpublish := asked("an unpublish")
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition)
	if publish := asked("a publish"); !publish.Before(unpublish) || !unpublish.Before(look) {
		t.Errorf("a publish has its turn at %s, an unpublish at %s, a look at %s", publish, unpublish, look)
	}
}
