package observe

import (
	"hash/maphash"
	"maps"
	"slices"
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

	disks       map[string]*disk       // by Identity.Key of their handle
	volumes     map[string]*volume     // by name
	attachments map[string]*attachment // by name
	places      map[string]*place      // by name
	placesByID  map[string][]*place    // by node ID

	// foreign are the PVs of other drivers, and in-tree ones that were not
	// migrated to this one: only whose they are is asked.
	foreign map[string]foreign
	// strays are the VolumeAttachments whose name does not follow from the
	// handle of their volume as it is known now.
	strays map[*attachment]bool
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

// disk is a handle.
type disk struct {
	key      string
	volumes  []*volume
	inline   []*attachment
	listedBy []*place // those whose Node's status names it
}

// volume is a PersistentVolume, or the name of one that is not there.
type volume struct {
	name, handle  string // handle empty: it is not there
	uid, ledger   uint64 // hashes; ledger 0: none
	disk          *disk
	attachments   []*attachment
	holders       []holder
	round         round
	there, unsure bool
}

// attachment is a VolumeAttachment of the driver.
type attachment struct {
	name                string
	uid                 uint64  // its hash
	volume              *volume // nil: it is inline
	inline              string  // the handle of one that carries its volume itself
	place               *place
	round               round
	attached, detaching bool
	unsure              bool // it was first seen in a listing that has not ended
	forced              *forced
}

// forced is when a volume was taken by force, and in which boot.
type forced struct {
	fence.Forced
	boot string
}

// holder is a ledger's entry.
type holder struct {
	machine unique.Handle[machine]
	place   *place
}

// machine is what a ledger's entry says of a holder. A node's volumes share one.
type machine struct {
	fence.Machine
	state fence.State
}

// listing is what a Node's status names: one volume, in one of its lists.
type listing struct {
	disk            *disk
	inUse, attached bool
}

// place is what is known of a node's name.
type place struct {
	name        string
	node        *node // nil: there is no Node
	nodeID      string
	attachments []*attachment
	holds       []*volume // those whose ledger names it, once for each entry
	listings    []listing // by the disk's key
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
	return &store{ids: ids, seed: maphash.MakeSeed(), disks: map[string]*disk{}, volumes: map[string]*volume{}, attachments: map[string]*attachment{},
		places: map[string]*place{}, placesByID: map[string][]*place{}, foreign: map[string]foreign{}, strays: map[*attachment]bool{},
		records: map[string]recorded{}, systems: map[string]int{}}
}

// begin begins a listing of a kind.
func (s *store) begin(kind int) {
	s.round[kind]++
	s.listing[kind] = true
	if kind == attachments {
		for _, p := range s.places { // of a listing that broke
			p.counting = 0
			s.leave(p)
		}
	}
}

func (s *store) hash(t string) uint64 { return maphash.String(s.seed, t) }

// place is the record of a node's name, made if there is none.
func (s *store) place(name string) *place {
	p := s.places[name]
	if p == nil {
		p = &place{name: name}
		s.places[name] = p
	}
	return p
}

// leave drops a place of which nothing is known any more.
func (s *store) leave(p *place) {
	if p.node == nil && p.nodeID == "" && len(p.attachments) == 0 && len(p.holds) == 0 && len(p.listings) == 0 && p.others == 0 && p.counting == 0 && !p.leased {
		delete(s.places, p.name)
	}
}

// placesWhere are the names of those for which is, sorted.
func (s *store) placesWhere(is func(*place) bool) (names []string) {
	for name, p := range s.places {
		if is(p) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// byName are the names of records, sorted.
func byName[R any](records map[string]R) []string { return slices.Sorted(maps.Keys(records)) }

// diskOf is the record of a handle; nil: there is none.
func (s *store) diskOf(handle string) *disk { return s.disks[s.ids.Key(handle)] }

func (s *store) disk(handle string) *disk {
	key := s.ids.Key(handle)
	d := s.disks[key]
	if d == nil {
		d = &disk{key: strings.Clone(key)} // most often a part of what a Node lists
		s.disks[d.key] = d
	}
	return d
}

func (s *store) leaveDisk(d *disk) {
	if len(d.volumes) == 0 && len(d.inline) == 0 && len(d.listedBy) == 0 {
		delete(s.disks, d.key)
	}
}

// without is the list without the first r in it.
func without[R comparable](list []R, r R) []R {
	if i := slices.Index(list, r); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// kubernetesNamed tells whether a VolumeAttachment has a name as Kubernetes makes them
// (csi.AttachmentName).
func kubernetesNamed(name string) bool {
	return len(name) == len("csi-")+64 && strings.HasPrefix(name, "csi-")
}
