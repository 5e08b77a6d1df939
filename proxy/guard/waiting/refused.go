package waiting

import (
	"time"

	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// refusal is the answer that a waiting call got.
type refusal struct {
	verdict string
	reason  fence.Reason
	asked   time.Time // when it was begun to be judged
	err     error
}

// refusalHolds is how long a refusal may be given again without a new judgement:
// external-attacher's longest back-off.
const refusalHolds = 5 * time.Minute

// judgeNext has a call, whose judgement has changed, judged when it comes next, and so all that
// wait for the same holder.
func (w *Calls) judgeNext(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeNextLocked(key)
}

func (w *Calls) judgeNextLocked(key string) {
	c := w.calls[key]
	if c == nil {
		return
	}
	now := time.Now()
	for _, o := range w.calls {
		if o == c || o.holder == c.holder && c.holder != "" {
			o.refusal, o.news = nil, now
		}
	}
}

// lastRefusal is what a call that waits would be answered again; nil: it has to be
// judged.
func (w *Calls) lastRefusal(key string) *refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[key]
	if c == nil || c.refusal == nil || time.Since(c.refusal.asked) > refusalHolds {
		return nil
	}
	return c.refusal
}

// answered takes note of the answer to a call that was begun to be judged at asked.
// It may not have seen what was found since then.
func (w *Calls) answered(key string, asked time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[key]
	if c == nil || err == nil || !c.news.Before(asked) || !endsBySight(c.reason) {
		return
	}
	if status.Convert(err).Message() == guard.Clip(c.told.text) { // not the driver's own words
		c.refusal = &refusal{verdict: c.told.verdict, reason: c.reason, asked: asked, err: err}
	}
}

// endsBySight tells whether what ends such a refusal is an event of what is watched, or is found by
// the call that looks for all that wait for the holder (scout); both look again at the calls that
// wait.
func endsBySight(r fence.Reason) bool {
	switch r {
	case fence.HolderAlive, fence.HolderWanted, fence.HolderContested, fence.HolderStale, fence.HolderUnknown,
		fence.HolderListed, fence.EvidenceVoid, fence.EvidenceContradicted:
		return true
	}
	return false
}
