package simulate

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// attachment is what the attach-detach controller knows of a volume on a node
// (K8s pkg/controller/volume/attachdetach).
type attachment struct {
	// confirmed; otherwise uncertain, which does not keep it from attaching the
	// volume elsewhere.
	confirmed bool
	// unlisted is when it took the volume off volumesAttached; it deletes the VolumeAttachment next.
	unlisted time.Time
	// unwanted is since when no pod wants it there.
	unwanted time.Time
	deleted  bool
}

const outOfService = corev1.TaintNodeOutOfService

func tainted(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == outOfService })
}

// attachmentLabel is a VolumeAttachment's name as a person reads it.
func (w *World) attachmentLabel(name string) string {
	if label, ok := w.labels[name]; ok {
		return label
	}
	return name
}

func (w *World) vaName(v *volume, s *slot) string {
	name, ok := v.vas[s]
	if !ok {
		name = csi.AttachmentName(v.name, DriverName, s.name)
		v.vas[s], w.labels[name] = name, v.name+"/"+s.name
	}
	return name
}

func (w *World) va(v *volume, s *slot) *storagev1.VolumeAttachment {
	va, ok := w.objects.Attachments.Get(w.vaName(v, s))
	if !ok {
		return nil
	}
	return va
}

// controllerEvents are what the controller may do with a volume on a node.
func (w *World) controllerEvents(v *volume, s *slot, va *storagev1.VolumeAttachment, emit func(Event)) {
	if w.noADC {
		return
	}
	a, n := v.adc[s], w.peekNode(s.name)
	wanted := v.podOn(s)
	at := func(verb string) { emit(Event{Verb: verb, A: v.name, B: s.name}) }
	switch {
	case a == nil:
		if wanted && n != nil && (va == nil || va.DeletionTimestamp == nil) && (w.saysMany(w.claimed(v, s)) || !w.confirmedElsewhere(v, s)) {
			at(Attach)
		}
	case !a.unlisted.IsZero() && !a.deleted:
		at(Detach)
	case a.deleted && va != nil && va.Status.DetachError != nil && a.confirmed:
		at(DetachFail)
	case !a.confirmed && va != nil && va.DeletionTimestamp == nil && va.Status.Attached:
		at(Confirmed)
	case a.confirmed && a.unlisted.IsZero() && n != nil && !volumesAttachedHas(n, v) && va != nil && va.DeletionTimestamp == nil:
		at(Confirmed) // a Node that was created again: SetNodeStatusUpdateNeeded
	case !wanted && !a.deleted && w.mayDetach(v, s, a, n):
		at(Unlist)
	}
}

func (w *World) confirmedElsewhere(v *volume, s *slot) bool {
	for other, a := range v.adc {
		if other != s && a.confirmed {
			return true
		}
	}
	return false
}

// mayDetach tells whether the kubelet does not use it, or the controller does not ask.
func (w *World) mayDetach(v *volume, s *slot, a *attachment, n *corev1.Node) bool {
	if a.unwanted.IsZero() {
		a.unwanted = time.Now()
	}
	return n == nil || !inUse(n, v) || tainted(n) ||
		readyStatus(n) != corev1.ConditionTrue && time.Since(a.unwanted) >= forceDetachAfter
}

// forget follows VolumeAttachments that are gone, and pods that want it back.
func (w *World) forgetDetached(v *volume, s *slot, va *storagev1.VolumeAttachment) {
	a := v.adc[s]
	if a == nil || w.noADC {
		return
	}
	if v.podOn(s) {
		a.unwanted = time.Time{}
	}
	if a.deleted && va == nil {
		delete(v.adc, s)
	}
	if !a.deleted && va == nil && a.unlisted.IsZero() {
		// Its verification drops what has no VolumeAttachment.
		w.listAttached(s, v, false)
		delete(v.adc, s)
	}
}

func (w *World) doController(e Event) bool {
	v, s := w.volume(e.A), w.slot(e.B)
	switch e.Verb {
	case RestartADC:
		w.restartController()
		return true
	case CutADC, JoinADC:
		w.noADC = e.Verb == CutADC
		return true
	case Attach, Confirmed, Unlist, Detach, DetachFail:
	default:
		return false
	}
	a := v.adc[s]
	switch e.Verb {
	case Attach:
		v.adc[s] = &attachment{}
		delete(v.stripped, s)
		delete(v.misled, s)
		if w.va(v, s) == nil {
			w.objects.Attachments.Put(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: w.vaName(v, s)},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: DriverName, NodeName: s.name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(w.claimed(v, s))}}})
		}
	case Confirmed:
		a.confirmed = true
		w.listAttached(s, v, true)
	case Unlist:
		a.unlisted = time.Now()
		v.misled[s] = tainted(w.peekNode(s.name)) && s.machine.power && s.machine.mounts[v] != nil
		w.listAttached(s, v, false)
	case Detach:
		a.deleted = true
		w.deleteAttachment(v, s)
	case DetachFail:
		// It is uncertain from now on, and so no obstacle to another attach.
		a.confirmed = false
	}
	return true
}

// deleteAttachment marks it deleted; the attacher's finalizer holds it.
func (w *World) deleteAttachment(v *volume, s *slot) {
	va := w.va(v, s)
	if va == nil || va.DeletionTimestamp != nil {
		return
	}
	now := stamp(w.serverNow())
	va.DeletionTimestamp = &now
	v.deleted[va.UID] = time.Now()
	w.objects.Attachments.Put(va)
}

func (w *World) listAttached(s *slot, v *volume, listed bool) {
	n, ok := w.objects.Nodes.Get(s.name)
	if !ok || volumesAttachedHas(n, v) == listed {
		return
	}
	if listed {
		w.wrote(n, "kube-controller-manager", "status", attachedFields)
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: v.unique})
	} else {
		n.Status.VolumesAttached = slices.DeleteFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v.unique })
	}
	w.putNode(n)
}

// restartController rebuilds what it knows from the Nodes and the
// VolumeAttachments.
func (w *World) restartController() {
	for _, v := range w.volumes {
		clear(v.adc)
		for _, s := range w.slots {
			n, va := w.peekNode(s.name), w.va(v, s)
			switch {
			case n != nil && volumesAttachedHas(n, v):
				v.adc[s] = &attachment{confirmed: true}
			case va != nil:
				v.adc[s] = &attachment{}
			}
		}
	}
}

// podEvents are what may happen to the pod of a volume.
func (w *World) podEvents(v *volume, emit func(Event)) {
	p := &v.pod
	w.widePodEvents(v, emit)
	switch {
	case p.node == nil && w.away:
		return // the scheduler is one of them
	case p.node == nil:
		for _, s := range w.slots {
			if n := w.peekNode(s.name); n != nil && readyStatus(n) == corev1.ConditionTrue && !tainted(n) {
				emit(Event{Verb: Schedule, A: v.name, B: s.name})
			}
		}
		return
	case !p.terminating:
		emit(Event{Verb: Move, A: v.name})
	case w.mayEnd(v, p):
		emit(Event{Verb: EndPod, A: v.name})
	}
	emit(Event{Verb: ForceDel, A: v.name})
}

func (w *World) doPod(e Event) bool {
	switch e.Verb {
	case Move:
		w.volume(e.A).pod.terminating = true
	case EndPod, ForceDel:
		w.volume(e.A).pod = w.volume(e.A).nextPod()
	case Schedule:
		w.volume(e.A).pod = pod{node: w.slot(e.B)}
	default:
		return false
	}
	w.mirrorPod(w.volume(e.A))
	return true
}

// isPrefixed keeps the verbs of calls apart from those of the world.
func isPrefixed(key, prefix string) bool { return strings.HasPrefix(key, prefix) }
