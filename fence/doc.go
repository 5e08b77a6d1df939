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
//
// # Glossary
//
// What the comments, messages and pages of csi-fencepost mean by these words:
//
//   - Agent: what reads whether a machine is off, or cut off from the storage, and makes sure
//     of it: a BMC, a cloud, an array (package fence/agent). Agents that have to agree are a
//     level; levels are tried in order.
//   - Alive, silent (Stale), gone (Unknown), Unwatched: what a node's lease says of it, on this
//     process's own clock. Unwatched claims nothing.
//   - Attached: a VolumeAttachment, or the Node's volumesAttached, says so. Listed: the Node's
//     volumesInUse or volumesAttached names the volume.
//   - Bound: said of evidence, which counts for one machine, boot and lease; and of an identity,
//     a value such as a provider ID that a node's record has for that node alone.
//   - Brake: a reason not to fence a node now, although everything else is there for it.
//   - Claim: what a person or another program says of a node, in its record: a confirmation, a
//     release, an override, a taint. A claim counts if somebody who may make it vouches for it
//     (package fence/record).
//   - Contested, doubted: the kubelet's word that a volume is free is not taken, since a kubelet
//     that restarted would say the same (Contest).
//   - Cut, to: to switch a machine off, or to cut it off from the storage.
//   - Evidence: one piece of what is known of a machine that may be off. Proof is the strongest
//     piece that holds; a contradiction beats what it contradicts.
//   - Fence: that a machine is off (power), or cut off from one driver's storage (storage), as
//     its record has it. Fenced: it is proven. To lift a fence is to give the access back.
//   - Holder, holding: a machine that may write to a volume; the two together. A node holds a
//     volume from before its publish is forwarded until its unpublish has succeeded.
//   - Identity: what a machine is known by: system UUID, provider ID, node ID.
//   - Judgement: one run of the decision over one Snapshot, and its Verdict.
//   - Kubelet's word: what the Node's status, which its kubelet writes, says.
//   - Ledger: who holds a volume, on its PersistentVolume; each holding is an entry (package
//     fence/ledger).
//   - Machine: what can write. Node: the object in Kubernetes under which a machine is
//     registered. Node ID: what the driver calls the machine.
//   - Moved: said of a volume that was, or is being, taken from a node that lists it still.
//   - Reading: what an agent said of a machine at one time: on, off, or unclear.
//   - Record: what is claimed and known of a node, on a Lease (package fence/record).
//   - Released: let go of by the holder itself; or, as a claim, said so by a person of one volume.
//   - Seal: what says that a volume's ledger is complete, so that a node in no ledger only waits.
//   - Silent: see Alive.
//   - Storm: so many nodes are silent at once that the fault is more likely ours.
//   - Survey: what was read, live, for one judgement.
//   - Takeover: the unpublish from the old node and the publish to the new one, in one call.
//     TakenOver is the entry that is left of the old one.
//   - Void: said of evidence that counts no more, with the reason.
//   - Wants: a node that lists a volume, or has its VolumeAttachment, and only waits for it.
//   - Witness: the sight of a kubelet, after a storage fence, that lists what had moved off its
//     node: what is no more listed later has been let go of.
package fence
