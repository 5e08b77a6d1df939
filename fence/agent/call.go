package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// grace is how long an agent gets to return after its deadline.
const grace = 500 * time.Millisecond

// errHangs is returned where the call has not returned although its time was up.
var errHangs = errors.New("did not return when its time was up and may still be under way")

// answer is what a call of an agent came to.
type answer struct {
	reading Reading
	err     error
}

// bound calls f for at most timeout and the grace. An answer after the
// deadline counts for nothing. With errHangs, ended is closed when f returns.
func bound(ctx context.Context, timeout time.Duration, f func(context.Context) answer) (a answer, ended <-chan struct{}) {
	if ctx.Err() != nil {
		return answer{err: context.Cause(ctx)}, nil // an agent might not look
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	got, done := make(chan answer, 1), make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		got <- f(ctx)
	}()
	select {
	case a = <-got:
	case <-ctx.Done():
		select {
		case a = <-got:
		case <-time.After(grace):
			return answer{err: fmt.Errorf("%w (%w)", errHangs, context.Cause(ctx))}, done
		}
	}
	return a, done
}

// status reads once. Whatever is not a clean answer in time is Unclear.
func (b Bounded) status(ctx context.Context, m Machine, timeout time.Duration) answer {
	a, _ := bound(ctx, timeout, func(ctx context.Context) answer {
		r, err := Read(ctx, b.Agent, m)
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("answered %s too late to count: %w", known(r.State), ctx.Err())
		}
		return answer{r, err}
	})
	a.reading.State = known(a.reading.State)
	if a.err != nil {
		a.reading.State = Unclear
	}
	return a
}

// run is one Ask, Off or On: it collects the steps and the calls that hang.
type run struct {
	m Machine

	mu    sync.Mutex
	steps []Step
	hangs []<-chan struct{}
}

// where a call belongs in the trail.
type where struct{ level, attempt int }

func (r *run) note(b Bounded, action string, at where, started time.Time, a answer) {
	s := Step{
		Agent: b.Agent.Name(), Action: action, Level: at.level, Attempt: at.attempt,
		State: a.reading.State, Detail: clip(a.reading.Detail, maxDetail), Checked: a.reading.Checked, OwnWord: a.reading.OwnWord, Named: a.reading.Named, Cut: a.reading.Cut, Hangs: errors.Is(a.err, errHangs),
		Started: started, Took: time.Since(started),
	}
	if a.err != nil {
		s.Err = clip(a.err.Error(), maxWords)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
}

// act sends off or on, and keeps track of a call that hangs. It sends nothing to an agent that
// may find another machine.
func (r *run) act(ctx context.Context, b Bounded, action string, at where, f func(context.Context, Machine) (string, error)) error {
	started := time.Now()
	a, ended := bound(ctx, b.timeout(), func(ctx context.Context) answer {
		if why := Withheld(b.Agent, r.m); why != "" {
			return answer{err: errors.New(why)}
		}
		detail, err := f(ctx, r.m)
		return answer{Reading{Detail: detail}, err}
	})
	r.note(b, action, at, started, a)
	if errors.Is(a.err, errHangs) {
		r.mu.Lock()
		r.hangs = append(r.hangs, ended)
		r.mu.Unlock()
	}
	return a.err
}

// read asks for one reading.
func (r *run) read(ctx context.Context, b Bounded, at where) State {
	started := time.Now()
	a := b.status(ctx, r.m, b.timeout())
	r.note(b, "status", at, started, a)
	return a.reading.State
}

// poll reads until want is read or the agent's time is up: some devices take
// seconds. A reading to the contrary on the way outweighs silence at the end.
func (r *run) poll(ctx context.Context, b Bounded, at where, want State) State {
	started, state, last := time.Now(), Unclear, answer{}
	until := started.Add(b.timeout())
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		a := b.status(ctx, r.m, max(time.Until(until), time.Millisecond))
		if a.reading.State != Unclear || state == Unclear {
			state, last = a.reading.State, a
		}
		if state == want || ctx.Err() != nil || time.Now().Add(pause).After(until) {
			break
		}
		sleep(ctx, pause)
	}
	r.note(b, "status", at, started, last)
	return state
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// each calls f for all agents of a level at the same time.
func (l Level) each(f func(i int, b Bounded)) {
	var wg sync.WaitGroup
	for i, b := range l {
		wg.Go(func() { f(i, b) })
	}
	wg.Wait()
}

// outcome puts the trail to a finding.
func (r *run) outcome(o Outcome, seen verdicts) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Steps = r.steps
	for _, one := range seen {
		if one.state == On {
			o.ReadOn = append(o.ReadOn, one.b.Agent.Name())
		}
	}
	o.Why = clip(o.Why, maxWords)
	if len(r.hangs) == 0 {
		return o
	}
	done := make(chan struct{})
	go func(hangs []<-chan struct{}) {
		defer close(done)
		for _, ended := range hangs {
			<-ended
		}
	}(r.hangs)
	o.Outstanding = done
	return o
}
