// Package failover moves the pods of a dead node, once it is proven that the
// node can no longer write to the driver's volumes.
//
//	stale, holds volumes ──▶ suspect ──▶ ask the agents ◀──every few seconds──┐
//	                                       │ off          │ on, unclear       │
//	                                       │      fenceAfter passed? ──no─────┤
//	                                       │        │ yes                     │
//	                                       │      brakes ──one holds──────────┤
//	                                       │        │ none                    │
//	 operator's word ──────────────────────┤◀─off── fence ──────fails─────────┘
//	                                       ▼
//	              out-of-service taint, then pods deleted by force
//	                                       │  Kubernetes detaches and attaches,
//	                                       ▼  the guard lets it through
//	       back: Ready under a new boot ID ──▶ taint off, fence void, lifted
//
// It is level-triggered: each pass over a node reads everything live, plans by
// a pure function, and acts; a leader that dies between two steps is followed
// by one that goes on from the objects. What is remembered only delays.
//
// # Guarantees
//
// No pod is deleted, and no taint put on, unless the decision (package fence)
// says of a volume in use on that node that its holder is fenced, by evidence
// bound to the node's UID, boot ID and lease; these are read again right before.
// Where agents cover the node, their own reading of off is no older than a few
// seconds. Where the Node is gone, that holds of each machine that the drivers' ledgers name
// under its name. A pod is deleted by its UID.
//
// No node is fenced that shows life, that a brake is on for, or that no agent
// covers. A taint that a person put on is never overwritten nor taken off.
// While the API server does not answer, nothing is done.
//
// A storage fence is lifted only after a boot of the Node that was fenced, or when
// this boot's kubelet, Ready without a break, was seen to list what moved and to
// drop it, or where the driver revokes access on unpublish; never for another
// machine that has the name by now. Of a machine that registered anew nobody can
// tell whether it has booted since: the boot in its fence may be that of a publish,
// or of an earlier return. A node that dies while its fence is being lifted, or under
// the fence of another machine that had its name, is fenced as any other.
//
// # Brakes
//
// A node that is due is not fenced while: it has no Node object; it opts out;
// it is under maintenance, cordoned, being deleted or scaled down; nothing would
// move; there is a storm (more than the share maxUnhealthy of the nodes, from 3
// on, is silent); this process's own lead is late; maxConcurrent nodes, or one
// of another zone, were fenced within 5 minutes and still hold volumes; the sidecars of
// all drivers whose volumes it holds have cut it off from their storage within 5 minutes; or the
// share maxUnhealthy of all nodes, and at least one, was fenced within the hour.
// A node whose fence is being lifted, or could not be made anew, holds up no other
// but in the count of the hour, where each node is one. So does one whose off was
// taken though nobody reads it as off.
//
// All of them are tried live before a fence, where nodes that this process is about to
// fence count, too. The node's lock may have to be waited for: what is of the node
// itself, the storm and the lead are asked again right before each off. At the end
// of a storm every node is watched anew.
//
// # Non-guarantees
//
// The brakes count by the nodes' records, on their writers' clocks, what somebody who may
// fence vouches for (fencer.Counting): two sidecars
// that fence at the very same moment may be one over a limit. They count nodes
// that a sidecar switched off, not those found off: a rack without power moves.
// Whoever writes records takes others' fences away from them, and this process's own once
// it has started anew. The brakes of the storm, and of the own lead, need no record.
//
// With the out-of-service taint on, Kubernetes itself deletes pods that are
// being terminated on a node that is not Ready, opted out or not; it marks pods
// so 300 s after a node is unreachable, unless they tolerate it.
//
// A volume that a pod carries inline, with no claim, moves no pod here.
package failover
