package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	// Doubts say why a variable may stand for another machine (Seeker). Levels send no agent
	// a command that goes by one, and believe of its status only what Read does.
	Doubts map[string]Doubt
	// Addresses are the Node's IP addresses.
	Addresses []string
	// Fenced are the CIDR blocks that a storage fence of this machine named, as
	// its record has them: access is given back to these too, if it has come
	// back under other addresses.
	Fenced []string
	// Only are those CIDR blocks that alone are given access back; nil: what is in Fenced,
	// and the addresses of now.
	Only []string
	// Own are those CIDR blocks that an off makes this driver's own to open. It names the
	// others apart: they read as cut off before, or could not be read. nil: all are its own.
	Own []string
}

// State is what an agent reads. The zero State proves nothing.
type State int

const (
	// Unclear means a time-out, an error, suspended, shutting down, not found, or an answer that
	// contradicts itself.
	Unclear State = iota
	// On means that the machine has power, or that its access to the storage is open.
	On
	// Off means that the machine has no power, or that its access is cut.
	Off
)

func (s State) String() string { return [...]string{"unclear", "on", "off"}[known(s)] }

// Reading is one answer of a device.
type Reading struct {
	State State
	// Checked tells that the device was asked whose it is, and that it is that machine's.
	Checked bool
	// Detail is the device's own words, shortened, without secrets.
	Detail string
	// Named are the CIDR blocks that an off of the machine names, Cut those of the machine
	// that are cut off. Empty of an agent that cuts no addresses off.
	Named, Cut []string
	// OwnWord tells that nobody but the machine's Node says which addresses are its, or that nobody
	// at all does and only those in Machine.Fenced were looked for.
	OwnWord bool
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

// The variables that stand for what a node says of its machine.
const (
	VarNodeID     = "NODE_ID"
	VarProviderID = "PROVIDER_ID"
	VarInstanceID = "INSTANCE_ID"
	VarSystemUUID = "SYSTEM_UUID"
)

// Seeker is an Agent that may find a machine by what its node says of it. What the node
// writes there, a kubelet writes: so what was bound to the node first goes (package fencer).
// It does not have to look at Machine.Doubts.
type Seeker interface {
	// Seeks are the variables by which it finds the machine of that node; empty: of any
	// node. The answer does not change.
	Seeks(node string) []string
}

// Knower is an Agent of a storage that may know the machine by the node ID which its node says,
// and looks itself whose that is.
type Knower interface {
	// KnowsByID tells whether it may for that node. The answer does not change.
	KnowsByID(node string) bool
}

// Seeks are the variables by which the agent, or the one that it wraps (Unwrap), finds the
// machine of that node.
func Seeks(a Agent, node string) []string {
	if s, is := as[Seeker](a); is {
		return s.Seeks(node)
	}
	return nil
}

// as is the agent, or the one that it wraps (Unwrap), as a T.
func as[T any](a Agent) (t T, is bool) {
	for a != nil {
		if t, is = a.(T); is {
			return t, true
		}
		w, wraps := a.(interface{ Unwrap() Agent })
		if !wraps {
			break
		}
		a = w.Unwrap()
	}
	return t, false
}

// KnowsByID tells whether an agent that covers the node may know it by the node ID that it says.
func (l Levels) KnowsByID(node string) bool {
	return slices.ContainsFunc(l, func(level Level) bool {
		return slices.ContainsFunc(level, func(b Bounded) bool {
			k, is := as[Knower](b.Agent)
			return is && b.Agent.Covers(node) && k.KnowsByID(node)
		})
	})
}

// Seek tells whether one of the agents that cover the node seeks; without a node: one of all.
func (l Levels) Seek(node string) bool { return len(l.Seeks(node)) > 0 }

// Seeks are the variables by which agents that cover the node find its machine; without a
// node: by which any agent does.
func (l Levels) Seeks(node string) (names []string) {
	for _, level := range l {
		for _, b := range level {
			if node == "" || b.Agent.Covers(node) {
				names = append(names, Seeks(b.Agent, node)...)
			}
		}
	}
	return names
}

// Doubt is why a variable may stand for another machine, and what a person does about it.
type Doubt struct{ Why, Way string }

// Withheld says why the agent is not told which machine to cut off; empty: it may be.
func Withheld(a Agent, m Machine) string {
	var names, whys, ways []string
	for _, name := range Seeks(a, m.Node) {
		if d, is := m.Doubts[name]; is {
			names, whys, ways = append(names, "$("+name+")"), add(whys, d.Why), add(ways, d.Way)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of node %s may be another machine's: %s; %s", strings.Join(names, ", "), m.Node, strings.Join(whys, "; "), strings.Join(ways, "; "))
}

// Read asks the agent for the status. Where it may find another machine than that of the node
// only a power that is on counts, which keeps a machine that may live from being taken for dead:
// all else is an error.
func Read(ctx context.Context, a Agent, m Machine) (Reading, error) {
	r, err := a.Status(ctx, m)
	if err != nil {
		return r, err
	}
	if why := Withheld(a, m); why != "" && (r.State != On || a.Proves() == fence.StorageFence) {
		return Reading{Detail: r.Detail}, fmt.Errorf("it reads %s, which proves nothing: %s", known(r.State), why)
	}
	return r, nil
}

// add adds what is not there yet.
func add(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

// Withheld says why no level may cut the machine off, since in each that covers its node an
// agent is not told which it is; empty: some level may.
func (l Levels) Withheld(m Machine) (why string) {
	for _, level := range l {
		at := slices.IndexFunc(level, func(b Bounded) bool { return Withheld(b.Agent, m) != "" })
		switch {
		case !level.covers(m.Node):
		case at < 0:
			return ""
		case why == "":
			why = "agent " + level[at].Agent.Name() + " cannot tell which machine it is: " + Withheld(level[at].Agent, m)
		}
	}
	return why
}
