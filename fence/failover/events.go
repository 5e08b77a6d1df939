package failover

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Reasons of the Events.
const (
	ReasonSuspected  = "FencepostSuspected"
	ReasonFenced     = "FencepostFenced"
	ReasonBlocked    = "FencepostFencingBlocked"
	ReasonReadmitted = "FencepostReadmitted"
	// ReasonFenceVoid is of a node that was proven off and went on without a boot.
	ReasonFenceVoid = "FencepostFenceVoid"
	// ReasonLeftAlone is of a pod that is not moved although a volume of it is fenced.
	ReasonLeftAlone = "FencepostLeftAlone"
)

// sayEvery is how often the pods that wait are looked for, for Events alone.
const sayEvery = 10 * time.Second

// say writes an Event on an object, once for each change of its key.
func (w *worker) say(on runtime.Object, id, kind, reason, key, text string) {
	if w.said[id] == reason+key {
		return
	}
	w.said[id] = reason + key
	w.Events.Event(on, kind, reason, fence.Clip(text))
}

// sayNode writes an Event on the Node and logs it.
func (w *worker) sayNode(ctx context.Context, s *state, kind, reason, key, text string) {
	if w.said["node"] != reason+key {
		klog.FromContext(ctx).Info(text, "reason", reason)
	}
	if s.Node == nil {
		w.said["node"] = reason + key
		return
	}
	w.say(s.Node, "node", kind, reason, key, text)
}

// sayAll writes an Event on the Node, and on the pods of the node and those
// that wait for what it holds. A pod that is not found gets none: Events hold
// up nothing.
func (w *worker) sayAll(ctx context.Context, s *state, kind, reason, key, text string) {
	if w.said["node"] == reason+key && time.Since(w.waitedOn) < sayEvery {
		return
	}
	w.sayNode(ctx, s, kind, reason, key, text)
	w.waitedOn = time.Now()
	pods, err := w.concerned(ctx, w.heldBy(w.name))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot find the pods that wait")
		return
	}
	for _, p := range pods {
		w.say(p, "pod/"+string(p.UID), kind, reason, key, text)
	}
}

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)
