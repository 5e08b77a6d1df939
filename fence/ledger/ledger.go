package ledger

import (
	"cmp"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Annotation of the PersistentVolume that carries the ledger.
const Annotation = "csi-fencepost.io/holders"

// Version of the format that this program reads and writes.
const Version = 1

// AnyBoot stands for all boots (Ledger.ForcedIn).
const AnyBoot = "*"

// maxForcedIn boots are told apart.
const maxForcedIn = 16

// MaxTakenOver is how many takenOver entries a ledger keeps, the latest ones:
// they only answer late unpublishes. Of those of whom nothing was proven it keeps
// MaxUnproven besides: they may have the volume still.
const (
	MaxTakenOver = 8
	MaxUnproven  = 32
)

// Entry is one holder. It is keyed by NodeID: a new machine under an old name
// is another entry.
type Entry struct {
	NodeID   string `json:"nodeID"`
	NodeName string `json:"node,omitempty"`
	NodeUID  string `json:"nodeUID,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	// SystemUUID of the machine, its cloud's name for it and its installation's, as its
	// Node says them (fence.Machine).
	SystemUUID string `json:"systemUUID,omitempty"`
	ProviderID string `json:"providerID,omitempty"`
	MachineID  string `json:"machineID,omitempty"`
	// SystemShared tells whether another Node reported that system UUID then.
	SystemShared bool `json:"systemShared,omitzero"`
	// ReadySince is the Ready condition's lastTransitionTime when the volume was
	// published there; it is compared for equality only.
	ReadySince string `json:"readySince,omitempty"`
	// Kubelet is the process that was seen to run there before the volume was first published
	// to the machine in its boot (fence.Holder.AsksKubelet); nil: not known. Nobody changes it.
	Kubelet *fence.Process `json:"kubelet,omitempty"`
	// Token tells this publication from a later one to the same node.
	Token   string         `json:"token,omitempty"`
	State   fence.State    `json:"state"`
	Contest *fence.Contest `json:"contested,omitzero"`
	// From is fence.FromDriver where nothing but the driver's list ever named
	// the holder, which may name too many; empty otherwise.
	From fence.Source `json:"from,omitempty"`
	// ReleasedUnder is the UID of the VolumeAttachment that was being deleted when the
	// kubelet was believed to have let the volume go (fence.Holder.ReleasedForGood).
	// Empty: it was not so.
	ReleasedUnder string `json:"releasedUnder,omitempty"`
	// OnlyUnder is the UID of the VolumeAttachment by which alone the machine can have the
	// volume (fence.Holder.NeverAttached). Empty: it may have it by another one.
	OnlyUnder string `json:"onlyUnder,omitempty"`
	// LeavingSeconds is how long the call that unpublishes it, or the longest of several, had
	// left when it was marked Leaving or Released. It is a duration: no two clocks are compared.
	LeavingSeconds int `json:"leavingSeconds,omitzero"`
	// Call tells the calls that were made by this entry from one another, as the retry of a publish
	// or of an unpublish. So no two of them leave the same text: who judged before one of them cannot
	// write after it (Store.Write), nor take its write for the own one.
	Call string `json:"call,omitempty"`
	// Unproven tells that the entry is takenOver without proof (unpublish.unfenced: Forward).
	Unproven bool `json:"unproven,omitzero"`
	// Later is kept while the entry is of one publication (Token).
	Later format.Later `json:",embed"`
}

// Machine is the one to which the volume was published.
func (e *Entry) Machine() fence.Machine {
	return fence.Machine{NodeName: e.NodeName, NodeUID: e.NodeUID, NodeID: e.NodeID, BootID: e.BootID,
		SystemUUID: e.SystemUUID, ProviderID: e.ProviderID, MachineID: e.MachineID, SystemShared: e.SystemShared}
}

// known are the fields that a document's "must" may name: none yet.
var known []string

// Ledger is the record of one volume. The order of Holders is that in which
// they were put, oldest first.
type Ledger struct {
	Version int `json:"version"`
	// Must names the fields that a reader has to know (see package format).
	Must   []string `json:"must,omitempty"`
	Driver string   `json:"driver"`
	Handle string   `json:"handle"`
	// Cluster is the UID of the namespace kube-system.
	Cluster string `json:"cluster"`
	// PVUID is the UID of the PersistentVolume that carries the ledger.
	PVUID   string  `json:"pvUID"`
	Holders []Entry `json:"holders"`
	// ForcedIn are the boots in which a machine gave the volume up for another reason than its
	// kubelet's word, and may have run on: until it boots again it may have the volume mounted,
	// which a kubelet that has restarted meanwhile does not know. AnyBoot: nobody knows in which.
	ForcedIn []string `json:"forcedIn,omitempty"`

	Later format.Later `json:",embed"`
}

// String is the annotation's text: compact, and the same for equal ledgers.
func (l *Ledger) String() string {
	text, err := format.Text(l)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return text
}

// Clone is a copy that shares nothing with l.
func (l *Ledger) Clone() *Ledger {
	out := *l
	out.Must, out.Holders, out.ForcedIn = slices.Clone(l.Must), slices.Clone(l.Holders), slices.Clone(l.ForcedIn)
	for i := range out.Holders {
		if c := out.Holders[i].Contest; c != nil {
			contest := *c
			out.Holders[i].Contest = &contest
		}
	}
	return &out
}

// Get returns the entry of a node ID; nil: none. It points into the ledger, for
// changing it in place, until the next Put or Cut.
func (l *Ledger) Get(nodeID string) *Entry {
	for i := range l.Holders {
		if l.Holders[i].NodeID == nodeID {
			return &l.Holders[i]
		}
	}
	return nil
}

// ByNodeName returns the entries of that node name, as Get does. They are
// several when machines were replaced under one name.
func (l *Ledger) ByNodeName(name string) []*Entry {
	var out []*Entry
	for i := range l.Holders {
		if l.Holders[i].NodeName == name {
			out = append(out, &l.Holders[i])
		}
	}
	return out
}

// Put writes an entry as the latest one, in the place of the one with its node
// ID, if any. Of takenOver entries the oldest beyond MaxTakenOver are dropped (see there).
func (l *Ledger) Put(entry Entry) {
	if e := l.Get(entry.NodeID); e != nil && e.Token == entry.Token {
		entry.Later = e.Later
	}
	l.remove(func(e *Entry) bool { return e.NodeID == entry.NodeID })
	l.Holders = append(l.Holders, entry)
	l.trim()
}

// Cut removes the entry of a node ID if it still has that token, and tells
// whether it did: nothing cuts an entry newer than its own.
func (l *Ledger) Cut(nodeID, token string) bool {
	return l.remove(func(e *Entry) bool { return e.NodeID == nodeID && e.Token == token })
}

// MarkTaken is Cut that remembers: the entry holds nothing any more, and is the
// latest one. unproven: nothing had proven that its node no longer writes.
func (l *Ledger) MarkTaken(nodeID, token string, unproven bool) bool {
	e := l.Get(nodeID)
	if e == nil || e.Token != token {
		return false
	}
	taken := *e
	taken.State, taken.Contest, taken.From, taken.OnlyUnder, taken.Unproven, taken.LeavingSeconds = fence.TakenOver, nil, "", "", unproven, 0
	l.Put(taken)
	return true
}

// Forced takes note of boots in which a machine was made to give the volume up. A boot ID that is empty
// is not known.
func (l *Ledger) Forced(boots ...string) {
	for _, b := range boots {
		b = cmp.Or(b, AnyBoot)
		if !l.WasForcedIn(b) {
			l.ForcedIn = append(l.ForcedIn, b)
		}
		if b == AnyBoot || len(l.ForcedIn) > maxForcedIn {
			l.ForcedIn = []string{AnyBoot}
		}
	}
}

// WasForcedIn tells whether a machine that runs in that boot may have given the volume up
// otherwise than by its kubelet's word.
func (l *Ledger) WasForcedIn(boot string) bool {
	return slices.Contains(l.ForcedIn, boot) || slices.Contains(l.ForcedIn, AnyBoot)
}

func (l *Ledger) trim() {
	excess := map[bool]int{false: -MaxTakenOver, true: -MaxUnproven} // by Unproven
	for _, e := range l.Holders {
		if e.State == fence.TakenOver {
			excess[e.Unproven]++
		}
	}
	l.remove(func(e *Entry) bool {
		if e.State != fence.TakenOver || excess[e.Unproven] <= 0 {
			return false
		}
		excess[e.Unproven]--
		return true
	})
}

// remove leaves the array of other copies of Holders alone.
func (l *Ledger) remove(which func(*Entry) bool) bool {
	kept := []Entry{}
	for i := range l.Holders {
		if !which(&l.Holders[i]) {
			kept = append(kept, l.Holders[i])
		}
	}
	removed := len(kept) < len(l.Holders)
	l.Holders = kept
	return removed
}

// merge adds what another PV's ledger says of the same volume. Of two entries with one node
// ID the one that allows less counts, and l's where they allow the same. That holds for two
// entries of one publication, too: which of them is the later one cannot be told where the
// PV that carried the ledger is being deleted since, and a Write on which somebody acted
// has left one of them only.
func (l *Ledger) merge(other *Ledger) {
	l.keep(other)
	for _, theirs := range other.Clone().Holders {
		ours := l.Get(theirs.NodeID)
		if ours != nil {
			if ours.From != theirs.From {
				ours.From, theirs.From = "", "" // one of them knows it from elsewhere
			}
			if ours.State == theirs.State && theirs.Unproven {
				ours.Unproven = true
			}
			if ours.State == theirs.State && ours.ReleasedUnder != theirs.ReleasedUnder {
				ours.ReleasedUnder = "" // one of them does not say so
			}
			if ours.Kubelet == nil || theirs.Kubelet == nil || *ours.Kubelet != *theirs.Kubelet {
				ours.Kubelet, theirs.Kubelet = nil, nil // one of them knows of a publish that is older
			}
			if ours.OnlyUnder != theirs.OnlyUnder {
				ours.OnlyUnder, theirs.OnlyUnder = "", ""
			}
			if ours.Token == theirs.Token {
				ours.Later = format.Union(ours.Later, theirs.Later)
				theirs.Later = ours.Later
			}
			if ours.Call != theirs.Call {
				ours.Call += theirs.Call // another one, whichever of the two is written anew
				theirs.Call = ours.Call
			}
			ours.LeavingSeconds = max(ours.LeavingSeconds, theirs.LeavingSeconds)
			theirs.LeavingSeconds = ours.LeavingSeconds
		}
		switch {
		case ours == nil:
			l.Holders = append(l.Holders, theirs)
		case suspicion(theirs.State) > suspicion(ours.State):
			contest := ours.Contest
			*ours = theirs
			if ours.Contest == nil {
				ours.Contest = contest
			}
		case ours.Contest == nil:
			ours.Contest = theirs.Contest
		}
	}
}

// keep takes over what another ledger of the same volume holds besides its holders
// and what it names: of a version that is later than this one.
func (l *Ledger) keep(other *Ledger) {
	l.Later = format.Union(l.Later, other.Later)
	l.Forced(other.ForcedIn...)
	for _, field := range other.Must {
		if !slices.Contains(l.Must, field) {
			l.Must = append(l.Must, field)
		}
	}
}

// suspicion ranks states by how much they hold against a node.
func suspicion(state fence.State) int {
	switch state {
	case fence.TakenOver:
		return 0
	case fence.Released:
		return 1
	case fence.Leaving:
		return 2
	}
	return 3
}
