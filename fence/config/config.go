package config

import (
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

// Driver is what the CSI driver is declared to do.
type Driver struct {
	// UnpublishRevokesAccess: ControllerUnpublishVolume takes access from a
	// client that does not let go.
	UnpublishRevokesAccess bool `json:"unpublishRevokesAccess"`
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
	OutOfServiceTaint bool `json:"outOfServiceTaint"`
	// OperatorConfirmation: confirmations of nodes and releases of volumes.
	OperatorConfirmation bool `json:"operatorConfirmation"`
	// NetworkFence of csi-addons. Not in this version.
	NetworkFence bool `json:"networkFence"`
	// CloudShutdownTaint counts by itself.
	CloudShutdownTaint bool `json:"cloudShutdownTaint"`
	// FenceAgentsRemediation counts by itself. Not in this version.
	FenceAgentsRemediation bool `json:"fenceAgentsRemediation"`
	// SelfNodeRemediation counts by itself. Not in this version.
	SelfNodeRemediation bool `json:"selfNodeRemediation"`
	// NodeDeleted: only the cloud provider deletes Nodes, after the machine.
	NodeDeleted bool `json:"nodeDeleted"`
}

// any tells whether a source is on that could prove a dead node fenced.
func (e *Evidence) any() bool {
	return e.OutOfServiceTaint || e.OperatorConfirmation || e.NetworkFence || e.CloudShutdownTaint ||
		e.FenceAgentsRemediation || e.SelfNodeRemediation || e.NodeDeleted
}

// Fencing is how dead nodes are found, and fenced.
type Fencing struct {
	// Namespace of the nodes' records.
	Namespace string `json:"namespace"`
	// SuspectAfter: a node whose lease is unchanged for so long is stale.
	SuspectAfter Duration `json:"suspectAfter"`
	// FenceAfter: a node whose lease is unchanged for so long and that is
	// still on is fenced; 0: never. Not in this version.
	FenceAfter Duration `json:"fenceAfter"`
	// MaxConcurrent nodes are fenced at once. Not in this version.
	MaxConcurrent int `json:"maxConcurrent"`
	// MaxUnhealthy: with a larger share of stale nodes, from 3 nodes on, the
	// fault is more likely ours: every node is watched anew afterwards.
	MaxUnhealthy Percent `json:"maxUnhealthy"`
	// PowerOn a fenced node. Not in this version.
	PowerOn PowerOn `json:"powerOn"`
	// Levels of fence agents, tried in order. Not in this version.
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
	Name      string     `json:"name"`
	Timeout   Duration   `json:"timeout"`
	Attempts  int        `json:"attempts"`
	IPMI      *IPMI      `json:"ipmi,omitempty"`
	Exec      *Exec      `json:"exec,omitempty"`
	CSIAddons *CSIAddons `json:"csiAddons,omitempty"`
}

// IPMI talks to the nodes' BMCs.
type IPMI struct {
	UsernameFile string `json:"usernameFile"`
	PasswordFile string `json:"passwordFile"`
	// Nodes: host:port of the BMC by node name.
	Nodes map[string]string `json:"nodes"`
}

// Exec runs a program with the fence-agents contract.
type Exec struct {
	// Agent by name, or by a path that --agent-dirs allows.
	Agent string `json:"agent"`
	// Parameters are the same for all nodes.
	Parameters map[string]string `json:"parameters,omitempty"`
	// ParameterFiles are read again at each use.
	ParameterFiles map[string]string `json:"parameterFiles,omitempty"`
	// NodeParameters by parameter and node name.
	NodeParameters map[string]map[string]string `json:"nodeParameters,omitempty"`
}

// CSIAddons uses the FenceController on the driver's socket.
type CSIAddons struct{}

// Failover moves pods off a fenced node. Not in this version.
type Failover struct {
	Enabled bool `json:"enabled"`
}

// Default is the configuration without a file. All defaults are here.
func Default() *Configuration {
	return &Configuration{
		APIVersion: APIVersion,
		Kind:       Kind,
		Mode:       Enforce,
		Evidence: Evidence{
			OutOfServiceTaint:    true,
			OperatorConfirmation: true,
		},
		Fencing: Fencing{
			Namespace:     "csi-fencepost",
			SuspectAfter:  Duration{Duration: 15 * time.Second},
			MaxConcurrent: 1,
			MaxUnhealthy:  40,
			PowerOn:       Never,
		},
	}
}

// Policy is the part that the decision asks.
func (c *Configuration) Policy() fence.Policy {
	return fence.Policy{
		UnpublishRevokesAccess: c.Driver.UnpublishRevokesAccess,
		ForwardUnfenced:        c.Unpublish.Unfenced == Forward,
	}
}
