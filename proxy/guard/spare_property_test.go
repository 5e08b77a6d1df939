package guard

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// Whatever becomes of a holder: calls of which none is judged that is not woken are
// answered as those that are judged each time, and leave the same in the ledger.
func TestWhoIsSparedIsAnsweredAsWhoIsJudged(t *testing.T) {
	const stories = 30
	let := 0
	for seed := range uint64(stories) {
		synctest.Test(t, func(t *testing.T) {
			if story(t, rand.New(rand.NewPCG(seed, 0))) {
				let++
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if let < stories/5 || let > stories*4/5 {
		t.Errorf("in %d of %d stories a call was let through: they show little", let, stories)
	}
}

// side is one of two that live through the same.
type side struct {
	*rig
	guard proxy.Guard
}

// story tells whether a call was let through, which ends it.
func story(t *testing.T, chance *rand.Rand) bool {
	judged, w := dying(t), newWaiting(t, dying(t))
	sides := [2]side{{judged, judged.guard}, {w.rig, Spare(w.guard, w.w, w.counted, 0)}}
	told := ""
	for step := range 12 {
		what, happens := event(chance, step)
		told += "\n" + what
		for _, s := range sides {
			happens(s.rig)
			s.look()
		}
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		time.Sleep(time.Duration(chance.IntN(20)) * time.Second)
		synctest.Wait()
		one, other := sides[0].seen(), sides[1].seen()
		if one != other {
			t.Errorf("after%s\njudged each time: %s\nspared:           %s", told, one, other)
			return false
		}
		if one.let() {
			return true
		}
	}
	return false
}

// dying is a volume that is being detached from node old; node next waits for it.
func dying(t *testing.T) *rig {
	r := held(t)
	r.attachment("old", time.Now())
	r.attachment("next", time.Time{})
	records := evidence.Records{Store: record.NewStore(r.client.CoordinationV1(), "csi-fencepost"), Actor: "story"}
	r.guard.Surveyor.Sources = []evidence.Source{evidence.OutOfServiceTaint(records)}
	return r
}

// event is something that becomes of node old.
func event(chance *rand.Rand, step int) (string, func(*rig)) {
	switch chance.IntN(16) {
	case 0, 1, 2:
		boot := fmt.Sprint("boot-", step)
		return "a boot, after which it is mounted again: " + boot, func(r *rig) { r.reboot("old", boot); r.lists("old", true, false) }
	case 3, 4:
		return "its kubelet restarts and forgets", func(r *rig) {
			r.lists("old", false, false)
			r.status("old", func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() })
		}
	case 5:
		attached := chance.IntN(2) == 0
		return fmt.Sprintf("its kubelet has unmounted, attached: %t", attached), func(r *rig) { r.lists("old", false, attached) }
	case 6, 7, 8:
		return "its kubelet mounts", func(r *rig) { r.lists("old", true, true) }
	case 9, 10, 11:
		ready := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[chance.IntN(4)]
		return "Ready: " + string(ready), func(r *rig) {
			r.status("old", func(s *corev1.NodeStatus) {
				s.Conditions[0].Status, s.Conditions[0].LastTransitionTime = ready, metav1.Now()
			})
		}
	case 12, 13:
		on := chance.IntN(2) == 0
		return fmt.Sprintf("out-of-service: %t", on), func(r *rig) {
			if r.taint("old"); !on {
				r.changeNode("old", func(n *corev1.Node) { n.Spec.Taints = nil })
			}
		}
	default:
		life := []fence.Liveness{fence.Alive, fence.Stale, fence.Unknown}[chance.IntN(3)]
		return fmt.Sprintf("liveness %v", life), func(r *rig) { r.lives["old"] = life }
	}
}

// sight is what both calls were answered, and what they left.
type sight struct{ unpublish, publish, ledger string }

func (s sight) let() bool { return s.unpublish == "" || s.publish == "" }

func (s side) seen() sight {
	s.look()
	_, err := s.guard.ControllerUnpublishVolume(s.t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: id("old")}, s)
	seen := sight{unpublish: reasonOf(err)}
	_, err = s.guard.ControllerPublishVolume(s.t.Context(), publishOf(handle, id("next")), s)
	seen.publish = reasonOf(err)
	for _, e := range s.rig.ledger().Holders {
		seen.ledger += fmt.Sprintf("%s %s boot %s", e.NodeID, e.State, e.BootID)
		if e.Contest != nil {
			seen.ledger += fmt.Sprintf(" contest %+v", *e.Contest)
		}
		seen.ledger += ";"
	}
	return seen
}

var bracketed = regexp.MustCompile(`\[(\w+)\]`)

// reasonOf is the reason that a refusal names; empty: it is none.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if m := bracketed.FindStringSubmatch(status.Convert(err).Message()); m != nil {
		return m[1]
	}
	return status.Convert(err).Message()
}
