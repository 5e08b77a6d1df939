package scenarios

import (
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// crashes: csi-fencepost itself fails, or there are two of it.
var crashes = []scenario{
	{
		name: "crash-takeover",
		rule: "R4: killed at every step of a takeover, csi-fencepost goes on from there",
		options: bed.StageOptions{Crashes: true, Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}",
			// An array that would let two nodes have it, and does not say who has.
			Array: func(s *array.Switches) { s.EnforceSingleAttach, s.ListPublishedNodes = false, false }},
		guardedOnly: true,
		story:       crashTakeover,
	},
	{
		name: "crash-move",
		rule: "R4: killed at every step of an ordinary move, csi-fencepost goes on from there",
		options: bed.StageOptions{Crashes: true,
			Array: func(s *array.Switches) { s.EnforceSingleAttach, s.ListPublishedNodes = false, false }},
		guardedOnly: true,
		story:       crashMove,
	},
	{
		name: "twins",
		rule: "R1: two csi-fenceposts that both serve never let a volume have two holders",
		options: bed.StageOptions{Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}",
			Array: func(s *array.Switches) { s.EnforceSingleAttach, s.ListPublishedNodes = false, false }},
		guardedOnly: true,
		story:       twins,
	},
}

// around are the points before and after each effect.
func around(effects ...string) (points []string) {
	for _, e := range effects {
		points = append(points, "before:"+e, "after:"+e)
	}
	return points
}

// crashedAt fails for each point at which the process was not ended.
func (p *play) crashedAt(points []string) {
	p.t.Helper()
	for _, point := range points {
		if !p.CrashedAt(point) {
			p.t.Errorf("csi-fencepost was to be killed %s, and that point never came", point)
		}
	}
}

func crashTakeover(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)

	// The refusal first: the force detach of a node that is cut off and writes.
	refusal := around("contest")
	p.CrashAt(refusal...)
	old.CutOff()
	old.WaitNotReady()
	db.ForceDelete()
	p.Log("refused: %s", v.WaitRefused(old, string(fence.HolderStale), p.Bed.Clocks.ForceDetachAfter+120*time.Second))
	p.crashedAt(refusal)
	p.mustWriteOn(v, old)
	if !v.AttachedTo(old) {
		p.t.Fatal("the volume left the node that writes to it")
	}

	// Its VolumeAttachment is stripped, so that nothing but the publish can
	// take the volume from it.
	v.StripAttachment(old)
	db2 := p.Pod("db2", next, v)
	p.Log("refused: %s", v.WaitRefused(next, string(fence.HolderStale), p.Bed.Clocks.ForceDetachAfter+120*time.Second))
	if v.AttachedTo(next) {
		p.t.Fatal("published to a second node")
	}
	old.PowerOff()
	// Before the word is given: on a busy machine the takeover may be over within
	// the time that it takes to begin the process anew.
	takeover := around("wake", "leaving", "unpublish", "record", "publish", "answer")
	p.CrashAt(takeover...)
	old.Confirm()
	p.Log("the node is off, and confirmed to be")
	began := time.Now()
	p.WaitFor(8*time.Minute, "all steps of the takeover", func() bool { return p.CrashedAt("after:answer") || db2.Running() })
	p.crashedAt(takeover)
	p.outcome("killed %d times, %.0f s", len(takeover)+len(refusal), time.Since(began).Seconds())
	// The kubelet has found the volume not attached all the while, and doubles its pause
	// between two looks up to two minutes (kubernetes/pkg/util/goroutinemap/exponentialbackoff).
	db2.WaitRunning(150 * time.Second)
	v.WaitPublished(next, 30*time.Second)
	p.heldBy(v, next)
}

func crashMove(p *play) {
	v := p.Volume("disk", bed.VolumeOptions{})
	points := around("leaving", "unpublish", "cut", "record", "publish", "answer")
	db := p.Pod("db", p.Nodes[0], v)
	db.WaitRunning(60 * time.Second)
	p.CrashAt(points...)
	began := time.Now()
	for i := 1; !p.CrashedAt(points[len(points)-1]); i++ {
		if i > 2*len(points) {
			p.t.Fatalf("after %d moves it has not been killed at every step", i)
		}
		from, to := p.Nodes[(i+1)%2], p.Nodes[i%2]
		db.Delete()
		// Nobody asks for the volume yet: a publish elsewhere would finish the
		// unpublish that the crash cut short.
		p.WaitFor(2*time.Minute, "the volume has left "+from.Name, func() bool { return v.Attachment(from) == nil })
		db = p.Pod("db", to, v)
		db.WaitRunning(2 * time.Minute)
		v.WaitPublished(to, 10*time.Second)
		p.heldBy(v, to)
	}
	p.crashedAt(points)
	p.outcome("killed %d times in moves that took %.0f s", len(points), time.Since(began).Seconds())
}

// twins: two attachers without an election, each with a csi-fencepost of its own.
func twins(p *play) {
	p.ExtraFencepost("fp2")
	p.StartAttacherOn("fp2.sock")
	a, b := p.Nodes[0], p.Nodes[1]

	// An ordinary move, played by both.
	v := p.Volume("disk", bed.VolumeOptions{})
	db := p.Pod("db", a, v)
	db.WaitRunning(60 * time.Second)
	db, took := p.move(db, v, b)
	p.outcome("moved in %.1f s", took.Seconds())
	p.heldBy(v, b)

	// Both nodes ask at once, again and again.
	contested := p.Volume("contested", bed.VolumeOptions{})
	const rounds = 15
	for range rounds {
		p.race(contested, a, b)
	}
	p.outcome("%d races, one winner each", rounds)

	b.CutOff()
	b.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", a, v)
	p.Log("refused: %s", v.WaitRefused(b, string(fence.HolderStale), p.Bed.Clocks.ForceDetachAfter+60*time.Second))
	p.Log("refused: %s", v.WaitRefused(a, string(fence.HolderStale), 60*time.Second))
	p.mustWriteOn(v, b)
	p.Never(5*time.Second, "the volume left the node that writes to it", func() bool { return !v.AttachedTo(b) || v.AttachedTo(a) })
	b.PowerOff()
	b.Confirm()
	proof := time.Now()
	db2.WaitRunning(60 * time.Second)
	v.WaitPublished(a, 10*time.Second)
	p.heldBy(v, a)
	p.outcome("moved %.1f s after the operator's word", time.Since(proof).Seconds())
}

// race has Kubernetes ask for the volume on both nodes in the same instant, as
// no controller should. One of them gets it; when that one gives it back, the
// other does.
func (p *play) race(v *bed.Volume, a, b *bed.Node) {
	p.t.Helper()
	var wait sync.WaitGroup
	for _, n := range []*bed.Node{a, b} {
		wait.Go(func() { p.attach(v, n) })
	}
	wait.Wait()
	both := func() bool { return p.attached(v, a) && p.attached(v, b) }
	p.WaitFor(30*time.Second, "one of two nodes has the volume", func() bool { return p.attached(v, a) || p.attached(v, b) })
	p.Never(500*time.Millisecond, "two nodes hold the volume", both)
	first, second := a, b
	if p.attached(v, b) {
		first, second = b, a
	}
	v.WaitPublished(first, 10*time.Second)
	p.detach(v, first)
	p.WaitFor(60*time.Second, "the other node has the volume", func() bool { return p.attached(v, second) })
	v.WaitPublished(second, 10*time.Second)
	p.detach(v, second)
	// An attacher that does not know yet that its VolumeAttachment is gone may
	// publish once more: the orphan that this leaves is released by the next race.
	p.WaitFor(60*time.Second, "nobody asks for the volume any more, and at most one node has it", func() bool {
		return len(p.Array.Attached(v.Handle)) <= 1 && v.Attachment(a) == nil && v.Attachment(b) == nil
	})
}

// attach asks for the volume on a node by a VolumeAttachment.
func (p *play) attach(v *bed.Volume, n *bed.Node) {
	_, err := p.Client.StorageV1().VolumeAttachments().Create(p.t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(v.Handle, p.Driver, n.Name)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: p.Driver, NodeName: n.Name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		p.t.Errorf("VolumeAttachment: %v", err)
	}
}

func (p *play) detach(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	err := p.Client.StorageV1().VolumeAttachments().Delete(p.t.Context(), csi.AttachmentName(v.Handle, p.Driver, n.Name), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		p.t.Fatal(err)
	}
}

func (p *play) attached(v *bed.Volume, n *bed.Node) bool {
	va := v.Attachment(n)
	return va != nil && va.DeletionTimestamp.IsZero() && va.Status.Attached
}
