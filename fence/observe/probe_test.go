package observe

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

type mode int32

const (
	answers mode = iota
	refuses
	hangs
)

// server is an API server that can be away.
type server struct{ mode atomic.Int32 }

func (s *server) set(m mode) { s.mode.Store(int32(m)) }

func (s *server) ask(ctx context.Context) error {
	switch mode(s.mode.Load()) {
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	case refuses:
		return errors.New("connection refused")
	}
	return nil
}

// probed runs f with a running Tracker that probes an API server.
func probed(t *testing.T, f func(t *testing.T, tr *Tracker, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tr, s := NewTracker(suspectAfter, 1), &server{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go tr.Run(ctx)
		go tr.Probe(ctx, s.ask)
		synctest.Wait()
		f(t, tr, s)
	})
}

func TestASilentNodeTurnsStaleWhileTheAPIServerAnswers(t *testing.T) {
	probed(t, func(t *testing.T, tr *Tracker, _ *server) {
		tr.Observe(leaseOf("n1", "7"))
		after(suspectAfter + 100*time.Millisecond)
		expect(t, tr, "n1", "7", fence.Stale)
	})
}

func TestAnOutageOfTheAPIServerMakesNoNodeStale(t *testing.T) {
	for name, away := range map[string]mode{"refuses": refuses, "hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			probed(t, func(t *testing.T, tr *Tracker, api *server) {
				tr.Observe(leaseOf("n1", "7"))
				after(probeEvery + 100*time.Millisecond)
				api.set(away)
				after(2 * time.Minute)
				// A call's live read may come before the next probe.
				expect(t, tr, "n1", "7", fence.Unwatched)
				api.set(answers)
				after(probeEvery + probeTimeout)
				expect(t, tr, "n1", "7", fence.Unwatched)
				after(suspectAfter - 2*probeEvery)
				expect(t, tr, "n1", "7", fence.Unwatched)
				after(2 * probeEvery)
				expect(t, tr, "n1", "7", fence.Stale)
			})
		})
	}
}

func TestAnOutageShorterThanAProbesTimeoutIsNoticedByTheAskThatFailed(t *testing.T) {
	probed(t, func(t *testing.T, tr *Tracker, api *server) {
		tr.Observe(leaseOf("n1", "7"))
		after(suspectAfter + time.Second)
		expect(t, tr, "n1", "7", fence.Stale)
		api.set(refuses)
		after(probeEvery)
		api.set(answers)
		after(probeEvery)
		expect(t, tr, "n1", "7", fence.Unwatched)
	})
}
