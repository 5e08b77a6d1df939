package scenarios

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/pace"
)

// operators: what a person says, with the commands as they are typed.
var operators = []scenario{
	{
		name:        "confirm",
		rule:        "R5: an operator's word that a node is off moves its volumes at once, and can be taken back before",
		from:        "k/65392, k/50944, hetznercloud/csi-driver#164",
		options:     bed.StageOptions{Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}"},
		guardedOnly: true,
		story:       confirmed,
	},
	{
		name:        "release",
		rule:        "R5: an operator's word about one volume moves that volume, and no other",
		options:     bed.StageOptions{Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}"},
		guardedOnly: true,
		story:       released,
	},
	{
		name:        "release-old",
		rule:        "R1: an operator's word about one incident is none about the next, whatever the node did in between",
		options:     bed.StageOptions{Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}"},
		guardedOnly: true,
		story:       releasedBefore,
	},
	{
		name:        "borrowed-id",
		rule:        "R1: what is proven of a node that says another one's node ID and system UUID of itself frees nothing that the other has",
		options:     bed.StageOptions{Config: "fencing: {suspectAfter: 12s, maxUnhealthy: 100%}"},
		guardedOnly: true,
		story:       borrowedID,
	},
}

// explains runs `csi-fencepost explain pv` and fails unless it says all of parts.
func (p *play) explains(v *bed.Volume, parts ...string) {
	p.t.Helper()
	out := strings.Join(strings.Fields(p.Command("explain", "pv", v.Name, "--observe=14s")), " ")
	for _, part := range parts {
		if !strings.Contains(out, part) {
			p.t.Errorf("explain pv %s does not say %q:\n%s", v.Name, part, out)
		}
	}
}

// refusedFor waits until the old node's unpublish and the next one's publish
// were both refused for that reason, with the old node writing on or off.
func (p *play) refusedFor(reason fence.Reason, v *bed.Volume, old, next *bed.Node) {
	p.t.Helper()
	p.Log("refused: %s", v.WaitRefused(old, string(reason), p.Bed.Clocks.ForceDetachAfter+60*time.Second))
	p.Log("refused: %s", v.WaitRefused(next, string(reason), 60*time.Second))
	if !v.AttachedTo(old) || v.AttachedTo(next) {
		p.t.Fatalf("%s was to stay on %s; it is attached to %q", v.Name, old.Name, p.Array.Attached(v.Handle))
	}
}

func confirmed(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	p.explains(v, old.Name, old.ID, "is alive and may be writing to it", "REFUSED [HolderAlive]", "kubectl drain "+old.Name)
	if out, err := p.TryCommand("fence", "confirm", old.Name, "--yes", "--reason=a mistake"); err == nil || !strings.Contains(err.Error(), "is alive: its kubelet has just renewed its lease") || !strings.Contains(err.Error(), "Nothing was written") {
		p.t.Fatalf("a living node was to be refused: %v %s", err, out)
	}

	old.PowerOff()
	old.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	p.refusedFor(fence.HolderStale, v, old, next)
	p.WaitEvent("Pod", "db2", 30*time.Second, old.Name, "fence confirm "+old.Name)
	p.explains(v, old.Name, "has stopped renewing its lease", "REFUSED [HolderStale]", "csi-fencepost fence confirm "+old.Name)

	// Said, and taken back before anybody used it.
	p.StopAttacher()
	old.Confirm()
	p.explains(v, old.Name, "is fenced (OperatorConfirmation", "it is free to move", "(pulled the power cord), ", " ago: counts")
	p.Command("fence", "withdraw", old.Name, "--reason=the wrong rack")
	p.explains(v, "REFUSED [HolderStale]")
	p.StartAttacher()
	p.Never(10*time.Second, "the volume moved on a word that was taken back", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
	p.refusedFor(fence.HolderStale, v, old, next)

	// Said for good.
	old.Confirm()
	said, watch := time.Now(), pace.Start()
	v.WaitPublished(next, 10*time.Second)
	moved, counted := time.Since(said), watch.Counted()
	db2.WaitRunning(30 * time.Second)
	p.outcome("published elsewhere %.1f s after the operator's word, pod Running after %.1f s", moved.Seconds(), time.Since(said).Seconds())
	if counted > 5*time.Second {
		p.t.Errorf("the volume took %s to move after the operator's word, %s of which the machine had for it", moved, counted)
	}
	if audit := p.Command("fence", "status", old.Name); !strings.Contains(audit, "pulled the power cord") || !strings.Contains(audit, "the wrong rack") {
		p.t.Errorf("fence status does not show the audit trail:\n%s", audit)
	}
}

// released: the node stays cut off and writes on; one of its disks was taken
// from it by hand, at the array.
func released(p *play) {
	one, other, later := p.Volume("one", bed.VolumeOptions{}), p.Volume("other", bed.VolumeOptions{}), p.Volume("later", bed.VolumeOptions{})
	old, next := p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, one, other, later)
	db.WaitRunning(60 * time.Second)
	if out, err := p.TryCommand("release", "pv", one.Name, "--node", old.Name, "--reason=a mistake"); err == nil || !strings.Contains(err.Error(), "lists it in volumesInUse") {
		p.t.Fatalf("a volume in use was to stay: %v %s", err, out)
	}
	old.CutOff()
	old.WaitNotReady()
	db.ForceDelete()
	db1, db2 := p.Pod("db1", next, one), p.Pod("db2", next, other)
	for _, v := range []*bed.Volume{one, other} {
		p.refusedFor(fence.HolderStale, v, old, next)
		p.mustWriteOn(v, old)
	}

	if err := p.Array.Detach(one.Handle, old.ID); err != nil {
		p.t.Fatal(err)
	}
	p.Command("release", "pv", one.Name, "--node", old.Name, "--reason=unmapped at the array")
	said := time.Now()
	one.WaitPublished(next, 10*time.Second)
	db1.WaitRunning(60 * time.Second)
	p.outcome("the one volume moved %.1f s after the operator's word", time.Since(said).Seconds())

	// Released while nobody waits for it: Kubernetes' own detach takes it off.
	later.WaitRefused(old, string(fence.HolderStale), 30*time.Second)
	if err := p.Array.Detach(later.Handle, old.ID); err != nil {
		p.t.Fatal(err)
	}
	p.Command("release", "pv", later.Name, "--node", old.Name, "--reason=unmapped at the array")
	p.WaitFor(10*time.Second, "the released volume's detach", func() bool { return later.Attachment(old) == nil })
	p.Pod("db3", next, later).WaitRunning(60 * time.Second)

	p.mustWriteOn(other, old)
	p.Never(5*time.Second, "a volume moved that nobody had released", func() bool { return other.AttachedTo(next) || !other.AttachedTo(old) })
	p.refusedFor(fence.HolderStale, other, old, next)
	if db2.Running() {
		p.t.Error("its pod runs on the other node")
	}
	old.PowerOff()
	old.Taint(bed.OutOfServiceTaint)
	db2.WaitRunning(60 * time.Second)
	p.outcome("the other one once the node was off")
}

// releasedBefore: the network was back before anything had moved, and the pod never
// stopped. In the next partition nobody says anything.
func releasedBefore(p *play) {
	v, taken, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Volume("taken", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v, taken)
	db.WaitRunning(60 * time.Second)
	old.CutOff()
	old.WaitNotReady()
	for _, v := range []*bed.Volume{v, taken} {
		p.Command("release", "pv", v.Name, "--node", old.Name, "--reason=I think that it is detached")
	}
	p.Log("taken back: %s", p.Command("release", "withdraw", "pv", taken.Name, "--node", old.Name, "--reason=I was wrong"))
	old.Reconnect()
	p.WaitFor(60*time.Second, "Ready again", old.Ready)
	p.mustWriteOn(v, old)
	time.Sleep(25 * time.Second) // its lease is renewed

	old.CutOff()
	old.WaitNotReady()
	db.ForceDelete()
	p.Pod("db2", next, v)
	p.Pod("db3", next, taken)
	p.refusedFor(fence.EvidenceVoid, v, old, next)
	p.refusedFor(fence.HolderStale, taken, old, next)
	p.mustWriteOn(v, old)
	p.outcome("the word had ended with the first heartbeat; the volume stayed where it was written to")
}

// shutdownTaint is what a cloud's node controller puts on a stopped instance.
var shutdownTaint = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule}

// borrowedID: a kubelet says of its own node what it likes, and lists what it waits
// for.
func borrowedID(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	borrower := p.Rename(old, "borrower") // while old is on: the array knows the two as one
	wants := p.Pod("wants", borrower, v)
	p.WaitFor(60*time.Second, "the borrower lists the volume", func() bool { return len(borrower.Get().Status.VolumesInUse) > 0 })
	old.CutOff()
	borrower.CutOff()
	old.WaitNotReady()
	borrower.WaitNotReady()
	db.ForceDelete()
	wants.ForceDelete()
	borrower.Confirm()
	db2 := p.Pod("db2", next, v)
	p.stands(v, old, next, db2, fence.HolderStale)
	old.PowerOff()
	old.Taint(bed.OutOfServiceTaint)
	p.moves(v, db2, next, "the operator's taint")
}
