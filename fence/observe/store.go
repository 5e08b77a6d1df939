package observe

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strings"
	"unique"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// store is the index: a few fields of each object, linked as they are asked for.
// It is not safe for concurrent use.
//
//	disk (a handle) ──▶ volumes (PVs) ──▶ attachments ◀── place (a node's name)
//	     │                   └─────────▶ holders  ◀──────┤
//	     └──▶ listings (a Node's status names it) ◀──────┘
//
// A record stays while something links to it: a VolumeAttachment may come before
// its PV, and outlive it.
type store struct {
	ids  *csi.Identity
	seed maphash.Seed

	disks       slab[disk]
	volumes     slab[volume]
	attachments slab[attachment]
	holders     slab[holder]
	listings    slab[listing]
	places      slab[place]

	diskByKey        finder
	volumeByName     finder
	attachmentByName finder
	placeByName      map[string]ref
	placeByID        map[string]ref

	// foreign are the PVs of other drivers, and in-tree ones that were not
	// migrated to this one: only whose they are is asked.
	foreign map[text]foreign
	// handles of volumes whose disk's key is not their handle.
	handles map[ref]string
	// twins are volumes whose handle another volume has too: the next one of it.
	twins map[ref]ref
	// names of VolumeAttachments that are not as Kubernetes makes them, and
	// handles of those that carry their volume inline.
	names, inline map[ref]string
	// inlineOf are the heads of the disks' chains of those.
	inlineOf map[ref]ref
	// strays are the VolumeAttachments whose name does not follow from the
	// handle of their volume as it is known now: their digests.
	strays map[ref][sha256.Size]byte
	// systems counts the Nodes that report a system UUID, by its key.
	systems map[string]int
	// records are the nodes that the records' leases are about, by lease.
	records map[string]recorded

	// round of each kind: the number of its latest listing. listing: it has not
	// ended yet.
	round   [kinds]round
	listing [kinds]bool
}

// round is the number of a listing. It may begin anew: what is not in a listing is
// dropped when it ends.
type round uint16

// disk is a handle, as Identity.Key has it.
type disk struct {
	key               text
	volumes, listings ref // heads of chains
}

// volume is a PersistentVolume, or the name of one that is not there.
type volume struct {
	name          text
	uid, ledger   uint64 // hashes; ledger 0: none
	disk          ref
	attachments   ref
	holders       ref
	round         round
	there, unsure bool
}

// attachment is a VolumeAttachment of the driver.
type attachment struct {
	uid uint64
	// key is the beginning of its name's digest: the rest follows from its volume and
	// its node (digestOf).
	key                uint32
	volume, nextOfThat ref // a volume, or a disk where it is inline
	place, nextOfPlace ref
	round              round
	is                 traits
}

// traits of a VolumeAttachment.
type traits uint8

const (
	vaOdd traits = 1 << iota
	vaInline
	vaAttached
	vaDetaching
	vaUnsure // it was first seen in a listing that has not ended
)

func (t traits) has(one traits) bool { return t&one != 0 }

func (t *traits) set(one traits, on bool) {
	if *t &^= one; on {
		*t |= one
	}
}

// holder is a ledger's entry.
type holder struct {
	machine              unique.Handle[machine]
	volume, nextOfVolume ref
	place, nextOfPlace   ref
}

// machine is what a ledger's entry says of a holder. A node's volumes share one.
type machine struct {
	fence.Machine
	state fence.State
}

// listing: a Node's status names a volume.
type listing struct {
	disk, nextOfDisk   ref
	place, nextOfPlace ref
	inUse, attached    bool
}

// place is what is known of a node's name.
type place struct {
	name                           string
	node                           *node // nil: there is no Node
	nodeID                         string
	nextOfID                       ref
	attachments, holders, listings ref
	// others counts the VolumeAttachments of other drivers; counting does so
	// anew while they are listed.
	others, counting     int32
	leased               bool
	csiRound, leaseRound round
}

// foreign is whose a PV is.
type foreign struct {
	source unique.Handle[source]
	round  round
}

type recorded struct {
	node, version string
	round         round
}

// The kinds, in the order in which they are waited for.
const (
	leases = iota
	csiNodes
	nodes
	volumes
	attachments
	records
	kinds
)

func newStore(ids *csi.Identity) *store {
	s := &store{ids: ids, seed: maphash.MakeSeed(), placeByName: map[string]ref{}, placeByID: map[string]ref{}, foreign: map[text]foreign{},
		handles: map[ref]string{}, twins: map[ref]ref{}, names: map[ref]string{}, inline: map[ref]string{}, inlineOf: map[ref]ref{}, strays: map[ref][sha256.Size]byte{}, records: map[string]recorded{}, systems: map[string]int{}}
	s.diskByKey.hash = func(r ref) uint64 { return s.hashText(s.disks.at(r).key) }
	s.volumeByName.hash = func(r ref) uint64 { return s.hashText(s.volumes.at(r).name) }
	s.attachmentByName.hash = func(r ref) uint64 { return uint64(s.attachments.at(r).key) }
	return s
}

// begin begins a listing of a kind.
func (s *store) begin(kind int) {
	s.round[kind]++
	s.listing[kind] = true
	if kind == attachments {
		s.eachPlace(func(r ref, p *place) { // of a listing that broke
			p.counting = 0
			s.leave(r)
		})
	}
}

func (s *store) hashText(t text) uint64     { return maphash.Comparable(s.seed, t) }
func (s *store) hashString(t string) uint64 { return maphash.String(s.seed, t) }

// keyOf: a digest is a hash already.
func keyOf(digest [sha256.Size]byte) uint32 { return binary.BigEndian.Uint32(digest[:]) }

// place is the record of a node's name, made if there is none.
func (s *store) place(name string) (ref, *place) {
	if r := s.placeByName[name]; r != 0 {
		return r, s.places.at(r)
	}
	r, p := s.places.add()
	p.name = strings.Clone(name)
	s.placeByName[p.name] = r
	return r, p
}

// placeOf is the record of a node's name; nil: there is none.
func (s *store) placeOf(name string) *place {
	if r := s.placeByName[name]; r != 0 {
		return s.places.at(r)
	}
	return nil
}

// leave drops a place of which nothing is known any more.
func (s *store) leave(r ref) {
	p := s.places.at(r)
	if p.node == nil && p.nodeID == "" && p.attachments == 0 && p.holders == 0 && p.listings == 0 && p.others == 0 && p.counting == 0 && !p.leased {
		delete(s.placeByName, p.name)
		s.places.drop(r)
	}
}

// eachPlace passes over those that f drops.
func (s *store) eachPlace(f func(ref, *place)) {
	for r := ref(1); r <= s.places.last; r++ {
		if p := s.places.at(r); p.name != "" {
			f(r, p)
		}
	}
}

// findDisk finds the record of a handle; 0: there is none.
func (s *store) findDisk(handle string) ref {
	key := textOf(s.ids.Key(handle))
	r := s.diskByKey.first(s.hashText(key))
	for r != 0 && s.disks.at(r).key != key {
		r = s.diskByKey.after(r)
	}
	return r
}

func (s *store) disk(handle string) (ref, *disk) {
	if r := s.findDisk(handle); r != 0 {
		return r, s.disks.at(r)
	}
	r, d := s.disks.add()
	d.key = textOf(s.ids.Key(handle))
	s.diskByKey.add(r)
	return r, d
}

func (s *store) leaveDisk(r ref) {
	if d := s.disks.at(r); d.volumes == 0 && d.listings == 0 && s.inlineOf[r] == 0 {
		s.diskByKey.drop(r)
		s.disks.drop(r)
	}
}

// digest is what a VolumeAttachment's name has after csi-. odd: it is not of
// that form, and its own hash stands for it.
func digest(name string) (sum [sha256.Size]byte, odd bool) {
	if digits, ok := strings.CutPrefix(name, "csi-"); ok && len(digits) == 2*len(sum) && strings.ToLower(digits) == digits {
		if _, err := hex.Decode(sum[:], []byte(digits)); err == nil {
			return sum, false
		}
	}
	return sha256.Sum256([]byte(name)), true
}

// digestFor is the digest of csi.AttachmentName.
func (s *store) digestFor(handle, node string) [sha256.Size]byte {
	return sha256.Sum256([]byte(handle + s.ids.Driver + node))
}
