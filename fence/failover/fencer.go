package failover

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// Target is the machine to ask about, or to act on, as a live read showed it.
type Target struct {
	agent.Machine
	// LeaseRV is the resourceVersion of the node's lease, read after the Node;
	// empty: there is none. Off must fail where the live lease is another one.
	LeaseRV string
	// Fences are the IDs of those that On or Lift is about; they must fail where
	// another one stands. Nil: any.
	Fences []string
	// Still is asked under the node's lock, right before anything is sent, with the
	// Node as it was just read; where it fails nothing is. Lift must ask it when the
	// fence proves nothing any more.
	Still func(ctx context.Context, node *corev1.Node) error
}

// Answer is what the agents of a node say, all levels weighed.
type Answer struct {
	State agent.State
	// Kind is what Off amounts to: fence.PowerReading or fence.StorageFence.
	Kind fence.Kind
	// Why says in words which agent answered what. It is the same from retry
	// to retry, and without secrets.
	Why string
}

// Fence is what a node's record says of one fence.
type Fence struct {
	ID   string
	Node string
	// NodeUID, BootID and LeaseRV of the machine, the lease read after the
	// agent's observation. They stay as they were when the fence becomes void.
	// Where the Node was gone, UID and boot ID are a ledger's, and so those of a
	// publish.
	NodeUID, BootID, LeaseRV string
	// SystemUUID of the machine as its Node reported it; empty: not known.
	SystemUUID string
	Kind       fence.Kind
	// Source names the agents.
	Source string
	// Cut: it was switched or cut off, not found off. Sidecar: not by a person.
	Cut, Sidecar bool
	// At is the writer's clock. The brakes count by it; nothing is permitted by
	// it.
	At time.Time
	// Void says why it does not count any more; empty: it does.
	Void string
	// Lifting: access is being given back. It is still to be lifted, and proves
	// nothing.
	Lifting bool
}

// Fencer asks and uses the fence agents, and keeps the nodes' records. It is
// safe for concurrent use.
type Fencer interface {
	// Covers tells whether agents are configured for the node, and Agents names
	// them for people.
	Covers(node string) bool
	Agents(node string) string
	// StorageOnly tells whether all of them only cut the node off from this
	// driver's storage: what its pods have elsewhere they may go on writing to.
	StorageOnly(node string) bool
	// Ask reads the agents and changes nothing but the record: a reading of off
	// is written there as the node's fence before Ask returns, and one of on
	// makes a fence void. An error means that it could not tell.
	Ask(ctx context.Context, t Target) (Answer, error)
	// Off locks the node, reads lease, boot ID and UID again, and does nothing
	// if one of them is not t's; switches off or cuts off, asks the status
	// again, and writes the record. Only Answer.State Off is a fence.
	Off(ctx context.Context, t Target, reason string) (Answer, error)
	// On gives power back.
	On(ctx context.Context, t Target, reason string) error
	// Lift gives access to the storage back, confirms it by listing, and makes
	// the fence void. Calling it twice does no harm.
	Lift(ctx context.Context, t Target, reason string) error
	// Void writes down that the node's fence does not count any more.
	Void(ctx context.Context, node, why string) error
	// FencesOf reads the node's record live: its power fence and the storage fence
	// of this driver, in this order, as far as they count or are to be lifted.
	FencesOf(ctx context.Context, node string) ([]Fence, error)
	// Fences reads the fences of all nodes, void ones too.
	Fences(ctx context.Context) ([]Fence, error)
}
