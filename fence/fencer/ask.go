package fencer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// machineKey tells questions apart.
type machineKey struct {
	node, uid, bootID, systemUUID, providerID, nodeID string
	storage, early                                    bool
}

func (t Target) key() machineKey {
	return machineKey{t.Node, t.UID, t.BootID, t.SystemUUID, t.ProviderID, t.NodeID, t.StorageOnly, t.Missed != nil}
}

// flight is a question under way. It goes on when its callers are gone.
type flight struct {
	begun  time.Time
	done   chan struct{}
	answer Answer
	err    error
	// outdated tells that what the question asks for was changed meanwhile.
	outdated bool
	// left tells that a caller went without the answer; claimed, that it was one to whom an unclear
	// answer is news.
	left, claimed bool
	// asked is closed at at, when the agents begin to be asked: until then this process waits for a
	// turn and for the API server. heard is closed once they have said what they say.
	asked, heard chan struct{}
	at           time.Time
	on           []string // agents that have read the power as on so far
}

func newFlight() *flight {
	now := time.Now()
	return &flight{begun: now, at: now, done: make(chan struct{}), asked: make(chan struct{}), heard: make(chan struct{})}
}

// asks notes that the agents begin to be asked.
func (fl *flight) asks() {
	fl.at = time.Now()
	close(fl.asked)
}

// heardAll notes that the agents have said what they say.
func (fl *flight) heardAll() { close(fl.heard) }

// hears takes note of what one of them reads, before all have.
func (f *Fencer) hears(fl *flight, name string, s agent.State) {
	if s == agent.On && f.proves[name] == fence.PowerReading {
		f.mu.Lock()
		defer f.mu.Unlock()
		fl.on = append(fl.on, name)
	}
}

// wait waits for the answer. The error is errSilent where the agents have been asked for patience,
// and for that long since then, and have not said all; patience 0: they are waited for as long as ctx.
func (fl *flight) wait(ctx context.Context, since time.Time, patience time.Duration) error {
	if patience > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-fl.done:
			return nil
		case <-fl.asked:
		}
		from := fl.at
		if since.After(from) {
			from = since
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-fl.done:
			return nil
		case <-fl.heard: // what is left is this process's
		case <-time.After(time.Until(from.Add(patience))):
			return errSilent
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-fl.done:
		return nil
	}
}

// errSilent is returned where the agents were asked, and have not answered in time.
var errSilent = errors.New("its fence agents have not answered")

// maxAnswers bounds what is remembered; well above any cluster's Nodes.
const maxAnswers = 20_000

// asking shares questions about machines among callers, and the answers for a short time.
type asking struct {
	// fetch asks, and tells the flight how far it is. It goes on when the callers are gone.
	fetch func(ctx context.Context, t Target, fl *flight) (Answer, error)
	// fresh tells whether an answer may be used by others than who asked.
	fresh func(*Answer) bool
	// store, if set, writes an answer down before anybody has it; stored tells whether it is
	// still so written.
	store  func(ctx context.Context, t Target, a *Answer) error
	stored func(ctx context.Context, t Target, a *Answer) (bool, error)
	// answered is told of an answer that is news; claimed: to somebody who went without it, also
	// if it is unclear.
	answered func(node string, a Answer, claimed bool)

	mu      sync.Mutex
	flights map[machineKey]*flight
	answers map[machineKey]Answer
}

func newAsking(fetch func(context.Context, Target, *flight) (Answer, error), fresh func(*Answer) bool) asking {
	return asking{fetch: fetch, fresh: fresh, answered: func(string, Answer, bool) {}, flights: map[machineKey]*flight{}, answers: map[machineKey]Answer{}}
}

// Ask asks the agents whether the machine is off. Callers for one machine share
// one question, and its answer for 10 s while the lease is as the caller saw
// it. That it is on, or that nobody can tell, is shared for 2 to 10 s, by how long the
// answer took: power may be cut at any moment and who waits for that is to know, and
// somebody may say that it is off, which whoever reads on vetoes. It goes on when ctx ends,
// which is then the error; every other error is the API server's. What is read as
// off is written into the record first; what the record said is voided when it is
// read as on.
func (f *Fencer) Ask(ctx context.Context, t Target) (Answer, error) {
	return f.ask(ctx, f.of(t), time.Time{}, 0)
}

// AskSince is Ask, by nothing that was begun to be read before since, and not by agents that were
// asked while power or access changed. Where they have been asked for patience and have not
// answered, the error is errSilent: the time in which this process waits for others' questions
// before this one, or for the API server, is not theirs.
func (f *Fencer) AskSince(ctx context.Context, t Target, since time.Time, patience time.Duration) (Answer, error) {
	return f.ask(ctx, f.of(t), since, patience)
}

// of is what is asked: a Fencer of no driver knows no node IDs (Options.Driver).
func (f *Fencer) of(t Target) Target {
	if f.Driver == "" {
		t.NodeID = ""
	}
	return t
}

// lastOn is the last answer about the machine, if that says that it is on and may still be
// used.
func (f *Fencer) lastOn(t Target) (Answer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t = f.of(t)
	a, ok := f.answers[t.key()]
	return a, ok && len(a.On) > 0 && f.fresh(&a) && a.Machine.LeaseRV == t.LeaseRV
}

// ask is AskSince, and with neither since nor patience Ask. With an error the answer has which
// agents have read the power as on so far.
func (f *asking) ask(ctx context.Context, t Target, since time.Time, patience time.Duration) (Answer, error) {
	asked := time.Now()
	for {
		f.mu.Lock()
		if a, ok := f.answers[t.key()]; ok && t.Missed == nil && f.fresh(&a) && a.Machine.LeaseRV == t.LeaseRV && !a.begun().Before(since) {
			f.mu.Unlock()
			if f.stored == nil {
				return a, nil
			}
			if holds, err := f.stored(ctx, t, &a); err != nil || holds {
				return a, err
			}
			f.drop(t.key(), &a)
			continue
		}
		fl := f.flights[t.key()]
		if fl == nil {
			fl = newFlight()
			f.flights[t.key()] = fl
			go f.fly(context.WithoutCancel(ctx), t, fl)
		}
		f.mu.Unlock()
		if err := fl.wait(ctx, since, patience); err != nil {
			return f.leave(t, fl), err
		}
		a := &fl.answer
		switch {
		case fl.err != nil:
			return *a, fl.err
		case !since.IsZero() && (fl.at.Before(since) || a.torn && len(a.On) == 0):
			// The agents were asked before since, or while power changed: they are asked again.
		case !fl.begun.Before(asked) || !a.torn && a.Machine.LeaseRV == t.LeaseRV:
			// An answer to a question that was under way before this call may be about an older
			// version of the lease.
			return *a, nil
		}
	}
}

// leave is for a caller that goes without the answer: what is known by now.
func (f *asking) leave(t Target, fl *flight) Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.left, fl.claimed = true, fl.claimed || t.Claimed
	if len(fl.on) == 0 {
		return Answer{}
	}
	return Answer{On: slices.Clone(fl.on), Why: "agent " + strings.Join(fl.on, ", ") + " reads on, the others have not answered",
		Machine: record.FencedMachine{NodeUID: t.UID, BootID: t.BootID, SystemUUID: t.SystemUUID, LeaseRV: t.LeaseRV}}
}

// holds tells whether the record still has the storage fence that an answer rests on. Another
// process may have lifted it, which forgets nothing here.
func (f *Fencer) holds(ctx context.Context, t Target, a *Answer) (bool, error) {
	if a.State != agent.Off || a.Kind != fence.StorageFence || a.Fence == "" {
		return true, nil
	}
	r, err := f.Records.Get(ctx, t.Node)
	if err != nil {
		*a = Answer{}
		return false, err
	}
	s := r.Fence(fence.StorageFence, f.Driver)
	return s != nil && s.ID == a.Fence && s.Phase == record.Fenced, nil
}

// drop forgets that answer.
func (f *asking) drop(key machineKey, a *Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers[key].read.Equal(a.read) {
		delete(f.answers, key)
	}
}

// inTurn observes once few others do.
func (f *Fencer) inTurn(ctx context.Context, t Target, fl *flight) (Answer, error) {
	f.slots <- struct{}{}
	defer func() { <-f.slots }()
	return f.observe(ctx, t, fl)
}

// keepAnswer writes an answer down, unless nothing is.
func (f *Fencer) keepAnswer(ctx context.Context, t Target, a *Answer) error {
	if f.ReadOnly {
		return nil
	}
	return f.keep(ctx, t, a)
}

func (f *asking) fly(ctx context.Context, t Target, fl *flight) {
	a, err := f.fetch(ctx, t, fl)
	f.mu.Lock()
	if fl.outdated {
		a = Answer{Why: "power or access was changed while the agents were asked", Machine: a.Machine, Steps: a.Steps, torn: true}
	}
	f.mu.Unlock()
	if err == nil && f.store != nil {
		err = f.store(ctx, t, &a)
	}
	a.took = a.read.Sub(fl.begun)
	fl.answer, fl.err = a, err
	f.mu.Lock()
	delete(f.flights, t.key())
	last, known := f.answers[t.key()]
	if err == nil && !fl.outdated && !a.torn {
		if len(f.answers) >= maxAnswers {
			clear(f.answers)
		}
		f.answers[t.key()] = a
	} else {
		delete(f.answers, t.key()) // what comes next is news to who heard this
	}
	news, claimed := !known || fl.left || !a.stillOn(&last), fl.claimed
	f.mu.Unlock()
	close(fl.done)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell whether the node is off", "node", t.Node)
	}
	if err == nil && news {
		f.answered(t.Node, a, claimed)
	}
}

// begun is when the question was.
func (a *Answer) begun() time.Time { return a.read.Add(-a.took) }

func (a *Answer) fresh() bool { return time.Since(a.read) < a.freshFor() }

// freshFor is how long an answer may be used by others than who asked.
func (a *Answer) freshFor() time.Duration {
	if a.State == agent.Off {
		return freshFor
	}
	return min(max(onFreshFor, restsFor*a.took), freshFor)
}

// stillOn tells whether the machine is on, as the last answer said of it.
func (a *Answer) stillOn(last *Answer) bool {
	return a.State == agent.On && last.State == agent.On && a.Kind == last.Kind && a.Storage == last.Storage &&
		slices.Equal(a.On, last.On) && a.Machine.Same(last.Machine) && a.Machine.LeaseRV == last.Machine.LeaseRV
}

// forgetOff has no answer be used any more by which the node's power is off.
func (f *asking) forgetOff(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, a := range f.answers {
		if key.node == node && a.State == agent.Off && a.Kind == fence.PowerReading {
			delete(f.answers, key)
		}
	}
}

// forget makes the next Ask a question to the agents, and what is being asked
// count for nothing. It is called before and after power or access changes.
func (f *asking) forget(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, fl := range f.flights {
		if key.node == node {
			fl.outdated = true
		}
	}
	for key := range f.answers {
		if key.node == node {
			delete(f.answers, key)
		}
	}
}
