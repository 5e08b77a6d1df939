package main

import (
	"context"
	"fmt"
)

// stand is the bed.T of the command: a failure ends it.
type stand struct {
	ctx     context.Context
	cleanup []func()
	failed  bool
}

type standFailed struct{ error }

func (s *stand) Helper()                           {}
func (s *stand) Logf(string, ...any)               {}
func (s *stand) Failed() bool                      { return s.failed }
func (s *stand) Context() context.Context          { return s.ctx }
func (s *stand) Cleanup(f func())                  { s.cleanup = append(s.cleanup, f) }
func (s *stand) Errorf(format string, args ...any) { s.Fatalf(format, args...) }

func (s *stand) Fatalf(format string, args ...any) {
	s.failed = true
	panic(standFailed{fmt.Errorf(format, args...)})
}

// stand runs f and ends what it began, last first, whatever way it ends.
func (s *stand) stand(f func() (*verdict, error)) (v *verdict, err error) {
	defer func() {
		for i := len(s.cleanup) - 1; i >= 0; i-- {
			func() {
				defer func() { _ = recover() }() // what fails now cannot be helped
				s.cleanup[i]()
			}()
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			failure, ok := r.(standFailed)
			if !ok {
				panic(r)
			}
			err = failure
		}
	}()
	return f()
}
