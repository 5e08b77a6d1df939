package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	storage "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// OptOutAnnotation on a Node, with the value "false", says that it is not to be
// fenced but by force.
const OptOutAnnotation = "csi-fencepost.io/failover"

const (
	// freshFor is how long an answer may be used by others than who asked; one that does
	// not say off for less, down to onFreshFor.
	freshFor   = 10 * time.Second
	onFreshFor = 2 * time.Second
	// restsFor is how many times as long as it took such an answer is used: a
	// device is asked for a tenth of the time at most, and less where many wait.
	restsFor = 10
	// apiTimeout bounds each look at, and each write to, the API server.
	apiTimeout = 10 * time.Second
	// defaultAsks at the same time.
	defaultAsks = 4
	// readAgain is the pause between two readings of a machine whose lease is not silent.
	readAgain = time.Second
	// lockMargin is how much longer the lock is than the longest call.
	lockMargin = 10 * time.Second
	// defaultCall is an agent's time limit where none is set (package agent).
	defaultCall = 20 * time.Second
)

// Options of a Fencer. Levels may be empty; what is required says so.
type Options struct {
	Levels agent.Levels
	// Records, Nodes and Leases are required. Of Nodes and the Leases of
	// kube-node-lease only Get is used.
	Records *record.Store
	Nodes   core.NodesGetter
	Leases  coordination.LeasesGetter
	// CSINodes, of which only Get is used, tell before a command which node ID a node has.
	// Nil: the one that the caller names is held against the node's record alone.
	CSINodes storage.CSINodesGetter
	// Machines are those of all Nodes, with their names and UIDs, system UUIDs, provider IDs and
	// node IDs; in a first start they are bound in this order. It returns nil where they were not seen
	// yet. Nil: nothing is bound here, and agents that go by that wait until it is.
	Machines func() []fence.Machine
	// NodeIDs are what all drivers call a node, for a Fencer of no driver: one driver's name for a
	// machine may be its name in the cloud. Nil: they are not known.
	NodeIDs func(node string) []record.Identifier
	// Driver is the CSI driver's name: storage fences are per driver. Empty: this Fencer works for
	// the nodes of all drivers. Then none of its agents may cut storage, nor go by a driver's node
	// ID; the storage fences on record are others' to end, and a Target's NodeID is not used.
	Driver string
	// Actor names this process in lock and record; required.
	Actor string
	// MaxAsks are under way at the same time, for different machines; 0: 4.
	MaxAsks int
	// ReadOnly has the Fencer ask, and write nothing. Off, On, Lift and Void are errors.
	ReadOnly bool
	// Answered, if set, is told of each machine of which the agents gave a clear
	// answer, so that what waits for it is tried again; not of one that is still on
	// where nobody has gone without the answer. It must not block.
	Answered func(node string, answer Answer)
}

// Fencer asks and fences. It is safe for concurrent use. What it remembers only
// saves questions, for at most 10 s, and counts in brakes (Counting).
type Fencer struct {
	Options
	// storage are the levels' agents that cut storage, without the others.
	storage agent.Levels
	proves  map[string]fence.Kind // by agent
	lockFor time.Duration
	slots   chan struct{}
	gone    map[string]time.Time // Bind's: since when it has not seen Nodes that have a record

	cuts cuts

	asking
	notBefore map[string]time.Time // by node: when a question may try again to bind it
}

// New is a Fencer. An error names what is missing.
func New(o Options) (*Fencer, error) {
	if o.Records == nil || o.Nodes == nil || o.Leases == nil || o.Actor == "" {
		return nil, errors.New("a fencer needs records, Nodes, Leases and an actor")
	}
	if o.Driver == "" && slices.Contains(o.Levels.Seeks(""), agent.VarNodeID) {
		return nil, errors.New("a fencer of no driver has no node IDs: an agent finds machines by $(NODE_ID), which is what one driver calls them")
	}
	if o.MaxAsks <= 0 {
		o.MaxAsks = defaultAsks
	}
	f := &Fencer{Options: o, proves: map[string]fence.Kind{}, lockFor: defaultCall + lockMargin,
		slots: make(chan struct{}, o.MaxAsks), notBefore: map[string]time.Time{}}
	f.asking = newAsking(f.inTurn, (*Answer).fresh)
	f.store, f.stored = f.keepAnswer, f.holds
	f.answered = func(node string, a Answer, _ bool) {
		if a.State != agent.Unclear && f.Answered != nil {
			f.Answered(node, a)
		}
	}
	for _, level := range o.Levels {
		var storage agent.Level
		for _, b := range level {
			f.proves[b.Agent.Name()] = b.Agent.Proves()
			f.lockFor = max(f.lockFor, b.Timeout+lockMargin)
			if b.Agent.Proves() == fence.StorageFence {
				storage = append(storage, b)
			}
			if o.Driver == "" && b.Agent.Proves() == fence.StorageFence {
				return nil, fmt.Errorf("a fencer of no driver cuts no storage: agent %s does, of one driver", b.Agent.Name())
			}
		}
		if len(storage) > 0 {
			f.storage = append(f.storage, storage)
		}
	}
	return f, nil
}

// Covers tells whether the agents can fence that node.
func (f *Fencer) Covers(node string) bool { return f.Levels.Covers(node) }

// CoversPower tells whether agents that read the node's power can fence it.
func (f *Fencer) CoversPower(node string) bool {
	return slices.ContainsFunc(f.Levels, func(level agent.Level) bool {
		return (agent.Levels{level}).Covers(node) && slices.ContainsFunc(level, func(b agent.Bounded) bool { return b.Agent.Proves() == fence.PowerReading })
	})
}

// AsksPower is CoversPower: nobody else is asked.
func (f *Fencer) AsksPower(node string) bool { return f.CoversPower(node) }

// CoversStorage tells whether agents can cut that node off from the driver's
// storage, and read whether it is.
func (f *Fencer) CoversStorage(node string) bool { return f.storage.Covers(node) }

// StorageAgents are those that cut that node off from the driver's storage.
func (f *Fencer) StorageAgents(node string) []string {
	var names []string
	for _, level := range f.storage {
		for _, b := range level {
			if b.Agent.Covers(node) {
				names = append(names, b.Agent.Name())
			}
		}
	}
	return names
}

// Agents names the agents that cover the node, for people.
func (f *Fencer) Agents(node string) string {
	var names []string
	for _, level := range f.Levels {
		for _, b := range level {
			if name := b.Agent.Name(); b.Agent.Covers(node) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 1 {
		return "agent " + names[0]
	}
	return "agents " + strings.Join(names, ", ")
}

// StorageOnly tells whether all agents that cover the node only cut it off from
// this driver's storage: what its pods have elsewhere they may go on writing to.
func (f *Fencer) StorageOnly(node string) bool {
	for _, level := range f.Levels {
		for _, b := range level {
			if b.Agent.Covers(node) && b.Agent.Proves() != fence.StorageFence {
				return false
			}
		}
	}
	return true
}

// LockDuration is longer than each single call of an agent.
func (f *Fencer) LockDuration() time.Duration { return f.lockFor }

// Target is the machine that is meant.
type Target struct {
	// Node is its name, UID and BootID its Node's; required. Where the Node is
	// gone they are the ledger's.
	Node, UID, BootID string
	// SystemUUID of the machine by the ledger, which counts where the Node is gone: an
	// address may be another machine's by then. Empty: not known.
	SystemUUID string
	// ProviderID of the machine by the ledger, likewise: what the cloud calls it.
	ProviderID string
	// NodeID of the driver; may be empty.
	NodeID string
	// LeaseRV is the resourceVersion of the node's lease that the caller's
	// evidence rests on; empty: there was none.
	LeaseRV string
	// StorageOnly asks, and has cut, the agents that cut storage alone: for a node that
	// lives, or of which no reading of its power could count.
	StorageOnly bool
	// Claimed tells that somebody says that the machine is off. So it is news to a caller that
	// asked, and has gone without the answer, that nobody can tell.
	Claimed bool
	// Missed is set where the node's lease is not silent. Then off is an answer only if the agents
	// read it twice, readAgain apart, between two looks at Node and lease that show no change, and
	// Missed, which is asked after the second, says what a machine that runs would have done by
	// then and did not; empty: nothing. read is when the second was begun; checked: both times each
	// device said that it is that machine's. Each such question is put to the agents, and only to
	// those of the level that is polled (agent.Levels.Polled).
	Missed func(read time.Time, checked bool) string
	// Fences are the IDs of the fences that On and Lift may undo, as the caller saw
	// them: where another one stands, or none of them any more, nothing is undone. Nil:
	// whichever there are.
	Fences []string
	// Still tells whether what the caller decided by still holds, given the Node as it
	// was just read (nil: it is gone). It is asked under the node's lock, which may have
	// been waited for: by Off right before each off, by On and Lift before they begin,
	// and by Lift once more when the fence proves nothing any more. After an error of it
	// nothing more is sent. Nil: it does.
	Still func(ctx context.Context, node *corev1.Node) error
}

// machine that is meant, as package fence compares it.
func (t *Target) machine() fence.Machine {
	return fence.Machine{NodeName: t.Node, NodeUID: t.UID, BootID: t.BootID, SystemUUID: t.SystemUUID, ProviderID: t.ProviderID}
}

func (t *Target) still(ctx context.Context, node *corev1.Node) error {
	if t.Still == nil {
		return nil
	}
	return t.Still(ctx, node)
}

// Answer is what the agents say of a machine. The zero Answer proves nothing.
type Answer struct {
	// State is Off only if nothing speaks against it.
	State agent.State
	// Kind is what State amounts to; empty with Unclear.
	Kind fence.Kind
	// Agents that State rests on.
	Agents []string
	// On are the agents that read the machine's power as on, whatever State is.
	On []string
	// OwnWord says, of Off at the storage, that nobody but its Node says that what is cut off is its
	// address, and that it was not this driver's fence that cut it (fence.Evidence).
	OwnWord bool
	// Storage is the access to the driver's storage; Unclear also where no agent
	// was asked that can tell.
	Storage agent.State
	// Uncut tells that an agent that cuts storage answered, and does not say that the machine is cut
	// off as a whole. An agent that did not answer says nothing.
	Uncut bool
	// Detail is the agents' own words, Why what they come to, or why nothing.
	Detail, Why string
	// Machine that it is about, with its lease.
	Machine record.FencedMachine
	// OffTwice tells that the machine was read as off twice, and is Unclear because nothing is
	// missing yet.
	OffTwice bool
	// Fence is the ID in the record; empty: none was written.
	Fence string
	// Steps were taken for it.
	Steps []agent.Step
	// Outstanding is nil, or closed when a call that hangs has ended. The lock
	// is kept until then.
	Outstanding <-chan struct{}

	missed string // Target.Missed's

	read time.Time     // when the agents had answered
	took time.Duration // from the question to that, with the wait for a turn
	torn bool          // something changed while they were asked

	known *known // of the record, before they were asked

	question string // that it answers (Apart)
}

// RefusedError tells that nothing was sent. Why says what stands against it.
type RefusedError struct{ Node, Action, Why string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s of node %s is refused: %s", e.Action, e.Node, e.Why)
}

func refuse(node, action, format string, args ...any) error {
	return &RefusedError{Node: node, Action: action, Why: fmt.Sprintf(format, args...)}
}

// writable is an error in a Fencer that only reads, or for a node that no agent
// covers.
func (f *Fencer) writable(t Target, action, reason string, covered bool) error {
	switch {
	case reason == "":
		return refuse(t.Node, action, "it is not said why")
	case f.ReadOnly:
		return refuse(t.Node, action, "nothing is changed here (mode Observe, or a command that only reads)")
	case t.Node == "" || t.UID == "":
		return refuse(t.Node, action, "the machine is not named: its Node's name and UID are needed")
	case !covered:
		return refuse(t.Node, action, "no level of fence agents covers it (fencing.levels)")
	}
	return nil
}

// detached is for what must be written although the caller is gone.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
}

// readers are the agents whose last reading was s.
func readers(steps []agent.Step, s agent.State) (names []string, details string) {
	last := map[string]agent.Step{}
	var order []string
	for _, st := range steps {
		if st.Action != "status" {
			continue
		}
		if _, seen := last[st.Agent]; !seen {
			order = append(order, st.Agent)
		}
		last[st.Agent] = st
	}
	slices.Sort(order)
	for _, name := range order {
		if last[name].State != s {
			continue
		}
		names = append(names, name)
		if d := last[name].Detail; d != "" {
			if details != "" {
				details += "; "
			}
			details += name + ": " + d
		}
	}
	return names, details
}
