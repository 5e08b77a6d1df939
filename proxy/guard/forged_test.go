package guard_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// Whoever may write a ledger forges it in place, and says more by that than by taking it away. Of a holder
// whose VolumeAttachment is being deleted he says that its kubelet has let the volume go, or that it was taken
// over: that is what a ledger remembers, and it is believed of a node that lives and uses the volume, too. Of one
// whose Node is gone he says also that it was taken over while its VolumeAttachment stands, or that it was another
// machine, which is off or uses nothing. A node that is there keeps a volume whose VolumeAttachment stands,
// whatever the ledger says.
func TestAForgedLedgerTakesAVolumeThatIsBeingDetachedOrWhoseNodeIsGone(t *testing.T) {
	forgeries := map[string]func(l *ledger.Ledger, e *ledger.Entry){
		"no entry":             func(l *ledger.Ledger, _ *ledger.Entry) { l.Holders = nil },
		"leaving":              func(_ *ledger.Ledger, e *ledger.Entry) { e.State = fence.Leaving },
		"taken over":           func(_ *ledger.Ledger, e *ledger.Entry) { e.State = fence.TakenOver },
		"released":             func(_ *ledger.Ledger, e *ledger.Entry) { e.State = fence.Released },
		"released, under it":   func(_ *ledger.Ledger, e *ledger.Entry) { e.State, e.ReleasedUnder = fence.Released, "uid-of-va-old" },
		"taken over, under it": func(_ *ledger.Ledger, e *ledger.Entry) { e.State, e.ReleasedUnder = fence.TakenOver, "uid-of-va-old" },
		"by it alone":          func(_ *ledger.Ledger, e *ledger.Entry) { e.OnlyUnder = "uid-of-va-old" },
		"an earlier boot":      func(_ *ledger.Ledger, e *ledger.Entry) { e.BootID = "boot-before" },
		"another machine": func(_ *ledger.Ledger, e *ledger.Entry) {
			e.NodeUID, e.BootID, e.SystemUUID = "uid-of-dead", "boot-of-dead", "system-dead"
		},
		"another node": func(_ *ledger.Ledger, e *ledger.Entry) {
			e.NodeName, e.NodeUID, e.BootID, e.SystemUUID = "dead", "uid-of-dead", "boot-of-dead", "system-dead"
		},
		"an idle node": func(_ *ledger.Ledger, e *ledger.Entry) {
			e.NodeName, e.NodeUID, e.BootID, e.SystemUUID = "idle", "uid-of-idle", "boot-of-idle", "system-idle"
		},
		"an idle node's name": func(_ *ledger.Ledger, e *ledger.Entry) { e.NodeName = "idle" },
		"another node ID": func(_ *ledger.Ledger, e *ledger.Entry) {
			e.NodeID, e.NodeName, e.NodeUID, e.BootID, e.SystemUUID = guardrig.ID("dead"), "dead", "uid-of-dead", "boot-of-dead", "system-dead"
		},
	}
	over, let, gone := []string{"taken over", "taken over, under it"}, []string{"released, under it"}, []string{"another machine", "another node", "an idle node"}
	taken := map[string][]string{
		"lives": nil, "lives, being deleted": slices.Concat(over, let),
		"silent": nil, "silent, being deleted": slices.Concat(over, let),
		"gone": slices.Concat(over, gone), "gone, being deleted": slices.Concat(over, let, gone, []string{"released"}),
	}
	for what, forge := range forgeries {
		for where, takes := range taken {
			r := guardrig.Held(t)
			r.Listed = []string{guardrig.ID("old")}
			r.Guard.Surveyor.Sources = []evidence.Source{offOf("dead")}
			r.Node("idle", guardrig.HourAgo)
			r.Attachment("next", time.Time{})
			if strings.HasSuffix(where, "being deleted") {
				r.Lists("old", true, false)
				r.Attachment("old", guardrig.HourAgo)
			}
			r.SaysAttached("old")
			if strings.HasPrefix(where, "gone") {
				r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
				r.Lives["old"] = fence.Unknown
			}
			if strings.HasPrefix(where, "silent") {
				r.Lives["old"] = fence.Stale
			}
			r.Change(func(l *ledger.Ledger) { forge(l, l.Get(guardrig.ID("old"))) })
			err := r.PublishTo("next")
			if want := slices.Contains(takes, what); want != (err == nil) || !want && len(r.Calls) > 0 {
				t.Errorf("%s, the entry says %s: taken %t, want %t (%v; %q)", where, what, err == nil, want, err, r.Calls)
			}
		}
	}
}

// offOf is proof that the machine of that node is off.
type offOf string

func (offOf) Name() string { return "test" }

func (o offOf) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	if q.Holder.NodeUID != "uid-of-"+string(o) {
		return nil, nil
	}
	return []fence.Evidence{{Kind: fence.PowerReading, Source: "test", NodeName: q.Holder.NodeName, NodeID: q.Holder.NodeID,
		NodeUID: q.Holder.NodeUID, BootID: "boot-of-" + string(o), SystemUUID: "system-" + string(o), LeaseRV: q.Holder.LeaseRV}}, nil
}
