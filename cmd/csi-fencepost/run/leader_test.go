package run

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
)

const leaderNamespace = "storage"

// candidate is one replica's election on a shared API.
func candidate(t *testing.T, api *fake.Clientset, identity string) *election {
	t.Helper()
	f, err := parseRunFlags(good("--leader-election", "--leader-election-namespace="+leaderNamespace))
	if err != nil {
		t.Fatal(err)
	}
	e, err := newElection(api, f, newLeaderHealth())
	if err != nil {
		t.Fatal(err)
	}
	e.lock = cluster.LockName("array.example.com")
	e.identity = identity
	return e
}

// lease returns the leader's Lease.
func lease(t *testing.T, api *fake.Clientset) *coordinationv1.Lease {
	t.Helper()
	l, err := api.CoordinationV1().Leases(leaderNamespace).Get(context.Background(), "csi-fencepost-leader-array.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLeaseIsNamedAfterTheDriver(t *testing.T) {
	for driver, want := range map[string]string{
		"ebs.csi.aws.com": "csi-fencepost-leader-ebs.csi.aws.com",
		"Array.Example":   "csi-fencepost-leader-array.example",
	} {
		got := cluster.LockName(driver)
		if got != want {
			t.Errorf("%s: %s, want %s", driver, got, want)
		}
		if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
			t.Errorf("%s is no name of a Lease: %v", got, problems)
		}
	}
}

func TestBackgroundWorkRunsOnOneReplicaAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		var now, most, terms atomic.Int32
		work := func(ctx context.Context) {
			most.Store(max(most.Load(), now.Add(1)))
			terms.Add(1)
			<-ctx.Done()
			time.Sleep(time.Second) // it takes its time to end
			now.Add(-1)
		}
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		var both sync.WaitGroup
		both.Go(func() { candidate(t, api, "one").run(first, work) })
		both.Go(func() { candidate(t, api, "two").run(second, work) })
		time.Sleep(time.Minute)
		if now.Load() != 1 {
			t.Errorf("%d replicas work", now.Load())
		}
		stopFirst()
		time.Sleep(time.Minute)
		stopSecond()
		both.Wait()
		// The first may not have been the leader; the second was, at the end.
		if most.Load() != 1 || terms.Load() < 1 || terms.Load() > 2 {
			t.Errorf("at most %d replicas worked at once, in %d terms", most.Load(), terms.Load())
		}
	})
}

// Calls are served by the same process: losing the lead must not end it.
func TestLosingTheLeadEndsTheWorkAndNotTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		var away atomic.Bool
		api.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
		ctx, stop := context.WithCancel(t.Context())
		var working atomic.Bool
		var terms atomic.Int32
		e := candidate(t, api, "one")
		ended := make(chan error, 1)
		go func() {
			ended <- e.run(ctx, func(ctx context.Context) {
				terms.Add(1)
				working.Store(true)
				<-ctx.Done()
				working.Store(false)
			})
		}()
		time.Sleep(time.Minute)
		if !working.Load() {
			t.Fatal("it leads alone and does not work")
		}
		away.Store(true)
		time.Sleep(2 * time.Minute)
		if working.Load() {
			t.Error("it works without the lead")
		}
		select {
		case err := <-ended:
			t.Fatalf("the election ended: %v", err)
		default:
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if !working.Load() || terms.Load() != 2 {
			t.Errorf("the API is back: working %v, terms %d", working.Load(), terms.Load())
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestLeadIsGivenUpOnlyAfterTheWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		e := candidate(t, api, "one")
		go func() {
			ended <- e.run(ctx, func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(7 * time.Second)
				if holder := lease(t, api).Spec.HolderIdentity; holder == nil || *holder != "one" {
					t.Errorf("the lead was given up while work ran: holder %v", holder)
				}
			})
		}()
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if holder := lease(t, api).Spec.HolderIdentity; holder != nil && *holder != "" {
			t.Errorf("the lead was not given up: holder %s", *holder)
		}
	})
}

func TestStopWithoutTheLeadIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		leading, stopLeading := context.WithCancel(t.Context())
		var both sync.WaitGroup
		wait := func(ctx context.Context) { <-ctx.Done() }
		both.Go(func() { candidate(t, api, "leader").run(leading, wait) })
		time.Sleep(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- candidate(t, api, "other").run(ctx, wait) }()
		time.Sleep(time.Minute)
		asked := time.Now()
		stop()
		<-ended
		if took := time.Since(asked); took > time.Second {
			t.Errorf("it took %s", took)
		}
		stopLeading()
		both.Wait()
	})
}

func TestLeaderHealthFailsWhenTheLeadRanOutLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		over := make(chan struct{})
		api := fake.NewClientset()
		api.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if hangs.Load() {
				<-over
			}
			return false, nil, nil
		})
		e := candidate(t, api, "one")
		health := func() int {
			code, _ := get(t, e.health, "/healthz/leader-election")
			return code
		}
		if code := health(); code != http.StatusOK {
			t.Errorf("before the election: %d", code)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.run(ctx, func(ctx context.Context) { <-ctx.Done() }) }()
		time.Sleep(time.Minute)
		if code := health(); code != http.StatusOK {
			t.Errorf("while leading: %d", code)
		}
		hangs.Store(true)
		time.Sleep(time.Minute)
		if code := health(); code != http.StatusInternalServerError {
			t.Errorf("a renewal hangs for a minute: %d", code)
		}
		hangs.Store(false)
		close(over)
		stop()
		<-ended
	})
}

// The pod's namespace stands for a flag that is left out, and is held to the same.
func TestANamespaceOfThePodThatIsNoneIsSaidAtTheStart(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "../x")
	f, err := parseRunFlags(good("--leader-election"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newElection(nil, f, newLeaderHealth()); err == nil || !strings.Contains(err.Error(), `the pod's namespace is "../x" (variable POD_NAMESPACE`) {
		t.Errorf("%v", err)
	}
}
