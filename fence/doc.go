// Package fence decides who may write to a volume.
//
// It holds two things: the decision, which is a pure function of a Snapshot
// (JudgePublish, JudgeUnpublish), and the values that a Snapshot is made of
// (Holder, Evidence, Liveness). It does no I/O and reads no clock. What
// gathers a Snapshot is package fence/survey; what acts on a Verdict is
// package proxy/guard.
//
//	ledger ─┐
//	VolumeAttachments ─┤             ┌─ Allow (with the holders to unpublish first)
//	Nodes, leases ─────┼─▶ Snapshot ─┼─ Refuse, with a Reason
//	evidence sources ──┤             └─ Wait (an operation is pending)
//	driver ─┘
//
// testdata/decision.txt is what one holder amounts to, as a table that a test prints, and
// testdata/machines.txt when two observations are of one machine.
//
// # Guarantees
//
// The zero Verdict refuses. A Snapshot with a holder of which nothing is known
// is refused. A publish is allowed only if each other holder is released,
// fenced, or (where the driver is declared to do it) revoked by its unpublish.
//
// # Non-guarantees
//
// The decision is as good as its evidence. Whoever may write the out-of-service
// taint, a node's record or the ledger can claim that a node is fenced.
package fence
