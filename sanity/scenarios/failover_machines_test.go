package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// TestFailoverMachines plays scenarios whose nodes are QEMU virtual machines.
// Their disks are single-attach by QEMU's own lock and their power goes through a
// BMC's simulator and kills QEMU: nobody here wrote either, nor does this
// project's array judge: what the guests wrote is read from the disk at the end.
// One stage at a time, and one of TestFailoverMachinesAlone, each with two virtual
// machines: the host carries no more.
func TestFailoverMachines(t *testing.T) {
	t.Parallel()
	for _, s := range slices.Concat(machines, machineFailovers) {
		t.Run(s.name, func(t *testing.T) { playOnMachines(t, s, false) })
	}
}

// TestFailoverMachinesAlone shows that there is something to be kept from: the
// same with Kubernetes alone.
func TestFailoverMachinesAlone(t *testing.T) {
	t.Parallel()
	for _, s := range machines {
		if !s.guardedOnly {
			t.Run(s.name, func(t *testing.T) { playOnMachines(t, s, true) })
		}
	}
}

func playOnMachines(t *testing.T, s scenario, alone bool) {
	t.Logf("%s", s.rule)
	t.Logf("outcome: %s", runScenario(t, s, alone))
}

// machines: an operator reads the BMC and gives his word.
var machines = []scenario{
	{
		name:    "vm-cut-off",
		rule:    "R1: the disk of a machine that is cut off and writes is not even asked for elsewhere",
		from:    "k/120328, NetApp/trident#691",
		options: bed.StageOptions{Machines: true, Array: trusting},
		story:   machineCutOff,
	},
	{
		name:        "vm-power-off",
		rule:        "R1: a machine whose power is cut in the middle of a write leaves the disk to the next, which goes on behind its last write",
		from:        "k/65392, k/50944",
		options:     bed.StageOptions{Machines: true, Array: trusting, Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}"},
		guardedOnly: true,
		story:       machinePowerOff,
	},
	{
		name:        "vm-hang",
		rule:        "R1: a machine that hangs has its disk, until it is off; then it does not write again",
		from:        "k/61832",
		options:     bed.StageOptions{Machines: true, Array: trusting, Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}"},
		guardedOnly: true,
		story:       machineHang,
	},
}

// machineFailovers: csi-fencepost asks the BMCs, fences and moves the pods.
var machineFailovers = []scenario{
	{
		name:        "vm-fo-off",
		rule:        "R1: without a human, the disk of a machine that lost power is the next one's, and the machine that returns has none",
		from:        "k/65392, k/50944",
		options:     bed.StageOptions{Machines: true, Failover: true, Array: trusting},
		guardedOnly: true,
		story:       machineReturns,
	},
	{
		name:        "vm-fo-cut",
		rule:        "R1: without a human, a machine that is cut off writes until its BMC has cut its power, and only then is its disk asked for elsewhere",
		from:        "k/120328, k/61832",
		options:     bed.StageOptions{Machines: true, Failover: true, Array: trusting},
		guardedOnly: true,
		story:       func(p *play) { machineFenced(p, (*bed.Node).CutOff, true) },
	},
	{
		name:        "vm-fo-hang",
		rule:        "R1: without a human, a machine that hangs is powered off and cannot go on",
		from:        "k/61832",
		options:     bed.StageOptions{Machines: true, Failover: true, Array: trusting},
		guardedOnly: true,
		story:       func(p *play) { machineFenced(p, (*bed.Node).Hang, false) },
	},
}

func machineCutOff(p *play) {
	v, db, old, next := p.databaseOnMachine()
	old.CutOff()
	old.WaitNotReady()
	unreachable := p.Array.Inject(array.Fault{Method: array.Unpublish, Do: array.Fail, Code: codes.Internal, Message: "cannot reach VM"})
	old.Taint(bed.OutOfServiceTaint)
	tainted := time.Now()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	if !p.guarded() {
		p.WaitFor(90*time.Second, "QEMU refuses the disk to the second machine", func() bool { return len(v.LockRefusals()) > 0 })
		refused := v.LockRefusals()[0]
		v.WaitGuestWrites(old, 20*time.Second)
		p.outcome("asked for on a second node %.1f s after the taint, while the first writes; only the disk's own lock said no: %s", refused.End.Sub(tainted).Seconds(), refused.Message)
		v.DiskVerdict(old)
		return
	}
	p.Log("refused: %s", v.WaitRefused(next, string(fence.UnpublishFailed), 30*time.Second))
	p.Never(10*time.Second, "the disk is asked for on a second machine", func() bool { return v.Asked(next) })
	v.WaitGuestWrites(old, 20*time.Second)

	old.IPMIOff()
	unreachable.Clear()
	p.movesOn(v, db2, next, "power and driver were back in order")
	v.DiskVerdict(old, next)
}

func machinePowerOff(p *play) {
	v, db, old, next := p.databaseOnMachine()
	old.IPMIOff()
	old.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	p.refusedFor(fence.HolderStale, v, old, next)
	p.notAsked(v, next)
	old.Confirm()
	p.movesOn(v, db2, next, "the operator's word")
	v.DiskVerdict(old, next)
}

func machineHang(p *play) {
	v, db, old, next := p.databaseOnMachine()
	old.Hang()
	written := v.GuestWrites(old)
	old.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	p.refusedFor(fence.HolderStale, v, old, next)
	p.notAsked(v, next)
	old.IPMIOff()
	old.Confirm()
	p.movesOn(v, db2, next, "the operator's word")
	p.cannotGoOn(v, old, written)
	v.DiskVerdict(old, next)
}

// machineReturns: the power goes and comes back, and the disk moves there and
// back.
func machineReturns(p *play) {
	p.StartFailover(p.BMCs())
	v, d, old, next := p.database()
	v.WaitGuestWrites(old, 30*time.Second)
	time.Sleep(12 * time.Second) // a lease renewal: the node is known to live
	old.PowerOff()
	off := time.Now()
	v.WaitPublished(next, 60*time.Second)
	d.WaitRunningOn(next, 60*time.Second)
	p.outcome("runs elsewhere %.1f s after the power went", time.Since(off).Seconds())
	v.WaitGuestWrites(next, 20*time.Second)

	old.IPMIOn()
	on := time.Now()
	old.WaitReady(3 * time.Minute)
	p.WaitFor(60*time.Second, "the out-of-service taint is off again", func() bool { return !old.Tainted(bed.OutOfServiceTaint.Key) })
	p.outcome("readmitted %.1f s after the power was back", time.Since(on).Seconds())
	v.WaitGuestWrites(next, 20*time.Second)
	next.Drain()
	d.WaitRunningOn(old, 120*time.Second)
	v.WaitGuestWrites(old, 20*time.Second)
	v.DiskVerdict(old, next, old)
}

// machineFenced: the node falls silent and has power; the failover cuts it.
func machineFenced(p *play, silence func(*bed.Node), writesOn bool) {
	p.StartFailover(p.BMCs(), "fenceAfter: 50s")
	v, d, old, next := p.database()
	v.WaitGuestWrites(old, 30*time.Second)
	time.Sleep(12 * time.Second) // a lease renewal: the node is known to live
	silence(old)
	silent, written := time.Now(), v.GuestWrites(old)
	p.WaitFor(90*time.Second, old.Name+" is fenced", func() bool {
		if asked := v.Asked(next); asked && old.HasPower() { // in this order
			p.t.Fatalf("%s was asked for on %s while %s had power", v.Name, next.Name, old.Name)
		}
		return !old.HasPower()
	})
	fenced := time.Since(silent)
	last := v.GuestWrites(old)
	if wrote := last > written; wrote != writesOn {
		p.t.Errorf("wrote between silence and fence: %v (%d and %d records), want %v", wrote, written, last, writesOn)
	}
	v.WaitPublished(next, 60*time.Second)
	moved := time.Since(silent) - fenced
	d.WaitRunningOn(next, 60*time.Second)
	p.outcome("off %.0f s after it fell silent, published elsewhere %.1f s later", fenced.Seconds(), moved.Seconds())
	v.WaitGuestWrites(next, 20*time.Second)
	p.cannotGoOn(v, old, last)
	v.DiskVerdict(old, next)
}

// databaseOnMachine is a pod on the first node, whose guest writes.
func (p *play) databaseOnMachine() (v *bed.Volume, db *bed.Pod, old, next *bed.Node) {
	p.t.Helper()
	v, old, next = p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db = p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	v.WaitGuestWrites(old, 30*time.Second)
	return v, db, old, next
}

// notAsked fails if the disk was ever asked for on that machine: it is not its
// lock that has kept the machine from it.
func (p *play) notAsked(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	if v.Asked(n) {
		p.t.Errorf("the driver was called to attach %s to %s", v.Name, n.Name)
	}
}

// movesOn waits until the volume is on the next node and its guest writes.
func (p *play) movesOn(v *bed.Volume, pod *bed.Pod, to *bed.Node, since string) {
	p.t.Helper()
	p.moves(v, pod, to, since)
	v.WaitGuestWrites(to, 20*time.Second)
	if refused := v.LockRefusals(); len(refused) > 0 {
		p.t.Errorf("QEMU's lock had to say no: %v", refused)
	}
}

// cannotGoOn: a machine that hung, or was cut off, is off for good.
func (p *play) cannotGoOn(v *bed.Volume, n *bed.Node, written int) {
	p.t.Helper()
	if err := n.GoOn(); err == nil || !strings.Contains(err.Error(), "is off") {
		p.t.Errorf("%s was to be off, and goes on: %v", n.Name, err)
	}
	p.Never(3*time.Second, "the machine that was off has written", func() bool { return v.GuestWrites(n) > written })
}
