package scenarios

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// field: what users report that none of the others plays.
var field = []scenario{
	{
		name:    "silent-move",
		rule:    "R1: a driver that moves a volume with every publish is not called while the old node may write, and no VolumeAttachment is left in a deadlock",
		from:    "cloudscale-ch/csi-cloudscale#143",
		options: bed.StageOptions{Array: func(s *array.Switches) { s.PublishMoves = true }},
		story:   silentMove,
	},
	{
		name:    "kcm-change",
		rule:    "R2: a change of the controller-manager's leader takes no volume from a node that writes, silent or well",
		from:    "k/104169",
		options: bed.StageOptions{Nodes: 3, Array: trusting},
		ownBed:  true,
		story:   leaderChange,
	},
	{
		name:    "unseen-detach",
		rule:    "R1: a detach that the controller reports, and that no driver ever saw, does not free the volume of a node that writes",
		from:    "k/116663",
		options: bed.StageOptions{Array: unlisting},
		story:   unseenDetach,
	},
	{
		name:    "renamed",
		rule:    "R2: what a renamed node left behind takes nothing from that machine under its new name, and is not stuck for ever",
		from:    "kubernetes/cloud-provider-openstack#1003",
		options: bed.StageOptions{Array: unlisting},
		story:   renamedNode,
	},
	{
		name:    "back-off",
		rule:    "R6: a volume that is free to move does not wait for the attacher's back-off",
		from:    "longhorn/longhorn-manager#5171",
		options: bed.StageOptions{AttacherArgs: []string{"--retry-interval-start=3m", "--retry-interval-max=3m"}},
		story:   backOff,
	},
	{
		name:    "block",
		rule:    "R1: a raw block volume for one node is guarded as a filesystem is",
		from:    "k/120328",
		options: bed.StageOptions{Array: trusting},
		story:   rawBlock,
	},
	{
		name:    "rwx",
		rule:    "R3: a ReadWriteMany filesystem on two nodes is no business of ours, also when one of them is cut off",
		from:    "democratic-csi/democratic-csi#285",
		options: bed.StageOptions{Array: trusting},
		story:   sharedFilesystem,
	},
}

// fieldFailovers need fence agents.
var fieldFailovers = []scenario{
	{
		name:    "array-outage",
		rule:    "R6: an outage of the storage's control plane makes no node look dead: nothing is fenced, tainted or moved",
		from:    "dell/csm#1766, dell/csm#765",
		options: bed.StageOptions{Failover: true},
		story:   storageOutage,
	},
	{
		name:    "wrong-client",
		rule:    "R1: a fence that would also cut off another node is not made, and says whom it would have hit",
		from:    "rook/rook#14832, rook/rook#7954",
		options: bed.StageOptions{Failover: true, Array: cuttable},
		story:   wrongClient,
	},
}

func silentMove(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	old.CutOff()
	old.WaitNotReady()
	unreachable := p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.Internal, Message: "cannot reach VM"})
	old.Taint(bed.OutOfServiceTaint)
	tainted := time.Now()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	if !p.guarded() {
		p.given(v, next, tainted, "the taint")
		p.attachmentStays(v, old)
		return
	}
	p.Log("refused: %s", v.WaitRefused(next, string(fence.UnpublishFailed), 30*time.Second))
	p.Never(10*time.Second, "the driver moved the volume", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
	p.mustWriteOn(v, old)
	if n := v.Calls(array.Publish, next, tainted); n != 0 {
		p.t.Errorf("the driver was asked %d times to publish to %s while %s could write", n, next.Name, old.Name)
	}
	old.PowerOff()
	unreachable.Clear()
	p.moves(v, db2, next, "power was off and the driver in order")
	p.attachmentGoes(v, old)
}

// leaderChange: a new leader of the controller-manager knows nothing but what the
// API says. One node is cut off and writes, its pod is gone; another is well.
func leaderChange(p *play) {
	v, calm := p.Volume("disk", bed.VolumeOptions{}), p.Volume("calm", bed.VolumeOptions{})
	old, next, well := p.Nodes[0], p.Nodes[1], p.Nodes[2]
	db, app := p.Pod("db", old, v), p.Pod("app", well, calm)
	db.WaitRunning(60 * time.Second)
	app.WaitRunning(60 * time.Second)
	old.CutOff()
	old.WaitNotReady()
	p.Bed.Cluster.StopControllerManager()
	db.ForceDelete() // between two leaders: the new one never heard of the pod
	db2 := p.TolerantPod("db2", next, v)
	p.must(p.Bed.Cluster.StartControllerManager(p.t.Context()))
	led := time.Now()
	if !p.guarded() {
		p.given(v, next, led, "the new leader began")
	} else {
		p.stands(v, old, next, db2, fence.HolderStale)
		old.PowerOff()
		old.Taint(bed.OutOfServiceTaint)
		p.moves(v, db2, next, "the operator's taint")
	}
	p.mustWriteOn(calm, well)
	if n := calm.Calls(array.Unpublish, well, time.Time{}); n > 0 || !app.Running() {
		p.outcome("the healthy node lost its volume too")
		p.t.Errorf("the new leader had the healthy node's volume unpublished %d times", n)
	}
}

// unseenDetach: a VolumeAttachment has lost the attacher's finalizer, so that it
// is gone at once when the controller deletes it, and the driver sees nothing.
func unseenDetach(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	v.TakeFinalizer(old)
	old.CutOff()
	old.WaitNotReady()
	db.ForceDelete()
	deleted := time.Now()
	db2 := p.Pod("db2", next, v)
	if !p.guarded() {
		p.given(v, next, deleted, "the pod was deleted")
		return
	}
	p.WaitFor(p.patience(), "the controller reports a detach", func() bool { return v.Attachment(old) == nil })
	p.stands(v, old, next, db2, fence.HolderStale)
	old.PowerOff()
	old.Taint(bed.OutOfServiceTaint)
	p.moves(v, db2, next, "the operator's taint")
}

// renamedNode: a machine comes back after a reboot with another host name. To the
// driver it is the same machine; of the old name nothing is left that could say
// that it has let go.
func renamedNode(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	old.PowerOff()
	old.WaitNotReady()
	old.Delete()
	db.ForceDelete()
	p.must(p.Array.PowerOn(old.ID))
	renamed := p.Rename(old, "n1-renamed")
	back := time.Now()
	db = p.Pod("db", renamed, v)
	if !p.guarded() {
		_, runs := p.within(p.patience(), "the pod runs under the node's new name", db.Running)
		p.outcome("%s under the node's new name %.0f s after it was back", either(runs, "runs", "does not run"), time.Since(back).Seconds())
		p.attachmentStays(v, old)
		return
	}
	// Its kubelet says under the new name that it wants the volume, and is the one
	// whose word counts for the disk that the old name's VolumeAttachment is about.
	db.WaitRunning(p.patience())
	p.outcome("runs under the node's new name %.1f s after it was back", time.Since(back).Seconds())
	p.Never(15*time.Second, "the volume was taken from the renamed machine for its old name's sake", func() bool { return !v.AttachedTo(renamed) })
	p.mustWriteOn(v, renamed)
	// Its detach would keep the controller from any other of this volume.
	p.attachmentGoes(v, old)
	db.Delete()
	p.outcome("moved on %.1f s after its pod was deleted", p.Pod("db2", next, v).WaitRunning(90*time.Second).Seconds())
}

// backOff: the attacher's back-off begins with 3 minutes, as after an hour of
// refusals.
func backOff(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(4 * time.Minute) // a conflict has its back-off too
	old.CutOff()
	old.WaitNotReady()
	if !p.guarded() {
		// What refuses there is the driver, until it is in order again.
		busy := p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.Internal, Message: "busy"})
		old.PowerOff()
		old.Taint(bed.OutOfServiceTaint)
		db.ForceDelete()
		db2 := p.Pod("db2", next, v)
		p.WaitFor(60*time.Second, "the driver refuses", func() bool { return busy.Hits() > 0 })
		busy.Clear()
		took := db2.WaitRunning(10 * time.Minute)
		p.outcome("runs elsewhere %.0f s after the driver was in order", took.Seconds())
		return
	}
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	p.stands(v, old, next, db2, fence.HolderStale)
	old.PowerOff()
	old.Taint(bed.OutOfServiceTaint)
	p.moves(v, db2, next, "the operator's taint")
}

// rawBlock: the kubelets of the test bed map no block devices, so the pods do not
// run; the driver has published the device to the container, which writes.
func rawBlock(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{Block: true}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	p.WaitFor(60*time.Second, "the device is written to", func() bool { return v.Writing(old) })
	old.CutOff()
	cut := time.Now()
	old.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	if !p.guarded() {
		p.given(v, next, cut, "the node went silent")
		return
	}
	p.stands(v, old, next, db2, fence.HolderStale)
	old.PowerOff()
	old.Taint(bed.OutOfServiceTaint)
	proof := time.Now()
	v.WaitPublished(next, 60*time.Second)
	p.outcome("refused, then published elsewhere %.1f s after the operator's taint", time.Since(proof).Seconds())
}

func sharedFilesystem(p *play) {
	v := p.Volume("disk", bed.VolumeOptions{Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
	old, next := p.Nodes[0], p.Nodes[1]
	one, two := p.Pod("one", old, v), p.Pod("two", next, v)
	one.WaitRunning(60 * time.Second)
	two.WaitRunning(60 * time.Second)
	old.CutOff()
	old.WaitNotReady()
	one.ForceDelete()
	cut := time.Now()
	p.WaitFor(p.patience(), "the volume is detached from the silent node", func() bool { return !v.AttachedTo(old) })
	p.mustWriteOn(v, next)
	if text := v.Ledger(); text != "" {
		p.t.Errorf("a ledger was written for it: %s", text)
	}
	p.outcome("the other node writes on; detached from the silent one %.0f s after its pod was deleted", time.Since(cut).Seconds())
}

func storageOutage(p *play) {
	p.StartFailover(p.BMCs(), fenceAfter, "maxUnhealthy: 40%")
	v, d, old, next := p.database()
	time.Sleep(renewal)
	pods := p.podsOn(old)
	p.Array.Stop() // the driver's controller; the data path works on
	p.Never(65*time.Second, "a node was touched because the storage's control plane is away", func() bool {
		return p.touchedAny(p.Nodes) || !v.AttachedTo(old)
	})
	p.mustWriteOn(v, old)
	p.sameAs(pods, old)
	p.serveDriver()
	back := time.Now()
	d.MoveTo(next)
	d.WaitRunningOn(next, 150*time.Second) // kubelet and attacher have to notice
	p.outcome("nothing was fenced in 65 s; an ordinary move took %.1f s after the outage", time.Since(back).Seconds())
}

// wrongClient: to the storage, the silent node has the address of another one, as
// behind a pod network or one gateway.
func wrongClient(p *play) {
	p.StartFailover(p.storageAgent(), fenceAfter)
	v, d, old, next := p.database()
	const shared = "203.0.113.7"
	next.SayExternalIP(shared)
	p.must(p.Array.SetAddresses(old.ID, shared))
	p.must(p.Array.SetAddresses(next.ID, shared))
	time.Sleep(renewal)
	old.CutOff()
	if !p.guarded() {
		old.WaitNotReady()
		p.outcome("stays on the node that nobody hears: nobody fences it")
		return
	}
	text := ""
	p.WaitFor(cutWithin, "the record says why the node is not fenced", func() bool {
		if p.Array.CutOff(next.ID) {
			p.t.Fatal("a fence hit a node that is well")
		}
		text = fmt.Sprint(p.fencesOf(old))
		return strings.Contains(text, "would also cut off node "+next.Name) && strings.Contains(text, shared)
	})
	p.Log("on record: %s", text)
	p.Never(15*time.Second, "a fence hit a node that is well", func() bool { return len(p.Array.Fences()) > 0 || p.Array.CutOff(next.ID) })
	p.mustWriteOn(v, old)
	// Once the storage can tell them apart, the fence is made.
	p.giveAddress(next)
	p.giveAddress(old)
	p.waitCutOff(old)
	cut := time.Now()
	v.WaitPublished(next, p.patience())
	d.WaitRunningOn(next, 60*time.Second)
	p.mustWriteOn(v, next)
	p.outcome("not fenced while that would have hit another node; published elsewhere %.1f s after the fence", time.Since(cut).Seconds())
}
