package array

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// DefaultVolumeBytes is the size of a volume for which nobody asks a size.
const DefaultVolumeBytes = 1 << 30

// VolumeOptions of a volume that is made from Go. The zero value is a
// single-writer filesystem volume of DefaultVolumeBytes.
type VolumeOptions struct {
	Bytes int64
	// Block allows only raw block access; otherwise only a filesystem.
	Block bool
	// MultiWriter allows MULTI_NODE_MULTI_WRITER.
	MultiWriter bool
}

// A volume and who may reach it.
type volume struct {
	id, name string
	ordinal  int
	options  VolumeOptions
	own      *Switches // of this volume; nil: the array's
	attached map[string]*attachment
	writes   map[string]*NodeWrites
	last     *mount     // the mount whose write was accepted last
	disk     sync.Mutex // see Disks; held before array.mu
}

// An attachment lets one node reach a volume.
type attachment struct {
	readonly   bool
	capability *spec.VolumeCapability // nil: attached by hand
}

// CreateVolume makes a volume with the given volume ID. It fails if the ID is
// empty or taken.
func (a *Array) CreateVolume(id string, options VolumeOptions) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == "" {
		return fmt.Errorf("create volume: the volume ID is empty")
	}
	if a.volumes[id] != nil {
		return fmt.Errorf("create volume %q: it exists already", id)
	}
	a.createVolumeLocked(id, id, options)
	return nil
}

func (a *Array) createVolumeLocked(id, name string, options VolumeOptions) *volume {
	if options.Bytes <= 0 {
		options.Bytes = DefaultVolumeBytes
	}
	a.ordinal++
	v := &volume{
		id: id, name: name, ordinal: a.ordinal, options: options,
		attached: map[string]*attachment{}, writes: map[string]*NodeWrites{},
	}
	a.volumes[id] = v
	a.changedLocked()
	return v
}

// volumesLocked lists the volumes in the order in which they were created.
func (a *Array) volumesLocked() []*volume {
	return slices.SortedFunc(maps.Values(a.volumes), func(x, y *volume) int { return cmp.Compare(x.ordinal, y.ordinal) })
}

func (a *Array) volumeNamedLocked(name string) *volume {
	for _, v := range a.volumes {
		if v.name == name {
			return v
		}
	}
	return nil
}

// Attach attaches a volume to a node by hand, past the driver and past
// EnforceSingleAttach: this is how an orphan attachment is made.
func (a *Array) Attach(volumeID, nodeID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, m := a.volumes[volumeID], a.machines[nodeID]
	if v == nil {
		return fmt.Errorf("attach volume %q: no such volume", volumeID)
	}
	if m == nil {
		return fmt.Errorf("attach volume %q: no such node %q", volumeID, nodeID)
	}
	a.attachLocked(v, nodeID, &attachment{}, "by hand")
	return nil
}

// Detach ends all access of a node to a volume by hand, a session that holds
// on included. It is no violation: the scenario does it, not the driver's user.
func (a *Array) Detach(volumeID, nodeID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.volumes[volumeID]
	if v == nil {
		return fmt.Errorf("detach volume %q: no such volume", volumeID)
	}
	delete(v.attached, nodeID)
	if mt := a.mountLocked(v, nodeID); mt != nil {
		mt.heldOn = false
	}
	a.eventLocked(volumeID, nodeID, "detached by hand")
	a.judgeLocked(v)
	return nil
}

// Attached lists the nodes to which the array has attached the volume, sorted.
func (a *Array) Attached(volumeID string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := a.volumes[volumeID]; v != nil {
		return v.attachedNodes()
	}
	return nil
}

// AttachedVolumes lists the volumes that the array has attached to the node,
// sorted.
func (a *Array) AttachedVolumes(nodeID string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []string
	for id, v := range a.volumes {
		if v.attached[nodeID] != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (v *volume) attachedNodes() []string { return slices.Sorted(maps.Keys(v.attached)) }

func (a *Array) attachLocked(v *volume, nodeID string, at *attachment, how string) {
	v.attached[nodeID] = at
	if mt := a.mountLocked(v, nodeID); mt != nil {
		mt.heldOn = false
	}
	a.eventLocked(v.id, nodeID, "attached "+how)
	a.judgeLocked(v)
}

// detachLocked takes the volume from a node on behalf of a CSI call.
func (a *Array) detachLocked(v *volume, nodeID, how string) {
	if v.attached[nodeID] == nil {
		return
	}
	delete(v.attached, nodeID)
	a.eventLocked(v.id, nodeID, "detached "+how)
	if mt := a.mountLocked(v, nodeID); mt != nil {
		// A fence has dropped the sessions, and has taken the volume before.
		cut := a.cutOffLocked(nodeID)
		mt.heldOn = a.switchesLocked(v).ClientHoldsOn && !cut
		if !mt.heldOn {
			a.options.Mounts.Revoke(nodeID, v.id)
		}
		if !cut {
			a.takenLocked(v, nodeID, mt, how)
		}
	}
	a.judgeLocked(v)
}

// canWriteLocked says whether the array accepts a write from this node now.
func (a *Array) canWriteLocked(v *volume, nodeID string) bool {
	if a.cutOffLocked(nodeID) {
		return false
	}
	if at := v.attached[nodeID]; at != nil {
		return !at.readonly
	}
	mt := a.mountLocked(v, nodeID)
	return mt != nil && mt.heldOn && !mt.readonly
}

// mode is the access mode under which the volume is attached.
func (v *volume) mode(at *attachment) spec.VolumeCapability_AccessMode_Mode {
	switch {
	case at.capability != nil:
		return at.capability.GetAccessMode().GetMode()
	case v.options.MultiWriter:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	default:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
}

// rivals lists the nodes whose attachment excludes one by nodeID, sorted.
func (v *volume) rivals(nodeID string, wanted *attachment) []string {
	var rivals []string
	for _, other := range v.attachedNodes() {
		if other != nodeID && !(multiNode(v.mode(wanted)) && multiNode(v.mode(v.attached[other]))) {
			rivals = append(rivals, other)
		}
	}
	return rivals
}

// multiNode says whether a mode allows the volume on several nodes.
func multiNode(mode spec.VolumeCapability_AccessMode_Mode) bool {
	switch mode {
	case spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return true
	}
	return false
}

// readerOnly says whether nobody writes under this mode.
func readerOnly(mode spec.VolumeCapability_AccessMode_Mode) bool {
	return mode == spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}
