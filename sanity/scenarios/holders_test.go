package scenarios

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// readyBefore is so long that a kubelet which became Ready that long before a
// detach is not taken for one that restarted and forgot the volume.
const readyBefore = 5 * time.Second

// trusting is an array that attaches a volume to whoever asks.
func trusting(s *array.Switches) { s.EnforceSingleAttach = false }

// unlisting is a trusting array that does not say where a volume is published:
// the Nodes and VolumeAttachments have to.
func unlisting(s *array.Switches) { s.EnforceSingleAttach, s.ListPublishedNodes = false, false }

// holders: one of the places that say who holds a volume is wrong, gone or
// about somebody else.
var holders = []scenario{
	{
		name:    "stripped-va",
		rule:    "R1: a VolumeAttachment that a person deleted with its finalizer does not free the volume of a node that writes",
		from:    "kubernetes-sigs/vsphere-csi-driver#2506, k/80488",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			unreachable := p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.Internal, Message: "cannot reach VM"})
			old.CutOff()
			old.WaitNotReady()
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			v.StripAttachment(old) // nobody knows any more why it hangs
			stripped := time.Now()
			if !p.guarded() {
				p.given(v, next, stripped, "the finalizer was taken off")
				return
			}
			p.stands(v, old, next, db2, fence.HolderStale)
			old.PowerOff()
			unreachable.Clear()
			old.Taint(bed.OutOfServiceTaint)
			p.moves(v, db2, next, "the operator's taint")
		},
	},
	{
		name:    "node-deleted",
		rule:    "R1: deleting the Node of a machine that lives and writes does not free its volumes",
		from:    "kubernetes-sigs/vsphere-csi-driver#359, kubernetes-csi/external-attacher#215",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			db.ForceDelete()
			old.Delete()
			deleted := time.Now()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, deleted, "the Node was deleted")
				return
			}
			p.stands(v, old, next, db2, fence.HolderUnknown)
			old.PowerOff()
			p.Log("confirmed: %s", old.Confirm())
			p.moves(v, db2, next, "the operator's word")
			p.attachmentGoes(v, old)
		},
	},
	{
		name:    "scaled-in",
		rule:    "R6: where only the cloud provider deletes Nodes, the volumes of a terminated instance move by themselves",
		from:    "kubernetes-sigs/vsphere-csi-driver#359, NetApp/trident#691",
		options: bed.StageOptions{Array: trusting, Config: "evidence: {nodeDeleted: true}"},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			p.Pod("db", old, v).WaitRunning(60 * time.Second)
			p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.NotFound, Message: "no such instance"})
			old.Terminate()
			gone := time.Now()
			db2 := p.Pod("db2", next, v)
			_, ok := p.within(p.patience()+90*time.Second, "db2 is Running", db2.Running)
			p.outcome("%s %.0f s after the instance was terminated, without anybody's doing", either(ok, "runs elsewhere", "still waits"), time.Since(gone).Seconds())
			if !p.guarded() {
				p.attachmentStays(v, old)
				return
			}
			if len(p.Array.CallsOf(array.Unpublish, v.Handle)) == 0 {
				p.T.Errorf("the driver was never asked to unpublish from the machine that is gone")
			}
			p.attachmentGoes(v, old)
		},
	},
	{
		name:    "scaled-in-wait",
		rule:    "R5: where a deleted Node proves nothing, its volumes wait, and the Pod's Event says what to do",
		from:    "kubernetes-sigs/vsphere-csi-driver#359, NetApp/trident#691",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.NotFound, Message: "no such instance"})
			old.Terminate()
			gone := time.Now()
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, gone, "the instance was terminated")
				p.attachmentStays(v, old)
				return
			}
			text := v.WaitRefused(next, string(fence.HolderUnknown), p.patience())
			p.Log("refused: %s", text)
			for _, says := range []string{old.Name, "csi-fencepost fence confirm " + old.Name + " --reason", "csi-fencepost release pv " + v.Name + " --node " + old.Name} {
				p.WaitEvent("Pod", "db2", 30*time.Second, says)
			}
			p.Never(10*time.Second, "the volume moved although nobody said anything", func() bool { return v.AttachedTo(next) })
			p.Log("confirmed: %s", old.Confirm())
			p.moves(v, db2, next, "the operator's word")
			p.attachmentGoes(v, old)
		},
	},
	{
		name:    "same-name",
		rule:    "R1: a new machine under an old node's name says nothing of the old machine, which still writes",
		from:    "deckhouse/yandex-csi-driver#6, k/67853",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			old.Delete()
			renewed := p.AddNode("n1", "id1-new", 0)
			recreated := time.Now()
			time.Sleep(readyBefore)
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, recreated, "the node was made anew")
				return
			}
			p.stands(v, old, next, db2, fence.HolderUnknown)
			p.WaitFor(60*time.Second, "the new machine renews its lease", renewed.Ready)
			p.Never(12*time.Second, "the new machine's lease freed the old one's volume", func() bool { return v.AttachedTo(next) })
			old.PowerOff()
			p.Log("confirmed: %s", old.Confirm("--node-id="+old.ID))
			p.moves(v, db2, next, "the operator's word about the old machine")
			p.unpublishedFirstFrom(v, old)
			p.attachmentGoes(v, old)
		},
	},
	{
		name:    "same-name-va",
		rule:    "R2: an unpublish that comes with the new machine's ID is judged and done for the machine that holds the volume",
		from:    "deckhouse/yandex-csi-driver#6, k/67853",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			db.ForceDelete()
			old.Delete()
			renewed := p.AddNode("n1", "id1-new", 0)
			if p.guarded() {
				p.Log("refused: %s", v.WaitRefused(old, string(fence.HolderUnknown), p.patience()))
				p.Never(12*time.Second, "the volume left the old machine, which writes to it", func() bool { return !v.AttachedTo(old) })
				p.untouched(v, old)
				old.PowerOff()
				p.Log("confirmed: %s", old.Confirm("--node-id="+old.ID))
				p.unpublishedFirstFrom(v, old)
			}
			// The pod comes back on the node of that name, as StatefulSets do.
			db = p.Pod("db", renewed, v)
			_, ok := p.within(p.patience(), "the pod runs on the new machine", db.Running)
			p.outcome("%s on the new machine; the array has the volume attached to %d machine(s)", either(ok, "runs", "does not start"), len(p.Array.Attached(v.Handle)))
			if p.guarded() {
				v.WaitPublished(renewed, 10*time.Second)
			}
		},
	},
	{
		name:    "same-node-uid",
		rule:    "R1: a new machine that takes over the Node of an old one says nothing of the old machine, which still writes",
		from:    "deckhouse/yandex-csi-driver#6, k/67853",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			uid := old.Get().UID
			p.AddNode("n1", "id1-new", 0)
			if now := old.Get().UID; now != uid {
				p.T.Fatalf("the new machine has a Node of its own (UID %s, was %s): that is another scenario", now, uid)
			}
			recreated := time.Now()
			time.Sleep(readyBefore)
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, recreated, "the machine was replaced")
				return
			}
			p.stands(v, old, next, db2, fence.HolderUnknown)
			old.PowerOff()
			p.Log("confirmed: %s", old.Confirm("--node-id="+old.ID))
			p.moves(v, db2, next, "the operator's word about the old machine")
			p.unpublishedFirstFrom(v, old)
		},
	},
	{
		name:    "two-pvs",
		rule:    "R1: two PersistentVolumes with one volume handle have one holder",
		from:    "kubernetes-sigs/vsphere-csi-driver#2506",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("first", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			// This one sorts before the one that carries the ledger. The controller
			// takes both for one volume and stops a second node by itself, as long as
			// it believes in the first; others need not.
			again := p.Volume("again", bed.VolumeOptions{Handle: v.Handle})
			if p.guarded() {
				p.refusedDirectly(again.Handle, next, fence.HolderAlive, old.Name)
			}
			old.CutOff()
			old.WaitNotReady()
			db.ForceDelete()
			// What people do with a claim that hangs: import the disk once more.
			db2 := p.Pod("db2", next, again)
			asked := time.Now()
			if !p.guarded() {
				p.given(v, next, asked, "the pod with the second PersistentVolume was started")
				return
			}
			p.stands(again, old, next, db2, fence.HolderStale)
			old.PowerOff()
			old.Taint(bed.OutOfServiceTaint)
			p.moves(again, db2, next, "the operator's taint")
		},
	},
	{
		name:    "two-pvs-rwx",
		rule:    "R1: a second PersistentVolume of one writer's disk, which says that many may write, does not give it away",
		from:    "kubernetes-sigs/vsphere-csi-driver#2506",
		options: bed.StageOptions{Array: trusting},
		story: func(p *play) {
			const disk = "vol-two-pvs-rwx"
			p.must(p.Array.CreateVolume(disk, array.VolumeOptions{MultiWriter: true}))
			v, old, next := p.Volume("first", bed.VolumeOptions{Handle: disk}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			db.ForceDelete()
			again := p.Volume("again", bed.VolumeOptions{Handle: v.Handle, Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
			db2 := p.Pod("db2", next, again)
			asked := time.Now()
			if !p.guarded() {
				p.given(v, next, asked, "the pod with the second PersistentVolume was started")
				return
			}
			p.stands(again, old, next, db2, fence.HolderStale)
			old.PowerOff()
			old.Taint(bed.OutOfServiceTaint)
			p.moves(again, db2, next, "the operator's taint")
		},
	},
	{
		name:    "pv-again",
		rule:    "R1: a PersistentVolume deleted and created again is adopted with who holds it",
		from:    "kubernetes-csi/external-attacher#235",
		options: bed.StageOptions{Array: unlisting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			db.ForceDelete()
			v.Recreate(bed.VolumeOptions{})
			if v.Ledger() != "" {
				p.T.Fatalf("the new PersistentVolume has a ledger already: %s", v.Ledger())
			}
			again := time.Now()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, again, "the PersistentVolume was created again")
				return
			}
			p.stands(v, old, next, db2, fence.HolderStale)
			p.adopted(v, old)
			old.PowerOff()
			old.Taint(bed.OutOfServiceTaint)
			p.moves(v, db2, next, "the operator's taint")
		},
	},
	{
		name:        "restored-pv",
		rule:        "R6: a PersistentVolume that a backup tool restored with its old ledger is not stuck",
		from:        "kubernetes-csi/external-attacher#235",
		guardedOnly: true,
		story: func(p *play) {
			old := p.foreignLedger("vol-"+p.Name+"-disk", p.clusterUID(), "6f1c2f6e-0000-4000-8000-000000000001")
			v := p.Volume("disk", bed.VolumeOptions{Annotations: map[string]string{ledger.Annotation: old}})
			p.startsAfresh(v, "created again or restored from a backup")
		},
	},
	{
		name:        "ledger-wiped",
		rule:        "R1: a ledger wiped by GitOps does not free the volume of a node that is cut off",
		from:        "k/61832",
		guardedOnly: true,
		options:     bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			v.SetLedger("")
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			p.stands(v, old, next, db2, fence.HolderStale)
			p.adopted(v, old)
			v.SetLedger("") // at its next sync
			p.Never(10*time.Second, "the volume is given to a second node", func() bool { return v.AttachedTo(next) })
			p.adopted(v, old)
			old.PowerOff()
			old.Taint(bed.OutOfServiceTaint)
			p.moves(v, db2, next, "the operator's taint")
		},
	},
	{
		name:        "garbled",
		rule:        "R5: a garbled ledger refuses that volume alone, and says how to mend it",
		guardedOnly: true,
		options:     bed.StageOptions{Array: trusting},
		story: func(p *play) {
			v, other := p.Volume("disk", bed.VolumeOptions{}), p.Volume("other", bed.VolumeOptions{})
			here, there := p.Nodes[0], p.Nodes[1]
			db, web := p.Pod("db", here, v), p.Pod("web", here, other)
			db.WaitRunning(60 * time.Second)
			web.WaitRunning(60 * time.Second)
			v.SetLedger(`{"version":1,"holders":[`)
			db.Delete()
			web.Delete()
			db2, web2 := p.Pod("db2", there, v), p.Pod("web2", there, other)
			p.Log("the other volume moved in %s", web2.WaitRunning(60*time.Second))
			p.Log("refused: %s", v.WaitRefused(here, string(fence.LedgerUnreadable), 60*time.Second))
			text := v.WaitRefused(there, string(fence.LedgerUnreadable), p.patience())
			p.Log("refused: %s", text)
			for _, says := range []string{v.Name, "kubectl annotate pv " + v.Name + " " + ledger.Annotation + "-"} {
				if !strings.Contains(text, says) {
					p.T.Errorf("the refusal does not say %q: %s", says, text)
				}
			}
			p.untouched(v, here)
			p.WaitEvent("PersistentVolume", v.Name, 30*time.Second, "is not a ledger", "annotate pv")
			v.SetLedger("") // what the message says
			p.moves(v, db2, there, "the annotation was mended")
		},
	},
	{
		name:        "other-cluster",
		rule:        "R6: a ledger that another cluster wrote is set aside, and nothing is stuck",
		from:        "kubernetes-csi/external-attacher#235",
		guardedOnly: true,
		story: func(p *play) {
			v := p.Volume("disk", bed.VolumeOptions{})
			v.SetLedger(p.foreignLedger(v.Handle, "6f1c2f6e-0000-4000-8000-000000000002", string(v.PV().UID)))
			p.startsAfresh(v, "written in another cluster")
		},
	},
	{
		name:        "no-pv",
		rule:        "R1: a volume that no PersistentVolume names is guarded by the Nodes' status and the driver's own list",
		from:        "kubernetes-csi/external-attacher#235",
		guardedOnly: true,
		options:     bed.StageOptions{Array: trusting},
		story:       noPV,
	},
}

// noPV plays what is guaranteed without a PersistentVolume, and what is not.
func noPV(p *play) {
	here, there := p.Nodes[0], p.Nodes[1]
	// A pod uses it; its PersistentVolume was deleted under it.
	v := p.Volume("used", bed.VolumeOptions{})
	p.Pod("db", here, v).WaitRunning(60 * time.Second)
	v.DeletePV()
	p.refusedDirectly(v.Handle, there, fence.HolderAlive, here.Name)

	// The driver lists it on a machine that Kubernetes does not know.
	p.disk("ghost")
	p.must(p.Array.AddMachine("machine-of-old"))
	p.must(p.Array.Attach("ghost", "machine-of-old"))
	p.refusedDirectly("ghost", there, fence.HolderUnknown, "machine-of-old")

	// Nobody has it.
	p.disk("free")
	p.must(p.publishDirectly("free", there))

	// The driver lists it on a node that lives, and whose kubelet does not use
	// it. The kubelet's word counts; that is as far as it goes without a ledger.
	p.disk("orphan")
	p.must(p.Array.Attach("orphan", here.ID))
	p.must(p.publishDirectly("orphan", there))
	for _, handle := range []string{"free", "orphan"} {
		if at := p.Array.Attached(handle); !slices.Equal(at, []string{there.ID}) {
			p.T.Errorf("%s is attached to %q, want %s alone", handle, at, there.ID)
		}
	}
	// Without a driver that lists published nodes, the orphan would not be seen.
	p.outcome("refused while a Node's status lists it, and while the driver lists it on a machine unknown to Kubernetes; else published")
}

// patience is how long the controller may take until it comes with a call.
func (p *play) patience() time.Duration { return p.Bed.Clocks.ForceDetachAfter + 90*time.Second }

// given notes when Kubernetes alone gives the volume to the next node, although
// the old one still has it.
func (p *play) given(v *bed.Volume, next *bed.Node, since time.Time, what string) {
	p.t.Helper()
	if _, ok := p.within(p.patience(), "", func() bool { return v.AttachedTo(next) }); !ok {
		p.outcome("not published elsewhere %.0f s after %s", time.Since(since).Seconds(), what)
		return
	}
	p.outcome("published elsewhere %.0f s after %s", time.Since(since).Seconds(), what)
	p.within(30*time.Second, "", func() bool { return slices.Contains(v.Writers(time.Second), next.Name) })
	time.Sleep(3 * time.Second) // what the two nodes do to the volume
}

// stands holds the moment of danger: the volume is asked for on the next node
// while the old one writes, and is refused for that reason, in words on the Pod.
func (p *play) stands(v *bed.Volume, old, next *bed.Node, waiting *bed.Pod, reason fence.Reason) {
	p.t.Helper()
	text := v.WaitRefused(next, string(reason), p.patience())
	p.Log("refused: %s", text)
	p.WaitEvent("Pod", waiting.Name, 30*time.Second, "["+string(reason)+"]", old.Name)
	p.Never(10*time.Second, "the volume is given to a second node", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
	p.mustWriteOn(v, old) // else nothing was in danger
	p.untouched(v, old)
}

// untouched: the driver has seen no unpublish of the volume, and no publish but
// for the node that has it.
func (p *play) untouched(v *bed.Volume, old *bed.Node) {
	p.t.Helper()
	if calls := p.Array.CallsOf(array.Unpublish, v.Handle); len(calls) > 0 {
		p.T.Errorf("the driver has seen an unpublish: %+v", calls)
	}
	for _, c := range p.Array.CallsOf(array.Publish, v.Handle) {
		if c.Node != old.ID {
			p.T.Errorf("the driver has seen a publish to %s: %+v", c.Node, c)
		}
	}
}

// moves waits until the pod runs on its node, and says how long that took.
func (p *play) moves(v *bed.Volume, pod *bed.Pod, to *bed.Node, since string) {
	p.t.Helper()
	took := pod.WaitRunning(60 * time.Second)
	v.WaitPublished(to, 10*time.Second)
	p.outcome("refused, then moved %.1f s after %s", took.Seconds(), since)
}

// unpublishedFirstFrom waits for the first unpublish that the driver sees, and
// fails if it is for another machine.
func (p *play) unpublishedFirstFrom(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	p.WaitFor(60*time.Second, "the driver sees an unpublish", func() bool { return len(p.Array.CallsOf(array.Unpublish, v.Handle)) > 0 })
	if c := p.Array.CallsOf(array.Unpublish, v.Handle)[0]; c.Node != n.ID {
		p.T.Errorf("unpublished from %s, want %s, which had the volume", c.Node, n.ID)
	}
}

// attachmentGoes: the VolumeAttachment of a machine that is gone is not stuck.
func (p *play) attachmentGoes(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	took := p.WaitFor(60*time.Second, "the VolumeAttachment of "+n.Name+" is gone", func() bool { return v.Attachment(n) == nil })
	p.Log("the VolumeAttachment of %s went %s later", n.Name, took)
}

func (p *play) attachmentStays(v *bed.Volume, n *bed.Node) {
	time.Sleep(5 * time.Second)
	if v.Attachment(n) != nil {
		p.outcome("the VolumeAttachment of the node that is gone stays")
	}
}

// adopted waits until the ledger names the node again.
func (p *play) adopted(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	p.WaitFor(90*time.Second, "the ledger names "+n.ID+" again", func() bool { return strings.Contains(v.Ledger(), `"nodeID":"`+n.ID+`"`) })
	p.Log("adopted: %s", v.Ledger())
}

// foreignLedger says that a node of another time or place holds the volume.
func (p *play) foreignLedger(handle, cluster, pvUID string) string {
	l := &ledger.Ledger{Version: ledger.Version, Driver: p.Driver, Handle: handle, Cluster: cluster, PVUID: pvUID}
	l.Put(ledger.Entry{NodeID: "id-of-old", NodeName: "node-of-old", NodeUID: "uid-of-old", BootID: "boot-of-old", Token: "old", State: fence.Publishing})
	return l.String()
}

// startsAfresh: a volume whose ledger is not its own is used as a new one is,
// and an Event says why.
func (p *play) startsAfresh(v *bed.Volume, why string) {
	p.t.Helper()
	for _, n := range p.Nodes {
		db := p.Pod("db", n, v)
		p.outcome("started in %.1f s", db.WaitRunning(60*time.Second).Seconds())
		if text := v.Ledger(); strings.Contains(text, "of-old") || !strings.Contains(text, n.ID) {
			p.T.Errorf("the ledger should name %s alone: %s", n.ID, text)
		}
		db.Delete()
	}
	p.Log("said: %s", p.WaitEvent("PersistentVolume", v.Name, 30*time.Second, "LedgerSetAside", v.Name, why))
}

func (p *play) clusterUID() string {
	p.t.Helper()
	ns, err := p.Client.CoreV1().Namespaces().Get(p.t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	p.must(err)
	return string(ns.UID)
}

// disk makes a disk without a PersistentVolume.
func (p *play) disk(handle string) {
	p.t.Helper()
	p.must(p.Array.CreateVolume(handle, array.VolumeOptions{}))
}

// publishDirectly calls csi-fencepost as no attacher would.
func (p *play) publishDirectly(handle string, to *bed.Node) error {
	p.t.Helper()
	_, err := p.Caller("fp.sock").ControllerPublishVolume(p.t.Context(), (&bed.Volume{Handle: handle}).PublishRequest(to))
	return err
}

// refusedDirectly calls until the refusal is for that reason; no call may get
// through.
func (p *play) refusedDirectly(handle string, to *bed.Node, reason fence.Reason, names string) {
	p.t.Helper()
	before := len(p.Array.CallsOf(array.Publish, handle))
	var text string
	// At first csi-fencepost has not watched the node for long enough.
	p.WaitFor(30*time.Second, "a refusal for "+string(reason), func() bool {
		err := p.publishDirectly(handle, to)
		if text = status.Convert(err).Message(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(text, names) {
			p.t.Fatalf("publish of %s to %s: got %v, want FAILED_PRECONDITION that names %s", handle, to.Name, err, names)
		}
		return strings.Contains(text, "["+string(reason)+"]")
	})
	p.Log("refused: %s", text)
	if n := len(p.Array.CallsOf(array.Publish, handle)) - before; n > 0 {
		p.t.Errorf("the driver has seen %d publishes of %s", n, handle)
	}
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
