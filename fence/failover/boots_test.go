package failover

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// taken writes that a takeover took the volume from n1.
func (w *world) taken(volume string) {
	w.t.Helper()
	n := w.node(w.n1)
	l := &ledger.Ledger{Version: 1, Driver: w.driver, Handle: "h-" + volume, Cluster: "c", PVUID: "p", Holders: []ledger.Entry{{NodeID: "id-" + w.n1, NodeName: w.n1, NodeUID: string(n.UID), BootID: "boot-1", Token: "t1", State: fence.TakenOver}}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, ledger.Annotation, l.String())
	if _, err := w.api.CoreV1().PersistentVolumes().Patch(context.Background(), w.ns+"-"+volume, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// For what a takeover took from a node no pod waits, though the status of one that
// boots still lists it in use. Fenced for it, such a node would never come back while
// the pod has no other place.
func TestANodeThatBootsIsNotFencedForWhatWasTakenFromIt(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.status(w.n1, "boot-1", corev1.ConditionTrue, "h-a")
		w.pod("a", w.n1, nil, "a")
		c := w.start()
		w.fencer.reads(agent.Off) // its power failed
		w.lives(w.n1, false)
		w.eventually("the pod is gone", func() bool { return !w.has("a") && w.tainted() == ourTaint })
		w.taken("a")
		w.detach("a")
		w.pod("a", "", nil, "a") // no node has room for it, but for n1
		time.Sleep(2 * time.Second)
		w.fencer.reads(agent.On)
		w.never("it was fenced as it booted", 6*time.Second, func() bool {
			c.Prompt(w.n1)
			return w.fencer.did("off " + w.n1)
		})
		if b := w.seen.blockedBy(); b != BrakeNothingWaits {
			t.Errorf("it is braked by %q", b)
		}
	})
}

// What it lists in a later boot it may have again.
func TestWhatWasTakenIsOfTheBootInWhichItWas(t *testing.T) {
	d := Driver{IDs: &csi.Identity{Driver: "disk.example.com"}}
	h := held{d, observe.Held{Handle: "h-a", Entry: &ledger.Entry{NodeID: "id", NodeName: "n1", NodeUID: "uid", BootID: "boot-1", State: fence.TakenOver}}}
	for name, c := range map[string]struct {
		boot  string
		lists bool
		want  bool
	}{
		"the same boot":                     {"boot-1", true, true},
		"a later one":                       {"boot-2", true, false},
		"a later one, and it lists nothing": {"boot-2", false, true},
		"one that is not known":             {"", true, true},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid"}}
		n.Status.NodeInfo.BootID = c.boot
		if c.lists {
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{d.IDs.UniqueName("h-a")}
		}
		if got := h.taken(n); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
