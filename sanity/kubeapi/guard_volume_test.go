package kubeapi

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	selectors "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// volume makes a ReadWriteOnce volume.
func (r *rig) volume(name string) *bed.Volume {
	r.t.Helper()
	return r.Volume(name, bed.VolumeOptions{})
}

// attachment makes the VolumeAttachment as the attach-detach controller does,
// with the finalizer and the node ID that external-attacher puts on it.
func (r *rig) attachment(v *bed.Volume, n *node) {
	r.t.Helper()
	r.createAttachment(v.Handle, n, storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name})
}

func (r *rig) createAttachment(handle string, n *node, source storagev1.VolumeAttachmentSource) {
	r.t.Helper()
	_, err := r.Client.StorageV1().VolumeAttachments().Create(r.ctx(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name:        csi.AttachmentName(handle, r.Driver, n.name),
			Annotations: map[string]string{csi.NodeIDAnnotation: n.id},
			Finalizers:  []string{"external-attacher/guard-test"},
		},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: r.Driver, NodeName: n.name, Source: source},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		r.must(err)
	}
}

// attached is what external-attacher notes after a publish.
func (r *rig) attached(v *bed.Volume, n *node) {
	r.t.Helper()
	r.patchAttachment(v, n, `{"status":{"attached":true,"attachError":null}}`, "status")
}

// attachError is what it notes after a refusal.
func (r *rig) attachError(v *bed.Volume, n *node, text string) {
	r.t.Helper()
	patch := `{"status":{"attachError":{"time":"` + time.Now().UTC().Format(time.RFC3339) + `","message":` + quote(text) + `}}}`
	r.patchAttachment(v, n, patch, "status")
}

func (r *rig) patchAttachment(v *bed.Volume, n *node, patch string, subresource ...string) {
	r.t.Helper()
	_, err := r.Client.StorageV1().VolumeAttachments().Patch(r.ctx(), csi.AttachmentName(v.Handle, r.Driver, n.name),
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	r.must(err)
}

// deleting gives the VolumeAttachment a deletionTimestamp; gone removes it.
func (r *rig) deleting(v *bed.Volume, n *node) {
	r.t.Helper()
	r.must(r.Client.StorageV1().VolumeAttachments().Delete(r.ctx(), csi.AttachmentName(v.Handle, r.Driver, n.name), metav1.DeleteOptions{}))
}

func (r *rig) gone(v *bed.Volume, n *node) {
	r.t.Helper()
	r.patchAttachment(v, n, `{"metadata":{"finalizers":null}}`)
}

// attach is a whole attach cycle's first half: the VolumeAttachment, the
// publish, and what controller and kubelet write then.
func (r *rig) attach(v *bed.Volume, n *node) {
	r.t.Helper()
	r.attachment(v, n)
	r.must(r.publish(v.Handle, n))
	r.attached(v, n)
	n.lists(v, true, true)
}

// letGo: the pod has ended, the kubelet has unmounted, and the controller wants
// the volume detached.
func (r *rig) letGo(v *bed.Volume, n *node) {
	r.t.Helper()
	n.lists(v, false, false)
	r.deleting(v, n)
}

// holder makes n hold the volume, with nothing but the ledger that says so.
func (r *rig) ledgerOf(v *bed.Volume, holders ...ledger.Entry) {
	r.t.Helper()
	v.SetLedger(r.ledgerText(v, holders...))
}

func (r *rig) ledgerText(v *bed.Volume, holders ...ledger.Entry) string {
	r.t.Helper()
	system, err := r.Client.CoreV1().Namespaces().Get(r.ctx(), metav1.NamespaceSystem, metav1.GetOptions{})
	r.must(err)
	l := ledger.Ledger{Version: ledger.Version, Driver: r.Driver, Handle: v.Handle, Cluster: string(system.UID), PVUID: string(v.PV().UID), Holders: holders}
	return l.String()
}

// entry is a ledger entry of the machine.
func (n *node) entry(state fence.State) ledger.Entry {
	return ledger.Entry{NodeID: n.id, NodeName: n.name, NodeUID: n.uid, BootID: n.boot, State: state, Token: "token-of-" + n.name}
}

// readLedger reads the volume's ledger; there must be one.
func (r *rig) readLedger(v *bed.Volume) *ledger.Ledger {
	r.t.Helper()
	l, err := ledger.Parse(v.Ledger())
	if err != nil {
		r.t.Fatalf("the ledger of %s: %v: %q", v.Name, err, v.Ledger())
	}
	return l
}

// wantState fails unless the ledger has the machine in that state. It returns
// the entry.
func (r *rig) wantState(v *bed.Volume, n *node, state fence.State) ledger.Entry {
	r.t.Helper()
	e := r.readLedger(v).Get(n.id)
	if e == nil || e.State != state {
		r.t.Fatalf("the ledger says of %s %+v, want it %s; whole: %s", n.name, e, state, v.Ledger())
	}
	if e.Token == "" || e.NodeName != n.name || e.NodeUID != n.uid {
		r.t.Fatalf("the entry of %s is %+v, want its name, UID %s and a token", n.name, e, n.uid)
	}
	return *e
}

// history is what a watch has shown of one object.
type history struct {
	mu    sync.Mutex
	texts []string
	times []time.Time
}

func (h *history) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.texts) > 0 && h.texts[len(h.texts)-1] == text {
		return
	}
	h.texts, h.times = append(h.texts, text), append(h.times, time.Now())
}

// changes are the texts since the history began; the first is what was there.
func (h *history) changes() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.texts[1:]...)
}

func (h *history) count() int { return len(h.changes()) }

// follow records what text says of each version of an object.
func (r *rig) follow(w watch.Interface, err error, now string, text func(metav1.Object) string) *history {
	r.t.Helper()
	r.must(err)
	h := &history{}
	h.add(now)
	r.t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			if obj, ok := event.Object.(metav1.Object); ok && event.Type != watch.Deleted {
				h.add(text(obj))
			}
		}
	}()
	return h
}

// followPV records each write of the PersistentVolume, by its resourceVersion.
func (r *rig) followPV(v *bed.Volume) *history {
	r.t.Helper()
	pv := v.PV()
	w, err := r.Client.CoreV1().PersistentVolumes().Watch(r.ctx(), one(pv.Name, pv.ResourceVersion))
	return r.follow(w, err, pv.ResourceVersion, func(o metav1.Object) string { return o.GetResourceVersion() })
}

// followTouches records each touch of the VolumeAttachment that wakes the
// attacher.
func (r *rig) followTouches(v *bed.Volume, n *node) *history {
	r.t.Helper()
	va, err := r.Client.StorageV1().VolumeAttachments().Get(r.ctx(), csi.AttachmentName(v.Handle, r.Driver, n.name), metav1.GetOptions{})
	r.must(err)
	w, err := r.Client.StorageV1().VolumeAttachments().Watch(r.ctx(), one(va.Name, va.ResourceVersion))
	return r.follow(w, err, va.Annotations[waiting.RetryAnnotation], func(o metav1.Object) string { return o.GetAnnotations()[waiting.RetryAnnotation] })
}

func one(name, from string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: selectors.OneTermEqualSelector("metadata.name", name).String(), ResourceVersion: from}
}

// inTreePV makes the PersistentVolume of an in-tree volume, and the array's disk
// of that handle.
func (r *rig) inTreePV(name, handle string, source corev1.PersistentVolumeSource) *bed.Volume {
	r.t.Helper()
	v := r.Volume(name, bed.VolumeOptions{})
	pv := v.PV()
	v.DeletePV()
	fresh := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name}, Spec: pv.Spec}
	fresh.Spec.PersistentVolumeSource = source
	_, err := r.Client.CoreV1().PersistentVolumes().Create(r.ctx(), fresh, metav1.CreateOptions{})
	r.must(err)
	v.Handle = handle
	return v
}
