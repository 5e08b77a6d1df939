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

// Later puts the turn of the requests made with the context back by d.
func Later(ctx context.Context, d time.Duration) context.Context {
	return WithTurn(ctx, turnOf(ctx).Add(d))
}

func turnOf(ctx context.Context) time.Time {
	if turn, ok := ctx.Value(turnKey{}).(time.Time); ok {
		return turn
	}
	return time.Now()
}

// Paid marks a request that has been waited for already (Wait): no Limiter holds
// it up once more.
func Paid(ctx context.Context) context.Context { return context.WithValue(ctx, paidKey{}, true) }

// Wait returns when the request may be made, or with the context's error when
// that ends first; then nothing is taken from the limit. A nil Limiter has none.
func (l *Limiter) Wait(ctx context.Context) error {
	if l == nil {
		return nil
	}
	if paid, _ := ctx.Value(paidKey{}).(bool); paid {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w := l.join(ctx)
	select {
	case <-w.served:
		return nil
	case <-ctx.Done():
		l.leave(w)
		return ctx.Err()
	}
}

// join takes a place among those that wait.
func (l *Limiter) join(ctx context.Context) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	w := &waiter{turn: turnOf(ctx), number: l.asked, served: make(chan struct{})}
	heap.Push(&l.waiting, w)
	l.serve()
	return w
}

// leave gives a place up, or what was given to it meanwhile.
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
