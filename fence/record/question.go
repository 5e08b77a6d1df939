package record

import (
	"errors"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Question asks whether a machine is off. A process that has no agents for the power of
// nodes puts it into the record, and whoever has some answers it there. Anybody who writes
// records may ask, and nobody vouches for a question. An answer counts only where somebody who
// may fence vouches for it (Record.Vouched, of the whole Question), and only for the process
// that made up the ID. Nothing is decided by a time in it.
type Question struct {
	ID     string `json:"id"`
	Driver string `json:"driver"`
	// Actor asks. A record has one question of each about one machine, and the last few of a
	// driver: its replicas may ask at once, and of a Node that is gone several machines are known.
	Actor string `json:"actor"`
	// At, RFC 3339 on the writer's clock, is for people.
	At string `json:"at"`

	// The machine that is meant, as fencer.Target tells it. LeaseRV is the resourceVersion of
	// its node's lease that the question rests on.
	NodeUID    string `json:"nodeUID"`
	BootID     string `json:"bootID,omitempty"`
	SystemUUID string `json:"systemUUID,omitempty"`
	ProviderID string `json:"providerID,omitempty"`
	NodeID     string `json:"nodeID,omitempty"`
	LeaseRV    string `json:"leaseRV,omitempty"`

	// Answer is nil until somebody has answered.
	Answer *Answer `json:"answer,omitempty"`

	Later format.Later `json:",embed"`
}

// Answer is what the agents of another process say of the machine that a Question means.
type Answer struct {
	// State of the machine: "on", "off" or "unclear".
	State string `json:"state"`
	// Uncovered tells that no agent there reads the node's power.
	Uncovered bool `json:"uncovered,omitzero"`
	// On are the agents that read the power as on, whatever State is; Agents are those that
	// State rests on.
	On     []string `json:"on,omitempty"`
	Agents []string `json:"agents,omitempty"`
	// Detail is the agents' own words, Why what they come to; for people.
	Detail string `json:"detail,omitempty"`
	Why    string `json:"why,omitempty"`
	// Actor answered. At, RFC 3339 on its clock, is for people.
	Actor string `json:"actor"`
	At    string `json:"at"`

	Later format.Later `json:",embed"`
}

// Bounds of a record's questions, of all and of one driver's; the oldest goes first.
const (
	maxQuestions = 24
	maxOfDriver  = 6
)

func (q *Question) validate() error {
	switch {
	case q.ID == "":
		return errors.New("it has no id")
	case q.Driver == "":
		return errors.New("it does not say for which driver")
	case q.NodeUID == "":
		return errors.New("its machine has no nodeUID")
	case q.Answer != nil && q.Answer.Actor == "":
		return errors.New("it does not say who answered")
	}
	return nil
}

// says is of the answer, with the question that it answers.
func (q *Question) says() []string {
	if q == nil || q.Answer == nil {
		return nil
	}
	words := []string{"answer", q.ID, q.Driver, q.NodeUID, q.BootID, q.SystemUUID, q.ProviderID, q.NodeID, q.LeaseRV, q.Answer.State}
	if q.Answer.Uncovered {
		words = append(words, "uncovered")
	}
	for _, names := range [][]string{q.Answer.On, q.Answer.Agents} {
		words = append(append(words, "by"), names...)
	}
	return words
}

// Question with that ID; nil: it is not there.
func (r *Record) Question(id string) *Question {
	return r.lastQuestion(func(q *Question) bool { return q.ID == id })
}

// QuestionOf that driver is its last one; nil: it has asked nothing.
func (r *Record) QuestionOf(driver string) *Question {
	return r.lastQuestion(func(q *Question) bool { return q.Driver == driver })
}

func (r *Record) lastQuestion(is func(*Question) bool) *Question {
	for i := len(r.questions()) - 1; i >= 0; i-- {
		if q := &r.Questions[i]; is(q) {
			return q
		}
	}
	return nil
}

func (r *Record) questions() []Question {
	if r == nil {
		return nil
	}
	return r.Questions
}

// Ask puts q in place of its actor's last question about that machine, whose answer ends with it. It returns
// false where q is there already. For the change of an Update.
func (r *Record) Ask(q Question) bool {
	if r.Question(q.ID) != nil {
		return false // our own write, whose answer was lost
	}
	q.At, q.Actor, q.Answer = now(), clip(q.Actor), nil
	others := 0
	for i := len(r.Questions) - 1; i >= 0; i-- {
		old := &r.Questions[i]
		if old.Driver != q.Driver {
			continue
		}
		if others++; old.Actor == q.Actor && old.aboutSame(&q) || others >= maxOfDriver {
			r.Questions = slices.Delete(r.Questions, i, i+1)
			others--
		}
	}
	r.Questions = last(append(r.Questions, q), maxQuestions)
	return true
}

// SameAs tells whether both ask the same: the same process, about the same machine, in the same
// words. What is asked is nobody's to vouch for, and may have been changed since.
func (q *Question) SameAs(other *Question) bool {
	return q != nil && q.ID == other.ID && q.Driver == other.Driver && q.Actor == clip(other.Actor) && q.aboutSame(other) && q.LeaseRV == other.LeaseRV
}

func (q *Question) aboutSame(other *Question) bool {
	return q.NodeUID == other.NodeUID && q.BootID == other.BootID && q.SystemUUID == other.SystemUUID &&
		q.ProviderID == other.ProviderID && q.NodeID == other.NodeID
}

// Reply answers the question as it was read, and vouches for the answer. It returns false where
// that is there no more, or is another one by now, or is answered. That somebody cannot tell is
// no answer yet to who can. For the change of an Update.
func (r *Record) Reply(asked Question, a Answer) bool {
	q := r.Question(asked.ID)
	if !q.SameAs(&asked) || r.Vouched(q) && (!q.Answer.unclear() || a.unclear()) {
		return false
	}
	a.At, a.Actor, a.Why = now(), clip(a.Actor), clip(a.Why)
	a.Detail, a.On, a.Agents = clipTo(a.Detail, maxStepText), clipNames(a.On), clipNames(a.Agents)
	q.Answer = &a
	r.vouch(q)
	return true
}

func (a *Answer) unclear() bool { return a.State != "on" && a.State != "off" }

func clipNames(names []string) []string {
	names = slices.Clone(names[:min(len(names), maxAgents)])
	for i := range names {
		names[i] = clipTo(names[i], maxStepText)
	}
	return names
}

// Open are the questions that nobody who may fence has answered.
func (r *Record) Open() (all []Question) {
	for i := range r.Questions {
		if q := &r.Questions[i]; !r.Vouched(q) {
			all = append(all, *q)
		}
	}
	return all
}

// Asked tells, without reading it, whether a record may have questions.
func Asked(lease *coordinationv1.Lease) bool {
	return strings.Contains(lease.Annotations[Annotation], `"questions":`)
}

// Version of what a Lease says in the record of that node beside its questions: it is another
// one where anything else has changed. A record that has no questions, or cannot be read, has
// the Lease's own.
func Version(lease *coordinationv1.Lease, node string) string {
	if !Asked(lease) {
		return lease.ResourceVersion
	}
	r, err := FromLease(lease, node)
	if err != nil {
		return lease.ResourceVersion
	}
	var answers []string
	for i := range r.Questions {
		answers = append(answers, digest(&r.Questions[i]))
	}
	r.Questions = nil
	rest := slices.DeleteFunc(r.fenced, func(d string) bool { return slices.Contains(answers, d) })
	text, err := r.encode()
	if err != nil {
		return lease.ResourceVersion
	}
	return hashOf(append(append([]string{text}, rest...), r.claimed...))
}
