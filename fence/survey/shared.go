package survey

import (
	"context"
	"sync"
	"time"
)

// sharedReads lets calls that need the same object at the same time have it with
// one request: 50 volumes of one dead node ask for the same Node, lease and
// record. A caller is given nothing but what was requested after it had asked,
// so that the answer is as live as one of its own.
type sharedReads[T any] struct {
	mu    sync.Mutex
	reads map[string]*sharedReading[T] // under way, by key
}

// sharedReading is one request, and the one that waits for it to end.
type sharedReading[T any] struct {
	done  chan struct{}
	value T
	err   error
	next  *sharedReading[T]
}

// sharedTimeout bounds a request that several callers wait for: it ends with
// none of them.
const sharedTimeout = 10 * time.Second

// get reads by read, which has to give the same for the same key. The value is
// shared: nobody may change it.
func (s *sharedReads[T]) get(ctx context.Context, key string, read func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	if s.reads == nil {
		s.reads = map[string]*sharedReading[T]{}
	}
	r := s.reads[key]
	switch {
	case r == nil:
		r = &sharedReading[T]{done: make(chan struct{})}
		s.reads[key] = r
		go s.run(context.WithoutCancel(ctx), key, r, read)
	case r.next == nil:
		// That one may have been answered before we asked.
		r.next = &sharedReading[T]{done: make(chan struct{})}
		r = r.next
	default:
		r = r.next
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

// run makes the request, and then those that were asked for meanwhile.
func (s *sharedReads[T]) run(ctx context.Context, key string, r *sharedReading[T], read func(context.Context) (T, error)) {
	for r != nil {
		limited, cancel := context.WithTimeout(ctx, sharedTimeout)
		r.value, r.err = read(limited)
		cancel()
		s.mu.Lock()
		next := r.next
		if next == nil {
			delete(s.reads, key)
		} else {
			s.reads[key] = next
		}
		s.mu.Unlock()
		close(r.done)
		r = next
	}
}
