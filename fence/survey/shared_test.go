package survey

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallersAtTheSameTimeShareARequestThatWasSentAfterTheyAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedReads[int]
		var sent atomic.Int64
		read := func(context.Context) (int, error) {
			n := sent.Add(1)
			time.Sleep(time.Second)
			return int(n), nil
		}
		first := make(chan int)
		go func() { n, _ := s.get(t.Context(), "n1", read); first <- n }()
		time.Sleep(500 * time.Millisecond) // it is on its way
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if n, err := s.get(t.Context(), "n1", read); n != 2 || err != nil {
					t.Errorf("got the answer of request %d, %v; want that of the second, which was sent after it had asked", n, err)
				}
			})
		}
		if n := <-first; n != 1 {
			t.Errorf("the first caller got request %d", n)
		}
		wg.Wait()
		if sent.Load() != 2 {
			t.Errorf("%d requests for 51 callers", sent.Load())
		}
		if len(s.reads) != 0 {
			t.Errorf("left over: %v", s.reads)
		}
	})
}

func TestASharedRequestOutlivesTheCallerThatStartedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedReads[string]
		read := func(ctx context.Context) (string, error) {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(time.Second):
				return "here", nil
			}
		}
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if _, err := s.get(impatient, "n1", read); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if v, err := s.get(t.Context(), "n1", read); v != "here" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
	})
}

func TestKeysAndErrorsAreNotMixedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedReads[string]
		var wg sync.WaitGroup
		for i := range 20 {
			key := fmt.Sprint("n", i%2)
			wg.Go(func() {
				v, err := s.get(t.Context(), key, func(context.Context) (string, error) {
					time.Sleep(time.Millisecond)
					if key == "n1" {
						return "", errors.New("of n1")
					}
					return key, nil
				})
				if key == "n1" && (err == nil || err.Error() != "of n1") || key == "n0" && (v != "n0" || err != nil) {
					t.Errorf("%s: %q, %v", key, v, err)
				}
			})
		}
		wg.Wait()
	})
}
