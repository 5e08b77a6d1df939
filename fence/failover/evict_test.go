package failover

import (
	"context"
	"fmt"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// As a StatefulSet's pod: somebody deletes it by force and it is made again
// under its name, after the node's pods were listed and before they are deleted.
func TestAPodThatIsBackUnderItsNameIsNotDeleted(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.volume("a", w.driver, nil)
		w.volume("b", w.driver, nil)
		old := w.pod("a", w.n1, nil, "a")
		w.pod("b", w.n1, nil, "b")
		w.beforeTaint(func() {
			at := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
			if err := w.api.CoreV1().Pods(w.ns).Delete(context.Background(), "a", at); err != nil {
				t.Error(err)
				return
			}
			w.pod("a", "", nil, "a")
		})
		w.fencer.reads(agent.Off)
		w.start()
		w.lives(w.n1, false)
		w.eventually("the node's other pod is gone", func() bool { return !w.has("b") })
		w.never("the new pod was deleted", 2*time.Second, func() bool { return !w.has("a") })
		now, err := w.api.CoreV1().Pods(w.ns).Get(context.Background(), "a", metav1.GetOptions{})
		if err != nil || now.UID == old.UID {
			t.Errorf("the pod of that name: %v, UID %s, the old one's %s", err, now.UID, old.UID)
		}
	})
}

// manyPods is more than go ahead.
func (w *world) manyPods() (names []string) {
	for i := range 3 * vanguard {
		names = append(names, fmt.Sprintf("p%02d", i))
		w.volume(names[i], w.driver, nil)
		w.pod(names[i], w.n1, nil, names[i])
	}
	return names
}

// Deleted all at once, the first of many volumes would wait for the last.
func TestAFewPodsGoAheadUntilAVolumeIsAttachedElsewhere(t *testing.T) {
	play(t, func(t *testing.T) {
		// Longer than a busy machine takes.
		limit := vanguardLimit
		vanguardLimit = 15 * time.Second
		t.Cleanup(func() { vanguardLimit = limit })
		w := newWorld(t)
		names := w.manyPods()
		w.fencer.reads(agent.Off)
		w.start()
		w.lives(w.n1, false)
		w.eventually("the first pods are gone", func() bool { return len(w.pods()) <= len(names)-vanguard })
		left, pv, began := len(w.pods()), "", time.Now()
		for _, name := range names {
			if !w.has(name) {
				pv = w.ns + "-" + name
			}
		}
		must(t, w.api.StorageV1().VolumeAttachments().Create, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-elsewhere"},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: w.driver, NodeName: w.ns + "-n2", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}})
		w.eventually("the others are gone", func() bool { return len(w.pods()) == 0 })
		if took := time.Since(began); took >= vanguardLimit {
			t.Errorf("the others followed %s after the first deletions: a volume was attached elsewhere at once", took)
		}
		if left != len(names)-vanguard {
			t.Errorf("%d of %d pods were left at first, want %d", left, len(names), len(names)-vanguard)
		}
		// Each is told when its deletion has been answered.
		w.eventually("all were told why they were deleted", func() bool { return w.seen.said("", "this pod was deleted by force") == len(names) })
	})
}

func TestTheOtherPodsFollowThoughNothingIsAttached(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.manyPods()
		w.fencer.reads(agent.Off)
		w.start()
		w.lives(w.n1, false)
		w.eventually("all are gone", func() bool { return len(w.pods()) == 0 })
	})
}

func TestPodsThatCannotBeDeletedKeepNoOtherFromMoving(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		names := w.manyPods()
		w.server.forbidDeletion(w, names[:vanguard])
		w.fencer.reads(agent.Off)
		w.start()
		w.lives(w.n1, false)
		w.eventually("the others are gone", func() bool { return len(w.pods()) == vanguard })
	})
}

func TestANodeThatReturnsBetweenTwoDeletionsKeepsItsOtherPods(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		names := w.manyPods()
		w.fencer.reads(agent.Off)
		w.start()
		w.lives(w.n1, false)
		w.eventually("the first pods are gone", func() bool { return len(w.pods()) <= len(names)-vanguard })
		w.fencer.reads(agent.On)
		w.lives(w.n1, true)
		w.never("the other pods were deleted", 3*vanguardLimit, func() bool { return len(w.pods()) < len(names)-vanguard })
	})
}
