package failover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

const (
	// putOn is our taint at first, ourTaint once the driver's pods are gone.
	putOn    = "csi-fencepost:NoSchedule"
	ourTaint = "csi-fencepost:NoExecute"
)

func TestAPowerFenceMovesThePodsOfTheDriver(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		const pods = 50
		for i := range pods {
			name := fmt.Sprintf("db-%d", i)
			w.volume(name, w.driver, nil)
			w.pod(name, w.n1, nil, name)
		}
		w.pod("stateless", w.n1, nil)
		w.pod("waiting", "", nil, "db-0")
		// Taint first: what the Node was like when the first pod went.
		first, once := "", sync.Once{}
		see := func(q *http.Request) error {
			if q.Method == http.MethodDelete {
				once.Do(func() { first = w.tainted() })
			}
			return nil
		}
		w.start()
		w.lives(w.n1, false)
		w.eventually("the waiting pod is told who is suspected", func() bool {
			return w.seen.said("FencepostSuspected waiting", "node "+w.n1+" has not renewed its lease for") > 0
		})
		w.refuse.Store(&see)
		w.eventually("it is fenced", func() bool { return w.fencer.did("off " + w.n1) })
		proof := time.Now()
		w.eventually("the pods are gone", func() bool { return len(w.pods()) == 2 })
		if took := time.Since(proof); took > 15*time.Second {
			t.Errorf("from proof to %d pods deleted: %s", pods, took)
		} else {
			t.Logf("from proof to %d pods deleted: %s", pods, took)
		}
		if first != putOn {
			t.Errorf("when the first pod was deleted the taint was %q", first)
		}
		if !w.has("stateless") || !w.has("waiting") {
			t.Errorf("left: %v", w.pods())
		}
		w.eventually("Kubernetes is left to delete the other pods", func() bool { return w.tainted() == ourTaint })
		if n := w.seen.said("FencepostSuspected db-1:", ""); n < 1 || n > 3 {
			t.Errorf("db-1 was told %d times who is suspected", n)
		}
		if w.seen.said("FencepostFenced db-1:", "PowerReading") != 1 {
			t.Error("db-1 was not told why it was deleted")
		}
	})
}

func TestALivingNodeIsLeftAloneWhateverItsAgentReads(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.fencer.reads(agent.Off)
		c := w.start()
		w.never("a living node was touched", 3*time.Second, func() bool {
			c.Prompt(w.n1)
			return !w.has("a") || w.tainted() != ""
		})
	})
}

func TestAnOperatorsConfirmationMovesPodsWithoutAnyAgent(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.covers = false
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is told what to do", func() bool {
			return w.seen.said("FencepostSuspected a:", "csi-fencepost fence confirm "+w.n1) > 0
		})
		w.never("nothing proves it yet", time.Second, func() bool { return !w.has("a") })
		w.confirm()
		w.eventually("the pod is gone", func() bool { return !w.has("a") && w.tainted() == ourTaint })
	})
}

func TestOptOutsAreLeftAlone(t *testing.T) {
	play(t, func(t *testing.T) {
		out := map[string]string{OptOutAnnotation: "false"}
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.volume("b", w.driver, out)
		w.volume("c", w.driver, nil)
		w.pod("a", w.n1, out, "a")
		w.pod("b", w.n1, nil, "b")
		w.pod("c", w.n1, nil, "c")
		w.start()
		w.lives(w.n1, false)
		w.fencer.reads(agent.Off)
		w.eventually("the other pod is gone", func() bool { return !w.has("c") })
		w.never("a pod that opts out was deleted", 2*time.Second, func() bool { return !w.has("a") || !w.has("b") })
		if got := w.tainted(); got != "csi-fencepost:NoSchedule" {
			t.Errorf("taint %s: NoExecute would have Kubernetes delete them", got)
		}
		if w.seen.said("FencepostLeftAlone a", "") != 1 || w.seen.said("FencepostLeftAlone b", "") != 1 {
			t.Error("they were not told")
		}
	})
}

// Of two drivers' sidecars one must not have Kubernetes delete what the other
// leaves alone.
func TestAPodWithAnotherDriversVolumeThatOptsOutIsLeftAlone(t *testing.T) {
	out := map[string]string{OptOutAnnotation: "false"}
	for name, pods := range map[string]func(*world){
		"by itself": func(w *world) { w.pod("b", w.n1, out, "b") },
		"by its claim": func(w *world) {
			w.volume("claimed", "other."+w.driver, out)
			w.pod("b", w.n1, nil, "claimed")
		},
		"without a volume": func(w *world) { w.pod("b", w.n1, out) },
	} {
		t.Run(name, played(func(t *testing.T) {
			w := newWorld(t)
			w.volume("a", w.driver, nil)
			w.volume("b", "other."+w.driver, nil)
			w.pod("a", w.n1, nil, "a")
			pods(w)
			w.start()
			w.lives(w.n1, false)
			w.fencer.reads(agent.Off)
			w.eventually("our pod is gone", func() bool { return !w.has("a") })
			w.never("Kubernetes was told to delete the other", 2*time.Second, func() bool { return w.tainted() != "csi-fencepost:NoSchedule" })
		}))
	}
}

func TestANodeThatOptsOutIsLeftAlone(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.edit(w.n1, func(n *corev1.Node) { n.Annotations = map[string]string{OptOutAnnotation: "false"} })
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("it says so", func() bool { return w.seen.said("FencepostSuspected a", OptOutAnnotation) > 0 })
		w.never("it was touched", 3*time.Second, func() bool { return !w.has("a") || w.tainted() != "" || w.fencer.did("off "+w.n1) })
	})
}

func TestAStorageFenceMovesOnlyWhatItCovers(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.kind = fence.StorageFence
		must(t, w.api.StorageV1().CSIDrivers().Create, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "nfs." + w.driver},
			Spec: storagev1.CSIDriverSpec{AttachRequired: new(bool)}})
		w.volume("a", w.driver, nil)
		w.volume("b", w.driver, nil)
		w.volume("c", w.driver, nil)
		w.volume("foreign", "other."+w.driver, nil)
		w.volume("share", "nfs."+w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.pod("both", w.n1, nil, "b", "foreign")
		w.pod("shared", w.n1, nil, "c", "share")
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a", "h-b", "h-c")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the covered pods are gone", func() bool { return !w.has("a") && !w.has("shared") })
		w.never("a pod with another driver's volume was deleted, or the node tainted", 2*time.Second,
			func() bool { return !w.has("both") || w.tainted() != "" })
		if w.seen.said("FencepostLeftAlone both", "other."+w.driver) != 1 {
			t.Error("the pod was not told why it stays")
		}

		// Its kubelet comes back under the same boot and still has what moved.
		w.detach("a")
		w.detach("c")
		w.lives(w.n1, true)
		w.eventually("it is noted that the kubelet lists what moved", func() bool { return w.fencer.did("witness " + w.n1) })
		w.never("the fence was lifted with a volume that moved still in use", time.Second, func() bool { return w.fencer.did("lift " + w.n1) })
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-b")
		w.eventually("the fence is lifted once it lists only what is its own", func() bool { return w.fencer.did("lift " + w.n1) })
	})
}

func TestANodeIsNotCutOffFromItsStorageForPodsThatWouldNotMove(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.kind = fence.StorageFence
		w.volume("b", w.driver, nil)
		w.volume("foreign", "other."+w.driver, nil)
		w.pod("both", w.n1, nil, "b", "foreign")
		w.start()
		w.lives(w.n1, false)
		w.eventually("it says why it is not fenced", func() bool { return w.seen.said("FencepostFencingBlocked both", string(BrakeNothingWaits)) == 1 })
		w.never("it was fenced", time.Second, func() bool { return w.fencer.did("off " + w.n1) })
		// Somebody else has fenced it: the pod still stays, and is told why.
		w.fencer.reads(agent.Off)
		w.eventually("the pod is told why it stays", func() bool { return w.seen.said("FencepostLeftAlone both", "other."+w.driver) == 1 })
		w.never("the pod was deleted", time.Second, func() bool { return !w.has("both") })
	})
}

func TestAStorageFenceIsNotLiftedForAKubeletThatForgot(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.kind = fence.StorageFence
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		w.detach("a")
		w.status(w.n1, "boot-1", corev1.ConditionTrue)
		w.lives(w.n1, true)
		w.eventually("it says that a reboot is needed", func() bool { return w.seen.said("FencepostFencingBlocked "+w.n1, "Reboot it") > 0 })
		w.never("it was lifted on the word of a kubelet that may have forgotten", 2*time.Second, func() bool { return w.fencer.did("lift " + w.n1) })
		w.status(w.n1, "boot-2", corev1.ConditionTrue)
		w.eventually("a boot lifts it", func() bool { return w.fencer.did("lift " + w.n1) })
	})
}

// Whoever patches Nodes can write an annotation, and in one the version before kept what
// the record keeps now.
func TestAnAnnotationOfTheNodeIsNoWitness(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.kind = fence.StorageFence
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		w.detach("a")
		w.status(w.n1, "boot-1", corev1.ConditionTrue)
		f, err := w.fencer.Fence(t.Context(), w.n1)
		if err != nil || f == nil {
			t.Fatalf("no fence: %v", err)
		}
		w.edit(w.n1, func(n *corev1.Node) {
			n.Annotations = map[string]string{"csi-fencepost.io/witness": fmt.Sprintf("boot boot-1, ready since %s, fence %s",
				fence.ReadyCondition(n).LastTransitionTime.UTC().Format(time.RFC3339), f.LeaseRV)}
		})
		w.lives(w.n1, true)
		w.eventually("it says that a reboot is needed", func() bool { return w.seen.said("FencepostFencingBlocked "+w.n1, "Reboot it") > 0 })
		w.never("it was lifted on the word of whoever patches Nodes", 2*time.Second, func() bool { return w.fencer.did("lift " + w.n1) })
	})
}

func TestAStorageFenceIsLiftedOnceWhatMovedIsUnpublishedByADriverThatRevokes(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.kind = fence.StorageFence
		w.options.UnpublishRevokesAccess = true
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		w.finalizer("a", "external-attacher/x")
		w.detach("a")
		w.lives(w.n1, true)
		w.never("it was lifted while a volume was on its way", 2*time.Second, func() bool { return w.fencer.did("lift " + w.n1) })
		w.finalizer("a")
		w.eventually("it is lifted once that is unpublished, although the kubelet lists it", func() bool { return w.fencer.did("lift " + w.n1) })
	})
}

// fenced brings n1 to where its pod is gone and our taint is on.
func fenced(t *testing.T) *world {
	w := newWorld(t)
	w.volume("a", w.driver, nil)
	w.pod("a", w.n1, nil, "a")
	w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
	w.start()
	w.lives(w.n1, false)
	w.eventually("the pod is gone", func() bool { return !w.has("a") && w.tainted() == ourTaint })
	w.detach("a")
	w.status(w.n1, "boot-1", corev1.ConditionUnknown, "h-a")
	return w
}

func TestANewBootReadmits(t *testing.T) {
	play(t, func(t *testing.T) {
		w := fenced(t)
		w.never("the taint went before the node was back", 2*time.Second, func() bool { return w.tainted() == "" })
		w.fencer.reads(agent.On)
		w.lives(w.n1, true)
		w.status(w.n1, "boot-2", corev1.ConditionFalse)
		w.never("the taint went before the node was Ready", 1500*time.Millisecond, func() bool { return w.tainted() == "" })
		w.status(w.n1, "boot-2", corev1.ConditionTrue)
		w.eventually("the taint is off", func() bool { return w.tainted() == "" })
		w.eventually("it says so", func() bool { return w.seen.said("FencepostReadmitted "+w.n1, "") == 1 })
		if f, _ := w.fencer.Fence(t.Context(), w.n1); f.Void == "" {
			t.Error("the fence still counts")
		}
		if w.seen.said("FencepostFenceVoid", "") != 0 {
			t.Error("it warns of a fence that was right")
		}
	})
}

func TestANodeThatGoesOnWithoutABootIsWarnedOf(t *testing.T) {
	play(t, func(t *testing.T) {
		w := fenced(t)
		w.lives(w.n1, true)
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
		w.eventually("it warns", func() bool { return w.seen.said("FencepostFenceVoid "+w.n1, "without having booted") == 1 })
		w.eventually("the fence is void", func() bool { return w.fencer.did("void " + w.n1) })
		w.never("the taint went while a volume that moved is in use", 2*time.Second, func() bool { return w.tainted() == "" })
		w.status(w.n1, "boot-1", corev1.ConditionTrue)
		w.eventually("the taint is off", func() bool { return w.tainted() == "" })
	})
}

func TestALeaderThatDiesBetweenTaintAndPodsIsFollowed(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		died := make(chan struct{}, 100)
		dies := func(q *http.Request) error {
			if q.Method != http.MethodDelete {
				return nil
			}
			died <- struct{}{}
			return errors.New("the leader is dead")
		}
		w.refuse.Store(&dies)
		w.start()
		w.lives(w.n1, false)
		select {
		case <-died:
		case <-time.After(20 * time.Second):
			t.Fatalf("no pod was deleted within 20 s\ncalls: %v", w.fencer.done())
		}
		w.stop()
		if w.tainted() != putOn || !w.has("a") {
			t.Fatalf("taint %q, pods %v", w.tainted(), w.pods())
		}
		w.refuse.Store(nil)
		begun := time.Now()
		w.start()
		w.eventually("the next leader goes on", func() bool { return !w.has("a") })
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if strings.Count(strings.Join(w.fencer.done(), " "), "off") != 1 {
			t.Errorf("calls: %v", w.fencer.done())
		}
	})
}

func TestABrakeHoldsTheFenceAndSaysSo(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.edit(w.n1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.start()
		w.lives(w.n1, false)
		w.eventually("it says why", func() bool { return w.seen.said("FencepostFencingBlocked a", "kubectl uncordon "+w.n1) == 1 })
		if b := w.seen.blockedBy(); b != BrakeCordoned {
			t.Errorf("the metric says %q", b)
		}
		w.never("a cordoned node was fenced", 2*time.Second, func() bool { return w.fencer.did("off " + w.n1) })
		w.edit(w.n1, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		w.eventually("it is fenced after all", func() bool { return w.fencer.did("off "+w.n1) && w.seen.blockedBy() == NoBrake })
	})
}

// Whoever may patch Nodes has a silent one neither fenced nor, by the opt-out, its pods moved, for as long
// as his mark is on it. What is proven moves in spite of the other marks, and nothing moves by any.
func TestWhoeverPatchesNodesKeepsASilentOneFromBeingFencedAndMovesNothing(t *testing.T) {
	for brake, mark := range map[Brake]func(n *corev1.Node){
		BrakeCordoned:    func(n *corev1.Node) { n.Spec.Unschedulable = true },
		BrakeMaintenance: func(n *corev1.Node) { n.Annotations = map[string]string{MaintenanceAnnotation: "x"} },
		BrakeScaleDown: func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: scaleDownTaint, Effect: corev1.TaintEffectNoSchedule}}
		},
		BrakeOptOut: func(n *corev1.Node) { n.Annotations = map[string]string{OptOutAnnotation: "false"} },
	} {
		t.Run(string(brake), played(func(t *testing.T) {
			w := newWorld(t)
			w.volume("a", w.driver, nil)
			w.pod("a", w.n1, nil, "a")
			w.edit(w.n1, mark)
			w.start()
			touched := func() bool { return !w.has("a") || w.tainted() != "" || w.fencer.did("off "+w.n1) }
			w.never("it was touched while it lives", time.Second, touched)
			if brake == BrakeOptOut {
				w.fencer.reads(agent.Off)
			}
			w.lives(w.n1, false)
			w.never("it was touched while he keeps it", 2*w.options.FenceAfter, touched)
			if brake == BrakeOptOut {
				w.edit(w.n1, func(n *corev1.Node) { n.Annotations = nil })
			} else if b := w.seen.blockedBy(); b != brake {
				t.Errorf("the metric says %q", b)
			}
			w.fencer.reads(agent.Off)
			w.eventually("its pods move", func() bool { return !w.has("a") && w.tainted() != "" })
		}))
	}
}

// A tenant's pod that waits for a volume of his is a reason to fence the node that holds it once that is
// silent, and none while it lives.
func TestAPodThatWaitsIsAReasonToFenceASilentNodeAndNoLivingOne(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("waits", "", nil, "a")
		w.start()
		w.never("a node that lives was fenced", 2*w.options.FenceAfter, func() bool { return w.fencer.did("off " + w.n1) })
		w.lives(w.n1, false)
		w.eventually("it is fenced for who waits", func() bool { return w.fencer.did("off " + w.n1) })
	})
}

// A tenant's pod that is bound to a node which is cut off from its storage, and waits there for a volume that
// has moved off it, keeps the whole node cut off: a kubelet lists what a pod waits for like what it has mounted.
// A person is told which volume it is, and the pod's end ends it.
func TestAPodThatWaitsWhereItsVolumeHasMovedFromKeepsTheNodeCutOff(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.kind = fence.StorageFence
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		w.detach("a")
		w.lives(w.n1, true)
		w.eventually("it is noted that the kubelet lists what moved", func() bool { return w.fencer.did("witness " + w.n1) })
		waits := w.pod("waits", w.n1, map[string]string{OptOutAnnotation: "false"}, "a") // another would be deleted, until it is made anew
		w.never("the fence was lifted while a pod waits there", movedLong+10*time.Second, func() bool { return w.fencer.did("lift " + w.n1) })
		if w.seen.said("FencepostFencingBlocked "+w.n1, "h-a") == 0 {
			t.Error("nobody is told which volume keeps it cut off")
		}
		if err := w.api.CoreV1().Pods(w.ns).Delete(t.Context(), waits.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.status(w.n1, "boot-1", corev1.ConditionTrue)
		w.eventually("the fence is lifted once nobody waits there", func() bool { return w.fencer.did("lift " + w.n1) })
	})
}

// A tenant's pod that opts out keeps its volume on the node that was fenced, so that this counts as being fenced
// and holds the fence of another node, with maxConcurrent 1, for five minutes and no longer.
func TestAPodThatOptsOutHoldsTheFencesOfOtherNodesForFiveMinutes(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		n2 := w.ns + "-n2"
		w.options.MaxConcurrent, w.options.MaxUnhealthy = 1, 1 // two of three are no storm
		w.volume("stays", w.driver, nil)
		w.volume("a", w.driver, nil)
		w.volume("b", w.driver, nil)
		w.pod("stays", w.n1, map[string]string{OptOutAnnotation: "false"}, "stays")
		w.pod("a", w.n1, nil, "a")
		w.pod("b", n2, nil, "b")
		w.detach("b") // from the first
		w.status(n2, "boot-1", corev1.ConditionTrue, "h-b")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the first is fenced and its other pod is gone", func() bool { return w.fencer.did("off "+w.n1) && !w.has("a") })
		fenced := time.Now()
		w.detach("a")
		w.fencer.mu.Lock()
		w.fencer.only = w.n1
		w.fencer.mu.Unlock()
		w.lives(n2, false)
		w.eventually("the second is not fenced for the first", func() bool { return w.seen.blockedBy() == BrakeConcurrent })
		w.never("it is fenced within five minutes", inFlight-time.Since(fenced)-time.Second, func() bool { return w.fencer.did("off " + n2) })
		w.eventually("it is fenced after them", func() bool { return w.fencer.did("off " + n2) })
	})
}

// A tenant's claim that names another's volume, and is not bound to it, as everybody may make one,
// does not hide the pods that wait for that volume: its node is fenced for them, and they are told.
func TestAClaimThatNamesAnothersVolumeHidesNobodyWhoWaitsForIt(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("waits", "", nil, "a")
		w.tenant("a", w.ns+"-a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("it is fenced for who waits", func() bool { return w.fencer.did("off " + w.n1) })
		if w.seen.said("FencepostSuspected waits", "") == 0 {
			t.Error("who waits was not told")
		}
	})
}

func TestAFenceThatFailsIsToldOnTheWaitingPodUntilTheNextIsTried(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.offWorks = false
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		for _, on := range []string{"a", w.n1} {
			w.eventually("it says why it is not fenced, on "+on, func() bool {
				return w.seen.said("FencepostFencingBlocked "+on, "fencing it failed: agent bmc reads on") == 1
			})
		}
		suspected := w.seen.said("FencepostSuspected a", "")
		w.never("something else was said meanwhile", 2*time.Second, func() bool {
			return w.seen.said("FencepostSuspected a", "") > suspected || w.seen.said("FencepostFencingBlocked a", "") > 1
		})
	})
}

func TestAStormFencesNothing(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		time.Sleep(suspectAfter)
		for n := range map[string]bool{w.n1: true, w.ns + "-n2": true} {
			w.lives(n, false)
		}
		w.eventually("the storm is named", func() bool { return w.seen.blockedBy() == BrakeStorm })
		w.never("a node was fenced in a storm", 3*time.Second, func() bool { return len(w.fencer.done()) > 0 })
	})
}

func TestAnOwnLeadThatIsLateFencesNothing(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Lead = func() error { return errors.New("not renewed for 8s") }
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("it says so", func() bool { return w.seen.said("FencepostFencingBlocked a", "not renewed for 8s") == 1 })
		w.never("it was fenced", 2*time.Second, func() bool { return w.fencer.did("off " + w.n1) })
	})
}

func TestAnAPIOutageFencesNothing(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		time.Sleep(2 * suspectAfter)
		w.server.StopAPIServer()
		time.Sleep(5 * time.Second) // twice fenceAfter
		if len(w.fencer.done()) > 0 {
			t.Errorf("in the outage: %v", w.fencer.done())
		}
		if err := w.server.StartAPIServer(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.never("a living node was fenced after the outage", 4*time.Second, func() bool { return len(w.fencer.done()) > 0 || w.tainted() != "" })
		w.lives(w.n1, false)
		w.eventually("one that dies is fenced", func() bool { return !w.has("a") })
	})
}

func TestAPersonsTaintIsNeverOverwritten(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.edit(w.n1, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taintOf("nodeshutdown")) })
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		if got := w.tainted(); got != "nodeshutdown:NoExecute" {
			t.Errorf("taint %s", got)
		}
	})
}

func TestAPodThatIsBackUnderTheSameNameIsAnotherOne(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.pod("db", w.n1, nil)
		if err := w.api.CoreV1().Pods(w.ns).Delete(t.Context(), "db", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
		w.pod("db", w.ns+"-n2", nil)
		if err := (&worker{Controller: New(w.options)}).deletePod(t.Context(), pod{Pod: old}); err != nil {
			t.Error(err)
		}
		if !w.has("db") {
			t.Error("the new pod was deleted")
		}
	})
}

func TestPowerComesBackOnlyWhenEveryDriversVolumeHasMoved(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.PowerOn = true
		w.fencer.also = []fencer.Fence{{ID: "storage", Node: w.n1, NodeUID: "another", Kind: fence.StorageFence}}
		w.volume("a", w.driver, nil)
		w.volume("foreign", "other."+w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		w.detach("a")
		w.never("power came back with another driver's volume attached", 2*time.Second, func() bool { return w.fencer.did("on " + w.n1) })
		foreign := w.driver
		w.driver = "other." + foreign
		w.detach("foreign")
		w.driver = foreign
		w.eventually("power is back", func() bool { return w.fencer.did("on " + w.n1) })
		if got := fmt.Sprint(w.fencer.undoes); got != "[f-"+w.n1+" storage]" {
			t.Errorf("it undoes %s, and would refuse where another fence stands", got)
		}
	})
}

func TestPowerStaysOffWhileSomebodyWorksOnTheNode(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.PowerOn = true
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") })
		w.change(w.n1, func(n *corev1.Node) { n.Annotations = map[string]string{MaintenanceAnnotation: "disk swap"} })
		w.detach("a")
		w.never("a node under maintenance was powered on", 2*time.Second, func() bool { return w.fencer.did("on " + w.n1) })
		w.eventually("it says why", func() bool {
			return w.seen.said("FencepostLeftAlone "+w.n1, "is not powered on again: it is under maintenance") == 1
		})
		w.change(w.n1, func(n *corev1.Node) { n.Annotations = nil })
		w.eventually("power is back", func() bool { return w.fencer.did("on " + w.n1) })
	})
}

// Agents that cut storage do not know whether a machine has power: who turned it off does.
func TestAPowerFenceOfOthersMovesPodsThoughAgentsHereReadOnlyTheStorage(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.kind, w.options.FenceAfter = fence.StorageFence, 0
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
		w.start()
		w.lives(w.n1, false)
		w.never("it moved although nothing proves it off", 3*time.Second, func() bool { return !w.has("a") })
		lease, err := w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), w.n1, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n, err := w.api.CoreV1().Nodes().Get(t.Context(), w.n1, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.fencer.mu.Lock()
		w.fencer.records[w.n1] = fencer.Fence{ID: "f", Node: w.n1, NodeUID: string(n.UID), BootID: "boot-1", LeaseRV: lease.ResourceVersion, Kind: fence.PowerReading, Source: "bmc", Vouched: true}
		w.fencer.mu.Unlock()
		w.eventually("the pod is gone", func() bool { return !w.has("a") && w.tainted() == ourTaint })
	})
}

// What the driver's own sidecar has cut off moves by that; a second driver's volume does not.
func TestPowerIsCutOnlyWhereTheStorageFencesOfOthersDoNotDo(t *testing.T) {
	for second, cut := range map[bool]bool{false: false, true: true} {
		play(t, func(t *testing.T) {
			w := newWorld(t)
			w.volume("a", w.driver, nil)
			w.pod("a", w.n1, nil, "a")
			if second {
				w.second = "second." + w.driver
				w.volume("b", w.second, nil)
				w.pod("b", w.n1, nil, "b")
			}
			n, err := w.api.CoreV1().Nodes().Get(t.Context(), w.n1, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w.fencer.others = []fencer.Fence{{ID: "s", Node: w.n1, NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, Kind: fence.StorageFence, Driver: w.driver,
				Others: true, Vouched: true, Cut: true, At: time.Now()}}
			w.start()
			w.lives(w.n1, false)
			if cut {
				w.eventually("its power is cut", func() bool { return w.fencer.did("off " + w.n1) })
				return
			}
			w.eventually("the storage fence is named", func() bool { return w.seen.blockedBy() == BrakeStorage })
			w.never("its power was cut", time.Second, func() bool { return w.fencer.did("off " + w.n1) })
		})
	}
}

// A fence that nobody vouches for, as every driver's pod can write it, holds no other up.
func TestTheBrakesHeedOnlyWhatCounts(t *testing.T) {
	for counts, cut := range map[bool]bool{true: false, false: true} {
		play(t, func(t *testing.T) {
			w := newWorld(t)
			w.volume("a", w.driver, nil)
			w.pod("a", w.n1, nil, "a")
			before := []fencer.Fence{{ID: "f", Node: "another", Kind: fence.PowerReading, Cut: true, At: time.Now()}}
			if w.fencer.others = before; !counts {
				w.fencer.others, w.fencer.uncounted = nil, before
			}
			w.start()
			w.lives(w.n1, false)
			if cut {
				w.eventually("its power is cut", func() bool { return w.fencer.did("off " + w.n1) })
				return
			}
			w.eventually("the brake of the hour holds", func() bool { return w.seen.blockedBy() == BrakeHourly })
			w.never("its power was cut", time.Second, func() bool { return w.fencer.did("off " + w.n1) })
		})
	}
}

// unanswered is a source that has not said whether a machine is on, where somebody claims that it
// is off, until it is told to.
type unanswered struct{ said atomic.Bool }

func (*unanswered) Name() string { return "unanswered" }
func (u *unanswered) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	claimed := slices.ContainsFunc(q.Holder.Evidence, func(e fence.Evidence) bool { return e.Kind == fence.OperatorConfirmation })
	if !claimed || u.said.Load() {
		return nil, nil
	}
	return []fence.Evidence{{Kind: fence.PowerReading, Unanswered: true, NodeUID: q.Holder.NodeUID, BootID: q.Holder.BootID, LeaseRV: q.LeaseRV}}, nil
}

func TestNoPodMovesOnAClaimBeforeWhoReadsThePowerHasAnswered(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.fencer.covers = false
		power := &unanswered{}
		w.options.Sources = append(w.options.Sources, power)
		w.volume("a", w.driver, nil)
		w.pod("a", w.n1, nil, "a")
		w.start()
		w.lives(w.n1, false)
		w.confirm()
		w.never("it moved without an answer", 4*time.Second, func() bool { return !w.has("a") || w.tainted() != "" })
		power.said.Store(true)
		w.eventually("the pod is gone", func() bool { return !w.has("a") && w.tainted() == ourTaint })
	})
}
