package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Volumes names the PersistentVolumes with that handle.
func (x *Index) Volumes(handle string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []string
	x.store.eachVolume(handle, func(v *volume) { names = append(names, v.name.String()) })
	slices.Sort(names)
	return names
}

func (s *store) eachVolume(handle string, f func(*volume)) {
	if d := s.findDisk(handle); d != 0 {
		for r := s.disks.at(d).volumes; r != 0; r = s.twins[r] {
			f(s.volumes.at(r))
		}
	}
}

// Attachments names the VolumeAttachments of that volume, in any state: those
// that refer to one of its PVs, those that carry it inline, and those whose
// name is made from it although the PV that they refer to is gone.
func (x *Index) Attachments(handle string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s, names := x.store, sets.New[string]()
	chain := func(r ref) {
		for ; r != 0; r = s.attachments.at(r).nextOfThat {
			names.Insert(s.attachmentName(r))
		}
	}
	if d := s.findDisk(handle); d != 0 {
		chain(s.inlineOf[d])
	}
	s.eachVolume(handle, func(v *volume) { chain(v.attachments) })
	for r, sum := range s.strays {
		if sum == s.digestFor(handle, s.places.at(s.attachments.at(r).place).name) {
			names.Insert(s.attachmentName(r))
		}
	}
	return sets.List(names)
}

// NodesListing names the Nodes whose volumesInUse or volumesAttached names the
// volume.
func (x *Index) NodesListing(handle string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s, names := x.store, []string(nil)
	if d := s.findDisk(handle); d != 0 {
		for r := s.disks.at(d).listings; r != 0; r = s.listings.at(r).nextOfDisk {
			names = append(names, s.places.at(s.listings.at(r).place).name)
		}
	}
	slices.Sort(names)
	return names
}

// NodeNames names the nodes whose CSINode carries that node ID of this driver.
func (x *Index) NodeNames(nodeID string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []string
	for r := x.store.placeByID[nodeID]; r != 0; r = x.store.places.at(r).nextOfID {
		names = append(names, x.store.places.at(r).name)
	}
	slices.Sort(names)
	return names
}

// NodeID is this driver's node ID on the node's CSINode; empty: none.
func (x *Index) NodeID(nodeName string) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if p := x.store.placeOf(nodeName); p != nil {
		return p.nodeID
	}
	return ""
}

// NodeIDs are all node IDs of this driver.
func (x *Index) NodeIDs() []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	ids := make([]string, 0, len(x.store.placeByID))
	for id := range x.store.placeByID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// SystemShared tells whether another Node than that one reports that system UUID.
func (x *Index) SystemShared(nodeName, systemUUID string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	key := fence.SystemKey(systemUUID)
	others := x.store.systems[key]
	if p := x.store.placeOf(nodeName); p != nil && p.node != nil && p.node.system == key {
		others--
	}
	return others > 0
}

// How many volumes a Node is shown with.
const (
	allVolumes = -1
	oneVolume  = 1
)

// Node is a Node as it is watched, for the caller to keep; nil: there is none. It
// has its UID, resourceVersion, provider ID, taints, boot ID, system UUID (in one spelling,
// fence.SystemKey) and Ready condition, and of the volumes that it lists those of the driver.
func (x *Index) Node(name string) *corev1.Node {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := &corev1.Node{}
	if !x.store.showNode(name, n, allVolumes) {
		return nil
	}
	return n
}

// EachNode calls f for each Node that is watched, as Node shows it, but with one
// of the driver's volumes at most: that tells that it lists any. The Node is only
// good until f returns: a copy has to be kept instead.
func (x *Index) EachNode(f func(*corev1.Node)) {
	shown := &corev1.Node{}
	for r := ref(1); x.showNext(r, shown); r++ {
		if shown.Name != "" {
			f(shown)
		}
	}
}

// showNext shows the Node of a place, if there is one; false: there is no such
// place, nor any behind it. f of EachNode may ask the index: it is called without
// the lock.
func (x *Index) showNext(r ref, into *corev1.Node) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r > x.store.places.last {
		return false
	}
	if p := x.store.places.at(r); p.node == nil || !x.store.showNode(p.name, into, oneVolume) {
		into.Name = ""
	}
	return true
}

// showNode writes a Node as it is known; false: there is none.
func (s *store) showNode(name string, into *corev1.Node, volumes int) bool {
	p := s.placeOf(name)
	if p == nil || p.node == nil {
		return false
	}
	conditions, inUse, attached := into.Status.Conditions[:0], into.Status.VolumesInUse[:0], into.Status.VolumesAttached[:0]
	*into = corev1.Node{}
	into.Name = p.name
	into.Status.Conditions = conditions
	p.node.fill(into)
	for r := p.listings; r != 0 && volumes != 0; r = s.listings.at(r).nextOfPlace {
		l := s.listings.at(r)
		name := s.ids.UniqueName(s.disks.at(l.disk).key.String())
		if l.inUse {
			inUse = append(inUse, name)
		}
		if l.attached {
			attached = append(attached, corev1.AttachedVolume{Name: name})
		}
		volumes--
	}
	into.Status.VolumesInUse, into.Status.VolumesAttached = inUse, attached
	return true
}
