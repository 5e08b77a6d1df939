package throttle

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// Limiter is the limit on the requests of one client, or of several that share
// it, as rest.Config.RateLimiter. It may be used by many at once.
type Limiter struct {
	every time.Duration // between two requests, once the burst is used up
	burst float64

	mu      sync.Mutex
	tokens  float64
	counted time.Time // when tokens was right
	waiting queue
	asked   uint64 // requests so far: the order of equal turns
	timer   *time.Timer
}

var _ flowcontrol.RateLimiter = (*Limiter)(nil)

// New makes a Limiter of qps requests a second, and burst at once after a rest.
// Both have to be greater than 0.
func New(qps float32, burst int) *Limiter {
	return &Limiter{every: time.Duration(float64(time.Second) / float64(qps)), burst: float64(burst), tokens: float64(burst), counted: time.Now()}
}

type (
	turnKey struct{}
	paidKey struct{}
)

// WithTurn gives the requests made with the context their turn: those of an
// earlier time go first. Without one, a request's turn is when it is made.
func WithTurn(ctx context.Context, turn time.Time) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// TurnOf is the turn of a request made with the context.
func TurnOf(ctx context.Context) time.Time {
	if turn, ok := ctx.Value(turnKey{}).(time.Time); ok {
		return turn
	}
	return time.Now()
}

// Paid marks a request that has been waited for already (Wait): no Limiter holds
// it up once more.
func Paid(ctx context.Context) context.Context { return context.WithValue(ctx, paidKey{}, true) }

// Unpaid is a context whose requests have their own turns, although one was taken from the
// limit for the context that it is made of.
func Unpaid(ctx context.Context) context.Context { return context.WithValue(ctx, paidKey{}, false) }

// Wait returns when the request may be made, or with the context's error when
// that ends first; then nothing is taken from the limit. A nil Limiter has none.
func (l *Limiter) Wait(ctx context.Context) error {
	if paid, _ := ctx.Value(paidKey{}).(bool); paid {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.Join(TurnOf(ctx)).Wait(ctx)
}

// Turn returns when a request made with the context would go, and takes nothing
// from the limit: what waits longest in a storm is the first request, and a time
// limit on the work itself may begin after that.
func (l *Limiter) Turn(ctx context.Context) error {
	p := l.Join(TurnOf(ctx))
	err := p.Wait(ctx)
	if err == nil && p != nil {
		l.leave(p.w)
	}
	return err
}

// A Place in the queue of a Limiter. A nil Place has nothing before it.
type Place struct {
	l *Limiter
	w *waiter
}

// Join takes a place, which has to be waited for. That of a nil Limiter is nil.
func (l *Limiter) Join(turn time.Time) *Place {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	w := &waiter{turn: turn, number: l.asked, served: make(chan struct{})}
	heap.Push(&l.waiting, w)
	l.serve()
	return &Place{l, w}
}

// Advance gives the place an earlier turn: somebody more urgent waits for the
// same. A later one changes nothing.
func (p *Place) Advance(turn time.Time) {
	if p == nil {
		return
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if turn.Before(p.w.turn) {
		p.w.turn = turn
		if p.w.at >= 0 {
			heap.Fix(&p.l.waiting, p.w.at)
		}
	}
}

// Wait is Limiter.Wait's.
func (p *Place) Wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.w.served:
		return nil
	case <-ctx.Done():
		p.l.leave(p.w)
		return ctx.Err()
	}
}

// leave gives a place up, or what was given to it.
func (l *Limiter) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.at >= 0 {
		heap.Remove(&l.waiting, w.at)
		return
	}
	l.tokens = min(l.tokens+1, l.burst)
	l.serve()
}

// serve lets as many go as may, and comes back for the next. The lock is held.
func (l *Limiter) serve() {
	now := time.Now()
	l.tokens = min(l.tokens+float64(now.Sub(l.counted))/float64(l.every), l.burst)
	l.counted = now
	for l.tokens >= 1 && len(l.waiting) > 0 {
		l.tokens--
		close(heap.Pop(&l.waiting).(*waiter).served)
	}
	if len(l.waiting) == 0 || l.timer != nil {
		return
	}
	// Rounded up, or it would come a moment before the token is whole.
	next := time.Duration((1-l.tokens)*float64(l.every)) + time.Microsecond
	l.timer = time.AfterFunc(next, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timer = nil
		l.serve()
	})
}

// TryAccept takes a request from the limit if that can be done at once and
// nobody waits.
func (l *Limiter) TryAccept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve()
	if len(l.waiting) > 0 || l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}

// Accept is Wait without an end.
func (l *Limiter) Accept() { _ = l.Wait(context.Background()) }

// Stop does nothing: there is nothing to stop but a timer, which ends by itself.
func (l *Limiter) Stop() {}

// QPS are the requests a second.
func (l *Limiter) QPS() float32 { return float32(time.Second) / float32(l.every) }
