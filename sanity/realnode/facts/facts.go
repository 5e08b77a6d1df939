// Package facts is the table of what a kubelet does with a volume whose container
// writes: the real one of Kubernetes on a real node, kubemark's on a hollow node, and the
// one of package simulate. The rules of the decision are built on it. Package scenarios
// asks the first two (TestKubelets), package simulate the third.
package facts

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Fact is a situation that a kubelet comes into, with what is true some time later.
type Fact struct {
	Name string
	// Situation of a kubelet that has a pod whose container writes to a volume.
	Situation string
	// Simulated is what package simulate makes of it.
	Simulated State
	// Differs says why the simulation may do otherwise than a real kubelet; empty: it
	// does not.
	Differs string
}

// State is what is true of the volume on the machine.
type State struct {
	InUse   bool // the Node lists it in volumesInUse
	Mounted bool
	Writes  bool // its container does
	// Forgotten tells that at some moment it was mounted, and not in volumesInUse.
	Forgotten bool
}

// String is the state in words.
func (s State) String() string {
	words := []string{"not listed", "not mounted"}
	if s.InUse {
		words[0] = "listed"
	}
	switch {
	case s.Mounted && s.Writes:
		words[1] = "mounted, written"
	case s.Mounted:
		words[1] = "mounted, not written"
	case s.Writes:
		words[1] = "not mounted, and written"
	}
	switch {
	case s.Forgotten && !s.Mounted:
		words = append(words, "not listed before it was unmounted")
	case s.Forgotten && s.InUse:
		words = append(words, "not listed at first")
	}
	return strings.Join(words, ", ")
}

var (
	works     = State{InUse: true, Mounted: true, Writes: true}
	letGo     = State{}
	wanted    = State{InUse: true}
	leftOut   = State{InUse: true, Mounted: true, Writes: true, Forgotten: true}
	forgotten = State{Mounted: true, Writes: true, Forgotten: true}
)

const mountIsWriter = "whoever has it mounted counts as a writer there: of a container that has ended, the kernel may still write"

// Kubelet are the table's lines.
var Kubelet = []Fact{
	{Name: "killed", Situation: "is killed", Simulated: works},
	{Name: "back", Situation: "is killed and started again", Simulated: works},
	{Name: "back-unlisted", Situation: "is killed and started again while the volume is not in volumesAttached", Simulated: leftOut},
	{Name: "back-deleted", Situation: "does the same, and has its pod deleted later", Simulated: State{Forgotten: true}},
	{Name: "gone", Situation: "is killed, its pod deleted by force, and started again", Simulated: letGo},
	{Name: "gone-hung", Situation: "does the same, and nobody can end the container", Simulated: State{Mounted: true, Writes: true, Forgotten: true}, Differs: "a machine whose container has it mounted counts as one that has it mounted itself there"},
	{Name: "gone-held", Situation: "does the same, and its driver does not unstage a volume whose block device is in use", Simulated: works},
	{Name: "lost", Situation: "is killed, its pod deleted by force, and started again while the volume is not in volumesAttached", Simulated: State{Forgotten: true}},
	{Name: "lost-stuck", Situation: "does the same, and the unmount fails", Simulated: forgotten, Differs: mountIsWriter},
	{Name: "deleted", Situation: "has its pod deleted", Simulated: letGo},
	{Name: "forced", Situation: "has its pod deleted by force", Simulated: letGo},
	{Name: "stuck", Situation: "has its pod deleted by force, and the unmount fails", Simulated: works, Differs: mountIsWriter},
	{Name: "staged", Situation: "has its pod deleted, and is killed and started again when it has unpublished the volume and not unstaged it", Simulated: forgotten, Differs: mountIsWriter},
	{Name: "back-detach", Situation: "has its pod deleted, and is given another while the VolumeAttachment is being deleted and the volume is in volumesAttached", Simulated: wanted},
	{Name: "boot-detach", Situation: "is on a machine that reboots while the VolumeAttachment of its pod is being deleted and the volume is in volumesAttached", Simulated: wanted},
	{Name: "partitioned", Situation: "is cut off from the API server, and its pod deleted by force", Simulated: works},
	{Name: "healed", Situation: "was cut off, its pod deleted by force meanwhile, and is heard again", Simulated: letGo},
	{Name: "rebooted", Situation: "is on a machine that reboots", Simulated: works},
	{Name: "rebooted-gone", Situation: "is on a machine that reboots, its pod deleted by force meanwhile", Simulated: letGo},
}

// Answers are what kubelets did, by the facts' names.
type Answers struct {
	Kubernetes string           `json:"kubernetes"`
	Real       map[string]State `json:"real"`
	Hollow     map[string]State `json:"hollow"`
}

//go:embed answers.json
var recorded []byte

// Recorded are the answers of the last time that TestKubelets was told to write them down.
func Recorded() (a Answers, err error) {
	d := json.NewDecoder(bytes.NewReader(recorded))
	d.DisallowUnknownFields()
	if err = d.Decode(&a); err != nil {
		return a, fmt.Errorf("answers.json: %w", err)
	}
	return a, nil
}

// Table is the table in Markdown.
func (a Answers) Table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "| A kubelet that | real, %s | hollow | simulated |\n|---|---|---|---|\n", a.Kubernetes)
	for _, f := range Kubelet {
		real, hollow := a.Real[f.Name], a.Hollow[f.Name]
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", f.Situation, real, unlike(hollow, real), unlike(f.Simulated, real))
	}
	return out.String()
}

// unlike is a state where it differs from the real one.
func unlike(s, real State) string {
	if s == real {
		return "the same"
	}
	return s.String()
}
