package fitness

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CallTimes are how long the calls of one method took, in seconds: those that
// answered OK. Errors counts the others.
type CallTimes struct {
	Method string  `json:"method"`
	Calls  int     `json:"calls"`
	Errors int     `json:"errors"`
	Min    float64 `json:"minSeconds"`
	Median float64 `json:"medianSeconds"`
	P95    float64 `json:"p95Seconds"`
	Max    float64 `json:"maxSeconds"`
}

// calls records every call that is made.
type calls struct {
	log func(format string, args ...any)
	// timeout of a call that brings none.
	timeout time.Duration

	mu     sync.Mutex
	took   map[string][]time.Duration // of those that answered OK
	errors map[string]int
}

func newCalls(log func(string, ...any)) *calls {
	return &calls{log: log, took: map[string][]time.Duration{}, errors: map[string]int{}}
}

// intercept is the one place that every call passes. It logs IDs and codes, and
// no message: there may be secrets in it.
func (c *calls) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	began := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	took, name := time.Since(began), path.Base(method)
	c.log("%s%s: %s, %s", name, about(req), status.Code(err), took.Round(time.Microsecond*100))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.took[name] = append(c.took[name], took)
	} else {
		c.errors[name]++
	}
	return err
}

func about(req any) string {
	text := ""
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		text += " volume " + r.GetVolumeId()
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		text += " node " + r.GetNodeId()
	}
	return text
}

// times are those of all methods, the slowest first.
func (c *calls) times() []CallTimes {
	c.mu.Lock()
	defer c.mu.Unlock()
	methods := maps.Clone(c.errors)
	for m := range c.took {
		methods[m] = c.errors[m]
	}
	var all []CallTimes
	for m, errors := range methods {
		took := slices.Sorted(slices.Values(c.took[m]))
		all = append(all, CallTimes{
			Method: m, Calls: len(took) + errors, Errors: errors,
			Min: rank(took, 0), Median: rank(took, 50), P95: rank(took, 95), Max: rank(took, 100),
		})
	}
	slices.SortFunc(all, func(a, b CallTimes) int {
		return cmp.Or(cmp.Compare(b.Max, a.Max), cmp.Compare(a.Method, b.Method))
	})
	return all
}

// of are the times of one method.
func (c *calls) of(method string) CallTimes {
	for _, t := range c.times() {
		if t.Method == method {
			return t
		}
	}
	return CallTimes{Method: method}
}

// rank is the nearest-rank percentile of sorted times, in seconds.
func rank(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := (percent*len(sorted)+99)/100 - 1
	return sorted[max(at, 0)].Seconds()
}

// transient tells whether external-attacher's next try may find it gone.
func transient(err error) bool {
	switch status.Code(err) {
	case codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	}
	return false
}

// ours tells whether what the suite was told is wrong, and not the driver.
func ours(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.OutOfRange:
		return true
	}
	return false
}
