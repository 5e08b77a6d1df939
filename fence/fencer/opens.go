package fencer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// What a lift opens: before the machine has booted only what fences of this driver were to cut, and
// never what another node's fence keeps cut off.

// opens are those of the fenced blocks that a lift may open. What was only read as cut
// somebody else has cut, who may have moved volumes on that: he opens it, or a person does.
// After a boot nothing is mounted that was before, and the sidecar that cut it may have died
// before it could say so: then it is opened. Nothing is that another node's fence names, which
// may have the address by now, or whose address a kubelet may have claimed. Where the record
// names no blocks they are those that the machine has now; nil: these are opened, whichever they are.
func (u *undoing) opens(ctx context.Context, m agent.Machine) []string {
	booted, fenced := u.booted(), m.Fenced
	if booted && len(fenced) == 0 {
		now, _ := u.Fencer.addresses(ctx, m)
		if untold, err := u.spare(ctx, now); untold == nil && err == nil && len(u.theirs) == 0 {
			return nil
		}
		return remove(now, u.theirs)
	}
	untold, err := u.spare(ctx, fenced)
	err = cmp.Or(err, untold)
	found := remove(fenced, u.cut)
	switch {
	case booted && err == nil:
		found = nil
	case booted && len(found) > 0:
		u.doubt += fmt.Sprintf("; %s is left as it is: %v", listed(found), err)
	}
	return remove(remove(fenced, found), u.theirs)
}

// spare finds those of the blocks that another node's fence names. untold and err are those of
// others.
func (u *undoing) spare(ctx context.Context, blocks []string) (untold, err error) {
	if len(blocks) == 0 {
		return nil, nil
	}
	others, untold, err := u.others(ctx)
	for _, b := range blocks {
		if at := slices.IndexFunc(others, func(o elsewhere) bool { return o.overlaps(b) && !u.outlived(ctx, b, o) }); at >= 0 {
			u.theirs = append(u.theirs, b)
			u.doubt += fmt.Sprintf("; %s is opened once %s, which names it too, is lifted or withdrawn (csi-fencepost fence withdraw %s --reason TEXT)",
				b, others[at].by, printable.Word(others[at].node))
		}
	}
	return untold, err
}

// union of two lists of blocks, sorted, each once.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// elsewhere is a block that a fence of another node names.
type elsewhere struct {
	block, by, node string
	since           string // when that fence began; empty: it cannot be told
}

func (o *elsewhere) overlaps(block string) bool { return overlap([]string{block}, []string{o.block}) }

// longAgo is by how much the clocks of two sidecars do not differ.
const longAgo = time.Hour

// outlived tells whether another node's fence of the block kept nobody out any more. This driver
// cut the block off itself, which read as open right before, long after that fence began, and that
// fence's Node is gone. Nobody lifts it any more: the address has been given to another machine
// since.
func (u *undoing) outlived(ctx context.Context, block string, o elsewhere) bool {
	theirs, err := time.Parse(time.RFC3339, o.since)
	if err != nil || u.fence == nil || !slices.Contains(u.cut, block) {
		return false
	}
	ours, err := time.Parse(time.RFC3339, u.fence.StartedAt)
	if err != nil || ours.Sub(theirs) < longAgo {
		return false
	}
	now, err := u.look(ctx, o.node)
	return err == nil && now.node == nil
}

// names are the blocks that the machine's fence and its withdrawn ones name.
func (u *undoing) names() (all []string) {
	if u.own() {
		all = blocks(u.fence)
	}
	for i := range u.left {
		all = append(all, blocks(&u.left[i])...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// remember adds what withdrawn fences cut to what is to be opened, unless it is another
// fence that is lifted, and but for what another node's fence names: that node may have
// the address by now. Where that cannot be told they are left alone, and doubt says so.
func (u *undoing) remember(ctx context.Context, m *agent.Machine) {
	var all []string
	for i := range u.left {
		all = append(all, blocks(&u.left[i])...)
	}
	if len(all) == 0 || u.fence != nil && (u.action == "lift" || !u.own()) {
		u.left = nil
		return
	}
	others, untold, err := u.others(ctx)
	if err = cmp.Or(err, untold); err != nil {
		u.left, u.doubt = nil, u.doubt+fmt.Sprintf("; %s, which a withdrawn fence cut, is left as it is: %v", listed(all), err)
		return
	}
	theirs := func(b string) bool {
		return slices.ContainsFunc(others, func(o elsewhere) bool { return o.overlaps(b) })
	}
	// Of which some stays cut is not lifted.
	u.left = slices.DeleteFunc(u.left, func(left record.Fence) bool { return slices.ContainsFunc(blocks(&left), theirs) })
	all = slices.DeleteFunc(all, theirs)
	m.Fenced = append(m.Fenced, all...)
	slices.Sort(m.Fenced)
	m.Fenced = slices.Compact(m.Fenced)
}

// others are the blocks that fences of other nodes name, of whichever driver: but
// for those that are being lifted, which would wait for this one in turn, and for those that
// nobody vouches for, which free no volume. Where a record
// does not tell what is being cut, or cannot be read, they are what the agents name of that
// node: whoever began may have died long ago, and never says more. untold says of which nodes
// these do not tell either; err that no record could be read.
func (u *undoing) others(ctx context.Context) (all []elsewhere, untold, err error) {
	records, garbled, err := u.Records.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	var open []string
	add := func(blocks []string, of elsewhere) {
		for _, b := range blocks {
			of.block = b
			all = append(all, of)
		}
	}
	for _, g := range garbled {
		open = append(open, g.Node)
	}
	for _, r := range records {
		for i := range r.Fences {
			s := &r.Fences[i]
			if r.Node == u.t.Node || s.Kind != fence.StorageFence || !s.Current() || s.Phase == record.Lifting || !r.Vouched(s) {
				continue
			}
			if s.UnderWay() && len(blocks(s)) == 0 {
				open = append(open, r.Node)
			}
			add(blocks(s), elsewhere{by: "fence " + s.ID + " of node " + r.Node, node: r.Node, since: s.StartedAt})
		}
	}
	for _, node := range open {
		now, err := u.look(ctx, node)
		if err != nil {
			untold = errors.Join(untold, fmt.Errorf("the record of node %s does not say what is being cut off, and which addresses it has cannot be told: %w", node, err))
			continue
		}
		blocks, told := u.Fencer.addresses(ctx, now.machine(Target{Node: node}))
		if !told {
			untold = errors.Join(untold, fmt.Errorf("the record of node %s does not say what is being cut off, and its agents do not tell which addresses it has", node))
		}
		add(blocks, elsewhere{by: "what is being cut off of node " + node, node: node})
	}
	return all, untold, nil
}

func listed(blocks []string) string {
	if len(blocks) == 0 {
		return "it"
	}
	return strings.Join(blocks, ", ")
}
