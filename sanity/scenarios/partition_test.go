package scenarios

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// partitions need root.
var partitions = slices.Concat(origins[:1], cutNetworks, []scenario{theirKubelets})

// cutNetworks: the network drops every packet between a node and the control
// plane. Its kubelet works on, unheard, and its containers write on: to
// Kubernetes it looks like one that lost power.
var cutNetworks = []scenario{
	{
		name:    "partition",
		rule:    "R1: a partitioned node that writes on keeps its volume until its power is proven off",
		from:    "k/61832, k/120328",
		options: bed.StageOptions{Networks: true, Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			cut := p.partition(old)
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, cut, "the partition began")
				return
			}
			p.stands(v, old, next, db2, fence.HolderStale)
			// What a person reads who asks why the pod does not start.
			for _, says := range []string{"has stopped renewing its lease", "csi-fencepost fence confirm " + old.Name} {
				p.Log("said on the Pod: %s", p.WaitEvent("Pod", "db2", 30*time.Second, old.Name, says))
			}
			p.mustWriteOn(v, old)
			old.PowerOff()
			p.Never(5*time.Second, "the volume moved although nobody said that the power is off", func() bool { return v.AttachedTo(next) })
			old.Confirm()
			p.moves(v, db2, next, "the operator's word that the power is off")
		},
	},
	{
		name: "part-taint",
		rule: "R5: a taint that is not to count as evidence takes nothing from a partitioned node that writes on",
		from: "ceph/ceph-csi#5409, rook/rook#17790",
		options: bed.StageOptions{Networks: true, Array: trusting,
			Config: "evidence: {outOfServiceTaint: false}"},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			p.partition(old)
			old.Taint(bed.OutOfServiceTaint) // a guess: nobody looked at the machine
			tainted := time.Now()
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, tainted, "the taint")
				return
			}
			p.stands(v, old, next, db2, fence.HolderStale)
			old.PowerOff()
			old.Confirm()
			p.moves(v, db2, next, "the operator's word that the power is off")
		},
	},
	{
		name:    "part-heals",
		rule:    "R6: a partition that heals before anything is proven leaves pod and volume where they are",
		from:    "k/61832",
		options: bed.StageOptions{Networks: true, Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			attached := v.Attachment(old).UID
			p.partition(old)
			db2 := p.Pod("db2", next, v) // a second claimant, as a rolling update makes one
			p.WaitFor(30*time.Second, "the pod counts as not Ready", func() bool { return !podReady(db) })
			if p.guarded() {
				// The controller asks for nothing while the pod is there; a late call of
				// an attacher may.
				p.refusedDirectly(v.Handle, next, fence.HolderStale, old.Name)
			}
			p.Never(p.Bed.Clocks.ForceDetachAfter+10*time.Second, "the volume left the node that writes to it", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
			p.heals(old)
			took := p.WaitFor(2*time.Minute, "the pod is Ready again", func() bool { return podReady(db) })
			p.Log("the pod is Ready %s later", took.Round(100*time.Millisecond))
			p.Never(12*time.Second, "the pod or its volume is gone after the partition", func() bool { return !db.Running() || v.AttachedTo(next) || !v.AttachedTo(old) })
			if va := v.Attachment(old); va == nil || va.UID != attached || va.DeletionTimestamp != nil {
				p.t.Errorf("the VolumeAttachment was %s, it is %+v", attached, va)
			}
			p.mustWriteOn(v, old)
			p.untouched(v, old)
			db.Delete()
			p.outcome("nothing moved; it moved in %.1f s when its pod was deleted later", db2.WaitRunning(60*time.Second).Seconds())
		},
	},
	{
		name:    "part-returns",
		rule:    "R2: a partitioned node whose pod was deleted by force gives its volume away once it is back and has unmounted it, without an operator",
		from:    "k/61832, piraeusdatastore/linstor-csi#89",
		options: bed.StageOptions{Networks: true, Array: trusting},
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			cut := p.partition(old)
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				p.given(v, next, cut, "the partition began")
				return
			}
			p.stands(v, old, next, db2, fence.HolderStale)
			// As a database takes its time to end. A kubelet that has unmounted
			// before it was heard for a while is not believed (docs/design/architecture.md, Limits).
			ending := p.Array.Inject(array.Fault{Method: "NodeUnpublishVolume", Node: old.ID, Do: array.Hang})
			p.heals(old)
			p.seenInUse(v, old)
			ending.Clear()
			took := p.WaitFor(90*time.Second, "the kubelet has unmounted the volume", func() bool { return !v.MountedOn(old) })
			p.outcome("unmounted %.1f s after the node was back, moved %.1f s later", took.Seconds(), db2.WaitRunning(120*time.Second).Seconds())
		},
	},
}

// theirKubelets are asked whether they have restarted, through a network of each node's own.
var theirKubelets = scenario{
	name:    "part-quick",
	rule:    "R6: a partition that outlasted Kubernetes' forced detach, and whose database ends as soon as it heals: the volume moves without a person, for its kubelet has not restarted",
	from:    "k/61832, piraeusdatastore/linstor-csi#89",
	options: bed.StageOptions{Networks: true, Array: trusting},
	story: func(p *play) {
		v, old, next := p.newVolume(), p.Nodes[0], p.Nodes[1]
		p.kubeletsSeen()
		db := p.Pod("db", old, v)
		db.WaitRunning(60 * time.Second)
		p.kubeletNoted(v)
		cut := p.partition(old)
		db.ForceDelete()
		db2 := p.Pod("db2", next, v)
		if !p.guarded() {
			p.given(v, next, cut, "the partition began")
			return
		}
		p.stands(v, old, next, db2, fence.HolderStale)
		v.WaitRefused(old, "HolderStale", p.Bed.Clocks.ForceDetachAfter+60*time.Second)
		p.mustWriteOn(v, old)
		p.heals(old)
		took := p.WaitFor(90*time.Second, "the kubelet has unmounted the volume", func() bool { return !v.MountedOn(old) })
		p.outcome("unmounted %.1f s after the node was back, moved %.1f s later", took.Seconds(), db2.WaitRunning(60*time.Second).Seconds())
	},
}

// kubeletsSeen waits until csi-fencepost has asked all kubelets for their processes: one that has
// just started is asked again when it is 9 s old.
func (p *play) kubeletsSeen() {
	p.t.Helper()
	if !p.guarded() {
		return
	}
	for _, n := range p.Nodes {
		noted := regexp.MustCompile(`"A kubelet was asked what its process is" node="` + n.Name + `" again="1h0m0s"`)
		// A node whose driver had not registered when it was first looked at is looked at again
		// after a minute.
		p.WaitFor(2*time.Minute, "the kubelet of "+n.Name+" was asked for its process", func() bool {
			text, err := os.ReadFile(p.Fencepost.LogFile())
			p.must(err)
			return noted.Match(text)
		})
	}
}

// kubeletNoted: the volume's ledger names the process of the kubelet that ran before.
func (p *play) kubeletNoted(v *bed.Volume) {
	p.t.Helper()
	if p.guarded() && !strings.Contains(v.Ledger(), `"kubelet":`) {
		p.t.Fatalf("the ledger names no kubelet: %s", v.Ledger())
	}
}

// partition cuts the node off, waits until Kubernetes has noticed, and says when
// it began. What the node runs must write on.
func (p *play) partition(n *bed.Node) time.Time {
	p.t.Helper()
	began := time.Now()
	n.Partition()
	p.Log("%s is NotReady %s after the partition began", n.Name, n.WaitNotReady().Round(100*time.Millisecond))
	return began
}

// podReady tells whether the pod is there and counts as Ready.
func podReady(pod *bed.Pod) bool {
	now := pod.Get()
	return now != nil && slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// heals ends the partition and waits until the node is Ready.
func (p *play) heals(n *bed.Node) {
	p.t.Helper()
	n.Heal()
	p.Log("%s is Ready %s after the partition healed", n.Name, n.WaitReady(2*time.Minute).Round(100*time.Millisecond))
}
