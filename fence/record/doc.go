// Package record keeps what people and taints claim of a node: one record for
// each node, shared by the sidecars of all drivers.
//
// A record is the annotation csi-fencepost.io/record on a Lease in a namespace
// of its own (fencing.namespace), which only the sidecars may write. It holds
// the bindings of taints, operators' confirmations that the node is off, their
// releases of single volumes, the fences with what was asked and answered,
// operators' overrides of broken agents, what the node's machine was known by at
// first sight, questions whether it is off with their answers, and an audit trail. It
// outlives its Node.
//
// The Lease's spec is the Lock under which one actor at a time fences the node.
// Update leaves it alone.
//
//	Fencing ─▶ Fenced ─▶ Void                the node is back, or has its power back
//	   │          └────▶ Lifting ─▶ Lifted   a storage fence taken back, read as open
//	   └─────▶ Failed      ▲ ▼               no reading said off
//	                    Refencing ─▶ Fenced  cut anew while it was being lifted
//
// A storage fence that a person withdrew is Void, and Lifted once what it cut is read
// as open. Only Fenced proves something. What is under way at the node is the record's
// Operation. Both are read from what the versions before wrote, and written so that they
// understand it.
//
// # Guarantees
//
// A fence and what a person says prove something only where somebody who may claim so
// vouches for it. What the rest of a record says can end a claim, or keep a volume
// waiting.
//
// Get, Update and List read live, from the API server and never from a cache.
// Update is a compare-and-swap on the Lease's resourceVersion: of two writers
// at once, the later one is shown what the earlier one wrote. A record that
// cannot be understood whole is not used in part: it is a *GarbledError that
// says how to mend it. Every change of a claim leaves an Audit entry in the
// same write. A record is bounded in size; what is dropped for that, the oldest
// first, can only delay a volume: a current fence is never dropped.
//
// A Lock that another one holds is taken only after its holder let go, or after
// it was watched unchanged for the duration that its holder asked for, on this
// process's own monotonic clock: clocks of two machines are never compared.
//
// # Non-guarantees
//
// A process that is suspended while it has the lock learns of the loss only when
// it asks (Lock.Held).
//
// Whoever may write Leases in that namespace, with the annotations that vouch for a claim
// (Record.Vouched), can claim that a node is fenced. deploy/admission/records.yaml tells
// the one right from the other. The audit trail is kept for people, not against them: it is as trustworthy as
// the namespace, and old entries go.
package record
