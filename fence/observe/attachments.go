package observe

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// putAttachment takes a VolumeAttachment as it is now; isNew: not as an update
// of it. It returns the nodes that it told something new of. Its attacher, node
// and source never change.
func (s *store) putAttachment(va *storagev1.VolumeAttachment, isNew bool) (changed []string) {
	if va.Spec.Attacher != s.ids.Driver {
		s.countOther(va, isNew)
		return nil
	}
	uid := s.hash(string(va.UID))
	a := s.attachments[va.Name]
	if a != nil && a.uid != uid {
		// Another one, of the same name.
		changed = append(changed, a.place.name)
		s.removeAttachment(a)
		a = nil
	}
	fresh := a == nil
	if fresh {
		a = s.addAttachment(va)
		a.uid, a.unsure = uid, s.listing[attachments]
	}
	attached, detaching := va.Status.Attached, va.DeletionTimestamp != nil
	if fresh || a.attached != attached || a.detaching != detaching {
		changed = append(changed, va.Spec.NodeName)
	}
	a.attached, a.detaching, a.round = attached, detaching, s.round[attachments]
	return changed
}

// addAttachment links a new one to its volume and its node.
func (s *store) addAttachment(va *storagev1.VolumeAttachment) *attachment {
	a := &attachment{name: va.Name, place: s.place(va.Spec.NodeName)}
	s.attachments[a.name] = a
	a.place.attachments = append(a.place.attachments, a)
	source := va.Spec.Source
	switch {
	case source.InlineVolumeSpec != nil:
		if handle, ok := s.ids.InlineHandle(va); ok {
			d := s.disk(handle)
			a.inline, d.inline = handle, append(d.inline, a)
		}
	case source.PersistentVolumeName != nil:
		a.volume = s.volume(*source.PersistentVolumeName)
		a.volume.attachments = append(a.volume.attachments, a)
	}
	s.judgeStray(a)
	return a
}

// dropAttachment takes a VolumeAttachment out.
func (s *store) dropAttachment(va *storagev1.VolumeAttachment) (changed []string) {
	if va.Spec.Attacher != s.ids.Driver {
		if p := s.places[va.Spec.NodeName]; p != nil {
			p.others, p.counting = max(0, p.others-1), max(0, p.counting-1)
			s.leave(p)
		}
		return nil
	}
	a := s.attachments[va.Name]
	if a == nil {
		return nil
	}
	s.removeAttachment(a)
	return []string{a.place.name}
}

func (s *store) removeAttachment(a *attachment) {
	delete(s.attachments, a.name)
	delete(s.strays, a)
	a.place.attachments = without(a.place.attachments, a)
	s.leave(a.place)
	switch {
	case a.volume != nil:
		a.volume.attachments = without(a.volume.attachments, a)
		s.leaveVolume(a.volume)
	case a.inline != "":
		d := s.diskOf(a.inline)
		d.inline = without(d.inline, a)
		s.leaveDisk(d)
	}
}

// sweepAttachments ends a listing: what was not in it is gone. It returns the
// nodes of what is gone.
func (s *store) sweepAttachments() (changed []string) {
	s.listing[attachments] = false
	if len(s.strays) == 0 {
		s.strays = map[*attachment]bool{} // it may have been large before the PVs were known
	}
	for _, name := range byName(s.attachments) {
		a := s.attachments[name]
		a.unsure = false
		if a.round != s.round[attachments] {
			changed = append(changed, a.place.name)
			s.removeAttachment(a)
		}
	}
	for _, p := range s.places {
		p.others, p.counting = p.counting, 0
		s.leave(p)
	}
	return changed
}

// countOther counts a VolumeAttachment of another driver. In a listing all are
// counted anew; outside, only a new one counts.
func (s *store) countOther(va *storagev1.VolumeAttachment, isNew bool) {
	if !isNew {
		return
	}
	p := s.place(va.Spec.NodeName)
	if s.listing[attachments] {
		p.counting++
	} else {
		p.others++
	}
}

// handle of an attachment's volume; empty: it is not known.
func (a *attachment) handle() string {
	if a.volume != nil {
		return a.volume.handle
	}
	return a.inline
}

// judgeStray tells apart the VolumeAttachments whose name is not made from their volume's handle.
// Such a one may still be named after another: its PV was made anew, or is gone.
func (s *store) judgeStray(a *attachment) {
	handle := a.handle()
	if !kubernetesNamed(a.name) || handle != "" && a.name == csi.AttachmentName(handle, s.ids.Driver, a.place.name) {
		delete(s.strays, a)
	} else {
		s.strays[a] = true
	}
}
