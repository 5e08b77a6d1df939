package array

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A machine is what a node ID stands for. Its mounts live and die with its
// power, not with its kubelet.
type machine struct {
	id     string
	off    bool
	paused bool
	mounts map[string]*mount // by volume ID
	// addresses under which the array sees the machine
	addresses []netip.Addr
}

// A mount is a volume on a machine, from NodeStageVolume until it is unstaged
// and unpublished, or until the machine loses power.
type mount struct {
	session  int // tells this mount from an earlier one on the same machine
	nodeID   string
	mode     spec.VolumeCapability_AccessMode_Mode
	readonly bool            // the attachment was
	heldOn   bool            // detached, but the open session still writes
	staging  map[string]bool // paths
	targets  map[string]bool // path: read-only?
	sequence int             // of the last write
	accepted int             // writes accepted through this mount
	rejected bool            // was the last write?
	written  int64           // Mounts.Written when it was last asked
}

// writes says whether a container on the machine writes through this mount.
func (mt *mount) writes() bool {
	if readerOnly(mt.mode) {
		return false
	}
	for _, readonly := range mt.targets {
		if !readonly {
			return true
		}
	}
	return false
}

// couldWrite says whether this mount may carry writes at all.
func (mt *mount) couldWrite() bool { return !mt.readonly && !readerOnly(mt.mode) }

// shared says whether other nodes may write at the same time.
func (mt *mount) shared() bool {
	return mt.mode == spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

// AddMachine makes the machine known to the array, with power on, as ServeNode
// does. A machine that is known already is left as it is.
func (a *Array) AddMachine(nodeID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if nodeID == "" {
		return fmt.Errorf("add machine: the node ID is empty")
	}
	if a.machines[nodeID] == nil {
		a.machines[nodeID] = &machine{id: nodeID, mounts: map[string]*mount{}}
		a.eventLocked("", nodeID, "machine known to the array")
	}
	return nil
}

// RemoveMachine takes the machine away for good, as a cloud does when an
// instance is terminated: its power, its mounts and its attachments are gone,
// and the driver answers NOT_FOUND to a publish for it.
func (a *Array) RemoveMachine(nodeID string) error {
	return a.withMachine(nodeID, "removed", func(m *machine) {
		m.off = true
		clear(m.mounts)
		for _, v := range a.volumes {
			delete(v.attached, nodeID)
		}
		delete(a.machines, nodeID)
	})
}

// RenameMachine gives the machine another node ID, as the upgrade of a driver does that
// names its machines otherwise than before. What it has attached and mounted stays, under
// the new ID; the old one is nobody's. Its node side has to have ended.
func (a *Array) RenameMachine(nodeID, to string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.machines[nodeID]
	if m == nil || to == "" || a.machines[to] != nil {
		return fmt.Errorf("rename machine %q to %q: known are %q", nodeID, to, slices.Sorted(maps.Keys(a.machines)))
	}
	delete(a.machines, nodeID)
	m.id, a.machines[to] = to, m
	for _, mt := range m.mounts {
		mt.nodeID = to
	}
	for _, v := range a.volumes {
		if at := v.attached[nodeID]; at != nil {
			v.attached[to] = at
			delete(v.attached, nodeID)
		}
		if w := v.writes[nodeID]; w != nil {
			w.Node, v.writes[to] = to, w
			delete(v.writes, nodeID)
		}
	}
	a.eventLocked("", to, "is the node ID of "+nodeID+" from now on")
	return nil
}

// PowerOff takes the power from a machine: its mounts and writers are gone at
// once. What the array has attached to it stays attached.
func (a *Array) PowerOff(nodeID string) error {
	return a.withMachine(nodeID, "power off", func(m *machine) {
		m.off, m.paused = true, false
		clear(m.mounts)
	})
}

// PowerOn boots a machine that is off. It comes up with nothing mounted.
func (a *Array) PowerOn(nodeID string) error {
	return a.withMachine(nodeID, "power on", func(m *machine) { m.off = false })
}

// Reboot is PowerOff and PowerOn in one instant.
func (a *Array) Reboot(nodeID string) error {
	return a.withMachine(nodeID, "reboot", func(m *machine) {
		m.off, m.paused = false, false
		clear(m.mounts)
	})
}

// PauseMachine stops a machine as a hypervisor pauses a VM: it writes nothing
// and its node socket answers nothing, until ResumeMachine. To the oracle it
// has power, for it may go on at any moment.
func (a *Array) PauseMachine(nodeID string) error {
	return a.withMachine(nodeID, "paused", func(m *machine) { m.paused = true })
}

// ResumeMachine lets a paused machine go on where it was.
func (a *Array) ResumeMachine(nodeID string) error {
	return a.withMachine(nodeID, "resumed", func(m *machine) { m.paused = false })
}

// Powered says whether the machine is known and has power.
func (a *Array) Powered(nodeID string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.machines[nodeID]
	return m != nil && !m.off
}

// Machines lists the node IDs that the array knows, sorted.
func (a *Array) Machines() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.machines))
}

// InUse lists the machines with power that have the volume staged or
// published, sorted.
func (a *Array) InUse(volumeID string) []string {
	return a.nodesWhere(volumeID, func(*mount) bool { return true })
}

// Published lists the machines with power that have the volume published to a
// container, sorted.
func (a *Array) Published(volumeID string) []string {
	return a.nodesWhere(volumeID, func(mt *mount) bool { return len(mt.targets) > 0 })
}

func (a *Array) nodesWhere(volumeID string, match func(*mount) bool) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var nodes []string
	for id, m := range a.machines {
		if mt := m.mounts[volumeID]; mt != nil && match(mt) {
			nodes = append(nodes, id)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (a *Array) withMachine(nodeID, what string, change func(*machine)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.machines[nodeID]
	if m == nil {
		return fmt.Errorf("%s: no such machine %q; known are %q", what, nodeID, slices.Sorted(maps.Keys(a.machines)))
	}
	change(m)
	a.eventLocked("", nodeID, what)
	for _, v := range a.volumes {
		a.judgeLocked(v)
	}
	return nil
}

// mountLocked is the volume's mount on a machine, or nil. A machine without
// power has none.
func (a *Array) mountLocked(v *volume, nodeID string) *mount {
	if m := a.machines[nodeID]; m != nil {
		return m.mounts[v.id]
	}
	return nil
}

// poweredLocked is the machine behind a node socket, or UNAVAILABLE.
func (a *Array) poweredLocked(nodeID string) (*machine, error) {
	m := a.machines[nodeID]
	switch {
	case m == nil:
		return nil, status.Errorf(codes.Unavailable, "machine %q is gone", nodeID)
	case m.off:
		return nil, status.Errorf(codes.Unavailable, "machine %q is off", nodeID)
	}
	return m, nil
}
