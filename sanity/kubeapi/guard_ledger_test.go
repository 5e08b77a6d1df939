package kubeapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

func TestAHolderIsWrittenDownBeforeTheDriverIsCalledAndSoIsARetry(t *testing.T) {
	r := newRig(t, "written", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attachment(v, n)
	writes := r.followPV(v)
	hang := r.Array.Inject(array.Fault{Method: array.Publish, Volume: v.Handle, Do: array.Hang})
	ctx, cancel := context.WithCancel(r.ctx())
	answer := make(chan error, 1)
	go func() {
		_, err := r.proxy.ControllerPublishVolume(ctx, r.publishRequest(v.Handle, n))
		answer <- err
	}()
	r.waitHit(hang)
	first := r.wantState(v, n, fence.Publishing)
	if first.BootID != n.boot {
		t.Errorf("written with boot ID %q", first.BootID)
	}
	cancel()
	r.wantError(<-answer, codes.Canceled)
	// The client does not wait until the sidecar has given up, and the driver might answer until then.
	r.WaitFor(10*time.Second, "the first call is over, and written down as given up", func() bool { return writes.count() == 2 })
	r.wantState(v, n, fence.Publishing)
	hang.Clear()
	r.must(r.retry(func() error { return r.publish(v.Handle, n) }))
	published := r.wantState(v, n, fence.Publishing)
	if published.OnlyUnder != "" || published.Token == first.Token {
		t.Errorf("published at last, the ledger has %+v", published)
	}
	r.must(r.publish(v.Handle, n))
	if again := r.wantState(v, n, fence.Publishing); again.Token != published.Token || again.Call == published.Call {
		t.Errorf("a retry has token %s and call %q, the call before it had %s and %q: it is the same publication, and another call", again.Token, again.Call, published.Token, published.Call)
	}
	r.settle()
	// Once for each of three calls, once for what is known of the one that was given up, and once to
	// take that back.
	if writes.count() != 5 {
		t.Errorf("the PersistentVolume was written %d times, want five times", writes.count())
	}
}

func TestAReleasedHolderIsMarkedBeforeItsUnpublishAndCutAfterIt(t *testing.T) {
	r := newRig(t, "released", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	writes := r.followPV(v)
	r.attach(v, n)
	token := r.wantState(v, n, fence.Publishing).Token
	r.letGo(v, n)
	hang := r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Hang, Times: 1})
	answer := make(chan error, 1)
	go func() { answer <- r.unpublish(v.Handle, n) }()
	r.waitHit(hang)
	if e := r.wantState(v, n, fence.Released); e.Token != token {
		t.Errorf("the entry that leaves has token %s, it was published with %s", e.Token, token)
	}
	hang.Clear()
	r.must(<-answer)
	if l := r.readLedger(v); len(l.Holders) != 0 {
		t.Errorf("after the unpublish the ledger has %+v", l.Holders)
	}
	r.settle()
	if writes.count() > 3 {
		t.Errorf("an attach cycle wrote the PersistentVolume %d times, at most 3 are promised", writes.count())
	}
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id)
}

func TestAFencedHolderIsLeavingNotReleased(t *testing.T) {
	r := newRig(t, "leaving", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attach(v, n)
	n.powerOff()
	n.lists(v, true, false) // the controller lets go; the kubelet's last word stays
	n.confirm()
	r.deleting(v, n)
	r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Fail, Code: codes.Internal, Message: "cannot reach the VM", Times: 1})
	r.wantError(r.unpublish(v.Handle, n), codes.Internal, "cannot reach the VM")
	r.wantState(v, n, fence.Leaving)

	// Back from the dead: what was fenced once is not free now.
	n.ready("True")
	r.settle()
	r.wantRefused(r.unpublish(v.Handle, n), fence.HolderAlive, n.name)
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id)
}

func TestWhatTheKubeletReleasedStaysReleasedWhenItsNodeIsDeleted(t *testing.T) {
	r := newRig(t, "scaled-down", bed.StageOptions{})
	v, n, target := r.volume("v"), r.node("n"), r.node("target")
	r.attach(v, n)
	r.letGo(v, n)
	r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Fail, Code: codes.Internal, Message: "throttled", Times: 1})
	r.wantError(r.unpublish(v.Handle, n), codes.Internal, "throttled")
	r.wantState(v, n, fence.Released)
	n.delete()
	r.attachment(v, target)
	r.settle()
	r.must(r.publish(v.Handle, target))
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id, "unpublish "+n.id, "publish "+target.id)
	r.wantState(v, n, fence.TakenOver)
}

func TestAnUnpublishThatItsCallerGaveUpIsFinishedByTheRetry(t *testing.T) {
	r := newRig(t, "given-up", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attach(v, n)
	r.letGo(v, n)
	hang := r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.HangThenDo, Times: 1})
	ctx, cancel := context.WithCancel(r.ctx())
	answer := make(chan error, 1)
	go func() { answer <- r.unpublishUntil(ctx, r.proxy, v.Handle, n) }()
	r.waitHit(hang)
	cancel()
	r.wantError(<-answer, codes.Canceled)
	r.wantState(v, n, fence.Released)
	r.must(r.retry(func() error { return r.unpublish(v.Handle, n) }))
	if l := r.readLedger(v); len(l.Holders) != 0 {
		t.Errorf("after the retry the ledger has %+v", l.Holders)
	}
}

// Whenever the caller hangs up: what the driver was asked stands in the ledger.
func TestNothingReachesTheDriverThatTheLedgerLacksWheneverTheCallerHangsUp(t *testing.T) {
	r := newRig(t, "hang-up", bed.StageOptions{})
	n := r.node("n")
	reached := 0
	for i := range 20 {
		v := r.volume(fmt.Sprint("v", i))
		r.attachment(v, n)
		ctx, cancel := context.WithTimeout(r.ctx(), time.Duration(i)*2*time.Millisecond)
		_, err := r.proxy.ControllerPublishVolume(ctx, r.publishRequest(v.Handle, n))
		cancel()
		r.settle()
		if calls := r.calls(v.Handle); len(calls) > 0 {
			reached++
			r.wantState(v, n, fence.Publishing)
		} else if err == nil {
			t.Fatalf("%s: OK without a call of the driver", v.Name)
		}
		r.must(r.retry(func() error { return r.publish(v.Handle, n) })) // and goes through
	}
	if reached == 0 || reached == 20 {
		t.Logf("%d of 20 calls reached the driver: the times do not straddle the write", reached)
	}
}

func TestTheAttachersFinalizerPatchAtTheSameMomentIsNoConflict(t *testing.T) {
	r := newRig(t, "finalizer", bed.StageOptions{})
	n := r.node("n")
	for i := range 5 {
		v := r.volume(fmt.Sprint("v", i))
		r.attachment(v, n)
		done, ctx := make(chan int), r.ctx()
		stop := make(chan struct{})
		go func() {
			patches := 0
			for {
				select {
				case <-stop:
					done <- patches
					return
				default:
				}
				patch := fmt.Sprintf(`{"metadata":{"finalizers":["kubernetes.io/pv-protection","external-attacher/x"],"annotations":{"somebody/else":"%d"}}}`, patches)
				if _, err := r.Client.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					t.Error(err)
				}
				patches++
				time.Sleep(3 * time.Millisecond)
			}
		}()
		err := r.publish(v.Handle, n)
		close(stop)
		patches := <-done
		r.must(err)
		r.wantState(v, n, fence.Publishing)
		pv := v.PV()
		if !slices.Contains(pv.Finalizers, "external-attacher/x") || pv.Annotations["somebody/else"] != fmt.Sprint(patches-1) || patches < 1 {
			t.Fatalf("of %d patches the PersistentVolume kept %v, %v", patches, pv.Finalizers, pv.Annotations["somebody/else"])
		}
	}
}

func TestAGarbledLedgerStopsItsOwnVolumeOnly(t *testing.T) {
	r := newRig(t, "garbled", bed.StageOptions{})
	bad, good, n := r.volume("bad"), r.volume("good"), r.node("n")
	bad.SetLedger(`{"version":1,"holders":`)
	for _, v := range []*bed.Volume{bad, good} {
		r.attachment(v, n)
	}
	r.settle()
	r.wantRefused(r.publish(bad.Handle, n), fence.LedgerUnreadable, bad.Name, "csi-fencepost.io/holders")
	r.wantRefused(r.unpublish(bad.Handle, n), fence.LedgerUnreadable, bad.Name)
	r.wantCalls(bad.Handle)
	r.must(r.publish(good.Handle, n))
}

func TestALedgerOfAnotherClusterIsSetAsideWithAnEvent(t *testing.T) {
	r := newRig(t, "foreign", bed.StageOptions{})
	v, n, h := r.volume("v"), r.node("n"), r.strangerNode("holder")
	system, err := r.Client.CoreV1().Namespaces().Get(r.ctx(), metav1.NamespaceSystem, metav1.GetOptions{})
	r.must(err)
	v.SetLedger(strings.Replace(r.ledgerText(v, h.entry(fence.Held)), string(system.UID), "another-cluster", 1))
	r.attachment(v, n)
	r.settle()
	r.must(r.publish(v.Handle, n))
	r.wantState(v, n, fence.Publishing)
	r.WaitEvent("PersistentVolume", v.Name, 5*time.Second, "LedgerSetAside", "another-cluster")
}

func TestANewMachineUnderAnOldNameIsAnotherHolder(t *testing.T) {
	r := newRig(t, "replaced", bed.StageOptions{})
	v, old := r.volume("v"), r.node("n")
	r.attach(v, old)
	old.delete()
	r.settle()
	// The same name, another node ID, as a cloud makes it.
	fresh := r.nodeCalled(old.name, "id-"+r.Name+"-second")
	r.settle()
	r.deleting(v, old)
	// The attacher takes the ID of the new machine for the old attachment.
	r.wantRefused(r.unpublish(v.Handle, fresh), fence.HolderUnknown, old.id)
	target := r.node("target")
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, old.id)
	r.wantAttached(v.Handle, old)

	old.confirm()
	r.settle()
	r.must(r.unpublish(v.Handle, fresh))
	r.wantCalls(v.Handle, "publish "+old.id, "unpublish "+old.id)
	r.wantAttached(v.Handle)
}
