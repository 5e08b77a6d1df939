package observe

import (
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// stormFrom is the number of watched nodes from which on a share of stale ones
// says anything.
const stormFrom = 3

// rounding keeps a share of exactly maxUnhealthy from being more than it.
const rounding = 1e-9

// lease is what was seen of one node's lease.
type lease struct {
	version string
	absent  bool
	// suspectAfter so long without a change its node is stale.
	suspectAfter time.Duration
	// since is when the present stretch of watching began.
	since time.Time
	// changed is when the lease was last seen to change; zero: never.
	changed time.Time
	// steady is since when no two changes were further apart than SteadyGap.
	steady time.Time
	// gaps are the last times between two changes that were watched without a break, at most
	// keepGaps.
	gaps []time.Duration
	// renews is how often a kubelet renews such a lease.
	renews time.Duration
	// told tells that OnStale was called for the present stretch of staleness.
	told bool
	// written is when the API server last wrote it, by its own clock.
	written time.Time
	// overdue, as of the last heartbeat (Overdue).
	overdue bool
}

// Tracker follows the leases of all nodes. It is safe for concurrent use. Make
// one with New, and start Run: without it no node is ever Stale.
type Tracker struct {
	suspectAfter time.Duration // 0: as each lease says (SuspectAfter)
	maxUnhealthy float64

	mu      sync.Mutex
	leases  map[string]*lease
	storm   bool
	beat    pulse
	onStale func(node string)
	// lastAnswer of the API server to Probe; zero: it is not probed.
	lastAnswer time.Time
	unanswered bool // the latest probe failed
	// off are the nodes that agents read as off although their leases are not silent.
	off map[string]bool
}

// SuspectAfter is how long a node's lease has to be unchanged until the node is stale: as
// configured, where that is not 0, and else as the lease says. A kubelet renews its lease after
// a quarter of the leaseDurationSeconds that it writes into it (kubelet's
// --node-lease-duration-seconds, 40 by default); 5 s are for a renewal that is late. A lease
// that says nothing, or is nil, is taken for one of 40 s. What a kubelet can have by writing
// another value is between 10 s and 10 minutes, and it could as well stop renewing.
func SuspectAfter(configured time.Duration, l *coordinationv1.Lease) time.Duration {
	if configured != 0 {
		return configured
	}
	return min(max(renews(l)+5*time.Second, 10*time.Second), 10*time.Minute)
}

// renews is how often a kubelet renews that lease.
func renews(l *coordinationv1.Lease) time.Duration {
	lasts := int32(40)
	if l != nil && l.Spec.LeaseDurationSeconds != nil {
		lasts = *l.Spec.LeaseDurationSeconds
	}
	return time.Duration(lasts) * time.Second / 4
}

// NewTracker makes a Tracker. A lease that is unchanged for SuspectAfter makes its
// node stale; more than the share maxUnhealthy (0 to 1) of stale nodes, from 3
// watched nodes on, is a storm.
func NewTracker(suspectAfter time.Duration, maxUnhealthy float64) *Tracker {
	t := &Tracker{
		suspectAfter: suspectAfter,
		maxUnhealthy: maxUnhealthy,
		leases:       map[string]*lease{},
		off:          map[string]bool{},
		beat:         pulse{wall: wallClock},
		onStale:      func(string) {},
	}
	t.beat.strike(time.Now())
	return t
}

// OnStale sets what Run calls each time that a node turns stale, one call after
// another, so that what waits for the node can be tried again. Set it before
// Run. f must return at once: it holds up the heartbeat.
func (t *Tracker) OnStale(f func(node string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onStale = f
}

// Observe tells the Tracker of a node's lease, as a watch or a live read shows
// it. The first sight of a lease starts the watching and is no sign of life:
// the lease may be old. Any other resourceVersion than the last is a change.
func (t *Tracker) Observe(l *coordinationv1.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLocked(l.Name, l, t.nowLocked())
}

func (t *Tracker) observeLocked(node string, seen *coordinationv1.Lease, now time.Time) {
	version := seen.ResourceVersion
	next := lease{version: version, since: now, suspectAfter: SuspectAfter(t.suspectAfter, seen), renews: renews(seen), written: writtenAt(seen)}
	l, known := t.leases[node]
	switch {
	case !known:
		t.leases[node] = &next
	case l.absent || l.version != version:
		// A lease that was gone and is back was created by its kubelet.
		next.changed, next.steady, next.gaps = now, l.steady, l.gaps
		if l.unbroken() {
			next.gaps = append(slices.Clone(l.gaps[max(0, len(l.gaps)+1-keepGaps):]), now.Sub(l.since))
		}
		if !l.steadyAt(now) {
			next.steady = now
		}
		*l = next
	}
}

// writtenAt is when the API server last wrote the lease; zero: it does not say.
func writtenAt(l *coordinationv1.Lease) (at time.Time) {
	for _, f := range l.ManagedFields {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// Absent tells the Tracker that the node has no lease.
func (t *Tracker) Absent(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	l, known := t.leases[node]
	if !known {
		t.leases[node] = &lease{absent: true, since: now, suspectAfter: SuspectAfter(t.suspectAfter, nil)}
		return
	}
	if !l.absent {
		l.absent, l.since, l.told = true, now, false
	}
}

// Forget drops all that is known of a node. Its next sight is a first one.
func (t *Tracker) Forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.leases, node)
}

// Reset lets every node's age begin anew: nothing is stale before SuspectAfter
// has passed once more. Call it when leases may have changed unseen. A node
// that was seen to change within that stays alive.
func (t *Tracker) Reset(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.beat.strike(now)
	t.resetLocked(now, reason)
}

func (t *Tracker) resetLocked(now time.Time, reason string) {
	klog.InfoS("Every node's lease is watched anew", "reason", reason, "nodes", len(t.leases))
	for _, l := range t.leases {
		l.since, l.steady, l.told = now, now, false
	}
	t.storm = false
}

const (
	// keepGaps times between two renewals are remembered of a lease, and from leastGaps on it is
	// told when the next one is due.
	keepGaps  = 8
	leastGaps = 3
	// lateBy is how much longer than the longest of them a renewal may take.
	lateBy = 2 * time.Second
)

// unbroken tells whether the present stretch of watching began with a change of the lease.
func (l *lease) unbroken() bool {
	return !l.absent && !l.changed.IsZero() && l.changed.Equal(l.since)
}

// Late tells for how long the node's lease, which is of that version, was watched unchanged, and
// whether a renewal that was due did not come: it took two seconds longer than any of the last ones
// that were watched, three at least, and than the lease itself says. That is no silence yet, and says
// nothing by itself. None is late while the API server does not answer, in a storm, where so many are
// late that it would be one, and after any break in the watching before the lease is renewed again.
func (t *Tracker) Late(node, version string) (age time.Duration, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	l, known := t.leases[node]
	if !known || l.version != version || !l.late(now) || t.blindLocked(now) || t.storm {
		return 0, false
	}
	all, watched := 0, 0
	for _, l := range t.leases {
		if !l.absent {
			watched++
		}
		if l.late(now) {
			all++
		}
	}
	return now.Sub(l.since), !t.tooManyLocked(all, watched)
}

func (l *lease) late(now time.Time) bool {
	return l.unbroken() && len(l.gaps) >= leastGaps && now.Sub(l.since) > max(slices.Max(l.gaps), l.renews)+lateBy
}

// Version is the node's lease as it was last seen; empty: it has none.
func (t *Tracker) Version(node string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.leases[node]; l != nil && !l.absent {
		return l.version
	}
	return ""
}

// ReadsOff tells that agents read a node as off, or no more, whatever its lease says. In a storm
// it counts as one that is silent.
func (t *Tracker) ReadsOff(node string, off bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if off {
		t.off[node] = true
	} else {
		delete(t.off, node)
	}
}

// Judge says what is known of a node, given one live read of it: its lease (nil: it has
// none), whether there is a Node, and whether that is Ready. The read itself is taken note
// of: a lease that differs from the last one seen has changed now.
//
// The answer is Unwatched where Alive and Stale are both possible.
func (t *Tracker) Judge(node string, live *coordinationv1.Lease, nodeExists, nodeReady bool) fence.Liveness {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	if live != nil {
		t.observeLocked(node, live, now)
	}
	switch {
	case !nodeExists:
		return fence.Unknown
	case live != nil:
		return t.stateLocked(t.leases[node], now)
	case nodeReady:
		// A Node that has just registered is Ready for some seconds without a
		// lease.
		return fence.Alive
	}
	if l, known := t.leases[node]; known && t.aliveLocked(l, now) {
		// Somebody deleted the lease of a node that was just seen to live.
		return fence.Alive
	}
	return fence.Unknown
}

// Silent tells whether the node's lease was watched unchanged for SuspectAfter, and
// the version of it that was. It reads nothing: the lease may have changed since.
func (t *Tracker) Silent(node string) (version string, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, known := t.leases[node]
	if !known || t.stateLocked(l, t.nowLocked()) != fence.Stale {
		return "", false
	}
	return l.version, true
}

// SteadyGap is the longest time between two renewals of a lease, every 10 s by default
// (K8s nodeLeaseDurationSeconds, a quarter of it), after which a kubelet may have been
// without the API server.
const SteadyGap = 20 * time.Second

func (l *lease) steadyAt(now time.Time) bool {
	return !l.absent && !l.changed.IsZero() && now.Sub(l.changed) <= SteadyGap
}

// Steady tells whether the node's lease was seen to change for at least so long, without a
// break in which its kubelet may have been unable to write its status.
func (t *Tracker) Steady(node string, least time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	l, known := t.leases[node]
	return known && l.steadyAt(now) && now.Sub(l.steady) >= least
}

// Unchanged is for how long the node's lease has been watched unchanged, and whether that is
// SuspectAfter, whatever else is known; ok is false if the node has no lease or was never
// seen. It is for people, and for a first look: Silent and Judge are what anything rests on.
func (t *Tracker) Unchanged(node string) (age time.Duration, suspect, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	l, known := t.leases[node]
	if !known || l.absent {
		return 0, false, false
	}
	age = now.Sub(l.since)
	return age, age >= l.suspectAfter, true
}

// overdueFor is for how long a node is overdue at most: a process that has run for as long has watched
// the lease itself. Where more than overdueMost nodes would be overdue at once, none is.
const (
	overdueFor  = 10 * time.Minute
	overdueMost = 3
)

// Overdue tells that the node has not renewed its lease for SuspectAfter by the API server's
// clock, whether or not this process has watched it for so long: the lease was last written by
// so much before another node's. It is a reason to ask fence agents, and nothing else: whoever
// writes leases can have it said, and two API servers need not have one clock. Where more than
// three nodes would be overdue, or the share maxUnhealthy, none is: after an outage of the API server
// all are that have not renewed their leases yet.
func (t *Tracker) Overdue(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, known := t.leases[node]
	return known && l.overdue
}

// overdueLocked looks anew which nodes are.
func (t *Tracker) overdueLocked(now time.Time, watched int) {
	var newest time.Time
	for _, l := range t.leases {
		if l.written.After(newest) {
			newest = l.written
		}
	}
	overdue := 0
	for _, l := range t.leases {
		// The stamps are of whole seconds.
		age := newest.Sub(l.written)
		l.overdue = !l.absent && !l.written.IsZero() && age >= l.suspectAfter+time.Second && age < overdueFor && !t.aliveLocked(l, now)
		if l.overdue {
			overdue++
		}
	}
	if overdue > overdueMost || t.tooManyLocked(overdue, watched) {
		for _, l := range t.leases {
			l.overdue = false
		}
	}
}

// tooManyLocked tells whether so many nodes of those that are watched are more likely our fault.
func (t *Tracker) tooManyLocked(nodes, watched int) bool {
	return watched >= stormFrom && float64(nodes)/float64(watched) > t.maxUnhealthy+rounding
}

func (t *Tracker) aliveLocked(l *lease, now time.Time) bool {
	return !l.changed.IsZero() && now.Sub(l.changed) < l.suspectAfter
}

func (t *Tracker) stateLocked(l *lease, now time.Time) fence.Liveness {
	switch {
	case t.aliveLocked(l, now):
		return fence.Alive
	case l.absent:
		return fence.Unknown
	case now.Sub(l.since) >= l.suspectAfter && !t.blindLocked(now):
		return fence.Stale
	}
	return fence.Unwatched
}

// Storm tells whether so many nodes are stale, or read as off, that the fault is more likely
// ours, the network's or the API server's, and says it in words. When so many are stale no more,
// every node's age begins anew; by what agents read no age does.
func (t *Tracker) Storm() (bool, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	watched, stale := t.countLocked(now)
	storm, or := t.weatherLocked(now, watched, stale), ""
	for node := range t.off {
		if l := t.leases[node]; l != nil && !l.absent && t.stateLocked(l, now) != fence.Stale {
			stale++
			or = " or read off"
		}
	}
	if !storm && !t.tooManyLocked(stale, watched) {
		return false, ""
	}
	return true, fmt.Sprintf("%d of %d watched nodes have stopped renewing their leases%s, more than the %.0f%% of fencing.maxUnhealthy", stale, watched, or, t.maxUnhealthy*100)
}

// weatherLocked notes the beginning and the end of a storm.
func (t *Tracker) weatherLocked(now time.Time, watched, stale int) bool {
	storm := t.tooManyLocked(stale, watched)
	switch {
	case storm && !t.storm:
		t.storm = true
		klog.InfoS("Storm: too many nodes are stale at once", "stale", stale, "watched", watched, "maxUnhealthy", t.maxUnhealthy)
	case t.storm && !storm:
		t.resetLocked(now, fmt.Sprintf("the storm is over: %d of %d nodes are stale", stale, watched))
	}
	return storm
}

func (t *Tracker) countLocked(now time.Time) (watched, stale int) {
	for _, l := range t.leases {
		if l.absent {
			continue
		}
		watched++
		if t.stateLocked(l, now) == fence.Stale {
			stale++
		}
	}
	return watched, stale
}
