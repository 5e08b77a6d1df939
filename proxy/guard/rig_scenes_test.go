package guard

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// says is a source that says of node old what the test has it say.
type says []fence.Kind

func (says) Name() string { return "test" }

func (s says) Evidence(_ context.Context, q evidence.Question) (found []fence.Evidence, err error) {
	for _, kind := range s {
		if q.Holder.NodeID == id("old") {
			found = append(found, fence.Evidence{Kind: kind, Source: "test", NodeID: q.Holder.NodeID, NodeUID: q.Holder.NodeUID,
				BootID: "boot-of-old", LeaseRV: q.LeaseRV})
		}
	}
	return found, nil
}

// published is a volume on node old, by its ledger; node next is there.
func published(t *testing.T, p fence.Policy) *rig {
	t.Helper()
	r := newRig(t, p)
	r.node("old", hourAgo)
	r.node("next", hourAgo)
	r.attachment("old", time.Time{})
	r.must(r.publish("old"))
	return r
}

// held is a volume that node old, which lives, uses; node next waits for it.
func held(t *testing.T) *rig {
	t.Helper()
	r := published(t, fence.Policy{})
	r.lists("old", true, true)
	r.calls = nil
	return r
}

// fenced is a volume on node old, which was turned off; node next waits.
func fenced(t *testing.T, p fence.Policy, kinds ...fence.Kind) *rig {
	t.Helper()
	r := published(t, p)
	r.lists("old", true, false)
	r.lives["old"] = fence.Stale
	r.attachment("old", now)
	r.guard.Surveyor.Sources = []evidence.Source{says(kinds)}
	r.calls = nil
	return r
}

// dead is a volume on node old, which the watch knows to be silent.
func dead(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.node("next", hourAgo)
	r.lease("old", "7")
	r.lease("next", "9")
	r.attachment("old", time.Time{})
	r.attachment("old", now)
	r.lists("old", true, false)
	r.lives["old"], r.watched = fence.Stale, "7"
	r.change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: id("old"), NodeName: "old", NodeUID: "uid-of-old", BootID: "boot-of-old", State: fence.Publishing, Token: "t1"})
	})
	r.guard.Surveyor.Sources = []evidence.Source{says{fence.PowerReading}}
	return r
}

// renamed is a volume on node old, whose machine is back under the name renamed with
// the same node ID, and whose pod waits there. lingers: the Node of the old name
// is still there, silent.
func renamed(t *testing.T, lingers bool) *rig {
	t.Helper()
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.attachment("old", time.Time{})
	r.must(r.publish("old"))
	if lingers {
		r.lists("old", true, false)
		r.lives["old"] = fence.Stale
	} else {
		r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.must(r.client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.lives["old"] = fence.Unknown
	}
	r.heir("old", "renamed")
	r.attachment("old", now)
	r.calls = nil
	return r
}
