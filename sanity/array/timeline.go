package array

import (
	"slices"
	"strings"
	"time"
)

// Event is something that happened to the array or to a machine.
type Event struct {
	Time   time.Time
	Volume string // empty: concerns a machine
	Node   string // empty: concerns several
	Text   string
}

func (e Event) String() string {
	parts := []string{e.Time.Format("15:04:05.000"), e.Volume, e.Node, e.Text}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// Timeline lists what happened, oldest first. Single writes are not events;
// the first write of a mount and the first that is rejected are.
func (a *Array) Timeline() []Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

func (a *Array) eventLocked(volumeID, nodeID, text string) {
	a.events = append(a.events, Event{Time: a.options.Now(), Volume: volumeID, Node: nodeID, Text: text})
	a.changedLocked()
}
