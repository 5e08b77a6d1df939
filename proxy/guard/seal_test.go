package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// sealed is a volume that node b has, in ledgers that are sealed; nodes a, b and c were there
// then.
func sealed(t *testing.T) (*guardrig.Rig, *guardrig.Etcd) {
	r := guardrig.New(t, fence.Policy{})
	e := r.Sealing()
	for _, n := range []string{"a", "b", "c"} {
		r.Node(n, guardrig.HourAgo)
	}
	r.Attachment("b", time.Time{})
	r.Must(r.PublishTo("b"))
	if e.Lease == nil {
		t.Fatal("there is no seal after the first call")
	}
	return r, e
}

// wantsAndDies: node a lists the volume, of which it has no pod any more, and dies; b lets it
// go, and c asks for it.
func wantsAndDies(r *guardrig.Rig) error {
	r.T.Helper()
	r.Lists("a", true, false)
	r.Lives["a"] = fence.Stale
	r.Attachment("b", guardrig.Now)
	r.Must(r.UnpublishFrom("id-b"))
	r.Stripped("b")
	r.Attachment("c", time.Time{})
	r.Calls = nil
	return r.PublishTo("c")
}

func TestUnderASealANodeThatIsInNoLedgerOnlyWants(t *testing.T) {
	r, _ := sealed(t)
	r.Must(wantsAndDies(r))
	r.Called("publish id-c")
}

func TestTheSealEnds(t *testing.T) {
	for name, ends := range map[string]func(*guardrig.Rig, *guardrig.Etcd){
		"nobody says who calls":           func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Disconnect() },
		"another session has put it on":   func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Lease.ResourceVersion = "77" },
		"it is gone":                      func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Lease = nil },
		"etcd is away":                    func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Away = true },
		"etcd counts from before":         func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Revision = 10 },
		"etcd counts where it did before": func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Revision-- },
		"etcd counts from far above":      func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Revision += 1_000_000_000 },
		"the Node is another":             func(r *guardrig.Rig, _ *guardrig.Etcd) { r.RenewUID("a") },
		"the ledger is a repair's":        func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Repaired() },
		"the ledger is gone":              func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Lose() },
		"it says attached":                func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Attachment("a", time.Time{}); r.SaysAttached("a") },
		"the Node lists it as attached":   func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Lists("a", true, true) },
	} {
		t.Run(name, func(t *testing.T) {
			r, e := sealed(t)
			r.Lists("a", true, false)
			r.Lives["a"] = fence.Stale
			r.Attachment("b", guardrig.Now)
			r.Must(r.UnpublishFrom("id-b"))
			r.Stripped("b")
			r.Attachment("c", time.Time{})
			ends(r, e)
			r.Calls = nil
			if err := r.PublishTo("c"); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("the publish to c: %v, want it refused", err)
			}
			r.Called()
		})
	}
}

func TestOfWhatManyMayHaveTheSealSaysNothing(t *testing.T) {
	r, _ := sealed(t)
	r.Attachment("b", guardrig.Now)
	r.Must(r.UnpublishFrom("id-b"))
	r.Stripped("b")
	r.Attachment("a", time.Time{})
	r.Must(r.ShareTo("a", spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
	r.Stripped("a")
	r.Lists("a", true, false)
	r.Lives["a"] = fence.Stale
	r.Attachment("c", time.Time{})
	r.Refused(r.PublishTo("c"), codes.FailedPrecondition, "node a", "["+string(fence.HolderStale)+"]")
}

func TestWhatManyMightHaveWhenItWasPutOnIsNotCovered(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Sealing()
	for _, n := range []string{"a", "b", "c"} {
		r.Node(n, guardrig.HourAgo)
	}
	r.SecondOfMany()
	r.Attachment("b", time.Time{})
	r.Must(r.PublishTo("b"))
	r.Must(r.Client.CoreV1().PersistentVolumes().Delete(t.Context(), "pv-2", metav1.DeleteOptions{}))
	r.Refused(wantsAndDies(r), codes.FailedPrecondition, "node a", "["+string(fence.HolderStale)+"]")
}

// TestWhoeverHasAVolumeIsWrittenDown: of before the guard was there, by whatever shows it.
func TestWhoeverHasAVolumeIsWrittenDown(t *testing.T) {
	for name, has := range map[string]func(*guardrig.Rig){
		"a silent node lists it": func(r *guardrig.Rig) { r.Lists("a", true, false); r.Lives["a"] = fence.Stale },
		"what is said of it may be over": func(r *guardrig.Rig) {
			r.Lists("a", true, false)
			r.Lives["a"] = fence.Stale
			r.Guard.Surveyor.Policy.ForwardUnfenced = true
		},
		"the controller lists it":      func(r *guardrig.Rig) { r.Lists("a", false, true); r.Lives["a"] = fence.Stale },
		"its attachment says attached": func(r *guardrig.Rig) { r.Attachment("a", time.Time{}); r.SaysAttached("a") },
		"another machine has it again": func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "id-a", NodeName: "a", NodeUID: "uid-of-before", BootID: "boot-of-before", SystemUUID: "system-before", Token: "old", State: fence.TakenOver})
			})
			r.Attachment("a", time.Time{})
			r.SaysAttached("a")
			r.Lists("a", true, true)
		},
		"by a PersistentVolume that is gone": func(r *guardrig.Rig) {
			r.Attachment("a", time.Time{})
			r.SaysAttached("a")
			r.Names("a", "pv-0")
		},
		"it was taken from it before": func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "id-a", NodeName: "a", NodeUID: "uid-of-a", BootID: "boot-of-a", SystemUUID: "system-a", Token: "old", State: fence.TakenOver})
			})
			r.Attachment("a", time.Time{})
			r.SaysAttached("a")
			r.Lists("a", true, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := guardrig.New(t, fence.Policy{})
			r.Sealing()
			for _, n := range []string{"a", "b"} {
				r.Node(n, guardrig.HourAgo)
			}
			has(r)
			r.Must(r.UnpublishFrom("id-nobody")) // the session's first call
			r.Calls = nil
			r.Attachment("b", time.Time{})
			if err := r.PublishTo("b"); status.Code(err) != codes.FailedPrecondition {
				t.Fatalf("the publish to b: %v, want it refused", err)
			}
			r.WantHolder("a", fence.Held)
			// Then nothing shows it any more.
			r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
			delete(r.Lives, "a")
			_ = r.Client.StorageV1().VolumeAttachments().Delete(t.Context(), attachmentOf("a"), metav1.DeleteOptions{})
			r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node a", "["+string(fence.HolderUnknown)+"]")
			r.Called()
		})
	}
}

func TestANodeThatWaitsIsNotWrittenDown(t *testing.T) {
	r := wanting(t)
	r.Sealing()
	r.PodOn("a", "one", guardrig.ByClaim(guardrig.Claim), pending)
	r.Attachment("a", time.Time{})
	r.Must(r.PublishTo("b"))
	if l := r.Ledger(); l.Get("id-a") != nil {
		t.Errorf("the ledger says %s, want b alone", l)
	}
}

func TestAnotherSessionSealsAnew(t *testing.T) {
	r, e := sealed(t)
	r.Lists("a", true, false) // past us, in between
	r.Lives["a"] = fence.Stale
	r.Reconnect()
	r.Attachment("b", guardrig.Now)
	r.Must(r.UnpublishFrom("id-b"))
	r.Stripped("b")
	r.Attachment("c", time.Time{})
	r.Refused(r.PublishTo("c"), codes.FailedPrecondition, "node a", "["+string(fence.HolderStale)+"]")
	if r.State("a") != fence.Held || e.Revision < 1002 {
		t.Errorf("a is %q in the ledger, and etcd at %d: want it held, and a second seal", r.State("a"), e.Revision)
	}
}

func TestWhatCannotBeSealedIsJudgedWithout(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Sealing().Away = true
	r.Node("b", guardrig.HourAgo)
	r.Attachment("b", time.Time{})
	r.Must(r.PublishTo("b"))
	r.WantHolder("b", fence.Publishing)
}

// failsOnce has the first publish to node a fail with err, and only that one.
func failsOnce(r *guardrig.Rig, err error) {
	r.T.Helper()
	r.Attachment("a", time.Time{})
	r.PublishErr = err
	if r.PublishTo("a") == nil {
		r.T.Fatal("the publish to a succeeds")
	}
	r.PublishErr = nil
}

// failedTo: the first publish to node a fails, and a dies; its VolumeAttachment is being
// deleted, and b asks.
func failedTo(r *guardrig.Rig, err error) {
	r.T.Helper()
	failsOnce(r, err)
	r.Lists("a", true, false)
	r.Lives["a"] = fence.Stale
	r.Attachment("a", guardrig.Now)
	r.Attachment("b", time.Time{})
	r.Calls = nil
}

func neverAttached(t *testing.T) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	for _, n := range []string{"a", "b"} {
		r.Node(n, guardrig.HourAgo)
	}
	return r
}

var tookTooLong = status.Error(codes.DeadlineExceeded, "it takes too long")

func TestANodeToWhichEachPublishFailedNeverHadTheVolume(t *testing.T) {
	r := neverAttached(t)
	r.Sealing()
	failedTo(r, tookTooLong)
	r.Must(r.PublishTo("b"))
	r.Called("unpublish id-a", "publish id-b")

	r = neverAttached(t)
	r.Sealing()
	failedTo(r, tookTooLong)
	r.Must(r.UnpublishFrom("id-a"))
	r.Called("unpublish id-a")
}

// Whoever may write the status of VolumeAttachments can say of one that it is not attached,
// and delete it. The controller then takes it off volumesAttached within a minute, so that
// nothing there shows that it ever was attached.
func TestAVolumeThatWasAttachedInTheEndIsNotTakenByAForgedVolumeAttachment(t *testing.T) {
	r := neverAttached(t)
	r.Sealing()
	failsOnce(r, tookTooLong)
	r.Must(r.PublishTo("a"))
	if e := r.Ledger().Get("id-a"); e == nil || e.OnlyUnder != "" {
		t.Errorf("once it is published the ledger says %+v, as of one that never had it", e)
	}
	r.Lists("a", true, false)
	r.Attachment("a", guardrig.Now)
	r.Attachment("b", time.Time{})
	r.Calls = nil
	r.Refused(r.UnpublishFrom("id-a"), codes.FailedPrecondition, string(fence.HolderAlive))
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "a")
	r.Called()
}

// What is written down then is read once more: another process may have begun to unpublish the
// node in between, or the ledger may have gone with its PersistentVolume.
func TestAVolumeThatIsPublishedAtLastIsReadOnceMore(t *testing.T) {
	for what, change := range map[string]func(*guardrig.Rig){
		"taken over": func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) { l.MarkTaken("id-a", l.Get("id-a").Token, false) })
		},
		"cut": func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) { l.Cut("id-a", l.Get("id-a").Token) })
		},
		"another publication's": func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) { l.Get("id-a").Token = "another" })
		},
	} {
		r := neverAttached(t)
		r.Sealing()
		failsOnce(r, tookTooLong)
		r.BeforeWrite(2, func() { change(r) }) // the first one names the node
		if err := r.PublishTo("a"); err == nil {
			t.Errorf("%s: external-attacher is told that the node has the volume; the ledger says %+v", what, r.Ledger().Get("id-a"))
		}
	}
}

// A call that fails only after a retry has published the volume, in a process that leads no
// more, does not write that the node never had it.
func TestAFailureThatComesAfterTheRetryIsNotOfThisPublication(t *testing.T) {
	r := neverAttached(t)
	r.Sealing()
	failsOnce(r, tookTooLong)
	first := r.Ledger().Get("id-a").Token
	r.Must(r.PublishTo("a"))
	if e := r.Ledger().Get("id-a"); e.Token == first {
		t.Errorf("the ledger still says %+v", e)
	}
}

func TestANodeOfWhichMoreIsKnownMayHaveHadIt(t *testing.T) {
	change := func(f func(*storagev1.VolumeAttachment)) func(*guardrig.Rig) {
		return func(r *guardrig.Rig) { r.ChangeAttachment("a", f) }
	}
	for name, more := range map[string]func(*guardrig.Rig){
		"its attachment says attached":     change(func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }),
		"its attachment is another":        change(func(va *storagev1.VolumeAttachment) { va.UID += "-anew" }),
		"its attachment is not deleted":    func(r *guardrig.Rig) { r.Stripped("a"); r.Attachment("a", time.Time{}) },
		"its attachment has no finalizer":  change(func(va *storagev1.VolumeAttachment) { va.Finalizers = nil }),
		"its attachment has another's":     change(func(va *storagev1.VolumeAttachment) { va.Finalizers = []string{"example.com/keep"} }),
		"its attachment is gone":           func(r *guardrig.Rig) { r.Stripped("a") },
		"the controller lists it":          func(r *guardrig.Rig) { r.Lists("a", true, true) },
		"it was published by another, too": func(r *guardrig.Rig) { r.Change(func(l *ledger.Ledger) { l.Get("id-a").OnlyUnder = "another" }) },
	} {
		t.Run(name, func(t *testing.T) {
			r := neverAttached(t)
			r.Sealing()
			failedTo(r, tookTooLong)
			more(r)
			r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node a")
			r.Called()
		})
	}
}

func TestOnlyAFirstPublishUnderASealIsKnownToBeOne(t *testing.T) {
	for name, before := range map[string]func(*guardrig.Rig){
		"nothing is sealed": func(r *guardrig.Rig) { r.Disconnect() },
		"the Node is another": func(r *guardrig.Rig) {
			r.Node("c", guardrig.HourAgo)
			r.Attachment("c", time.Time{})
			r.Must(r.PublishTo("c"))
			r.RenewUID("a")
			letGo(r, "c")
		},
		"it listed it before": func(r *guardrig.Rig) {
			r.Claimed(guardrig.Claim)
			r.PodOn("a", "one", guardrig.ByClaim(guardrig.Claim), pending)
			r.Lists("a", true, false)
		},
		"it is in the ledger already": func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "id-a", NodeName: "a", NodeUID: "uid-of-a", BootID: "boot-of-a", SystemUUID: "system-a", Token: "old", State: fence.TakenOver})
			})
		},
		"its machine is in the ledger, under another ID": func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "id-a-of-before", NodeName: "a-of-before", NodeUID: "uid-of-before", BootID: "boot-of-before", SystemUUID: "system-a", Token: "old", State: fence.TakenOver})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := neverAttached(t)
			r.Sealing()
			before(r)
			failedTo(r, tookTooLong)
			if e := r.Ledger().Get("id-a"); e == nil || e.OnlyUnder != "" {
				t.Errorf("the entry is %+v, want one of which it is not known", e)
			}
		})
	}
}

// letGo: the node has let the volume go, and is unpublished.
func letGo(r *guardrig.Rig, node string) {
	r.T.Helper()
	r.Attachment(node, guardrig.Now)
	r.Must(r.UnpublishFrom("id-" + node))
	r.Stripped(node)
}

func TestAPublishByAnotherAttachmentIsNotTheOnlyOne(t *testing.T) {
	r := neverAttached(t)
	r.Sealing()
	failedTo(r, tookTooLong)
	r.Stripped("a")
	r.Stripped("b")
	r.Lives["a"] = fence.Alive
	r.Attachment("a", time.Time{})
	r.ChangeAttachment("a", func(va *storagev1.VolumeAttachment) { va.UID = "another" })
	r.Must(r.PublishTo("a"))
	if e := r.Ledger().Get("id-a"); e == nil || e.OnlyUnder != "" {
		t.Errorf("the entry is %+v, want one of which it is not known", e)
	}
}

// TestAPublishThatFailedForGoodNamesNobody: the ledger is as it was before.
func TestAPublishThatFailedForGoodNamesNobody(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.NotFound, codes.InvalidArgument, codes.Unknown} {
		r := neverAttached(t)
		r.Sealing()
		failedTo(r, status.Error(code, "no"))
		if l := r.Ledger(); len(l.Holders) > 0 {
			t.Errorf("after %s the ledger says %s", code, l)
		}
	}
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled, codes.Unavailable, codes.Aborted, codes.ResourceExhausted} {
		r := neverAttached(t)
		r.Sealing()
		failedTo(r, status.Error(code, "perhaps"))
		if e := r.Ledger().Get("id-a"); e == nil || e.State != fence.Publishing || e.OnlyUnder != "uid-of-va-a" {
			t.Errorf("after %s the ledger says %s", code, r.Ledger())
		}
	}
}

func TestAnEntryThatMayBeOfMoreThanTheFailedPublishStays(t *testing.T) {
	for name, before := range map[string]func(*guardrig.Rig){
		"nothing is sealed":                            func(r *guardrig.Rig) { r.Disconnect() },
		"it has the volume":                            func(r *guardrig.Rig) { r.Attachment("a", time.Time{}); r.Must(r.PublishTo("a")); r.SaysAttached("a") },
		"it has it, and the attacher could not say so": func(r *guardrig.Rig) { r.Attachment("a", time.Time{}); r.Must(r.PublishTo("a")) },
		"an earlier one took too long": func(r *guardrig.Rig) {
			r.Attachment("a", time.Time{})
			r.PublishErr = tookTooLong
			if r.PublishTo("a") == nil {
				r.T.Fatal("it succeeds")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := neverAttached(t)
			r.Sealing()
			if before(r); name == "nothing is sealed" {
				r.Attachment("a", time.Time{})
			}
			r.PublishErr = status.Error(codes.Internal, "no")
			if err := r.PublishTo("a"); err == nil || r.State("a") != fence.Publishing {
				t.Errorf("%v; the ledger says %s", err, r.Ledger())
			}
		})
	}
}

// TestWhoWasReleasedAndHasItAgainIsWrittenDown: also where it is revocable just then.
func TestWhoWasReleasedAndHasItAgainIsWrittenDown(t *testing.T) {
	r := guardrig.New(t, fence.Policy{UnpublishRevokesAccess: true})
	for _, n := range []string{"a", "b"} {
		r.Node(n, guardrig.HourAgo)
	}
	r.Change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: "id-a", NodeName: "a", NodeUID: "uid-of-a", BootID: "boot-of-a", SystemUUID: "system-a", Token: "old", State: fence.Released, ReleasedUnder: "va-0"})
	})
	r.Lists("a", true, false)
	r.Lives["a"] = fence.Stale
	r.Sealing()
	r.Must(r.UnpublishFrom("id-nobody"))
	r.WantHolder("a", fence.Held)
	r.Lives["a"] = fence.Alive
	r.Attachment("b", time.Time{})
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node a", "["+string(fence.HolderAlive)+"]")
}

// TestASealEndsTheOneBefore: with its first call, before that is judged.
func TestASealEndsTheOneBefore(t *testing.T) {
	r, e := sealed(t)
	was := e.Lease.ResourceVersion
	r.Reconnect()
	r.Look()
	r.Broken("list", "nodes")
	_, err := r.Guard.ControllerUnpublishVolume(r.By(t.Context()), &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: "id-nobody"}, r)
	if r.Must(err); e.Lease.ResourceVersion == was {
		t.Error("the Lease is as it was before")
	}
}

// The first answer sends it to look who else has the volume. The next one counts as of the first,
// unless its Node, or its attachment, has gone between the two.
func TestAFirstPublishThatWasLookedAtOnceMore(t *testing.T) {
	for goes, c := range map[string]struct {
		between func(*guardrig.Rig)
		only    string
		unasked int // the answers for which the driver is not called any more: the first was final
	}{
		"nothing":        {func(*guardrig.Rig) {}, "uid-of-va-a", 0},
		"its attachment": {func(r *guardrig.Rig) { r.Stripped("a") }, "", 0},
		"its Node": {func(r *guardrig.Rig) {
			r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
		}, "", 1},
	} {
		r := neverAttached(t)
		r.Sealing()
		r.Attachment("a", time.Time{})
		failures := []error{status.Error(codes.FailedPrecondition, "it is published to id-b"), tookTooLong}
		err := (acting{Rig: r, publish: func() error {
			failure := failures[0]
			failures = failures[1:]
			if len(failures) == 1 {
				c.between(r)
				r.Look()
			}
			return failure
		}}).PublishTo("a")
		if err == nil || len(failures) != c.unasked {
			t.Errorf("%s goes: %v, and %d answers are left", goes, err, len(failures))
		}
		if e := r.Ledger().Get("id-a"); (e == nil) != (c.unasked > 0) || e != nil && e.OnlyUnder != c.only {
			t.Errorf("%s goes: the ledger says %s", goes, r.Ledger())
		}
	}
}

// Meanwhile many may have it, of whom no ledger tells.
func TestAFirstPublishOfWhatManyMayHaveMeanwhile(t *testing.T) {
	r := neverAttached(t)
	r.Sealing()
	r.Attachment("a", time.Time{})
	err := (acting{Rig: r, publish: func() error {
		r.Guard.Seal.SetApart(guardrig.Handle)
		return tookTooLong
	}}).PublishTo("a")
	if e := r.Ledger().Get("id-a"); err == nil || e == nil || e.OnlyUnder != "" {
		t.Errorf("%v; the ledger says %s", err, r.Ledger())
	}
}

// A Node that came after the seal can have had what was made after it as little. Its entry stays,
// since the seal does not speak of that Node afterwards.
func TestAFirstPublishThatFailsToANodeThatCameAfterTheSeal(t *testing.T) {
	for name, err := range map[string]error{"through": status.Error(codes.Internal, "no"), "perhaps": tookTooLong} {
		t.Run(name, func(t *testing.T) {
			r, _ := made(t)
			r.Node("late", guardrig.HourAgo)
			r.Provisioned("5000", nil)
			asksFor(r, "late")
			r.PublishErr = err
			if r.PublishTo("late") == nil {
				t.Fatal("it succeeds")
			}
			r.PublishErr = nil
			if e := r.Ledger().Get("id-late"); e == nil || e.OnlyUnder != "uid-of-va-late" {
				t.Errorf("the ledger says %s", r.Ledger())
			}
			r.Lists("late", true, false)
			r.Lives["late"] = fence.Stale
			r.Attachment("late", guardrig.Now)
			r.Attachment("b", time.Time{})
			r.Must(r.PublishTo("b"))
		})
	}
}

// TestWhatIsKnownOfAFailureHangsOnTheSealThatHolds: after it, too.
func TestWhatIsKnownOfAFailureHangsOnTheSealThatHolds(t *testing.T) {
	for _, failure := range []error{tookTooLong, status.Error(codes.Internal, "no")} {
		r := neverAttached(t)
		e := r.Sealing()
		r.Attachment("a", time.Time{})
		if (acting{Rig: r, publish: func() error { e.Lease.ResourceVersion = "77"; return failure }}).PublishTo("a") == nil {
			t.Fatal("it succeeds")
		}
		if e := r.Ledger().Get("id-a"); e == nil || e.State != fence.Publishing || e.OnlyUnder != "" {
			t.Errorf("after %v the ledger says %s, want an entry of which it is not known", failure, r.Ledger())
		}
	}
}

// TestWhatTheSealDoesNotKnowItDoesNotCover: of those who have a volume and cannot be written
// down, or who may only wait.
func TestWhatTheSealDoesNotKnowItDoesNotCover(t *testing.T) {
	for name, has := range map[string]func(*guardrig.Rig){
		"a living node lists it": func(r *guardrig.Rig) { r.Lists("a", true, false) },
		"a node's driver registers": func(r *guardrig.Rig) {
			r.Attachment("a", time.Time{})
			r.SaysAttached("a")
			r.Lists("a", true, true)
			r.Register("a", "")
		},
		"it is being detached": func(r *guardrig.Rig) {
			r.Attachment("a", time.Time{})
			r.Attachment("a", guardrig.Now)
			r.Must(r.Client.CoreV1().Nodes().Delete(r.T.Context(), "a", metav1.DeleteOptions{}))
		},
		"it is not watched yet": func(r *guardrig.Rig) { r.Lists("a", true, false); r.Lives["a"] = fence.Unwatched },
		"whether it waits cannot be read": func(r *guardrig.Rig) {
			r.Claimed(guardrig.Claim)
			r.Lists("a", true, false)
			r.Lives["a"] = fence.Stale
			r.Broken("list", "pods")
		},
		"the index has not seen it": func(r *guardrig.Rig) {
			r.Lists("a", true, false)
			r.Lives["a"] = fence.Stale
			r.Unseen = "a"
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := guardrig.New(t, fence.Policy{})
			for _, n := range []string{"a", "b", "c"} {
				r.Node(n, guardrig.HourAgo)
			}
			r.Attachment("b", time.Time{})
			r.Must(r.PublishTo("b"))
			has(r)
			e := r.Sealing()
			r.Attachment("b", guardrig.Now)
			r.Must(r.UnpublishFrom("id-b"))
			r.Stripped("b")
			if e.Lease == nil || r.State("a") != fence.NotInLedger {
				t.Fatalf("the Lease is %v, the ledger says %s: want a seal, and nobody", e.Lease, r.Ledger())
			}
			r.Lives["a"], r.Unseen = fence.Stale, ""
			if name == "it is being detached" {
				r.Stripped("a")
				r.Attachment("c", time.Time{})
				r.Must(r.PublishTo("c")) // its unpublish was over
				return
			}
			r.Register("a", "id-a")
			r.Attachment("c", time.Time{})
			r.Calls = nil
			r.Refused(r.PublishTo("c"), codes.FailedPrecondition, "node a")
			r.Called()
		})
	}
}

// TestAnotherMachineUnderTheNodeIsNotTheLedgers: it was installed in its place, and has the
// volume past us.
func TestAnotherMachineUnderTheNodeIsNotTheLedgers(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	for _, n := range []string{"a", "b"} {
		r.Node(n, guardrig.HourAgo)
	}
	r.Attachment("a", time.Time{})
	r.Must(r.PublishTo("a"))
	r.Stripped("a")
	r.Register("a", "id-new")
	r.Status("a", func(s *corev1.NodeStatus) {
		s.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-of-new", SystemUUID: "system-new"}
	})
	r.Lists("a", true, false)
	r.Lives["a"] = fence.Stale
	r.Sealing()
	_ = r.UnpublishFrom("id-nobody")
	if e := r.Ledger().Get("id-new"); e == nil || e.State != fence.Held || e.SystemUUID != "system-new" {
		t.Errorf("the ledger says %s, want the new machine in it, too", r.Ledger())
	}
}

// TestNeverAttachedIsNotRemembered: what is proven by a VolumeAttachment goes with it.
func TestNeverAttachedIsNotRemembered(t *testing.T) {
	r := neverAttached(t)
	r.Sealing()
	failedTo(r, tookTooLong)
	r.UnpublishErr = guardrig.ErrThrottled
	if r.UnpublishFrom("id-a") == nil {
		t.Fatal("it succeeds")
	}
	if e := r.Ledger().Get("id-a"); e.State != fence.Leaving || e.OnlyUnder != "uid-of-va-a" {
		t.Errorf("the ledger says %s, want it leaving", r.Ledger())
	}
	r.UnpublishErr = nil
	// Past us: another attachment, by which it has the volume; and its Node goes.
	r.Stripped("a")
	r.Attachment("a", time.Time{})
	r.ChangeAttachment("a", func(va *storagev1.VolumeAttachment) { va.UID, va.Status.Attached = "another", true })
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	delete(r.Lives, "a")
	r.Calls = nil
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node a")
	r.Called()
}

// TestAReleaseIsOverWithAnAttachmentThatStands: of a node that is gone, too.
func TestAReleaseIsOverWithAnAttachmentThatStands(t *testing.T) {
	for _, attached := range []bool{true, false} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("b", guardrig.HourAgo)
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: "id-a", NodeName: "a", NodeUID: "uid-of-a", BootID: "boot-of-a", SystemUUID: "system-a", Token: "old", State: fence.Released})
		})
		if r.Attachment("a", time.Time{}); attached {
			r.SaysAttached("a")
		}
		r.Attachment("b", time.Time{})
		if err := r.PublishTo("b"); (err == nil) == attached {
			t.Errorf("attached %t: %v", attached, err)
		}
	}
}

func TestANodeIDThatHasAnotherAttachmentMayHaveTheVolumeByThat(t *testing.T) {
	r := neverAttached(t)
	r.Node("c", guardrig.HourAgo)
	r.Sealing()
	failedTo(r, tookTooLong)
	r.AttachmentWith("c", "id-a", time.Time{})
	r.SaysAttached("c")
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node")
	r.Called()
}

func TestTheSealOutlivesAPersistentVolumeThatGoes(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	e := r.Sealing()
	r.Node("a", guardrig.HourAgo)
	r.Lists("a", true, false)
	r.Lives["a"] = fence.Stale
	r.Attachment("a", time.Time{})
	r.Client.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), guardrig.PVName)
	})
	_ = r.UnpublishFrom("id-nobody")
	if e.Lease == nil {
		t.Error("there is no seal")
	}
}

func attachmentOf(node string) string {
	return csi.AttachmentName(guardrig.Handle, guardrig.DriverName, node)
}

// TestOfANewVolumeNoListIsNeeded: nobody had what was made after the ledgers were sealed.
func TestOfANewVolumeNoListIsNeeded(t *testing.T) {
	const since, before = "5000", "999" // the seal was put on at 1000
	fresh := func(t *testing.T) (*guardrig.Rig, *guardrig.Etcd) {
		r, e := made(t)
		r.Provisioned(since, nil)
		r.Attachment("c", time.Time{})
		r.ListErr = guardrig.ErrThrottled
		r.Calls = nil
		return r, e
	}
	r, _ := sealed(t)
	was := r.Ledger().String()
	r.Attachment("b", guardrig.Now)
	r.Must(r.UnpublishFrom("id-b"))
	r.Stripped("b")
	r.Lose()
	r.Provisioned(since, nil)
	r.Attachment("c", time.Time{})
	r.ListErr = guardrig.ErrThrottled
	if err := r.PublishTo("c"); status.Code(err) != codes.Unavailable {
		t.Errorf("one that was there when the seal was put on: %v, want that the driver does not answer", err)
	}

	r = guardrig.New(t, fence.Policy{})
	r.Sealing()
	r.Node("c", guardrig.HourAgo)
	r.Must(r.UnpublishFrom("id-b"))
	r.Provisioned(since, nil)
	r.Attachment("c", time.Time{})
	r.ListErr = guardrig.ErrThrottled
	if err := r.PublishTo("c"); status.Code(err) != codes.Unavailable {
		t.Errorf("one that was there, was never published, and is bound anew: %v, want that the driver does not answer", err)
	}

	r, _ = fresh(t)
	r.Must(r.PublishTo("c"))
	r.Called("publish id-c")
	r.WantHolder("c", fence.Publishing)

	for name, c := range map[string]func(*guardrig.Rig, *guardrig.Etcd){
		"it was there when the seal was put on": func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Provisioned(before, nil) },
		"nobody knows when it was made":         func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Provisioned("", nil) },
		"a person made it": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Provisioned(since, func(pv *corev1.PersistentVolume) { delete(pv.Annotations, "pv.kubernetes.io/provisioned-by") })
		},
		"another provisioner made it": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Provisioned(since, func(pv *corev1.PersistentVolume) { pv.Annotations["pv.kubernetes.io/provisioned-by"] = "other" })
		},
		"it was made for another claim": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Provisioned(since, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "2" })
		},
		"nobody knows for which claim": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Provisioned(since, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" })
		},
		"it has no claim": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Provisioned(since, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil })
		},
		"its ledger is another PersistentVolume's": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Annotate(strings.ReplaceAll(was, "uid-of-pv-1", "uid-of-before"))
		},
		"its ledger is a repair's": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Annotate(was)
			r.Change(func(l *ledger.Ledger) { l.Holders = nil })
			r.Repaired()
		},
		"another PersistentVolume has its disk": func(r *guardrig.Rig, _ *guardrig.Etcd) { r.SecondOfMany() },
		"the seal has ended":                    func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Lease.ResourceVersion = "77" },
		"nobody says who calls":                 func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Disconnect() },
		"it was published, and its ledger taken off": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Attachment("a", time.Time{})
			r.Must(r.PublishTo("a"))
			r.Stripped("a")
			r.Must(r.Client.CoreV1().Nodes().Delete(r.T.Context(), "a", metav1.DeleteOptions{}))
			r.Lose()
			r.Calls = nil
		},
		"many had it": func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.ListErr = nil
			r.Attachment("a", time.Time{})
			r.Must(r.ShareTo("a", spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
			r.Stripped("a")
			r.ListErr, r.Calls = guardrig.ErrThrottled, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := fresh(t)
			c(r, e)
			if err := r.PublishTo("c"); status.Code(err) != codes.Unavailable {
				t.Errorf("%v, want that the driver does not answer", err)
			}
			r.Called()
		})
	}
}

// made is a volume that was made since the ledgers were sealed; nodes a, b and c were there then.
func made(t *testing.T) (*guardrig.Rig, *guardrig.Etcd) {
	r := guardrig.New(t, fence.Policy{})
	e := r.Sealing()
	for _, n := range []string{"a", "b", "c"} {
		r.Node(n, guardrig.HourAgo)
	}
	without(r, func() { r.Must(r.UnpublishFrom("id-b")) })
	if e.Lease == nil {
		t.Fatal("there is no seal after the first call")
	}
	return r, e
}

// without does something while the PersistentVolume is not there yet.
func without(r *guardrig.Rig, do func()) {
	r.T.Helper()
	pvs := r.Client.CoreV1().PersistentVolumes()
	pv, err := pvs.Get(r.T.Context(), guardrig.PVName, metav1.GetOptions{})
	r.Must(err)
	r.Must(pvs.Delete(r.T.Context(), guardrig.PVName, metav1.DeleteOptions{}))
	do()
	_, err = pvs.Create(r.T.Context(), pv, metav1.CreateOptions{})
	r.Must(err)
}

// TestADriverThatHangsLeavesTimeForANewVolume: the call has half of its time left. Of another
// volume the driver has all of it.
func TestADriverThatHangsLeavesTimeForANewVolume(t *testing.T) {
	for version, want := range map[string]codes.Code{"5000": codes.OK, "999": codes.Unavailable} {
		r, _ := made(t)
		r.Provisioned(version, nil)
		r.Attachment("c", time.Time{})
		r.Look()
		r.Calls, r.ListHangs = nil, true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := r.Guard.ControllerPublishVolume(r.By(ctx), guardrig.PublishOf(guardrig.Handle, guardrig.ID("c")), r)
		if status.Code(err) != want {
			t.Errorf("made for version %s: %v, want %s", version, err, want)
		}
		if took := time.Since(began); want != codes.OK && took < 700*time.Millisecond {
			t.Errorf("the driver was given up after %s", took)
		}
	}
}
