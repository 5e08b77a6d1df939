package observe

import (
	"context"
	"slices"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

const (
	// period of Run's heartbeat; a node's turning stale is noticed so late at
	// most.
	period = 500 * time.Millisecond
	// maxGap between two heartbeats, or between the monotonic and the wall
	// clock's idea of it. Beyond, this process was suspended.
	maxGap = 5 * time.Second
)

func wallClock() time.Time { return time.Now().Round(0) }

// pulse remembers the last heartbeat on both clocks. A stopped process sees the
// monotonic clock jump; in a paused machine that one may stop as well, and only
// the wall clock jumps.
type pulse struct {
	wall   func() time.Time
	at     time.Time
	wallAt time.Time
}

func (p *pulse) strike(now time.Time) { p.at, p.wallAt = now, p.wall() }

// gap says what is wrong with the time since the last heartbeat; empty: nothing.
func (p *pulse) gap(now time.Time) string {
	elapsed := now.Sub(p.at)
	drift := p.wall().Sub(p.wallAt) - elapsed
	switch {
	case elapsed > maxGap:
		return "this process was suspended for " + elapsed.Round(time.Second).String() + ", or is starved of CPU"
	case drift.Abs() > maxGap:
		return "the wall clock jumped by " + drift.Round(time.Second).String() + ": this machine was paused, or its clock was set"
	}
	return ""
}

// nowLocked reads the clock. If this process was suspended since the last
// heartbeat, every node's age begins anew first: a call may come before the
// heartbeat notices.
func (t *Tracker) nowLocked() time.Time {
	now := time.Now()
	if gap := t.beat.gap(now); gap != "" {
		t.beat.strike(now)
		t.resetLocked(now, gap)
	}
	return now
}

// Run keeps the heartbeat until ctx ends, calls OnStale's function for each
// node that turns stale, and notes storms.
func (t *Tracker) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		nodes, tell := t.tick()
		for _, node := range nodes {
			tell(node)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// tick is one heartbeat. It returns the nodes that have turned stale, by name.
func (t *Tracker) tick() (nodes []string, tell func(string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	t.beat.strike(now)
	watched, stale := t.countLocked(now)
	t.weatherLocked(now, watched, stale)
	t.overdueLocked(now, watched)
	for node, l := range t.leases {
		isStale := t.stateLocked(l, now) == fence.Stale
		if isStale && !l.told {
			nodes = append(nodes, node)
		}
		l.told = isStale
	}
	slices.Sort(nodes)
	return nodes, t.onStale
}
