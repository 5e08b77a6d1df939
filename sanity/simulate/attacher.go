package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// finalizer of external-attacher on its VolumeAttachments.
const finalizer = "external-attacher/disk-example-org"

// call is one CSI call of the attacher beside a process. When its deadline is
// over the attacher calls again; what the first call comes to, nobody hears.
type call struct {
	p       *Process
	publish bool
	v       *volume
	s       *slot
	nodeID  string
	uid     types.UID // of the VolumeAttachment
	many    bool      // its PersistentVolume says that many may write
	late    bool      // a duplicate: its answer changes nothing
	began   time.Time
	over    bool
	cancel  context.CancelFunc
}

// callKey says which call, whichever process makes it: publish or unpublish, the
// volume and the node.
type callKey struct{ verb, volume, node string }

func (e Event) callKey() callKey { return callKey{e.Verb, e.B, e.C} }

func (c *call) key() callKey {
	if c.publish {
		return callKey{Publish, c.v.name, c.s.name}
	}
	return callKey{Unpublish, c.v.name, c.s.name}
}

func (c *call) name() string { return c.key().verb + "/" + c.v.name + "/" + c.s.name }

// capability of all volumes: a filesystem with a single writer.
var capability = &spec.VolumeCapability{
	AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

// attacherEvents are what external-attacher beside p may do.
func (w *World) attacherEvents(p *Process, v *volume, s *slot, va *storagev1.VolumeAttachment, emit func(Event)) {
	at := func(verb string) { emit(Event{verb, p.name, v.name, s.name}) }
	if c := w.callOf(p, v, s); c != nil {
		if time.Since(c.began) >= callTimeout {
			at(GiveUp)
		}
		return
	}
	if va != nil && w.nodeIDFor(s, va) != "" {
		switch {
		case va.DeletionTimestamp != nil:
			at(Unpublish)
		case w.outdated(s):
		case !va.Status.Attached:
			at(Publish)
		default:
			at(Republish)
		}
	}
	if v.asked[s] {
		at(LateUnpub)
	}
}

// outdated tells whether the CSINode names a machine that runs and has lost its name to another,
// whose driver has not registered yet. What is published to the node then, the driver attaches to
// the machine of before (doc.go).
func (w *World) outdated(s *slot) bool {
	n := w.peekCSINode(s.name)
	if n == nil {
		return false
	}
	m := w.machineOf(nodeIDOf(n))
	return m != nil && m.severed && m.power
}

// callOf is the attacher's call for a VolumeAttachment that is under way.
func (w *World) callOf(p *Process, v *volume, s *slot) *call {
	for _, c := range w.calls {
		if c.p == p && c.v == v && c.s == s && !c.late {
			return c
		}
	}
	return nil
}

// nodeIDFor is the CSINode's ID, else the one that the VolumeAttachment notes
// (external-attacher, csi_handler.go, getNodeID).
func (w *World) nodeIDFor(s *slot, va *storagev1.VolumeAttachment) string {
	if n := w.peekCSINode(s.name); n != nil && nodeIDOf(n) != "" {
		return nodeIDOf(n)
	}
	if va != nil && va.DeletionTimestamp != nil {
		return csi.AttachmentNodeID(va)
	}
	return ""
}

func (w *World) doAttacher(e Event) bool {
	switch e.Verb {
	case Publish, Republish, Unpublish, LateUnpub, GiveUp:
	default:
		return false
	}
	p, v, s := w.procs[e.A], w.volume(e.B), w.slot(e.C)
	if e.Verb == GiveUp {
		w.ended(w.callOf(p, v, s), context.DeadlineExceeded)
		return true
	}
	va := w.va(v, s)
	c := &call{p: p, v: v, s: s, publish: e.Verb == Publish || e.Verb == Republish, nodeID: w.nodeIDFor(s, va), late: e.Verb == LateUnpub, began: time.Now()}
	if va != nil {
		c.uid = va.UID
		c.many = w.saysMany(*va.Spec.Source.PersistentVolumeName)
		v.judged[va.UID] = v.judged[va.UID] || !c.publish
	}
	if c.late && c.nodeID == "" {
		c.nodeID = s.machine.id
	}
	if c.publish {
		w.prepare(va, c.nodeID)
	} else {
		v.asked[s] = true
	}
	w.begin(c)
	return true
}

// prepare puts the finalizer and the node ID on, as the attacher does before its
// first publish.
func (w *World) prepare(va *storagev1.VolumeAttachment, nodeID string) {
	if len(va.Finalizers) > 0 && csi.AttachmentNodeID(va) == nodeID {
		return
	}
	va.Finalizers = []string{finalizer}
	va.Annotations = map[string]string{csi.NodeIDAnnotation: nodeID}
	w.objects.Attachments.Put(va)
}

func (w *World) begin(c *call) {
	w.calls = append(w.calls, c)
	ctx := proxy.WithCaller(context.WithValue(c.p.ctx, readsKey{}, w.readsOf(c)), c.p.attacher)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	c.cancel = cancel
	w.Stats.Calls++
	w.work.Go(func() {
		growStack(0)
		defer cancel()
		var err error
		side := w.sideOf(c)
		if c.publish {
			_, err = side.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: c.v.name, NodeId: c.nodeID, VolumeCapability: c.capability()})
		} else {
			_, err = side.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: c.v.name, NodeId: c.nodeID})
		}
		_, parked := c.p.park(context.WithoutCancel(ctx), toCaller, "answer:"+c.name(), true, func() (any, error) {
			w.answered(c, err)
			return nil, nil
		})
		if parked != nil { // the process is gone, or the answer was lost
			w.mu.Lock()
			w.ended(c, parked)
			w.mu.Unlock()
		}
	})
}

// ended takes the call off the list: the attacher does not wait for it any more.
func (w *World) ended(c *call, err error) {
	if c == nil || c.over {
		return
	}
	c.over = true
	w.last[c.key()] = outcome(err)
	if w.refused != nil && err != nil {
		w.refusals = append(w.refusals, refusal{c, outcome(err)})
	}
	for i := range w.calls {
		if w.calls[i] == c {
			w.calls = append(w.calls[:i:i], w.calls[i+1:]...)
			break
		}
	}
	c.cancel()
}

// answered is the attacher's reaction to an answer.
func (w *World) answered(c *call, err error) {
	over := c.over
	w.ended(c, err)
	if w.tell != nil {
		w.tell(fmt.Sprintf("           %s: %v", c.name(), err))
	}
	if status.Code(err) == codes.FailedPrecondition {
		w.Stats.Refusals++
	}
	if over || c.late {
		return
	}
	if err == nil && c.publish {
		w.Stats.Publishes++
		w.judgeAnswer(c)
	}
	va := w.va(c.v, c.s)
	if va == nil || va.UID != c.uid {
		return
	}
	switch {
	case c.publish && err == nil:
		va.Status.Attached, va.Status.AttachError = true, nil
	case c.publish:
		va.Status.AttachError = volumeError(err)
	case err == nil:
		va.Finalizers, va.Status.Attached = nil, false
	default:
		va.Status.DetachError = volumeError(err)
	}
	w.objects.Attachments.Put(va)
}

func volumeError(err error) *storagev1.VolumeError {
	return &storagev1.VolumeError{Time: stamp(time.Now()), Message: err.Error()}
}

// outcome of a call in one word: OK, the reason of a refusal, or the code.
func outcome(err error) string {
	if err == nil {
		return "OK"
	}
	// A refusal names its reason before the runbook's address (fence.Compose).
	if text, _, named := strings.Cut(status.Convert(err).Message(), "] http"); named {
		return text[strings.LastIndexByte(text, '[')+1:]
	}
	return status.Code(err).String()
}
