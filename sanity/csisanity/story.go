package main

import (
	"context"
	"fmt"
	"io"
)

// story is the bed.T of the command: a failure ends it.
type story struct {
	ctx      context.Context
	progress io.Writer
	cleanup  []func()
	failed   bool
}

type storyFailed struct{ error }

func (s *story) Helper()                           {}
func (s *story) Logf(format string, args ...any)   { fmt.Fprintf(s.progress, format+"\n", args...) }
func (s *story) Failed() bool                      { return s.failed }
func (s *story) Context() context.Context          { return s.ctx }
func (s *story) Cleanup(f func())                  { s.cleanup = append(s.cleanup, f) }
func (s *story) Errorf(format string, args ...any) { s.Fatalf(format, args...) }

func (s *story) Fatalf(format string, args ...any) {
	s.failed = true
	panic(storyFailed{fmt.Errorf(format, args...)})
}

// caught turns the panic of Fatalf into an error.
func (s *story) caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case storyFailed:
		*err = r.error
	default:
		panic(r)
	}
}

// cleanUp ends what was started, last first. What fails then cannot be told any
// better.
func (s *story) cleanUp() {
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		func() {
			defer func() { _ = recover() }()
			s.cleanup[i]()
		}()
	}
}
