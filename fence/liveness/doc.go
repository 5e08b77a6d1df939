// Package liveness tells from a node's lease whether the node is alive, stale
// or unknown.
//
// A kubelet renews its lease every 10 seconds. A Tracker is told the lease's
// resourceVersion, by a watch and by live reads, and measures on this process's
// own clock for how long it has not changed. It never reads renewTime: that is
// the node's clock.
//
//	first sight ──▶ Unwatched ──suspectAfter──▶ Stale
//	                    │  ▲                      │
//	             change │  │ Reset, storm over    │ change
//	                    ▼  └──────────────────────┤
//	                  Alive ◀─────────────────────┘
//	                    └──────suspectAfter─────▶ Stale
//
// # Guarantees
//
// No node is Stale unless its lease was watched unchanged for suspectAfter
// without a break. Breaks are a start, a Reset, the end of a storm, a suspension
// of this process, and, where Probe runs, an API server that does not answer. An error of the Tracker delays, and never makes
// a node look dead: what is not known to be unchanged counts as changed.
//
// # Non-guarantees
//
// Stale is not dead: a node that is cut off from the API server goes on
// writing. A watch that is silently stuck makes nodes look stale to Storm and
// to OnStale; Judge, which is given a live read, is not fooled.
package liveness
