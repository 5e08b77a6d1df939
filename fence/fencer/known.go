package fencer

import (
	"slices"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// known is what a record said of the driver's storage fences before the agents were
// asked: a reading may come later than a whole lift.
type known struct {
	mark    record.Mark
	current string // the current fence; empty: none
	lifting bool   // that one
	// unvouched tells that the current fence is being lifted, that nobody vouches for it, and that
	// the machine has a Node.
	unvouched bool
	ended     []string // lifted, or void
	own       []string // the blocks that this driver's fences of the machine were to cut
	told      []string // the blocks that are the machine's by more than its Node's word
}

func (f *Fencer) knownOf(r *record.Record, m record.Mark, l look, machine record.FencedMachine) *known {
	k := &known{mark: m, ended: f.ended(r), own: f.ownCut(r, machine), told: f.told(r, machine)}
	if s := r.Fence(fence.StorageFence, f.Driver); s != nil {
		k.current, k.lifting = s.ID, s.BeingLifted()
		k.unvouched = k.lifting && !r.Vouched(s) && l.node != nil
	}
	return k
}

// storageFences are those of this driver in the record, whatever became of them.
func (f *Fencer) storageFences(r *record.Record) (all []*record.Fence) {
	for i := 0; r != nil && i < len(r.Fences); i++ {
		if s := &r.Fences[i]; s.Kind == fence.StorageFence && s.Driver == f.Driver {
			all = append(all, s)
		}
	}
	return all
}

// ownCut are the blocks that this driver's fences of the machine were to cut, by those that stand
// and those of this boot that have ended and may be cut still: what one of before cut, a person
// has opened, or somebody else has cut since.
func (f *Fencer) ownCut(r *record.Record, machine record.FencedMachine) (cut []string) {
	for _, s := range f.storageFences(r) {
		if (s.Standing() || s.MayBeCut() && s.Machine.BootID == machine.BootID) && oneMachine(s.Machine, machine) {
			cut = append(cut, cutBlocks(s)...)
		}
	}
	return cut
}

// told are the blocks of the machine for which there is more than its Node's word: those that a fence
// cuts for which somebody vouches, and that was no such word itself, or that one of this driver was
// about to cut. What another driver's fence cut is as good: drivers of one storage cut one list.
func (f *Fencer) told(r *record.Record, machine record.FencedMachine) (blocks []string) {
	for i := 0; r != nil && i < len(r.Fences); i++ {
		s := &r.Fences[i]
		switch {
		case s.Kind != fence.StorageFence || s.OwnWord || !r.Vouched(s) || !oneMachine(s.Machine, machine):
		case s.Phase == record.Fenced:
			blocks = append(blocks, agent.Blocks(s.What)...)
		case s.Driver == f.Driver:
			blocks = append(blocks, cutBlocks(s)...)
		}
	}
	return blocks
}

// ownWord tells whether readings of a machine as cut off rest on its Node's word alone: not those
// at addresses that are told, at least one of which the Node may say.
func ownWord(steps []agent.Step, told []string) bool {
	return slices.ContainsFunc(steps, func(st agent.Step) bool {
		return st.Action == "status" && st.State == agent.Off && st.OwnWord && (len(told) == 0 || len(remove(st.Named, told)) > 0)
	})
}

// ended are the storage fences since whose end access may be open.
func (f *Fencer) ended(r *record.Record) (ids []string) {
	for _, s := range f.storageFences(r) {
		if s.Phase == record.Lifted || s.Phase == record.Void {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// reopened says why access may have been given back since k, although it was read as
// cut after k; empty: it was not. machine is the one that was read.
func (f *Fencer) reopened(k *known, r *record.Record, now record.Mark, machine record.FencedMachine) string {
	cur := r.Fence(fence.StorageFence, f.Driver)
	switch {
	case k.current != "" && r.FenceByID(k.current) == nil,
		slices.ContainsFunc(f.ended(r), func(id string) bool { return !slices.Contains(k.ended, id) }):
		return "a storage fence in its record ended while the agents were asked"
	case cur != nil && cur.BeingLifted() && !k.lifting:
		return "fence " + cur.ID + ": " + fence.VoidLifting
	case cur != nil && cur.Phase == record.Fenced && oneMachine(cur.Machine, machine):
		return "" // nothing is given back but by lifting that
	case now != k.mark:
		return "its record was locked by somebody while the agents were asked, who may have given access back"
	case now.Holder != "" && r.Operation.GivesBack():
		return "its record is locked by " + now.Holder + ", who may be giving access back"
	}
	return ""
}
