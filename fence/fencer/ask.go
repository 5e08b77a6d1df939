package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// machineKey tells questions apart.
type machineKey struct {
	node, uid, bootID, systemUUID, providerID, nodeID string
	storage                                           bool
}

func (t Target) key() machineKey {
	return machineKey{t.Node, t.UID, t.BootID, t.SystemUUID, t.ProviderID, t.NodeID, t.StorageOnly}
}

// flight is a question under way. It goes on when its callers are gone.
type flight struct {
	begun  time.Time
	done   chan struct{}
	answer Answer
	err    error
	// outdated: what it asks for was changed meanwhile.
	outdated bool
	// left: a caller went without the answer.
	left bool
	// turn is when it was this question's, once begins is set; until then nobody has been asked.
	turn   time.Time
	begins atomic.Bool
}

// errQueued: nobody has been asked yet, or only a moment ago, since others were before it.
var errQueued = errors.New("its fence agents have not had their time yet: others are before it")

// maxAnswers bounds what is remembered; well above any cluster's Nodes.
const maxAnswers = 20_000

// asking shares questions about machines among callers, and the answers for a short time.
type asking struct {
	// fetch asks, and calls begins before that. It goes on when the callers are gone.
	fetch func(ctx context.Context, t Target, begins func()) (Answer, error)
	// fresh tells whether an answer may be used by others than who asked.
	fresh func(*Answer) bool
	// store, if set, writes an answer down before anybody has it; stored tells whether it is
	// still so written.
	store  func(ctx context.Context, t Target, a *Answer) error
	stored func(ctx context.Context, t Target, a *Answer) (bool, error)
	// answered is told of an answer that is news; left: a caller went without it, and what it
	// says is not what was said last.
	answered func(node string, a Answer, left bool)

	mu      sync.Mutex
	flights map[machineKey]*flight
	answers map[machineKey]Answer
}

func newAsking(fetch func(context.Context, Target, func()) (Answer, error), fresh func(*Answer) bool) asking {
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
	return f.ask(ctx, t, time.Time{})
}

// AskSince is Ask, by nothing that was begun to be read before since. Where ctx ends before the
// agents have had 3 s, the error is errQueued too.
func (f *Fencer) AskSince(ctx context.Context, t Target, since time.Time) (Answer, error) {
	return f.ask(ctx, t, since)
}

// lastOn is the last answer about the machine, if that says that it is on and may still be
// used.
func (f *Fencer) lastOn(t Target) (Answer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.answers[t.key()]
	return a, ok && len(a.On) > 0 && f.fresh(&a) && a.Machine.LeaseRV == t.LeaseRV
}

// ask is Ask, by nothing that was begun before since.
func (f *asking) ask(ctx context.Context, t Target, since time.Time) (Answer, error) {
	asked := time.Now()
	for {
		f.mu.Lock()
		if a, ok := f.answers[t.key()]; ok && f.fresh(&a) && a.Machine.LeaseRV == t.LeaseRV && !a.begun().Before(since) {
			f.mu.Unlock()
			if f.stored == nil {
				return a, nil
			}
			if holds, err := f.stored(ctx, t, &a); err != nil || holds {
				return a, err
			}
			f.drop(t.key(), a.Fence)
			continue
		}
		fl := f.flights[t.key()]
		if fl == nil {
			fl = &flight{begun: time.Now(), done: make(chan struct{})}
			f.flights[t.key()] = fl
			go f.fly(context.WithoutCancel(ctx), t, fl)
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			f.mu.Lock()
			fl.left = true
			f.mu.Unlock()
			if !fl.begins.Load() || time.Since(fl.turn) < answersWithin-turnWithin && !since.IsZero() {
				return Answer{}, fmt.Errorf("%w: %w", errQueued, ctx.Err())
			}
			return Answer{}, ctx.Err()
		case <-fl.done:
		}
		// One that was under way before may be about an older lease.
		if fl.err != nil || !fl.begun.Before(asked) || !fl.turn.Before(since) && !fl.answer.torn && fl.answer.Machine.LeaseRV == t.LeaseRV {
			return fl.answer, fl.err
		}
	}
}

// holds: the record still has the storage fence that an answer rests on. Another
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

// drop forgets one answer.
func (f *asking) drop(key machineKey, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers[key].Fence == id {
		delete(f.answers, key)
	}
}

// inTurn observes once few others do.
func (f *Fencer) inTurn(ctx context.Context, t Target, begins func()) (Answer, error) {
	f.slots <- struct{}{}
	defer func() { <-f.slots }()
	begins()
	return f.observe(ctx, t)
}

// keepAnswer writes an answer down, unless nothing is.
func (f *Fencer) keepAnswer(ctx context.Context, t Target, a *Answer) error {
	if f.ReadOnly {
		return nil
	}
	return f.keep(ctx, t, a)
}

func (f *asking) fly(ctx context.Context, t Target, fl *flight) {
	a, err := f.fetch(ctx, t, func() { fl.turn = time.Now(); fl.begins.Store(true) })
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
	left := fl.left
	news := !known || left || !a.stillOn(&last)
	told := known && a.State == agent.Unclear && last.State == agent.Unclear
	f.mu.Unlock()
	close(fl.done)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell whether the node is off", "node", t.Node)
	}
	if err == nil && news {
		f.answered(t.Node, a, left && !told)
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

// stillOn: the machine is on, as the last answer said of it.
func (a *Answer) stillOn(last *Answer) bool {
	return a.State == agent.On && last.State == agent.On && a.Kind == last.Kind && a.Storage == last.Storage &&
		slices.Equal(a.On, last.On) && a.Machine.Same(last.Machine) && a.Machine.LeaseRV == last.Machine.LeaseRV
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
