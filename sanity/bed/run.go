package bed

import (
	"context"
	"fmt"
	"io"
)

// Run is the T of a command, which has no testing.T: a failure ends it (see Do).
type Run struct {
	ctx      context.Context
	progress io.Writer
	cleanup  []func()
	failed   bool
}

// NewRun makes one that ends with ctx. What is logged goes to progress, a line each;
// nil: nowhere.
func NewRun(ctx context.Context, progress io.Writer) *Run {
	if progress == nil {
		progress = io.Discard
	}
	return &Run{ctx: ctx, progress: progress}
}

// Failure is what Fatalf panics with.
type Failure struct{ error }

// Do runs f, whose failures are errors, and ends what it began, last first, whatever
// way it ends. What fails then cannot be helped.
func (r *Run) Do(f func() error) (err error) {
	defer r.end()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case Failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	return f()
}

func (r *Run) end() {
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		func() {
			defer func() { _ = recover() }()
			r.cleanup[i]()
		}()
	}
	r.cleanup = nil
}

// Context implements T, as all that follow.
func (r *Run) Context() context.Context          { return r.ctx }
func (r *Run) Helper()                           {}
func (r *Run) Logf(format string, args ...any)   { fmt.Fprintf(r.progress, format+"\n", args...) }
func (r *Run) Cleanup(f func())                  { r.cleanup = append(r.cleanup, f) }
func (r *Run) Errorf(format string, args ...any) { r.Fatalf(format, args...) }

// Fatalf is to be called on the goroutine of Do.
func (r *Run) Fatalf(format string, args ...any) {
	r.failed = true
	panic(Failure{fmt.Errorf(format, args...)})
}

// Failed keeps a cluster's logs. A run that was stopped has not failed, and leaves
// nothing.
func (r *Run) Failed() bool { return r.failed && r.ctx.Err() == nil }
