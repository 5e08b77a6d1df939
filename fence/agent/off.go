package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// retryAfter is the pause between two attempts, and on a level.
const retryAfter = time.Second

// Off cuts the machine off, level by level, until one confirms: Off of all its
// agents, then a Status of each until it reads off or the agent's time is up;
// where they do not all read off, the next attempt, then the next level.
//
// before is called right before each single Off, one at a time, with the
// agent's time limit: the caller reads the node's lease and its lock again
// there. Its error stops everything, and cancels what is under way.
//
// An agent that still reads On when a later level of the same kind has
// confirmed is a contradiction: the outcome is Unclear.
//
// The outcome comes within the agents' time limits, polling included, and a
// second each; see Outcome.Outstanding for a call that did not end.
func (l Levels) Off(ctx context.Context, m Machine, before func(ctx context.Context, agent Agent) error) Outcome {
	r := &run{m: m}
	var seen verdicts
	for i, level := range l {
		if !level.covers(m.Node) {
			continue
		}
		states, err := r.cut(ctx, level, i+1, before)
		if err != nil {
			return r.outcome(Outcome{Why: "stopped: " + err.Error()}, seen)
		}
		if all(states, Off) {
			r.askAgain(ctx, seen.contradicting(level), seen)
		}
		// A level that reads on was sent off: the next one is tried.
		if o, done := seen.add(i+1, level, states); done && o.State != On {
			return r.outcome(o, seen)
		}
	}
	return r.outcome(seen.rest(m), seen)
}

// askAgain gives agents that read On before this level cut the machine off a
// chance to take it back. Only Off does: silence leaves the contradiction.
func (r *run) askAgain(ctx context.Context, on []verdict, seen verdicts) {
	for _, one := range on {
		state := r.read(ctx, one.b, where{one.level, one.b.attempts()})
		for i := range seen {
			if seen[i].level == one.level && seen[i].b.Agent.Name() == one.b.Agent.Name() && state == Off {
				seen[i].state = Off
			}
		}
	}
}

// cut makes the attempts of one level and returns the last readings.
func (r *run) cut(ctx context.Context, level Level, n int, before func(context.Context, Agent) error) ([]State, error) {
	states := make([]State, len(level))
	for attempt := 1; attempt <= level.attempts(); attempt++ {
		var due Level
		for i, b := range level {
			if states[i] == Off {
				continue
			}
			if attempt > b.attempts() {
				return states, nil // without this one the level cannot confirm
			}
			due = append(due, b)
		}
		if attempt > 1 {
			sleep(ctx, retryAfter)
		}
		at := where{n, attempt}
		failed, err := r.send(ctx, due, at, before)
		if err != nil {
			return nil, err
		}
		// All are read, also those that confirmed in an earlier attempt: the
		// power may be back.
		level.each(func(i int, b Bounded) {
			if failed[b.Agent.Name()] {
				states[i] = r.read(ctx, b, at)
			} else {
				states[i] = r.poll(ctx, b, at, Off)
			}
		})
		if all(states, Off) {
			break
		}
	}
	return states, nil
}

// send sends Off to the agents, and tells which failed. before is asked one at
// a time; the calls themselves run at the same time.
func (r *run) send(ctx context.Context, due Level, at where, before func(context.Context, Agent) error) (map[string]bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed = map[string]bool{}
		stop   error
	)
	for _, b := range due {
		if stop = r.permitted(ctx, b, before); stop != nil {
			cancel(stop)
			break
		}
		wg.Go(func() {
			if err := r.act(ctx, b, "off", at, b.Agent.Off); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[b.Agent.Name()] = true
			}
		})
	}
	wg.Wait()
	if stop != nil {
		return nil, stop
	}
	return failed, nil
}

// permitted asks the caller whether Off may be sent now.
func (r *run) permitted(ctx context.Context, b Bounded, before func(context.Context, Agent) error) error {
	a, _ := bound(ctx, b.timeout(), func(ctx context.Context) answer {
		if err := before(ctx, b.Agent); err != nil {
			return answer{err: err}
		}
		return answer{err: ctx.Err()} // too late to count
	})
	if errors.Is(a.err, errHangs) {
		a.err = errors.New("the check of lease and lock did not return in time")
	}
	if a.err != nil {
		return fmt.Errorf("before off by agent %s: %w", b.Agent.Name(), a.err)
	}
	return nil
}
