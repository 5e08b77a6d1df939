// Package fencer asks a node's fence agents, and has them cut it off, one actor
// at a time.
//
//	Ask:  Node, lease ─▶ agents' status ─▶ Node, lease ─▶ record, if off
//	Off:  lock ─▶ Node, lease, record ─▶ status ─▶ "Fencing" in the record ─▶
//	      per agent: Node, lock, lease once more ─▶ off ─▶ status ─▶ lease ─▶
//	      "Fenced" or "Failed" in the record ─▶ unlock
//
// # Guarantees
//
// No off or on goes by what a node says of its machine (agent.Seeker) unless that is the
// node's own: bound in its record at first sight, said by it now, and bound to no other node
// that is there, each read live before. What is not bound, or in doubt, may be read: on
// counts, off proves nothing. A later claimant neither has a machine cut off by what it
// claims, nor keeps its owner from being cut off while that has a Node. Of a Node that is gone,
// what any node says may be what its machine says under a new name: no command goes by it.
//
// A machine counts as off only by the agents' own readings, with the same Node
// UID, boot ID and lease before and after them (under a storage fence a node
// may live: there the UID counts). No off is sent unless the lock was ours, the
// Node the one that is meant, and its lease unchanged since the caller's
// evidence, each read live right before; with the API server out of reach none
// is sent at all. force leaves out what asks whether the node lives, never the
// lock, the machine or the reading afterwards.
//
// That a fence is begun stands in the record before the first off. Whoever gets
// the lock after a death in the middle asks for the status first. While an
// agent's call hangs that could still take effect, the lock is kept.
//
// A power fence in the record is void before power is given back. A storage
// fence says that it is being lifted before access is, and proves nothing from then
// on. It stays to be lifted, by whoever comes next, until the agents read as open
// what it cut, or until the machine was cut off anew and all of that reads as cut; a
// cut that fails in between loses nothing of it. What it cut off from another machine
// is not opened for this one.
//
// A lift opens of addresses, before the machine has booted, only what this driver's fences
// were to cut. Agents that know machines by other names open what they read as cut.
// What was only read as cut off somebody else cut, who may have moved volumes on that: he
// opens it, or a person does, by On. Nor does a lift open, in the boot of another driver's
// fence of the machine, what that names, before its sidecar finds that it may be lifted too.
// From a minute after a boot on nothing waits for that sidecar: its fence proves nothing any
// more. What a fence of another node names is opened once that is lifted.
//
// A storage fence is of the boot in which its machine was cut off. What is cut, or found cut
// off, at another address in a later boot makes it a fence of that boot.
//
// # Non-guarantees
//
// Between the last check and the moment in which the device acts there is the
// device's own time. A process that is suspended exactly there sends its off
// when it goes on. Evidence is true of the moment of its reading; who uses it
// holds the lease against it again. Somebody who is on no record, and relies on an address
// that a fence cut as well, is not seen: a NetworkFence of only some of a node's addresses,
// or one that was made after the fence, or while it is being lifted and a part of it is
// open. What a fence cut beyond 2 KiB of words, some 110 IPv4 blocks or 40 of IPv6, counts
// as cut by somebody else.
package fencer
