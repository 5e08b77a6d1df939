package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// On gives the machine back what the agents took from it. Its power fence is
// void in the record before, and its storage fence proves nothing from then on;
// that is lifted after the agents read the access as open. Nor does another driver's
// fence of the same addresses, whose volumes the caller has asked for too, nor does
// anybody vouch for it any more. Errors as in Off.
func (f *Fencer) On(ctx context.Context, t Target, reason string) (Answer, error) {
	if err := f.writable(t, "on", reason, f.Covers(t.Node)); err != nil {
		return Answer{}, err
	}
	return f.restore(ctx, t, reason, "on", f.Levels)
}

// Lift gives the node's machine its access to the storage of this Fencer's
// driver back, whether or not the record has a fence. One that it has proves
// nothing from before the first request on. It is lifted in the record only if the
// agents read the access as open then, and that of all that the fence cut; else
// Lift is an error that says why not, and to be called again. A fence of another
// machine that had the node's name is not undone. A driver other than the Fencer's
// is an error: only its own sidecar can. Of agents that cut addresses off: before the
// machine has booted only that is opened which this driver's fences were to cut, and in the
// boot of another driver's fence of the machine, before that is to be lifted, nothing that
// that one cuts off too.
func (f *Fencer) Lift(ctx context.Context, t Target, driver, reason string) (Answer, error) {
	if err := f.writable(t, "lift", reason, f.CoversStorage(t.Node)); err != nil {
		return Answer{}, err
	}
	if driver != f.Driver {
		return Answer{}, refuse(t.Node, "lift", "its storage fence is of driver %s, this is the sidecar of %s", driver, f.Driver)
	}
	return f.restore(ctx, t, reason, "lift", f.storage)
}

func (f *Fencer) restore(ctx context.Context, t Target, reason, action string, levels agent.Levels) (Answer, error) {
	lock, err := f.Records.Lock(ctx, t.Node, f.Actor, f.lockFor)
	if err != nil {
		return Answer{}, err
	}
	f.forget(t.Node)
	a, err := f.restoreLocked(ctx, t, lock, reason, action, levels)
	f.forget(t.Node)
	f.unlock(ctx, t.Node, lock, a.Outstanding)
	return a, err
}

func (f *Fencer) restoreLocked(ctx context.Context, t Target, lock *record.Lock, reason, action string, levels agent.Levels) (Answer, error) {
	now, err := f.look(ctx, t.Node)
	if err != nil {
		return Answer{}, err
	}
	if now.node != nil && string(now.node.UID) != t.UID {
		return Answer{}, refuse(t.Node, action, "%s", fence.VoidOtherMachine)
	}
	if err := t.still(ctx, now.node); err != nil {
		return Answer{}, err
	}
	machine := now.machine(t)
	f.doubt(ctx, &machine, now.node)
	if why := levels.Withheld(machine); action == "lift" && why != "" {
		return Answer{}, refuse(t.Node, action, "%s", why) // the fence would prove nothing for nothing
	}
	r, err := f.Records.Get(ctx, t.Node)
	if err != nil {
		return Answer{}, err
	}
	u := &undoing{Fencer: f, t: t, reason: reason, action: action, now: f.bind(t, now), settled: settled(now.node), addresses: hosts(machine.Addresses),
		operation: record.Operation{Kind: kinds[action], Actor: f.Actor, NodeUID: t.UID, Reason: reason}}
	if r != nil && slices.ContainsFunc(r.Fences, u.anothers) {
		u.addresses, u.told = f.addresses(ctx, machine)
	}
	if err := u.begin(ctx, lock); err != nil {
		return Answer{}, errors.Join(err, u.callOff(ctx, lock)) // it may be written all the same
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lock.Lost():
			cancel(record.ErrLockLost)
		case <-limited.Done():
		}
	}()
	// From here on the fences free no volume, so that what they freed before shows.
	if err = f.stillSo(limited, &t); err == nil {
		err = lock.Held(limited)
	}
	if err != nil {
		if u.ended {
			err = fmt.Errorf("%w%s", err, u.doubt)
		}
		return Answer{}, errors.Join(err, u.callOff(ctx, lock))
	}
	if u.held != "" {
		// It stays to be lifted, so that the other does not wait for it in turn.
		return Answer{}, errors.New(u.held)
	}
	if u.own() {
		machine.Fenced = blocks(u.fence)
	}
	u.remember(limited, &machine)
	if action == "lift" {
		machine.Only = u.opens(limited, machine.Fenced)
	}
	a := f.answer(levels.On(limited, machine), u.now, time.Now())
	a.Why += u.doubt
	opened := u.opened(limited, &a)
	kept := remove(remove(slices.Concat(u.addresses, u.names()), machine.Only), u.theirs)
	slices.Sort(kept)
	if kept = slices.Compact(kept); machine.Only != nil && !opened && len(kept) > 0 {
		a.Why += fmt.Sprintf("; where %s is cut off, no fence of driver %s was to cut it, and its sidecar does not open it: whoever cut it does, or a person: csi-fencepost fence on %s",
			listed(kept), u.Driver, printable.Word(t.Node))
	}
	if !opened && u.untouched(a.Steps) {
		err = u.callOff(ctx, lock)
	}
	return a, errors.Join(u.end(ctx, &a, opened), err)
}

// stillSo asks the caller once more, about the Node as it is by now.
func (f *Fencer) stillSo(ctx context.Context, t *Target) error {
	if t.Still == nil {
		return nil
	}
	now, err := f.look(ctx, t.Node)
	if err != nil {
		return err
	}
	return t.Still(ctx, now.node)
}

// kinds of operation that give something back.
var kinds = map[string]record.OperationKind{"on": record.On, "lift": record.Lift}

// undoing is one On or Lift under the lock.
type undoing struct {
	*Fencer
	t              Target
	reason, action string
	now            record.FencedMachine
	settled        bool     // every driver's sidecar has had the time to see it Ready
	addresses      []string // that it has now, as blocks; told: the agents have said so
	told           bool

	operation record.Operation
	// fence of the storage that the record has, as it was then; nil: none.
	fence *record.Fence
	begun bool // it was in force until now
	// ended: fences of other drivers were.
	ended bool
	// cut are the blocks that this driver's fences of the machine were to cut.
	cut []string
	// held says which fence of another driver keeps this one from being lifted; empty: none.
	held string
	// theirs are blocks that a lift does not open, for another node's fence names them.
	theirs []string
	// left are storage fences of the machine that were withdrawn: what they cut is
	// still cut, for all that anybody knows.
	left  []record.Fence
	doubt string // what a person has to know besides: why that is left alone, what else ends
}

// begin ends what the record proves, before anything is given back.
func (u *undoing) begin(ctx context.Context, lock *record.Lock) error {
	_, err := lock.Update(ctx, func(r *record.Record) (bool, error) {
		u.operation.ID, u.fence, u.begun, u.ended, u.left, u.cut, u.held, u.doubt = string(uuid.NewUUID()), nil, false, false, nil, nil, "", ""
		if err := u.meant(r); err != nil {
			return false, err
		}
		if p := r.Fence(fence.PowerReading, ""); p != nil && u.action == "on" {
			r.GivePowerBack(p.ID, u.reason, u.Actor)
		}
		if u.CoversStorage(u.t.Node) {
			u.beginStorage(r)
		}
		begins := u.held == "" && r.Begin(&u.operation)
		return begins || u.begun || u.ended, nil
	})
	return err
}

func (u *undoing) beginStorage(r *record.Record) {
	if s := r.Fence(fence.StorageFence, u.Driver); s != nil {
		u.begun = r.Still(s, func() bool { return s.Lift(u.reason) })
		was := *s
		u.fence = &was
	}
	u.cut = u.ownCut(r, u.now)
	for _, s := range u.storageFences(r) {
		if s.Withdrawn() && oneMachine(s.Machine, u.now) {
			u.left = append(u.left, *s)
		}
	}
	u.meet(r)
}

// meet goes through the fences of other drivers that say that the machine is cut off from
// what is to be opened: two drivers may serve one storage (RBD and CephFS of one cluster),
// and nothing tells which do. In the boot of such a fence a lift waits until the sidecar of
// that driver finds that it may be lifted too. After a boot nothing is mounted that was before,
// so it waits for a minute, in which that sidecar can lift its fence for that boot. Then, and
// with On, where the caller has asked for the volumes of all drivers, the fence is to be lifted
// too, and nobody vouches for it any more. It would be proof as soon as the machine is cut off
// again, and be lifted at once, for a boot that used what it names. Only its own sidecar can
// vouch for it again, in the boot of then.
func (u *undoing) meet(r *record.Record) {
	names := u.names()
	opens := append(names, u.addresses...)
	unknown := !u.told && (u.action == "on" || len(names) == 0)
	booted := u.booted() && u.settled
	for i := range r.Fences {
		s := &r.Fences[i]
		if !u.anothers(*s) || !unknown && !overlap(blocks(s), opens) && !u.oneAgent(s) {
			continue
		}
		if u.action == "on" || booted && s.Machine.BootID != "" && s.Machine.BootID != u.now.BootID {
			u.ended = true
			s.Lift(u.reason)
			u.doubt += fmt.Sprintf("; fence %s of driver %s, which names the same, proves nothing any more", s.ID, s.Driver)
			continue
		}
		u.held = fmt.Sprintf("fence %s of driver %s keeps %s cut off too, and volumes of that driver may move because of it: it is opened once the sidecar of that driver finds that it may be lifted as well, or the node has booted; "+
			"by hand: csi-fencepost fence on %s", s.ID, s.Driver, listed(blocks(s)), printable.Word(u.t.Node))
	}
}

// settling is how long after a boot a lift waits for another driver's.
const settling = time.Minute

// settled: the Node has been Ready for so long. By a kubelet's clock that is ahead of ours it
// has, too.
func settled(n *corev1.Node) bool {
	c := fence.ReadyCondition(n)
	if c == nil {
		return true
	}
	since := time.Since(c.LastTransitionTime.Time)
	return since < 0 || since > settling
}

// anothers: the fence is of another driver, and proves that the machine is cut off.
func (u *undoing) anothers(s record.Fence) bool {
	return s.Kind == fence.StorageFence && s.Driver != u.Driver && s.Phase == record.Fenced && !otherMachine(s.Machine, u.now)
}

// oneAgent: the fence names no blocks, as of an agent that knows machines by other names, and
// is of an agent that is called as one of this driver's is: it may be one array.
func (u *undoing) oneAgent(s *record.Fence) bool {
	return len(blocks(s)) == 0 && slices.ContainsFunc(u.StorageAgents(u.t.Node), func(name string) bool { return slices.Contains(s.Agents, name) })
}

// opens are those of the fenced blocks that a lift may open. What was only read as cut
// somebody else has cut, who may have moved volumes on that: he opens it, or a person does.
// After a boot nothing is mounted that was before, and the sidecar that cut it may have died
// before it could say so: then it is opened. Nothing is that another node's fence names, which
// may have the address by now, or whose address a kubelet may have claimed. nil: the record
// names no blocks, and those that the machine has now are opened.
func (u *undoing) opens(ctx context.Context, fenced []string) []string {
	booted := u.booted()
	if booted && len(fenced) == 0 {
		return nil
	}
	others, err := u.others(ctx)
	for _, b := range fenced {
		if at := slices.IndexFunc(others, func(o elsewhere) bool { return overlap([]string{b}, []string{o.block}) && !u.outlived(ctx, b, o) }); at >= 0 {
			u.theirs = append(u.theirs, b)
			u.doubt += fmt.Sprintf("; %s is opened once %s, which names it too, is lifted or withdrawn", b, others[at].by)
		}
	}
	found := remove(fenced, u.cut)
	switch {
	case booted && err == nil:
		found = nil
	case booted && len(found) > 0:
		u.doubt += fmt.Sprintf("; %s is left as it is: %v", listed(found), err)
	}
	return remove(remove(fenced, found), u.theirs)
}

// elsewhere is a block that a fence of another node names.
type elsewhere struct {
	block, by, node string
	since           string // when that fence began; empty: it cannot be told
}

// longAgo is by how much the clocks of two sidecars do not differ.
const longAgo = time.Hour

// outlived: this driver cut the block off itself, which read as open right before, long after
// that fence began, and the Node of that is gone. Nobody lifts it any more, and it kept nobody
// out by then: the address has been given to another machine since.
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

// meant fails where the record has another fence than the caller saw, or none of those.
func (u *undoing) meant(r *record.Record) error {
	if u.t.Fences == nil {
		return nil
	}
	stand := 0
	for _, f := range []*record.Fence{r.Fence(fence.PowerReading, ""), r.Fence(fence.StorageFence, u.Driver)} {
		switch {
		case f == nil, f.Kind == fence.PowerReading && u.action != "on", f.Kind == fence.StorageFence && !u.CoversStorage(u.t.Node):
		case !slices.Contains(u.t.Fences, f.ID):
			return refuse(u.t.Node, u.action, "fence %s stands now, made by %s at %s", f.ID, f.Actor, f.StartedAt)
		default:
			stand++
		}
	}
	if stand == 0 && len(u.t.Fences) > 0 {
		return refuse(u.t.Node, u.action, "fence %s does not stand any more", strings.Join(u.t.Fences, ", "))
	}
	return nil
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
	others, err := u.others(ctx)
	if err != nil {
		u.left, u.doubt = nil, u.doubt+fmt.Sprintf("; %s, which a withdrawn fence cut, is left as it is: %v", listed(all), err)
		return
	}
	all = slices.DeleteFunc(all, func(b string) bool {
		return slices.ContainsFunc(others, func(o elsewhere) bool { return o.block == b })
	})
	m.Fenced = append(m.Fenced, all...)
	slices.Sort(m.Fenced)
	m.Fenced = slices.Compact(m.Fenced)
}

// others are the blocks that fences of other nodes name, of whichever driver: but
// for those that are being lifted, which would wait for this one in turn. Where a record
// does not tell what is being cut, or cannot be read, they are what the agents name of that
// node: whoever began may have died long ago, and never says more. With an error they are those
// that could be told.
func (u *undoing) others(ctx context.Context) (all []elsewhere, err error) {
	records, garbled, err := u.Records.List(ctx)
	if err != nil {
		return nil, err
	}
	var untold []string
	add := func(blocks []string, of elsewhere) {
		for _, b := range blocks {
			of.block = b
			all = append(all, of)
		}
	}
	for _, g := range garbled {
		untold = append(untold, g.Node)
	}
	for _, r := range records {
		for i := range r.Fences {
			s := &r.Fences[i]
			if r.Node == u.t.Node || s.Kind != fence.StorageFence || !s.Current() || s.Phase == record.Lifting {
				continue
			}
			if s.UnderWay() && len(blocks(s)) == 0 {
				untold = append(untold, r.Node)
			}
			add(blocks(s), elsewhere{by: "fence " + s.ID + " of node " + r.Node, node: r.Node, since: s.StartedAt})
		}
	}
	for _, node := range untold {
		now, err := u.look(ctx, node)
		if err != nil {
			return all, fmt.Errorf("the record of node %s does not say what is being cut off, and which addresses it has cannot be told: %w", node, err)
		}
		blocks, told := u.Fencer.addresses(ctx, now.machine(Target{Node: node}))
		if !told {
			return all, fmt.Errorf("the record of node %s does not say what is being cut off, and its agents do not tell which addresses it has", node)
		}
		add(blocks, elsewhere{by: "what is being cut off of node " + node, node: node})
	}
	return all, nil
}

// callOff takes back that the fence is being lifted: nothing was sent that gives
// back what it cut. It does so only while the lock is ours: whoever had it since may
// have sent something. For those of other drivers nobody vouches any more.
func (u *undoing) callOff(ctx context.Context, lock *record.Lock) error {
	if !u.begun {
		return nil
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := lock.Update(ctx, func(r *record.Record) (bool, error) {
		s := r.FenceByID(u.fence.ID)
		return s != nil && r.Still(s, s.CallOffLift), nil
	})
	if errors.Is(err, record.ErrLockLost) {
		return nil // it stays to be lifted
	}
	return err
}

// own: the storage fence is of the machine that is meant.
func (u *undoing) own() bool { return u.fence != nil && oneMachine(u.fence.Machine, u.now) }

// booted: that has booted since.
func (u *undoing) booted() bool { return u.own() && laterBoot(u.fence.Machine, u.now) }

// opened tells whether the agents read as open what the fence cut. Of another
// machine's they are asked, and nothing is changed.
func (u *undoing) opened(ctx context.Context, a *Answer) bool {
	switch {
	case u.fence == nil:
		return false
	case u.own():
		return u.open(a.Steps)
	case u.open(a.Steps) && u.named(a.Steps):
		return true
	case len(blocks(u.fence)) == 0:
		return false
	}
	m := u.fence.Machine
	// What it was known by may be another machine's by now: no agent looks for it by that.
	o := u.storage.Ask(ctx, agent.Machine{Node: u.t.Node, UID: m.NodeUID, BootID: m.BootID, Fenced: blocks(u.fence)})
	a.Steps = append(a.Steps, o.Steps...)
	return u.open(o.Steps) && u.named(o.Steps)
}

// named: what the storage agents read as open has all that the fence cut. Agents
// whose words have no blocks know machines by the node's name.
func (u *undoing) named(all []agent.Step) bool {
	cut := blocks(u.fence)
	for _, st := range all {
		read := agent.Blocks(st.Detail)
		if st.Action != "status" || st.State != agent.On || u.proves[st.Agent] != fence.StorageFence || len(read) == 0 {
			continue
		}
		if len(cut) == 0 || slices.ContainsFunc(cut, func(b string) bool { return !slices.Contains(read, b) }) {
			return false
		}
	}
	return true
}

// untouched: nothing was sent that could have given back what the fence cut.
func (u *undoing) untouched(all []agent.Step) bool {
	if u.fence == nil {
		return true
	}
	cut := blocks(u.fence)
	return !slices.ContainsFunc(all, func(st agent.Step) bool {
		if st.Action != "on" || u.proves[st.Agent] != fence.StorageFence {
			return false
		}
		sent := agent.Blocks(st.Detail)
		return len(sent) == 0 || len(cut) == 0 || slices.ContainsFunc(sent, func(b string) bool { return slices.Contains(cut, b) })
	})
}

// end writes what became of it. Only access that every storage agent reads as
// open lifts a fence.
func (u *undoing) end(ctx context.Context, a *Answer, opened bool) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	stands := false
	_, err := u.Records.Update(ctx, u.t.Node, func(r *record.Record) (changed bool, err error) {
		stands = false
		changed = r.End(u.operation, fmt.Sprintf("%s: %s", a.State, trail(a.Steps, a.Why)))
		if u.open(a.Steps) {
			for _, left := range u.left {
				changed = r.LiftEnded(left.ID, u.reason, u.Actor) || changed
			}
			changed = u.noteOpen(r, a) || changed
		}
		if u.fence == nil {
			return changed, nil
		}
		s := r.Fence(fence.StorageFence, u.Driver)
		if s == nil || s.ID != u.fence.ID {
			return changed, nil // ended, or made anew, by somebody else
		}
		if !opened {
			stands = true
			return changed, nil
		}
		lifted := *s
		lifted.Steps = append(slices.Clone(s.Steps), steps(a.Steps)...)
		r.PutFence(lifted, "Unfenced")
		a.Fence = s.ID
		r.EndFence(s.ID, record.Lifted, u.reason, u.Actor)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("the agents' answer (%s: %s) could not be written down: %w", a.State, a.Why, err)
	}
	return u.failed(a, stands)
}

// failed says that access was not given back, or not all of it.
func (u *undoing) failed(a *Answer, stands bool) error {
	switch {
	case stands && !u.own():
		return fmt.Errorf("the storage fence of node %s (%s) is of another machine that had its name (node UID %s, boot ID %s), and is not lifted for this one: "+
			"once that machine is off for good, take %s off the list of driver %s (%s)", u.t.Node, u.fence.ID, u.fence.Machine.NodeUID, u.fence.Machine.BootID, listed(blocks(u.fence)), u.Driver, a.Why)
	case stands && (u.action == "lift" || a.State == agent.On):
		return fmt.Errorf("the storage fence of node %s (%s) is not lifted: %s", u.t.Node, u.fence.ID, a.Why)
	case u.action == "lift" && a.State != agent.On:
		return fmt.Errorf("the access of node %s to the storage of %s does not read open: %s", u.t.Node, u.Driver, a.Why)
	}
	return nil
}

func listed(blocks []string) string {
	if len(blocks) == 0 {
		return "it"
	}
	return strings.Join(blocks, ", ")
}

// open: agents that cut storage were read, and each reads the access as open.
func (f *Fencer) open(all []agent.Step) bool {
	counts := map[agent.State]int{}
	for _, s := range []agent.State{agent.Unclear, agent.On, agent.Off} {
		names, _ := readers(all, s)
		for _, name := range names {
			if f.proves[name] == fence.StorageFence {
				counts[s]++
			}
		}
	}
	return counts[agent.On] > 0 && counts[agent.Off]+counts[agent.Unclear] == 0
}

// trail is the raw answers of steps, short enough for an audit entry.
func trail(all []agent.Step, why string) string {
	text := why
	for _, st := range all {
		text += fmt.Sprintf("; %s %s: %s", st.Agent, st.Action, st.State)
		for _, more := range []string{st.Detail, st.Err} {
			if more != "" {
				text += " (" + more + ")"
			}
		}
	}
	return text
}

// Void writes down that the node is back, if it is: its power fence, finished or
// not, counts no more once its machine has another boot ID, or another lease
// than it was bound to. One that is under way stops before its next off; one by
// force is about a node that may live, and goes on. A storage fence stands until
// it is lifted. A new machine under the old name is not the old one's return.
func (f *Fencer) Void(ctx context.Context, node, why string) (voided bool, err error) {
	if f.ReadOnly {
		return false, refuse(node, "void", "nothing is changed here (mode Observe, or a command that only reads)")
	}
	r, err := f.Records.Get(ctx, node)
	if err != nil || r.Fence(fence.PowerReading, "") == nil {
		return false, err
	}
	now, err := f.look(ctx, node)
	if err != nil || now.node == nil {
		return false, err
	}
	judged := *r.Fence(fence.PowerReading, "")
	since := back(judged.Machine, now)
	if since == "" || judged.Forced && judged.Phase == record.Fencing {
		return false, nil
	}
	r, err = f.Records.VoidFence(ctx, node, judged, since+": "+why, f.Actor)
	f.forget(node)
	if err != nil {
		return false, err
	}
	ended := r.FenceByID(judged.ID)
	return ended != nil && ended.Phase == record.Void, nil
}

// back says what changed of the machine; empty: nothing, or it is another one.
func back(m record.FencedMachine, now look) string {
	switch {
	case string(now.node.UID) != m.NodeUID && now.node.Status.NodeInfo.BootID == m.BootID:
		return fence.VoidRegisteredAgain
	case string(now.node.UID) != m.NodeUID:
		return ""
	case now.node.Status.NodeInfo.BootID != m.BootID:
		return fence.VoidBootChanged
	case now.leaseRV != m.LeaseRV:
		return fence.VoidLeaseChanged
	}
	return ""
}
