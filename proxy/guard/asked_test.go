package guard_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// asked: since the ledgers were sealed a pod has come to node a, of the volume that nobody has, and
// the driver was through with its publish. Of that the ledger says nothing.
func asked(t *testing.T) (*guardrig.Rig, *guardrig.Etcd) {
	r := neverAttached(t)
	e := r.Sealing()
	r.Must(r.UnpublishFrom("id-of-nobody"))
	failsOnce(r, status.Error(codes.NotFound, "no such instance"))
	return r, e
}

// vanishes: the node goes, and its VolumeAttachment is being deleted.
func vanishes(r *guardrig.Rig, node string) {
	r.T.Helper()
	goes(r, node)
	r.Attachment(node, guardrig.Now)
}

// goes: the Node of that name and its CSINode are gone, as of a spot instance.
func goes(r *guardrig.Rig, node string) {
	r.T.Helper()
	r.Must(r.Client.CoreV1().Nodes().Delete(r.T.Context(), node, metav1.DeleteOptions{}))
	r.Must(r.Client.StorageV1().CSINodes().Delete(r.T.Context(), node, metav1.DeleteOptions{}))
	r.Lives[node] = fence.Unknown
}

func TestANodeThatIsGoneAndWasOnlyAskedForHoldsNobodyUp(t *testing.T) {
	for name, before := range map[string]func(*guardrig.Rig){
		"it failed":                        func(*guardrig.Rig) {},
		"it listed it for the pod":         func(r *guardrig.Rig) { r.Lists("a", true, false) },
		"it was judged while it listed it": func(r *guardrig.Rig) { r.Lists("a", true, false); hadMeanwhile(r) },
		"the ledgers are sealed anew":      func(r *guardrig.Rig) { r.Reconnect(); r.Must(r.UnpublishFrom("id-of-nobody")) },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := asked(t)
			before(r)
			vanishes(r, "a")
			r.Attachment("b", time.Time{})
			r.Calls, r.UnpublishErrOf = nil, map[string]error{"id-a": status.Error(codes.NotFound, "no such instance")}
			r.Must(r.UnpublishFrom("id-a"))
			r.Must(r.PublishTo("b"))
			r.Called("unpublish id-a", "publish id-b") // as Kubernetes alone, though its attachment is there yet
			r.WantHolder("b", fence.Publishing)
			r.UnpublishErrOf["id-a"] = status.Error(codes.Internal, "no")
			if err := r.UnpublishFrom("id-a"); status.Code(err) != codes.Internal {
				t.Errorf("%v, want the driver's answer", err)
			}
		})
	}
}

// Kubernetes deletes its VolumeAttachment a while after its Node.
func TestANodeThatIsGoneHoldsNobodyUpWhileItsAttachmentIsKept(t *testing.T) {
	r, _ := asked(t)
	goes(r, "a")
	r.Attachment("b", time.Time{})
	r.Must(r.PublishTo("b"))
	r.Refused(r.PublishTo("a"), codes.FailedPrecondition, "["+string(fence.TargetGone)+"]") // external-attacher tries again
	r.WantHolder("b", fence.Publishing)
}

// external-attacher asks by the CSINode, which outlives its Node for a moment.
func TestNothingIsPublishedToANodeThatIsGone(t *testing.T) {
	r, _ := asked(t)
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	r.Lives["a"] = fence.Unknown
	r.Calls = nil
	r.Refused(r.PublishTo("a"), codes.FailedPrecondition, "node a", "["+string(fence.TargetGone)+"]")
	r.Called()
	if l := r.Ledger(); len(l.Holders) > 0 {
		t.Errorf("the ledger says %s", l)
	}
}

// Where its Node was there when another took the volume, it was taken from it then.
func TestANodeThatOnlyAskedIsAnsweredOnceAnotherHasHadTheVolume(t *testing.T) {
	r, _ := asked(t)
	hadMeanwhile(r)
	vanishes(r, "a")
	r.Calls = nil
	r.Must(r.UnpublishFrom("id-a"))
	r.Called()
}

// hadMeanwhile: node b has had the volume and let it go.
func hadMeanwhile(r *guardrig.Rig) {
	r.T.Helper()
	r.Attachment("b", time.Time{})
	r.Must(r.PublishTo("b"))
	r.Attachment("b", guardrig.Now)
	r.Must(r.UnpublishFrom("id-b"))
	r.Stripped("b")
}

// It has the volume, or the seal does not say that the ledger would name it.
func TestANodeThatIsGoneAndMayHaveMoreThanAskedForIt(t *testing.T) {
	for name, before := range map[string]func(*guardrig.Rig, *guardrig.Etcd){
		"its attachment says attached": func(r *guardrig.Rig, _ *guardrig.Etcd) { r.SaysAttached("a") },
		"another attachment of its ID says so": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.AttachmentWith("c", "id-a", time.Time{})
			r.SaysAttached("c")
		},
		"there is another attachment of its ID": func(r *guardrig.Rig, _ *guardrig.Etcd) { r.AttachmentWith("c", "id-a", time.Time{}) },
		"many could have it":                    func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Guard.Seal.SetApart(guardrig.Handle) },
		"many may have it, by another volume":   func(r *guardrig.Rig, _ *guardrig.Etcd) { r.SecondOfMany() },
		"nobody says who calls":                 func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Disconnect() },
		"another has sealed the ledgers since":  func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Lease.ResourceVersion = "77" },
		"the ledger was taken off":              func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Lose() },
		"the ledger is a repair's":              func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Repaired() },
		"the ledger has its machine by another ID": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "old-a", NodeName: "a", NodeUID: "uid-of-a", BootID: "boot-of-a", SystemUUID: "system-a", State: fence.Held, Token: "t"})
			})
		},
		"the ledger says that it may have it": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "id-a", NodeName: "a", NodeUID: "uid-of-a", State: fence.Publishing, Token: "t"})
			})
		},
		"its Node is back": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Lives["a"] = fence.Alive
			_, err := r.Client.CoreV1().Nodes().Create(r.T.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "anew"}}, metav1.CreateOptions{})
			r.Must(err)
		},
	} {
		for call, asks := range map[string]func(*guardrig.Rig) error{
			"the publish elsewhere": func(r *guardrig.Rig) error { r.Attachment("b", time.Time{}); return r.PublishTo("b") },
			"its unpublish":         func(r *guardrig.Rig) error { return r.UnpublishFrom("id-a") },
		} {
			t.Run(name+"/"+call, func(t *testing.T) {
				r, e := asked(t)
				vanishes(r, "a")
				before(r, e)
				r.Calls = nil
				r.Refused(asks(r), codes.FailedPrecondition, "node a", "["+string(fence.HolderUnknown)+"]")
				r.Called()
			})
		}
	}
}

// lateLists: node late lists the volume, which keeps b from it.
func lateLists(r *guardrig.Rig) {
	r.T.Helper()
	r.Lists("late", true, false)
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node late", "["+string(fence.HolderAlive)+"]")
}

// A Node that came after the seal may be of a machine that was there before, under another one. So
// it counts once it was seen to list the volume, if it was not shown to wait.
func TestANodeThatCameAfterTheSealAndIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		seen func(*guardrig.Rig)
		free bool
	}{
		"nobody saw it list the volume": {func(*guardrig.Rig) {}, true},
		"it was refused": {func(r *guardrig.Rig) {
			r.Must(r.PublishTo("b"))
			r.Refused(r.PublishTo("late"), codes.FailedPrecondition, "node b")
		}, true},
		"it was seen to list it":              {lateLists, false},
		"it was seen, without its attachment": {func(r *guardrig.Rig) { r.Stripped("late"); lateLists(r); r.Attachment("late", time.Time{}) }, false},
		"it asked while it listed it": {func(r *guardrig.Rig) {
			r.Must(r.PublishTo("b"))
			r.Lists("late", true, false)
			r.Refused(r.PublishTo("late"), codes.FailedPrecondition, "node b")
		}, true},
		"its pods could not be read": {func(r *guardrig.Rig) {
			r.Claimed(guardrig.Claim)
			r.Broken("list", "pods")
			lateLists(r)
		}, true},
		"it was seen, and lists nothing": {func(r *guardrig.Rig) {
			r.Attachment("late", guardrig.Now)
			r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node late", "["+string(fence.HolderContested)+"]")
		}, true},
		"it had it, and let it go": {func(r *guardrig.Rig) {
			r.Must(r.PublishTo("late"))
			lateLists(r)
			r.Lists("late", false, false)
			r.Attachment("late", guardrig.Now)
			r.Must(r.UnpublishFrom("id-late"))
		}, true},
		"its pod waits": {func(r *guardrig.Rig) {
			r.Claimed(guardrig.Claim)
			r.PodOn("late", "waits", guardrig.ByClaim(guardrig.Claim), pending)
			r.Lists("late", true, false)
			r.Must(r.PublishTo("b"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := asked(t)
			r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
			r.Stripped("a")
			r.Node("late", guardrig.HourAgo)
			r.Attachment("late", time.Time{})
			r.Attachment("b", time.Time{})
			c.seen(r)
			vanishes(r, "late")
			if err := r.UnpublishFrom("id-late"); c.free == (err != nil) {
				t.Errorf("%v", err)
			} else if !c.free {
				r.Refused(err, codes.FailedPrecondition, "node late", "["+string(fence.HolderUnknown)+"]")
			}
		})
	}
}

// Else it would be written down, as one of which only a person can say that it has not the volume.
func TestWhileTheSealCannotBeUsedNobodyIsWrittenDownForIt(t *testing.T) {
	r, e := asked(t)
	vanishes(r, "a")
	e.Away = true
	r.Calls = nil
	r.Refused(r.UnpublishFrom("id-a"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	r.Called()
	if l := r.Ledger(); len(l.Holders) > 0 {
		t.Errorf("the ledger says %s", l)
	}
	e.Away = false
	r.Must(r.UnpublishFrom("id-a"))

	e.Lease.ResourceVersion = "77" // another has sealed the ledgers
	r.Refused(r.UnpublishFrom("id-a"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	if r.State("a") != fence.Held {
		t.Errorf("the ledger says %s", r.Ledger())
	}
}

// Nor is a Node that was there at the seal doubted for it.
func TestWhileTheSealCannotBeUsedNobodyIsDoubtedForIt(t *testing.T) {
	r, e := asked(t)
	r.Lists("a", true, false)
	r.Attachment("b", time.Time{})
	e.Away = true
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	e.Away = false
	vanishes(r, "a")
	r.Must(r.PublishTo("b"))
}

func TestBeforeTheSealThereIsNothingToDoubt(t *testing.T) {
	r := neverAttached(t)
	r.Sealing().Away = true
	r.Attachment("a", time.Time{})
	r.Attachment("b", time.Time{})
	r.Lists("a", true, false)
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
}

// Its machine may be there under another ID: that is not ours to say.
func TestOfANodeThatIsThereAndOnlyAskedTheDriverAnswers(t *testing.T) {
	r, _ := asked(t)
	r.Lists("a", true, false)
	r.Attachment("a", guardrig.Now)
	r.UnpublishErr = status.Error(codes.NotFound, "no such instance")
	if err := r.UnpublishFrom("id-a"); status.Code(err) != codes.NotFound {
		t.Errorf("%v, want the driver's answer", err)
	}
}
