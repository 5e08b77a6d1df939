package failover

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// A node whose power is cut for nothing: what the agents read of it afterwards is bound
// to no boot, and so counts for nothing.
func TestANodeOfWhichNoProofCouldCountIsNotFencedAndPageAndEventSayTheSame(t *testing.T) {
	for name, power := range map[string]agent.State{"it is on": agent.On, "it is off": agent.Off} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T) {
				w := newWorld(t)
				w.volume("a", w.driver, nil)
				w.status(w.n1, "", corev1.ConditionTrue, "h-a")
				w.pod("a", w.n1, nil, "a")
				w.fencer.offWorks = true
				w.fencer.reads(power)
				c := w.start()
				w.lives(w.n1, false)
				w.eventually("the Event says why", func() bool {
					return w.seen.said("FencepostSuspected a", fence.VoidNoBootID)+w.seen.said("FencepostFencingBlocked a", fence.VoidNoBootID) > 0
				})
				w.never("it is fenced", 20*time.Second, func() bool { return w.fencer.did("off " + w.n1) })
				words := ""
				for _, st := range c.Status() {
					if st.Node == w.n1 {
						words = st.Awaited
					}
				}
				why, unblock := (&fence.Holder{NodeName: w.n1, NodeUID: "u", Node: &fence.Node{UID: "u"}}).Unprovable()
				if why != fence.VoidNoBootID || !strings.Contains(words, why) || !strings.Contains(words, unblock) {
					t.Errorf("the page says %q, want %q and %q", words, why, unblock)
				}
				if on := w.seen.said("FencepostSuspected a", unblock) + w.seen.said("FencepostFencingBlocked a", unblock); on == 0 {
					t.Error("the Event does not say what a person can do")
				}
				if w.seen.said("FencepostSuspected a", "it is fenced when") > 0 {
					t.Error("an Event says that it will be fenced")
				}
			})
		})
	}
}

// A fence that no agent could make is not begun every half a minute: it is said why.
func TestANodeOfWhichNoAgentIsToldWhichMachineItIsIsNotFenced(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.status(w.n1, "b1", corev1.ConditionTrue, "h-a")
		w.pod("a", w.n1, nil, "a")
		w.fencer.offWorks, w.fencer.withheld = true, "agent bmc is not told which machine it is"
		w.start()
		w.lives(w.n1, false)
		w.eventually("the Event says why", func() bool { return w.seen.said("FencepostFencingBlocked a", w.fencer.withheld) > 0 })
		w.never("it is fenced", 20*time.Second, func() bool { return w.fencer.did("off " + w.n1) })
	})
}

// A kubelet that has its Node named after one healthy machine after the other has one at most.
func TestANodeThatNamesAnotherMachineThanItWasFencedAsIsNotFenced(t *testing.T) {
	for _, second := range []bool{false, true} {
		play(t, func(t *testing.T) {
			w := newWorld(t)
			w.second = "second." + w.driver
			w.volume("a", w.driver, nil)
			w.status(w.n1, "b1", corev1.ConditionTrue, "h-a")
			w.pod("a", w.n1, nil, "a")
			w.fencer.offWorks = true
			ids := map[string]string{w.driver: "id-of-n2"}
			if second {
				ids = map[string]string{w.second: "id-of-n2"}
			}
			w.fencer.records["earlier"] = fencer.Fence{ID: "f0", Node: w.n1, NodeUID: string(w.node(w.n1).UID), NodeIDs: ids, Cut: true, Void: "back", At: time.Now()}
			w.start()
			w.lives(w.n1, false)
			w.eventually("the Event says why", func() bool {
				return w.seen.said("FencepostFencingBlocked a", "its Node was fenced as another machine (node ID id-of-n2)") > 0
			})
			w.never("it is fenced", 20*time.Second, func() bool { return w.fencer.did("off " + w.n1) })
		})
	}
}

// Where another level cuts the power, the storage fence is made all the same: it needs no
// boot to count.
func TestANodeWithoutABootIDIsCutOffFromItsStorageWhateverElseCoversIt(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		play(t, func(t *testing.T) {
			w := newWorld(t)
			w.volume("a", w.driver, nil)
			w.status(w.n1, "", corev1.ConditionTrue, "h-a")
			w.pod("a", w.n1, nil, "a")
			w.fencer.kind, w.fencer.mixed, w.fencer.offWorks = fence.StorageFence, mixed, true
			w.start()
			w.lives(w.n1, false)
			w.eventually("it is fenced", func() bool { return w.fencer.did("off " + w.n1) })
		})
	}
}
