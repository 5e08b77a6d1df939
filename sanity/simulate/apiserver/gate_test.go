package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

func fated(f Fate) Gate {
	return gateOf{admit: func(context.Context, Request) Fate { return f }}
}

func annotate(ctx context.Context, c kubernetes.Interface, value string) error {
	_, err := c.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"`+value+`"}}}`), metav1.PatchOptions{})
	return err
}

func annotation(s *Server) string {
	n, _ := Find[*corev1.Node](s, "", "n1")
	return n.Annotations["a"]
}

func TestEachFateDoesWhatItSays(t *testing.T) {
	for _, test := range []struct {
		name   string
		fate   Fate
		effect bool
		is     func(error) bool
	}{
		{"serve", Fate{}, true, func(err error) bool { return err == nil }},
		{"refused", Fate{How: Fail, Err: Refused}, false, func(err error) bool { return errors.Is(err, Refused) }},
		{"unavailable", Fate{How: Fail, Err: apierrors.NewServiceUnavailable("etcd is away")}, false, apierrors.IsServiceUnavailable},
		{"timeout", Fate{How: Fail, Err: Timeout}, false, func(err error) bool { return errors.Is(err, Timeout) }},
		{"lost", Fate{How: Lose}, true, func(err error) bool { return errors.Is(err, Reset) }},
		{"lost in a gateway", Fate{How: Lose, Err: apierrors.NewTimeoutError("gateway", 0)}, true, apierrors.IsTimeout},
		{"repeated", Fate{How: Repeat}, true, func(err error) bool { return err == nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, _ := newServer(t)
			Put(s, &corev1.Node{ObjectMeta: meta("n1")})
			err := annotate(ctx, clientOf(t, s, "client", fated(test.fate)), "new")
			if !test.is(err) {
				t.Errorf("the client got %v", err)
			}
			if got := annotation(s) == "new"; got != test.effect {
				t.Errorf("effect: %t, want %t", got, test.effect)
			}
		})
	}
}

func TestARepeatedCreateExistsAlready(t *testing.T) {
	s, _ := newServer(t)
	_, err := clientOf(t, s, "client", fated(Fate{How: Repeat})).CoordinationV1().Leases("default").Create(ctx, aLease("l"), metav1.CreateOptions{})
	wantReason(t, err, 409, metav1.StatusReasonAlreadyExists)
}

func TestWhatTheClientGaveUpHasNoEffectUnlessItsAnswerIsLost(t *testing.T) {
	for _, how := range []How{Serve, Lose} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newServer(t)
			Put(s, &corev1.Node{ObjectMeta: meta("n1")})
			c := clientOf(t, s, "client", gateOf{admit: func(ctx context.Context, _ Request) Fate {
				<-ctx.Done()
				return Fate{How: how}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := annotate(ctx, c, "new"); !errors.Is(err, context.DeadlineExceeded) {
				if how == Serve || err == nil {
					t.Errorf("the client got %v", err)
				}
			}
			if got := annotation(s) == "new"; got != (how == Lose) {
				t.Errorf("fate %d: effect %t", how, got)
			}
		})
	}
}

// parking is a gate that a scheduler releases by description.
type parking struct {
	mu     sync.Mutex
	parked map[string]chan Fate
}

func (p *parking) Admit(ctx context.Context, r Request) Fate {
	wait := make(chan Fate)
	p.mu.Lock()
	p.parked[r.String()] = wait
	p.mu.Unlock()
	select {
	case f := <-wait:
		return f
	case <-ctx.Done():
		return Fate{}
	}
}

func (p *parking) Deliver(context.Context, Event) Passage { return Passage{} }

func TestASchedulerOrdersWhatIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t)
		Put(s, &corev1.Node{ObjectMeta: meta("n1")})
		gate := &parking{parked: map[string]chan Fate{}}
		var running sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			c := clientOf(t, s, name, gate)
			running.Go(func() {
				if err := annotate(WithLabel(t.Context(), "call-"+name), c, name); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if annotation(s) != "" {
			t.Error("something happened before it was released")
		}
		var keys []string
		for key := range gate.parked {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if len(keys) != 2 || !strings.HasPrefix(keys[0], "a patch nodes n1 #") || !strings.HasSuffix(keys[1], " [call-b]") {
			t.Fatalf("parked: %q", keys)
		}
		for _, i := range []int{1, 0} {
			gate.parked[keys[i]] <- Fate{}
			synctest.Wait()
			if want := string(keys[i][0]); annotation(s) != want {
				t.Errorf("after %s the annotation is %q", keys[i], annotation(s))
			}
		}
		running.Wait()
	})
}

// late is a gate that holds answers.
type late struct {
	gateOf
	answer func(ctx context.Context, r Request, code int) error
}

func (l late) Answer(ctx context.Context, r Request, code int) error { return l.answer(ctx, r, code) }

func TestAnAnswerMayComeAfterWhatHappenedSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t)
		Put(s, &corev1.Node{ObjectMeta: meta("n1")})
		c := clientOf(t, s, "client", late{answer: func(_ context.Context, _ Request, code int) error {
			if code != 200 {
				t.Errorf("code %d", code)
			}
			_, err := Change(s, "", "n1", func(n *corev1.Node) { n.Annotations = map[string]string{"a": "since"} })
			return err
		}})
		if n := must[*corev1.Node](t)(c.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})); n.Annotations["a"] != "" {
			t.Error("the answer is newer than the request")
		}
		if annotation(s) != "since" {
			t.Error("nothing happened since")
		}
	})
}

func TestWhatIsNotModelledIsComplainedOf(t *testing.T) {
	s := New(Options{})
	c := clientOf(t, s, "client", Open)
	core := c.CoreV1()
	for what, ask := range map[string]func() error{
		"another kind": func() error { _, err := core.ConfigMaps("default").Get(ctx, "x", metav1.GetOptions{}); return err },
		"discovery":    func() error { _, err := c.Discovery().ServerVersion(); return err },
		"deletecollection": func() error {
			return core.Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"dry run": func() error {
			_, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: meta("x")}, metav1.CreateOptions{DryRun: []string{"All"}})
			return err
		},
		"server-side apply": func() error {
			_, err := core.Nodes().Patch(ctx, "x", types.ApplyYAMLPatchType, []byte("{}"), metav1.PatchOptions{FieldManager: "m"})
			return err
		},
		"eviction": func() error {
			return core.RESTClient().Post().AbsPath("/api/v1/namespaces/default/pods/p/eviction").Body([]byte("{}")).Do(ctx).Error()
		},
		"another group":               func() error { return core.RESTClient().Get().AbsPath("/apis/apps/v1/deployments").Do(ctx).Error() },
		"the deletion of a namespace": func() error { return core.Namespaces().Delete(ctx, "default", metav1.DeleteOptions{}) },
		"foreground deletion": func() error {
			return core.Pods("default").Delete(ctx, "p", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
		},
	} {
		before := len(s.Complaints())
		status, ok := ask().(apierrors.APIStatus)
		if !ok || status.Status().Code != 501 {
			t.Errorf("%s: got %v, want 501", what, status)
		}
		if len(s.Complaints()) != before+1 {
			t.Errorf("%s: no complaint", what)
		}
	}
}

func TestACustomResourceThatIsNotInstalledIsNotFound(t *testing.T) {
	_, c := newServer(t)
	for _, path := range DefaultAbsent {
		for _, p := range []string{path, path + "/x"} {
			if err := c.CoreV1().RESTClient().Get().AbsPath(p).SetHeader("Accept", "application/json").Do(ctx).Error(); !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

func TestLeaderElectionElectsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t)
		var mu sync.Mutex
		leads := map[string]bool{}
		running, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		elect := func(name string, ctx context.Context) {
			client := clientOf(t, s, name, Open)
			set := func(is bool) { mu.Lock(); leads[name] = is; mu.Unlock() }
			all.Go(func() {
				leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
					Lock:          &resourcelock.LeaseLock{LeaseMeta: inDefault("lock"), Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name}},
					LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
					Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { set(true) }, OnStoppedLeading: func() { set(false) }},
				})
			})
		}
		first, kill := context.WithCancel(running)
		elect("a", first)
		time.Sleep(5 * time.Second)
		elect("b", running)
		time.Sleep(time.Minute)
		check := func(a, b bool) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if leads["a"] != a || leads["b"] != b {
				t.Errorf("a leads: %t, b leads: %t", leads["a"], leads["b"])
			}
		}
		check(true, false)
		kill()
		time.Sleep(time.Minute)
		check(false, true)
		stop()
		all.Wait()
	})
}

func TestAnEventRecorderCountsRepeatedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t)
		n := Put(s, &corev1.Node{ObjectMeta: meta("n1")})
		broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events("")})
		recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"})
		for range 3 {
			recorder.Event(n, corev1.EventTypeWarning, "Reason", "the same")
			time.Sleep(time.Second)
		}
		broadcaster.Shutdown()
		synctest.Wait()
		events := FindAll[*corev1.Event](s, "default")
		if len(events) != 1 || events[0].Count != 3 || events[0].InvolvedObject.UID != n.UID {
			t.Errorf("the events are %v", events)
		}
	})
}

func TestTheSameScheduleHasTheSameUIDsAndVersions(t *testing.T) {
	play := func() string {
		s, c := newServer(t)
		for i := range 3 {
			must[*corev1.Node](t)(c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: meta(fmt.Sprint("n", i))}, metav1.CreateOptions{}))
		}
		n, _ := Find[*corev1.Node](s, "", "n2")
		return string(n.UID) + "@" + n.ResourceVersion
	}
	if a, b := play(), play(); a != b {
		t.Errorf("%s and %s", a, b)
	}
}
