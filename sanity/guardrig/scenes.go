package guardrig

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Says is a source that says of node old what the test has it say.
type Says []fence.Kind

func (Says) Name() string { return "test" }

func (s Says) Evidence(_ context.Context, q evidence.Question) (found []fence.Evidence, err error) {
	for _, kind := range s {
		if q.Holder.NodeID == ID("old") {
			found = append(found, fence.Evidence{Kind: kind, Source: "test", NodeID: q.Holder.NodeID, NodeUID: q.Holder.NodeUID,
				BootID: "boot-of-old", LeaseRV: q.LeaseRV})
		}
	}
	return found, nil
}

// Published is a volume on node old, by its ledger; node next is there.
func Published(t *testing.T, p fence.Policy) *Rig {
	t.Helper()
	r := New(t, p)
	r.Node("old", HourAgo)
	r.Node("next", HourAgo)
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	return r
}

// Held is a volume that node old, which lives, uses; node next waits for it.
func Held(t *testing.T) *Rig {
	t.Helper()
	r := Published(t, fence.Policy{})
	r.Lists("old", true, true)
	r.Calls = nil
	return r
}

// Fenced is a volume on node old, which was turned off; node next waits.
func Fenced(t *testing.T, p fence.Policy, kinds ...fence.Kind) *Rig {
	t.Helper()
	r := Published(t, p)
	r.Lists("old", true, false)
	r.Lives["old"] = fence.Stale
	r.Attachment("old", Now)
	r.Guard.Surveyor.Sources = []evidence.Source{Says(kinds)}
	r.Calls = nil
	return r
}

// Dead is a volume on node old, which the watch knows to be silent.
func Dead(t *testing.T) *Rig {
	t.Helper()
	r := New(t, fence.Policy{})
	r.Node("old", HourAgo)
	r.Node("next", HourAgo)
	r.Lease("old", "7")
	r.Lease("next", "9")
	r.Attachment("old", time.Time{})
	r.Attachment("old", Now)
	r.Lists("old", true, false)
	r.Lives["old"], r.Watched = fence.Stale, "7"
	r.Change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: ID("old"), NodeName: "old", NodeUID: "uid-of-old", BootID: "boot-of-old", State: fence.Publishing, Token: "t1"})
	})
	r.Guard.Surveyor.Sources = []evidence.Source{Says{fence.PowerReading}}
	return r
}

// Renamed is a volume on node old, whose machine is back under the name renamed with
// the same node ID, and whose pod waits there. lingers: the Node of the old name
// is still there, silent.
func Renamed(t *testing.T, lingers bool) *Rig {
	t.Helper()
	r := New(t, fence.Policy{})
	r.Node("old", HourAgo)
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	if lingers {
		r.Lists("old", true, false)
		r.Lives["old"] = fence.Stale
	} else {
		r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Lives["old"] = fence.Unknown
	}
	r.Heir("old", "renamed")
	r.Attachment("old", Now)
	r.Calls = nil
	return r
}
