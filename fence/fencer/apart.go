package fencer

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	// apartFor is how long what an Apart was told may be used by others than who asked.
	apartFor = 5 * time.Second
	// asksFor is how long a question waits for its answer before a new one may be asked.
	asksFor = time.Minute
	// unclearAfter is how long it is waited whether another process can tell, where one cannot.
	unclearAfter = answersWithin + 500*time.Millisecond
	// looksEvery is the pause between two looks for the answer, where no watch has shown a
	// change of the record before.
	looksEvery = 250 * time.Millisecond
	// looksRarely is that pause once a guarded call would not wait for the answer any more.
	looksRarely = 2 * time.Second
	looksOften  = 5 * time.Second
)

// FailoverAgent is what an operator's override calls csi-fencepost failover itself: whatever
// it would say of the power, or does not say, is wrong.
const FailoverAgent = "failover"

// UnansweredError tells that nobody has said whether the machine is on. Why says why not.
type UnansweredError struct {
	Node, Why string
	Err       error
}

func (e *UnansweredError) Error() string { return "node " + e.Node + ": " + e.Words() }

// Words are the error without the node.
func (e *UnansweredError) Words() string {
	return "csi-fencepost failover has not said whether the machine is on: " + e.Why
}

func (e *UnansweredError) Unwrap() error { return e.Err }

// Apart asks about the power of nodes through their records: the agents that read it are
// another process's, csi-fencepost failover (Answerer). What cuts off the driver's storage is
// asked here. It is safe for concurrent use.
//
// An answer counts only by the ID of a question that this Apart made up, where the question
// stands as it was asked, and where somebody who may fence vouches for both. Callers for one
// machine share one question. That the machine is off is used for 5 s from when its question was
// asked; that it is on, or that nobody can tell, for 5 s from when it came: who waits for an
// answer is woken by it, and asks then. All of that is on this process's own clock.
type Apart struct {
	// Outcome, if set before the first Ask, is told what came of each question that was put to the
	// other process: a clear answer or an Unclear one, or an *UnansweredError. It must not block.
	Outcome func(node string, answer Answer, err error)

	own *Fencer
	asking

	waiting sync.Mutex
	wake    map[string]map[chan struct{}]bool // by node: who waits for a change of its record
}

// NewApart is an Apart that writes records as own does. The agents of own, which may have
// none, must not read power. answered is told of each node of which the answer is clear and news, and of each whose
// answer came after a caller had gone with a claim (Target.Claimed); it must not block.
func NewApart(own *Fencer, answered func(node string)) *Apart {
	a := &Apart{own: own, wake: map[string]map[chan struct{}]bool{}}
	a.asking = newAsking(a.question, (*Answer).freshApart)
	a.stored = a.stillUnclear
	a.answered = func(node string, answer Answer, claimed bool) {
		if claimed || answer.State != agent.Unclear {
			answered(node)
		}
	}
	return a
}

// freshApart tells whether an answer that another process gave is still to be rested on (see
// Apart).
func (a *Answer) freshApart() bool {
	if a.State == agent.Off {
		return time.Since(a.begun()) < apartFor
	}
	return time.Since(a.read) < apartFor
}

// Covers implements evidence.Asker: which nodes the other process's agents cover, it says
// when it is asked.
func (a *Apart) Covers(string) bool { return true }

// CoversPower implements evidence.Asker: no agent here reads power.
func (a *Apart) CoversPower(string) bool { return false }

// AsksPower implements evidence.Asker.
func (a *Apart) AsksPower(string) bool { return true }

// CoversStorage implements evidence.Asker.
func (a *Apart) CoversStorage(node string) bool { return a.own.CoversStorage(node) }

// StorageAgents implements evidence.Asker.
func (a *Apart) StorageAgents(node string) []string { return a.own.StorageAgents(node) }

// Ask asks about the machine's power through the record, and agents of our own about its
// access to the storage, at once. Where nobody says anything of the power, the error is an
// *UnansweredError, and the answer has what the storage's agents say.
func (a *Apart) Ask(ctx context.Context, t Target) (Answer, error) {
	if t.StorageOnly {
		return a.own.Ask(ctx, t)
	}
	if !a.own.CoversStorage(t.Node) {
		return a.power(ctx, t)
	}
	var storage Answer
	var failed error
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		storage, failed = a.own.Ask(ctx, t)
	}()
	power, err := a.power(ctx, t)
	<-asked
	if failed != nil && ctx.Err() == nil {
		return Answer{}, failed
	}
	return both(power, storage), err
}

// power asks the other process.
func (a *Apart) power(ctx context.Context, t Target) (Answer, error) {
	answer, err := a.ask(ctx, t, time.Time{}, 0)
	var unanswered *UnansweredError
	if err != nil && !errors.As(err, &unanswered) {
		err = &UnansweredError{Node: t.Node, Why: "it does not answer", Err: err}
	}
	return answer, err
}

// both are what is said of the power and of the storage in one, as one Fencer with all of
// these agents says it (read).
func both(power, storage Answer) Answer {
	a := power
	if power.State != agent.Off && storage.State != agent.Unclear && (power.State == agent.Unclear || storage.State == agent.Off) {
		a = storage
	}
	a.On, a.Storage, a.Uncut = power.On, storage.Storage, storage.Uncut && a.State != agent.Off
	return a
}

// question asks, and waits for the answer.
func (a *Apart) question(ctx context.Context, t Target, _ *flight) (Answer, error) {
	if t.UID == "" {
		return Answer{Why: unknownMachine, Machine: record.FencedMachine{LeaseRV: t.LeaseRV}, read: time.Now()}, nil
	}
	if a.own.ReadOnly {
		return Answer{}, &UnansweredError{Node: t.Node, Why: "it is not asked here (mode Observe)"}
	}
	answer, err := a.put(ctx, t)
	if a.Outcome != nil {
		a.Outcome(t.Node, answer, err)
	}
	return answer, err
}

// put puts the question into the record, and waits for the answer.
func (a *Apart) put(ctx context.Context, t Target) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, asksFor)
	defer cancel()
	changed := a.listen(t.Node)
	defer a.leave(t.Node, changed)
	q := record.Question{ID: string(uuid.NewUUID()), Driver: a.own.Driver, Actor: a.own.Actor,
		NodeUID: t.UID, BootID: t.BootID, SystemUUID: t.SystemUUID, ProviderID: t.ProviderID, NodeID: t.NodeID, LeaseRV: t.LeaseRV}
	r, err := a.own.Records.Update(ctx, t.Node, func(r *record.Record) (bool, error) { return r.Ask(q), nil })
	if err != nil {
		return Answer{}, &UnansweredError{Node: t.Node, Why: "it cannot be asked: " + err.Error(), Err: err}
	}
	asked := time.Now()
	for why := ""; ; {
		switch now := r.Question(q.ID); {
		case err != nil:
			why = ": " + err.Error()
		case now == nil:
			return Answer{}, &UnansweredError{Node: t.Node, Why: "others have asked since, and taken the question away"}
		case !now.SameAs(&q):
			why = ": somebody has changed what was asked"
		case r.Vouched(now):
			answer, err := answerTo(now)
			if err != nil || answer.State != agent.Unclear || time.Since(asked) >= unclearAfter {
				return answer, err
			}
		case now.Answer != nil:
			why = ": nobody who may fence vouches for what " + now.Answer.Actor + " answered"
		}
		pause := looksEvery
		if time.Since(asked) > looksOften {
			pause = looksRarely
		}
		select {
		case <-ctx.Done():
			return Answer{}, &UnansweredError{Node: t.Node, Why: "it does not answer" + why, Err: ctx.Err()}
		case <-changed:
		case <-time.After(pause):
		}
		r, err = a.own.Records.Get(ctx, t.Node)
	}
}

// stillUnclear tells whether what an answer of before said can be used: that nobody could tell, only
// if nobody has said since that it is on, or off.
func (a *Apart) stillUnclear(ctx context.Context, t Target, answer *Answer) (bool, error) {
	if answer.State != agent.Unclear || answer.question == "" {
		return true, nil
	}
	r, err := a.own.Records.Get(ctx, t.Node)
	if err != nil {
		*answer = Answer{}
		return false, &UnansweredError{Node: t.Node, Why: "its record cannot be read: " + err.Error(), Err: err}
	}
	q := r.Question(answer.question)
	return q == nil || !r.Vouched(q) || q.Answer.State == agent.Unclear.String(), nil
}

// answerTo is the answer to a question as an agent's would be.
func answerTo(q *record.Question) (Answer, error) {
	said := q.Answer
	a := Answer{On: said.On, question: q.ID, Detail: said.Detail, Why: said.Why, read: time.Now(),
		Machine: record.FencedMachine{NodeUID: q.NodeUID, BootID: q.BootID, SystemUUID: q.SystemUUID, LeaseRV: q.LeaseRV}}
	if err := a.State.UnmarshalText([]byte(said.State)); err != nil {
		return Answer{}, &UnansweredError{Node: q.NodeUID, Why: "what it answers is not understood: " + err.Error(), Err: err}
	}
	if a.State != agent.Unclear {
		a.Kind, a.Agents = fence.PowerReading, said.Agents
	}
	return a, nil
}

// Changed tells that the record of a node has changed: an answer is found sooner. It does not
// block.
func (a *Apart) Changed(node string) {
	a.waiting.Lock()
	defer a.waiting.Unlock()
	for c := range a.wake[node] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (a *Apart) listen(node string) chan struct{} {
	a.waiting.Lock()
	defer a.waiting.Unlock()
	c := make(chan struct{}, 1)
	if a.wake[node] == nil {
		a.wake[node] = map[chan struct{}]bool{}
	}
	a.wake[node][c] = true
	return c
}

func (a *Apart) leave(node string, c chan struct{}) {
	a.waiting.Lock()
	defer a.waiting.Unlock()
	delete(a.wake[node], c)
	if len(a.wake[node]) == 0 {
		delete(a.wake, node)
	}
}
