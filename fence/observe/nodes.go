package observe

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
)

// node is a Node, but for the volumes that it lists.
type node struct {
	uid, version, providerID, bootID string
	system                           string // by fence.SystemKey
	kubelet                          string // host and port of its server; empty: it says none
	taints                           []corev1.Taint
	// ready is the condition's status, empty: there is none; readySince its
	// lastTransitionTime. Its heartbeat is no change.
	ready      corev1.ConditionStatus
	readySince metav1.Time
	round      round
}

func nodeOf(n *corev1.Node) *node {
	kept := &node{uid: string(n.UID), version: n.ResourceVersion, providerID: n.Spec.ProviderID, bootID: n.Status.NodeInfo.BootID,
		system: fence.SystemKey(n.Status.NodeInfo.SystemUUID),
		taints: slices.Clone(n.Spec.Taints)}
	kept.kubelet, _ = kubelet.Address(n)
	if c := fence.ReadyCondition(n); c != nil {
		kept.ready, kept.readySince = c.Status, c.LastTransitionTime
	}
	return kept
}

// same tells that nothing but its version is another.
func (n *node) same(other *node) bool {
	return n != nil && n.uid == other.uid && n.providerID == other.providerID && n.bootID == other.bootID && n.system == other.system && n.kubelet == other.kubelet &&
		n.ready == other.ready && n.readySince.Equal(&other.readySince) && slices.EqualFunc(n.taints, other.taints, sameTaint)
}

func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect && a.TimeAdded.Equal(b.TimeAdded)
}

// fill writes it into an empty Node.
func (n *node) fill(into *corev1.Node) {
	into.UID, into.ResourceVersion = types.UID(n.uid), n.version
	into.Spec.ProviderID, into.Spec.Taints = n.providerID, n.taints
	into.Status.NodeInfo.BootID, into.Status.NodeInfo.SystemUUID = n.bootID, n.system
	if host, port, err := net.SplitHostPort(n.kubelet); err == nil {
		into.Status.Addresses = append(into.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: host})
		at, _ := strconv.Atoi(port)
		into.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at)
	}
	if n.ready != "" {
		into.Status.Conditions = append(into.Status.Conditions[:0], corev1.NodeCondition{Type: corev1.NodeReady, Status: n.ready, LastTransitionTime: n.readySince})
	}
}

// listed is a volume of the driver in a Node's status, by Identity.Key.
type listed struct {
	key             string
	inUse, attached bool
}

// listedBy are the volumes of the driver that a Node's status names, sorted.
func (s *store) listedBy(n *corev1.Node) []listed {
	var all []listed
	add := func(name corev1.UniqueVolumeName, inUse, attached bool) {
		if handle, ok := s.ids.HandleOf(name); ok {
			all = append(all, listed{s.ids.Key(handle), inUse, attached})
		}
	}
	for _, name := range n.Status.VolumesInUse {
		add(name, true, false)
	}
	for _, a := range n.Status.VolumesAttached {
		add(a.Name, false, true)
	}
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.key, b.key) })
	merged := all[:0]
	for _, l := range all {
		if n := len(merged); n > 0 && merged[n-1].key == l.key {
			merged[n-1].inUse, merged[n-1].attached = merged[n-1].inUse || l.inUse, merged[n-1].attached || l.attached
		} else {
			merged = append(merged, l)
		}
	}
	return merged
}

// lists tells whether a place has what listedBy gave.
func (p *place) lists(all []listed) bool {
	return slices.EqualFunc(p.listings, all, func(a listing, b listed) bool {
		return a.disk.key == b.key && a.inUse == b.inUse && a.attached == b.attached
	})
}

// putNode takes a Node as it is now, and tells whether more changed of it than
// its version.
func (s *store) putNode(n *corev1.Node) (changed bool) {
	kept, lists := nodeOf(n), s.listedBy(n)
	kept.round = s.round[nodes]
	p := s.place(n.Name)
	sameNode := p.node != nil && p.node.uid == kept.uid
	changed = !p.node.same(kept)
	if p.node != nil && !changed {
		// Most often: all that it says is there already.
		p.node.version, p.node.round = kept.version, kept.round
	} else {
		s.report(p.node, -1)
		s.report(kept, 1)
		p.node = kept
	}
	if !sameNode || !p.lists(lists) {
		changed = true
		s.noteForced(p, lists, sameNode)
		s.setListings(p, lists)
	}
	return changed
}

// noteForced takes note of the VolumeAttachments of a node whose volumes are in volumesAttached no
// more, and in volumesInUse still; and of those of which it has done so in this boot, when they are put
// back, and leave again. Its Node has lists now, and is the same one as before, or not.
func (s *store) noteForced(p *place, lists []listed, same bool) {
	now := time.Now()
	for _, a := range p.attachments {
		key := s.ids.Key(a.handle())
		i, had := slices.BinarySearchFunc(p.listings, key, func(l listing, key string) int { return strings.Compare(l.disk.key, key) })
		had = had && same && p.listings[i].attached
		i, has := slices.BinarySearchFunc(lists, key, func(l listed, key string) int { return strings.Compare(l.key, key) })
		inUse := has && lists[i].inUse
		has = has && lists[i].attached
		switch marked := a.forced != nil && a.forced.boot == p.node.bootID; {
		case !marked && had && !has && inUse:
			a.forced = &forced{fence.Forced{Taken: now}, p.node.bootID}
		case marked && had && !has:
			a.forced.Off = now
		case marked && !had && has:
			a.forced.Back, a.forced.Off = now, time.Time{}
		}
	}
}

// dropNode takes a Node out, and tells whether it was there.
func (s *store) dropNode(name string) bool {
	p := s.places[name]
	if p == nil || p.node == nil {
		return false
	}
	s.report(p.node, -1)
	p.node = nil
	s.setListings(p, nil)
	s.leave(p)
	return true
}

// report counts a Node among those that report its system UUID.
func (s *store) report(n *node, by int) {
	if n == nil {
		return
	}
	if s.systems[n.system] += by; s.systems[n.system] == 0 {
		delete(s.systems, n.system)
	}
}

// sweepNodes ends a listing. It returns the Nodes that are gone.
func (s *store) sweepNodes() (gone []string) {
	s.listing[nodes] = false
	gone = s.placesWhere(func(p *place) bool { return p.node != nil && p.node.round != s.round[nodes] })
	for _, name := range gone {
		s.dropNode(name)
	}
	return gone
}

func (s *store) setListings(p *place, lists []listed) {
	for _, l := range p.listings {
		l.disk.listedBy = without(l.disk.listedBy, p)
		s.leaveDisk(l.disk)
	}
	p.listings = make([]listing, 0, len(lists))
	for _, one := range lists {
		d := s.disk(one.key)
		d.listedBy = append(d.listedBy, p)
		p.listings = append(p.listings, listing{d, one.inUse, one.attached})
	}
}

// putCSINode takes the driver's node ID on a CSINode; empty: there is none. A
// CSINode without the driver is as good as none. It tells whether it changed.
func (s *store) putCSINode(name, id string) (changed bool) {
	if id == "" && s.places[name] == nil {
		return false
	}
	p := s.place(name)
	p.csiRound = s.round[csiNodes]
	if p.nodeID == id {
		return false
	}
	if p.nodeID != "" {
		if s.placesByID[p.nodeID] = without(s.placesByID[p.nodeID], p); len(s.placesByID[p.nodeID]) == 0 {
			delete(s.placesByID, p.nodeID)
		}
	}
	p.nodeID = id
	if id != "" {
		s.placesByID[id] = append(s.placesByID[id], p)
	}
	s.leave(p)
	return true
}

// sweepCSINodes ends a listing. It returns those that are gone.
func (s *store) sweepCSINodes() (gone []string) {
	s.listing[csiNodes] = false
	gone = s.placesWhere(func(p *place) bool { return p.nodeID != "" && p.csiRound != s.round[csiNodes] })
	for _, name := range gone {
		s.putCSINode(name, "")
	}
	return gone
}

// putLease notes that a node has a lease, or has none.
func (s *store) putLease(name string, there bool) {
	if !there && s.places[name] == nil {
		return
	}
	p := s.place(name)
	p.leased, p.leaseRound = there, s.round[leases]
	s.leave(p)
}

// sweepLeases ends a listing. It returns the nodes whose leases are gone.
func (s *store) sweepLeases() (gone []string) {
	s.listing[leases] = false
	gone = s.placesWhere(func(p *place) bool { return p.leased && p.leaseRound != s.round[leases] })
	for _, name := range gone {
		s.putLease(name, false)
	}
	return gone
}

// putRecord takes the lease of a node's record; node empty: it is none. It
// returns the nodes that it told something new of.
func (s *store) putRecord(lease, node, version string) (changed []string) {
	old, known := s.records[lease]
	if known && old.version == version && old.node == node {
		old.round = s.round[records]
		s.records[lease] = old
		return nil
	}
	if known && old.node != node {
		changed = append(changed, old.node)
	}
	if node == "" {
		delete(s.records, lease)
		return changed
	}
	s.records[lease] = recorded{node: node, version: version, round: s.round[records]}
	return append(changed, node)
}

// dropRecord takes the lease of a node's record out.
func (s *store) dropRecord(lease string) (changed []string) {
	if old, known := s.records[lease]; known {
		changed = []string{old.node}
	}
	delete(s.records, lease)
	return changed
}

// sweepRecords ends a listing. It returns the nodes whose records are gone.
func (s *store) sweepRecords() (changed []string) {
	s.listing[records] = false
	for _, lease := range byName(s.records) {
		if s.records[lease].round != s.round[records] {
			changed = append(changed, s.dropRecord(lease)...)
		}
	}
	return changed
}
