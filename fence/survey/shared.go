package survey

import (
	"context"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
)

// sharedReads lets calls that need the same object at the same time have it with
// one request: 50 volumes of one dead node ask for the same Node, lease and
// record. A caller is given nothing but what was requested after it had asked,
// so that the answer is as live as one of its own. Whoever asks while the limit
// on requests still holds a request back shares it: it is sent later than that.
type sharedReads[T any] struct {
	mu    sync.Mutex
	reads map[string]*sharedReading[T] // not answered yet, by key
}

// sharedReading is one request, and the one that waits for it to end.
type sharedReading[T any] struct {
	turn  time.Time       // the earliest of those who wait for it
	place *throttle.Place // in the queue of the limit; nil: not yet
	late  bool            // it has waited for others to come (sharedFor)
	sent  bool
	done  chan struct{}
	value T
	err   error
	next  *sharedReading[T]
}

// sharedTimeout bounds a request that several callers wait for, and limitTimeout
// how long the limit may hold it back before: it ends with none of them.
const (
	sharedTimeout = 10 * time.Second
	limitTimeout  = time.Minute
)

// In a storm other calls come to need a shared request too, and have it with the
// same one. So the own requests of those that began up to sharedLater later go
// before it: as long as a call lasts when the limit is what it waits for. After
// sharedFor it waits no more: a survey needs several, one after another. Where the
// limit holds nothing back neither makes a difference.
const (
	sharedLater = 5 * time.Second
	sharedFor   = 1500 * time.Millisecond
)

// get reads by read, which makes one request and has to give the same for the
// same key. The value is shared: nobody may change it. A nil limit holds nothing
// back.
func (s *sharedReads[T]) get(ctx context.Context, limit *throttle.Limiter, key string, read func(context.Context) (T, error)) (T, error) {
	turn := throttle.TurnOf(ctx)
	s.mu.Lock()
	if s.reads == nil {
		s.reads = map[string]*sharedReading[T]{}
	}
	r := s.reads[key]
	switch {
	case r == nil:
		r = &sharedReading[T]{turn: turn, done: make(chan struct{})}
		r.place = limit.Join(r.due())
		s.reads[key] = r
		go s.run(context.WithoutCancel(ctx), limit, key, r, read)
	case !r.sent:
		r.advance(turn)
	case r.next == nil:
		// That one may have been answered before we asked.
		r.next = &sharedReading[T]{turn: turn, done: make(chan struct{})}
		r = r.next
	default:
		r = r.next
		r.advance(turn)
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// advance is called for somebody who waits for the reading, and whose turn may be earlier.
func (r *sharedReading[T]) advance(turn time.Time) {
	if turn.Before(r.turn) {
		r.turn = turn
		r.place.Advance(r.due())
	}
}

// due is its turn in the queue of the limit.
func (r *sharedReading[T]) due() time.Time {
	if r.late {
		return r.turn
	}
	return r.turn.Add(sharedLater)
}

// run makes the request, and then those that were asked for meanwhile.
func (s *sharedReads[T]) run(ctx context.Context, limit *throttle.Limiter, key string, r *sharedReading[T], read func(context.Context) (T, error)) {
	for r != nil {
		s.request(ctx, r, read)
		s.mu.Lock()
		next := r.next
		if next == nil {
			delete(s.reads, key)
		} else {
			next.place = limit.Join(next.due())
			s.reads[key] = next
		}
		s.mu.Unlock()
		close(r.done)
		r = next
	}
}

// request makes one request, once the limit lets it go.
func (s *sharedReads[T]) request(ctx context.Context, r *sharedReading[T], read func(context.Context) (T, error)) {
	held, release := context.WithTimeout(ctx, limitTimeout)
	defer release()
	waited := time.AfterFunc(sharedFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.late = true
		r.place.Advance(r.due())
	})
	r.err = r.place.Wait(held)
	waited.Stop()
	s.mu.Lock()
	r.sent, ctx = true, throttle.WithTurn(ctx, r.turn)
	s.mu.Unlock()
	if r.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(throttle.Paid(ctx), sharedTimeout)
	defer cancel()
	r.value, r.err = read(ctx)
}
