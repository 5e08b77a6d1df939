package main

import (
	"context"
	"fmt"
)

// narrator is the bed.T of a story: a failure ends it.
type narrator struct {
	ctx     context.Context
	cleanup []func()
	failed  bool
}

type storyFailed struct{ error }

func (n *narrator) Helper()                           {}
func (n *narrator) Logf(format string, args ...any)   {}
func (n *narrator) Context() context.Context          { return n.ctx }
func (n *narrator) Cleanup(f func())                  { n.cleanup = append(n.cleanup, f) }
func (n *narrator) Errorf(format string, args ...any) { n.Fatalf(format, args...) }

// Failed keeps the cluster's logs. A story that was stopped has not failed, and
// leaves nothing.
func (n *narrator) Failed() bool { return n.failed && n.ctx.Err() == nil }

func (n *narrator) Fatalf(format string, args ...any) {
	n.failed = true
	panic(storyFailed{fmt.Errorf(format, args...)})
}

// cleanUp ends what the story started, last first, as testing does. What fails
// then cannot be told any better.
func (n *narrator) cleanUp() {
	for i := len(n.cleanup) - 1; i >= 0; i-- {
		func() {
			defer func() { _ = recover() }()
			n.cleanup[i]()
		}()
	}
	n.cleanup = nil
}
