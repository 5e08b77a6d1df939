package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// call makes one call as the caller with that number.
type call func(ctx context.Context, caller int) error

// sample is what one measurement of one path found.
type sample struct {
	p50, p99 time.Duration
	rate     float64       // calls per second, all callers together
	cpu      time.Duration // of the process in between, per call
	allocs   float64       // of the process in between, per call
}

// latencies are the durations of calls, sorted.
type latencies []time.Duration

func (l latencies) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(int(q*float64(len(l))), len(l)-1)]
}

// callFor makes calls with that many callers at once for a time, and returns how
// long each took. The first error ends it.
func callFor(ctx context.Context, callers int, d time.Duration, do call) (latencies, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		mu    sync.Mutex
		all   latencies
		work  sync.WaitGroup
		until = time.Now().Add(d)
	)
	for caller := range callers {
		work.Go(func() {
			var own latencies
			for now := time.Now(); now.Before(until) && ctx.Err() == nil; {
				if err := do(ctx, caller); err != nil {
					stop(err)
					return
				}
				after := time.Now()
				own = append(own, after.Sub(now))
				now = after
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	work.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	slices.Sort(all)
	return all, nil
}
