package waiting

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
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
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
	*guardrig.Rig
	guard proxy.Guard
}

// story tells whether a call was let through, which ends it.
func story(t *testing.T, chance *rand.Rand) bool {
	judged, w := dying(t), newWaiting(t, dying(t))
	sides := [2]side{{judged, judged.Guard}, {w.Rig, Spare(w.Guard, w.w, w.counted, 0)}}
	told := ""
	for step := range 12 {
		what, happens := event(chance, step)
		told += "\n" + what
		for _, s := range sides {
			happens(s.Rig)
			s.Look()
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
func dying(t *testing.T) *guardrig.Rig {
	r := guardrig.Held(t)
	r.Attachment("old", time.Now())
	r.Attachment("next", time.Time{})
	records := evidence.Records{Store: record.NewStore(r.Client.CoordinationV1(), "csi-fencepost"), Actor: "story"}
	r.Guard.Surveyor.Sources = []evidence.Source{evidence.OutOfServiceTaint(records)}
	return r
}

// event is something that becomes of node old.
func event(chance *rand.Rand, step int) (string, func(*guardrig.Rig)) {
	switch chance.IntN(16) {
	case 0, 1, 2:
		boot := fmt.Sprint("boot-", step)
		return "a boot, after which it is mounted again: " + boot, func(r *guardrig.Rig) { r.Reboot("old", boot); r.Lists("old", true, false) }
	case 3, 4:
		return "its kubelet restarts and forgets", func(r *guardrig.Rig) {
			r.Lists("old", false, false)
			r.Status("old", func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() })
		}
	case 5:
		attached := chance.IntN(2) == 0
		return fmt.Sprintf("its kubelet has unmounted, attached: %t", attached), func(r *guardrig.Rig) { r.Lists("old", false, attached) }
	case 6, 7, 8:
		return "its kubelet mounts", func(r *guardrig.Rig) { r.Lists("old", true, true) }
	case 9, 10, 11:
		ready := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[chance.IntN(4)]
		return "Ready: " + string(ready), func(r *guardrig.Rig) {
			r.Status("old", func(s *corev1.NodeStatus) {
				s.Conditions[0].Status, s.Conditions[0].LastTransitionTime = ready, metav1.Now()
			})
		}
	case 12, 13:
		on := chance.IntN(2) == 0
		return fmt.Sprintf("out-of-service: %t", on), func(r *guardrig.Rig) {
			if r.Taint("old"); !on {
				r.ChangeNode("old", func(n *corev1.Node) { n.Spec.Taints = nil })
			}
		}
	default:
		life := []fence.Liveness{fence.Alive, fence.Stale, fence.Unknown}[chance.IntN(3)]
		return fmt.Sprintf("liveness %v", life), func(r *guardrig.Rig) { r.Lives["old"] = life }
	}
}

// sight is what both calls were answered, and what they left.
type sight struct{ unpublish, publish, ledger string }

func (s sight) let() bool { return s.unpublish == "" || s.publish == "" }

func (s side) seen() sight {
	s.Look()
	_, err := s.guard.ControllerUnpublishVolume(s.T.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID("old")}, s)
	seen := sight{unpublish: reasonOf(err)}
	_, err = s.guard.ControllerPublishVolume(s.T.Context(), guardrig.PublishOf(guardrig.Handle, guardrig.ID("next")), s)
	seen.publish = reasonOf(err)
	for _, e := range s.Rig.Ledger().Holders {
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
