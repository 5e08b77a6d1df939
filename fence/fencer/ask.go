package fencer

import (
	"context"
	"slices"
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
}

// maxAnswers bounds what is remembered; well above any cluster's Nodes.
const maxAnswers = 20_000

// Ask asks the agents whether the machine is off. Callers for one machine share
// one question, and its answer for 10 s while the lease is as the caller saw
// it. That it is on, or that nobody can tell, is shared for 2 to 10 s, by how long the
// answer took: power may be cut at any moment and who waits for that is to know, and
// somebody may say that it is off, which whoever reads on vetoes. It goes on when ctx ends,
// which is then the error; every other error is the API server's. What is read as
// off is written into the record first; what the record said is voided when it is
// read as on.
func (f *Fencer) Ask(ctx context.Context, t Target) (Answer, error) {
	asked := time.Now()
	for {
		f.mu.Lock()
		if a, ok := f.answers[t.key()]; ok && time.Since(a.read) < a.freshFor() && a.Machine.LeaseRV == t.LeaseRV {
			f.mu.Unlock()
			if holds, err := f.holds(ctx, t, &a); err != nil || holds {
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
			return Answer{}, ctx.Err()
		case <-fl.done:
		}
		// One that was under way before may be about an older lease.
		if fl.err != nil || !fl.begun.Before(asked) || !fl.answer.torn && fl.answer.Machine.LeaseRV == t.LeaseRV {
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
func (f *Fencer) drop(key machineKey, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers[key].Fence == id {
		delete(f.answers, key)
	}
}

func (f *Fencer) fly(ctx context.Context, t Target, fl *flight) {
	f.slots <- struct{}{}
	a, err := f.observe(ctx, t)
	<-f.slots
	f.mu.Lock()
	if fl.outdated {
		a = Answer{Why: "power or access was changed while the agents were asked", Machine: a.Machine, Steps: a.Steps, torn: true}
	}
	f.mu.Unlock()
	if err == nil && !f.ReadOnly {
		err = f.keep(ctx, t, &a)
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
	news := !known || fl.left || !a.stillOn(&last)
	f.mu.Unlock()
	close(fl.done)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell whether the node is off", "node", t.Node)
	}
	if err == nil && a.State != agent.Unclear && news && f.Answered != nil {
		f.Answered(t.Node, a)
	}
}

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
func (f *Fencer) forget(node string) {
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
