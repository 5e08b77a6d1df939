package fence

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const (
	oldNode = "id-1" // holds the volume in the base snapshot
	newNode = "id-2" // asks for it
)

// deletedAt is when the VolumeAttachment is deleted, where a case deletes it.
var deletedAt = time.Date(2025, 11, 21, 10, 0, 0, 0, time.UTC)

// base is ordinary life: the volume is attached to a node that is alive and
// uses it, and another node asks for it. Each case changes one thing or two.
func base() Snapshot {
	return Snapshot{
		Volume: "vol-1", PV: "pv-1",
		Holders: []Holder{{
			NodeID: oldNode, NodeName: "n1", NodeUID: "uid-1", BootID: "boot-1",
			Sources: []Source{FromLedger, FromAttachment, FromVolumesInUse, FromVolumesAttached},
			State:   Publishing, Token: "t1",
			Node: &Node{UID: "uid-1", BootID: "boot-1", Ready: true, ReadySince: "2025-11-21T08:00:00Z",
				ReadyAt: deletedAt.Add(-2 * time.Hour), InUse: true, ListedAttached: true},
			Attachment: &Attachment{Name: "csi-1", UID: "va-1", Attached: true},
			Liveness:   Alive, LeaseRV: "100",
		}},
		Target: &Holder{NodeID: newNode, NodeName: "n2", NodeUID: "uid-2", BootID: "boot-2",
			Node:     &Node{UID: "uid-2", BootID: "boot-2", Ready: true, ReadySince: "2025-11-21T08:00:00Z"},
			Liveness: Alive, LeaseRV: "200"},
	}
}

// change is one mutation of a holder.
type change func(*Holder)

func dropped(h *Holder)        { h.Node.InUse, h.Node.ListedAttached = false, false }
func unlisted(h *Holder)       { h.Node.ListedAttached = false }
func deleted(h *Holder)        { h.Attachment.DeletedAt = deletedAt }
func letGo(h *Holder)          { h.Node.LetGo = true }
func turned(h *Holder)         { h.Attachment.Turned = true }
func restarted(h *Holder)      { h.Node.Memory = MemoryLost }
func unsaid(h *Holder)         { h.Node.Memory = MemoryUnsaid }
func remembers(h *Holder)      { h.Node.Memory = MemoryWhole }
func noVA(h *Holder)           { h.Attachment = nil }
func nodeGone(h *Holder)       { h.Node, h.Liveness, h.LeaseRV = nil, Unknown, "" }
func notReady(h *Holder)       { h.Node.Ready = false }
func noBoot(h *Holder)         { h.Node.BootID = "" }
func boot2(h *Holder)          { h.Node.BootID = "boot-2" }
func contest(h *Holder)        { h.Contest = &Contest{BootID: "boot-1"} }
func contest2(h *Holder)       { h.Contest = &Contest{BootID: "boot-2"} }
func emptyBoot(h *Holder)      { h.Contest = &Contest{} }
func listedAttached(h *Holder) { h.Node.InUse = false }
func sourceless(h *Holder)     { h.Sources = []Source{FromLedger} }

func stale(h *Holder)     { h.Liveness = Stale }
func unknown(h *Holder)   { h.Liveness = Unknown }
func unwatched(h *Holder) { h.Liveness = Unwatched }

// replaced: another machine stands under the node's name.
func replaced(h *Holder) {
	h.Node.UID, h.Node.BootID = "uid-9", "boot-9"
	h.Sources = []Source{FromLedger, FromAttachment}
}

// tookOver: another machine has registered under the old one's Node.
func tookOver(h *Holder) {
	h.SystemUUID = "system-1"
	h.Node.BootID, h.Node.SystemUUID = "boot-9", "system-9"
	h.Sources = []Source{FromLedger, FromAttachment}
}

// tainted: somebody put the out-of-service taint on.
func tainted(h *Holder) { h.Node.OutOfService = true }

// noted: the Node's ReadySince is the one that it was published with.
func noted(h *Holder) { h.ReadySince = h.Node.ReadySince }

// unproven: it was taken over because unpublish.unfenced is Forward.
func unproven(h *Holder) { h.State, h.Unproven = TakenOver, true }

// seen: the kubelet was seen to list the volume during the contest.
func seen(h *Holder) { h.Contest.SeenReadySince = h.Node.ReadySince }

// waits: a pod of the volume is there, and none has run.
func waits(h *Holder)      { h.Node.Waits = true }
func unattached(h *Holder) { h.Attachment.Attached = false }
func byDriver(h *Holder)   { h.Sources = append(h.Sources, FromDriver) }

// under: it was released while that VolumeAttachment was being deleted.
func under(uid string) change { return func(h *Holder) { h.ReleasedUnder = uid } }

func state(s State) change { return func(h *Holder) { h.State = s } }

// readyAfter: the Node became Ready so much after the VolumeAttachment's
// deletion, on the API server's clock.
func readyAfter(d time.Duration) change {
	return func(h *Holder) { h.Node.ReadyAt = deletedAt.Add(d) }
}

// heardLast: the controller says Unknown since an hour after the VolumeAttachment's
// deletion; the kubelet's last word came so much after that.
func heardLast(d time.Duration) change {
	return func(h *Holder) {
		h.Node.Ready, h.Node.ReadyUnknown = false, true
		h.Node.ReadyAt, h.Node.HeardAt = deletedAt.Add(time.Hour), deletedAt.Add(d)
	}
}

func with(k Kind, changes ...func(*Evidence)) change {
	return func(h *Holder) {
		e := Evidence{Kind: k, Source: "someone", NodeName: h.NodeName, NodeID: h.NodeID, NodeUID: h.NodeUID, LeaseRV: h.LeaseRV}
		if h.Node != nil {
			e.BootID = h.Node.BootID
		}
		for _, c := range changes {
			c(&e)
		}
		h.Evidence = append(h.Evidence, e)
	}
}

func readsOn(e *Evidence) { e.On = true }

func ownWord(e *Evidence) { e.OwnWord = true }
func missed(e *Evidence)  { e.Missed = "a renewal of its lease was due" }

// living: said of a living node, whose VolumeAttachment was being deleted.
func living(e *Evidence) { e.Living, e.Attachment = true, "va-1" }

var (
	revokes = Policy{UnpublishRevokesAccess: true}
	forward = Policy{ForwardUnfenced: true}
)

// expectation of a case, for both calls about the same holder.
type expectation struct {
	rule    string
	policy  Policy
	changes []change
	// publish to another node, unpublish of the holder.
	publish, unpublish Reason
}

// gone expects that the holder no longer counts, for both calls.
func gone(rule string, reason Reason, p Policy, c ...change) expectation {
	return expectation{rule, p, c, reason, reason}
}

// refused expects that the holder blocks both calls.
func refused(rule string, reason Reason, p Policy, c ...change) expectation {
	return expectation{rule, p, c, reason, reason}
}

var none Policy

// table: DESIGN's two tables and each clause of "When a holder no longer
// counts", as seen by both calls.
var table = []expectation{
	// Released.
	gone("released: a live Node lacks the volume in both lists", HolderReleased, none, deleted, dropped),
	gone("released: neither lease nor Ready matter (NotReady)", HolderReleased, none, deleted, dropped, notReady),
	gone("released: neither lease nor Ready matter (stale)", HolderReleased, none, deleted, dropped, stale),
	gone("released: neither lease nor Ready matter (unwatched)", HolderReleased, none, deleted, dropped, unwatched),
	gone("released: neither lease nor Ready matter (no lease)", HolderReleased, none, deleted, dropped, unknown),
	gone("released: an orphan that nobody uses, without a VolumeAttachment", HolderReleased, none, noVA, dropped),
	gone("released: it outlives the Node", HolderReleased, none, state(Released), deleted, nodeGone),
	gone("released: it outlives the machine", HolderReleased, none, state(Released), deleted, dropped, replaced),
	gone("released once is no restarted kubelet", HolderReleased, none, state(Released), deleted, dropped, readyAfter(time.Hour)),
	gone("released: volumesInUse lacks it, and its VolumeAttachment is being deleted", HolderReleased, none, deleted, listedAttached),
	refused("not released: the same, its kubelet in doubt", HolderContested, none, deleted, listedAttached, readyAfter(time.Hour)),
	refused("not released: the same, contested", HolderContested, none, deleted, listedAttached, contest),
	refused("not released: the same, an orphan without a VolumeAttachment", HolderAlive, none, noVA, listedAttached),
	refused("not released: the same, its VolumeAttachment not being deleted", HolderAlive, none, listedAttached),
	refused("not released: the same of another machine that took over its Node", HolderUnknown, none, deleted, listedAttached, tookOver),
	gone("released for good: a pod that is back lists it", HolderReleased, none, state(Released), under("va-1"), deleted),
	gone("released for good: it is silent by now", HolderReleased, none, state(Released), under("va-1"), deleted, stale),
	gone("released for good: it lives with the taint on", HolderReleased, none, state(Released), under("va-1"), deleted, tainted),
	gone("released for good: its VolumeAttachment is gone, and a pod waits", HolderReleased, none, state(Released), under("va-1"), noVA, unlisted, waits),
	gone("released for good: there is another, by which nobody has it yet, and a pod waits", HolderReleased, none, state(Released), under("va-0"), unattached, unlisted, waits),
	gone("released for good: its VolumeAttachment is gone, and volumesAttached is left over", HolderReleased, none, state(Released), under("va-1"), noVA, listedAttached),
	refused("not for good: its VolumeAttachment is gone, and the Node lists it in both", HolderAlive, none, state(Released), under("va-1"), noVA, waits),
	refused("not for good: its VolumeAttachment is gone, and no pod says that it only waits", HolderAlive, none, state(Released), under("va-1"), noVA, unlisted),
	refused("not for good: taken over, and it was given the volume again", HolderAlive, none, state(TakenOver), under("va-0"), unlisted),
	refused("not for good: taken over, its VolumeAttachment is gone, and no pod says that it only waits", HolderAlive, none, state(TakenOver), under("va-1"), noVA, unlisted),
	refused("not for good: the same, by an unpublish without proof", HolderAlive, none, unproven, under("va-1"), deleted, unlisted),
	refused("taken over, and the driver lists it: it is a holder again", HolderStale, none, state(TakenOver), deleted, unlisted, stale, byDriver),
	gone("the same, proven off", HolderFenced, none, state(TakenOver), deleted, unlisted, stale, byDriver, with(PowerReading)),
	refused("the same, and its kubelet says in that boot that it does not use it", HolderContested, none, state(TakenOver), deleted, dropped, byDriver),
	gone("the same, after a boot", HolderReleased, none, state(TakenOver), deleted, dropped, byDriver, boot2),
	gone("wants it, and is proven off: unpublished, if the driver has it there all the same", HolderFenced, none, state(NotInLedger), noVA, unlisted, stale, waits, with(PowerReading)),
	refused("wants it: not while its VolumeAttachment says attached", HolderAlive, none, state(NotInLedger), unlisted, waits),
	refused("wants it: not while volumesAttached lists it", HolderAlive, none, state(NotInLedger), noVA, waits),
	refused("wants it: not where the ledger names it", HolderAlive, none, noVA, unlisted, waits),
	refused("wants it: not where its pods do not say so", HolderAlive, none, state(NotInLedger), noVA, unlisted),
	refused("wants it: not where the driver lists it", HolderAlive, none, state(NotInLedger), noVA, unlisted, waits, byDriver),
	refused("not for good: another VolumeAttachment is there", HolderAlive, none, state(Released), under("va-0")),
	refused("not for good: another VolumeAttachment is being deleted", HolderAlive, none, state(Released), under("va-0"), deleted),
	refused("not for good: it is leaving for another reason", HolderAlive, none, state(Leaving), under("va-1"), deleted),
	refused("not released: only volumesAttached lacks it", HolderAlive, none, deleted, unlisted),
	refused("not released: the ledger says so and the kubelet lists it again", HolderAlive, none, state(Released), deleted),
	refused("not released: leaving does not outlive the Node", HolderUnknown, none, state(Leaving), deleted, nodeGone),
	refused("not released: the word of another machine of that name", HolderUnknown, none, deleted, dropped, replaced),
	refused("not released: the word of another machine that took over its Node", HolderUnknown, none, deleted, dropped, tookOver),
	gone("released: it outlives the machine, whose Node another one took over", HolderReleased, none, state(Released), deleted, dropped, tookOver),
	refused("not released: a Node whose UID the ledger does not know", HolderUnknown, none, deleted, dropped, sourceless,
		func(h *Holder) { h.NodeUID, h.BootID = "", "" }),
	refused("not released: contested, then the Node was deleted", HolderUnknown, none, state(Released), contest, deleted, nodeGone),

	// Contested.
	refused("contested: a refused unpublish, and the kubelet says not in use", HolderContested, none, deleted, dropped, contest),
	refused("contested: the Node became Ready after the deletion", HolderContested, none, deleted, dropped, readyAfter(time.Hour)),
	refused("contested: Ready and deletion at the same second", HolderContested, none, deleted, dropped, readyAfter(0)),
	refused("contested: Ready just before the deletion, below the stamps' resolution", HolderContested, none, deleted, dropped, readyAfter(-time.Second)),
	refused("contested: when it became Ready is not known", HolderContested, none, deleted, dropped, func(h *Holder) { h.Node.ReadyAt = time.Time{} }),
	refused("contested: it was seen to become Ready after the deletion, whatever the stamps say", HolderContested, none, deleted, dropped, turned),
	refused("contested: it was seen to turn, and the stamps are those of the publish", HolderContested, none, deleted, dropped, turned, noted),
	refused("contested: it was seen to speak after the deletion, and Unknown hides the rest", HolderContested, none, deleted, dropped, turned, heardLast(-3*time.Second)),
	refused("contested: its process has started since it was forced", HolderContested, none, deleted, dropped, restarted),
	refused("contested: its process has started since, and it is Ready since before the publish", HolderContested, none, deleted, dropped, restarted, noted),
	refused("contested: seen to list it, and its process has started since", HolderContested, none, deleted, dropped, contest, seen, restarted),
	refused("contested: its process has started since, and what it listed since, and let go, may be another pod's", HolderContested, none, deleted, dropped, restarted, letGo),
	gone("not contested: its process is that of before the publish, however young", HolderReleased, none, deleted, dropped, remembers),
	refused("contested: it does not say whether it has started since it was forced", HolderContested, none, deleted, dropped, unsaid),
	refused("contested: it does not say so, and is Ready since before the publish", HolderContested, none, deleted, dropped, unsaid, noted),
	refused("contested: seen to list it, and it does not say so", HolderContested, none, deleted, dropped, contest, seen, unsaid),
	refused("contested: it does not say so, and what it let go may be another pod's", HolderContested, none, deleted, dropped, unsaid, letGo),
	refused("silent, and it does not say so", HolderStale, none, deleted, dropped, unsaid, stale),
	gone("not contested: it does not say so, and a device reads it as off", HolderFenced, none, deleted, dropped, unsaid, stale, with(PowerReading)),
	gone("not contested: it does not say so, and the ledger has its word from before", HolderReleased, none, state(Released), deleted, dropped, unsaid),
	gone("not contested: its process has started since, and the ledger has its word from before", HolderReleased, none, state(Released), deleted, dropped, restarted),
	gone("not contested: its process has started since, and nothing is being detached", HolderReleased, none, noVA, dropped, restarted),
	gone("not contested: it was seen to list it, and a boot has ended that", HolderReleased, none, deleted, dropped, contest, restarted, boot2),
	gone("not contested: its process has started since, and a device reads it as off", HolderFenced, none, deleted, dropped, restarted, stale, with(PowerReading)),
	gone("not contested: its process has started since, and somebody has looked there", HolderFenced, none, deleted, dropped, restarted, with(VolumeRelease, living)),
	gone("not contested: it let go before the detach, whatever it was seen to do later", HolderReleased, none, deleted, dropped, turned, letGo),
	gone("not contested: it let go before the detach, whenever the stamps say that it was heard", HolderReleased, none, deleted, dropped, heardLast(time.Hour), letGo),
	refused("contested: it let go, and its unpublish was refused before", HolderContested, none, deleted, dropped, letGo, contest),
	refused("it let go, and lists it again", HolderAlive, none, deleted, letGo),
	gone("not contested: it was seen to turn, and the ledger has its word from before", HolderReleased, none, state(Released), deleted, dropped, turned),
	gone("not contested: Ready just before the deletion, and since before the publish", HolderReleased, none, deleted, dropped, readyAfter(-time.Second), noted),
	gone("not contested: when it became Ready is not known, but it is so since before the publish", HolderReleased, none, deleted, dropped, noted,
		func(h *Holder) { h.Node.ReadyAt = time.Time{} }),
	refused("contested: it became Ready again since the publish", HolderContested, none, deleted, dropped, noted, readyAfter(time.Hour),
		func(h *Holder) { h.Node.ReadySince = "2025-11-21T11:00:00Z" }),
	refused("contested: it is not Ready, although since before the publish", HolderContested, none, deleted, dropped, noted, readyAfter(0), notReady),
	refused("contested: neither publish nor Node say since when it is Ready", HolderContested, none, deleted, dropped, readyAfter(0),
		func(h *Holder) { h.Node.ReadySince = "" }),
	refused("contested: a refused unpublish, however long it is Ready", HolderContested, none, deleted, dropped, contest, noted),
	refused("contested: the out-of-service taint, however long it is Ready", HolderContested, none, deleted, dropped, tainted, noted),
	refused("contested: the kubelet came back after the deletion and is not Ready yet", HolderContested, none, deleted, dropped, notReady, readyAfter(time.Hour)),
	gone("not contested: the controller wrote Unknown, and the kubelet said nothing since before the deletion", HolderReleased, none, deleted, dropped, heardLast(-3*time.Second)),
	refused("contested: the kubelet spoke after the deletion, and Unknown hides whether it had restarted", HolderContested, none, deleted, dropped, heardLast(time.Second)),
	refused("contested: it spoke just before the deletion, below the stamps' resolution", HolderContested, none, deleted, dropped, heardLast(-time.Second)),
	refused("contested: it is not known when it last spoke", HolderContested, none, deleted, dropped, heardLast(-3*time.Second), func(h *Holder) { h.Node.HeardAt = time.Time{} }),
	gone("not contested: the ledger has its word from before that", HolderReleased, none, state(Released), deleted, dropped, heardLast(time.Second)),
	refused("contested: a living node with the out-of-service taint on", HolderContested, none, deleted, dropped, tainted),
	refused("contested: the taint is on, although its kubelet was seen to drop it", HolderContested, none, deleted, dropped, contest, seen, tainted),
	gone("not contested by the taint: the node is silent, and said so before", HolderReleased, none, deleted, dropped, stale, tainted),
	gone("contest ends by a boot, the taint notwithstanding", HolderReleased, none, deleted, dropped, contest, tainted,
		func(h *Holder) { h.Node.BootID = "boot-2" }),
	gone("not contested: Ready well before the deletion", HolderReleased, none, deleted, dropped, readyAfter(-3*time.Second)),
	gone("not contested: Ready late, with nothing deleted", HolderReleased, none, noVA, dropped, readyAfter(time.Hour)),
	gone("contest ends: a new boot ID", HolderReleased, none, deleted, dropped, contest, boot2),
	refused("contest stays: the same boot ID", HolderContested, none, deleted, dropped, boot2, contest2),
	refused("contest stays: an empty boot ID now", HolderContested, none, deleted, dropped, contest, noBoot),
	refused("contest stays: an empty boot ID then", HolderContested, none, deleted, dropped, emptyBoot),
	refused("contest stays: an empty boot ID then and now", HolderContested, none, deleted, dropped, emptyBoot, noBoot),
	refused("contest stays: a reboot before the contest is none since", HolderContested, none, deleted, dropped,
		contest2, boot2, func(h *Holder) { h.BootID = "boot-1" }),
	refused("contest stays: a reboot at some time does not excuse a kubelet that restarted", HolderContested, none, deleted, dropped,
		boot2, readyAfter(time.Hour)),
	gone("contest ends: the kubelet, Ready, listed it and dropped it", HolderReleased, none, deleted, dropped, contest, seen),
	refused("contest stays: listed and not dropped", HolderAlive, none, deleted, contest, seen),
	refused("contest stays: off volumesAttached and still in use", HolderAlive, none, deleted, unlisted, contest, seen),
	refused("contest stays: listed by a kubelet that has restarted since", HolderContested, none, deleted, dropped, contest, seen,
		func(h *Holder) { h.Node.ReadySince = "2025-11-21T10:05:00Z" }),
	refused("contest stays: dropped by a kubelet that is not Ready", HolderContested, none, deleted, dropped, contest, seen, notReady),
	refused("contest stays: never seen Ready, and no Ready condition", HolderContested, none, deleted, dropped, contest,
		func(h *Holder) { h.Node.ReadySince = "" }),
	refused("contest stays: a stale node's silence is not believed either", HolderStale, none, deleted, dropped, contest, stale),
	refused("contest stays: nor that of one not watched", HolderUnwatched, none, deleted, dropped, contest, unwatched),
	gone("contest ends: by fencing", HolderFenced, none, deleted, dropped, contest, stale, with(PowerReading)),
	gone("contest ends: by an operator's release, of a living node too", HolderFenced, none, deleted, dropped, contest, with(VolumeRelease, living)),

	// Fenced.
	gone("fenced: out-of-service taint on a stale node", HolderFenced, none, deleted, unlisted, stale, with(OutOfServiceTaint)),
	gone("fenced: shutdown taint on a stale node", HolderFenced, none, deleted, unlisted, stale, with(CloudShutdownTaint)),
	gone("fenced: operator's confirmation of a stale node", HolderFenced, none, deleted, unlisted, stale, with(OperatorConfirmation)),
	gone("fenced: confirmation of a node without a lease", HolderFenced, none, deleted, unlisted, func(h *Holder) { h.Liveness, h.LeaseRV = Unknown, "" }, with(OperatorConfirmation)),
	gone("fenced: confirmation of a machine whose Node is gone", HolderFenced, none, deleted, nodeGone, with(OperatorConfirmation)),
	gone("fenced: confirmation of a machine that was replaced under its name", HolderFenced, none, deleted, dropped, replaced, with(OperatorConfirmation)),
	gone("fenced: the Node was deleted by the cloud provider", HolderFenced, none, deleted, nodeGone, with(NodeDeleted)),
	gone("fenced: a power reading of off", HolderFenced, none, deleted, unlisted, stale, with(PowerReading)),
	gone("fenced: a power reading needs no watching", HolderFenced, none, deleted, unlisted, unwatched, with(PowerReading)),
	gone("fenced: a storage fence under which the node lives", HolderFenced, none, deleted, unlisted, with(StorageFence)),
	gone("fenced: a storage fence at an address that only the Node says, of a stale node", HolderFenced, none, deleted, unlisted, stale, with(StorageFence, ownWord)),
	refused("void: a storage fence at an address that only the Node says, and the node lives", HolderAlive, none, deleted, unlisted, with(StorageFence, ownWord)),
	refused("void: the same of one that is contested", HolderContested, none, deleted, dropped, contest, with(StorageFence, ownWord)),
	refused("void: the same of one that was not watched yet", HolderUnwatched, none, deleted, unlisted, unwatched, with(StorageFence, ownWord)),
	gone("void: the same hides no operator's release", HolderFenced, none, deleted, dropped, contest, with(StorageFence, ownWord), with(VolumeRelease, living)),
	gone("fenced: a release of the volume on a stale node, which lists it for ever", HolderFenced, none, deleted, stale, with(VolumeRelease)),
	refused("fenced, but the volume is in volumesAttached (claim)", HolderListed, none, deleted, stale, with(OutOfServiceTaint)),
	refused("fenced, but the volume is in volumesAttached (power)", HolderListed, none, deleted, stale, with(PowerReading)),
	refused("fenced, but the volume is in volumesAttached (storage)", HolderListed, none, deleted, with(StorageFence)),

	// Evidence that does not count.
	refused("void: the lease changed since", EvidenceVoid, none, deleted, unlisted, stale, with(OutOfServiceTaint, func(e *Evidence) { e.LeaseRV = "99" })),
	refused("void: there was no lease then", EvidenceVoid, none, deleted, unlisted, stale, with(OutOfServiceTaint, func(e *Evidence) { e.LeaseRV = "" })),
	refused("void: the lease of a deleted Node changed since", EvidenceVoid, none, deleted, nodeGone, func(h *Holder) { h.LeaseRV = "101" },
		with(OperatorConfirmation, func(e *Evidence) { e.LeaseRV = "100" })),
	refused("void: a reading from before the Node and its lease went", EvidenceVoid, none, deleted, nodeGone,
		with(PowerReading, func(e *Evidence) { e.LeaseRV = "100" })),
	refused("void: confirmed when there was no lease, and now there is one", EvidenceVoid, none, deleted, nodeGone, func(h *Holder) { h.LeaseRV = "101" },
		with(OperatorConfirmation, func(e *Evidence) { e.LeaseRV = "" })),
	refused("void: the lease went with the Node, and may have changed first", EvidenceVoid, none, deleted, nodeGone,
		with(OperatorConfirmation, func(e *Evidence) { e.LeaseRV = "100" })),
	refused("void: the same, and the name has another machine now", EvidenceVoid, none, deleted, dropped, replaced,
		with(OperatorConfirmation, func(e *Evidence) { e.LeaseRV = "90" })),
	gone("not void: confirmed when there was no lease, and the name has another machine now", HolderFenced, none, deleted, dropped, replaced,
		with(OperatorConfirmation, func(e *Evidence) { e.LeaseRV = "" })),
	gone("not void: confirmed of the machine whose Node another one took over", HolderFenced, none, deleted, dropped, tookOver,
		with(OperatorConfirmation, func(e *Evidence) { e.BootID, e.LeaseRV = "boot-1", "" })),
	refused("void: said of the machine that took over its Node", EvidenceVoid, none, deleted, dropped, tookOver, with(PowerReading)),
	refused("void: the node booted since", EvidenceVoid, none, deleted, unlisted, stale, with(PowerReading, func(e *Evidence) { e.BootID = "boot-0" })),
	refused("void: no boot ID then", EvidenceVoid, none, deleted, unlisted, stale, with(PowerReading, func(e *Evidence) { e.BootID = "" })),
	refused("void: no boot ID now", EvidenceVoid, none, deleted, unlisted, stale, with(PowerReading), noBoot),
	refused("void: an empty boot ID never equals another", EvidenceVoid, none, deleted, unlisted, stale, noBoot, with(PowerReading)),
	refused("void: about another UID", EvidenceVoid, none, deleted, unlisted, stale, with(PowerReading, func(e *Evidence) { e.NodeUID = "uid-9" })),
	refused("void: about another node ID", EvidenceVoid, none, deleted, unlisted, stale, with(PowerReading, func(e *Evidence) { e.NodeID = "id-9" })),
	refused("void: a storage fence of another machine", EvidenceVoid, none, deleted, unlisted, stale, with(StorageFence, func(e *Evidence) { e.NodeUID = "uid-9" })),
	refused("void: its source says so", EvidenceVoid, none, deleted, unlisted, stale, with(StorageFence, func(e *Evidence) { e.Void = VoidOurs })),
	refused("void: bound to no machine at all", EvidenceVoid, none, deleted, nodeGone, func(h *Holder) { h.NodeUID = "" },
		with(StorageFence, func(e *Evidence) { e.NodeID = "" })),
	refused("void: of a kind that this version does not know", EvidenceVoid, none, deleted, unlisted, stale, with("QuantumFence")),
	refused("void: of no kind", EvidenceVoid, none, deleted, unlisted, stale, with("")),
	refused("void evidence of a living node: it is alive, that is all", HolderAlive, none, deleted, with(OutOfServiceTaint, func(e *Evidence) { e.LeaseRV = "99" })),
	refused("void evidence of a node not watched", HolderUnwatched, none, deleted, unwatched, with(OutOfServiceTaint, func(e *Evidence) { e.LeaseRV = "99" })),

	// Contradictions.
	refused("life vetoes a taint", EvidenceContradicted, none, deleted, unlisted, with(OutOfServiceTaint)),
	refused("life vetoes a confirmation", EvidenceContradicted, none, deleted, unlisted, with(OperatorConfirmation)),
	refused("life vetoes a power reading", EvidenceContradicted, none, deleted, unlisted, with(PowerReading)),
	gone("read as off since its last renewal, and something is missing", HolderFenced, none, deleted, unlisted, with(PowerReading, missed)),
	gone("the same of one that is not watched yet", HolderFenced, none, deleted, unlisted, unwatched, with(PowerReading, missed)),
	refused("the same, renewed since", HolderAlive, none, deleted, with(PowerReading, missed, func(e *Evidence) { e.LeaseRV = "99" })),
	refused("the same, booted since", HolderAlive, none, deleted, with(PowerReading, missed, func(e *Evidence) { e.BootID = "boot-0" })),
	refused("the same, and another agent reads on", EvidenceContradicted, none, deleted, unlisted, with(PowerReading, missed), with(PowerReading, readsOn)),
	refused("of a claim nothing can be missing: life vetoes it", EvidenceContradicted, none, deleted, unlisted, with(OperatorConfirmation, missed)),
	refused("an agent that reads on vetoes an operator", EvidenceContradicted, none, deleted, unlisted, stale, with(OperatorConfirmation), with(PowerReading, readsOn)),
	refused("the same of a machine whose Node is gone", EvidenceContradicted, none, deleted, nodeGone, with(PowerReading, readsOn), with(NodeDeleted)),
	refused("two agents that read differently", EvidenceContradicted, none, deleted, unlisted, stale, with(PowerReading), with(PowerReading, readsOn)),
	refused("a contradiction is not overruled by a driver that revokes", EvidenceContradicted, revokes, deleted, unlisted, stale, with(OperatorConfirmation), with(PowerReading, readsOn)),
	refused("nor by unpublish.unfenced", EvidenceContradicted, forward, deleted, unlisted, stale, with(OperatorConfirmation), with(PowerReading, readsOn)),
	refused("on alone is no fence", HolderStale, none, deleted, stale, with(PowerReading, readsOn)),
	refused("a release of a volume that the living node lists", HolderAlive, none, deleted, with(VolumeRelease, living)),
	refused("the same, in use only", HolderAlive, none, deleted, unlisted, with(VolumeRelease, living)),
	refused("the same, attached only", EvidenceContradicted, none, noVA, listedAttached, with(VolumeRelease, living)),
	refused("the same, of a node not watched", HolderUnwatched, none, deleted, unwatched, with(VolumeRelease, living)),
	refused("the same, of a node that fell silent since", EvidenceVoid, none, deleted, unlisted, stale, with(VolumeRelease, living)),
	gone("a release of a living node that does not list it, whatever its lease and its power say", HolderFenced, none, deleted, dropped, contest, stale,
		with(VolumeRelease, living, func(e *Evidence) { e.LeaseRV = "99" }), with(PowerReading, readsOn)),
	refused("the same, booted since", EvidenceVoid, none, deleted, dropped, contest2, boot2, stale, with(VolumeRelease, living, func(e *Evidence) { e.BootID = "boot-1" })),
	refused("the same, its Node gone", EvidenceVoid, none, deleted, nodeGone, with(VolumeRelease, living)),
	refused("the same, its VolumeAttachment not being deleted", HolderContested, none, dropped, contest, with(VolumeRelease, living)),
	refused("the same, another VolumeAttachment", HolderContested, none, deleted, dropped, contest, with(VolumeRelease, living, func(e *Evidence) { e.Attachment = "va-0" })),
	gone("the same, its VolumeAttachment gone since", HolderFenced, none, dropped, contest, deleted, with(VolumeRelease, living), noVA),
	refused("life vetoes a release of a silent node", EvidenceContradicted, none, deleted, unlisted, with(VolumeRelease)),
	refused("a release of a silent node: the lease changed since", EvidenceVoid, none, deleted, unlisted, stale, with(VolumeRelease, func(e *Evidence) { e.LeaseRV = "99" })),
	refused("the same: it booted since", EvidenceVoid, none, deleted, unlisted, stale, with(VolumeRelease, func(e *Evidence) { e.BootID = "boot-0" })),
	refused("the same, not watched", HolderUnwatched, none, deleted, unlisted, unwatched, with(VolumeRelease)),
	refused("an agent that reads on vetoes a release", EvidenceContradicted, none, deleted, stale, with(VolumeRelease), with(PowerReading, readsOn)),
	refused("the same, when nothing was known of the machine, and a Node has its name", EvidenceVoid, none, deleted, dropped, sourceless, func(h *Holder) { h.NodeUID, h.BootID = "", "" },
		with(VolumeRelease, func(e *Evidence) { e.BootID, e.LeaseRV = "", "" })),
	refused("the same, when it had no Node, and one has its node ID since", EvidenceVoid, none, deleted, dropped, replaced, func(h *Holder) { h.Node.NodeID = h.NodeID },
		with(VolumeRelease, func(e *Evidence) { e.BootID, e.LeaseRV = "boot-1", "" })),
	refused("whoever has its node ID now: that does not say that it is the same machine", EvidenceContradicted, none, deleted, nodeGone, func(h *Holder) { h.Heir = "n9" }, with(VolumeRelease), with(PowerReading, readsOn)),
	refused("an agent that reads on vetoes a release of a machine whose Node is gone", EvidenceContradicted, none, deleted, nodeGone, with(VolumeRelease), with(PowerReading, readsOn)),
	gone("a release of a machine whose Node is gone", HolderFenced, none, deleted, nodeGone, with(VolumeRelease)),
	refused("the same: its lease was there then, and changed", EvidenceVoid, none, deleted, nodeGone, with(VolumeRelease, func(e *Evidence) { e.LeaseRV = "90" })),
	gone("on does not contradict a storage fence", HolderFenced, none, deleted, unlisted, with(StorageFence), with(PowerReading, readsOn)),
	refused("a claim about a node not watched has to wait", HolderUnwatched, none, deleted, unlisted, unwatched, with(OperatorConfirmation)),
	gone("a measurement outweighs a claim, whichever comes first", HolderFenced, none, deleted, unlisted, unwatched, with(OutOfServiceTaint), with(PowerReading)),
	gone("a storage fence outweighs a claim that life vetoes", HolderFenced, none, deleted, unlisted, with(OutOfServiceTaint), with(StorageFence)),
	gone("a storage fence outweighs a power reading that life vetoes", HolderFenced, none, deleted, unlisted, with(PowerReading), with(StorageFence)),
	refused("a release of the volume is vetoed as the claim beside it", EvidenceContradicted, none, deleted, stale,
		with(OutOfServiceTaint), with(PowerReading, readsOn), with(VolumeRelease)),

	// Revoked.
	gone("revoked: a stale node", HolderRevoked, revokes, deleted, stale),
	gone("revoked: no lease", HolderRevoked, revokes, deleted, unknown),
	gone("revoked: no Node", HolderRevoked, revokes, deleted, nodeGone),
	gone("revoked: another machine of that name", HolderRevoked, revokes, deleted, dropped, replaced),
	gone("revoked: void evidence makes it no worse", HolderRevoked, revokes, deleted, unlisted, stale, with(OutOfServiceTaint, func(e *Evidence) { e.LeaseRV = "99" })),
	gone("revoked: nor does a fence that waits for volumesAttached", HolderRevoked, revokes, deleted, stale, with(OutOfServiceTaint)),
	refused("not revoked: alive", HolderAlive, revokes, deleted),
	refused("not revoked: not watched", HolderUnwatched, revokes, deleted, unwatched),
	refused("not revoked: another machine of that name, not watched", HolderUnwatched, revokes, deleted, dropped, replaced, unwatched),
	refused("not revoked: alive and contested", HolderContested, revokes, deleted, dropped, contest),
	refused("not revoked: a living storage-fenced node still listed", HolderListed, revokes, deleted, with(StorageFence)),

	// A Node that was deleted and registered again under the same boot is the
	// same machine.
	refused("registered again under the same boot: alive, in use", HolderAlive, revokes, deleted, func(h *Holder) { h.Node.UID = "uid-9" }),
	refused("registered again under the same boot: says not in use", HolderContested, revokes, deleted, dropped, sourceless, func(h *Holder) { h.Node.UID = "uid-9" }),
	refused("registered again under the same boot: a claim about the old UID", HolderAlive, none, deleted, unlisted, func(h *Holder) { h.Node.UID = "uid-9" }, with(OperatorConfirmation)),
	refused("registered again, then stale: a claim about the old UID", EvidenceVoid, none, deleted, unlisted, stale, func(h *Holder) { h.Node.UID = "uid-9" }, with(NodeDeleted)),
	refused("registered again, then stale: a claim about the new UID", EvidenceVoid, none, deleted, unlisted, stale, func(h *Holder) { h.Node.UID = "uid-9" },
		with(OperatorConfirmation, func(e *Evidence) { e.NodeUID = "uid-9" })),
	gone("registered again, then stale: a release of the volume", HolderFenced, none, deleted, unlisted, stale, func(h *Holder) { h.Node.UID = "uid-9" }, with(VolumeRelease)),
	refused("registered again: a release of a volume that it lists", HolderAlive, none, deleted, func(h *Holder) { h.Node.UID = "uid-9" }, with(VolumeRelease, living)),
	gone("registered again: a release of the volume that it does not list", HolderFenced, none, deleted, dropped, func(h *Holder) { h.Node.UID = "uid-9" }, with(VolumeRelease, living)),
	refused("registered again, then stale: an agent that reads on vetoes the release", EvidenceContradicted, none, deleted, unlisted, stale, func(h *Holder) { h.Node.UID = "uid-9" },
		with(VolumeRelease), with(PowerReading, readsOn)),
	refused("not registered again: two empty boot IDs are not the same", HolderUnknown, none, deleted, dropped, replaced,
		func(h *Holder) { h.BootID, h.Node.BootID = "", "" }),
	// A Node with the same node ID that lists the volume was published to
	// while the ledger was not kept.
	refused("same node ID, another machine, which uses it", HolderAlive, revokes, deleted, func(h *Holder) { h.Node.UID, h.Node.BootID = "uid-9", "boot-9" }),
	refused("the same, with a claim about the old machine", HolderAlive, none, deleted, func(h *Holder) { h.Node.UID, h.Node.BootID = "uid-9", "boot-9" }, with(OperatorConfirmation)),
	refused("the same, when the old machine had released it", HolderAlive, none, state(Released), deleted, func(h *Holder) { h.Node.UID, h.Node.BootID = "uid-9", "boot-9" }),
	refused("the same, when it was taken over from the old machine", HolderAlive, none, state(TakenOver), deleted, func(h *Holder) { h.Node.UID, h.Node.BootID = "uid-9", "boot-9" }),

	// Why not.
	refused("alive and in use", HolderAlive, none, deleted),
	refused("stale, nothing proves it fenced", HolderStale, none, deleted, stale),
	refused("unknown, nothing proves it fenced", HolderUnknown, none, deleted, nodeGone),
	refused("not watched", HolderUnwatched, none, deleted, unwatched),
	refused("held is as good as publishing", HolderAlive, none, state(Held), deleted),
	refused("not in the ledger is as good as in it", HolderAlive, none, state(NotInLedger), deleted),

	// Wanted: the VolumeAttachment is not being deleted.
	refused("wanted: attached on a living node whose kubelet does not list it yet", HolderWanted, none, dropped),
	refused("wanted: published a moment ago, the attacher has not said attached yet", HolderWanted, none, dropped, func(h *Holder) { h.Attachment.Attached = false }),
	refused("wanted: a node not watched may live", HolderWanted, none, dropped, unwatched),
	gone("not wanted: never published, and not attached", HolderReleased, none, state(NotInLedger), dropped, func(h *Holder) { h.Attachment.Attached = false }),

	// takenOver.
	{"taken over: holds nothing any more", none, []change{state(TakenOver), deleted, unlisted, stale}, NoOtherHolder, AlreadyTaken},
	{"taken over: a dead kubelet's volumesInUse is frozen", none, []change{state(TakenOver), deleted, unlisted}, NoOtherHolder, AlreadyTaken},
	{"taken over: its Node is gone", none, []change{state(TakenOver), deleted, nodeGone}, NoOtherHolder, AlreadyTaken},
	{"taken over: another machine has its name, and another ID", none, []change{state(TakenOver), deleted, replaced}, NoOtherHolder, AlreadyTaken},
	{"taken over: the old VolumeAttachment may still be there", none, []change{state(TakenOver), unlisted, stale}, NoOtherHolder, AlreadyTaken},
	refused("taken over, and attached there again", HolderAlive, none, state(TakenOver), deleted),
	{"taken over without proof: holds nothing while the node is silent", forward, []change{unproven, deleted, unlisted, stale}, NoOtherHolder, AlreadyTaken},
	{"taken over without proof: nor once its Node is gone", forward, []change{unproven, deleted, nodeGone}, NoOtherHolder, AlreadyTaken},
	{"taken over without proof: nor once the node is back and has unmounted", forward, []change{unproven, deleted, dropped}, NoOtherHolder, AlreadyTaken},
	refused("taken over without proof: the node is back and attached", HolderAlive, forward, unproven, deleted),
	refused("taken over without proof: the node is back and uses it", HolderAlive, forward, unproven, deleted, unlisted),
	refused("taken over without proof: it uses it, and whether it is back is not known yet", HolderUnwatched, forward, unproven, deleted, unlisted, unwatched),
	refused("taken over, attached there again, and stale", HolderStale, none, state(TakenOver), deleted, stale),

	// Where the two calls differ.
	{"unfenced Forward: stale", forward, []change{deleted, stale}, HolderStale, UnfencedForward},
	{"unfenced Forward: unknown", forward, []change{deleted, nodeGone}, HolderUnknown, UnfencedForward},
	{"unfenced Forward: void evidence", forward, []change{deleted, unlisted, stale, with(PowerReading, func(e *Evidence) { e.BootID = "boot-0" })}, EvidenceVoid, UnfencedForward},
	{"unfenced Forward: a fence that waits for volumesAttached", forward, []change{deleted, stale, with(PowerReading)}, HolderListed, UnfencedForward},
	{"unfenced Forward: stale and contested", forward, []change{deleted, dropped, contest, stale}, HolderStale, UnfencedForward},
	refused("unfenced Forward is not about a living node", HolderAlive, forward, deleted),
	refused("unfenced Forward is not about a contested node", HolderContested, forward, deleted, dropped, contest),
	refused("unfenced Forward is not about a node not watched", HolderUnwatched, forward, deleted, unwatched),
	refused("unfenced Forward is not about a living node under a storage fence", HolderListed, forward, deleted, with(StorageFence)),
	{"a dead node's VolumeAttachment does not hold up a takeover, only a late unpublish", none,
		[]change{stale, unlisted, with(OutOfServiceTaint)}, HolderFenced, HolderWanted},
	{"the same where the driver revokes", revokes, []change{stale}, HolderRevoked, HolderWanted},
	{"a silent node that does not list it may mount by its VolumeAttachment once it is heard again", none, []change{dropped, stale}, HolderStale, HolderWanted},
	{"the same, published a moment ago", none, []change{dropped, stale, func(h *Holder) { h.Attachment.Attached = false }}, HolderStale, HolderWanted},
	{"the same, without a lease", none, []change{dropped, unknown}, HolderUnknown, HolderWanted},
	{"the same, proven off", none, []change{dropped, stale, with(PowerReading)}, HolderFenced, HolderWanted},
	{"the same where the driver revokes access", revokes, []change{dropped, stale}, HolderRevoked, HolderWanted},
	refused("a release of a silent node, to which Kubernetes keeps it attached", HolderListed, none, stale, with(VolumeRelease)),
}

// actions that a reason stands for, where it is not Refuse.
var publishActions = map[Reason]Action{NoOtherHolder: Allow, HolderReleased: Allow, HolderFenced: Allow, HolderRevoked: Allow}
var unpublishActions = map[Reason]Action{NotAHolder: Allow, HolderReleased: Allow, HolderFenced: Allow, HolderRevoked: Allow,
	UnfencedForward: Allow, AlreadyTaken: Answer}

func TestPublishToAnotherNode(t *testing.T) {
	for _, c := range table {
		t.Run(c.rule, func(t *testing.T) {
			s := c.snapshot()
			v := JudgePublish(s, newNode)
			check(t, v, publishActions[c.publish], c.publish)
			checkBlocking(t, v, oldNode)
			if v.Contest || v.Subject != nil {
				t.Errorf("a publish contests nobody and has no subject: %+v", v)
			}
			wantUnpublish := v.Action == Allow && c.publish != NoOtherHolder
			if got := len(v.Unpublish) == 1; got != wantUnpublish {
				t.Fatalf("unpublish list %v, want the holder in it: %v", v.Unpublish, wantUnpublish)
			}
			if wantUnpublish && (v.Unpublish[0].Holder != &s.Holders[0] || v.Unpublish[0].Reason != c.publish) {
				t.Errorf("unpublish list is about %+v", v.Unpublish[0])
			}
		})
	}
}

func TestUnpublish(t *testing.T) {
	for _, c := range table {
		t.Run(c.rule, func(t *testing.T) {
			s := c.snapshot()
			v := JudgeUnpublish(s, oldNode)
			check(t, v, unpublishActions[c.unpublish], c.unpublish)
			checkBlocking(t, v, oldNode)
			if len(v.Unpublish) != 0 {
				t.Errorf("an unpublish takes over nobody: %+v", v.Unpublish)
			}
			if v.Action != Refuse && (v.Subject == nil || v.Subject.Holder != &s.Holders[0] || v.Subject.Reason != c.unpublish) {
				t.Errorf("subject is %+v", v.Subject)
			}
			// A refused unpublish contests; one that is late does not: the
			// volume is to stay there. Nor does one for want of an answer.
			n := s.Holders[0].Node
			if want := v.Action == Refuse && c.unpublish != HolderWanted && (n == nil || n.Memory != MemoryUnsaid); v.Contest != want {
				t.Errorf("Contest is %v, want %v", v.Contest, want)
			}
		})
	}
}

func (c expectation) snapshot() Snapshot {
	s := base()
	s.Policy = c.policy
	for _, change := range c.changes {
		change(&s.Holders[0])
	}
	return s
}

func check(t *testing.T, v Verdict, action Action, reason Reason) {
	t.Helper()
	if v.Action != action || v.Reason != reason {
		t.Errorf("got %v for %q, want %v for %q", v.Action, v.Reason, action, reason)
	}
}

// checkBlocking: a refusal names who blocks and why; an allowed call has nobody.
func checkBlocking(t *testing.T, v Verdict, nodeID string) {
	t.Helper()
	blocks := v.Action == Refuse || v.Action == Wait
	if blocks != (v.Blocking != nil) {
		t.Fatalf("%v with blocking holder %+v", v.Action, v.Blocking)
	}
	if blocks && (v.Blocking.Holder.NodeID != nodeID || v.Blocking.Reason != v.Reason) {
		t.Errorf("blocking is %s for %q, want %s for %q", v.Blocking.Holder.NodeID, v.Blocking.Reason, nodeID, v.Reason)
	}
}

func TestPublishNeverHeldNeedsAllSourcesEmpty(t *testing.T) {
	s := base()
	s.Holders = nil
	check(t, JudgePublish(s, newNode), Allow, NoOtherHolder)
	for _, source := range []Source{FromLedger, FromAttachment, FromVolumesInUse, FromVolumesAttached, FromDriver} {
		s.Holders = []Holder{{NodeID: oldNode, Sources: []Source{source}}}
		v := JudgePublish(s, newNode)
		check(t, v, Refuse, HolderUnknown)
		checkBlocking(t, v, oldNode)
	}
}

func TestPublishToTheHolderItself(t *testing.T) {
	for _, state := range []State{NotInLedger, Publishing, Held, TakenOver} {
		s := base()
		s.Holders[0].State = state
		asks := s.Holders[0]
		s.Target = &asks
		v := JudgePublish(s, oldNode)
		check(t, v, Allow, NoOtherHolder)
		if len(v.Unpublish) != 0 {
			t.Errorf("state %q: the node that asks would be unpublished: %+v", state, v.Unpublish)
		}
	}
}

// To the driver both are one node; that the one that asks lives says nothing of
// the one that holds.
func TestPublishToAnotherMachineUnderTheHoldersIDNeedsProofOfTheHolder(t *testing.T) {
	another := func(p Policy, changes ...change) Verdict {
		s := base()
		s.Policy = p
		replaced(&s.Holders[0])
		s.Holders[0].SystemUUID, s.Target.SystemUUID = "system-1", "system-9"
		s.Target.NodeID, s.Target.NodeName = oldNode, "n1"
		for _, c := range changes {
			c(&s.Holders[0])
		}
		return JudgePublish(s, oldNode)
	}
	for _, p := range []Policy{none, revokes} { // nothing is unpublished, so nothing revoked
		v := another(p)
		check(t, v, Refuse, HolderUnknown)
		checkBlocking(t, v, oldNode)
	}
	check(t, another(none, func(h *Holder) { h.SystemUUID = "" }), Refuse, HolderUnknown)   // it may be another
	check(t, another(none, func(h *Holder) { h.BootID = "boot-2" }), Refuse, HolderUnknown) // somebody writes another's boot ID
	for what, c := range map[string]change{
		"it was released":         state(Released),
		"it was taken over":       state(TakenOver),
		"an operator says it":     with(OperatorConfirmation),
		"its Node is the asker's": func(h *Holder) { h.NodeUID, h.SystemUUID = "uid-2", "" },
		"it is the same machine":  func(h *Holder) { h.SystemUUID = "SYSTEM-9" },
		"it is the same boot":     func(h *Holder) { h.BootID, h.SystemUUID = "boot-2", "" },
		"nobody knows which":      func(h *Holder) { h.NodeUID, h.SystemUUID = "", "" },
		// What is listed is what the machine that asks wants.
		"confirmed, and the asker lists it": func(h *Holder) {
			with(OperatorConfirmation)(h)
			h.NodeUID, h.Node.UID = "uid-1", "uid-2"
			h.Sources = append(h.Sources, FromVolumesInUse)
		},
	} {
		want := Allow
		if what == "it was released" {
			want = Wait // for the unpublish that is under way
		}
		if v := another(none, c); v.Action != want || len(v.Unpublish) != 0 {
			t.Errorf("%s: %s for %s, unpublishes %+v", what, v.Action, v.Reason, v.Unpublish)
		}
	}
}

// What is being deleted is what is left of the node's old name. The machine has
// the volume, and keeps it, under its present one.
func TestUnpublishForANamesakeIsAnsweredWhileTheNodeKeepsTheVolume(t *testing.T) {
	former := func(changes ...change) Verdict {
		s := base()
		s.Holders[0].Former = "n0"
		for _, c := range changes {
			c(&s.Holders[0])
		}
		return JudgeUnpublish(s, oldNode)
	}
	publishing := func(h *Holder) { h.Attachment.Attached = false }
	for what, c := range map[string]change{"attached": func(*Holder) {}, "being published": publishing, "silent": stale, "fenced": with(PowerReading), "unmounted": dropped} {
		if v := former(c); v.Action != Answer || v.Reason != HolderRenamed || v.Contest {
			t.Errorf("%s: %s for %s", what, v.Action, v.Reason)
		}
	}
	check(t, former(deleted), Refuse, HolderAlive)
	check(t, former(noVA), Refuse, HolderAlive)
	check(t, former(replaced, sourceless), Refuse, HolderUnknown)
	check(t, former(publishing, state(Held)), Refuse, HolderAlive)
	check(t, former(func(h *Holder) { h.Former = "" }), Refuse, HolderAlive)
	check(t, former(deleted, dropped), Allow, HolderReleased)
	check(t, former(state(Leaving)), Refuse, HolderAlive)
	s := base()
	s.Holders[0].Former = "n0"
	check(t, JudgeHolder(s, &s.Holders[0]), Refuse, HolderAlive) // asked of all nodes
}

func TestPublishToALeavingNodeIsAborted(t *testing.T) {
	for _, state := range []State{Leaving, Released} {
		s := base()
		s.Holders[0].State = state
		dropped(&s.Holders[0])
		v := JudgePublish(s, oldNode)
		check(t, v, Wait, TargetLeaving)
		checkBlocking(t, v, oldNode)
	}
}

// Its call was sent before the VolumeAttachment was deleted, or by an attacher
// that does not lead any more; nobody would ever unpublish what it publishes.
func TestPublishForAVolumeAttachmentThatIsBeingDeletedIsAborted(t *testing.T) {
	s := base()
	s.Holders = nil
	s.Target.Attachment = &Attachment{Name: "csi-2"}
	check(t, JudgePublish(s, newNode), Allow, NoOtherHolder)
	s.Target.Attachment.DeletedAt = deletedAt
	v := JudgePublish(s, newNode)
	check(t, v, Wait, TargetLeaving)
	checkBlocking(t, v, newNode)
	// Of a fenced node that is said first: no wait ends it.
	stale(s.Target)
	with(PowerReading)(s.Target)
	check(t, JudgePublish(s, newNode), Refuse, TargetFenced)
}

// To the driver a renamed node is the same one: its unpublish under the old name
// would take the volume from it again.
func TestPublishToARenamedNodeWaitsForTheUnpublishOfItsOldNameOrSaysWhatStopsIt(t *testing.T) {
	s := base()
	nodeGone(&s.Holders[0])
	s.Holders[0].SystemUUID, s.Target.SystemUUID = "system-1", "system-1"
	s.Target.NodeID, s.Target.Attachment = oldNode, &Attachment{Name: "csi-2"}
	check(t, JudgePublish(s, oldNode), Allow, NoOtherHolder) // nothing takes it away
	deleted(&s.Holders[0])
	v := JudgePublish(s, oldNode)
	check(t, v, Refuse, HolderUnknown)
	checkBlocking(t, v, oldNode)
	if v.Contest {
		t.Error("a publish contests the holder")
	}
	with(VolumeRelease)(&s.Holders[0])
	check(t, JudgePublish(s, oldNode), Wait, TargetLeaving)
}

func TestPublishToAnotherNodeThanTheLeavingOneIsJudged(t *testing.T) {
	s := base()
	s.Holders[0].State = Leaving
	deleted(&s.Holders[0])
	check(t, JudgePublish(s, newNode), Refuse, HolderAlive)
	dropped(&s.Holders[0])
	check(t, JudgePublish(s, newNode), Allow, HolderReleased)
}

// The attacher's comparison with ListVolumes publishes to the old node again.
func TestPublishToAFencedNodeIsRefused(t *testing.T) {
	cases := []struct {
		rule    string
		changes []change
		fenced  bool
	}{
		{"power reading", []change{stale, with(PowerReading)}, true},
		{"power reading, volume listed", []change{stale, with(PowerReading), func(h *Holder) { h.Node.ListedAttached = true }}, true},
		{"power reading, Node gone", []change{nodeGone, with(PowerReading)}, true},
		{"storage fence not yet lifted, node alive", []change{with(StorageFence)}, true},
		{"storage fence at an address that only the Node says, node alive", []change{with(StorageFence, ownWord)}, true},
		{"taint on a stale node", []change{stale, with(OutOfServiceTaint)}, true},
		{"a release of the volume beside a taint hides it not", []change{stale, with(VolumeRelease), with(OutOfServiceTaint)}, true},
		{"a release of the volume is no fence of the node", []change{with(VolumeRelease)}, false},
		{"power reading voided by a boot", []change{with(PowerReading, func(e *Evidence) { e.BootID = "boot-0" })}, false},
		{"power reading, but it lives", []change{with(PowerReading)}, false},
		{"reads on", []change{stale, with(PowerReading, readsOn)}, false},
		{"taint on a living node", []change{with(OutOfServiceTaint)}, false},
		{"no evidence", []change{stale}, false},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			s := base()
			s.Holders = nil
			for _, change := range c.changes {
				change(s.Target)
			}
			v := JudgePublish(s, newNode)
			if !c.fenced {
				check(t, v, Allow, NoOtherHolder)
				return
			}
			check(t, v, Refuse, TargetFenced)
			checkBlocking(t, v, newNode)
		})
	}
}

func TestPublishUnpublishesAllOthersInOrderOrNone(t *testing.T) {
	holder := func(id string, changes ...change) Holder {
		h := base().Holders[0]
		h.NodeID, h.NodeName = id, id
		deleted(&h)
		for _, c := range changes {
			c(&h)
		}
		return h
	}
	s := base()
	s.Policy = revokes
	s.Holders = []Holder{holder("a", dropped), holder("b", state(TakenOver), unlisted), holder("c", stale),
		holder("d", unlisted, stale, with(PowerReading)),
		holder(newNode, func(h *Holder) { h.NodeName, h.NodeUID = s.Target.NodeName, s.Target.NodeUID })}
	v := JudgePublish(s, newNode)
	check(t, v, Allow, HolderFenced)
	var got []string
	for _, st := range v.Unpublish {
		got = append(got, st.Holder.NodeID+" "+string(st.Reason))
	}
	if want := []string{"a HolderReleased", "c HolderRevoked", "d HolderFenced"}; !reflect.DeepEqual(got, want) {
		t.Errorf("unpublish list is %q, want %q", got, want)
	}

	for at := range s.Holders {
		one := s
		one.Holders = append(append(append([]Holder{}, s.Holders[:at]...), holder("x", stale)), s.Holders[at:]...)
		one.Policy = none
		one.Holders = remove(one.Holders, "c")
		v := JudgePublish(one, newNode)
		check(t, v, Refuse, HolderStale)
		checkBlocking(t, v, "x")
		if len(v.Unpublish) != 0 {
			t.Errorf("a refused publish would unpublish %v", v.Unpublish)
		}
	}
}

// The ledger's is the first. To the driver they are one, so one unpublish is for both.
func TestHoldersOfOneNodeIDAreJudgedEachAndUnpublishedOnce(t *testing.T) {
	two := func(first, other change) Snapshot {
		s := base()
		besides := s.Holders[0]
		node := *besides.Node
		node.UID = "uid-3"
		besides.NodeName, besides.NodeUID, besides.State, besides.Token, besides.Attachment, besides.Node = "n3", "uid-3", NotInLedger, "", nil, &node
		besides.Sources = []Source{FromVolumesInUse}
		s.Holders = append(s.Holders, besides)
		deleted(&s.Holders[0])
		first(&s.Holders[0])
		other(&s.Holders[1])
		return s
	}
	off := func(h *Holder) { stale(h); unlisted(h); with(PowerReading)(h) }
	for _, c := range []struct {
		first, other change
		blocks       string
	}{{stale, off, "n1"}, {off, stale, "n3"}, {stale, stale, "n1"}} {
		s := two(c.first, c.other)
		for call, v := range map[string]Verdict{"publish": JudgePublish(s, newNode), "unpublish": JudgeUnpublish(s, oldNode)} {
			check(t, v, Refuse, HolderStale)
			if v.Blocking.Holder.NodeName != c.blocks || len(v.Unpublish) != 0 {
				t.Errorf("%s: %s blocks, want %s; unpublishes %v", call, v.Blocking.Holder.NodeName, c.blocks, v.Unpublish)
			}
			if contests := call == "unpublish" && c.blocks == "n1"; v.Contest != contests {
				t.Errorf("%s, %s blocks: contests the ledger's entry: %t, want %t", call, c.blocks, v.Contest, contests)
			}
		}
	}
	s := two(off, off)
	v := JudgePublish(s, newNode)
	check(t, v, Allow, HolderFenced)
	if len(v.Unpublish) != 1 || v.Unpublish[0].Holder.NodeName != "n1" {
		t.Errorf("unpublishes %v, want the ledger's alone", v.Unpublish)
	}
	v = JudgeUnpublish(s, oldNode)
	check(t, v, Allow, HolderFenced)
	if v.Subject.Holder.NodeName != "n1" {
		t.Errorf("the subject is %s, want the ledger's", v.Subject.Holder.NodeName)
	}
}

func remove(holders []Holder, id string) []Holder {
	var out []Holder
	for _, h := range holders {
		if h.NodeID != id {
			out = append(out, h)
		}
	}
	return out
}

// An empty node_id means all nodes.
func TestHolderWithoutNodeIDIsNeverUnpublished(t *testing.T) {
	for _, c := range table {
		s := c.snapshot()
		s.Holders[0].NodeID = ""
		for i := range s.Holders[0].Evidence {
			s.Holders[0].Evidence[i].NodeID = ""
		}
		v := JudgePublish(s, newNode)
		if len(v.Unpublish) != 0 {
			t.Errorf("%s: an empty node ID would be unpublished: %+v", c.rule, v.Unpublish[0])
		}
		allowed := c.publish == HolderReleased || c.publish == NoOtherHolder
		if (v.Action == Allow) != allowed {
			t.Errorf("%s: %v for %q", c.rule, v.Action, v.Reason)
		}
	}
}

func TestUnpublishOfAHolderInNoSourceIsForwarded(t *testing.T) {
	v := JudgeUnpublish(base(), newNode)
	check(t, v, Allow, NotAHolder)
	if v.Subject != nil || v.Blocking != nil || v.Contest {
		t.Errorf("it is about nobody: %+v", v)
	}
}

func TestOneHolderDoesNotSpeakForAnother(t *testing.T) {
	s := base()
	other := base().Holders[0]
	other.NodeID, other.NodeName = "id-3", "n3"
	s.Holders = append(s.Holders, other)
	for i := range s.Holders {
		deleted(&s.Holders[i])
	}
	dropped(&s.Holders[0])
	check(t, JudgeUnpublish(s, oldNode), Allow, HolderReleased)
	check(t, JudgeUnpublish(s, "id-3"), Refuse, HolderAlive)
}

// JudgePublish and JudgeUnpublish are functions of the snapshot alone, and
// leave it as it was.
func TestJudgingDoesNotChangeTheSnapshot(t *testing.T) {
	for _, c := range table {
		s, want := c.snapshot(), c.snapshot()
		first := JudgePublish(s, newNode)
		JudgeUnpublish(s, oldNode)
		if again := JudgePublish(s, newNode); !reflect.DeepEqual(first, again) {
			t.Errorf("%s: the same snapshot is judged twice: %+v, %+v", c.rule, first, again)
		}
		if !reflect.DeepEqual(s, want) {
			t.Errorf("%s: the snapshot was changed", c.rule)
		}
	}
}

func TestZeroVerdictRefuses(t *testing.T) {
	var v Verdict
	if v.Action != Refuse || v.Reason != Undecided {
		t.Errorf("the zero Verdict is %v for %q", v.Action, v.Reason)
	}
	if (Standing{}).Gone() {
		t.Error("the zero Standing is gone")
	}
}

// A holder of which nothing at all is known is refused, under every policy that
// does not say otherwise by its name.
func TestZeroHolderRefuses(t *testing.T) {
	s := Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{{NodeID: oldNode}}}
	check(t, JudgePublish(s, newNode), Refuse, HolderUnknown)
	v := JudgeUnpublish(s, oldNode)
	check(t, v, Refuse, HolderUnknown)
	if !v.Contest {
		t.Error("a refused unpublish must contest")
	}
	// A Node that was read, and no watching at all.
	s.Holders[0].Node = &Node{UID: "uid-1"}
	s.Policy = Policy{UnpublishRevokesAccess: true, ForwardUnfenced: true}
	check(t, JudgePublish(s, newNode), Refuse, HolderUnwatched)
	check(t, JudgeUnpublish(s, oldNode), Refuse, HolderUnwatched)
	// Two empty UIDs are not one machine.
	s.Holders[0].Node = &Node{}
	check(t, JudgePublish(s, newNode), Refuse, HolderUnwatched)
	check(t, JudgeUnpublish(s, oldNode), Refuse, HolderUnwatched)
}

func TestVoidEvidenceSaysWhy(t *testing.T) {
	again := func(h *Holder) { h.Node.UID = "uid-9" }
	for want, changes := range map[string][]change{
		VoidLeaseChanged: {with(OperatorConfirmation, func(e *Evidence) { e.LeaseRV = "99" })},
		VoidBootChanged:  {with(OperatorConfirmation, func(e *Evidence) { e.BootID = "boot-0" })},
		VoidNoBootID:     {noBoot, with(OperatorConfirmation)},
		VoidOtherMachine: {with(OperatorConfirmation, func(e *Evidence) { e.NodeUID = "uid-9" })},
		"its kubelet has registered again since, under the same boot ID":    {again, with(OperatorConfirmation)},
		"this version of csi-fencepost does not know this kind of evidence": {with("QuantumFence")},
		VoidOurs: {with(OutOfServiceTaint, func(e *Evidence) { e.Void = VoidOurs })},
	} {
		s := expectation{changes: append([]change{deleted, unlisted, stale}, changes...)}.snapshot()
		v := JudgePublish(s, newNode)
		check(t, v, Refuse, EvidenceVoid)
		if v.Blocking == nil || v.Blocking.Note != want {
			t.Errorf("want %q, got %+v", want, v.Blocking)
		}
	}
}

// A Snapshot without a target was not gathered for a publish; with one, an empty
// list says that nobody was found.
func TestZeroSnapshotPublishesNothing(t *testing.T) {
	check(t, JudgePublish(Snapshot{}, newNode), Refuse, Undecided)
	check(t, JudgePublish(Snapshot{Target: &Holder{NodeID: newNode}}, newNode), Allow, NoOtherHolder)
	check(t, JudgeUnpublish(Snapshot{}, oldNode), Allow, NotAHolder)
}

func TestActionsAndLivenessHaveNames(t *testing.T) {
	for a, want := range map[Action]string{Refuse: "refuse", Wait: "wait", Allow: "allow", Answer: "answer"} {
		if a.String() != want {
			t.Errorf("Action %d is %q, want %q", int(a), a, want)
		}
	}
	for l, want := range map[Liveness]string{Alive: "alive", Stale: "stale", Unknown: "unknown", Unwatched: "not watched for long enough"} {
		if l.String() != want {
			t.Errorf("Liveness %d is %q, want %q", int(l), l, want)
		}
	}
}

func TestTwoSystemUUIDsAreOfTwoMachinesUnlessOneIsTheOther(t *testing.T) {
	const uuid, swapped = "4c4c4544-0042-3510-8054-b4c04f564d31", "44454C4C-4200-1035-8054-B4C04F564D31"
	for _, c := range []struct {
		a, b  string
		other bool
	}{
		{uuid, uuid, false},
		{uuid, strings.ToUpper(uuid), false},
		{uuid, swapped, false},
		{uuid, "4c4c4544-0042-3510-8054-b4c04f564d32", true},
		{uuid, "44454c4c-4200-1035-8054-b4c04f564d32", true},
		{uuid, "", false},
		{"", "", false},
		{"system-n1", "system-n1", false},
		{"system-n1", "system-n2", true},
	} {
		if otherSystem(c.a, c.b) != c.other || otherSystem(c.b, c.a) != c.other {
			t.Errorf("%q and %q: two machines: %v, want %v", c.a, c.b, !c.other, c.other)
		}
	}
}

// Who has not said whether a machine is on speaks against what somebody claims, and not against
// what somebody has measured.
func TestWhatIsNotSaidSpeaksAgainstClaimsAlone(t *testing.T) {
	for kind, want := range map[Kind]Reason{PowerReading: HolderFenced, StorageFence: HolderFenced, OperatorConfirmation: EvidenceContradicted, NodeDeleted: EvidenceContradicted} {
		about := Evidence{Kind: kind, NodeUID: "u1", BootID: "b1", LeaseRV: "7"}
		unsaid := Evidence{Kind: PowerReading, Unanswered: true, Detail: "not said", NodeUID: "u1", BootID: "b1", LeaseRV: "7"}
		for _, all := range [][]Evidence{{about, unsaid}, {unsaid, about}} {
			h := Holder{NodeID: "id1", NodeName: "n1", NodeUID: "u1", BootID: "b1", State: Held, Liveness: Stale, LeaseRV: "7",
				Node: &Node{UID: "u1", BootID: "b1", InUse: true}, Evidence: all}
			if got := JudgePublish(Snapshot{Target: &Holder{NodeID: "id2"}, Holders: []Holder{h}}, "id2").Reason; got != want {
				t.Errorf("%s: %s, want %s", kind, got, want)
			}
		}
	}
}

// What would move without a claim moves with one of which nobody has said whether it is true.
func TestAClaimThatIsNotAnsweredKeepsNothingThatNeedsNone(t *testing.T) {
	h := Holder{NodeID: "id1", NodeName: "n1", NodeUID: "u1", BootID: "b1", State: Held, Liveness: Stale, LeaseRV: "7", Node: &Node{UID: "u1", BootID: "b1", InUse: true},
		Attachment: &Attachment{DeletedAt: time.Unix(1, 0)},
		Evidence: []Evidence{{Kind: OperatorConfirmation, NodeUID: "u1", BootID: "b1", LeaseRV: "7"},
			{Kind: PowerReading, Unanswered: true, NodeUID: "u1", BootID: "b1", LeaseRV: "7"}}}
	s := Snapshot{Target: &Holder{NodeID: "id2"}, Holders: []Holder{h}, Policy: Policy{UnpublishRevokesAccess: true}}
	if got := JudgePublish(s, "id2").Reason; got != HolderRevoked {
		t.Errorf("the driver revokes: %s", got)
	}
	s.Policy = Policy{ForwardUnfenced: true}
	if v := JudgeUnpublish(s, "id1"); v.Action != Allow || v.Reason != UnfencedForward {
		t.Errorf("unfenced: Forward: %s %s", v.Action, v.Reason)
	}
	if v := JudgePublish(s, "id2"); v.Action != Refuse {
		t.Errorf("published beside it: %s", v.Reason)
	}
}

// What a Node lists in a boot that began while its VolumeAttachment was being deleted, a pod wants that
// is back.
func TestABootEndsAHoldingThatIsBeingTaken(t *testing.T) {
	const system = "4c4c4544-0042-3510-8052-b4c04f4e4d31"
	for name, c := range map[string]struct {
		change func(*Holder)
		want   bool
	}{
		"booted since":                  {func(*Holder) {}, true},
		"its controller lists it":       {func(h *Holder) { h.Node.ListedAttached = true }, true},
		"its unpublish was begun":       {func(h *Holder) { h.State = Leaving }, true},
		"contested before":              {func(h *Holder) { h.Contest = &Contest{BootID: "boot-1"} }, true},
		"boots are counted":             {func(h *Holder) { h.BootID, h.Node.BootBefore, h.Node.BootID = "7", "7", "8" }, true},
		"contested since":               {func(h *Holder) { h.Contest = &Contest{BootID: "boot-2"} }, false},
		"booted, nobody knows when":     {func(h *Holder) { h.Node.BootedSince = false }, false},
		"nobody saw it before the boot": {func(h *Holder) { h.Node.BootBefore, h.Node.BootedSince = "", false }, false},
		"nobody takes it away":          {func(h *Holder) { h.Attachment.DeletedAt = time.Time{} }, false},
		"there is no VolumeAttachment":  {func(h *Holder) { h.Attachment = nil }, false},
		"another machine":               {func(h *Holder) { h.Node.SystemUUID = "another" }, false},
		"no system UUID":                {func(h *Holder) { h.SystemUUID, h.Node.SystemUUID = "", "" }, false},
		"another has its system UUID":   {func(h *Holder) { h.Node.SystemShared = true }, false},
		"its system UUID was shared":    {func(h *Holder) { h.SystemShared = true }, false},
		"no ledger names it":            {func(h *Holder) { h.State, h.Token = NotInLedger, "" }, false},
		"another Node":                  {func(h *Holder) { h.Node.UID = "uid-2" }, false},
		"back in the boot of then":      {func(h *Holder) { h.Node.BootID, h.Node.BootBefore = "boot-1", "boot-2" }, false},
	} {
		h := Holder{NodeID: oldNode, NodeName: "n1", NodeUID: "uid-1", BootID: "boot-1", SystemUUID: system, State: Publishing, Token: "t1", Liveness: Alive,
			Sources: []Source{FromLedger, FromVolumesInUse}, Attachment: &Attachment{Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt},
			Node: &Node{UID: "uid-1", BootID: "boot-2", NodeID: oldNode, SystemUUID: system, InUse: true, Ready: true, ReadySince: readySince, ReadyAt: deletedAt.Add(time.Hour), BootBefore: "boot-1", BootedSince: true}}
		c.change(&h)
		s := Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{h}}
		publish, unpublish := JudgePublish(s, newNode), JudgeUnpublish(s, oldNode)
		if (publish.Action == Allow) != c.want || (unpublish.Action == Allow) != c.want {
			t.Errorf("%s: %s %s, %s %s", name, publish.Action, publish.Reason, unpublish.Action, unpublish.Reason)
		}
	}
}

// A machine whose Node was deleted registers again, in the boot or after one. A boot that came after
// its VolumeAttachment was being deleted has ended whatever used the volume.
func TestABootUnderAnotherNodeEndsAHoldingThatIsBeingTaken(t *testing.T) {
	const system = "4c4c4544-0042-3510-8052-b4c04f4e4d31"
	for name, c := range map[string]struct {
		change func(*Holder)
		want   bool
	}{
		"booted since":                                  {func(*Holder) {}, true},
		"contested before":                              {func(h *Holder) { h.Contest = &Contest{BootID: "boot-1"} }, true},
		"nobody saw it before the boot":                 {func(h *Holder) { h.Node.BootBefore, h.Node.BootedSince = "", false }, false},
		"contested since":                               {func(h *Holder) { h.Contest = &Contest{BootID: "boot-2"} }, false},
		"booted, nobody knows when":                     {func(h *Holder) { h.Node.BootedSince = false }, false},
		"and its kubelet has listed what it has":        {func(h *Holder) { h.Node.BootedSince, h.Node.Synced = false, true }, true},
		"and that is the volume":                        {func(h *Holder) { h.Node.BootedSince, h.Node.Synced, h.Node.InUse = false, true, true }, false},
		"and its controller lists it":                   {func(h *Holder) { h.Node.BootedSince, h.Node.Synced, h.Node.ListedAttached = false, true, true }, false},
		"and the node is tainted":                       {func(h *Holder) { h.Node.BootedSince, h.Node.Synced, h.Node.OutOfService = false, true, true }, false},
		"nobody saw it, and its kubelet has listed":     {func(h *Holder) { h.Node.BootBefore, h.Node.BootedSince, h.Node.Synced = "", false, true }, false},
		"seen in another boot than that of the publish": {func(h *Holder) { h.Node.BootBefore = "boot-0" }, false},
		"boots are counted":                             {func(h *Holder) { h.BootID, h.Node.BootBefore, h.Node.BootID = "7", "7", "8" }, false},
		"the boot of the publish is not known":          {func(h *Holder) { h.BootID = "" }, false},
		"in the same boot":                              {func(h *Holder) { h.Node.BootID = h.BootID }, false},
		"it lists the volume in use":                    {func(h *Holder) { h.Node.InUse = true }, false},
		"it lists it as attached":                       {func(h *Holder) { h.Node.ListedAttached = true }, false},
		"nobody takes it away":                          {func(h *Holder) { h.Attachment.DeletedAt = time.Time{} }, false},
		"there is no VolumeAttachment":                  {func(h *Holder) { h.Attachment = nil }, false},
		"another machine":                               {func(h *Holder) { h.Node.SystemUUID = "5c4c4544-0042-3510-8052-b4c04f4e4d32" }, false},
		"another has its system UUID":                   {func(h *Holder) { h.Node.SystemShared = true }, false},
		"its system UUID was shared":                    {func(h *Holder) { h.SystemShared = true }, false},
		"another cloud's instance":                      {func(h *Holder) { h.ProviderID, h.Node.ProviderID = "aws:///a/i-1", "aws:///a/i-2" }, false},
		"no system UUID":                                {func(h *Holder) { h.SystemUUID, h.Node.SystemUUID = "", "" }, false},
	} {
		h := Holder{NodeID: oldNode, NodeName: "n1", NodeUID: "uid-1", BootID: "boot-1", SystemUUID: system, State: Publishing, Token: "t1", Liveness: Alive,
			Sources: []Source{FromLedger}, Attachment: &Attachment{Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt},
			Node: &Node{UID: "uid-2", BootID: "boot-2", NodeID: oldNode, SystemUUID: system, Ready: true, ReadySince: readySince, ReadyAt: deletedAt.Add(time.Hour), BootBefore: "boot-1", BootedSince: true}}
		c.change(&h)
		s := Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{h}}
		publish, unpublish := JudgePublish(s, newNode), JudgeUnpublish(s, oldNode)
		if (publish.Action == Allow) != c.want || (unpublish.Action == Allow) != c.want {
			t.Errorf("%s: %s %s, %s %s", name, publish.Action, publish.Reason, unpublish.Action, unpublish.Reason)
		}
	}
}
