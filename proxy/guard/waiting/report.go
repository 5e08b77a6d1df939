package waiting

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// Metrics are the figures that a Report counts.
type Metrics interface {
	Decisions(call, decision, reason string)
	TakeoverDone(took time.Duration)
	LedgerWriteError()
}

// Report turns decisions into metrics, log lines and Events on the
// PersistentVolume, the holder's Node and the Pods that wait: one for each
// change of what is said about a call, not one for each retry.
type Report struct {
	client  kubernetes.Interface
	events  record.EventRecorder
	metrics Metrics
	waiting *Calls
	// Recent are the last decisions, for people.
	Recent Recent

	mu   sync.Mutex
	said *lru.Cache // by call, volume and node: the last text's hash
	work chan func(context.Context)
}

// remembered is of how many calls a Report knows what was last said: a call that is
// refused, and whose volume is then deleted, is never let through.
const remembered = 4096

// NewReport makes a Report. Events are written by Run, never by a call.
func NewReport(client kubernetes.Interface, events record.EventRecorder, metrics Metrics, waiting *Calls) *Report {
	return &Report{client: client, events: events, metrics: metrics, waiting: waiting, said: lru.New(remembered), work: make(chan func(context.Context), 1000)}
}

// Run looks up the waiting Pods and writes Events until ctx ends.
func (r *Report) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-r.work:
			f(ctx)
		}
	}
}

// later queues an Event. A full queue drops it: the status of the
// VolumeAttachment carries the same text.
func (r *Report) later(f func(context.Context)) {
	select {
	case r.work <- f:
	default:
		klog.Background().Info("Too many Events are waiting to be written; one is dropped")
	}
}

// Decided implements Reporter.
func (r *Report) Decided(d guard.Decision) {
	verdict := d.Action.String()
	if d.Observed {
		verdict = "would " + verdict
	}
	r.metrics.Decisions(d.Call, verdict, string(d.Reason))
	r.Recent.decided(d, verdict)
	if !d.Observed {
		r.waiting.Decided(d)
	}
	if !r.news(d) {
		return
	}
	klog.Background().Info("Decided", "call", d.Call, "volume", d.Volume, "pv", d.PV, "nodeID", d.NodeID, "node", d.NodeName,
		"decision", verdict, "reason", d.Reason, "text", d.Text)
	if d.Text != "" && d.PV != "" {
		r.later(func(ctx context.Context) { r.refusal(ctx, d) })
	}
}

// news tells whether this differs from what was last said about the call.
func (r *Report) news(d guard.Decision) bool {
	key := d.Call + "\x00" + d.Volume + "\x00" + d.NodeID
	var said any // nothing
	if text := string(d.Reason) + d.Text; text != "" {
		said = sha256.Sum256([]byte(text))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, _ := r.said.Get(key); last == said {
		return false
	}
	if d.Text == "" {
		r.said.Remove(key)
		return true
	}
	r.said.Add(key, said)
	return true
}

// TookOver implements Reporter.
func (r *Report) TookOver(d guard.Decision, from []fence.Holder, took time.Duration) {
	r.metrics.TakeoverDone(took)
	r.Recent.tookOver(d, from)
	var names string
	for i := range from {
		if i > 0 {
			names += ", "
		}
		names += from[i].Describe()
	}
	text := fmt.Sprintf("volume %s moved from %s to node %s (%s)", cmp.Or(d.PV, d.Volume), names, cmp.Or(d.NodeName, d.NodeID), d.Reason)
	klog.Background().Info("Took over", "volume", d.Volume, "pv", d.PV, "from", names, "nodeID", d.NodeID, "node", d.NodeName, "reason", d.Reason, "took", took)
	if d.PV == "" {
		return
	}
	r.later(func(ctx context.Context) {
		for i := range from {
			r.onNode(ctx, from[i].NodeName, corev1.EventTypeNormal, "VolumeTakenOver", text)
		}
		r.onVolume(ctx, d, corev1.EventTypeNormal, "VolumeTakenOver", text)
	})
}

// SetAside implements Reporter.
func (r *Report) SetAside(pv, text string) {
	if !r.news(guard.Decision{Call: "ledger", Volume: pv, Text: text}) {
		return
	}
	klog.Background().Info("Set a ledger aside", "pv", pv, "why", text)
	r.later(func(ctx context.Context) {
		r.onVolume(ctx, guard.Decision{PV: pv}, corev1.EventTypeWarning, "LedgerSetAside", text)
	})
}

// TurnedAway implements Reporter.
func (r *Report) TurnedAway(call, volume, nodeID string) { r.waiting.TurnedAway(call, volume, nodeID) }

// LedgerWriteFailed implements Reporter.
func (r *Report) LedgerWriteFailed() { r.metrics.LedgerWriteError() }

func (r *Report) refusal(ctx context.Context, d guard.Decision) {
	reason := "VolumePublishRefused"
	if d.Call == guard.CallUnpublish {
		reason = "VolumeUnpublishRefused"
	}
	text := d.Text
	if d.Observed {
		reason, text = "WouldRefuse", "in mode Enforce: "+text
	}
	r.onVolume(ctx, d, corev1.EventTypeWarning, reason, text)
	if d.Holder != nil {
		r.onNode(ctx, d.Holder.NodeName, corev1.EventTypeWarning, reason, text)
	}
}

// onVolume writes an Event on the PersistentVolume and on the Pods that wait
// for it on the node that the call is for.
func (r *Report) onVolume(ctx context.Context, d guard.Decision, kind, reason, text string) {
	pv, err := r.client.CoreV1().PersistentVolumes().Get(ctx, d.PV, metav1.GetOptions{})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the PersistentVolume for an Event", "pv", d.PV, "event", text)
		return
	}
	r.events.Event(objectOf(pv, "PersistentVolume", "v1"), kind, reason, text)
	claim := pv.Spec.ClaimRef
	if d.Call != guard.CallPublish || claim == nil || d.NodeName == "" {
		return
	}
	pods, err := r.client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", d.NodeName).String()})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the waiting Pods for an Event", "namespace", claim.Namespace, "event", text)
		return
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; csi.UsesClaim(pod, claim.Name) && pod.Status.Phase == corev1.PodPending {
			r.events.Event(objectOf(pod, "Pod", "v1"), kind, reason, text)
		}
	}
}

// onNode writes an Event on a Node; its UID is the name, as kubelets and the
// node controllers do, so that `kubectl describe node` shows it.
func (r *Report) onNode(_ context.Context, name, kind, reason, text string) {
	if name == "" {
		return
	}
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
	r.events.Event(ref, kind, reason, text)
}

// objectOf is a reference with kind and version, which a typed client leaves out.
func objectOf(obj metav1.Object, kind, version string) runtime.Object {
	return &corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
}
