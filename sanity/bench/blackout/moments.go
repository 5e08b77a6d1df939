package blackout

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// Moments of what has happened so far. The zero time: not yet.
type Moments struct {
	PowerOff time.Time
	// LastLease is the last change of the old node's lease.
	LastLease time.Time
	// NotReady is when Kubernetes has noticed.
	NotReady time.Time
	// Proven is when the node's record has a power fence that counts, the BMC's reading.
	Proven time.Time
	// Tainted as out of service, by whomever.
	Tainted time.Time
	// Deleted are the old node's pods that are gone from the API; Published are
	// the volumes that another node got; Running are the pods that run there now,
	// one that was deleted once more not among them. Each the earliest first.
	Deleted, Published, Running []time.Time
}

// Moments tells what has happened so far.
func (d *Databases) Moments() Moments {
	w := d.sight
	w.mu.Lock()
	m := Moments{PowerOff: w.off, LastLease: w.leaseAt, NotReady: w.notReady, Proven: w.proven, Tainted: w.tainted,
		Deleted: ascending(w.gone)}
	for _, r := range w.running {
		m.Running = append(m.Running, r.since)
	}
	w.mu.Unlock()
	slices.SortFunc(m.Running, time.Time.Compare)
	m.Published = d.published()
	return m
}

// published are the moments at which the driver first said yes for each volume
// on another node.
func (d *Databases) published() []time.Time {
	at := map[string]time.Time{}
	for _, c := range d.Stage.Array.CallsOf(array.Publish, "") {
		if _, known := at[c.Volume]; !known && c.Node != d.Old.ID && !c.End.IsZero() && c.Code == codes.OK {
			at[c.Volume] = c.End
		}
	}
	return ascending(at)
}

// Attached counts the volumes that the array still has attached to the old node.
func (d *Databases) Attached() int {
	n := 0
	for _, v := range d.Volumes {
		if v.AttachedTo(d.Old) {
			n++
		}
	}
	return n
}

func ascending[K comparable](at map[K]time.Time) []time.Time {
	return slices.SortedFunc(maps.Values(at), time.Time.Compare)
}
