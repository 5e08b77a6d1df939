package fencer

import (
	"context"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// countsFor is how long a cut of our own counts whatever its record says: the brakes ask about an
// hour.
const countsFor = time.Hour

// Counting are the fences that the brakes count. Whoever writes records, as every driver's pod
// may, adds none to them, has none begin later than it did, and takes none of this process's own
// away for an hour: he would stop all fencing, or wipe what stops it. They are those of Fences, of
// all drivers,
//
//   - for which somebody who may fence vouches. Where he vouches for when it cut, too, it counts by
//     that; where he does not, as no version before did, by what it said when it was first seen here;
//   - and those that this process cut itself, as it did.
//
// None counts as begun later than it was first seen here. Whether it is over its record says, by
// whoever. What is remembered is gone with the process.
func (f *Fencer) Counting(ctx context.Context) ([]Fence, error) {
	all, err := f.Fences(ctx)
	if err != nil {
		return nil, err
	}
	return f.cuts.count(all, time.Now()), nil
}

// cuts are the fences as they count, by node and ID.
type cuts struct {
	mu   sync.Mutex
	seen map[[2]string]cutSeen
}

type cutSeen struct {
	Fence
	said time.Time // what the record says for At
	own  bool
}

// count are those of all that count, and our own that are in no record any more.
func (c *cuts) count(all []Fence, now time.Time) (counting []Fence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[[2]string]cutSeen{}
	for _, one := range all {
		key := [2]string{one.Node, one.ID}
		was, known := c.seen[key]
		if !known && !one.Vouched && !one.Timed {
			continue
		}
		next[key] = was.as(one, known, now)
	}
	for key, was := range c.seen {
		if _, there := next[key]; !there && was.own && now.Sub(was.At) < countsFor {
			next[key] = was
		}
	}
	c.seen = next
	for _, one := range next {
		counting = append(counting, one.Fence)
	}
	return counting
}

// as is a fence as it counts, by what its record says now, and what that said before.
func (was cutSeen) as(now Fence, known bool, at time.Time) cutSeen {
	next := cutSeen{now, now.At, was.own}
	switch {
	case !known:
	case now.Timed:
		if now.At.Equal(was.said) {
			next.At = was.At
		}
	case now.Vouched: // for all but this
		next.At, next.NodeIDs = was.At, was.NodeIDs
	default:
		next.Fence = was.Fence
		next.Void, next.Vouched, next.Timed = now.Void, false, false
	}
	if was.At.After(next.At) {
		next.At = was.At
	}
	if next.At.After(at) {
		next.At = at
	}
	return next
}

// did has the fence with that ID, which this process has just written, count whatever becomes of
// the record. A fence that came to nothing, with no request taken, does not: taken tells whether one
// was, whatever the record says of it by now.
func (c *cuts) did(r *record.Record, id string, taken bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [2]string{r.Node, id}
	f := r.FenceByID(id)
	if f == nil || !f.Cuts() {
		if !taken {
			delete(c.seen, key)
		}
		return
	}
	if c.seen == nil {
		c.seen = map[[2]string]cutSeen{}
	}
	was, known := c.seen[key]
	was.own = true
	c.seen[key] = was.as(*fenceOf(r, f), known, now)
}
