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

// sharedLater is how much later calls may have begun whose own requests go before
// a shared one: in a storm they come to need it too, and have it with the same
// request. It is as long as a call lasts when the limit is what it waits for, so
// that those that come to need it have come. Where the limit holds nothing back it
// makes no difference.
const sharedLater = 5 * time.Second

// get reads by read, which makes one request and has to give the same for the
// same key. The value is shared: nobody may change it. A nil limit holds nothing
// back.
func (s *sharedReads[T]) get(ctx context.Context, limit *throttle.Limiter, key string, read func(context.Context) (T, error)) (T, error) {
	turn := throttle.TurnOf(ctx).Add(sharedLater)
	s.mu.Lock()
	if s.reads == nil {
		s.reads = map[string]*sharedReading[T]{}
	}
	r := s.reads[key]
	switch {
	case r == nil:
		r = &sharedReading[T]{turn: turn, place: limit.Join(turn), done: make(chan struct{})}
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

// advance: somebody waits for it whose turn may be earlier.
func (r *sharedReading[T]) advance(turn time.Time) {
	if turn.Before(r.turn) {
		r.turn = turn
		r.place.Advance(turn)
	}
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
			next.place = limit.Join(next.turn)
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
	r.err = r.place.Wait(held)
	s.mu.Lock()
	r.sent = true
	s.mu.Unlock()
	if r.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(throttle.Paid(ctx), sharedTimeout)
	defer cancel()
	r.value, r.err = read(ctx)
}
