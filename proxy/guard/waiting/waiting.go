package waiting

import (
	"context"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// RetryAnnotation is touched on a VolumeAttachment whose refused call would be
// let through now: external-attacher takes a changed annotation as news and
// calls again within milliseconds, past its back-off (pkg/controller,
// processVolumeAttachment's update filter).
const RetryAnnotation = "csi-fencepost.io/retry"

// waitingCall is a call that was refused and that somebody will repeat.
type waitingCall struct {
	call, volume, nodeID, nodeName string
	reason                         fence.Reason
	holder                         string // node name
	shared                         bool   // a publish for many nodes
	touched                        time.Time
	told                           told
	// turnedAway tells that another call of its volume was under way when it came last.
	turnedAway bool
	// refusal is its last one; nil: it is judged when it comes next. news is when it
	// was last found that its judgement has changed.
	refusal *refusal
	news    time.Time
	// pace of a scout, which is looked at every so often for all that wait for its
	// holder; 0: it is none.
	pace time.Duration
	// asks tells that a kubelet that answers may end it.
	asks bool
}

func (c *waitingCall) scout() bool { return c.pace > 0 }

// Calls knows the refused calls and wakes their VolumeAttachments when what
// blocked them changes. It only ever wakes: the call is judged anew when it
// comes. What it knows is lost with the process, and found again in the
// VolumeAttachments' errors (Recover).
type Calls struct {
	client   kubernetes.Interface
	surveyor *survey.Surveyor
	count    func(byReason map[string]int)
	queue    workqueue.TypedRateLimitingInterface[string] // keys of calls

	mu    sync.Mutex
	calls map[string]*waitingCall
}

// New makes Calls that are judged with surveyor. count is told how many wait, by the
// reason of their last refusal, whenever that changes.
func New(client kubernetes.Interface, surveyor *survey.Surveyor, count func(byReason map[string]int)) *Calls {
	return &Calls{client: client, surveyor: surveyor, count: count, calls: map[string]*waitingCall{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMost))}
}

const (
	// A driver that fails to unpublish, and a node that is not watched for long
	// enough, send no event when that changes: such calls are tried again after
	// this, doubling to retryMost.
	retryFirst = time.Second
	retryMost  = 10 * time.Second
	// scoutMost bounds how rarely a holder is looked at again: of all calls that wait for it, one is
	// judged again after retryFirst, doubling to this.
	scoutMost = 30 * time.Second
	// sightEvery is how often the unpublish of what a kubelet lists is looked at while
	// that is not known to be its own word (observe.SyncTime).
	sightEvery = 15 * time.Second
	// lookers look at once: one that waits for an agent or for the API server does
	// not hold up the others.
	lookers = 8
	// touchEvery is the least time between two wake-ups of one call.
	touchEvery = time.Second
)

func callKey(call, volume, nodeID string) string { return call + "\x00" + volume + "\x00" + nodeID }

// Decided notes a refusal, or forgets the call when it was let through.
func (w *Calls) Decided(d guard.Decision) {
	key := callKey(d.Call, d.Volume, d.NodeID)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.countLocked()
	for _, other := range []string{guard.CallPublish, guard.CallUnpublish} {
		if other != d.Call {
			w.supersedeLocked(callKey(other, d.Volume, d.NodeID), d.NodeName)
		}
	}
	if d.Action == fence.Allow || d.Action == fence.Answer {
		w.judgeNextLocked(key)
		w.forgetLocked(key)
		return
	}
	c := w.calls[key]
	if c == nil {
		c = &waitingCall{call: d.Call, volume: d.Volume, nodeID: d.NodeID}
		w.calls[key] = c
	}
	c.nodeName, c.reason, c.refusal, c.shared, c.turnedAway = d.NodeName, d.Reason, nil, d.Shared, false
	c.told.note(d)
	if was := c.holder; d.Holder != nil && d.Holder.NodeName != was {
		c.holder = d.Holder.NodeName
		c.pace = 0
		w.scoutLocked(was)
	}
	c.asks = d.Holder != nil && (d.Holder.Kubelet != nil || d.Holder.Node != nil && d.Holder.Node.Memory == fence.MemoryUnsaid)
	if !c.unannounced() {
		c.pace = 0
	}
	switch d.Reason {
	case fence.UnpublishFailed, fence.HolderUnwatched, fence.APIUnavailable, fence.TargetLeaving, fence.LostRace:
		w.queue.AddRateLimited(key)
	}
	w.sightLocked(key, c, d.Holder)
	w.scoutLocked(c.holder)
}

// TurnedAway wakes a call that waits once more: two of one volume that are woken by one change
// may meet, and external-attacher comes again to the one that was not judged in minutes.
func (w *Calls) TurnedAway(call, volume, nodeID string) {
	key := callKey(call, volume, nodeID)
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.calls[key]; c != nil && c.nodeName != "" {
		c.turnedAway = true
		w.queue.AddRateLimited(key) // the other one may take long
	}
}

// sightLocked has the call looked at again where a kubelet, once it has synced, may still list the
// volume: no event shows that, and it has to be written down.
func (w *Calls) sightLocked(key string, c *waitingCall, h *fence.Holder) {
	if c.call == guard.CallUnpublish && h != nil && h.Node != nil && h.Node.Ready && h.Node.InUse && !h.Speaks() {
		w.queue.AddAfter(key, sightEvery)
	}
}

// unannounced tells whether what ends its refusal may send no event. A machine is switched off and
// only its fence agent would tell, or the agent answers again; a driver's list is put right; a
// kubelet can be reached again, which says that it has forgotten nothing.
func (c *waitingCall) unannounced() bool {
	switch c.reason {
	case fence.HolderStale, fence.HolderUnknown, fence.HolderListed, fence.EvidenceVoid, fence.EvidenceContradicted:
		return true
	case fence.HolderContested:
		return c.asks
	}
	return false
}

// scoutLocked sees to it that of the calls that wait for that holder, and to which
// nobody would tell what ends it, one is looked at every so often.
func (w *Calls) scoutLocked(holder string) {
	if holder == "" {
		return
	}
	chosen := ""
	for key, c := range w.calls {
		if c.holder != holder || !c.unannounced() {
			continue
		}
		if c.scout() {
			return
		}
		if chosen == "" || key < chosen {
			chosen = key
		}
	}
	if c := w.calls[chosen]; c != nil {
		c.pace = retryFirst
		w.queue.AddAfter(chosen, c.pace)
	}
}

// stays notes that the call would be refused the same.
func (w *Calls) stays(key string, c *waitingCall, v fence.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls[key] != c {
		return
	}
	if v.Blocking != nil {
		w.sightLocked(key, c, v.Blocking.Holder)
	}
	if !c.scout() {
		return
	}
	c.pace = min(2*c.pace, scoutMost)
	w.queue.AddAfter(key, c.pace)
}

// news has the other calls that wait for a holder look at themselves at what a scout has found.
func (w *Calls) news(key string, c *waitingCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls[key] != c || !c.scout() {
		return
	}
	for other, o := range w.calls {
		if o != c && o.holder == c.holder {
			w.queue.Add(other)
		}
	}
}

// supersedeLocked forgets a call that another call of its caller replaces: who asks for the one
// does not wait for the other any more. The same node ID under another node's name is another
// VolumeAttachment: that of a renamed node waits beside what its old name left.
func (w *Calls) supersedeLocked(key, nodeName string) {
	if c := w.calls[key]; c != nil && (c.nodeName == nodeName || c.nodeName == "" || nodeName == "") {
		w.forgetLocked(key)
	}
}

func (w *Calls) forgetLocked(key string) {
	c := w.calls[key]
	delete(w.calls, key)
	w.queue.Forget(key)
	if c != nil && c.scout() {
		w.scoutLocked(c.holder)
	}
}

func (w *Calls) countLocked() {
	byReason := map[string]int{}
	for _, c := range w.calls {
		byReason[string(c.reason)]++
	}
	w.count(byReason)
}

// Changed looks again at the calls that a change may have unblocked.
func (w *Calls) Changed(c observe.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, call := range w.calls {
		if c.Volume != "" && call.volume == c.Volume || c.Node != "" && (call.holder == c.Node || call.nodeName == c.Node) {
			w.queue.Add(key)
		}
	}
}

// LookAgain looks at every call that waits: what holds of all ledgers has changed.
func (w *Calls) LookAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.calls {
		w.queue.Add(key)
	}
}

// Recover takes up a VolumeAttachment whose error is a refusal that was given
// before this process started. handle is its volume's, id its node's ID.
func (w *Calls) Recover(va *storagev1.VolumeAttachment, handle, id string) {
	refusal := refusalIn(va)
	if handle == "" || id == "" || refusal == nil {
		return
	}
	call := guard.CallPublish
	if va.DeletionTimestamp != nil {
		call = guard.CallUnpublish
	}
	key := callKey(call, handle, id)
	w.mu.Lock()
	if w.calls[key] == nil {
		w.calls[key] = &waitingCall{call: call, volume: handle, nodeID: id, nodeName: va.Spec.NodeName, told: recovered(va, refusal)}
		w.countLocked()
	}
	w.mu.Unlock()
	w.queue.AddAfter(key, retryFirst)
}

// refusalIn is the refusal of ours that a VolumeAttachment carries; nil: none.
func refusalIn(va *storagev1.VolumeAttachment) (found *storagev1.VolumeError) {
	for _, e := range []*storagev1.VolumeError{va.Status.AttachError, va.Status.DetachError} {
		if e != nil && strings.Contains(e.Message, fence.Mark) {
			found = e
		}
	}
	return found
}

// Run wakes until ctx ends.
func (w *Calls) Run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		w.queue.ShutDown()
	}()
	var all sync.WaitGroup
	for range lookers {
		all.Go(func() {
			for key, stop := w.queue.Get(); !stop; key, stop = w.queue.Get() {
				w.look(ctx, key)
				w.queue.Done(key)
			}
		})
	}
	all.Wait()
}

// look judges a waiting call as it would be judged now, and wakes it if it
// would be let through, or if its refusal would read differently.
func (w *Calls) look(ctx context.Context, key string) {
	w.mu.Lock()
	c := w.calls[key]
	if c == nil {
		w.mu.Unlock()
		return
	}
	call := *c
	w.mu.Unlock()

	if gone, err := w.gone(ctx, call); err == nil && gone {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.forgetLocked(key)
		w.countLocked()
		return
	}
	verdict, err := w.judge(ctx, call)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot look again at a waiting call", "call", call.call, "volume", call.volume, "nodeID", call.nodeID, "err", err)
		w.queue.AddRateLimited(key)
		return
	}
	if !w.differs(c, verdict) {
		w.stays(key, c, verdict)
		return
	}
	w.judgeNext(key)
	w.news(key, c)
	if wait := touchEvery - time.Since(call.touched); wait > 0 {
		w.queue.AddAfter(key, wait)
		return
	}
	if !w.waits(key, c) {
		return // it went through while it was judged
	}
	if err := w.touch(ctx, call); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot wake a VolumeAttachment", "volume", call.volume, "node", call.nodeName)
		w.queue.AddRateLimited(key)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.calls[key]; c != nil {
		c.touched = time.Now()
		w.queue.AddRateLimited(key) // should the attacher not call
	}
}

// waits tells whether c is still the waiting call of that key.
func (w *Calls) waits(key string, c *waitingCall) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[key] == c
}

// gone tells whether nobody waits any more: the VolumeAttachment was deleted.
func (w *Calls) gone(ctx context.Context, c waitingCall) (bool, error) {
	if c.nodeName == "" {
		return false, nil
	}
	_, err := w.client.StorageV1().VolumeAttachments().Get(ctx, w.attachment(c), metav1.GetOptions{})
	return apierrors.IsNotFound(err), ignoreNotFound(err)
}

func (w *Calls) attachment(c waitingCall) string {
	return csi.AttachmentName(c.volume, w.surveyor.IDs.Driver, c.nodeName)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// judge is how the call would be judged now.
func (w *Calls) judge(ctx context.Context, c waitingCall) (v fence.Verdict, err error) {
	ctx, cancel := context.WithTimeout(throttle.WithTurn(ctx, time.Now().Add(guard.TurnAhead)), survey.Timeout)
	defer cancel()
	if c.call == guard.CallPublish {
		s, err := w.surveyor.Publish(ctx, c.volume, c.nodeID, nil)
		if err != nil {
			return v, err
		}
		if c.shared {
			s.KeepRecorded()
		}
		v = fence.JudgePublish(s.Snapshot, c.nodeID)
	} else {
		s, err := w.surveyor.Unpublish(ctx, c.volume, c.nodeID)
		if err != nil {
			return v, err
		}
		v = fence.JudgeUnpublish(s.Snapshot, s.Subject)
	}
	return v, nil
}

// differs tells whether a judgement that was begun a while ago makes the call worth
// repeating. The call itself may have been judged since.
func (w *Calls) differs(c *waitingCall, v fence.Verdict) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.differs(v)
}

// differs tells whether a new judgement has something that the last one of c had
// not: it lets through, it refuses for another reason or another holder, or it has
// to write down what is seen of the holder now; or there was none when c came last. A kubelet that was seen after a
// reboot must not be forgotten until external-attacher comes again.
func (c *waitingCall) differs(v fence.Verdict) bool {
	if v.Reason == fence.TargetGone {
		return false // external-attacher, without its CSINode, does not call
	}
	if c.turnedAway || v.Action != fence.Refuse || v.Reason != c.reason {
		return true
	}
	return v.Blocking != nil && v.Blocking.Holder.NodeName != c.holder || guard.ContestDue(v) != nil
}

// touch changes the annotation of the call's VolumeAttachment. A VolumeAttachment that is gone
// meanwhile waits no more, and is found so at the next look.
func (w *Calls) touch(ctx context.Context, c waitingCall) error {
	name := w.attachment(c)
	patch := []byte(`{"metadata":{"annotations":{"` + RetryAnnotation + `":"` + time.Now().UTC().Format(time.RFC3339Nano) + `"}}}`)
	err := guard.Do(guard.EffectWake, func() error {
		_, err := w.client.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return ignoreNotFound(err)
	})
	if err == nil {
		klog.FromContext(ctx).Info("Woke a VolumeAttachment", "volumeAttachment", name, "volume", c.volume, "node", c.nodeName, "call", c.call)
	}
	return err
}
