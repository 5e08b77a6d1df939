package guard_test

import (
	"reflect"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// policies under which a holder of which nothing is known may be unpublished.
var policies = map[string]fence.Policy{"refuse": {}, "unpublishRevokesAccess": {UnpublishRevokesAccess: true}, "unfenced: Forward": {ForwardUnfenced: true}}

func TestANodeThatUsesTheVolumeHoldsItWhileItsDriverIsNotRegistered(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			r := guardrig.New(t, p) // and there is no ledger yet
			r.Node("old", guardrig.HourAgo)
			r.Node("next", guardrig.HourAgo)
			r.Lists("old", true, false)
			r.Deleting("old")
			r.Register("old", "")
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
			r.Called()
		})
	}
}

func TestADrainedNodeIsNotContestedWhileItsDriverIsNotRegistered(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Deleting("old")
	r.Register("old", "")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	r.Called()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(t.Context(), guardrig.PVName, metav1.GetOptions{})
	r.Must(err)
	if text, ok := pv.Annotations[ledger.Annotation]; ok {
		t.Errorf("the ledger says of a machine that is not known yet: %s", text)
	}
}

func TestASilentOldNameFreesNobodyFromTheNodeThatUsesTheVolume(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			r := guardrig.New(t, p)
			r.Node("old", guardrig.HourAgo)
			r.Node("next", guardrig.HourAgo)
			r.Lives["old"] = fence.Stale
			r.Annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"cluster-uid","pvUID":"uid-of-pv-1","holders":[{"nodeID":"id-old","node":"old","nodeUID":"uid-of-old","bootID":"boot-of-old","token":"t","state":"publishing"}]}`)
			r.Heir("old", "renamed")
			r.Lists("renamed", true, true)
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node renamed")
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node renamed")
			r.Called()
		})
	}
}

// A VolumeAttachment's name is a hash: either may come first.
func TestTheNodeThatUsesTheVolumeIsJudgedWhicheverAttachmentComesFirst(t *testing.T) {
	first, last := "", ""
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		if csi.AttachmentName(guardrig.Handle, guardrig.DriverName, name) < csi.AttachmentName(guardrig.Handle, guardrig.DriverName, "renamed") {
			first = name
		} else {
			last = name
		}
	}
	if first == "" || last == "" {
		t.Fatal("no name's VolumeAttachment is before, or none after, that of node renamed")
	}
	for _, old := range []string{first, last} {
		for name, p := range policies {
			t.Run(name+", "+old, func(t *testing.T) {
				r := guardrig.New(t, p)
				r.Node("next", guardrig.HourAgo)
				r.Heir(old, "renamed")
				r.Deleting(old) // its Node is gone, and it is stuck
				r.Lists("renamed", true, true)
				// What is told is the first one's, which blocks as well: its Node is gone.
				published, unpublished, waits := fence.HolderAlive, fence.HolderAlive, "renamed"
				if old == first {
					published = fence.HolderUnknown
				}
				if old == first && !p.ForwardUnfenced {
					unpublished, waits = fence.HolderUnknown, old
				}
				r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(published)+"]", "node renamed")
				h := listen(r)
				r.Refused(r.UnpublishFrom(guardrig.ID(old)), codes.FailedPrecondition, "["+string(unpublished)+"]", "node renamed")
				r.AttachmentWith("renamed", guardrig.ID(old), guardrig.Now)
				r.Refused(r.UnpublishFrom(guardrig.ID(old)), codes.FailedPrecondition, "["+string(unpublished)+"]", "node renamed")
				if a, b := h.decisions[0].NodeName, h.decisions[1].NodeName; a != old || b != waits {
					t.Errorf("whose VolumeAttachment waits: %s, and then %s", a, b)
				}
				r.Called()
			})
		}
	}
}

func TestAnUnpublishFromAllNodesJudgesEachHolderWithoutAnID(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	for _, name := range []string{"m", "n"} {
		r.Node(name, guardrig.HourAgo)
		r.Register(name, "")
		r.Attached(name)
	}
	// The first was let go, by the word of a kubelet that is silent since.
	r.Status("m", func(s *corev1.NodeStatus) { s.Conditions[0].Status = corev1.ConditionUnknown })
	r.Lists("n", true, true)
	r.Refused(r.UnpublishFrom(""), codes.FailedPrecondition)
	r.Called()
}

// external-attacher's comparison with ListVolumes publishes again to a node, also
// while a person deletes it.
func TestWhatIsKnownOfAHolderIsNotGivenUpWhenItsNodeIsGone(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	before := r.Ledger().Get("id-old")
	r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "["+string(fence.TargetGone)+"]")
	if e := r.Ledger().Get("id-old"); e == nil || before.NodeUID == "" || !reflect.DeepEqual(e, before) {
		t.Errorf("the ledger says %s", r.Ledger())
	}
}

// A machine reboots, its Node is deleted and registered anew, and lists the volume
// before the index has seen it. A word about the earlier boot does not count.
func TestANodeThatRegistersAnewIsSeenBeforeTheIndexSeesIt(t *testing.T) {
	for _, registered := range []string{"", guardrig.ID("old")} {
		r := guardrig.New(t, fence.Policy{})
		r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.OperatorConfirmation}}
		r.Node("old", guardrig.HourAgo)
		r.Attachment("old", time.Time{})
		r.Must(r.PublishTo("old"))
		r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Node("old", guardrig.HourAgo)
		r.Register("old", registered)
		r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-2" })
		r.RenewUID("old")
		r.Attachment("old", guardrig.Now)
		r.Look()
		r.Lists("old", true, false)
		_, err := r.Guard.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID("old")}, r)
		r.Refused(err, codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		r.Called("publish id-old")
	}
}

// It is published to once more, as the attacher does when ListVolumes lacks it.
func TestANodeThatRegistersAnewIsNotBelievedToHaveLetGo(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.RenewUID("old")
	r.Must(r.PublishTo("old"))
	if l := r.Ledger(); len(l.Holders) != 1 || l.Holders[0].NodeUID != "uid-of-old-anew" || l.Holders[0].Contest == nil {
		t.Errorf("the ledger says %+v", l.Holders)
	}
	r.Attachment("old", guardrig.Now)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Called("publish id-old", "publish id-old")
	r.Reboot("old", "boot-2")
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
}

// Nothing could end a contest of a boot that nobody can tell from the next.
func TestANodeWithoutABootIDIsNotContestedForRegisteringAnew(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "" })
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	r.RenewUID("old")
	r.Must(r.PublishTo("old"))
	r.Attachment("old", guardrig.Now)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
}

func TestANodeThatRegistersAnewKeepsWhatWasSeenOfIt(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	seen := fence.Contest{BootID: "boot-of-old", SeenReadySince: "2026-01-02T03:04:05Z"}
	r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Contest = &seen })
	r.RenewUID("old")
	r.Must(r.PublishTo("old"))
	if e := r.Ledger().Get(guardrig.ID("old")); e.NodeUID != "uid-of-old-anew" || e.Contest == nil || !reflect.DeepEqual(*e.Contest, seen) {
		t.Errorf("the ledger says %+v", e)
	}
}
