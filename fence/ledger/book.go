package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Book is what one Read found of a volume, and what the next Write is held
// against. It is not changed by a Write, which returns the next Book.
type Book struct {
	// Handle that was asked for.
	Handle string
	// PVs with that handle, as read live, in the order of Sort. The first is the
	// canonical one, which carries the ledger.
	PVs []*corev1.PersistentVolume
	// Ledger is what the PVs' ledgers say together; never nil. Change a Clone.
	Ledger *Ledger
	// Missing tells that no PV carries a ledger that counts. It says nothing, not that nobody holds
	// the volume.
	Missing bool
	// Repaired tells that what stands there was written by a person's repair, which cannot ask the
	// driver, and that nobody has written since.
	Repaired bool
	// SetAside says, for each ledger that is there and does not count, why.
	SetAside []string
	// Before names the holders of a ledger that is set aside because its
	// PersistentVolume was created again: the disk is the same. Empty once a ledger
	// counts: what was written since says who holds it.
	Before []string
	// Moved tells that the PVs' labels make another handle now than they made when a holder was
	// written down, or when whoever asks looked (csi.Identity.PVMayHave). By which of them a holder
	// has the volume is not known. So holders are to be looked for by Disk, and what is done by the
	// Handle may have been done to another disk.
	Moved bool

	pages []page // for each of PVs
}

// page is one PV's ledger as it was read.
type page struct {
	text   string // the annotation; there may be one that is empty
	there  bool
	ledger *Ledger // nil: none that counts
}

// Canonical is the PV that carries the ledger; nil: no PV names the volume.
func (b *Book) Canonical() *corev1.PersistentVolume {
	if len(b.PVs) == 0 {
		return nil
	}
	return b.PVs[0]
}

// Disk is the handle by which others may name the volume: Handle, or, if that has Moved, one
// that is the Same as all that it can have been.
func (s *Store) Disk(b *Book) string {
	if b.Moved {
		return s.ids.Key(b.Handle)
	}
	return b.Handle
}

// Loose tells that the PV of the ledger may be gone at any moment, and the ledger with it.
func (b *Book) Loose() bool { return len(b.PVs) > 0 && holdOn(b.PVs[0]) == loose }

// Sort brings the PVs of one volume into the order of a Book: those that stay longer
// first, since a ledger goes with its PV, then those that were made first, and then by
// name. So nobody draws the ledger of a volume to a PV that he makes for it later, and
// has it deleted with that.
func Sort(pvs []*corev1.PersistentVolume) {
	slices.SortFunc(pvs, func(a, b *corev1.PersistentVolume) int {
		return cmp.Or(cmp.Compare(holdOn(b), holdOn(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// A hold is what keeps a PV in the API. It never grows: a deletion is not taken back, and
// what is being deleted gets no new finalizer (k8s.io/apimachinery
// pkg/api/validation/objectmeta.go, ValidateNoNewFinalizers). So whoever finds a PV with a
// smaller hold than another process did has read whatever that one could write to it.
type hold int

const (
	// loose means that the PV is being deleted, and that external-attacher does not keep it.
	loose hold = iota
	// kept means that the PV is being deleted, and that external-attacher keeps it while a
	// VolumeAttachment names it.
	kept
	// stays means that nobody deletes the PV.
	stays
)

func holdOn(pv *corev1.PersistentVolume) hold {
	switch {
	case pv.DeletionTimestamp == nil:
		return stays
	case slices.ContainsFunc(pv.Finalizers, func(f string) bool { return strings.HasPrefix(f, attachersFinalizer) }):
		return kept
	}
	return loose
}

// attachersFinalizer is how those of external-attacher begin; the driver's name follows.
const attachersFinalizer = "external-attacher/"

// Unasked tells that the driver was not asked for the nodes that it lists when what
// stands there was written, so that it has to be asked before the next write.
func (b *Book) Unasked() bool { return b.Missing || b.Repaired }

// Own tells whether the text on a PV, which Parse cannot read, is what is left of a ledger
// of that PV: it has the PV's UID, as all that csi-fencepost writes there, and which nobody
// knows who brings text along with a new PV; or missing, no other PV of the volume has a
// ledger that counts (Book.Missing), so that it may be what is left of the only one.
func Own(pv *corev1.PersistentVolume, missing bool) bool {
	return missing || strings.Contains(pv.Annotations[Annotation], string(pv.UID))
}

// open reads the annotations of live PVs, in the order of Sort. Text that is not a ledger is
// an error, or set aside if it is not the PV's own.
func (s *Store) open(handle string, pvs []*corev1.PersistentVolume) (*Book, error) {
	b := &Book{Handle: handle, PVs: pvs, Ledger: s.blank(handle, pvs), Missing: true}
	var garbled []*GarbledError
	var unread []*corev1.PersistentVolume
	for _, pv := range pvs {
		text, there := pv.Annotations[Annotation]
		p := page{text: text, there: there}
		own, _ := s.ids.PVHandle(pv)
		b.Moved = b.Moved || !s.ids.Same(own, handle)
		if there {
			l, err := Parse(text)
			if err != nil {
				garbled = append(garbled, &GarbledError{PV: pv.Name, Err: err})
				unread = append(unread, pv)
			} else if why := s.foreign(l, pv); why != "" {
				b.SetAside = append(b.SetAside, why)
				b.Before = append(b.Before, s.before(l, pv)...)
			} else {
				p.ledger, b.Missing = l, false
				b.Repaired = b.Repaired || repaired(pv, text)
				b.Moved = b.Moved || l.Handle != own && l.anybody()
				b.Ledger.merge(l)
			}
		}
		b.pages = append(b.pages, p)
	}
	for i, g := range garbled {
		if Own(unread[i], b.Missing) {
			return nil, g
		}
		b.SetAside = append(b.SetAside, g.Aside())
	}
	if !b.Missing {
		b.Before = nil
	}
	return b, nil
}

// blank is the empty ledger of a volume, as it would stand on the first PV.
func (s *Store) blank(handle string, pvs []*corev1.PersistentVolume) *Ledger {
	l := &Ledger{Version: Version, Driver: s.ids.Driver, Handle: handle, Cluster: s.cluster, Holders: []Entry{}}
	if len(pvs) > 0 {
		// The PV's own handle: the one asked for may name the volume otherwise.
		l.Handle, _ = s.ids.PVHandle(pvs[0])
		l.PVUID = string(pvs[0].UID)
	}
	return l
}

// before are the node IDs of those that may hold the disk by a ledger that is set aside,
// if all that it says of another is the UID of the PV.
func (s *Store) before(l *Ledger, pv *corev1.PersistentVolume) (ids []string) {
	again := l.Clone()
	again.PVUID = string(pv.UID)
	if s.foreign(again, pv) != "" {
		return nil
	}
	for _, e := range l.Holders {
		if e.State != fence.TakenOver || e.Unproven {
			ids = append(ids, e.NodeID)
		}
	}
	return ids
}

// anybody tells whether the ledger names somebody who may have the volume.
func (l *Ledger) anybody() bool {
	return slices.ContainsFunc(l.Holders, func(e Entry) bool { return e.State != fence.TakenOver || e.Unproven })
}

// foreign says why a ledger does not count on that PV; empty: it does. Labels of the PV, which
// whoever patches PVs may change, have no ledger set aside.
func (s *Store) foreign(l *Ledger, pv *corev1.PersistentVolume) string {
	aside := func(why string, args ...any) string {
		return fmt.Sprintf("the ledger on PersistentVolume %s is set aside: ", pv.Name) + fmt.Sprintf(why, args...)
	}
	switch {
	case l.Cluster != s.cluster:
		return aside("it was written in another cluster (kube-system UID %s, here %s)", l.Cluster, s.cluster)
	case l.Driver != s.ids.Driver:
		return aside("it was written for driver %s, not %s", l.Driver, s.ids.Driver)
	case !s.ids.PVMayHave(pv, l.Handle):
		handle, _ := s.ids.PVHandle(pv)
		return aside("it was written for volume %s, not %s", l.Handle, handle)
	case l.PVUID != string(pv.UID):
		return aside("it was written on a PersistentVolume with UID %s, and this one, created again or restored from a backup, has %s", l.PVUID, pv.UID)
	}
	return ""
}
