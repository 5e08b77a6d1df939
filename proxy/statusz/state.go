package statusz

import (
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// MaxShown bounds each list of a State.
const MaxShown = 200

// State is everything that is shown. Times are RFC 3339 in UTC; a zero time is
// left out, and means that it is not known.
type State struct {
	APIVersion string `json:"apiVersion"` // config.APIVersion
	Kind       string `json:"kind"`       // Status
	// At is when it was put together.
	At time.Time `json:"at"`

	Driver  string `json:"driver,omitempty"` // empty until the driver has told it
	Version string `json:"version"`
	Host    string `json:"host,omitempty"`
	// Mode is Enforce, Observe, or None where nothing is guarded.
	Mode string `json:"mode"`
	// Leader tells who does the background work: Leading, Standby, or Alone where
	// there is no leader election.
	Leader  string    `json:"leader"`
	Started time.Time `json:"started"`
	// Ready, and what each check of /readyz says.
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`

	// Waiting are refused calls that somebody repeats, the longest first.
	Waiting []Waiting `json:"waiting"`
	// UnderWay are volumes, by handle, with a call under way.
	UnderWay []string `json:"underWay"`
	// Nodes that are silent, or of which something is claimed; the suspected
	// ones first.
	Nodes []Node `json:"nodes"`
	// Watched is how many nodes' leases are watched.
	Watched int `json:"watched"`
	// Polling is zero where no node is polled.
	Polling Polling `json:"polling,omitzero"`
	// Brakes that keep nodes from being fenced.
	Brakes []Brake `json:"brakes"`
	Agents []Agent `json:"agents"`
	// Decisions, the last one first; at most 100.
	Decisions []Decision `json:"decisions"`
	// Notes say what could not be found out, and what was left out.
	Notes []string `json:"notes"`
}

// New is an empty State, whose lists are empty and not null.
func New(now time.Time) *State {
	return &State{APIVersion: config.APIVersion, Kind: "Status", At: now.UTC(), Checks: []Check{}, Waiting: []Waiting{}, UnderWay: []string{},
		Nodes: []Node{}, Brakes: []Brake{}, Agents: []Agent{}, Decisions: []Decision{}, Notes: []string{}}
}

// Check is one of the checks of /readyz; an empty Why passes.
type Check struct {
	Name string `json:"name"`
	Why  string `json:"why,omitempty"`
}

// Waiting is one refused call.
type Waiting struct {
	Call    string `json:"call"`
	Volume  string `json:"volume"`
	PV      string `json:"pv,omitempty"`
	Node    string `json:"node,omitempty"`
	NodeID  string `json:"nodeID"`
	Holder  string `json:"holder,omitempty"` // the node that it waits for
	Reason  string `json:"reason,omitempty"`
	Text    string `json:"text,omitempty"`
	Runbook string `json:"runbook,omitempty"` // address of the reason's section
	// Since is when it was first refused; Times how often since this process
	// started.
	Since time.Time `json:"since,omitzero"`
	Times int       `json:"times"`
}

// States of a Node.
const (
	// Suspected means that the node's lease was watched unchanged for fencing.suspectAfter.
	Suspected = "Suspected"
	// Gone means that there is no Node of that name.
	Gone = "Gone"
	// Fencing means that an off was, or is about to be, sent; its outcome is not known.
	Fencing = "Fencing"
	// Fenced means that the agents read the node as off.
	Fenced = "Fenced"
	// StorageFenced means that the node is cut off from a driver's storage, and may live.
	StorageFenced = "StorageFenced"
	// Lifting means that the node's access to a driver's storage is being given back, and that
	// nothing says yet how far that has come. That it was cut proves nothing any more.
	Lifting = "Lifting"
	// Confirmed means that an operator says that the node is off.
	Confirmed = "Confirmed"
	// Alive means that the node is nothing of all this.
	Alive = "Alive"
	// Unwatched means that the node was not watched for long enough to tell.
	Unwatched = "Unwatched"
)

// Node is a node that is silent, or of which something is claimed.
type Node struct {
	Name string `json:"name"`
	// State in one word, one of those above.
	State string `json:"state"`
	// SilentSeconds for which its lease was watched unchanged.
	SilentSeconds int `json:"silentSeconds"`
	// Power is what was last read of its power, where that is asked whatever its lease
	// says; zero: it is not.
	Power Power `json:"power,omitzero"`
	// Awaited says what would let its volumes move; empty: nothing is awaited.
	Awaited string `json:"awaited,omitempty"`
	// Proof is the kind of evidence by which it cannot write; empty: none.
	Proof string `json:"proof,omitempty"`
	// Volumes of the driver that it holds, by PersistentVolume or handle.
	Volumes []string `json:"volumes"`
	// Evidence for and against, that which counts first.
	Evidence []Evidence `json:"evidence"`
	// Audit trail, the newest first.
	Audit []Audit `json:"audit"`
}

// Power is a reading of a node's power.
type Power struct {
	// State is on, off or unclear, and Why what was read; empty: nothing yet.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
	// AgeSeconds since the agents were asked.
	AgeSeconds int `json:"ageSeconds"`
}

// Polling is how the nodes that hold volumes are asked whether they are on, whatever their leases
// say.
type Polling struct {
	Nodes int `json:"nodes"`
	// PeriodMS between two questions about a node. Short: the budget makes it longer than
	// what is configured.
	PeriodMS int64 `json:"periodMS"`
	Short    bool  `json:"short,omitempty"`
	// OldestMS is the age of the oldest answer.
	OldestMS int64 `json:"oldestMS"`
}

// Evidence is one claim or reading of a node.
type Evidence struct {
	Kind   string `json:"kind"`
	Source string `json:"source,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Phase is Counts, Void, Fencing, Failed, Lifting or Lifted. Counts is as the record
	// has it: each call holds it against the node's lease once more.
	Phase string    `json:"phase"`
	Why   string    `json:"why,omitempty"`
	At    time.Time `json:"at,omitzero"`
	Steps []Step    `json:"steps,omitempty"`
}

// Step is one request to an agent and its answer.
type Step struct {
	Agent  string    `json:"agent"`
	Action string    `json:"action"`
	State  string    `json:"state,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Error  string    `json:"error,omitempty"`
	At     time.Time `json:"at,omitzero"`
	TookMS int64     `json:"tookMS"`
}

// Audit is one change of a claim.
type Audit struct {
	At     time.Time `json:"at,omitzero"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Detail string    `json:"detail,omitempty"`
}

// Brake keeps a node that is due from being fenced.
type Brake struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Agent is a fence agent and what it read last, of each node the newest.
type Agent struct {
	Name string `json:"name"`
	// Proves is PowerReading or StorageFence.
	Proves string `json:"proves"`
	// Level from 1: the lower ones are asked first.
	Level int `json:"level"`
	// State in one word: NeverAsked, Answers or Fails, by its last call.
	State string  `json:"state"`
	Last  []Asked `json:"last"`
}

// Asked is a call of an agent about one node.
type Asked struct {
	Node   string    `json:"node"`
	Action string    `json:"action"`
	Result string    `json:"result"` // on, off, unclear, sent, error
	Detail string    `json:"detail,omitempty"`
	Error  string    `json:"error,omitempty"`
	At     time.Time `json:"at"`
	TookMS int64     `json:"tookMS"`
}

// Decision is a judged call, or a takeover that succeeded.
type Decision struct {
	Call   string `json:"call"`
	Volume string `json:"volume"`
	PV     string `json:"pv,omitempty"`
	Node   string `json:"node,omitempty"`
	NodeID string `json:"nodeID"`
	Holder string `json:"holder,omitempty"`
	// Verdict is allow, refuse, wait, answer or took over; with "would " before it in mode Observe.
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Text    string    `json:"text,omitempty"`
	From    []string  `json:"from,omitempty"` // nodes that the volume was taken from
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Times   int       `json:"times"`
}

// bound cuts the lists to MaxShown and says so.
func (s *State) bound() {
	cut(s, "waiting calls", &s.Waiting)
	cut(s, "volumes under way", &s.UnderWay)
	cut(s, "nodes", &s.Nodes)
	cut(s, "brakes", &s.Brakes)
	cut(s, "agents", &s.Agents)
	cut(s, "decisions", &s.Decisions)
}

func cut[T any](s *State, what string, list *[]T) {
	if more := len(*list) - MaxShown; more > 0 {
		*list = (*list)[:MaxShown]
		s.Notes = append(s.Notes, itoa(int64(more))+" more "+what+" are not shown.")
	}
}
