package fencer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	// answersWithin is how long the agents may take. Whoever asks for a guarded call waits
	// for 4 s, with the way there and back.
	answersWithin = 3 * time.Second
	// answersAgain is the least pause between two answers to one process about one node, which
	// asks again no sooner than after 5 s.
	answersAgain = time.Second
	// maxAnswering under way at once, well above what the calls of all drivers ask.
	maxAnswering = 4096
	// othersWithin is how long who cannot tell leaves a question to others who may.
	othersWithin = 2 * time.Second
)

// Answerer answers, in the nodes' records, what processes without agents for the power of
// nodes ask (Apart).
//
// Each question is answered by what its agents read after it was seen, within 3 s from when it is
// their turn. Where they take longer it is answered by what they read last, if that was on a few
// seconds ago, and else that they have not answered yet: a claim waits no longer for them then than
// it does where the guard itself asks them. While others are before it nothing is said, and so no
// claim counts. That nobody can tell is said after 2 s at the soonest: others may. Answering waits for no lock of a node, for no Node, and
// heeds no opt-out: reading does no harm. What cannot be read, or written, now is tried again for a
// minute.
type Answerer struct {
	// Fencer asks. A Fencer that only reads answers nothing.
	Fencer *Fencer
	// Alone tells that no other process has agents for power, so that of a node which these do not
	// cover it is answered that none does. Else such a question is left to others.
	Alone bool

	mu    sync.Mutex
	ctx   context.Context            // of Run; nil: it does not run
	open  map[string]record.Question // by node and actor: what is being answered, and what comes next
	going sync.WaitGroup
}

// Saw takes note of a record that a watch shows, with the questions in it. It does not block.
// Without Run it does nothing.
func (a *Answerer) Saw(lease *coordinationv1.Lease) {
	if node, ok := record.NodeOf(lease); ok && record.Asked(lease) {
		// Of a garbled record the guard says what is wrong with it.
		if r, err := record.FromLease(lease, node); err == nil && r != nil {
			a.take(r)
		}
	}
}

// Run answers until ctx ends, also what was asked before. It may be begun again. Run it on one
// replica at a time; two do no harm.
func (a *Answerer) Run(ctx context.Context) error {
	if a.Fencer.ReadOnly {
		return nil
	}
	a.mu.Lock()
	a.ctx, a.open = ctx, map[string]record.Question{}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.ctx = nil
		a.mu.Unlock()
		a.going.Wait()
	}()
	records, _, err := a.Fencer.Records.List(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("what is asked about nodes cannot be read: %w", err)
	}
	for _, r := range records {
		a.take(r)
	}
	<-ctx.Done()
	return nil
}

func (a *Answerer) take(r *record.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range r.Open() {
		key := strings.Join([]string{r.Node, q.Actor, q.NodeUID, q.BootID, q.SystemUUID, q.ProviderID, q.NodeID}, "\x00")
		_, under := a.open[key]
		switch {
		case a.ctx == nil || a.ctx.Err() != nil:
			return
		case under:
			a.open[key] = q
		case len(a.open) < maxAnswering:
			a.open[key] = q
			ctx := a.ctx
			a.going.Go(func() { a.work(ctx, r.Node, key) })
		}
	}
}

// work answers the questions of one process about one node until there is none.
func (a *Answerer) work(ctx context.Context, node, key string) {
	var at, done string
	var since time.Time
	for {
		a.mu.Lock()
		q := a.open[key]
		if q.ID == done || ctx.Err() != nil {
			delete(a.open, key)
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		if q.ID != at {
			at, since = q.ID, time.Now()
		}
		over, err := a.answer(ctx, node, &q, since)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot answer whether a node is off", "node", node, "driver", q.Driver)
		}
		if over || time.Since(since) >= asksFor {
			done = q.ID
		}
		select {
		case <-ctx.Done():
		case <-time.After(answersAgain):
		}
	}
}

// answer answers a question; over: nothing more is to be said of it here.
func (a *Answerer) answer(ctx context.Context, node string, q *record.Question, seen time.Time) (over bool, err error) {
	said, err := a.read(ctx, node, q, seen)
	switch {
	case said == nil || err != nil:
		return err == nil, err
	}
	if wait := othersWithin - time.Since(seen); said.State == agent.Unclear.String() && wait > 0 {
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(wait):
		}
	}
	said.Actor = a.Fencer.Actor
	limited, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	_, err = a.Fencer.Records.Update(limited, node, func(r *record.Record) (bool, error) { return r.Reply(*q, *said), nil })
	return err == nil, err
}

// read is what to answer; nil: nothing. An error is the API server's: of what cannot be bound to
// a machine nothing is said.
func (a *Answerer) read(ctx context.Context, node string, q *record.Question, seen time.Time) (*record.Answer, error) {
	if !a.Fencer.CoversPower(node) {
		if !a.Alone {
			return nil, nil
		}
		return &record.Answer{State: agent.Unclear.String(), Uncovered: true, Why: "no fence agent reads its power"}, nil
	}
	t := Target{Node: node, UID: q.NodeUID, BootID: q.BootID, SystemUUID: q.SystemUUID, ProviderID: q.ProviderID, LeaseRV: q.LeaseRV}
	if q.Driver == a.Fencer.Driver {
		t.NodeID = q.NodeID
	}
	limited, cancel := context.WithDeadline(ctx, seen.Add(asksFor))
	defer cancel()
	read, err := a.Fencer.AskSince(limited, t, seen, answersWithin)
	last, on := a.Fencer.lastOn(t)
	switch silent := errors.Is(err, errSilent); {
	case silent && on: // what was read a moment ago still stands against a claim
		last.On = union(last.On, read.On)
		read = last
	case silent && len(read.On) > 0:
	case silent:
		read = Answer{Why: fmt.Sprintf("%s within %s", err, answersWithin)}
	case err != nil:
		return nil, err
	case read.State == agent.Off && read.Machine.LeaseRV != q.LeaseRV:
		read.State, read.Why = agent.Unclear, fence.VoidLeaseChanged
	}
	return powerOf(&read), nil
}

// powerOf is what an answer says of the power alone.
func powerOf(a *Answer) *record.Answer {
	said := &record.Answer{State: agent.Unclear.String(), On: a.On, Detail: a.Detail, Why: a.Why}
	switch {
	case a.State == agent.Off && a.Kind == fence.PowerReading:
		said.State, said.Agents = agent.Off.String(), a.Agents
	case len(a.On) > 0:
		said.State, said.Agents = agent.On.String(), a.On
	}
	return said
}
