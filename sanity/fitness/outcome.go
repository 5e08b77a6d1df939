package fitness

import "fmt"

// Answer to a question. Each question is asked so that yes is what a takeover
// wishes for.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Effect is what an answer does to the verdict.
type Effect string

const (
	// Fine means that there is nothing to say.
	Fine Effect = "fine"
	// Remark means that a takeover works; a person should know all the same.
	Remark Effect = "remark"
	// Setting means that a takeover is safe with what Outcome.Needs names.
	Setting Effect = "setting"
	// Unfit means that a takeover would be unsafe, or would wait for ever.
	Unfit Effect = "unfit"
	// Open means that it is not known, and that the safe answer is assumed.
	Open Effect = "open"
	// Missing means that it is not known, and that without it there is no verdict.
	Missing Effect = "missing"
)

// Need is something that a verdict's settings provide.
type Need string

const (
	// Guard means that nothing but csi-fencepost, in mode Enforce, keeps a second node out.
	Guard Need = "guard"
	// Time means that external-attacher has to wait longer for an answer.
	Time Need = "time"
	// TaintFirst means that the out-of-service taint has to be on the node before the unpublish.
	TaintFirst Need = "taintFirst"
)

// Outcome of one question.
type Outcome struct {
	// Question is its short name, Asks the question itself.
	Question string `json:"question"`
	Asks     string `json:"asks"`
	Answer   Answer `json:"answer"`
	// Saw is what the driver did.
	Saw    string `json:"saw"`
	Effect Effect `json:"effect"`
	Needs  Need   `json:"needs,omitempty"`
	// Means is what it means for a takeover; empty where Effect is Fine.
	Means string `json:"means,omitempty"`
}

// found is what a question finds; Asks and Means come from the question.
type found struct {
	answer Answer
	effect Effect
	needs  Need
	saw    string
	means  string // instead of the question's own
}

func yes(format string, args ...any) found {
	return found{answer: Yes, effect: Fine, saw: fmt.Sprintf(format, args...)}
}

func no(effect Effect, format string, args ...any) found {
	return found{answer: No, effect: effect, saw: fmt.Sprintf(format, args...)}
}

func unknown(effect Effect, format string, args ...any) found {
	return found{answer: Unknown, effect: effect, saw: fmt.Sprintf(format, args...)}
}

func (f found) because(format string, args ...any) found {
	f.means = fmt.Sprintf(format, args...)
	return f
}

func (f found) needing(n Need) found {
	f.needs = n
	return f
}
