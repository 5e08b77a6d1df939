package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// nodes have kubelets that answer what is set of each; an error otherwise.
type nodes struct {
	mu      sync.Mutex
	answers map[string]Answer
	rotated bool // they serve by another key than is asked for
	fails   error
	asked   []string
}

func (k *nodes) Ask(_ context.Context, n *corev1.Node, key string) (*Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, n.Name+" "+key)
	if k.rotated && key != "" {
		return nil, errAnotherKey
	}
	if a, ok := k.answers[n.Name]; ok {
		return &a, nil
	}
	return nil, k.fails
}

func (k *nodes) set(name string, start float64, age time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answers[name] = Answer{fence.Process{Start: start, CPU: 1, Key: "key"}, age}
}

func (k *nodes) rotate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rotated = true
}

func (k *nodes) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

func newNodes() *nodes {
	return &nodes{answers: map[string]Answer{}, fails: errors.New("connection refused")}
}

func TestWhatWasSeenIsOfThatNodeAndBoot(t *testing.T) {
	all, n := newNodes(), node("10.0.0.1", 10250)
	s := NewSightings(all)
	all.set("n1", 100, time.Hour)
	if _, err := s.Sight(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if p := s.Seen("n1", "uid-1", "boot-1"); p == nil || p.Start != 100 {
		t.Errorf("it is %v", p)
	}
	for _, of := range [][3]string{{"n2", "uid-1", "boot-1"}, {"n1", "uid-2", "boot-1"}, {"n1", "uid-1", "boot-2"}, {"n1", "uid-1", ""}} {
		if p := s.Seen(of[0], of[1], of[2]); p != nil {
			t.Errorf("of %v it is %v", of, p)
		}
	}
	// Asking notes nothing, nor does one that does not answer change what was noted.
	all.set("n1", 200, time.Hour)
	if p, err := s.Ask(t.Context(), n, "key"); err != nil || p.Process.Start != 200 || p.Age != time.Hour {
		t.Errorf("asked it is %v, %v", p, err)
	}
	if p := s.Seen("n1", "uid-1", "boot-1"); p.Start != 100 {
		t.Errorf("it became %v by asking", p)
	}
}

// A paused machine's clock may stand still, and what is as old as its uptime with it.
func TestAProcessIsNoYoungerThanItWasSeenToBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, n := newNodes(), node("10.0.0.1", 10250)
		s := NewSightings(all)
		sight := func(start float64, age time.Duration) {
			all.set("n1", start, age)
			if _, err := s.Sight(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		check := func(what string, start float64, says, want time.Duration) {
			all.set("n1", start, says)
			if a, err := s.Ask(t.Context(), n, "key"); err != nil || a.Age != want {
				t.Errorf("%s: it is %v, %v", what, a, err)
			}
		}
		check("never seen", 100, time.Minute, time.Minute)
		sight(100, time.Minute)
		time.Sleep(time.Hour)
		sight(100, 2*time.Minute)
		time.Sleep(time.Hour)
		check("seen twice", 100, 3*time.Minute, 2*time.Hour)
		check("older than that", 100, 3*time.Hour, 3*time.Hour)
		check("another", 200, time.Minute, time.Minute)
		sight(200, time.Minute)
		time.Sleep(time.Minute)
		check("another was seen since", 200, 2*time.Second, time.Minute)
		check("one of before another", 100, time.Second, time.Second)
		n.UID = "uid-2"
		check("under another Node", 200, time.Second, time.Second)
		sight(200, 10*time.Second)
		time.Sleep(time.Second)
		check("seen under that one since", 200, time.Millisecond, time.Second)
	})
}

// Its way may be closed for good, as by a policy that came later: then it is as if it had none.
func TestWhoIsAskedInVainForARoundIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, n := newNodes(), node("10.0.0.1", 10250)
		s := NewSightings(all)
		seen := func() bool { return s.Seen("n1", "uid-1", "boot-1") != nil }
		answers := func(age time.Duration) {
			all.set("n1", 100, age)
			if _, err := s.Sight(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			delete(all.answers, "n1")
		}
		misses := func(ctx context.Context, after time.Duration, want bool) {
			time.Sleep(after)
			if _, err := s.Sight(ctx, n); err == nil {
				t.Fatal("it answers")
			}
			if seen() != want {
				t.Errorf("missed %v later, it is seen: %t", after, seen())
			}
		}
		vain := func(times int) {
			for range times {
				misses(t.Context(), missGap, true)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		misses(t.Context(), 0, false)
		answers(time.Minute)
		misses(t.Context(), 2*again, true)
		vain(3)
		answers(time.Second) // another, which is too young to be noted
		misses(t.Context(), time.Minute, true)
		vain(3)
		misses(t.Context(), missGap+time.Second, true) // it was not asked meanwhile, as while the API server is away
		vain(3)
		misses(over, missGap, true)
		all.fails = fmt.Errorf("of n1: %w", ErrNoToken)
		misses(t.Context(), 0, true)
		all.fails = errors.New("connection refused")
		misses(t.Context(), 0, false)

		// Calls that wait ask more often than rounds do.
		asks := func(ctx context.Context, key string, long time.Duration) {
			for range long / askedAgain {
				if _, err := s.Ask(ctx, n, key); err == nil {
					t.Fatal("it answers")
				}
				time.Sleep(askedAgain)
			}
		}
		answers(time.Hour)
		asks(t.Context(), "key", again)
		n.Status.Conditions[0].Status = corev1.ConditionFalse
		asks(t.Context(), "key", askedAgain)
		n.Status.Conditions[0].Status = corev1.ConditionTrue
		all.fails = errAnotherKey
		asks(t.Context(), "key", askedAgain)
		if !seen() {
			t.Error("it is forgotten too soon, or though it is not Ready, or serves by another key")
		}
		all.fails = errors.New("connection refused")
		asks(t.Context(), "key", askedAgain)
		if seen() {
			t.Error("calls ask in vain for an hour, and it is not forgotten")
		}
		answers(time.Hour)
		asks(over, "key", 2*again)
		if !seen() {
			t.Error("the end of a call is taken for its silence")
		}
		asks(t.Context(), "key", again-missGap)
		all.set("n1", 100, time.Hour)
		if _, err := s.Ask(t.Context(), n, "key"); err != nil {
			t.Fatal(err)
		}
		delete(all.answers, "n1")
		asks(t.Context(), "key", 2*missGap)
		if !seen() {
			t.Error("what it answered a call counts for nothing")
		}
	})
}

// Its way is not open, or it is away itself: it comes back, and is asked then.
func TestANodeThatIsNotReadyNeedNotAnswer(t *testing.T) {
	for name, notReady := range map[string]bool{"not Ready": true, "without driver": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, n := newNodes(), node("10.0.0.1", 10250)
				all.set("n1", 100, time.Hour)
				driver, s := true, NewSightings(all)
				r := NewRounds(s, given, fake.NewClientset(n), func(string) (bool, bool) { return true, driver })
				defer r.queue.ShutDown()
				looks := func(times int) (seen bool) {
					for range times {
						r.look(t.Context(), "n1")
						time.Sleep(missGap)
					}
					return s.Seen("n1", string(n.UID), n.Status.NodeInfo.BootID) != nil
				}
				r.Saw(n)
				looks(1)
				delete(all.answers, "n1")
				if !looks(3) {
					t.Error("it is forgotten too soon")
				}
				away := n.DeepCopy()
				if driver = notReady; notReady {
					away.Status.Conditions[0].Status = corev1.ConditionUnknown
				}
				r.Saw(away)
				r.look(t.Context(), "n1")
				r.Saw(n)
				driver = true
				if seen := looks(2); seen != notReady {
					t.Errorf("it is seen %t, an hour after the first vain question", seen)
				}
			})
		})
	}
}

func TestAKubeletThatServesByAnotherKeyIsSightedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, n := newNodes(), node("10.0.0.1", 10250)
		all.set("n1", 100, time.Hour)
		r, _ := rounds(t, all, given, fake.NewClientset(n))
		r.Saw(n)
		time.Sleep(10 * time.Minute)
		all.rotate()
		all.set("n1", 200, time.Hour)
		if _, err := r.sightings.Ask(t.Context(), n, "key"); !errors.Is(err, errAnotherKey) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if p := r.sightings.Seen("n1", string(n.UID), n.Status.NodeInfo.BootID); p == nil || p.Start != 200 {
			t.Errorf("it is %v", p)
		}
		// However many ask, it is asked once a minute.
		asked := all.count()
		for range 30 {
			time.Sleep(askedAgain)
			r.sightings.Ask(t.Context(), n, "key")
		}
		if now := all.count() - 30; now-asked > 6 {
			t.Errorf("sighted %d times in five minutes", now-asked)
		}
		time.Sleep(floor + time.Second) // what was prompted last
		asked = all.count()
		for range 30 { // by what a ledger noted before
			time.Sleep(askedAgain)
			r.sightings.Ask(t.Context(), n, "a key of before")
		}
		if now := all.count() - 30; now > asked {
			t.Errorf("sighted %d times for a key of before", now-asked)
		}
	})
}

func TestARefusedConnectionIsAskedAgainAtOnce(t *testing.T) {
	all, n := newNodes(), node("10.0.0.1", 10250)
	all.fails = &net.OpError{Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	s := NewSightings(all)
	if _, err := s.Ask(t.Context(), n, "key"); err == nil {
		t.Error("it answers")
	}
	all.set("n1", 100, time.Second)
	if a, err := s.Ask(t.Context(), n, "key"); err != nil || a.Age != time.Second {
		t.Errorf("it is %v, %v", a, err)
	}
}

func TestAKubeletThatDidNotAnswerACallIsNotAskedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, n, other := newNodes(), node("10.0.0.1", 10250), node("10.0.0.2", 10250)
		other.Name, other.UID = "n2", "uid-2"
		s := NewSightings(all)
		for range 500 {
			if _, err := s.Ask(t.Context(), n, "key"); err == nil {
				t.Fatal("it answers")
			}
		}
		all.set("n1", 100, time.Hour)
		all.set("n2", 200, time.Hour)
		if p, err := s.Ask(t.Context(), other, "key"); err != nil || p.Process.Start != 200 {
			t.Errorf("another is %v, %v", p, err)
		}
		if all.count() != 2 {
			t.Errorf("asked were %q", all.asked)
		}
		// Another volume may have noted another key of it.
		if p, err := s.Ask(t.Context(), n, "another key"); err != nil || p.Process.Start != 100 || all.count() != 3 {
			t.Errorf("by another key it is %v, %v", p, err)
		}
		delete(all.answers, "n1")
		time.Sleep(askedAgain)
		all.fails = fmt.Errorf("of n1: %w", ErrNoToken)
		if _, err := s.Ask(t.Context(), n, "key"); !errors.Is(err, ErrNoToken) {
			t.Errorf("without a token: %v", err)
		}
		all.set("n1", 100, time.Hour) // no token says nothing of it
		if p, err := s.Ask(t.Context(), n, "key"); err != nil || p.Process.Start != 100 || len(s.unanswered) != 0 {
			t.Errorf("later it is %v, %v", p, err)
		}
	})
}

func TestAKubeletWithoutABootIDIsNotSeen(t *testing.T) {
	all, n := newNodes(), node("10.0.0.1", 10250)
	n.Status.NodeInfo.BootID = ""
	s := NewSightings(all)
	all.set("n1", 100, time.Hour)
	if _, err := s.Sight(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if p := s.Seen("n1", "uid-1", ""); p != nil {
		t.Errorf("it is %v", p)
	}
}

func TestAKubeletThatHasJustStartedIsNotNoted(t *testing.T) {
	all, n := newNodes(), node("10.0.0.1", 10250)
	s := NewSightings(all)
	for age, want := range map[time.Duration]time.Duration{-time.Hour: 9 * time.Second, 0: 9 * time.Second, 8 * time.Second: time.Second, 9 * time.Second: 0} {
		s.forget("n1")
		all.set("n1", 100, age)
		wait, err := s.Sight(t.Context(), n)
		if err != nil || wait != want {
			t.Errorf("%s old: again after %s (%v), want %s", age, wait, err, want)
		}
		if noted := s.Seen("n1", "uid-1", "boot-1") != nil; noted != (want == 0) {
			t.Errorf("%s old: noted %t", age, noted)
		}
	}
}

// rounds of a driver that is on all nodes but those in without, and run until the test ends.
func rounds(t *testing.T, all *nodes, renew func(context.Context) error, client kubernetes.Interface, without ...string) (r *Rounds, serve func(string)) {
	var mu sync.Mutex
	r = NewRounds(NewSightings(all), renew, client, func(name string) (there, driver bool) {
		mu.Lock()
		defer mu.Unlock()
		_, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil, !slices.Contains(without, name)
	})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		end()
		<-done
	})
	return r, func(name string) {
		mu.Lock()
		defer mu.Unlock()
		without = slices.DeleteFunc(without, func(n string) bool { return n == name })
	}
}

func given(context.Context) error { return nil }

func TestRoundsGoToEachReadyNodeOfTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newNodes()
		made := []*corev1.Node{}
		for _, name := range []string{"n1", "n2", "n3", "n4"} {
			n := node("10.0.0.1", 10250)
			n.Name = name
			made = append(made, n)
		}
		made[3].Status.Conditions[0].Status = corev1.ConditionUnknown
		client := fake.NewClientset(made[0], made[1], made[2], made[3])
		r, serve := rounds(t, all, given, client, "n3")
		seen := func(when string, want ...float64) {
			t.Helper()
			for i, n := range made {
				start := 0.0
				if p := r.sightings.Seen(n.Name, "uid-1", "boot-1"); p != nil {
					start = p.Start
				}
				if start != want[i] {
					t.Errorf("%s, of %s: %g, want %g", when, n.Name, start, want[i])
				}
			}
		}
		for i, n := range made {
			all.set(n.Name, 100*float64(i+1), time.Hour)
		}
		all.set("n2", 200, 0) // it has just started
		for _, n := range made {
			r.Saw(n)
		}
		time.Sleep(time.Second)
		seen("after a second", 100, 0, 0, 0)
		all.set("n2", 200, time.Hour)
		time.Sleep(10 * time.Second)
		seen("once it has settled", 100, 200, 0, 0)
		serve("n3")
		ready := made[3].DeepCopy()
		ready.Status.Conditions[0].Status = corev1.ConditionTrue
		if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), ready, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.Saw(ready)
		time.Sleep(unfit + time.Second)
		seen("once the driver is there, and the node is Ready", 100, 200, 300, 400)

		// Two restart: one shows it nowhere.
		all.set("n1", 101, time.Hour)
		all.set("n2", 201, time.Hour)
		turned := made[1].DeepCopy()
		turned.Status.Conditions[0].LastTransitionTime = metav1.Unix(1764000100, 0)
		r.Saw(made[0])
		r.Saw(turned)
		time.Sleep(time.Second)
		seen("once a Node has changed", 100, 201, 300, 400)
		asked := all.count()
		all.set("n2", 202, time.Hour)
		r.Saw(made[1]) // and back
		time.Sleep(floor / 2)
		seen("so soon again", 100, 201, 300, 400)
		time.Sleep(floor)
		seen("a minute later", 100, 202, 300, 400)
		if now := all.count(); now != asked+1 {
			t.Errorf("asked %d times for one change", now-asked)
		}
		time.Sleep(again)
		seen("in the next round", 101, 202, 300, 400)
		if err := client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(again)
		seen("without its Node", 0, 202, 300, 400)
		if len(r.signs) != 3 {
			t.Errorf("%d nodes are kept of 3", len(r.signs))
		}
	})
}

func TestAKubeletThatDoesNotAnswerIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, n := newNodes(), node("10.0.0.1", 10250)
		r, _ := rounds(t, all, given, fake.NewClientset(n))
		r.Saw(n)
		time.Sleep(time.Hour)
		if asked := all.count(); asked < 7 || asked > 12 {
			t.Errorf("asked %d times in an hour", asked)
		}
	})
}

func TestWithoutATokenNoKubeletIsAskedAndTheTokenNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, client := newNodes(), fake.NewClientset()
		var renewals atomic.Int64
		r, _ := rounds(t, all, func(context.Context) error {
			renewals.Add(1)
			return ErrNoToken
		}, client)
		for i := range 100 {
			n := node("10.0.0.1", 10250)
			n.Name = fmt.Sprint("n", i)
			if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.Saw(n)
		}
		time.Sleep(10 * time.Minute)
		if asked := all.count(); asked > 0 {
			t.Errorf("%d were asked", asked)
		}
		if n := renewals.Load(); n < 10 || n > 70 {
			t.Errorf("%d tokens were asked for in ten minutes", n)
		}
	})
}

// Where nobody may ask any more, nobody waits until somebody may; where it fails else, it may come back.
func TestWhoMayNotAskHasSeenNobody(t *testing.T) {
	account := schema.GroupResource{Resource: "serviceaccounts"}
	for name, tt := range map[string]struct {
		err    error
		forgot bool
	}{
		"the account is gone":  {apierrors.NewNotFound(account, "it"), true},
		"the right is gone":    {apierrors.NewForbidden(account, "it", nil), true},
		"a webhook is broken":  {apierrors.NewInternalError(errors.New("webhook")), false},
		"nobody answers to it": {context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, n := newNodes(), node("10.0.0.1", 10250)
				all.set("n1", 100, time.Hour)
				var refused atomic.Bool
				r, _ := rounds(t, all, func(context.Context) error {
					if refused.Load() {
						return fmt.Errorf("%w: %w", ErrNoToken, tt.err)
					}
					return nil
				}, fake.NewClientset(n))
				r.Saw(n)
				time.Sleep(time.Minute)
				if r.sightings.Seen("n1", string(n.UID), n.Status.NodeInfo.BootID) == nil {
					t.Fatal("it was not sighted")
				}
				refused.Store(true)
				time.Sleep(lifetime / 6) // once: the account may be made anew
				if r.sightings.Seen("n1", string(n.UID), n.Status.NodeInfo.BootID) == nil {
					t.Error("it is forgotten at once")
				}
				time.Sleep(lifetime / 6)
				if seen := r.sightings.Seen("n1", string(n.UID), n.Status.NodeInfo.BootID); (seen == nil) != tt.forgot {
					t.Errorf("seen is %v", seen)
				}
				refused.Store(false)
				time.Sleep(lifetime/6 + floor)
				if r.sightings.Seen("n1", string(n.UID), n.Status.NodeInfo.BootID) == nil {
					t.Error("it is not sighted once somebody may ask")
				}
			})
		})
	}
}

// A call finds a token though no kubelet has been asked for long.
func TestATokenIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, asked := tokensOf(t, nil)
		c := NewClient(api, "records", account)
		rounds(t, newNodes(), c.Renew, fake.NewClientset())
		for range 20 {
			time.Sleep(10 * time.Minute)
			if token := c.token.Load(); token == nil || time.Now().After(token.ends) {
				t.Fatalf("it is %+v", token)
			}
		}
		if *asked < 10 || *asked > 14 {
			t.Errorf("%d tokens in 200 minutes", *asked)
		}
	})
}
