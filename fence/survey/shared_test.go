package survey

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
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
		go func() { n, _ := s.get(t.Context(), nil, "n1", read); first <- n }()
		time.Sleep(500 * time.Millisecond) // it is on its way
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if n, err := s.get(t.Context(), nil, "n1", read); n != 2 || err != nil {
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
		if _, err := s.get(impatient, nil, "n1", read); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if v, err := s.get(t.Context(), nil, "n1", read); v != "here" || err != nil {
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
				v, err := s.get(t.Context(), nil, key, func(context.Context) (string, error) {
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

func TestARequestThatTheLimitHoldsBackIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedReads[time.Time]
		var sent atomic.Int64
		read := func(ctx context.Context) (time.Time, error) {
			at := time.Now()
			sent.Add(1)
			time.Sleep(10 * time.Millisecond)
			return at, nil
		}
		limit := throttle.New(1, 1)
		limit.Accept() // the next one goes in a second
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				asked := time.Now()
				at, err := s.get(t.Context(), limit, "n1", read)
				if err != nil || at.Before(asked) {
					t.Errorf("asked at %s, given what was requested at %s, %v", asked, at, err)
				}
			})
		}
		wg.Wait()
		if n := sent.Load(); n != 2 {
			t.Errorf("%d requests for those that asked within 2 s, at 1 a second", n)
		}
	})
}

func TestWhoWaitsForTheLimitInVainIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedReads[int]
		limit := throttle.New(0.01, 1)
		limit.Accept()
		_, err := s.get(t.Context(), limit, "n1", func(context.Context) (int, error) {
			t.Error("requested past the limit")
			return 1, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// What 50 volumes of a dead node ask for when they are all taken from it.
func TestAStormOfCallsForOneNodeTakesFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 50
		limit := throttle.New(50, 100)
		var s sharedReads[int]
		var shared, own atomic.Int64
		alone := func(ctx context.Context) {
			own.Add(1)
			if err := limit.Wait(ctx); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		begun := time.Now()
		var first atomic.Int64
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond) // as the controller makes them
				ctx := throttle.WithTurn(t.Context(), time.Now())
				for range 3 { // attachments, PersistentVolume
					alone(ctx)
				}
				for _, key := range []string{"node", "lease", "record", "lease"} {
					_, err := s.get(ctx, limit, key, func(context.Context) (int, error) {
						shared.Add(1)
						time.Sleep(5 * time.Millisecond)
						return 0, nil
					})
					if err != nil {
						t.Error(err)
					}
				}
				for range 2 { // the ledger
					alone(ctx)
				}
				first.CompareAndSwap(0, int64(time.Since(begun)))
			})
		}
		wg.Wait()
		t.Logf("first after %s, last after %s; %d requests of their own, %d shared", time.Duration(first.Load()), time.Since(begun), own.Load(), shared.Load())
		if n := shared.Load(); n > calls*2 {
			t.Errorf("%d shared reads for %d calls of 4", n, calls)
		}
		if last := time.Since(begun); last > 5*time.Second {
			t.Errorf("the last was through after %s", last)
		}
	})
}

func TestASharedReadIsAsUrgentAsTheMostUrgentOfItsCallers(t *testing.T) {
	took := func(t *testing.T, joins bool) (after time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			limit := throttle.New(50, 100)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 25 { // calls about other nodes, one after another
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 3 * time.Millisecond)
					for ctx.Err() == nil {
						c := throttle.WithTurn(ctx, time.Now().Add(-5*time.Second))
						for range 12 {
							_ = limit.Wait(c)
						}
					}
				})
			}
			time.Sleep(3 * time.Second)
			var s sharedReads[int]
			read := func(context.Context) (int, error) { return 1, nil }
			if joins { // somebody who is in no hurry asks first
				wg.Go(func() { _, _ = s.get(throttle.WithTurn(ctx, time.Now().Add(5*time.Second)), limit, "n1", read) })
				synctest.Wait()
			}
			begun := time.Now()
			if _, err := s.get(throttle.WithTurn(ctx, begun.Add(-5*time.Second)), limit, "n1", read); err != nil {
				t.Error(err)
			}
			after = time.Since(begun)
			cancel()
			wg.Wait()
		})
		return after
	}
	alone, joined := took(t, false), took(t, true)
	if joined > alone+100*time.Millisecond {
		t.Errorf("alone it takes %s, behind one that is in no hurry %s", alone, joined)
	}
}

// What 1,000 volumes of 20 dead nodes ask for, as attach-detach controller and
// external-attacher make the calls: whoever waits for the limit shares, and no
// survey is told for that that the API server does not answer.
func TestInAStormOfManyNodesWhatIsSharedWaitsForThoseThatComeToNeedIt(t *testing.T) {
	for _, c := range []struct {
		qps     float32
		workers int
		most    float64 // requests for each volume
	}{
		{qps: 200, workers: 100, most: 12.4}, // 12.8 with a wait of a second
		{qps: 50, workers: 300, most: 13.2},
	} {
		synctest.Test(t, func(t *testing.T) {
			each, survey := storm(t, throttle.New(c.qps, int(2*c.qps)), c.workers)
			t.Logf("%.0f requests a second, %d workers: %.2f requests for each volume, of 15 alone; the longest survey took %s", c.qps, c.workers, each, survey)
			if each > c.most {
				t.Errorf("hardly anything is shared")
			}
			if survey > Timeout {
				t.Errorf("a survey fails for want of time, and not of an answer")
			}
		})
	}
}

// storm moves 1,000 volumes of 20 nodes to 20 others, and tells how many requests
// each took and how long the longest survey, from its own first turn on.
func storm(t *testing.T, limit *throttle.Limiter, workers int) (each float64, longest time.Duration) {
	const volumes, dead, takers, moved = 1000, 20, 20, 25 // a second
	var nodes, leases, records sharedReads[int]
	var requests, most atomic.Int64
	answered := func() { requests.Add(1); time.Sleep(5 * time.Millisecond) }
	shared := func(ctx context.Context, of *sharedReads[int], key string) {
		_, err := of.get(ctx, limit, key, func(context.Context) (int, error) { answered(); return 0, nil })
		if err != nil {
			t.Error(err)
		}
	}
	own := func(ctx context.Context) {
		if err := limit.Wait(ctx); err != nil {
			t.Error(err)
		}
		answered()
	}
	free := make(chan struct{}, workers)
	call := func(ahead time.Duration, reads func(ctx context.Context)) {
		free <- struct{}{}
		ctx := throttle.WithTurn(t.Context(), time.Now().Add(-ahead))
		if err := limit.Turn(ctx); err != nil {
			t.Error(err)
		}
		begun := time.Now()
		own(ctx) // the PV
		own(ctx) // the VolumeAttachment
		reads(ctx)
		most.Store(max(most.Load(), int64(time.Since(begun))))
		own(ctx) // leaving; publishing
		own(ctx) // cut; the ledger once more
		<-free
	}
	var wg sync.WaitGroup
	chance := rand.New(rand.NewPCG(1, 1))
	for i, v := range chance.Perm(volumes) {
		from, to := fmt.Sprint("d", v%dead), fmt.Sprint("t", chance.IntN(takers))
		wg.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / moved)
			call(0, func(ctx context.Context) {
				shared(ctx, &nodes, from)
				shared(ctx, &records, from)
				shared(ctx, &leases, from)
			})
			time.Sleep(300 * time.Millisecond)
			call(5*time.Second, func(ctx context.Context) {
				shared(ctx, &nodes, to)
				shared(ctx, &leases, to)
				shared(ctx, &records, to)
				shared(ctx, &nodes, from)
			})
		})
	}
	wg.Wait()
	return float64(requests.Load()) / volumes, time.Duration(most.Load())
}
