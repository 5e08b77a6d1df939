package failover

import (
	"fmt"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// A node whose power agents with poll have seen to go is looked at before its lease is silent:
//
//	on, off ──▶ ask: off, a second, off, one lease ──▶ off for 4 s, something missing? ──no──▶ again
//	                                                          │ yes
//	     the fence says what is missing: calls are answered ◀─┘
//	                                                          │ off for offFor
//	                                        taint, pods ◀─────┘
//
// With a renewal, or a reading of anything but off, it is a node that lives, as before. Once its lease
// is silent it is a silent one, as without poll.

const (
	// earlyEvery is the pause between two questions about such a node, and between two looks.
	earlyEvery = 500 * time.Millisecond
	// startsFor is longer than a device that has just started reads off although its machine is on.
	startsFor = 4 * time.Second
	// askFrom is for how long such a node reads off before the agents are asked twice, in their turn,
	// a second apart: no answer would prove anything before.
	askFrom = startsFor - time.Second
)

// early tells whether the lease is not silent, while the node's power was seen to go, or the node
// was proven off since its last renewal.
func (s *state) early() bool {
	return s.Node != nil && (s.Life == fence.Alive || s.Life == fence.Unwatched) && (s.ReadsOff || s.provenEarly())
}

// provenEarly tells whether the fence is one that was proven early, and nothing was heard of its
// machine since.
func (s *state) provenEarly() bool {
	f := s.Fence
	return f != nil && s.Node != nil && f.Kind == fence.PowerReading && f.Void == "" && f.Missed != "" &&
		f.LeaseRV == s.LeaseRV && f.NodeUID == string(s.Node.UID) && f.BootID == s.Node.Status.NodeInfo.BootID
}

// provenBefore tells whether the fence was proven early, and its machine was heard of since, or is
// another.
func (s *state) provenBefore() bool {
	return s.Fence != nil && s.Fence.Void == "" && s.Fence.Missed != "" && !s.provenEarly()
}

// planEarly is the plan for a node whose power was seen to go, and whose lease is not silent. In a
// storm nothing is missing, and the node is only polled.
func planEarly(s *state) []step {
	switch {
	case s.Storm, !s.Holds && !s.fenced():
		return nil
	case s.Covered && s.AskDue:
		return []step{stepAsk}
	case s.Proof == fence.PowerReading && s.mayMoveEarly():
		return planProven(s)
	}
	return nil
}

// mayMoveEarly tells whether the node's pods need not wait until the lease is silent. A quick
// reboot is over by then, and a node that somebody works on, or that has said that it shuts down,
// is not in a hurry.
func (s *state) mayMoveEarly() bool {
	b, _ := OfNode(s.Node, false, true, "")
	return s.ReadsOff && s.OffFor >= s.OffForLeast && b == NoBrake && s.ready()
}

// awaitsEarly tells whether the node reads off while its pods do not move yet.
func (s *state) awaitsEarly() bool {
	return s.early() && !s.Storm && !(s.Proof != "" && s.mayMoveEarly())
}

// missed is what a machine that runs would have done by now, of a node that was read as off twice.
// What was missing once is still, while its lease is the same.
func (w *worker) missed(s *state) func(read time.Time, checked bool) string {
	leaseRV, known := s.LeaseRV, ""
	if s.provenEarly() {
		known = s.Fence.Missed
	}
	return func(read time.Time, checked bool) string {
		if known != "" {
			return known
		}
		if storm, _ := w.Lives.Storm(); storm {
			return ""
		}
		since, _, off := w.polls.off(w.name, leaseRV)
		if !off || read.Sub(since) < startsFor {
			return ""
		}
		if age, late := w.Lives.Late(w.name, leaseRV); late {
			return fmt.Sprintf("a renewal of its lease was due, which is unchanged for %s", age.Round(100*time.Millisecond))
		}
		if checked && w.ports.fell(s.Node, since) {
			return "its kubelet, which answered connections a moment ago, gives no answer"
		}
		return ""
	}
}

// readingOf is an answer of the worker's own as the polls keep it: of the power alone.
func readingOf(a *fencer.Answer, began time.Time) Reading {
	r := Reading{State: agent.Unclear, At: began, Why: a.Why}
	if n := len(a.Steps); n > 0 && a.Steps[n-1].Started.After(began) {
		r.At = a.Steps[n-1].Started
	}
	switch {
	case len(a.On) > 0:
		r.State = agent.On
	case a.OffTwice || a.State == agent.Off && a.Kind == fence.PowerReading:
		r.State = agent.Off
	}
	return r
}
