package observe

import (
	"crypto/sha256"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// source tells whose a PV is that is not the driver's.
type source struct {
	driver string // of CSI; empty: an in-tree volume
	kind   string // of in-tree volumes, those that no node attaches
}

const (
	kindNFS      = "nfs"
	kindHostPath = "hostPath"
	kindLocal    = "local"
	kindCephFS   = "cephfs"
)

func sourceOf(pv *corev1.PersistentVolume) source {
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return source{driver: s.CSI.Driver}
	case s.NFS != nil:
		return source{kind: kindNFS}
	case s.HostPath != nil:
		return source{kind: kindHostPath}
	case s.Local != nil:
		return source{kind: kindLocal}
	case s.CephFS != nil:
		return source{kind: kindCephFS}
	}
	return source{}
}

// spec is the least that says the same.
func (s source) spec() (v corev1.PersistentVolumeSource) {
	switch {
	case s.driver != "":
		v.CSI = &corev1.CSIPersistentVolumeSource{Driver: s.driver}
	case s.kind == kindNFS:
		v.NFS = &corev1.NFSVolumeSource{}
	case s.kind == kindHostPath:
		v.HostPath = &corev1.HostPathVolumeSource{}
	case s.kind == kindLocal:
		v.Local = &corev1.LocalVolumeSource{}
	case s.kind == kindCephFS:
		v.CephFS = &corev1.CephFSPersistentVolumeSource{}
	}
	return v
}

// putVolume takes a PV as it is now. An in-tree PV of the driver is kept as the
// CSI volume that it is translated to. It returns the handles that it told something new of.
func (s *store) putVolume(pv *corev1.PersistentVolume) (changed []string) {
	name := textOf(pv.Name)
	handle, ours := s.ids.PVHandle(pv)
	if !ours {
		changed = s.dropVolume(pv.Name)
		s.foreign[name] = foreign{source: unique.Make(sourceOf(pv)), round: s.round[volumes]}
		return changed
	}
	delete(s.foreign, name)
	r, v := s.volume(name)
	uid, ledger := s.hashString(string(pv.UID)), s.hashLedger(pv)
	was := s.handle(r)
	switch {
	case !v.there:
		changed = []string{handle}
	case was != handle:
		changed = []string{was, handle}
	case v.ledger != ledger:
		changed = []string{handle}
	}
	if !v.there || v.uid != uid {
		v.unsure = s.listing[volumes]
	}
	v.there, v.uid, v.round = true, uid, s.round[volumes]
	if was != handle {
		s.setHandle(r, handle)
	}
	if v.ledger != ledger {
		v.ledger = ledger
		s.setHolders(r, holdersIn(pv))
	}
	return changed
}

// dropVolume takes a PV out. What refers to it stays.
func (s *store) dropVolume(name string) (changed []string) {
	delete(s.foreign, textOf(name))
	r := s.findVolume(textOf(name))
	if r == 0 || !s.volumes.at(r).there {
		return nil
	}
	v := s.volumes.at(r)
	changed = []string{s.handle(r)}
	v.there, v.unsure, v.uid, v.ledger = false, false, 0, 0
	s.setHolders(r, nil)
	s.setHandle(r, "")
	s.leaveVolume(r)
	return changed
}

// sweepVolumes ends a listing: what was not in it is gone.
func (s *store) sweepVolumes() (changed []string) {
	s.listing[volumes] = false
	for r := ref(1); r <= s.volumes.last; r++ {
		v := s.volumes.at(r)
		v.unsure = false
		if v.there && v.round != s.round[volumes] {
			changed = append(changed, s.dropVolume(v.name.String())...)
		}
	}
	for name, f := range s.foreign {
		if f.round != s.round[volumes] {
			delete(s.foreign, name)
		}
	}
	return changed
}

func (s *store) findVolume(name text) ref {
	r := s.volumeByName.first(s.hashText(name))
	for r != 0 && s.volumes.at(r).name != name {
		r = s.volumeByName.after(r)
	}
	return r
}

func (s *store) volume(name text) (ref, *volume) {
	if r := s.findVolume(name); r != 0 {
		return r, s.volumes.at(r)
	}
	r, v := s.volumes.add()
	v.name = name
	s.volumeByName.add(r)
	return r, v
}

func (s *store) leaveVolume(r ref) {
	if v := s.volumes.at(r); !v.there && v.attachments == 0 {
		s.volumeByName.drop(r)
		s.volumes.drop(r)
	}
}

// handle of a volume; empty: its PV is not there.
func (s *store) handle(r ref) string {
	if handle, ok := s.handles[r]; ok {
		return handle
	}
	if v := s.volumes.at(r); v.disk != 0 {
		return s.disks.at(v.disk).key.String()
	}
	return ""
}

// setHandle links a volume to its disk; the empty handle takes it off.
func (s *store) setHandle(r ref, handle string) {
	v := s.volumes.at(r)
	sums := map[ref][sha256.Size]byte{}
	for a := v.attachments; a != 0; a = s.attachments.at(a).nextOfThat {
		sums[a] = s.digestOf(a)
	}
	if v.disk != 0 {
		s.unlinkVolume(s.disks.at(v.disk), r)
		s.leaveDisk(v.disk)
		v.disk = 0
		delete(s.handles, r)
	}
	if handle != "" {
		at, d := s.disk(handle)
		v.disk = at
		if d.volumes != 0 {
			s.twins[r] = d.volumes
		}
		d.volumes = r
		if s.ids.Key(handle) != handle {
			s.handles[r] = handle
		}
	}
	for a, sum := range sums {
		s.judgeStray(a, sum)
	}
}

// unlinkVolume takes a volume out of its disk's chain.
func (s *store) unlinkVolume(d *disk, r ref) {
	next := s.twins[r]
	delete(s.twins, r)
	if d.volumes == r {
		d.volumes = next
		return
	}
	before := d.volumes
	for s.twins[before] != r {
		before = s.twins[before]
	}
	if delete(s.twins, before); next != 0 {
		s.twins[before] = next
	}
}

func (s *store) hashLedger(pv *corev1.PersistentVolume) uint64 {
	text, ok := pv.Annotations[ledger.Annotation]
	if !ok {
		return 0
	}
	return s.hashString(text) | 1 // no ledger hashes to none
}

// holdersIn are the entries of a PV's ledger that name a node. Of a garbled one
// there are none: the guard refuses by it, and says so.
func holdersIn(pv *corev1.PersistentVolume) (entries []ledger.Entry) {
	text, ok := pv.Annotations[ledger.Annotation]
	if !ok {
		return nil
	}
	l, err := ledger.Parse(text)
	if err != nil {
		return nil
	}
	for _, e := range l.Holders {
		if e.NodeName != "" {
			entries = append(entries, e)
		}
	}
	return entries
}

// setHolders puts a volume's ledger in the place of the last one.
func (s *store) setHolders(r ref, entries []ledger.Entry) {
	v := s.volumes.at(r)
	for v.holders != 0 {
		at := v.holders
		h := s.holders.at(at)
		v.holders = h.nextOfVolume
		unlink(&s.places.at(h.place).holders, at, func(r ref) *ref { return &s.holders.at(r).nextOfPlace })
		s.leave(h.place)
		s.holders.drop(at)
	}
	for _, e := range slices.Backward(entries) {
		at, h := s.holders.add()
		where, p := s.place(e.NodeName)
		h.machine = unique.Make(machine{e.Machine(), e.State})
		h.volume, h.place = r, where
		h.nextOfVolume, v.holders = v.holders, at
		h.nextOfPlace, p.holders = p.holders, at
	}
}
