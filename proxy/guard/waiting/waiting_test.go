package waiting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// counted are the waiting calls by reason, and the metrics.
type counted struct {
	byReason map[string]int
	seen     []string
}

func (c *counted) Decisions(call, decision, reason string) {
	c.seen = append(c.seen, call+" "+decision+" "+reason)
}

func (c *counted) TakeoverDone(took time.Duration) {
	c.seen = append(c.seen, "took over in "+took.String())
}
func (c *counted) LedgerWriteError() { c.seen = append(c.seen, "ledger write error") }

// waiting is a rig whose guard tells a Report and Calls, as the program has it.
type waiting struct {
	*guardrig.Rig
	*counted
	w      *Calls
	report *Report
	events *record.FakeRecorder
}

func newWaiting(t *testing.T, r *guardrig.Rig) *waiting {
	t.Helper()
	c := &counted{}
	w := New(r.Client, r.Guard.Surveyor, func(byReason map[string]int) { c.byReason = maps.Clone(byReason) })
	events := record.NewFakeRecorder(100)
	events.IncludeObject = true
	report := NewReport(r.Client, events, c, w)
	r.Guard.Reporter = report
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { w.Run(ctx); ended <- struct{}{} }()
	go func() { report.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { stop(); <-ended; <-ended })
	return &waiting{r, c, w, report, events}
}

// said are the Events so far.
func (w *waiting) said() (all []string) {
	synctest.Wait()
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// touched is the annotation by which the attacher of a node is woken.
func (w *waiting) touched(node string) string {
	w.T.Helper()
	va, err := w.Client.StorageV1().VolumeAttachments().Get(w.T.Context(), csi.AttachmentName(guardrig.Handle, guardrig.DriverName, node), metav1.GetOptions{})
	w.Must(err)
	return va.Annotations[RetryAnnotation]
}

func (w *waiting) waits(reasons ...fence.Reason) {
	w.T.Helper()
	synctest.Wait()
	want := map[string]int{}
	for _, r := range reasons {
		want[string(r)]++
	}
	if !maps.Equal(w.byReason, want) {
		w.T.Fatalf("%v wait, want %v", w.byReason, want)
	}
}

// inUse is a volume that node old uses, and whose publish to next was refused.
func inUse(t *testing.T) *waiting {
	t.Helper()
	r := guardrig.Held(t)
	r.Attachment("next", time.Time{})
	w := newWaiting(t, r)
	if r.PublishTo("next") == nil {
		t.Fatal("published elsewhere")
	}
	w.waits(fence.HolderAlive)
	return w
}

// The unpublish of the old name is answered; what waits is the publish of the new one.
func TestAnAnswerAboutTheOldNameDoesNotForgetThePublishOfTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Renamed(t, false)
		r.Node("third", guardrig.HourAgo)
		r.Lists("third", true, true)
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: guardrig.ID("third"), NodeName: "third", NodeUID: "uid-of-third", BootID: "boot-of-third", State: fence.Publishing, Token: "t3"})
		})
		r.Lists("renamed", true, false)
		w := newWaiting(t, r)
		r.Refused(r.PublishTo("old"), codes.FailedPrecondition, "node third (ID id-third) holds it")
		r.Must(r.UnpublishFrom(guardrig.ID("old")))
		if waits := w.w.List(); len(waits) != 1 || waits[0].NodeName != "renamed" {
			t.Errorf("waiting: %+v", waits)
		}
	})
}

func TestARefusedCallIsWokenWhenWhatBlockedItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		w.w.Changed(observe.Change{Node: "old"}) // and nothing that matters has changed
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.touched("next") != "" {
			t.Fatal("woken although it would be refused the same")
		}
		w.Lists("old", false, false)
		w.Attachment("old", time.Now())
		w.Look()
		w.w.Changed(observe.Change{Node: "another"})
		w.w.Changed(observe.Change{Volume: "another"})
		synctest.Wait()
		if w.touched("next") != "" {
			t.Fatal("woken by what does not concern it")
		}
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		first := w.touched("next")
		if first == "" {
			t.Fatal("not woken")
		}
		// The attacher does not call: it is woken again, not before a second.
		time.Sleep(time.Millisecond)
		w.w.Changed(observe.Change{Node: "old"})
		time.Sleep(touchEvery - 2*time.Millisecond)
		synctest.Wait()
		if w.touched("next") != first {
			t.Error("woken twice within a second")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		second := w.touched("next")
		if second == first {
			t.Error("not woken again")
		}
		w.w.Changed(observe.Change{Node: "old"})
		time.Sleep(touchEvery)
		synctest.Wait()
		if w.touched("next") == second {
			t.Error("a change within a second of the last wake-up is forgotten")
		}
		time.Sleep(retryMost)
		third := w.touched("next")
		time.Sleep(retryMost)
		if w.touched("next") == third {
			t.Error("not woken again and again")
		}
		w.Must(w.PublishTo("next"))
		w.waits()
		last := w.touched("next")
		w.w.Changed(observe.Change{Node: "old"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.touched("next") != last {
			t.Error("woken although nobody waits")
		}
	})
}

// Publish and unpublish of one volume are woken by one change, and meet: the one that was
// turned away has that on its VolumeAttachment, and an attacher that comes again in minutes.
func TestACallThatWasTurnedAwayIsWokenOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		w.report.TurnedAway(guard.CallPublish, guardrig.Handle, guardrig.ID("next"))
		time.Sleep(touchEvery - time.Millisecond)
		synctest.Wait()
		if w.touched("next") != "" {
			t.Error("woken at once, while the other call is under way")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		woken := w.touched("next")
		if woken == "" {
			t.Fatal("not woken")
		}
		if w.PublishTo("next") == nil {
			t.Fatal("published elsewhere")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.touched("next") != woken {
			t.Error("woken again, though it was judged")
		}
		// A call that was never refused is not known to wait, and is not woken.
		w.report.TurnedAway(guard.CallUnpublish, guardrig.Handle, guardrig.ID("old"))
		w.waits(fence.HolderAlive)
	})
}

func TestARefusalThatWouldReadDifferentlyIsWoken(t *testing.T) {
	for _, change := range []observe.Change{{Volume: guardrig.Handle}, {Node: "old"}, {Node: "next"}} {
		synctest.Test(t, func(t *testing.T) {
			w := inUse(t)
			w.Lives["old"] = fence.Stale
			w.w.Changed(change)
			synctest.Wait()
			if w.touched("next") == "" {
				t.Errorf("not woken by %+v", change)
			}
		})
	}
}

// external-attacher publishes to no node without a CSINode, however often it is woken.
func TestAPublishToANodeThatIsGoneIsWokenOnceTheNodeIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		looks := func(during time.Duration) string {
			w.Look()
			w.w.Changed(observe.Change{Node: "next"})
			time.Sleep(during)
			synctest.Wait()
			return w.touched("next")
		}
		w.Lives["old"] = fence.Stale
		w.Must(w.Client.CoreV1().Nodes().Delete(t.Context(), "next", metav1.DeleteOptions{}))
		w.Must(w.Client.StorageV1().CSINodes().Delete(t.Context(), "next", metav1.DeleteOptions{}))
		if looks(time.Minute) != "" {
			t.Error("woken while its node is gone")
		}
		w.waits(fence.HolderAlive)
		w.Node("next", guardrig.HourAgo)
		if looks(0) == "" {
			t.Error("not woken")
		}
	})
}

func TestAnUnpublishThatWaitsIsWokenToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Held(t)
		r.Attachment("old", time.Now())
		w := newWaiting(t, r)
		if r.UnpublishFrom(guardrig.ID("old")) == nil {
			t.Fatal("unpublished")
		}
		w.waits(fence.HolderAlive)
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		if w.touched("old") != "" {
			t.Error("woken although it would be refused the same")
		}
		w.Lives["old"] = fence.Stale
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		if w.touched("old") == "" {
			t.Error("not woken")
		}
		// Who asks for a publish there does not wait for the unpublish any more.
		for _, name := range []string{"", "old"} {
			w.report.Decided(guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, NodeID: guardrig.ID("old"), NodeName: name, Action: fence.Refuse, Reason: fence.TargetFenced})
			w.waits(fence.TargetFenced)
			if r.UnpublishFrom(guardrig.ID("old")) == nil {
				t.Fatal("unpublished")
			}
			w.waits(fence.HolderStale)
		}
	})
}

// No event tells that a kubelet has been watched for long enough.
func TestAnUnpublishIsWokenOnceItsKubeletHasSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Held(t)
		r.Unsynced.Store(true)
		r.Status("old", func(s *corev1.NodeStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(guardrig.Now.Add(time.Hour))
		})
		r.Attachment("old", time.Now())
		w := newWaiting(t, r)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		time.Sleep(2 * observe.SyncTime)
		if w.touched("old") != "" {
			t.Error("woken although there is nothing to write down yet")
		}
		r.Unsynced.Store(false)
		time.Sleep(observe.SyncTime + 2*time.Second)
		synctest.Wait()
		if w.touched("old") == "" {
			t.Fatal("not woken")
		}
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		if c := r.Ledger().Get(guardrig.ID("old")).Contest; c == nil || c.SeenReadySince == "" {
			t.Errorf("contested as %+v", c)
		}
	})
}

// What a refused unpublish would write down of the holder is not left to whenever
// external-attacher comes again.
func TestAnUnpublishIsWokenForWhatItHasToWriteDown(t *testing.T) {
	for name, happens := range map[string]func(r *guardrig.Rig){
		"a reboot, and the volume is mounted again": func(r *guardrig.Rig) { r.Reboot("old", "boot-2"); r.Lists("old", true, true) },
		"its kubelet is Ready anew": func(r *guardrig.Rig) {
			r.Status("old", func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := guardrig.Held(t)
				r.Attachment("old", time.Now())
				w := newWaiting(t, r)
				r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
				time.Sleep(time.Minute)
				synctest.Wait()
				happens(r)
				w.w.Changed(observe.Change{Node: "old"})
				synctest.Wait()
				first := w.touched("old")
				if first == "" {
					t.Fatal("not woken")
				}
				before := *r.Ledger().Get(guardrig.ID("old")).Contest
				r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
				if after := *r.Ledger().Get(guardrig.ID("old")).Contest; reflect.DeepEqual(after, before) {
					t.Errorf("the ledger has %+v as before", after)
				}
				time.Sleep(time.Minute)
				w.w.Changed(observe.Change{Node: "old"})
				time.Sleep(time.Minute)
				synctest.Wait()
				if w.touched("old") != first {
					t.Error("woken again, with nothing to write down")
				}
			})
		})
	}
}

func TestACallThatWaitsForAnotherHolderNowIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		w.Node("third", guardrig.HourAgo)
		w.Lists("third", true, true)
		w.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: guardrig.ID("third"), NodeName: "third", NodeUID: "uid-of-third", BootID: "boot-of-third", State: fence.Publishing, Token: "t3"})
		})
		w.Lists("old", false, false)
		w.Attachment("old", time.Now())
		w.Look()
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		if w.touched("next") == "" {
			t.Fatal("not woken, though it waits for node third now")
		}
		w.Refused(w.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "third")
		last := w.touched("next")
		time.Sleep(time.Minute)
		w.w.Changed(observe.Change{Node: "third"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.touched("next") != last {
			t.Error("woken again, with nothing new")
		}
	})
}

// They send no event when what is wrong ends.
func TestWhatSendsNoEventIsLookedAtAgain(t *testing.T) {
	for _, reason := range []fence.Reason{fence.UnpublishFailed, fence.HolderUnwatched, fence.APIUnavailable, fence.TargetLeaving, fence.LostRace,
		fence.HolderStale, fence.HolderListed, fence.EvidenceVoid, fence.EvidenceContradicted} {
		synctest.Test(t, func(t *testing.T) {
			r := guardrig.New(t, fence.Policy{})
			r.Node("next", guardrig.HourAgo)
			r.Attachment("next", time.Time{})
			r.Look()
			w := newWaiting(t, r)
			d := guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, NodeID: guardrig.ID("next"), NodeName: "next", Action: fence.Refuse, Reason: reason, Holder: &fence.Holder{NodeName: "old"}}
			for range 9 {
				w.w.Decided(d)
			}
			let := d
			let.Action = fence.Allow
			w.w.Decided(let) // after that it begins with short waits again
			time.Sleep(time.Minute)
			w.w.Decided(d)
			time.Sleep(retryFirst - time.Millisecond)
			synctest.Wait()
			if w.touched("next") != "" {
				t.Errorf("%s: woken at once", reason)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if w.touched("next") == "" {
				t.Errorf("%s: not woken", reason)
			}
		})
	}
}

func TestALookThatTheAPIServerFailsIsRepeated(t *testing.T) {
	for resource, verb := range map[string]string{"persistentvolumes": "get", "volumeattachments": "patch"} {
		synctest.Test(t, func(t *testing.T) {
			w := inUse(t)
			w.Attachment("old", time.Now())
			if w.UnpublishFrom(guardrig.ID("old")) == nil {
				t.Fatal("unpublished")
			}
			w.waits(fence.HolderAlive, fence.HolderAlive)
			w.Lives["old"] = fence.Stale
			away := true
			w.Client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return away, nil, apierrors.NewInternalError(errors.New("etcd is away"))
			})
			w.w.Changed(observe.Change{Node: "old"})
			synctest.Wait()
			away = false
			if w.touched("next") != "" || w.touched("old") != "" {
				t.Fatal("woken although that failed")
			}
			time.Sleep(retryFirst)
			synctest.Wait()
			if w.touched("next") == "" || w.touched("old") == "" {
				t.Errorf("not tried again after %s %s failed", verb, resource)
			}
		})
	}
}

func TestACallThatGoesThroughWhileItIsLookedAtIsNotWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		w.Lives["old"] = fence.Stale
		w.BeforeRead(1, func() error {
			w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, NodeID: guardrig.ID("next"), NodeName: "next", Action: fence.Allow})
			return nil
		})
		w.w.Changed(observe.Change{Node: "old"})
		w.waits()
		if w.touched("next") != "" {
			t.Error("woken")
		}
	})
}

// Whose VolumeAttachment it is cannot be told, so neither that it is gone.
func TestACallForANodeWithoutANameWaitsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, NodeID: "id-nobody", Action: fence.Refuse, Reason: fence.HolderAlive})
		w.w.Changed(observe.Change{Volume: guardrig.Handle})
		w.waits(fence.HolderAlive, fence.HolderAlive)
	})
}

// Whoever ends it may take away then what a look reads.
func TestItEndsOnlyWhenTheLastLookHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		own := New(w.Client, w.Guard.Surveyor, func(map[string]int) {})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { own.Run(ctx); close(ended) }()
		running := func() bool {
			synctest.Wait()
			select {
			case <-ended:
				return false
			default:
				return true
			}
		}
		if !running() {
			t.Error("it has ended by itself")
		}
		w.BeforeRead(1, func() error { time.Sleep(time.Minute); return nil })
		own.Decided(guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, NodeID: guardrig.ID("next"), NodeName: "next", Action: fence.Refuse, Reason: fence.HolderAlive})
		own.Changed(observe.Change{Volume: guardrig.Handle})
		synctest.Wait()
		if stop(); !running() {
			t.Error("it has ended before its look")
		}
		if time.Sleep(time.Minute); running() {
			t.Error("it does not end")
		}
	})
}

func TestACallWhoseVolumeAttachmentIsGoneWaitsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inUse(t)
		w.Stripped("next")
		w.w.Changed(observe.Change{Volume: guardrig.Handle})
		w.waits()
		if left := w.w.List(); len(left) != 0 {
			t.Errorf("still waiting: %+v", left)
		}
	})
}

// What a process knew of waiting calls is found again in their VolumeAttachments.
func TestARefusalOfBeforeAStartIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.New(t, fence.Policy{})
		r.Node("next", guardrig.HourAgo)
		r.Attachment("next", time.Time{})
		r.Look()
		w := newWaiting(t, r)
		pv := guardrig.PVName
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "next",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
		w.w.Recover(va, guardrig.Handle, guardrig.ID("next"))
		va.Status.AttachError = &storagev1.VolumeError{Message: "rpc error: the driver's own words"}
		w.w.Recover(va, guardrig.Handle, guardrig.ID("next"))
		refusal := &storagev1.VolumeError{Message: "rpc error: " + fence.Mark + "volume pv-1: x", Time: metav1.NewTime(time.Now().Add(-time.Hour))}
		va.Status.AttachError = refusal
		w.w.Recover(va, "", guardrig.ID("next"))
		w.w.Recover(va, guardrig.Handle, "")
		if left := w.w.List(); len(left) != 0 {
			t.Fatalf("waiting: %+v", left)
		}
		w.w.Recover(va, guardrig.Handle, guardrig.ID("next"))
		w.w.Recover(va, guardrig.Handle, guardrig.ID("next")) // known by now
		w.waits("")
		want := Call{Call: guard.CallPublish, Volume: guardrig.Handle, PV: guardrig.PVName, NodeID: guardrig.ID("next"), NodeName: "next", Text: refusal.Message, Since: refusal.Time.Time}
		if left := w.w.List(); len(left) != 1 || left[0] != want {
			t.Fatalf("waiting: %+v, want %+v", left, want)
		}
		time.Sleep(2 * retryFirst)
		synctest.Wait()
		if w.touched("next") == "" {
			t.Error("not woken")
		}
		at := metav1.Now()
		va.DeletionTimestamp, va.Status.AttachError, va.Status.DetachError = &at, nil, refusal
		w.w.Recover(va, "vol-2", "id-2")
		if left := w.w.List(); len(left) != 2 || left[0].Call != guard.CallPublish && left[1].Call != guard.CallPublish || left[0].Call == left[1].Call {
			t.Errorf("waiting: %+v", left)
		}
	})
}

// A call that was judged while it was looked at is held against what it was told
// then: it would be refused the same.
func TestACallThatWasJudgedMeanwhileIsNotWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Held(t)
		r.Attachment("next", time.Time{})
		r.Look()
		w := newWaiting(t, r)
		va := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: "next"}}
		va.Status.AttachError = &storagev1.VolumeError{Message: fence.Mark + "volume pv-1: x"}
		var judged atomic.Bool
		r.BeforeRead(1, func() error {
			judged.Store(true)
			w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, NodeID: guardrig.ID("next"), NodeName: "next",
				Action: fence.Refuse, Reason: fence.HolderAlive, Text: "t", Holder: &fence.Holder{NodeName: "old"}})
			return nil
		})
		w.w.Recover(va, guardrig.Handle, guardrig.ID("next"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !judged.Load() || w.touched("next") != "" {
			t.Errorf("judged meanwhile: %t, woken: %q", judged.Load(), w.touched("next"))
		}
	})
}

func TestWaitingCallsAreListedTheLongestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, guardrig.New(t, fence.Policy{}))
		for i, volume := range []string{"c", "a", "b"} {
			w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: volume, PV: "pv-" + volume, NodeID: "n", Action: fence.Wait, Reason: fence.OperationPending, Text: "t",
				Holder: &fence.Holder{NodeName: fmt.Sprint(i)}})
			time.Sleep(time.Duration(2-i) * time.Second)
		}
		w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: "a", NodeID: "n", Action: fence.Refuse, Reason: fence.HolderAlive, Text: "u"})
		for range 20 { // not by chance
			var got []string
			for _, c := range w.w.List() {
				got = append(got, fmt.Sprint(c.Volume, c.Times, c.Text, c.Holder, c.Reason))
			}
			if want := "c1t0OperationPending a2u1HolderAlive b1t2OperationPending"; strings.Join(got, " ") != want {
				t.Fatalf("got %s, want %s", strings.Join(got, " "), want)
			}
		}
		w.waits(fence.OperationPending, fence.OperationPending, fence.HolderAlive)
		w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: "a", NodeID: "n", Action: fence.Allow})
		w.w.Decided(guard.Decision{Call: guard.CallPublish, Volume: "b", NodeID: "n", Action: fence.Answer})
		w.waits(fence.OperationPending)
	})
}

// One Event for each change of what is said, on everybody whom it concerns.
func TestARefusalIsSaidOnceOnVolumePodAndNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Held(t)
		r.Attachment("next", time.Time{})
		pv, err := r.Client.CoreV1().PersistentVolumes().Get(t.Context(), guardrig.PVName, metav1.GetOptions{})
		r.Must(err)
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "web-data"}
		_, err = r.Client.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{})
		r.Must(err)
		r.Pod("waits", corev1.PodPending, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"}}})
		r.Pod("web", corev1.PodPending, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		r.Pod("runs", corev1.PodRunning, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"}}})
		r.Pod("other", corev1.PodPending, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "other"}}})
		r.Pod("another", corev1.PodPending, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "another"}}})
		for _, name := range []string{"alike", "as-well"} {
			r.Pod(name, corev1.PodPending, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		}
		w := newWaiting(t, r)
		for range 3 {
			if r.PublishTo("next") == nil {
				t.Fatal("published")
			}
		}
		said := w.said()
		for i, who := range []string{"kind=PersistentVolume", "kind=Pod", "kind=Pod", "kind=Node"} {
			if i >= len(said) || !strings.HasPrefix(said[i], "Warning VolumePublishRefused csi-fencepost: volume pv-1") || !strings.Contains(said[i], who) {
				t.Fatalf("said %q", said)
			}
		}
		if len(said) != 4 {
			t.Errorf("said %q", said)
		}
		if r.UnpublishFrom(guardrig.ID("old")) == nil {
			t.Fatal("unpublished")
		}
		if said := w.said(); len(said) != 2 || !strings.HasPrefix(said[0], "Warning VolumeUnpublishRefused ") || !strings.Contains(said[1], "kind=Node") {
			t.Errorf("said %q", said)
		}
		r.Guard.Observe = true
		r.Lives["old"] = fence.Stale
		r.Must(r.PublishTo("next"))
		if said := w.said(); len(said) != 4 || !strings.HasPrefix(said[0], "Warning WouldRefuse in mode Enforce: csi-fencepost: ") {
			t.Errorf("said %q", said)
		}
		if got := strings.Join(w.seen, ", "); got != "ControllerPublishVolume refuse HolderAlive, ControllerPublishVolume refuse HolderAlive, ControllerPublishVolume refuse HolderAlive, "+
			"ControllerUnpublishVolume refuse HolderAlive, ControllerPublishVolume would refuse HolderStale" {
			t.Errorf("counted %s", got)
		}
		w.waits(fence.HolderAlive, fence.HolderAlive) // what is only observed does not wait
	})
}

func TestATakeoverIsSaidOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
		w := newWaiting(t, r)
		r.Must(r.PublishTo("next"))
		said := w.said()
		want := "Normal VolumeTakenOver volume pv-1 moved from node old (ID id-old) to node next (HolderFenced)"
		if len(said) != 2 || !strings.HasPrefix(said[0], want) || !strings.Contains(said[0], "kind=Node") || !strings.HasPrefix(said[1], want) || !strings.Contains(said[1], "kind=PersistentVolume") {
			t.Errorf("said %q", said)
		}
		recent := w.report.Recent.List()
		if len(recent) != 2 || recent[0].Verdict != "took over" || strings.Join(recent[0].From, ",") != "node old (ID id-old)" || recent[1].Verdict != "allow" {
			t.Errorf("recent: %+v", recent)
		}
		w.report.TookOver(guard.Decision{PV: guardrig.PVName, NodeID: "3", Reason: fence.HolderRevoked}, []fence.Holder{{NodeName: "a", NodeID: "1"}, {NodeName: "b", NodeID: "2"}}, time.Second)
		if said, want := w.said(), "Normal VolumeTakenOver volume pv-1 moved from node a (ID 1), node b (ID 2) to node 3 (HolderRevoked)"; len(said) != 3 || !strings.HasPrefix(said[2], want) {
			t.Errorf("said %q", said)
		}
		// One without a PersistentVolume has nothing to say it on.
		w.report.TookOver(guard.Decision{Volume: guardrig.Handle}, []fence.Holder{{NodeName: "old"}}, time.Second)
		if said := w.said(); len(said) != 0 {
			t.Errorf("said %q", said)
		}
		w.report.LedgerWriteFailed()
		if got := strings.Join(w.seen, ", "); !strings.Contains(got, "took over in ") || !strings.HasSuffix(got, ", ledger write error") {
			t.Errorf("counted %s", got)
		}
	})
}

func TestARefusalIsSaidOnNothingThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, guardrig.New(t, fence.Policy{}))
		d := guard.Decision{Call: guard.CallPublish, Volume: guardrig.Handle, Action: fence.Refuse, Reason: fence.HolderUnknown, Text: "x", Holder: &fence.Holder{NodeID: "i"}}
		d.PV = "gone"
		if w.report.Decided(d); len(w.said()) != 0 {
			t.Error("said on a PersistentVolume that is gone, or on a node without a name")
		}
		d.PV, d.Text = guardrig.PVName, "y"
		if w.report.Decided(d); len(w.said()) != 1 {
			t.Error("not said on the PersistentVolume alone")
		}
		let := guard.Decision{Call: d.Call, Volume: d.Volume, PV: d.PV, Action: fence.Allow, Reason: fence.NoOtherHolder}
		w.report.Decided(let)
		if w.report.Decided(d); len(w.said()) != 1 {
			t.Error("not said again after the call was let through")
		}
	})
}

func TestALedgerThatIsSetAsideIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, guardrig.New(t, fence.Policy{}))
		w.report.SetAside(guardrig.PVName, "it is another cluster's")
		if said := w.said(); len(said) != 1 || !strings.HasPrefix(said[0], "Warning LedgerSetAside it is another cluster's") {
			t.Errorf("said %q", said)
		}
		if w.report.SetAside(guardrig.PVName, "it is another cluster's"); len(w.said()) != 0 {
			t.Error("said again")
		}
	})
}

func TestRecentDecisionsAreBoundedAndARetryIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Recent
		began := time.Now()
		say := func(volume string, reason fence.Reason, text string) {
			r.decided(guard.Decision{Call: guard.CallPublish, Volume: volume, NodeID: "n", Reason: reason, Text: text,
				Holder: &fence.Holder{NodeName: "h", NodeID: "i", Evidence: []fence.Evidence{{}}, Token: "t"}}, "refuse")
			time.Sleep(time.Second)
		}
		say("a", fence.HolderAlive, "x")
		say("b", fence.HolderAlive, "x")
		say("a", fence.HolderAlive, "x")
		got := r.List()
		if len(got) != 2 || got[0].Volume != "a" || got[0].Times != 2 || !got[0].First.Equal(began) || got[0].Last.Equal(began) || got[1].Times != 1 {
			t.Fatalf("recent: %+v", got)
		}
		if h := got[0].Holder; h.NodeName != "h" || h.NodeID != "i" || h.Evidence != nil || h.Token != "" {
			t.Errorf("the holder is kept as %+v", h)
		}
		say("a", fence.HolderStale, "x")
		say("a", fence.HolderStale, "y")
		say("a", fence.HolderAlive, "x") // not the last one of that call, so another entry
		if got := r.List(); len(got) != 5 || got[0].Times != 1 || got[0].Reason != fence.HolderAlive || got[1].Text != "y" {
			t.Errorf("recent: %+v", got)
		}
		for i := range 2 * maxRecent {
			say(fmt.Sprint(i), fence.HolderAlive, "x")
		}
		if got := r.List(); len(got) != maxRecent || got[0].Volume != fmt.Sprint(2*maxRecent-1) || got[maxRecent-1].Volume != fmt.Sprint(maxRecent) {
			t.Errorf("%d are kept, from %s to %s", len(got), got[len(got)-1].Volume, got[0].Volume)
		}
	})
}

func TestARenamedNodeWaitsBesideWhatItsOldNameLeft(t *testing.T) {
	for lingers, reason := range map[bool]fence.Reason{false: fence.HolderUnknown, true: fence.HolderStale} {
		synctest.Test(t, func(t *testing.T) {
			r := guardrig.Renamed(t, lingers)
			w := newWaiting(t, r)
			for range 2 {
				if r.PublishTo("old") == nil || r.UnpublishFrom(guardrig.ID("old")) == nil {
					t.Fatal("let through")
				}
				w.waits(reason, reason)
			}
		})
	}
}

// Whom no ledger names stands in nobody's way that publishes for many; what is said of
// another refusal of before is forgotten when the call goes through unjudged.
func TestAPublishForManyWaitsForThoseAloneWhomALedgerNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		w := inUse(t)
		w.Node("b", guardrig.HourAgo)
		w.Attachment("b", time.Time{})
		w.SaysAttached("b")
		w.Lists("b", true, true)
		w.Refused(w.ShareTo("next", many), codes.FailedPrecondition, "node old")
		w.waits(fence.HolderAlive)
		before := w.touched("next")
		w.w.Changed(observe.Change{Volume: guardrig.Handle})
		time.Sleep(time.Minute)
		synctest.Wait()
		if now := w.touched("next"); now != before {
			t.Errorf("woken for nothing: %q, was %q", now, before)
		}
		w.Change(func(l *ledger.Ledger) { l.Holders = nil })
		w.w.Changed(observe.Change{Volume: guardrig.Handle})
		time.Sleep(time.Minute)
		synctest.Wait()
		if now := w.touched("next"); now == before {
			t.Error("not woken when no ledger names another")
		}
		w.Must(w.ShareTo("next", many))
		w.waits()
	})
}
