package scenarios

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// kubelets: what a kubelet says of its volumes and its clock is not always true.
var kubelets = []scenario{
	{
		name:  "kubelet-forget",
		rule:  "R2: a kubelet that restarted after the detach had begun is not believed when it says that the volume is not in use",
		from:  "k/120328, piraeusdatastore/linstor-csi#89",
		story: func(p *play) { forgottenMount(p, p.Nodes[0], p.Nodes[1]) },
	},
	{
		name: "kubelet-refuse",
		rule: "R2: a kubelet whose volume's detach was refused is not believed when it restarts, flaps, and says that the volume is not in use",
		from: "k/120328, piraeusdatastore/linstor-csi#89",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			busy := v.Busy(old)
			old.KillKubelet() // its container writes on
			old.WaitNotReady()
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				v.WaitPublished(next, p.Bed.Clocks.ForceDetachAfter+60*time.Second)
				p.outcome("taken from the running container by the force detach")
				return
			}
			p.Log("refused: %s", v.WaitRefused(old, "HolderStale", p.Bed.Clocks.ForceDetachAfter+60*time.Second))
			for flap := range 2 {
				old.StartKubeletForgetting(v)
				p.Log("flap %d: the kubelet says that it does not use the volume, which it has mounted", flap+1)
				v.WaitRefused(old, "HolderContested", 60*time.Second)
				p.mustKeepWriting(v, old, 8*time.Second)
			}
			busy.Clear()
			p.WaitFor(60*time.Second, "the kubelet has unmounted the volume", func() bool { return !v.MountedOn(old) })
			p.Never(5*time.Second, "a contested kubelet was believed", func() bool { return !v.AttachedTo(old) })
			released := time.Now()
			p.Command("release", "pv", v.Name, "--node", old.Name, "--reason", "looked at the node: nothing there uses it")
			db2.WaitRunning(120 * time.Second)
			p.outcome("refused while the container wrote; moved %.1f s after an operator's release", time.Since(released).Seconds())
		},
	},
	{
		name: "kubelet-asked",
		rule: "R2: asked whether it has restarted, a kubelet that has is not believed",
		from: "ceph/ceph-csi#5409, piraeusdatastore/linstor-csi#89",
		story: func(p *play) {
			p.kubeletsSeen()
			quickRestart{asked: true}.play(p)
		},
	},
	{
		name: "kubelet-young",
		rule: "R2: a kubelet that restarts quickly after a forced detach, of which nothing in Kubernetes tells any more, is not believed: it is asked how old it is",
		from: "ceph/ceph-csi#5409, piraeusdatastore/linstor-csi#89",
		story: func(p *play) {
			p.kubeletsSeen()
			quickRestart{untainted: true}.play(p)
		},
	},
	{
		name:  "kubelet-quick",
		rule:  "R2: a kubelet that restarts too quickly to be NotReady, after the detach had begun, is not believed either",
		from:  "ceph/ceph-csi#5409, piraeusdatastore/linstor-csi#89",
		story: func(p *play) { quickRestart{}.play(p) },
	},
	{
		name:  "kubelet-quick2",
		rule:  "R2: nor is it believed when its volume was seen in use before the quick restart",
		from:  "ceph/ceph-csi#5409, piraeusdatastore/linstor-csi#89",
		story: func(p *play) { quickRestart{seen: true}.play(p) },
	},
	{
		name: "drain-throttle",
		rule: "R6: a drain whose first unpublish fails, and whose node is then scaled down, needs no operator",
		from: "kubernetes-sigs/vsphere-csi-driver#359, kubernetes-csi/external-attacher#215",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			throttled := p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.Unavailable, Message: "throttled"})
			old.Cordon()
			db.Delete()
			p.WaitFor(60*time.Second, "the first unpublish fails", func() bool { return throttled.Hits() > 0 })
			if p.guarded() && !strings.Contains(v.Ledger(), `"released"`) {
				p.t.Errorf("the kubelet's word was not written down before the unpublish: ledger %s", v.Ledger())
			}
			old.PowerOff()
			old.Delete()
			db2 := p.Pod("db2", next, v)
			time.Sleep(3 * time.Second) // retries that fail on a node that is gone
			throttled.Clear()
			took := db2.WaitRunning(120 * time.Second)
			p.outcome("moved %.1f s after the driver worked again, with no operator", took.Seconds())
		},
	},
	{
		name: "taint-early",
		rule: "R5: a taint that was put on while the node lived does not count when the node is cut off later",
		from: "dell/csm#1828, rook/rook#17790",
		story: func(p *play) {
			old := p.Nodes[0]
			v, db := tolerant(p, old)
			old.Taint(bed.OutOfServiceTaint) // an incident of long ago
			time.Sleep(12 * time.Second)     // the node renews its lease
			old.CutOff()
			old.WaitNotReady()
			oldTaint(p, v, db, old, p.Nodes[1])
		},
	},
	{
		name: "taint-old",
		rule: "R5: a taint of an earlier cut-off, left on although the node came back, does not count at the next one",
		from: "dell/csm#1828, rook/rook#17790",
		story: func(p *play) {
			old := p.Nodes[0]
			v, db := tolerant(p, old)
			old.CutOff()
			old.WaitNotReady()
			old.Taint(bed.OutOfServiceTaint)
			time.Sleep(5 * time.Second)
			old.Reconnect()
			p.WaitFor(60*time.Second, old.Name+" is Ready again", old.Ready)
			time.Sleep(12 * time.Second) // and lives on
			old.CutOff()
			old.WaitNotReady()
			oldTaint(p, v, db, old, p.Nodes[1])
		},
	},
	{
		name: "taint-unseen",
		rule: "R1: a taint of long ago that csi-fencepost first sees when the node is silent already is no word about that",
		from: "dell/csm#1828, rook/rook#17790",
		story: func(p *play) {
			old := p.Nodes[0]
			v, db := tolerant(p, old)
			if p.guarded() {
				p.StopFencepost()
			}
			old.Taint(bed.OutOfServiceTaint)
			time.Sleep(12 * time.Second) // the node renews its lease
			old.CutOff()
			old.WaitNotReady()
			if p.guarded() {
				p.StartFencepost()
			}
			oldTaint(p, v, db, old, p.Nodes[1])
		},
	},
	{
		name:    "clock-ahead",
		rule:    "R6: a kubelet whose clock is 5 minutes ahead is neither contested for nothing nor believed too much",
		from:    "k/119273",
		options: bed.StageOptions{ClockOffset: 5 * time.Minute},
		story:   wrongClock,
	},
	{
		name:    "clock-behind",
		rule:    "R6: a kubelet whose clock is 5 minutes behind is neither contested for nothing nor believed too much",
		from:    "k/119273",
		options: bed.StageOptions{ClockOffset: -5 * time.Minute},
		story:   wrongClock,
	},
}

// mustKeepWriting fails unless the volume stays attached to the node that
// writes to it.
func (p *play) mustKeepWriting(v *bed.Volume, n *bed.Node, d time.Duration) {
	p.t.Helper()
	p.mustKeep(v, n, d)
	if !v.Writing(n) {
		p.t.Errorf("%s does not write any more: the dangerous moment was not reached", n.Name)
	}
}

// mustKeep fails unless the volume stays attached to the node that has it mounted.
func (p *play) mustKeep(v *bed.Volume, n *bed.Node, d time.Duration) {
	p.t.Helper()
	p.Never(d, "the volume was taken from the node that has it mounted", func() bool { return !v.AttachedTo(n) })
	if !v.MountedOn(n) {
		p.t.Errorf("%s has it mounted no more: the dangerous moment was not reached", n.Name)
	}
}

// mustKeepForgotten is mustKeepWriting of a kubelet that has restarted. A real one ends the
// containers of pods that are gone, with a second's grace (K8s pkg/kubelet/
// kubelet_pods.go, HandlePodCleanups); what is mounted stays so.
func (p *play) mustKeepForgotten(v *bed.Volume, n *bed.Node, d time.Duration) {
	p.t.Helper()
	if p.Options.Real {
		p.mustKeep(v, n, d)
		return
	}
	p.mustKeepWriting(v, n, d)
}

// forgottenMount: the kubelet is down, Kubernetes takes the volume off
// volumesAttached by force, and the kubelet that comes back has forgotten it.
// external-attacher is away meanwhile (an upgrade), so nothing was refused yet.
func forgottenMount(p *play, old, next *bed.Node) {
	v := p.Volume("forgotten", bed.VolumeOptions{})
	p.forgotten(v, p.Pod("forgotten", old, v), old, next)
}

// forgotten is forgottenMount of that pod.
func (p *play) forgotten(v *bed.Volume, db *bed.Pod, old, next *bed.Node) {
	p.t.Helper()
	db.WaitRunning(60 * time.Second)
	v.Busy(old)
	old.KillKubelet()
	old.WaitNotReady()
	p.StopAttacher()
	db.ForceDelete()
	db2 := p.Pod("forgotten2", next, v)
	v.WaitDetaching(old, p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	old.StartKubelet()
	old.WaitForgotten(v, 30*time.Second)
	p.Log("the kubelet says that it does not use the volume, which it has mounted")
	p.StartAttacher()
	if !p.guarded() {
		v.WaitPublished(next, 120*time.Second)
		p.outcome("the kubelet's word was believed while its container wrote")
		return
	}
	p.Log("refused: %s", v.WaitRefused(old, "HolderContested", 60*time.Second))
	p.mustKeepForgotten(v, old, 10*time.Second)
	booted := time.Now()
	old.PowerOff()
	old.Boot()
	db2.WaitRunning(120 * time.Second)
	p.outcome("refused while the node had it mounted; moved %.1f s after the reboot began", time.Since(booted).Seconds())
}

// quickRestart: somebody taints a node that lives, and its kubelet restarts
// within a second, never NotReady, while the volume is off volumesAttached.
type quickRestart struct {
	seen      bool // the volume was seen in use before that
	asked     bool // which process ran before the publish is known
	untainted bool // the taint is off again before anybody looks
}

func (q quickRestart) play(p *play) {
	v, old, next := p.newVolume(), p.Nodes[0], p.Nodes[1]
	db := p.TolerantPod("db", old, v)
	db.WaitRunning(60 * time.Second)
	if q.asked { // then another process answers
		p.kubeletNoted(v)
	}
	v.Busy(old)
	since := old.ReadySince()
	if !q.seen {
		p.StopAttacher()
	}
	old.Taint(bed.OutOfServiceTaint)
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	switch {
	case !p.guarded():
		if !q.seen {
			p.StartAttacher()
		}
		v.WaitPublished(next, 120*time.Second)
		p.outcome("taken from the running container because of the taint")
		return
	case q.seen:
		p.Log("refused: %s", v.WaitRefused(old, "HolderAlive", 60*time.Second))
		p.seenInUse(v, old)
		old.StartKubeletForgetting(v)
	default:
		v.WaitDetaching(old, 60*time.Second)
		old.KillKubelet()
		old.StartKubelet()
		old.WaitForgotten(v, 30*time.Second)
		if q.untainted {
			old.Untaint(bed.OutOfServiceTaint.Key)
		}
		p.StartAttacher()
	}
	p.Log("the kubelet has forgotten the volume; Ready since %s, before its restart since %s", old.ReadySince(), since)
	v.WaitRefused(old, "HolderContested", 60*time.Second)
	p.mustKeepForgotten(v, old, 10*time.Second)
	booted := time.Now()
	old.PowerOff()
	old.Boot()
	db2.WaitRunning(120 * time.Second)
	p.outcome("refused while the node had it mounted; moved %.1f s after the reboot began", time.Since(booted).Seconds())
}

// tolerant is a volume with a pod that no taint evicts.
func tolerant(p *play, on *bed.Node) (*bed.Volume, *bed.Pod) {
	v := p.Volume("disk", bed.VolumeOptions{})
	db := p.TolerantPod("db", on, v)
	db.WaitRunning(60 * time.Second)
	return v, db
}

// oldTaint cuts a node off that carries a taint from before.
func oldTaint(p *play, v *bed.Volume, db *bed.Pod, old, next *bed.Node) {
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	if !p.guarded() {
		v.WaitPublished(next, 60*time.Second)
		p.outcome("moved at once, on the word of the old taint, while the node wrote")
		return
	}
	text := v.WaitRefused(old, "EvidenceVoid", 60*time.Second)
	p.Log("refused: %s", text)
	if !strings.Contains(text, "take the taint off and put it on again") {
		p.t.Errorf("the refusal does not say how to give the taint anew: %s", text)
	}
	p.mustKeepWriting(v, old, 10*time.Second)
	old.PowerOff()
	old.Untaint(bed.OutOfServiceTaint.Key)
	time.Sleep(time.Second)
	old.Taint(bed.OutOfServiceTaint)
	anew := time.Now()
	db2.WaitRunning(90 * time.Second)
	p.outcome("refused, then moved %.1f s after the taint was put on anew", time.Since(anew).Seconds())
}

// wrongClock: everyday life, a cut-off and a forgetful kubelet, all on a node
// whose clock is wrong.
func wrongClock(p *play) {
	v, wrong, right := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	var slowest time.Duration
	for _, on := range []*bed.Node{wrong, right, wrong} {
		db := p.Pod("db", on, v)
		slowest = max(slowest, db.WaitRunning(60*time.Second))
		if on == wrong {
			on.Drain()
			p.WaitFor(60*time.Second, "the node is drained", func() bool { return db.Get() == nil })
			on.Uncordon()
		} else {
			db.Delete()
		}
	}
	if p.guarded() {
		for _, text := range p.Events("PersistentVolume", v.Name) {
			if strings.Contains(text, "Refused") {
				p.t.Errorf("refused in everyday life: %s", text)
			}
		}
	}
	p.outcome("moves in everyday life: at most %.1f s", slowest.Seconds())
	forgottenMount(p, wrong, right)
	if !p.guarded() {
		return
	}
	v2 := p.Volume("cutoff", bed.VolumeOptions{})
	db := p.Pod("cutoff", wrong, v2)
	db.WaitRunning(60 * time.Second)
	wrong.CutOff()
	p.Log("NotReady after %s", wrong.WaitNotReady())
	db.ForceDelete()
	db2 := p.Pod("cutoff2", right, v2)
	v2.WaitRefused(wrong, "HolderStale", p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	p.mustKeepWriting(v2, wrong, 5*time.Second)
	wrong.PowerOff()
	wrong.Taint(bed.OutOfServiceTaint)
	db2.WaitRunning(60 * time.Second)
}

// seenInUse waits until the ledger says that the kubelet, Ready as it is now, was seen
// to list the volume: from then on it is believed when it drops it.
func (p *play) seenInUse(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	p.WaitFor(observe.SyncTime+4*time.Minute, "the ledger says that the kubelet of "+n.Name+" was seen to list "+v.Name, func() bool {
		return !p.guarded() || strings.Contains(v.Ledger(), `"seenReadySince":"`+n.ReadySince().UTC().Format(time.RFC3339)+`"`)
	})
}
