package array

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// askAgainEvery is how often WaitFor looks without a change of state: single
// writes are none, there are too many of them.
const askAgainEvery = 20 * time.Millisecond

// WaitFor waits until the condition holds. The condition is asked again after
// each change of the array's state, and every 20 ms; it may call the array's
// methods. The error when ctx ends says what was awaited.
func (a *Array) WaitFor(ctx context.Context, what string, condition func() bool) error {
	tick := time.NewTicker(askAgainEvery)
	defer tick.Stop()
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// WaitAttached waits until the volume is attached to exactly these nodes; with
// none given, until it is attached nowhere.
func (a *Array) WaitAttached(ctx context.Context, volumeID string, nodeIDs ...string) error {
	want := slices.Sorted(slices.Values(nodeIDs))
	err := a.WaitFor(ctx, fmt.Sprintf("volume %s to be attached to %q", volumeID, want), func() bool {
		return slices.Equal(a.Attached(volumeID), want)
	})
	return explain(err, "it is attached to %q", a.Attached(volumeID))
}

// WaitPublished waits until exactly these nodes have the volume published to a
// container.
func (a *Array) WaitPublished(ctx context.Context, volumeID string, nodeIDs ...string) error {
	want := slices.Sorted(slices.Values(nodeIDs))
	err := a.WaitFor(ctx, fmt.Sprintf("volume %s to be published on %q", volumeID, want), func() bool {
		return slices.Equal(a.Published(volumeID), want)
	})
	return explain(err, "it is published on %q", a.Published(volumeID))
}

// WaitWrites waits until the array has accepted more writes of the node to the
// volume, counted from now.
func (a *Array) WaitWrites(ctx context.Context, volumeID, nodeID string, more int) error {
	want := a.accepted(volumeID, nodeID) + more
	err := a.WaitFor(ctx, fmt.Sprintf("%d more writes of node %s to volume %s", more, nodeID, volumeID), func() bool {
		return a.accepted(volumeID, nodeID) >= want
	})
	return explain(err, "its writes: %+v", a.Writes(volumeID))
}

func (a *Array) accepted(volumeID, nodeID string) int {
	for _, w := range a.Writes(volumeID) {
		if w.Node == nodeID {
			return w.Accepted
		}
	}
	return 0
}

// WaitCall waits until a call matches, running ones included, and returns the
// first that does.
func (a *Array) WaitCall(ctx context.Context, what string, match func(Call) bool) (Call, error) {
	var found Call
	err := a.WaitFor(ctx, what, func() bool {
		calls := a.Calls()
		i := slices.IndexFunc(calls, match)
		if i < 0 {
			return false
		}
		found = calls[i]
		return true
	})
	return found, err
}

func explain(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; "+format, append([]any{err}, args...)...)
}
