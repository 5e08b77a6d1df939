package array

import (
	"fmt"
	"time"
)

// Switches say what kind of array this is. Failures of single calls are
// Faults (see Inject).
type Switches struct {
	// EnforceSingleAttach refuses to publish a volume elsewhere, with
	// FAILED_PRECONDITION and the node's name, unless both publishes are for
	// a multi-node access mode.
	EnforceSingleAttach bool
	// PublishMoves takes the volume from its old node when it is published
	// elsewhere, without asking. It comes before EnforceSingleAttach.
	PublishMoves bool
	// ClientHoldsOn leaves a client that has the volume mounted its open
	// session when the volume is unpublished: it writes on until it unmounts
	// or loses power. Otherwise unpublish revokes access at once.
	ClientHoldsOn bool
	// PublishTakes and UnpublishTakes are how long each such call takes.
	PublishTakes, UnpublishTakes time.Duration

	// The rest belongs to the whole array; SetVolume does not change it.

	// ListVolumes offers ListVolumes.
	ListVolumes bool
	// ListPublishedNodes tells the published node IDs in ListVolumes and
	// ControllerGetVolume, and has the capability for it.
	ListPublishedNodes bool
	// GetVolume offers ControllerGetVolume.
	GetVolume bool
	// PageSize is the most entries that ListVolumes answers at once; 0: all.
	PageSize int
	// Everything offers what csi-sanity asks for and no scenario needs:
	// snapshots, also of groups; clones; expansion; mutable parameters; health;
	// topology; a limit of volumes per node (MaxVolumesPerNode).
	Everything bool

	// CSIAddons serves csi-addons' Identity on the controller socket, and
	// NetworkFence its FenceController as well: a machine all of whose addresses
	// (SetAddresses) are fenced has no access, open sessions included.
	CSIAddons, NetworkFence bool
	// FenceClients tells the machines' addresses by node ID (GetFenceClients).
	FenceClients bool
	// FenceClientIsUs answers GetFenceClients as Ceph-CSI does: with the address
	// of the driver's own process, under the ID of the storage cluster.
	FenceClientIsUs bool
	// FenceUnlisted leaves what is fenced out of the list; FenceOnlyListed lists what is fenced,
	// which writes on.
	FenceUnlisted, FenceOnlyListed bool
}

// DefaultSwitches is an array as one would wish for: single attach enforced,
// access revoked on unpublish, published nodes listed.
func DefaultSwitches() Switches {
	return Switches{EnforceSingleAttach: true, ListVolumes: true, ListPublishedNodes: true, GetVolume: true}
}

// Set changes the switches of the array, from the next call on.
func (a *Array) Set(change func(*Switches)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.switches)
}

// SetVolume changes the switches for one volume. From then on its
// EnforceSingleAttach, PublishMoves, ClientHoldsOn, PublishTakes and
// UnpublishTakes are its own, and Set does not reach it.
func (a *Array) SetVolume(volumeID string, change func(*Switches)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.volumes[volumeID]
	if v == nil {
		return fmt.Errorf("set switches of volume %q: no such volume", volumeID)
	}
	own := a.switchesLocked(v)
	change(&own)
	v.own = &own
	return nil
}

// switchesLocked are the switches that hold for v, which may be nil.
func (a *Array) switchesLocked(v *volume) Switches {
	if v != nil && v.own != nil {
		return *v.own
	}
	return a.switches
}
