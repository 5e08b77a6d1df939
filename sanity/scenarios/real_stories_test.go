package scenarios

import (
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// realStories are those that no hollow node can play: of containers that do not end,
// disks that do not answer, and what a restarted kubelet makes of both.
var realStories = []scenario{
	{
		name:    "real-deaf",
		rule:    "R1: a container that SIGTERM does not end writes on until it is killed, and nobody else has its volume until then",
		from:    "k/61832",
		options: bed.StageOptions{Real: true, Array: holding},
		story: func(p *play) {
			const grace = 20 * time.Second
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.DeafPod("db", old, grace, v)
			db.WaitRunning(60 * time.Second)
			p.mustWriteOn(v, old)
			db.Terminate()
			deleted := time.Now()
			db2 := p.Pod("db2", next, v)
			p.mustKeepWriting(v, old, grace-5*time.Second)
			db2.WaitRunning(60 * time.Second)
			p.outcome("moved %.1f s after the deletion of a pod whose container wrote on for its %.0f s", time.Since(deleted).Seconds(), grace.Seconds())
		},
	},
	{
		name:    "real-hung",
		rule:    "R1: a partitioned node whose disk hangs keeps its volume: what it was about to write it writes when the disk answers again",
		from:    "k/61832, ceph/ceph-csi#5409",
		options: bed.StageOptions{Real: true, Array: holding},
		story: func(p *play) {
			v, db, old, next := p.written()
			v.Hang(old)
			cut := p.partition(old)
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, cut, "the partition began")
				v.GoOn(old)
				return
			}
			p.Log("refused: %s", v.WaitRefused(next, string(fence.HolderStale), p.patience()))
			p.Never(10*time.Second, "the volume was taken from the node whose disk hangs", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
			v.GoOn(old)
			p.mustWriteOn(v, old)
			old.PowerOff()
			old.Confirm()
			p.moves(v, db2, next, "the operator's word that the power is off")
		},
	},
	{
		name:    "real-hung-lost",
		rule:    "R2: a kubelet that has forgotten a volume whose disk hangs is not believed: the container that it cannot end writes when the disk answers again",
		from:    "k/120328, piraeusdatastore/linstor-csi#89",
		options: bed.StageOptions{Real: true, Array: holding},
		story: func(p *play) {
			v, db, old, next := p.written()
			v.Hang(old)
			p.forgotten(v, db, old, next)
			if !p.guarded() {
				v.GoOn(old)
			}
		},
	},
	{
		name:    "real-hung-ready",
		stage:   "real-hung-r",
		rule:    "R6: a node that lives and whose disk hangs gives its volume away when the disk answers again, without an operator",
		from:    "k/61832",
		options: bed.StageOptions{Real: true, Array: holding},
		story: func(p *play) {
			v, db, old, next := p.written()
			v.Hang(old)
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			p.Never(p.Bed.Clocks.ForceDetachAfter+30*time.Second, "the volume was taken from the node whose disk hangs", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
			v.GoOn(old)
			p.outcome("moved %.1f s after the disk answered again", db2.WaitRunning(120*time.Second).Seconds())
		},
	},
	{
		name:    "real-runtime",
		rule:    "R6: a node whose container runtime was away gives the volume of a pod that was deleted meanwhile away once the runtime is back",
		from:    "k/61832",
		options: bed.StageOptions{Real: true, Array: holding},
		story: func(p *play) {
			v, db, old, next := p.withoutRuntime()
			away := time.Now()
			db.Terminate()
			db2 := p.Pod("db2", next, v)
			p.Never(p.Bed.Clocks.ForceDetachAfter+10*time.Second, "the volume was taken from the node whose container writes", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
			p.mustWriteOn(v, old)
			// So that the kubelet, which writes its status every 10 s, says Ready and lets the
			// volume go in one of them, as about one in three does.
			time.Sleep(time.Until(away.Add(31 * time.Second)))
			old.StartRuntime()
			p.outcome("moved %.1f s after the runtime was back", db2.WaitRunning(120*time.Second).Seconds())
		},
	},
	{
		name:    "real-runtime-f",
		rule:    "R1: a node whose container runtime is away keeps the volume of a pod that was deleted by force, whose container writes on",
		from:    "k/61832",
		options: bed.StageOptions{Real: true, Array: holding},
		story: func(p *play) {
			v, db, old, next := p.withoutRuntime()
			db.ForceDelete()
			forced := time.Now()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, forced, "the pod was deleted by force")
				return
			}
			p.Log("refused: %s", v.WaitRefused(old, string(fence.HolderAlive), p.Bed.Clocks.ForceDetachAfter+90*time.Second))
			p.mustKeepWriting(v, old, 10*time.Second)
			// As a database takes its time to end. A kubelet that has unmounted before it
			// was heard for a while is not believed (docs/design/architecture.md, Limits).
			ending := v.Busy(old)
			old.StartRuntime()
			p.seenInUse(v, old)
			ending.Clear()
			p.outcome("refused while the container wrote; moved %.1f s after it could be unmounted", db2.WaitRunning(120*time.Second).Seconds())
		},
	},
	{
		name:    "real-outlives",
		rule:    "R1: a container that outlives the unmount of its volume keeps it, where the driver does not unstage a volume whose block device is in use",
		from:    "k/120328",
		options: bed.StageOptions{Real: true, Array: holding, GivesDeviceBack: true},
		story: func(p *play) {
			v, db, old, next := p.written()
			p.settled(old)
			p.outlived(db, old)
			db2 := p.Pod("db2", next, v)
			p.Never(p.Bed.Clocks.ForceDetachAfter+20*time.Second, "the volume was taken from the node whose container writes", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) || !v.Told(old) })
			old.LetContainersEnd()
			p.outcome("moved %.1f s after the container could be ended", db2.WaitRunning(200*time.Second).Seconds())
		},
	},
	{
		name:    "real-reboot",
		rule:    "R6: a machine that reboots has its pod and its volume again, and gives them away later",
		options: bed.StageOptions{Real: true, Array: holding},
		story: func(p *play) {
			v, db, old, next := p.written()
			old.PowerOff()
			off := time.Now()
			old.Boot()
			p.WaitFor(60*time.Second, "the pod runs", db.Running)
			p.mustWriteOn(v, old)
			p.outcome("wrote again %.1f s after the power went", time.Since(off).Seconds())
			p.settled(old)
			_, took := p.move(db, v, next)
			p.outcome("moved in %.1f s later", took.Seconds())
		},
	},
	restart{slow: true}.scenario("real-slow"),
	restart{forced: true}.scenario("real-gone"),
	restart{forced: true, slow: true}.scenario("real-gone-slow"),
}

// restart of a kubelet whose container writes: real-again, real-forget and real-quick are
// three more.
type restart struct {
	slow   bool // it is NotReady meanwhile
	forced bool // its pod was deleted by force meanwhile
}

func (r restart) scenario(name string) scenario {
	rule := "R6: a kubelet that restarts"
	if r.slow {
		rule += ", after it was NotReady,"
	}
	if r.forced {
		rule += " and finds its pod deleted by force gives the volume away without an operator"
	} else {
		rule += " keeps its pod, and gives its volume away later"
	}
	return scenario{name: name, rule: rule, from: "k/120328", options: bed.StageOptions{Real: true, Array: holding}, story: r.play}
}

func (r restart) play(p *play) {
	v, db, old, next := p.written()
	p.settled(old)
	old.KillKubelet()
	if r.slow {
		old.WaitNotReady()
	}
	p.mustWriteOn(v, old)
	var db2 *bed.Pod
	if r.forced {
		db.ForceDelete()
		db2 = p.Pod("db2", next, v)
	}
	old.StartKubelet()
	began := time.Now()
	if r.forced {
		db2.WaitRunning(90 * time.Second)
		p.outcome("moved %.1f s after the kubelet was back", time.Since(began).Seconds())
		return
	}
	p.Never(8*time.Second, "the pod or its volume is gone after a restart of the kubelet", func() bool { return !db.Running() || !v.AttachedTo(old) })
	p.mustWriteOn(v, old)
	p.settled(old)
	_, took := p.move(db, v, next)
	p.outcome("moved in %.1f s after the kubelet's restart", took.Seconds())
}

// outlived has the kubelet restart and find its pod deleted by force, and nobody be able
// to end the pod's container.
func (p *play) outlived(db *bed.Pod, n *bed.Node) {
	p.t.Helper()
	n.KillKubelet()
	if n.Real() {
		n.HoldContainers()
	}
	db.ForceDelete()
	n.StartKubelet()
}

// settled waits until the kubelet is Ready for so long that it is believed (docs/design/architecture.md, Limits).
func (p *play) settled(n *bed.Node) {
	p.t.Helper()
	p.WaitFor(60*time.Second, "the kubelet is Ready for a while", func() bool { return n.Ready() && time.Since(n.ReadySince()) > 5*time.Second })
}

// written is a database that writes to its volume on the first node.
func (p *play) written() (v *bed.Volume, db *bed.Pod, old, next *bed.Node) {
	p.t.Helper()
	v, old, next = p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db = p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	p.mustWriteOn(v, old)
	return v, db, old, next
}

// withoutRuntime is a database on a node whose container runtime was killed, and which is
// NotReady for that.
func (p *play) withoutRuntime() (v *bed.Volume, db *bed.Pod, old, next *bed.Node) {
	p.t.Helper()
	v, db, old, next = p.written()
	// For less than observe.SyncTime nobody tells a kubelet that has let go from one that
	// has forgotten.
	time.Sleep(45 * time.Second)
	old.KillRuntime()
	p.Log("%s is NotReady %s after its runtime was killed", old.Name, old.WaitNotReady().Round(100*time.Millisecond))
	p.mustWriteOn(v, old)
	return v, db, old, next
}
