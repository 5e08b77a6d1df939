package config

import (
	"slices"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// APIVersion and Kind of the file.
const (
	APIVersion = "csi-fencepost.io/v1alpha1"
	Kind       = "Configuration"
)

// Configuration is the whole file.
type Configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Mode      Mode      `json:"mode"`
	Driver    Driver    `json:"driver"`
	Unpublish Unpublish `json:"unpublish"`
	Evidence  Evidence  `json:"evidence"`
	Fencing   Fencing   `json:"fencing"`
	Failover  Failover  `json:"failover"`
}

// Mode is whether decisions are carried out.
type Mode string

const (
	// Enforce refuses what is not proven safe.
	Enforce Mode = "Enforce"
	// Observe decides and reports, writes nothing, and forwards everything.
	Observe Mode = "Observe"
)

// Driver is what the CSI driver is declared to do, and how much of it at once.
type Driver struct {
	// UnpublishRevokesAccess: ControllerUnpublishVolume takes access from a
	// client that does not let go. It has to be revoked per volume and to survive
	// an unfence of the node: not by the blocklist that a storage fence agent
	// lifts again (as Ceph's).
	UnpublishRevokesAccess bool `json:"unpublishRevokesAccess"`
	// ListsPublishedNodes: published_node_ids (ControllerGetVolume, ListVolumes) is the whole
	// truth. A node that it does not name has no access to the volume: what the ledger alone
	// says of it is over. Not where an unpublished node can go on writing.
	ListsPublishedNodes bool `json:"listsPublishedNodes"`
	// MaxConcurrentCalls is how many publishes and unpublishes the driver is given
	// at once; others wait in the order in which they came. 0: as many as
	// external-attacher's --worker-threads (10 by default), and so in mode Observe.
	MaxConcurrentCalls int `json:"maxConcurrentCalls"`
}

// Unpublish is how unpublish calls are answered.
type Unpublish struct {
	// Unfenced: the unpublish of a node that is stale or unknown, with nothing
	// that proves it fenced. Empty: Refuse, and nobody has chosen so.
	Unfenced Unfenced `json:"unfenced,omitempty"`
}

// Unfenced is what to do with an unpublish of an unfenced node.
type Unfenced string

const (
	// Refuse keeps the volume where it may still be written to.
	Refuse Unfenced = "Refuse"
	// Forward lets Kubernetes' force detach through, as without csi-fencepost.
	Forward Unfenced = "Forward"
)

// Evidence switches the sources on.
type Evidence struct {
	// OutOfServiceTaint: the taint node.kubernetes.io/out-of-service, put on by
	// anybody but csi-fencepost.
	OutOfServiceTaint bool `json:"outOfServiceTaint"`
	// OperatorConfirmation: confirmations of nodes and releases of volumes.
	OperatorConfirmation bool `json:"operatorConfirmation"`
	// NetworkFence of csi-addons, where the cluster has it.
	NetworkFence bool `json:"networkFence"`
	// CloudShutdownTaint counts by itself.
	CloudShutdownTaint bool `json:"cloudShutdownTaint"`
	// FenceAgentsRemediation of medik8s counts by itself.
	FenceAgentsRemediation bool `json:"fenceAgentsRemediation"`
	// SelfNodeRemediation of medik8s counts by itself.
	SelfNodeRemediation bool `json:"selfNodeRemediation"`
	// NodeDeleted: only the cloud provider deletes Nodes, after the machine.
	NodeDeleted bool `json:"nodeDeleted"`
	// Kubelet: kubelets are asked since when their process runs, where the service account
	// for that exists (deploy/rbac/kubelet.yaml). One that ran before the publish and runs
	// still is believed: it has forgotten no mount.
	Kubelet bool `json:"kubelet"`
}

// any tells whether a source is on that could prove a dead node fenced.
// NetworkFence is not counted: it is on by default, and few clusters have it. Nor is Kubelet,
// which a dead node does not answer.
func (e *Evidence) any() bool {
	return e.OutOfServiceTaint || e.OperatorConfirmation || e.CloudShutdownTaint ||
		e.FenceAgentsRemediation || e.SelfNodeRemediation || e.NodeDeleted
}

// Fencing is how dead nodes are found, and fenced.
type Fencing struct {
	// Namespace of the nodes' records: one of their own, none of Kubernetes'.
	Namespace string `json:"namespace"`
	// SuspectAfter: a node whose lease is unchanged for so long is stale; 12s to 10m, or 0:
	// a quarter of the leaseDurationSeconds that its kubelet writes into it and 5s, which
	// makes 15s of the usual 40s.
	SuspectAfter Duration `json:"suspectAfter"`
	// FenceAfter: a node whose lease is unchanged for so long and that is
	// still on is fenced; 0: never, else at least 50s.
	FenceAfter Duration `json:"fenceAfter"`
	// MaxConcurrent nodes are fenced at once.
	MaxConcurrent int `json:"maxConcurrent"`
	// MaxUnhealthy: with a larger share of stale nodes, from 3 nodes on, the
	// fault is more likely ours: every node is watched anew afterwards.
	MaxUnhealthy Percent `json:"maxUnhealthy"`
	// PowerOn a fenced node.
	PowerOn PowerOn `json:"powerOn"`
	// Apart: the power of nodes is read and cut by csi-fencepost failover, which runs
	// elsewhere. This sidecar has no agents for that, and asks it through the nodes' records.
	Apart bool `json:"apart,omitempty"`
	// PollsPerSecond bounds how many questions a second agents with poll are asked because
	// of it, all together: 100 are 200 nodes every 2s, by one agent each. 20 at most where one
	// of them is a program: each question is a process. Where that is too few for all nodes that
	// hold volumes, each is asked less often, and from once in 5s on none is, which the log and
	// a metric say.
	PollsPerSecond int `json:"pollsPerSecond"`
	// Levels of fence agents, tried in order.
	Levels []Level `json:"levels,omitempty"`
}

// PowerOn is whether a fenced node is powered on again.
type PowerOn string

const (
	Never     PowerOn = "Never"
	WhenMoved PowerOn = "WhenMoved"
)

// Level of fence agents: all of them must confirm.
type Level struct {
	Agents []Agent `json:"agents"`
}

// Agent is one fence agent: exactly one of IPMI, Exec and CSIAddons.
type Agent struct {
	// Name is unique over all levels.
	Name string `json:"name"`
	// Timeout of one attempt at one action; 1s to 2m.
	Timeout Duration `json:"timeout"`
	// Attempts at each action, the first one included; 1 to 10.
	Attempts int `json:"attempts"`
	// Poll: a node that holds volumes is asked so often whether it is on, whatever its
	// lease says; 1s to 3s, or 0s: never. Each question is a login to the device, or a
	// process. For agents that read the power, and for all of a level or none.
	Poll      Duration   `json:"poll,omitzero"`
	IPMI      *IPMI      `json:"ipmi,omitempty"`
	Exec      *Exec      `json:"exec,omitempty"`
	CSIAddons *CSIAddons `json:"csiAddons,omitempty"`
}

// IPMI talks to the nodes' BMCs.
type IPMI struct {
	// UsernameFile holds the user's name; absolute, read again at each use. $(NODE) in it
	// stands for the node's name, where each BMC has a user of its own.
	UsernameFile string `json:"usernameFile"`
	// PasswordFile holds the password; absolute, read again at each use. $(NODE) in it
	// stands for the node's name, where each BMC has a password of its own.
	PasswordFile string `json:"passwordFile"`
	// Nodes: host:port of the BMC by node name.
	Nodes map[string]string `json:"nodes"`
}

// Exec runs a program with the fence-agents contract.
type Exec struct {
	// Agent by name, or by a path that --agent-dirs allows.
	Agent string `json:"agent"`
	// Parameters are the same for all nodes, but for variables such as $(NODE),
	// $(PROVIDER_ID) and $(INSTANCE_ID) (package program).
	Parameters map[string]string `json:"parameters,omitempty"`
	// ParameterFiles are read again at each use. $(NODE) in a path stands for the node's
	// name.
	ParameterFiles map[string]string `json:"parameterFiles,omitempty"`
	// NodeParameters by parameter and node name: the nodes that it covers.
	NodeParameters map[string]map[string]string `json:"nodeParameters,omitempty"`
	// AcceptSuspended: whoever wrote this knows that the agent reads a suspended
	// machine as off, and that nobody resumes one (package program).
	AcceptSuspended bool `json:"acceptSuspended,omitempty"`
}

// CSIAddons uses the FenceController on the driver's socket. All agents of this kind
// have to say the same: they are one driver's.
type CSIAddons struct {
	// AllowedSubnets are CIDR blocks such as 10.20.0.0/16: a fence that would name an
	// address outside them is refused. None: every address is allowed.
	AllowedSubnets []string `json:"allowedSubnets,omitempty"`
	// Addresses: who says from which addresses a node reaches the storage, where nodes
	// does not. Empty: DriverOrNode.
	Addresses Addresses `json:"addresses,omitempty"`
	// Nodes: the addresses from which each node reaches the storage, by node name. They
	// alone count then, and nodes without an entry are not covered.
	Nodes map[string][]string `json:"nodes,omitempty"`
}

// Addresses is who says from which addresses a node reaches the storage.
type Addresses string

const (
	// DriverOrNode asks the driver (GetFenceClients); where that knows no client of the
	// node ID, the Node's InternalIP and ExternalIP count.
	DriverOrNode Addresses = "DriverOrNode"
	// DriverOnly asks the driver and nobody else, for nodes that reach the storage from
	// other addresses than their Nodes have.
	DriverOnly Addresses = "DriverOnly"
)

// Failover moves pods off a fenced node.
type Failover struct {
	// Enabled: a fenced node is tainted, and its pods that use the driver's
	// volumes are deleted by force.
	Enabled bool `json:"enabled"`
	// OffFor: a node that agents with poll read as off, and whose lease is not silent yet, is
	// tainted, and its pods deleted, once it has been off for so long; 0s to 1m. Calls that
	// wait for its volumes do not wait for that.
	OffFor Duration `json:"offFor"`
}

// Default is the configuration without a file. All defaults are here and in
// DefaultAgent.
func Default() *Configuration {
	return &Configuration{
		APIVersion: APIVersion,
		Kind:       Kind,
		Mode:       Enforce,
		Evidence: Evidence{
			OutOfServiceTaint:    true,
			OperatorConfirmation: true,
			NetworkFence:         true,
			Kubelet:              true,
		},
		Fencing: Fencing{
			Namespace:     "csi-fencepost",
			MaxConcurrent: 1,
			MaxUnhealthy:  40,
			PowerOn:       Never,

			PollsPerSecond: 100,
		},
		Failover: Failover{OffFor: Duration{Duration: 5 * time.Second}},
	}
}

// DefaultAgent is an agent of which only its kind is configured.
func DefaultAgent() Agent {
	return Agent{Timeout: Duration{Duration: 20 * time.Second}, Attempts: 2}
}

// Storage is what the configuration says of the driver's own fence; nil: it has no such
// agent.
func (c *Configuration) Storage() *CSIAddons {
	for _, level := range c.Fencing.Levels {
		for _, a := range level.Agents {
			if a.CSIAddons != nil {
				return a.CSIAddons
			}
		}
	}
	return nil
}

// CutsPower tells whether there is an agent beside the driver's own fence: it may cut the
// power. Which programs cut the storage only they tell, once they run.
func (c *Configuration) CutsPower() bool {
	return slices.ContainsFunc(c.Fencing.Levels, func(l Level) bool {
		return slices.ContainsFunc(l.Agents, func(a Agent) bool { return a.CSIAddons == nil })
	})
}

// polls tells whether an agent is asked whatever the leases say, or whether a program is.
func (f *Fencing) polls(program bool) bool {
	return slices.ContainsFunc(f.Levels, func(l Level) bool {
		return slices.ContainsFunc(l.Agents, func(a Agent) bool { return a.Poll.Duration != 0 && (a.Exec != nil || !program) })
	})
}

// Policy is the part that the decision asks.
func (c *Configuration) Policy() fence.Policy {
	return fence.Policy{
		UnpublishRevokesAccess: c.Driver.UnpublishRevokesAccess,
		ListsPublishedNodes:    c.Driver.ListsPublishedNodes,
		ForwardUnfenced:        c.Unpublish.Unfenced == Forward,
	}
}
