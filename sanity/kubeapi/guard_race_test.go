package kubeapi

import (
	"fmt"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// newPair is a rig with a second csi-fencepost, as when two replicas both think
// that they lead.
func newPair(t *testing.T, name string, o bed.StageOptions) (r *rig, second spec.ControllerClient) {
	t.Helper()
	r = newRig(t, name, o)
	r.start("fp2")
	return r, r.dial("fp2")
}

func TestOfTwoProcessesThatPublishAtOnceOneWins(t *testing.T) {
	r, second := newPair(t, "both", bed.StageOptions{})
	wins := 0
	for i := range 15 {
		// New nodes each time: one that is silent for 15 s, and lists nothing, is
		// released by its kubelet's last word.
		a, b := r.node(fmt.Sprint("a", i)), r.node(fmt.Sprint("b", i))
		v := r.volume(fmt.Sprint("v", i))
		if i%2 == 1 {
			r.ledgerOf(v) // a ledger is changed in another way than one that is made
		}
		r.attachment(v, a)
		r.attachment(v, b)
		var errA, errB error
		var both sync.WaitGroup
		both.Go(func() { errA = r.publishBy(r.proxy, v.Handle, a) })
		both.Go(func() { errB = r.publishBy(second, v.Handle, b) })
		both.Wait()
		for _, err := range []error{errA, errB} {
			switch status.Code(err) {
			case codes.OK, codes.Aborted, codes.FailedPrecondition:
			default:
				t.Fatalf("%s: %v", v.Name, err)
			}
		}
		switch {
		case errA == nil && errB == nil:
			t.Fatalf("%s was published to both", v.Name)
		case errA == nil:
			wins++
			r.wantAttached(v.Handle, a)
		case errB == nil:
			wins++
			r.wantAttached(v.Handle, b)
		default:
			r.wantAttached(v.Handle)
		}
		r.wantNeverBoth(v)
	}
	if wins < 10 {
		t.Errorf("only %d of 15 volumes were published at all", wins)
	}
}

// slowPublish begins a publish of v to n whose driver takes its time.
func (r *rig) slowPublish(v *bed.Volume, n *node) (hang *array.Injection, answer chan error) {
	r.t.Helper()
	hang = r.Array.Inject(array.Fault{Method: array.Publish, Volume: v.Handle, Node: n.id, Do: array.Hang, Times: 1})
	answer = make(chan error, 1)
	go func() { answer <- r.publish(v.Handle, n) }()
	r.waitHit(hang)
	return hang, answer
}

func TestAPublishThatWasUnpublishedMeanwhileIsUndone(t *testing.T) {
	r, second := newPair(t, "undo", bed.StageOptions{})
	v, slow, other := r.volume("v"), r.node("slow"), r.node("other")
	r.attachment(v, slow)
	hang, answer := r.slowPublish(v, slow)
	// Meanwhile Kubernetes changes its mind, and asks the other replica.
	r.deleting(v, slow)
	r.settle()
	r.must(r.unpublishBy(second, v.Handle, slow))
	r.gone(v, slow)
	r.attachment(v, other)
	r.settle()
	r.must(r.publishBy(second, v.Handle, other))

	hang.Clear()
	r.wantError(<-answer, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.wantAttached(v.Handle, other)
	r.wantState(v, other, fence.Publishing)
	if e := r.readLedger(v).Get(slow.id); e != nil {
		t.Errorf("the ledger still has %+v", e)
	}
}

func TestAPublishThatWasTakenOverMeanwhileIsUndone(t *testing.T) {
	r, second := newPair(t, "undo-taken", bed.StageOptions{})
	v, slow, other := r.volume("v"), r.node("slow"), r.node("other")
	r.attachment(v, slow)
	hang, answer := r.slowPublish(v, slow)
	r.deleting(v, slow)
	r.attachment(v, other)
	r.settle()
	r.must(r.publishBy(second, v.Handle, other))
	hang.Clear()
	r.wantError(<-answer, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.wantAttached(v.Handle, other)
	r.wantState(v, other, fence.Publishing)
}

func TestAPublishThatIsLeavingMeanwhileIsNotAnsweredWithOK(t *testing.T) {
	r, second := newPair(t, "undo-leaving", bed.StageOptions{})
	v, slow := r.volume("v"), r.node("slow")
	r.attachment(v, slow)
	hang, answer := r.slowPublish(v, slow)
	r.deleting(v, slow)
	r.settle()
	// Its unpublish is under way when the publish is done.
	holdUnpublish := r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Hang, Times: 1})
	leaving := make(chan error, 1)
	go func() { leaving <- r.unpublishBy(second, v.Handle, slow) }()
	r.waitHit(holdUnpublish)
	hang.Clear()
	r.wantError(<-answer, codes.Aborted, "["+string(fence.LostRace)+"]")
	holdUnpublish.Clear()
	r.must(<-leaving)
	r.wantAttached(v.Handle)
}

func TestOneOperationPerVolumeAtATime(t *testing.T) {
	r := newRig(t, "one-op", bed.StageOptions{})
	v, n, other := r.volume("v"), r.node("n"), r.volume("other")
	r.attachment(v, n)
	r.attachment(other, n)
	hang, answer := r.slowPublish(v, n)
	r.wantError(r.publish(v.Handle, n), codes.Aborted, "["+string(fence.OperationPending)+"]")
	r.wantError(r.unpublish(v.Handle, n), codes.Aborted, "["+string(fence.OperationPending)+"]")
	r.must(r.publish(other.Handle, n))
	hang.Clear()
	r.must(<-answer)
	r.wantCalls(v.Handle, "publish "+n.id)
}
