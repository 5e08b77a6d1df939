package waiting

import (
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// Call is a refused call that somebody will repeat, as it is shown to
// people.
type Call struct {
	Call, Volume, PV, NodeID, NodeName string
	// Holder is the name of the node that the refusal is about; empty: none.
	Holder string
	// Reason is empty where the refusal was given before this process started
	// and the call has not come again.
	Reason fence.Reason
	// Text of the last refusal, as the caller got it.
	Text string
	// Since is when it was first refused; for one that was refused before this
	// process started, what its VolumeAttachment says.
	Since time.Time
	// Times that it was refused since this process started.
	Times int
}

// List are the waiting calls, the one that waits longest first.
func (w *Calls) List() []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Call, 0, len(w.calls))
	for _, c := range w.calls {
		all = append(all, Call{Call: c.call, Volume: c.volume, PV: c.told.pv, NodeID: c.nodeID, NodeName: c.nodeName,
			Holder: c.holder, Reason: c.reason, Text: c.told.text, Since: c.told.since, Times: c.told.times})
	}
	slices.SortFunc(all, func(a, b Call) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.Volume+a.NodeID+a.Call, b.Volume+b.NodeID+b.Call)
	})
	return all
}

// told is what a waiting call was told, for people.
type told struct {
	since    time.Time
	times    int
	pv, text string
	verdict  string
}

func (t *told) note(d guard.Decision) {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	t.pv, t.text, t.verdict, t.times = d.PV, d.Text, d.Action.String(), t.times+1
}

// recovered is what a VolumeAttachment says of a refusal from before a start.
func recovered(va *storagev1.VolumeAttachment, refusal *storagev1.VolumeError) told {
	t := told{since: refusal.Time.Time, text: refusal.Message}
	if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
		t.pv = *pv
	}
	return t
}
