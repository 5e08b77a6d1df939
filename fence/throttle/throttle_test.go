package throttle

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoMoreThanTheBurstAndThenTheRateGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begun := New(50, 100), time.Now()
		var mu sync.Mutex
		var went []time.Duration
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if err := l.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				went = append(went, time.Since(begun))
				mu.Unlock()
			})
		}
		wg.Wait()
		slices.Sort(went)
		if went[99] != 0 || went[100] == 0 {
			t.Errorf("the 100th went after %s, the 101st after %s; want 100 at once and no more", went[99], went[100])
		}
		for i, at := range went[100:] {
			if want := time.Duration(i+1) * 20 * time.Millisecond; at < want || at > want+time.Millisecond {
				t.Fatalf("request %d went after %s, want %s", 101+i, at, want)
			}
		}
		time.Sleep(time.Hour) // a rest makes the burst whole, not more
		for i := range 101 {
			if got, want := l.TryAccept(), i < 100; got != want {
				t.Fatalf("request %d after a rest: accepted %v", i+1, got)
			}
		}
	})
}

func TestTheEarliestTurnGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, now := New(10, 1), time.Now()
		l.Accept() // the burst
		var mu sync.Mutex
		var order []int
		turns := rand.Perm(50)
		for _, turn := range turns {
			ctx := WithTurn(t.Context(), now.Add(time.Duration(turn)*time.Second))
			go func() {
				if err := l.Wait(ctx); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, turn)
				mu.Unlock()
			}()
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !slices.IsSorted(order) || len(order) != len(turns) {
			t.Errorf("went in the order %v", order)
		}
	})
}

func TestOneTurnIsServedInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := New(10, 1), WithTurn(t.Context(), time.Now())
		l.Accept()
		var mu sync.Mutex
		var order []int
		for i := range 20 {
			go func() {
				_ = l.Wait(ctx)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("went in the order %v", order)
		}
	})
}

func TestWhoGivesUpTakesNothingFromTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 1)
		l.Accept()
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		patient := make(chan time.Duration)
		begun := time.Now()
		go func() { l.Accept(); patient <- time.Since(begun) }()
		early := WithTurn(impatient, begun.Add(-time.Hour))
		if err := l.Wait(early); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		if err := l.Wait(early); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait with an ended context: %v", err)
		}
		if took := <-patient; took > time.Second+time.Millisecond {
			t.Errorf("who waited behind it went after %s, want 1s", took)
		}
		if len(l.waiting) != 0 {
			t.Errorf("%d still wait", len(l.waiting))
		}
	})
}

func TestWhatWasGivenToOneThatHasLeftGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 1)
		l.leave(l.Join(time.Now()).w) // served at once
		if !l.TryAccept() {
			t.Error("the request that was not made is missing from the limit")
		}
		if l.TryAccept() {
			t.Error("more goes than the limit")
		}
	})
}

func TestAPaidRequestIsNotHeldUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begun := New(1, 1), time.Now()
		l.Accept()
		if err := l.Wait(Paid(t.Context())); err != nil || time.Since(begun) != 0 {
			t.Errorf("waited %s, %v", time.Since(begun), err)
		}
		if l.TryAccept() {
			t.Error("a paid request gave something back")
		}
	})
}

func TestTryAcceptDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 1)
		l.Accept()
		go l.Accept()
		synctest.Wait()
		if time.Sleep(500 * time.Millisecond); l.TryAccept() {
			t.Error("accepted before a whole token was there, with another waiting")
		}
		time.Sleep(time.Second)
		if l.QPS() != 1 {
			t.Errorf("QPS %v", l.QPS())
		}
	})
}

func TestAPlaceThatIsAdvancedGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, now := New(1, 1), time.Now()
		l.Accept()
		late, early := l.Join(now.Add(time.Minute)), l.Join(now)
		late.Advance(now.Add(-time.Minute))
		late.Advance(now.Add(time.Hour)) // a later one changes nothing
		if err := late.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(now); took > time.Second+time.Millisecond {
			t.Errorf("it went after %s", took)
		}
		if err := early.Wait(t.Context()); err != nil || time.Since(now) < 2*time.Second {
			t.Errorf("the other went after %s, %v", time.Since(now), err)
		}
	})
}

func TestATurnIsWaitedForAndTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, now := New(1, 1), time.Now()
		l.Accept()
		if err := l.Turn(t.Context()); err != nil || time.Since(now) < time.Second {
			t.Errorf("the turn came after %s, %v", time.Since(now), err)
		}
		if !l.TryAccept() {
			t.Error("it took from the limit")
		}
		var none *Limiter
		if none.Turn(t.Context()) != nil || none.Wait(t.Context()) != nil || time.Since(now) > time.Second+time.Millisecond {
			t.Error("no limit held something back")
		}
	})
}
