package observe

import (
	"crypto/sha256"
	"encoding/hex"

	storagev1 "k8s.io/api/storage/v1"
)

// putAttachment takes a VolumeAttachment as it is now; isNew: not as an update
// of it. It returns the nodes that it told something new of. Its attacher, node
// and source never change.
func (s *store) putAttachment(va *storagev1.VolumeAttachment, isNew bool) (changed []string) {
	if va.Spec.Attacher != s.ids.Driver {
		s.countOther(va, isNew)
		return nil
	}
	sum, odd := digest(va.Name)
	uid := s.hashString(string(va.UID))
	r := s.findAttachment(sum, odd)
	if r != 0 && s.attachments.at(r).uid != uid {
		// Another one, of the same name.
		changed = append(changed, s.places.at(s.attachments.at(r).place).name)
		s.removeAttachment(r)
		r = 0
	}
	fresh := r == 0
	if fresh {
		r = s.addAttachment(va, odd)
		a := s.attachments.at(r)
		a.key, a.uid = keyOf(sum), uid
		a.is.set(vaUnsure, s.listing[attachments])
		s.attachmentByName.add(r)
		s.judgeStray(r, sum)
	}
	a := s.attachments.at(r)
	was := a.is
	a.is.set(vaAttached, va.Status.Attached)
	a.is.set(vaDetaching, va.DeletionTimestamp != nil)
	if fresh || a.is != was {
		changed = append(changed, va.Spec.NodeName)
	}
	a.round = s.round[attachments]
	return changed
}

// addAttachment links a new one to its volume and its node.
func (s *store) addAttachment(va *storagev1.VolumeAttachment, odd bool) ref {
	r, a := s.attachments.add()
	var p *place
	a.place, p = s.place(va.Spec.NodeName)
	a.nextOfPlace, p.attachments = p.attachments, r
	if odd {
		a.is.set(vaOdd, true)
		s.names[r] = va.Name
	}
	source := va.Spec.Source
	switch {
	case source.InlineVolumeSpec != nil:
		a.is.set(vaInline, true)
		if handle, ok := s.ids.InlineHandle(va); ok {
			s.inline[r] = handle
			a.volume, _ = s.disk(handle)
			a.nextOfThat, s.inlineOf[a.volume] = s.inlineOf[a.volume], r
		}
	case source.PersistentVolumeName != nil:
		var v *volume
		a.volume, v = s.volume(textOf(*source.PersistentVolumeName))
		a.nextOfThat, v.attachments = v.attachments, r
	}
	return r
}

// dropAttachment takes a VolumeAttachment out.
func (s *store) dropAttachment(va *storagev1.VolumeAttachment) (changed []string) {
	if va.Spec.Attacher != s.ids.Driver {
		if r := s.placeByName[va.Spec.NodeName]; r != 0 {
			p := s.places.at(r)
			p.others, p.counting = max(0, p.others-1), max(0, p.counting-1)
			s.leave(r)
		}
		return nil
	}
	sum, odd := digest(va.Name)
	r := s.findAttachment(sum, odd)
	if r == 0 {
		return nil
	}
	changed = []string{s.places.at(s.attachments.at(r).place).name}
	s.removeAttachment(r)
	return changed
}

func (s *store) removeAttachment(r ref) {
	a := s.attachments.at(r)
	s.attachmentByName.drop(r)
	delete(s.strays, r)
	delete(s.names, r)
	delete(s.inline, r)
	unlink(&s.places.at(a.place).attachments, r, func(r ref) *ref { return &s.attachments.at(r).nextOfPlace })
	s.leave(a.place)
	nextOfThat := func(r ref) *ref { return &s.attachments.at(r).nextOfThat }
	switch {
	case a.volume == 0:
	case a.is.has(vaInline):
		head := s.inlineOf[a.volume]
		unlink(&head, r, nextOfThat)
		if s.inlineOf[a.volume] = head; head == 0 {
			delete(s.inlineOf, a.volume)
		}
		s.leaveDisk(a.volume)
	default:
		unlink(&s.volumes.at(a.volume).attachments, r, nextOfThat)
		s.leaveVolume(a.volume)
	}
	s.attachments.drop(r)
}

// sweepAttachments ends a listing: what was not in it is gone. It returns the
// nodes of what is gone.
func (s *store) sweepAttachments() (changed []string) {
	s.listing[attachments] = false
	if len(s.strays) == 0 {
		s.strays = map[ref][sha256.Size]byte{} // it may have been large before the PVs were known
	}
	for r := ref(1); r <= s.attachments.last; r++ {
		a := s.attachments.at(r)
		a.is.set(vaUnsure, false)
		if a.place != 0 && a.round != s.round[attachments] {
			changed = append(changed, s.places.at(a.place).name)
			s.removeAttachment(r)
		}
	}
	s.eachPlace(func(r ref, p *place) {
		p.others, p.counting = p.counting, 0
		s.leave(r)
	})
	return changed
}

// countOther counts a VolumeAttachment of another driver. In a listing all are
// counted anew; outside, only a new one counts.
func (s *store) countOther(va *storagev1.VolumeAttachment, isNew bool) {
	if !isNew {
		return
	}
	_, p := s.place(va.Spec.NodeName)
	if s.listing[attachments] {
		p.counting++
	} else {
		p.others++
	}
}

func (s *store) findAttachment(sum [sha256.Size]byte, odd bool) ref {
	r := s.attachmentByName.first(uint64(keyOf(sum)))
	for r != 0 && (s.attachments.at(r).key != keyOf(sum) || s.attachments.at(r).is.has(vaOdd) != odd || s.digestOf(r) != sum) {
		r = s.attachmentByName.after(r)
	}
	return r
}

// digestOf is what digest makes of the attachment's name.
func (s *store) digestOf(r ref) [sha256.Size]byte {
	a := s.attachments.at(r)
	if a.is.has(vaOdd) {
		return sha256.Sum256([]byte(s.names[r]))
	}
	if sum, stray := s.strays[r]; stray {
		return sum
	}
	return s.digestFor(s.handleOf(r), s.places.at(a.place).name)
}

func (s *store) attachmentName(r ref) string {
	if s.attachments.at(r).is.has(vaOdd) {
		return s.names[r]
	}
	sum := s.digestOf(r)
	return "csi-" + hex.EncodeToString(sum[:])
}

// handleOf is the handle of an attachment's volume; empty: it is not known.
func (s *store) handleOf(r ref) string {
	switch a := s.attachments.at(r); {
	case a.is.has(vaInline):
		return s.inline[r]
	case a.volume != 0:
		return s.handle(a.volume)
	}
	return ""
}

// judgeStray: a VolumeAttachment whose name is not made from its volume's handle
// may still be named after another: its PV was made anew, or is gone. Whoever
// changes the handle asks for the digest (digestOf) before.
func (s *store) judgeStray(r ref, sum [sha256.Size]byte) {
	a := s.attachments.at(r)
	handle := s.handleOf(r)
	if a.is.has(vaOdd) || handle != "" && sum == s.digestFor(handle, s.places.at(a.place).name) {
		delete(s.strays, r)
	} else {
		s.strays[r] = sum
	}
}
