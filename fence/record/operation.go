package record

import (
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// OperationKind is what an Operation does to the machine.
type OperationKind string

const (
	// Cut switches the machine off, or cuts it off from its storage.
	Cut OperationKind = "Cut"
	// On gives the machine its power and its access back.
	On OperationKind = "On"
	// Lift gives the machine its access to one driver's storage back.
	Lift OperationKind = "Lift"
)

// Operation is what somebody began last under the record's lock.
type Operation struct {
	// ID of the attempt, or of the first of several that were the same; of a cut that of
	// its fence. The trail's entries begin with it.
	ID    string        `json:"id"`
	Kind  OperationKind `json:"kind"`
	Actor string        `json:"actor"`
	// NodeUID of the machine, and Reason, of what is given back.
	NodeUID string `json:"nodeUID,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Latest tells that the trail has its beginning, and nothing since but what it came to.
	Latest bool `json:"latest,omitzero"`
	// Outcomes are what its attempts came to, each once and the newest last.
	Outcomes []string `json:"outcomes,omitempty"`

	Later format.Later `json:",embed"`
}

// maxOutcomes bounds an operation's different outcomes.
const maxOutcomes = 4

// GivesBack tells whether access may be open because of it. What a later version does
// may.
func (o *Operation) GivesBack() bool { return o.ID != "" && o.Kind != Cut }

// repeats tells whether next is o once more.
func (o *Operation) repeats(next Operation) bool {
	return o.Latest && o.Kind == next.Kind && o.Actor == clip(next.Actor) && o.NodeUID == next.NodeUID && o.Reason == clip(next.Reason)
}

// Begin writes down that next begins, before its first request. A repeated one is
// on record already: it gets the ID of the first, and Begin returns false, so that what
// fails again and again does not push out the rest of the trail. For the change of an
// Update.
func (r *Record) Begin(next *Operation) bool {
	if r.Operation.repeats(*next) {
		next.ID = r.Operation.ID
		return false
	}
	if next.Kind != Cut { // of a cut the fence itself stands in the trail
		r.audit(next.Actor, "Begin:"+strings.ToLower(string(next.Kind)), next.ID+": node UID "+next.NodeUID+": "+next.Reason)
	}
	r.Operation = *next
	r.Operation.Actor, r.Operation.Reason, r.Operation.Latest = clip(next.Actor), clip(next.Reason), true
	return true
}

// End writes down what an attempt came to, and returns false where the same is on record
// already. For the change of an Update.
func (r *Record) End(done Operation, outcome string) bool {
	outcome = clip(outcome)
	o := &r.Operation
	repeated := o.repeats(done)
	if repeated && slices.Contains(o.Outcomes, outcome) {
		return false
	}
	r.audit(done.Actor, "End:"+strings.ToLower(string(done.Kind)), done.ID+": "+outcome)
	if repeated {
		o.Latest, o.Outcomes = true, last(append(o.Outcomes, outcome), maxOutcomes)
	}
	return true
}
