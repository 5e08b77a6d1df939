package observe

import (
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
	handle, ours := s.ids.PVHandle(pv)
	if !ours {
		changed = s.dropVolume(pv.Name)
		s.foreign[pv.Name] = foreign{source: unique.Make(sourceOf(pv)), round: s.round[volumes]}
		return changed
	}
	delete(s.foreign, pv.Name)
	v := s.volume(pv.Name)
	entries, text := ledgerOf(pv)
	uid, ledger, was := s.hash(string(pv.UID)), s.hashLedger(pv, text), v.handle
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
		s.setHandle(v, handle)
	}
	if v.ledger != ledger {
		v.ledger = ledger
		s.setHolders(v, entries)
	}
	return changed
}

// dropVolume takes a PV out. What refers to it stays.
func (s *store) dropVolume(name string) (changed []string) {
	delete(s.foreign, name)
	v := s.volumes[name]
	if v == nil || !v.there {
		return nil
	}
	changed = []string{v.handle}
	v.there, v.unsure, v.uid, v.ledger = false, false, 0, 0
	s.setHolders(v, nil)
	s.setHandle(v, "")
	s.leaveVolume(v)
	return changed
}

// sweepVolumes ends a listing: what was not in it is gone.
func (s *store) sweepVolumes() (changed []string) {
	s.listing[volumes] = false
	for _, name := range byName(s.volumes) {
		v := s.volumes[name]
		v.unsure = false
		if v.there && v.round != s.round[volumes] {
			changed = append(changed, s.dropVolume(name)...)
		}
	}
	for name, f := range s.foreign {
		if f.round != s.round[volumes] {
			delete(s.foreign, name)
		}
	}
	return changed
}

// volume is the record of a PV's name, made if there is none.
func (s *store) volume(name string) *volume {
	v := s.volumes[name]
	if v == nil {
		v = &volume{name: name}
		s.volumes[name] = v
	}
	return v
}

func (s *store) leaveVolume(v *volume) {
	if !v.there && len(v.attachments) == 0 {
		delete(s.volumes, v.name)
	}
}

// setHandle links a volume to its disk; the empty handle takes it off.
func (s *store) setHandle(v *volume, handle string) {
	if v.disk != nil {
		v.disk.volumes = without(v.disk.volumes, v)
		s.leaveDisk(v.disk)
		v.disk = nil
	}
	v.handle = handle
	if handle != "" {
		v.disk = s.disk(handle)
		v.disk.volumes = append(v.disk.volumes, v)
		if handle == v.disk.key {
			v.handle = v.disk.key // as it most often is: kept once
		}
	}
	for _, a := range v.attachments {
		s.judgeStray(a)
	}
}

func (s *store) hashLedger(pv *corev1.PersistentVolume, text string) uint64 {
	if _, ok := pv.Annotations[ledger.Annotation]; !ok {
		return 0
	}
	return s.hash(text) | 1 // no ledger hashes to none
}

// ledgerOf is what a PV's ledger says: the entries that name a node, and its text but for what tells
// calls of the driver from one another. A call that is made again is news to nobody: told of each, a
// waiting publish would be repeated as often as one fails. Of a garbled ledger there are no entries:
// the guard refuses by it, and says so.
func ledgerOf(pv *corev1.PersistentVolume) (entries []ledger.Entry, text string) {
	text, ok := pv.Annotations[ledger.Annotation]
	if !ok {
		return nil, ""
	}
	l, err := ledger.Parse(text)
	if err != nil {
		return nil, text
	}
	for i := range l.Holders {
		e := &l.Holders[i]
		if e.Call = ""; e.NodeName != "" {
			entries = append(entries, *e)
		}
	}
	return entries, l.String()
}

// setHolders puts a volume's ledger in the place of the last one.
func (s *store) setHolders(v *volume, entries []ledger.Entry) {
	for _, h := range v.holders {
		h.place.holds = without(h.place.holds, v)
		s.leave(h.place)
	}
	v.holders = make([]holder, 0, len(entries))
	for _, e := range entries {
		p := s.place(e.NodeName)
		p.holds = append(p.holds, v)
		v.holders = append(v.holders, holder{unique.Make(machine{e.Machine(), e.State}), p})
	}
}
