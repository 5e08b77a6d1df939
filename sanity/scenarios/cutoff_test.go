package scenarios

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// cutOff: a node is silent, and nobody knows whether it still writes.
var cutOff = []scenario{
	{
		name:    "failed-detach",
		rule:    "R1: a failed detach of a tainted node does not open the door to a second node",
		from:    "k/120328, NetApp/trident#691",
		options: bed.StageOptions{Array: func(s *array.Switches) { s.EnforceSingleAttach = false }},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			unreachable := p.Array.Inject(array.Fault{Method: array.Unpublish, Do: array.Fail, Code: codes.Internal, Message: "cannot reach VM"})
			old.Taint(bed.OutOfServiceTaint)
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			tainted := time.Now()
			if p.guarded() {
				text := v.WaitRefused(next, "UnpublishFailed", 30*time.Second)
				p.Log("refused: %s", text)
				p.WaitEvent("Pod", "db2", 30*time.Second, "cannot reach VM", old.Name)
				p.Never(10*time.Second, "the volume is published to a second node", func() bool { return v.AttachedTo(next) })
			} else {
				p.within(30*time.Second, "published to the second node", func() bool { return v.AttachedTo(next) })
				p.outcome("published to a second node %.1f s after the taint, while the first still writes", time.Since(tainted).Seconds())
				time.Sleep(5 * time.Second)
			}
			old.PowerOff()
			unreachable.Clear()
			off := time.Now()
			db2.WaitRunning(90 * time.Second)
			if p.guarded() {
				p.outcome("refused until the driver could unpublish from the old node; moved %.1f s after that", time.Since(off).Seconds())
			}
		},
	},
	{
		name: "force-detach",
		rule: "R2: the force detach does not take a volume from a node that is cut off and still writes",
		from: "k/120328, k/65392, k/68086, kubernetes-sigs/aws-ebs-csi-driver#1955",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			cut := time.Now()
			old.WaitNotReady()
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if p.guarded() {
				p.Log("refused: %s", v.WaitRefused(old, "HolderStale", p.Bed.Clocks.ForceDetachAfter+60*time.Second))
				p.Never(10*time.Second, "the volume left the node that writes to it", func() bool { return !v.AttachedTo(old) })
				old.PowerOff()
				old.Taint(bed.OutOfServiceTaint)
				proof := time.Now()
				db2.WaitRunning(60 * time.Second)
				p.outcome("refused, then moved %.1f s after the operator's taint", time.Since(proof).Seconds())
				return
			}
			v.WaitPublished(next, p.Bed.Clocks.ForceDetachAfter+120*time.Second)
			p.outcome("taken from the running node and published elsewhere %.0f s after it went silent", time.Since(cut).Seconds())
		},
	},
	{
		name: "taint-alive",
		rule: "R2: an out-of-service taint on a node that lives takes nothing from it",
		from: "ceph/ceph-csi#5409, rook/rook#17790",
		story: func(p *play) {
			v, old, next := p.newVolume(), p.Nodes[0], p.Nodes[1]
			p.kubeletsSeen()
			db := p.TolerantPod("db", old, v)
			db.WaitRunning(60 * time.Second)
			p.kubeletNoted(v)
			time.Sleep(12 * time.Second) // a lease renewal: the node is known to live
			// The container takes its time to end, as a database does.
			p.Array.Inject(array.Fault{Method: "NodeUnpublishVolume", Do: array.Proceed, Delay: 8 * time.Second, Times: 1})
			old.Taint(bed.OutOfServiceTaint)
			db.ForceDelete() // from the API; the living kubelet ends its container
			db2 := p.Pod("db2", next, v)
			if p.guarded() {
				p.Log("refused: %s", v.WaitRefused(old, "EvidenceContradicted", 8*time.Second))
			}
			// With the taint on, a kubelet that says "not in use" may have restarted and
			// forgotten: this one is asked, and has not.
			db2.WaitRunning(120 * time.Second)
			p.outcome("moved after the kubelet let go, with the taint on")
		},
	},
}
