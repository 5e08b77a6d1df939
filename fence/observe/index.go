package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Volumes names the PersistentVolumes with that handle.
func (w *Watch) Volumes(handle string) []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var names []string
	w.store.eachVolume(handle, func(v *volume) { names = append(names, v.name.String()) })
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
func (w *Watch) Attachments(handle string) []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	s, names := w.store, sets.New[string]()
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
func (w *Watch) NodesListing(handle string) []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	s, names := w.store, []string(nil)
	if d := s.findDisk(handle); d != 0 {
		for r := s.disks.at(d).listings; r != 0; r = s.listings.at(r).nextOfDisk {
			names = append(names, s.places.at(s.listings.at(r).place).name)
		}
	}
	slices.Sort(names)
	return names
}

// NodeNames names the nodes whose CSINode carries that node ID of this driver.
func (w *Watch) NodeNames(nodeID string) []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var names []string
	for r := w.store.placeByID[nodeID]; r != 0; r = w.store.places.at(r).nextOfID {
		names = append(names, w.store.places.at(r).name)
	}
	slices.Sort(names)
	return names
}

// NodeID is this driver's node ID on the node's CSINode; empty: none.
func (w *Watch) NodeID(nodeName string) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.store.placeOf(nodeName); p != nil {
		return p.nodeID
	}
	return ""
}

// NodeIDs are all node IDs of this driver.
func (w *Watch) NodeIDs() []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	ids := make([]string, 0, len(w.store.placeByID))
	for id := range w.store.placeByID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// SystemShared tells whether another Node than that one reports that system UUID.
func (w *Watch) SystemShared(nodeName, systemUUID string) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	key := fence.SystemKey(systemUUID)
	others := w.store.systems[key]
	if p := w.store.placeOf(nodeName); p != nil && p.node != nil && p.node.system == key {
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
func (w *Watch) Node(name string) *corev1.Node {
	w.mu.RLock()
	defer w.mu.RUnlock()
	n := &corev1.Node{}
	if !w.store.showNode(name, n, allVolumes) {
		return nil
	}
	return n
}

// EachNode calls f for each Node that is watched, as Node shows it, but with one
// of the driver's volumes at most: that tells that it lists any. The Node is only
// good until f returns: a copy has to be kept instead.
func (w *Watch) EachNode(f func(*corev1.Node)) {
	shown := &corev1.Node{}
	for r := ref(1); w.showNext(r, shown); r++ {
		if shown.Name != "" {
			f(shown)
		}
	}
}

// showNext shows the Node of a place, if there is one; false: there is no such
// place, nor any behind it. f of EachNode may ask the index: it is called without
// the lock.
func (w *Watch) showNext(r ref, into *corev1.Node) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if r > w.store.places.last {
		return false
	}
	if p := w.store.places.at(r); p.node == nil || !w.store.showNode(p.name, into, oneVolume) {
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
