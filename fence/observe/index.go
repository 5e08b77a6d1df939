package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Volumes names the PersistentVolumes with that handle.
func (x *Index) Volumes(handle string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []string
	if d := x.store.diskOf(handle); d != nil {
		for _, v := range d.volumes {
			names = append(names, v.name)
		}
	}
	slices.Sort(names)
	return names
}

// Attachments names the VolumeAttachments of that volume, in any state: those
// that refer to one of its PVs, those that carry it inline, and those whose
// name is made from it although the PV that they refer to is gone.
func (x *Index) Attachments(handle string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s, names := x.store, sets.New[string]()
	if d := s.diskOf(handle); d != nil {
		for _, a := range d.inline {
			names.Insert(a.name)
		}
		for _, v := range d.volumes {
			for _, a := range v.attachments {
				names.Insert(a.name)
			}
		}
	}
	for a := range s.strays {
		if a.name == csi.AttachmentName(handle, s.ids.Driver, a.place.name) {
			names.Insert(a.name)
		}
	}
	return sets.List(names)
}

// NodesListing names the Nodes whose volumesInUse or volumesAttached names the
// volume.
func (x *Index) NodesListing(handle string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if d := x.store.diskOf(handle); d != nil {
		return namesOf(d.listedBy)
	}
	return nil
}

// NodeNames names the nodes whose CSINode carries that node ID of this driver.
func (x *Index) NodeNames(nodeID string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return namesOf(x.store.placesByID[nodeID])
}

func namesOf(places []*place) (names []string) {
	for _, p := range places {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// NodeID is this driver's node ID on the node's CSINode; empty: none.
func (x *Index) NodeID(nodeName string) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if p := x.store.places[nodeName]; p != nil {
		return p.nodeID
	}
	return ""
}

// NodeIDs are all node IDs of this driver.
func (x *Index) NodeIDs() []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return byName(x.store.placesByID)
}

// SystemShared tells whether another Node than that one reports that system UUID.
func (x *Index) SystemShared(nodeName, systemUUID string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	key := fence.SystemKey(systemUUID)
	others := x.store.systems[key]
	if p := x.store.places[nodeName]; p != nil && p.node != nil && p.node.system == key {
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
	x.mu.RLock()
	names := x.store.placesWhere(func(p *place) bool { return p.node != nil })
	x.mu.RUnlock()
	shown := &corev1.Node{}
	for _, name := range names {
		// f may ask the index: it is called without the lock.
		x.mu.RLock()
		there := x.store.showNode(name, shown, oneVolume)
		x.mu.RUnlock()
		if there {
			f(shown)
		}
	}
}

// showNode writes a Node as it is known; false: there is none.
func (s *store) showNode(name string, into *corev1.Node, volumes int) bool {
	p := s.places[name]
	if p == nil || p.node == nil {
		return false
	}
	addresses, conditions, inUse, attached := into.Status.Addresses[:0], into.Status.Conditions[:0], into.Status.VolumesInUse[:0], into.Status.VolumesAttached[:0]
	*into = corev1.Node{}
	into.Name = p.name
	into.Status.Addresses, into.Status.Conditions = addresses, conditions
	p.node.fill(into)
	for _, l := range p.listings {
		if volumes == 0 {
			break
		}
		name := s.ids.UniqueName(l.disk.key)
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
