package guard_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// off reads the power of these nodes, and of no other.
type off []string

func (off) Name() string { return "bmc" }

func (o off) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	for _, name := range o {
		if q.Holder.NodeName == name && q.Node != nil {
			info := q.Node.Status.NodeInfo
			return []fence.Evidence{{Kind: fence.PowerReading, Source: "bmc", NodeID: q.Holder.NodeID, NodeName: name, NodeUID: string(q.Node.UID),
				BootID: info.BootID, SystemUUID: info.SystemUUID, LeaseRV: q.LeaseRV}}, nil
		}
	}
	return nil, nil
}

// borrowed is a volume on node old, which is silent; a kubelet of another name has
// written old's node ID into its CSINode, lists the volume, and says of its machine
// what a hostile one would.
func borrowed(t *testing.T, name, uuid, boot string, listed bool) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	r.Lease("old", "7")
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	r.SaysAttached("old")
	r.Lists("old", true, !listed)
	r.Lives["old"] = fence.Stale
	r.Heir("old", name)
	r.Stripped(name)
	r.Lease(name, "7")
	r.Watched = "7"
	r.Status(name, func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID, s.NodeInfo.BootID = uuid, boot })
	r.Lists(name, true, false)
	r.Calls = nil
	return r
}

// What a node writes of itself says nothing of the machine of another Node.
func TestANodeThatBorrowsAnIDTakesNothingFromTheNodeThatHasIt(t *testing.T) {
	for _, name := range []string{"evil", "zebra"} { // before and after old
		for _, uuid := range []string{"", "system-evil", "system-old"} {
			for _, boot := range []string{"", "boot-evil", "boot-of-old"} {
				for _, listed := range []bool{false, true} {
					r := borrowed(t, name, uuid, boot, listed)
					r.Lives[name] = fence.Stale
					r.Guard.Surveyor.Sources = []evidence.Source{off{name}}
					r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]", "node old (ID id-old) holds it")
					r.Attachment("old", guardrig.Now)
					r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]", "node old")
					r.Refused(r.UnpublishFrom(""), codes.FailedPrecondition)
					r.Called()
					if e := r.Ledger().Get(guardrig.ID("old")); e.NodeName != "old" || e.Contest == nil || e.Contest.BootID != "boot-of-old" {
						t.Errorf("%s, %q, %q: the ledger says %+v, want of old, contested in its own boot", name, uuid, boot, e)
					}
				}
			}
		}
	}
}

// To the driver they are one: what is unpublished from one is unpublished from both.
func TestWhoListsAVolumeUnderABorrowedIDKeepsItUntilItIsProvenGoneToo(t *testing.T) {
	for _, uuid := range []string{"", "system-old"} {
		r := borrowed(t, "zebra", uuid, "boot-zebra", true)
		r.Guard.Surveyor.Sources = []evidence.Source{off{"old"}}
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node zebra (ID id-old) holds it")
		r.Attachment("old", guardrig.Now)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node zebra")
		r.Called()
		if e := r.Ledger().Get(guardrig.ID("old")); e.NodeName != "old" || e.Contest != nil {
			t.Errorf("the ledger says %+v, want nothing of the other's", e)
		}
		r.Lives["zebra"] = fence.Stale
		r.Guard.Surveyor.Sources = []evidence.Source{off{"old", "zebra"}}
		r.Must(r.PublishTo("next"))
		r.Called("unpublish id-old", "publish id-next")
	}
}

// Two machines that nothing tells apart may be two.
func TestANodeThatAsksWithABorrowedIDIsNotTakenForTheMachineThatHasIt(t *testing.T) {
	for _, gone := range []bool{false, true} {
		for _, uuid := range []string{"", "system-evil", "system-old"} {
			if gone && uuid == "system-old" {
				continue // the same machine, renamed
			}
			r := borrowed(t, "evil", uuid, "boot-evil", true)
			if gone {
				r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
				r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
				r.Lives["old"] = fence.Unknown
			}
			r.Stripped("old")
			before := r.Ledger()
			r.AttachmentWith("evil", guardrig.ID("old"), time.Time{})
			r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "node old (ID id-old) h")
			r.Called()
			if l := r.Ledger(); !reflect.DeepEqual(l, before) {
				t.Errorf("gone: %t, %q: the ledger says %+v, want %+v as before", gone, uuid, l, before)
			}
			r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.OperatorConfirmation}}
			r.Must(r.PublishTo("old"))
			if l := r.Ledger(); len(l.Holders) != 1 || l.Holders[0].NodeName != "evil" {
				t.Errorf("gone: %t, %q: the ledger says %+v, want the one that asked", gone, uuid, l)
			}
		}
	}
}

// The volume was given to old a moment ago, its kubelet has not listed it yet, and another
// machine has old's node ID since. To the driver that is one node, and old mounts by its
// VolumeAttachment.
func TestWhoWasJustGivenTheVolumeKeepsItFromAnotherMachineOfItsID(t *testing.T) {
	for life, reason := range map[fence.Liveness]fence.Reason{fence.Alive: fence.HolderWanted, fence.Stale: fence.HolderStale} {
		for _, uuid := range []string{"", "system-evil"} {
			r := guardrig.New(t, fence.Policy{})
			r.Node("old", guardrig.HourAgo)
			r.Attachment("old", time.Time{})
			r.Must(r.PublishTo("old"))
			r.Lives["old"] = life
			r.Register("old", "id-other")
			r.Heir("old", "evil")
			r.Status("evil", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID, s.NodeInfo.BootID = uuid, "boot-evil" })
			for _, attached := range []bool{false, true} {
				if attached {
					r.SaysAttached("old")
				}
				r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "["+string(reason)+"]", "node old (ID id-old) holds it")
			}
			r.WantHolder("old", fence.Publishing)
			r.Stripped("old")
			r.Must(r.PublishTo("old"))
			r.Called("publish id-old", "publish id-old")
		}
	}
}

// A machine that the ledger does not know cannot be told from another by its Node's
// own word, unless that says that it is the same.
func TestAMachineWithoutANodeIsTakenForAnotherNodeOnlyIfThatSaysSo(t *testing.T) {
	for uuid, same := range map[string]bool{"": false, "system-evil": false, "system-old": true} {
		r := borrowed(t, "evil", uuid, "boot-evil", false)
		r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Lives["old"], r.Lives["evil"] = fence.Unknown, fence.Stale
		r.Guard.Surveyor.Sources = []evidence.Source{off{"evil"}}
		err := r.PublishTo("next")
		if same {
			r.Must(err)
			continue
		}
		r.Refused(err, codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]", "node old (ID id-old) held it")
		r.Called()
	}
}

// The ledger has one entry for each node ID: adopting the one does not write the
// other over it.
func TestOfTwoWithOneIDTheFirstIsAdopted(t *testing.T) {
	r := borrowed(t, "zebra", "", "boot-zebra", true)
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(t.Context(), guardrig.PVName, metav1.GetOptions{})
	r.Must(err)
	delete(pv.Annotations, ledger.Annotation)
	_, err = r.Client.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{})
	r.Must(err)
	r.Attachment("old", guardrig.Now)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	if l := r.Ledger(); len(l.Holders) != 1 || l.Holders[0].NodeName != "old" || l.Holders[0].State != fence.Held {
		t.Errorf("the ledger says %+v", l.Holders)
	}
}

// Its entry names the Node of before until the next publish there.
func TestANodeThatBorrowsAnIDTakesNothingFromOneThatRegisteredAnew(t *testing.T) {
	for _, name := range []string{"evil", "zebra"} {
		for _, listed := range []bool{false, true} {
			r := borrowed(t, name, "system-evil", "boot-of-old", listed)
			r.RenewUID("old")
			delete(r.Lives, "old")
			r.Lives[name] = fence.Stale
			r.Guard.Surveyor.Sources = []evidence.Source{off{name}}
			if err := r.PublishTo("next"); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%s, listed: %t: published: %v", name, listed, err)
			}
			r.Attachment("old", guardrig.Now)
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
			r.Stripped("old")
			r.AttachmentWith(name, guardrig.ID("old"), time.Time{})
			r.Refused(r.PublishTo("old"), codes.FailedPrecondition)
			r.Called()
		}
	}
}

// Without a ledger, and with the Node gone, nobody knows the machine's boot.
func TestANodeThatBorrowsAnIDTakesNothingFromOneOfWhichOnlyAVolumeAttachmentSpeaks(t *testing.T) {
	for _, listsLater := range []bool{false, true} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("next", guardrig.HourAgo)
		r.Heir("old", "evil")
		r.Stripped("evil")
		r.Lease("evil", "7")
		r.Watched = "7"
		r.Status("evil", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "system-evil" })
		r.Deleting("old")
		r.Lists("evil", !listsLater, false)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
		r.Lists("evil", true, false)
		r.Lives["evil"] = fence.Stale
		r.Guard.Surveyor.Sources = []evidence.Source{off{"evil"}}
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "node old (ID id-old) held it")
		r.Lists("evil", false, false)
		delete(r.Lives, "evil")
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "node old")
		r.Called()
	}
}

// What is left of the one that let go is not what is taken from the other.
func TestAReleasedEntryIsNotMadeTheLeavingOneOfAnotherNodeWithItsID(t *testing.T) {
	r := borrowed(t, "zebra", "system-zebra", "boot-zebra", false)
	r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).State = fence.Released })
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Stripped("old")
	r.Lives["old"], r.Lives["zebra"] = fence.Unknown, fence.Stale
	r.Guard.Surveyor.Sources = []evidence.Source{off{"zebra"}}
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-old", "publish id-next")
}

// What lists a volume under the ID of a machine that it is known not to be holds it too:
// nothing in the ledger says so, for that has one entry for each ID.
func TestAnotherMachineThatListsUnderAnIDIsJudgedForIt(t *testing.T) {
	for _, uuid := range []string{"", "system-zebra"} {
		r := borrowed(t, "zebra", uuid, "boot-zebra", false)
		delete(r.Lives, "old")
		r.Lists("zebra", true, true)
		r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node zebra (ID id-old) holds it")
		r.Lists("old", false, false)
		r.Attachment("old", guardrig.Now)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node zebra")
		r.Called()
		r.Stripped("old")
		r.Attachment("old", time.Time{})
		r.Lives["zebra"] = fence.Stale
		r.Guard.Surveyor.Sources = []evidence.Source{off{"zebra"}}
		r.Lists("zebra", true, false)
		r.Must(r.PublishTo("old"))
		r.Called("publish id-old") // to the driver they are one
	}
}

// An unpublish that has begun and a publish that waits for it do not wait for each other:
// what waits has not been attached.
func TestAnUnpublishThatHasBegunDoesNotWaitForANodeThatWaitsForIt(t *testing.T) {
	for _, begun := range []bool{true, false} {
		for what, change := range map[string]func(*guardrig.Rig){
			"":                            func(*guardrig.Rig) {},
			"it was attached":             func(r *guardrig.Rig) { r.SaysAttached("zebra") },
			"it lists it as attached":     func(r *guardrig.Rig) { r.Lists("zebra", true, true) },
			"it is taken from there":      func(r *guardrig.Rig) { r.AttachmentWith("zebra", guardrig.ID("old"), guardrig.Now) },
			"nobody attaches it to there": func(r *guardrig.Rig) { r.Stripped("zebra") },
		} {
			r := borrowed(t, "zebra", "system-old", "boot-of-zebra", false)
			if begun {
				r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).State = fence.Leaving })
			}
			r.Lists("old", true, false)
			r.Attachment("old", guardrig.Now)
			r.AttachmentWith("zebra", guardrig.ID("old"), time.Time{})
			change(r)
			r.Guard.Surveyor.Sources = []evidence.Source{off{"old"}}
			err := r.UnpublishFrom(guardrig.ID("old"))
			if !begun || what != "" {
				r.Refused(err, codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node zebra")
				r.Called()
				continue
			}
			r.Must(err)
			r.Called("unpublish id-old")
			r.Stripped("old")
			r.Must(r.PublishTo("old"))
			r.WantHolder("zebra", fence.Publishing)
		}
	}
}

// A machine known to be another waits whether the unpublish has begun or not; one that was
// renamed within its boot may have the volume mounted.
func TestWhoWaitsForAnUnpublishIsNotTheOneThatHasMounted(t *testing.T) {
	for what, want := range map[string]struct {
		uuid, boot string
		begun      bool
		allowed    bool
	}{
		"another machine":       {"system-zebra", "boot-of-zebra", false, true},
		"renamed, another boot": {"system-old", "boot-of-zebra", true, true},
		"renamed in its boot":   {"system-old", "boot-of-old", true, false},
		"nobody knows":          {"", "boot-of-zebra", false, false},
	} {
		r := borrowed(t, "zebra", want.uuid, want.boot, true)
		if want.begun {
			r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).State = fence.Leaving })
		}
		r.Attachment("old", guardrig.Now)
		r.AttachmentWith("zebra", guardrig.ID("old"), time.Time{})
		r.Guard.Surveyor.Sources = []evidence.Source{off{"old"}}
		err := r.UnpublishFrom(guardrig.ID("old"))
		if want.allowed != (err == nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
