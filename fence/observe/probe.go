package observe

import (
	"context"
	"time"
)

const (
	// probeEvery is how often the API server is asked whether it answers, and
	// probeTimeout how long it may take.
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second
	// maxSilence since its last answer. Beyond, kubelets may have been unable to
	// renew their leases.
	maxSilence = probeEvery + probeTimeout + time.Second
)

// Probe asks the API server until ctx ends whether it answers. While it does
// not, no node is Stale, and when it does again every node's age begins anew. A
// watch does not tell: the reflector retries a refused connection without a
// word, and a server that hangs sends nothing (client-go, tools/cache,
// reflector.go). ask is to fail when a kubelet's renewal would.
func (t *Tracker) Probe(ctx context.Context, ask func(context.Context) error) {
	t.answered(nil)
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		err := ask(limited)
		cancel()
		t.answered(err)
	}
}

func (t *Tracker) answered(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	if err != nil {
		t.unanswered = true
		return
	}
	if t.blindLocked(now) {
		t.resetLocked(now, "the API server did not answer for a while")
	}
	t.lastAnswer, t.unanswered = now, false
}

// blindLocked tells whether the API server is being probed and does not answer.
func (t *Tracker) blindLocked(now time.Time) bool {
	return !t.lastAnswer.IsZero() && (t.unanswered || now.Sub(t.lastAnswer) > maxSilence)
}
