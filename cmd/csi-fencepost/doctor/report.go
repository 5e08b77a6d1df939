package doctor

import (
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
)

// A Grade says how bad a finding is.
type Grade string

const (
	// OK means that it is as it should be, as far as it was looked at.
	OK Grade = "ok"
	// LookAt means that it works, and that somebody should know or choose.
	LookAt Grade = "look at"
	// Broken means that what people believe to be guarded is not, or will not be when it matters.
	Broken Grade = "broken"
)

// Grades, the worst first.
var grades = []Grade{Broken, LookAt, OK}

// Report is the output of doctor. Its JSON is stable: fields are added, and not renamed or
// removed, within one apiVersion.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Findings, the worst first; none is OK.
	Findings []Finding `json:"findings"`
	Drivers  []Driver  `json:"drivers"`
	// Failover is csi-fencepost failover, the Deployment of its own; null: there is none.
	Failover *Process `json:"failover"`
	Policies []Policy `json:"policies"`
	// Fates are what would happen if a node died now, nodes alike together.
	Fates []Fate `json:"fates"`
	// Node is the one that was asked for; null: all were.
	Node *Node `json:"node,omitempty"`
	// MissingRights, as "verb resource": what this look could not see.
	MissingRights []string `json:"missingRights"`
	Notes         []string `json:"notes"`
}

// A Finding is something that somebody should know, and what to do next.
type Finding struct {
	Grade Grade  `json:"grade"`
	About string `json:"about"` // a driver, a node, ...
	What  string `json:"what"`
	// Next is a command to paste; empty: there is none.
	Next string `json:"next,omitempty"`
}

// A Driver that attaches volumes.
type Driver struct {
	Name  string `json:"name"`
	Grade Grade  `json:"grade"`
	// Guarded is yes, no, partly (one of its attachers is not), past (csi-fencepost runs, and an
	// attacher calls the driver past it) or unknown (no attacher was found).
	Guarded   string   `json:"guarded"`
	Workloads []string `json:"workloads"`
	Volumes   int      `json:"volumes"` // single-writer ones
	// The sidecar's; empty and null where there is none.
	*Process `json:"sidecar,omitempty"`
}

// A Process is csi-fencepost, in a driver's pod or as failover of its own.
type Process struct {
	Pods    int         `json:"pods"`
	Image   string      `json:"image"`
	Version string      `json:"version,omitempty"`
	Mode    config.Mode `json:"mode"`
	// Config is where its configuration was read; empty: it could not be, and the defaults are
	// taken for it.
	Config string `json:"config,omitempty"`
	// Lacks are the rights that its account does not have by RBAC; null: that could not be read.
	Lacks []string `json:"lacksRights"`
	// Moves is who moves the pods of a dead node: sidecar, apart, or nobody.
	Moves  string   `json:"movesPods"`
	Agents []string `json:"agents"`
	// Evidence are the other sources that are switched on, as the configuration calls them.
	Evidence []string `json:"evidence"`
}

// A Policy of deploy/admission.
type Policy struct {
	Name      string `json:"name"`
	Installed bool   `json:"installed"` // and bound
}

// Outcome is what would become of a driver's volumes on a node that dies.
type Outcome string

const (
	// NotGuarded means that Kubernetes takes them after six minutes, and nobody asks.
	NotGuarded Outcome = "NotGuarded"
	// Fenced means that agents cut the node off, and the volumes move.
	Fenced Outcome = "Fenced"
	// Asked means that they move if the agents find it off; if it is on, a person is waited for.
	Asked Outcome = "Asked"
	// Braked is Asked of a node that would be fenced, were it not for a brake.
	Braked Outcome = "Braked"
	// Revoked means that they move by the driver's word that it cuts off whom it unpublishes.
	Revoked Outcome = "Revoked"
	// Forwarded means that they move by Kubernetes' six minutes, as somebody chose.
	Forwarded Outcome = "Forwarded"
	// Waits means that they wait for a person, or for somebody else's evidence.
	Waits Outcome = "Waits"
)

// A Fate is what would happen if one of these nodes died now.
type Fate struct {
	Driver  string         `json:"driver"`
	Nodes   []string       `json:"nodes"`
	Volumes int            `json:"volumes"` // of the driver, held by all of them
	Pods    int            `json:"pods"`    // that use these, and may be moved
	Outcome Outcome        `json:"outcome"`
	Brake   failover.Brake `json:"brake,omitempty"`
	What    string         `json:"what"`
	Next    string         `json:"next,omitempty"`
	// PVs are the volumes, where one node was asked for.
	PVs []string `json:"persistentVolumes,omitempty"`

	first string // the node that What and Next were said of
}

// A Node is one in full.
type Node struct {
	Name string `json:"name"`
	// Exists, Ready: as its Node says.
	Exists bool   `json:"exists"`
	Ready  bool   `json:"ready"`
	Record string `json:"record"` // what is claimed of it
}

func (r *Report) add(g Grade, about, what, next string) {
	r.Findings = append(r.Findings, Finding{g, about, what, next})
}

// worst of what was found about something.
func (r *Report) worst(about string) Grade {
	return grades[slices.IndexFunc(grades, func(g Grade) bool { return g == OK || r.count(g, about) > 0 })]
}

// count findings of a grade; of everything where about is empty.
func (r *Report) count(g Grade, about string) (n int) {
	for _, f := range r.Findings {
		if f.Grade == g && (about == "" || f.About == about) {
			n++
		}
	}
	return n
}

// sort puts the worst first, and what gets past the guard before all else.
func (r *Report) sort() {
	rank := func(f Finding) int {
		if strings.HasPrefix(f.What, notGuarded) {
			return -1
		}
		return slices.Index(grades, f.Grade)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return rank(a) - rank(b) })
}
