package failover

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"

	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

// beforeTaint runs f once, between the plan and the arrival of the patch that
// puts the taint on.
func (w *world) beforeTaint(f func()) {
	var once sync.Once
	hook := func(q *http.Request) error {
		if q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, "/nodes/"+w.n1) {
			once.Do(f)
		}
		return nil
	}
	w.refuse.Store(&hook)
}

// The end of a storm begins every age anew, also the one that a look has just read.
func TestAStormThatEndsWhileANodeIsLookedAtFencesNothing(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		time.Sleep(suspectAfter)
		n2 := w.ns + "-n2"
		for _, n := range []string{w.n1, n2} {
			w.lives(n, false)
		}
		w.eventually("the storm is named", func() bool { return w.seen.blockedBy() == BrakeStorm })
		var once sync.Once
		over := make(chan struct{})
		hook := func(q *http.Request) error {
			if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/pods") { // after the lease, before the brakes
				once.Do(func() {
					w.lives(n2, true)
					time.Sleep(500 * time.Millisecond) // two renewals
					close(over)
				})
			}
			return nil
		}
		w.refuse.Store(&hook)
		select {
		case <-over:
		case <-time.After(20 * time.Second):
			t.Fatal("the pods were not listed within 20 s")
		}
		w.never("a node was fenced at the end of the storm", w.options.FenceAfter-time.Second, func() bool { return len(w.fencer.done()) > 0 })
		w.eventually("it is fenced when it was watched anew", func() bool { return w.fencer.did("off " + w.n1) })
	})
}

// Whoever has the node's lock may keep it for a minute.
func TestWhatComesUpWhileTheLockIsWaitedForHoldsTheFence(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(*world)
		brake      Brake
	}{
		"somebody cordons the node": {
			func(w *world) { w.edit(w.n1, func(n *corev1.Node) { n.Spec.Unschedulable = true }) },
			func(w *world) { w.edit(w.n1, func(n *corev1.Node) { n.Spec.Unschedulable = false }) }, BrakeCordoned},
		"another node falls silent": {
			func(w *world) { w.lives(w.ns+"-n2", false); time.Sleep(3 * suspectAfter) },
			func(w *world) { w.lives(w.ns+"-n2", true) }, BrakeStorm},
	} {
		t.Run(name, played(func(t *testing.T) {
			w := newWorld(t)
			w.volume("a", w.driver, nil)
			w.pod("a", w.n1, nil, "a")
			var once sync.Once
			w.fencer.locked = func() { once.Do(func() { c.begin(w) }) }
			w.start()
			w.lives(w.n1, false)
			w.eventually("the brake is named", func() bool { return w.seen.blockedBy() == c.brake })
			w.never("it was fenced", time.Second, func() bool { return len(w.fencer.done()) > 0 })
			c.end(w)
			w.eventually("it is fenced after all", func() bool { return w.fencer.did("off " + w.n1) })
		}))
	}
}

func TestATaintThatIsTakenOffBetweenLookAndPodsStopsTheDeletion(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.covers = false
		w.options.Sources = []evidence.Source{evidence.OutOfServiceTaint(evidence.Records{Store: w.options.Records, Actor: "test"})}
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("it is suspected", func() bool { return w.seen.said("FencepostSuspected a:", "") > 0 })
		var once sync.Once
		hook := func(q *http.Request) error {
			if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/pods") && w.tainted() != "" { // after the Node, before the deletions
				once.Do(func() { w.edit(w.n1, func(n *corev1.Node) { n.Spec.Taints = nil }) })
			}
			return nil
		}
		w.refuse.Store(&hook)
		w.edit(w.n1, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taintOf("nodeshutdown")} })
		w.eventually("the taint was taken off", func() bool { return w.tainted() == "" })
		w.never("a pod was deleted on a taint that was taken off", 3*time.Second, func() bool { return !w.has("a") })
	})
}

func TestAPersonsWordThatIsTakenBackBetweenTaintAndPodsStopsTheDeletion(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.covers = false
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.beforeTaint(func() {
			if _, err := w.options.Records.Update(context.Background(), w.n1, func(r *noderecord.Record) (bool, error) {
				r.Confirmations = nil
				return true, nil
			}); err != nil {
				t.Error(err)
			}
		})
		w.start()
		w.lives(w.n1, false)
		w.eventually("it is suspected", func() bool { return w.seen.said("FencepostSuspected a:", "") > 0 })
		w.confirm()
		w.eventually("the taint is on", func() bool { return w.tainted() != "" })
		w.never("a pod was deleted on a word that was taken back", 2*time.Second, func() bool { return !w.has("a") })
	})
}

func TestARenewalBetweenTaintAndPodsStopsTheDeletion(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.beforeTaint(func() {
			w.fencer.reads(agent.On)
			w.lives(w.n1, true)
			time.Sleep(500 * time.Millisecond) // two renewals
		})
		w.start()
		w.lives(w.n1, false)
		w.eventually("it is fenced", func() bool { return w.fencer.did("off " + w.n1) })
		w.never("a pod of a living node was deleted", 3*time.Second, func() bool { return !w.has("a") })
	})
}

func TestAPersonsTaintThatComesFirstStays(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.beforeTaint(func() {
			w.edit(w.n1, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taintOf("nodeshutdown")) })
		})
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		if got := w.tainted(); got != "nodeshutdown:NoExecute" {
			t.Errorf("taint %s", got)
		}
	})
}

func TestAnotherSidecarsRecordIsAHintWhereWeHaveAnAgent(t *testing.T) {
	for name, c := range map[string]struct {
		covers  bool
		vouched bool
		moves   bool
	}{"with an agent": {true, true, false}, "without": {false, true, true}, "without, and nobody vouches for it": {false, false, false}} {
		t.Run(name, played(func(t *testing.T) {
			w := newWorld(t)
			w.options.FenceAfter = 0
			w.volume("a", w.driver, nil)
			w.pod("a", w.n1, nil, "a")
			w.fencer.covers = c.covers
			w.fencer.reads(agent.Unclear)
			w.lives(w.n1, false)
			time.Sleep(300 * time.Millisecond) // a renewal under way
			var lease *coordinationv1.Lease
			lease, err := w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), w.n1, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w.fencer.mu.Lock()
			w.fencer.records[w.n1] = fencer.Fence{Node: w.n1, NodeUID: string(w.node(w.n1).UID), BootID: "boot-1", LeaseRV: lease.ResourceVersion, Kind: fence.PowerReading, Vouched: c.vouched, Cut: true}
			w.fencer.mu.Unlock()
			w.start()
			if c.moves {
				w.eventually("the pod is gone", func() bool { return !w.has("a") })
				return
			}
			w.never("the record alone moved a pod", 4*time.Second, func() bool { return !w.has("a") || w.tainted() != "" })
		}))
	}
}

func TestAnAgentThatStaysOnIsNotFencedAgainAndAgain(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.offWorks = false
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("it is fenced", func() bool { return w.fencer.did("off " + w.n1) })
		w.never("a pod of a machine that reads on was deleted", 4*time.Second, func() bool { return !w.has("a") || w.tainted() != "" })
		w.fencer.mu.Lock()
		defer w.fencer.mu.Unlock()
		if len(w.fencer.calls) != 1 || w.fencer.asks > 40 {
			t.Errorf("calls %v, %d questions", w.fencer.calls, w.fencer.asks)
		}
	})
}
