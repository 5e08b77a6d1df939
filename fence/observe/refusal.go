package observe

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// refusal is a VolumeAttachment that carries a refusal of this project's.
type refusal struct{ *storagev1.VolumeAttachment }

// KeepRefused has the VolumeAttachments kept that EachRefused is going to tell of. Call it
// before Run.
func (x *Index) KeepRefused() { x.refusals = map[string]refusal{} }

// keepRefusalLocked keeps a VolumeAttachment that a refusal stands in, until
// EachRefused was called: they are few, and asked for once.
func (x *Index) keepRefusalLocked(va *storagev1.VolumeAttachment) {
	if x.refusals == nil {
		return
	}
	delete(x.refusals, va.Name)
	for _, e := range []*storagev1.VolumeError{va.Status.AttachError, va.Status.DetachError} {
		if e != nil && strings.Contains(e.Message, fence.Mark) && va.Spec.Attacher == x.ids.Driver {
			kept := va.DeepCopy()
			kept.ManagedFields = nil
			x.refusals[va.Name] = refusal{kept}
		}
	}
}

// EachRefused calls f for each VolumeAttachment of the driver that carries an
// error with fence.Mark in it (KeepRefused), with the handle of its volume; empty where its PV is
// not known. It tells of those that were there before, once: what is refused from
// then on, the process knows itself.
func (x *Index) EachRefused(f func(va *storagev1.VolumeAttachment, handle string)) {
	x.mu.Lock()
	refusals, handles := x.refusals, map[string]string{}
	x.refusals = nil
	for name := range refusals {
		if a := x.store.attachments[name]; a != nil {
			handles[name] = a.handle()
		}
	}
	x.mu.Unlock()
	for name, handle := range handles {
		f(refusals[name].VolumeAttachment, handle)
	}
}
