package agent

import (
	"context"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Machine is the one that an agent is to act on. Everything is what Kubernetes
// last said of it; what is not known is empty.
type Machine struct {
	// Node is the Node's name, by which agents are configured.
	Node string
	// UID and BootID of the Node that is meant. Another machine may have taken
	// its name since.
	UID, BootID string
	// NodeID is the driver's.
	NodeID string
	// SystemUUID is status.nodeInfo.systemUUID, which a BMC knows as its GUID.
	SystemUUID string
	// ProviderID is spec.providerID, which names a cloud's instance.
	ProviderID string
	// Addresses are the Node's IP addresses.
	Addresses []string
	// Fenced are the CIDR blocks that a storage fence of this machine named, as
	// its record has them: access is given back to these too, if it has come
	// back under other addresses.
	Fenced []string
}

// State is what an agent reads. The zero State proves nothing.
type State int

const (
	// Unclear: a time-out, an error, suspended, shutting down, not found, or
	// an answer that contradicts itself.
	Unclear State = iota
	// On: the machine has power, or its access to the storage is open.
	On
	// Off: the machine has no power, or its access is cut.
	Off
)

func (s State) String() string { return [...]string{"unclear", "on", "off"}[known(s)] }

// Reading is one answer of a device.
type Reading struct {
	State State
	// Detail is the device's own words, shortened, without secrets.
	Detail string
}

// Agent reads and cuts the power of machines, or their access to the storage.
// It is safe for concurrent use.
//
// Each call ends when its ctx does, and leaves nothing running behind: no
// process, and no request that could take effect later. It acts on the machine
// that it is given or fails: an Agent that can tell that the device belongs to
// another machine returns an error. No error and no Detail shows a secret.
type Agent interface {
	// Name is the configured one; it does not change.
	Name() string
	// Proves is what State Off amounts to: fence.PowerReading or
	// fence.StorageFence.
	Proves() fence.Kind
	// Covers tells whether the agent is configured for that node.
	Covers(node string) bool
	// Status reads. It never changes anything. With an error the Reading is
	// Unclear; its Detail is kept for the audit trail.
	Status(ctx context.Context, m Machine) (Reading, error)
	// Off cuts at once, without a graceful shutdown. Its success is no proof:
	// Status is asked afterwards. Calling it twice does no harm.
	Off(ctx context.Context, m Machine) (detail string, err error)
	// On gives power or access back.
	On(ctx context.Context, m Machine) (detail string, err error)
}

// Checker is an Agent that can tell whether it is able to fence a machine
// without touching its power.
type Checker interface {
	// Check returns everything that is wrong, and what the agent would act on:
	// a text that is the same for two machines only if they share one outlet,
	// one BMC or one instance; empty if that cannot be told.
	Check(ctx context.Context, m Machine) (device string, faults []error)
}
