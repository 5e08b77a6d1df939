package failover

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// A node that agents with poll read as off is looked at before its lease is silent:
//
//	reads off ──▶ ask: off, a second, off, one lease ──▶ something missing? ──no──▶ again
//	                                                          │ yes
//	     the fence says what is missing: calls are answered ◀─┘
//	                                                          │ off for offFor
//	                                        taint, pods ◀─────┘
//
// With a renewal, or a reading of on, it is a node that lives, as before. Once its lease is silent
// it is a silent one, as without poll.

const (
	// earlyEvery is the pause between two questions about such a node, and between two looks.
	earlyEvery = 500 * time.Millisecond
	// startsFor is longer than a device that has just started reads off although its machine is
	// on. One that keeps no sessions has to read off for so long.
	startsFor = 4 * time.Second
)

// early: the lease is not silent, and the node reads off, or was proven off since its last renewal.
func (s *state) early() bool {
	return s.Node != nil && (s.Life == fence.Alive || s.Life == fence.Unwatched) && (s.ReadsOff || s.provenEarly())
}

// provenEarly: the fence is one that was proven early, and nothing was heard of its machine since.
func (s *state) provenEarly() bool {
	f := s.Fence
	return f != nil && s.Node != nil && f.Kind == fence.PowerReading && f.Void == "" && f.Missed != "" &&
		f.LeaseRV == s.LeaseRV && f.NodeUID == string(s.Node.UID) && f.BootID == s.Node.Status.NodeInfo.BootID
}

// planEarly: the node reads off, and its lease is not silent. In a storm it waits until that is.
func planEarly(s *state) []step {
	switch {
	case !s.Holds && !s.fenced(), s.Storm:
		return nil
	case s.Covered && s.AskDue:
		return []step{stepAsk}
	case s.Proof == fence.PowerReading && s.mayMoveEarly():
		return planProven(s)
	}
	return nil
}

// mayMoveEarly: its pods need not wait until the lease is silent. A quick reboot is over by then,
// and a node that somebody works on, or that has said that it shuts down, is not in a hurry.
func (s *state) mayMoveEarly() bool {
	b, _ := OfNode(s.Node, false, true, "")
	return !s.Storm && s.ReadsOff && s.OffFor >= s.OffForLeast && b == NoBrake && s.ready()
}

// awaitsEarly: it reads off, and its pods do not move yet.
func (s *state) awaitsEarly() bool { return s.early() && !(s.Proof != "" && s.mayMoveEarly()) }

// missed is what a machine that runs would have done by now, of a node that was read as off twice.
// What was missing once is still, while its lease is the same.
func (w *worker) missed(ctx context.Context, s *state) func(held bool) string {
	leaseRV, known := s.LeaseRV, ""
	if s.provenEarly() {
		known = s.Fence.Missed
	}
	return func(held bool) string {
		if known != "" {
			return known
		}
		if storm, _ := w.Lives.Storm(); storm {
			return ""
		}
		during, off := w.polls.off(w.name, leaseRV)
		if age, late := w.Lives.Late(w.name, leaseRV); late && off && (held || during >= startsFor) {
			return fmt.Sprintf("a renewal of its lease was due, which is unchanged for %s", age.Round(100*time.Millisecond))
		}
		if held && off && w.ports.fell(ctx, s.Node) {
			return "its kubelet, which answered connections a moment ago, gives no answer"
		}
		return ""
	}
}

// readingOf is an answer of the worker's own as the polls keep it.
func readingOf(a *fencer.Answer, at time.Time) Reading {
	r := Reading{State: a.State, At: at, Why: a.Why}
	switch {
	case a.OffTwice:
		r.State = agent.Off
	case len(a.On) > 0:
		r.State = agent.On
	}
	return r
}
