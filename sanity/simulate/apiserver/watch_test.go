package apiserver

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// informed runs a real informer of pods and returns its store.
func informed(t *testing.T, client kubernetes.Interface) cache.SharedIndexInformer {
	informer := coreinformers.NewPodInformer(client, "", 0, cache.Indexers{})
	running, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { informer.RunWithContext(running); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return informer
}

func names(informer cache.SharedIndexInformer) []string {
	keys := informer.GetStore().ListKeys()
	slices.Sort(keys)
	return keys
}

func wantNames(t *testing.T, informer cache.SharedIndexInformer, want ...string) {
	t.Helper()
	synctest.Wait()
	for i := range want {
		want[i] = "default/" + want[i]
	}
	if got := names(informer); !slices.Equal(got, want) {
		t.Errorf("the informer knows %v, want %v", got, want)
	}
}

func removePod(t *testing.T, s *Server, name string) {
	t.Helper()
	if err := Remove[*corev1.Pod](s, "default", name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}

func TestAnInformerFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t)
		Put(s, aPod("a", ""))
		informer := informed(t, c)
		wantNames(t, informer, "a")
		if !informer.HasSynced() {
			t.Error("not synced")
		}
		Put(s, aPod("b", ""))
		wantNames(t, informer, "a", "b")
		removePod(t, s, "a")
		wantNames(t, informer, "b")
		if w := s.Watches(); len(w) != 1 || w[0].Seen() != s.Version() || w[0].Request().String() != "client watch pods" {
			t.Errorf("open watches: %v", w)
		}
	})
}

func TestAnInformerWhoseWatchIsCutMissesNothing(t *testing.T) {
	for _, how := range []error{nil, io.ErrUnexpectedEOF, Reset, ErrBroken} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newServer(t)
				Put(s, aPod("a", ""))
				informer := informed(t, c)
				wantNames(t, informer, "a")
				time.Sleep(2 * time.Second) // a shorter watch is listed anew
				s.Watches()[0].Cut(how)
				Put(s, aPod("b", ""))
				removePod(t, s, "a")
				time.Sleep(time.Minute)
				wantNames(t, informer, "b")
			})
		})
	}
}

func TestAnInformerBehindACompactionListsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t)
		Put(s, aPod("a", ""))
		// The gate holds the events back until the history is gone.
		held, lists := make(chan struct{}), 0
		c := clientOf(t, s, "slow", gateOf{
			admit: func(_ context.Context, r Request) Fate {
				if r.Verb == Watch {
					lists++
				}
				return Fate{}
			},
			deliver: func(ctx context.Context, _ Event) Passage {
				select {
				case <-held:
				case <-ctx.Done():
				}
				return Passage{}
			}})
		informer := informed(t, c)
		wantNames(t, informer, "a")
		Put(s, aPod("b", ""))
		removePod(t, s, "a")
		wantNames(t, informer, "a") // not told yet
		s.Compact()
		close(held)
		time.Sleep(time.Minute)
		wantNames(t, informer, "b")
		if lists < 2 {
			t.Errorf("it asked %d times, want at least 2", lists)
		}
	})
}

func TestAWatchShowsWhatItSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t)
		from := s.Version()
		w := must[watch.Interface](t)(c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(from), FieldSelector: "spec.nodeName=n1"}))
		defer w.Stop()
		Put(s, aPod("other", "n2"))
		Put(s, aPod("a", ""))
		move := func(node string) {
			t.Helper()
			if _, err := Change(s, "default", "a", func(p *corev1.Pod) { p.Spec.NodeName = node }); err != nil {
				t.Fatal(err)
			}
		}
		move("n1")
		if _, err := Change(s, "default", "a", func(p *corev1.Pod) { p.Labels = map[string]string{"x": "y"} }); err != nil {
			t.Fatal(err)
		}
		move("n2")
		gone := s.Version()
		move("n1")
		removePod(t, s, "a")
		want := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Added, watch.Modified, watch.Deleted}
		for i, kind := range want {
			e := <-w.ResultChan()
			p, ok := e.Object.(*corev1.Pod)
			if e.Type != kind || !ok || p.Name != "a" || p.Spec.NodeName != "n1" {
				t.Fatalf("event %d is %s of %v, want %s", i, e.Type, e.Object, kind)
			}
			if i == 2 && p.ResourceVersion != fmt.Sprint(gone) {
				t.Errorf("a pod that left is shown at %s, want the version of the change, %d", p.ResourceVersion, gone)
			}
		}
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Errorf("one more: %v", e)
		default:
		}
	})
}

func TestAWatchFromBeforeACompactionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t)
		from := s.Version()
		Put(s, aPod("a", ""))
		s.Compact()
		w := must[watch.Interface](t)(c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(from)}))
		defer w.Stop()
		e := <-w.ResultChan()
		if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("got %s %v", e.Type, e.Object)
		}
	})
}

func TestABookmarkTellsTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t)
		w := must[watch.Interface](t)(c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(s.Version()), AllowWatchBookmarks: true}))
		defer w.Stop()
		Put(s, &corev1.Node{ObjectMeta: meta("n1")})
		s.Bookmark()
		e := <-w.ResultChan()
		if p, ok := e.Object.(*corev1.Pod); e.Type != watch.Bookmark || !ok || p.ResourceVersion != fmt.Sprint(s.Version()) {
			t.Errorf("got %s %v", e.Type, e.Object)
		}
	})
}

func TestAStaleListThenItsWatchShowsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t)
		Put(s, aPod("a", ""))
		then := s.Version()
		Put(s, aPod("b", ""))
		removePod(t, s, "a")
		c := clientOf(t, s, "behind", gateOf{admit: func(_ context.Context, r Request) Fate {
			if r.Stale && r.Floor <= then {
				return Fate{At: then}
			}
			return Fate{}
		}})
		w := must[watch.Interface](t)(c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"}))
		defer w.Stop()
		var got []string
		for range 4 {
			e := <-w.ResultChan()
			got = append(got, string(e.Type)+" "+e.Object.(*corev1.Pod).Name)
		}
		if want := []string{"ADDED a", "ADDED b", "MODIFIED a", "DELETED a"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
