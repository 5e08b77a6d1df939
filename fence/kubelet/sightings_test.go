package kubelet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// nodes have kubelets that answer what is set of each; an error otherwise.
type nodes struct {
	mu      sync.Mutex
	answers map[string]Answer
	fails   error
	asked   []string
}

func (k *nodes) Ask(_ context.Context, n *corev1.Node) (*Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, n.Name)
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
	if p, err := s.Ask(t.Context(), n); err != nil || p.Start != 200 {
		t.Errorf("asked it is %v, %v", p, err)
	}
	if p := s.Seen("n1", "uid-1", "boot-1"); p.Start != 100 {
		t.Errorf("it became %v by asking", p)
	}
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

func TestRoundsGoToEachNodeOfTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newNodes()
		n1, n2, n3 := node("10.0.0.1", 10250), node("10.0.0.2", 10250), node("10.0.0.3", 10250)
		n2.Name, n3.Name = "n2", "n3"
		client := fake.NewClientset(n1, n2, n3)
		var mu sync.Mutex
		serves := map[string]bool{"n1": true, "n2": true}
		s := NewSightings(all)
		r := NewRounds(s, client, func(name string) bool {
			mu.Lock()
			defer mu.Unlock()
			return serves[name]
		})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		starts := func() (found [3]float64) {
			for i, name := range []string{"n1", "n2", "n3"} {
				if p := s.Seen(name, "uid-1", "boot-1"); p != nil {
					found[i] = p.Start
				}
			}
			return found
		}
		all.set("n1", 100, time.Hour)
		all.set("n2", 200, 0) // it has just started
		all.set("n3", 300, time.Hour)
		for _, n := range []*corev1.Node{n1, n2, n3} {
			r.Saw(n)
		}
		time.Sleep(time.Second)
		if got := starts(); got != [3]float64{100, 0, 0} {
			t.Errorf("after a second: %v", got)
		}
		all.set("n2", 200, time.Hour)
		time.Sleep(10 * time.Second)
		if got := starts(); got != [3]float64{100, 200, 0} {
			t.Errorf("once it has settled: %v", got)
		}
		mu.Lock()
		serves["n3"] = true
		mu.Unlock()
		time.Sleep(time.Minute)
		if got := starts(); got != [3]float64{100, 200, 300} {
			t.Errorf("once the driver is there: %v", got)
		}
		// It restarts and shows it nowhere; another one does.
		all.set("n1", 101, time.Hour)
		all.set("n2", 201, time.Hour)
		r.Saw(n2)
		time.Sleep(time.Second)
		if got := starts(); got != [3]float64{100, 201, 300} {
			t.Errorf("once its Node has changed: %v", got)
		}
		time.Sleep(again)
		if got := starts(); got != [3]float64{101, 201, 300} {
			t.Errorf("in the next round: %v", got)
		}
		if err := client.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(again)
		if got := starts(); got != [3]float64{0, 201, 300} {
			t.Errorf("without its Node: %v", got)
		}
		end()
		<-done
	})
}

func TestAKubeletThatDoesNotAnswerIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, n := newNodes(), node("10.0.0.1", 10250)
		r := NewRounds(NewSightings(all), fake.NewClientset(n), func(string) bool { return true })
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		r.Saw(n)
		time.Sleep(time.Hour)
		if asked := all.count(); asked < 8 || asked > 16 {
			t.Errorf("asked %d times in an hour", asked)
		}
		// Where there is no token, all are asked for by one.
		all.mu.Lock()
		all.fails = ErrNoToken
		all.asked = nil
		all.mu.Unlock()
		for range 100 {
			r.Saw(n)
			time.Sleep(time.Second)
		}
		if asked := all.count(); asked > 12 {
			t.Errorf("asked %d times in 100 s for a token that is not there", asked)
		}
		end()
		<-done
	})
}
