package scenarios

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// fencedPartitions need what a failover and a partition need.
var fencedPartitions = []scenario{{
	name:    "part-fenced",
	rule:    "R1: a partitioned node that writes on keeps its volumes until its BMC, which is reached another way, has switched it off",
	from:    "k/61832, k/120328",
	options: bed.StageOptions{Failover: true, Networks: true},
	story:   fencedWhileWriting((*bed.Node).Partition),
}}

// suspected: a node is silent, and the agents have to find out, or to make sure.
var suspected = []scenario{
	{
		name:    "kernel-hang",
		rule:    "R1: a node that is silent, has power and may write keeps its volumes until it is fenced, at fenceAfter and not before",
		from:    "k/61832, k/120328",
		options: bed.StageOptions{Failover: true},
		story:   fencedWhileWriting((*bed.Node).CutOff),
	},
	{
		name:    "kubelet-gone",
		rule:    "R1: a node whose kubelet is gone and whose containers write on keeps its volumes until it is fenced",
		from:    "k/120328, k/61832",
		options: bed.StageOptions{Failover: true},
		story:   fencedWhileWriting((*bed.Node).KillKubelet),
	},
	{
		name:        "restarts-often",
		rule:        "R6: a sidecar that is restarted before it has watched a lease for suspectAfter still has the agents of a node asked that the API server calls silent",
		options:     bed.StageOptions{Failover: true},
		ownBed:      true, // where more than three nodes are overdue, other stages' dead ones too, none is
		guardedOnly: true,
		story:       restartedOften,
	},
	{
		name:    "paused-resumed",
		rule:    "R6: a node that is back before fenceAfter is left alone: no power, no taint, no pod is touched",
		from:    "piraeusdatastore/linstor-csi#89, k/119273",
		options: bed.StageOptions{Failover: true},
		story:   pausedAndResumed,
	},
	{
		name:    "quick-reboot",
		rule:    "R1: a node that reboots and is back in the middle of the takeover does not write beside the new one, and is readmitted",
		from:    "piraeusdatastore/linstor-csi#89, k/119273, dell/csm#1828",
		options: bed.StageOptions{Failover: true},
		story:   rebootedInTakeover,
	},
	{
		name:    "level-two",
		rule:    "R1: where the first level's BMC hangs the second level fences, and its reading of off is the proof",
		options: bed.StageOptions{Failover: true},
		story:   fencedByLevelTwo,
	},
	{
		name:    "no-agent",
		rule:    "R5: without an agent nothing moves, the pod says what is awaited, and an operator's word moves it at once",
		from:    "k/65392, k/50944, hetznercloud/csi-driver#164",
		options: bed.StageOptions{Failover: true},
		story:   awaitsTheOperator,
	},
	{
		name:    "bmc-stuck-on",
		rule:    "R5: an agent that reads on stands against an operator's word, until the operator says on record that the agent is wrong",
		options: bed.StageOptions{Failover: true},
		story:   overriddenBMC,
	},
	{
		name:    "bmc-address",
		rule:    "R1: other hardware that has a machine's BMC address by now, and is off, proves nothing of that machine, whose Node was deleted",
		options: bed.StageOptions{Failover: true, Array: trusting},
		story:   otherHardware,
	},
	{
		name:    "late-off",
		rule:    "R6: an off that hangs past its time limit never lands on a node that is back",
		options: bed.StageOptions{Failover: true},
		story:   offThatHangs,
	},
	{
		name:        "fencer-dies",
		rule:        "R1: a fence whose sidecar died in the middle is gone on with by another one, once the dead one's lock has run out",
		options:     bed.StageOptions{Failover: true},
		guardedOnly: true,
		story:       fencerDies,
	},
	{
		name:    "readmitted",
		rule:    "R1: a node that is back under a new boot has none of its old mounts, loses our taint, and may have the volume again",
		from:    "dell/csm#1828, rook/rook#17790",
		options: bed.StageOptions{Failover: true},
		story:   readmitted,
	},
	{
		name:        "power-on",
		rule:        "R1: with powerOn WhenMoved a node that we switched off gets its power back only when nothing is attached to it any more",
		options:     bed.StageOptions{Failover: true},
		guardedOnly: true,
		story:       poweredOnAgain,
	},
}

// lives waits for a lease renewal: the node is known to live.
func lives() { time.Sleep(12 * time.Second) }

// untouched is shorter than fenceAfter (50 s) by more than a lease renewal.
const untouched = 38 * time.Second

// fencedWhileWriting: Kubernetes hears nothing of the node, and its containers
// write on.
func fencedWhileWriting(silence func(*bed.Node)) func(*play) {
	return func(p *play) {
		p.StartFailover(p.BMCs(), "fenceAfter: 50s")
		v, d, old, next := p.database()
		pod := p.podsOn(old)
		lives()
		silence(old)
		silent := time.Now()
		if !p.guarded() {
			p.stays(v, old, next, silent)
			return
		}
		p.Never(untouched, "the node was touched before fenceAfter", func() bool { return !old.HasPower() || moved(v, old, next) })
		p.sameAs(pod, old)
		if !v.Writing(old) {
			p.t.Fatalf("the containers of %s were to write on", old.Name)
		}
		p.WaitEvent("Node", old.Name, 10*time.Second, "FencepostSuspected", "reads on", "50s")
		p.WaitEvent("Pod", nameOf(pod), 10*time.Second, "FencepostSuspected", old.Name, "reads on")
		p.WaitFor(90*time.Second, "the node is switched off", func() bool { return !old.HasPower() })
		fenced := time.Now()
		v.WaitPublished(next, 60*time.Second)
		published := time.Since(fenced)
		d.WaitRunningOn(next, 60*time.Second)
		p.outcome("switched off %.0f s after it went silent, published elsewhere %.1f s after that", fenced.Sub(silent).Seconds(), published.Seconds())
	}
}

// stays notes what Kubernetes alone makes of a node that is silent.
func (p *play) stays(v *bed.Volume, old, next *bed.Node, silent time.Time) {
	p.t.Helper()
	old.WaitNotReady()
	if _, gone := p.within(60*time.Second, "the volume moves", func() bool { return v.AttachedTo(next) }); gone {
		p.outcome("published elsewhere %.0f s after the node went silent", time.Since(silent).Seconds())
		return
	}
	p.outcome("still attached to the silent node after %.0f s", time.Since(silent).Seconds())
}

func moved(v *bed.Volume, old, next *bed.Node) bool {
	return !v.AttachedTo(old) || v.AttachedTo(next)
}

// podsOn are the UIDs of the stage's pods on a node that are not ending, by name.
func (p *play) podsOn(n *bed.Node) map[string]string {
	p.t.Helper()
	list, err := p.Client.CoreV1().Pods(p.Name).List(p.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string]string{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			found[pod.Name] = string(pod.UID)
		}
	}
	return found
}

// nameOf is the name of the one pod.
func nameOf(pods map[string]string) string {
	for name := range pods {
		return name
	}
	return "(none)"
}

// sameAs fails unless those pods are still there, and no taint of ours.
func (p *play) sameAs(pods map[string]string, n *bed.Node) {
	p.t.Helper()
	if now := p.podsOn(n); len(pods) != 1 || fmt.Sprint(now) != fmt.Sprint(pods) {
		p.t.Fatalf("pods on %s: %v, want the one that ran there before: %v", n.Name, now, pods)
	}
	if tainted(n) {
		p.t.Fatalf("node %s has our taint", n.Name)
	}
}

// tainted tells whether our out-of-service taint is on the node.
func tainted(n *bed.Node) bool {
	node := n.Get()
	return node != nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService && t.Value == evidence.OurTaintValue
	})
}

// recordOf is what the sidecars have written down of a node.
func (p *play) recordOf(n *bed.Node) *record.Record {
	p.t.Helper()
	r, err := record.NewStore(p.Client.CoordinationV1(), "csi-fencepost").Get(p.t.Context(), n.Name)
	if err != nil {
		p.t.Fatal(err)
	}
	if r == nil {
		return record.New(n.Name)
	}
	return r
}

// voided tells whether the node was fenced, and no fence of it counts any more.
func (p *play) voided(n *bed.Node) bool {
	p.t.Helper()
	r := p.recordOf(n)
	return len(r.Fences) > 0 && !slices.ContainsFunc(r.Fences, func(f record.Fence) bool { return f.Current() })
}

// waitReadmitted waits until our taint is off and the record void.
func (p *play) waitReadmitted(n *bed.Node) {
	p.t.Helper()
	p.WaitFor(90*time.Second, "our taint on "+n.Name+" is off", func() bool { return !tainted(n) })
	p.WaitFor(30*time.Second, "the record of "+n.Name+" is void", func() bool { return p.voided(n) })
}

func pausedAndResumed(p *play) {
	p.StartFailover(p.BMCs(), "fenceAfter: 50s")
	v, _, old, next := p.database()
	pod := p.podsOn(old)
	lives()
	old.CutOff()
	// Long enough to be suspected, too short for fenceAfter whenever it last
	// renewed its lease.
	p.Never(32*time.Second, "the node was touched while it was paused", func() bool { return !old.HasPower() || moved(v, old, next) })
	if p.guarded() {
		p.WaitEvent("Node", old.Name, 5*time.Second, "FencepostSuspected", "reads on")
	}
	old.Reconnect()
	old.WaitReady(30 * time.Second)
	if !p.guarded() {
		p.outcome("nothing happens to it")
		return
	}
	p.Never(45*time.Second, "the node that is back was touched", func() bool { return !old.HasPower() || moved(v, old, next) })
	p.sameAs(pod, old)
	if !v.Writing(old) {
		p.t.Fatalf("the pod on %s does not write any more", old.Name)
	}
	for _, f := range p.recordOf(old).Fences {
		p.t.Errorf("a fence is on record: %+v", f)
	}
	p.outcome("suspected, and left alone when it was back")
}

func rebootedInTakeover(p *play) {
	p.StartFailover(p.BMCs())
	v, _, old, next := p.database()
	lives()
	p.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Node: old.ID, Do: array.Proceed, Delay: 8 * time.Second, Times: 1})
	old.PowerOff()
	off := time.Now()
	if !p.guarded() {
		old.Boot()
		p.waitWriting(v)
		p.outcome("the pod runs %.0f s after the power went", time.Since(off).Seconds())
		return
	}
	p.WaitFor(60*time.Second, "the takeover is under way", func() bool { return tainted(old) && v.Calls(array.Unpublish, old, off) > 0 })
	old.Boot()
	p.Log("back while its volume was taken from it; published to the other node: %v", v.AttachedTo(next))
	p.waitReadmitted(old)
	p.waitWriting(v)
	if attached := p.Array.Attached(v.Handle); len(attached) != 1 {
		p.t.Fatalf("%s is attached to %q, want one node", v.Name, attached)
	}
	p.outcome("back in the middle of the takeover; its taint is off, the fence void, the pod runs %.0f s after the power went", time.Since(off).Seconds())
}

// waitWriting waits until a pod of the stage runs, wherever, and writes to v.
func (p *play) waitWriting(v *bed.Volume) {
	p.t.Helper()
	p.WaitFor(150*time.Second, "a pod runs and writes to "+v.Name, func() bool {
		return slices.ContainsFunc(p.Nodes, func(n *bed.Node) bool { return v.Writing(n) && n.Ready() && len(p.podsOn(n)) == 1 })
	})
}

func fencedByLevelTwo(p *play) {
	p.StartFailover(fmt.Sprintf("[{agents: [{name: bmc, timeout: 5s, attempts: 1, ipmi: %s}]}, {agents: [{name: spare, timeout: 20s, attempts: 2, exec: %s}]}]",
		p.IPMI(), p.FenceIPMILAN()), "fenceAfter: 50s")
	v, d, old, next := p.database()
	lives()
	if err := old.BMC().Hang(); err != nil {
		p.t.Fatal(err)
	}
	old.CutOff()
	silent := time.Now()
	if !p.guarded() {
		p.stays(v, old, next, silent)
		return
	}
	p.Never(untouched, "the node was touched before fenceAfter", func() bool { return !old.HasPower() || moved(v, old, next) })
	p.WaitFor(120*time.Second, "the node is switched off", func() bool { return !old.HasPower() })
	v.WaitPublished(next, 90*time.Second)
	d.WaitRunningOn(next, 60*time.Second)
	f := p.recordOf(old).Fence(fence.PowerReading, "")
	if f == nil || !slices.Equal(f.Agents, []string{"spare"}) || !strings.Contains(fmt.Sprint(f.Steps), "{bmc off") {
		p.t.Fatalf("the record was to say that bmc was tried and spare confirmed: %+v", f)
	}
	p.outcome("the BMC hung, the second level switched it off; published elsewhere %.0f s after it went silent", time.Since(silent).Seconds())
}

func awaitsTheOperator(p *play) {
	p.StartFailover("")
	v, d, old, next := p.database()
	pod := p.podsOn(old)
	lives()
	old.PowerOff()
	off := time.Now()
	if !p.guarded() {
		p.stays(v, old, next, off)
		return
	}
	text := p.WaitEvent("Pod", nameOf(pod), 60*time.Second, "FencepostSuspected", old.Name, "no fence agent covers it", "fence confirm "+old.Name)
	p.Log("on the pod %.0f s after the power went: %s", time.Since(off).Seconds(), text)
	p.Never(15*time.Second, "the volume moved on nobody's word", func() bool { return moved(v, old, next) })
	p.sameAs(pod, old)
	old.Confirm()
	confirmed := time.Now()
	v.WaitPublished(next, 60*time.Second)
	published := time.Since(confirmed)
	d.WaitRunningOn(next, 60*time.Second)
	p.outcome("waits, and says so on the pod; published elsewhere %.1f s after the operator's word", published.Seconds())
}

func overriddenBMC(p *play) {
	old, next := p.Nodes[0], p.Nodes[1]
	old.StuckBMC()
	p.StartFailover(p.BMCs())
	v := p.Volume("disk", bed.VolumeOptions{})
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	lives()
	old.PowerOff()
	off := time.Now()
	old.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	if !p.guarded() {
		v.WaitPublished(next, p.Bed.Clocks.ForceDetachAfter+120*time.Second)
		p.outcome("taken from the silent node by force %.0f s after the power went, with no proof", time.Since(off).Seconds())
		return
	}
	p.WaitEvent("Pod", "db2", 60*time.Second, "FencepostSuspected", "reads on")
	old.Confirm()
	p.Log("refused: %s", v.WaitRefused(old, string(fence.EvidenceContradicted), p.Bed.Clocks.ForceDetachAfter+60*time.Second))
	p.Never(10*time.Second, "the volume moved although the BMC reads on", func() bool { return moved(v, old, next) })

	const why = "the LED is dark and the BMC answers from a cache"
	p.Log("%s", old.Confirm("--override-agent="+why))
	overridden := time.Now()
	v.WaitPublished(next, 90*time.Second)
	published := time.Since(overridden)
	db2.WaitRunning(60 * time.Second)
	r := p.recordOf(old)
	if !slices.ContainsFunc(r.Audit, func(a record.Audit) bool {
		return a.Action == "OverrideAgent" && strings.Contains(a.Detail, "agent bmc") && strings.Contains(a.Detail, why)
	}) {
		p.t.Errorf("the audit trail lacks the override: %+v", r.Audit)
	}
	p.outcome("refused while the BMC reads on, whatever the operator confirms; published elsewhere %.1f s after the agent was overridden, on record", published.Seconds())
}

// otherHardware: who cleans up after a partition deletes the Node, and somebody gives
// its BMC's address to a machine that is not switched on yet.
func otherHardware(p *play) {
	p.StartFailover(p.BMCs(), "fenceAfter: 10m")
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	lives()
	old.CutOff()
	old.WaitNotReady()
	old.OtherMachineAtBMC(false)
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
}

func offThatHangs(p *play) {
	// Its off leaves the session and would land half a minute later.
	agent := p.ShellAgent("fence_slow", `setsid sh -c "sleep 30; exec '$0' now $plug" & sleep 60`)
	p.StartFailover(fmt.Sprintf("[{agents: [{name: slow, timeout: 10s, attempts: 2, exec: %s}]}]", agent), "fenceAfter: 50s")
	v, _, old, next := p.database()
	pod := p.podsOn(old)
	lives()
	old.CutOff()
	silent := time.Now()
	if !p.guarded() {
		p.stays(v, old, next, silent)
		return
	}
	p.WaitFor(120*time.Second, "off is under way", func() bool { return p.AgentNotes("fence_slow", "off") == 1 })
	asked := time.Now()
	old.Reconnect()
	old.WaitReady(30 * time.Second)
	p.Never(time.Until(asked.Add(45*time.Second)), "an off landed on the node that is back", func() bool { return !old.HasPower() || moved(v, old, next) })
	if n, late := p.AgentNotes("fence_slow", "off"), p.AgentNotes("fence_slow", "late"); n != 1 || late != 0 {
		p.t.Fatalf("off was asked for %d times, and landed late %d times", n, late)
	}
	p.sameAs(pod, old)
	if !v.Writing(old) {
		p.t.Fatalf("the pod on %s does not write any more", old.Name)
	}
	p.outcome("the agent was killed at its time limit; the node that is back keeps its power and its volume")
}

func restartedOften(p *play) {
	p.StartFailover(p.BMCs())
	v, d, old, next := p.database()
	lives()
	old.PowerOff()
	off, kills, last := time.Now(), 0, time.Time{}
	for ; !v.AttachedTo(next); time.Sleep(200 * time.Millisecond) {
		if time.Since(off) > 90*time.Second {
			p.t.Fatalf("the volume is not attached to %s %.0f s after the power went, with csi-fencepost killed %d times meanwhile", next.Name, time.Since(off).Seconds(), kills)
		}
		if time.Since(last) >= 9*time.Second {
			p.must(p.Fencepost.Kill())
			last, kills = time.Now(), kills+1
		}
	}
	v.WaitPublished(next, 60*time.Second)
	d.WaitRunningOn(next, 60*time.Second)
	p.outcome("published elsewhere although csi-fencepost was killed every 9 s, %d times", kills)
}

func fencerDies(p *play) {
	hold := p.Write("hold", "", 0o644)
	agent := p.ShellAgent("fence_held", fmt.Sprintf("while [ -e '%s' ]; do sleep 0.2; done", hold))
	p.StartFailover(fmt.Sprintf("[{agents: [{name: held, timeout: 20s, attempts: 1, exec: %s}]}]", agent), "fenceAfter: 50s")
	v, d, old, next := p.database()
	lives()
	old.CutOff()
	silent := time.Now()
	time.Sleep(5 * time.Second)
	second := p.ExtraFencepost("second") // it begins to watch now, so it is the later one
	p.WaitFor(120*time.Second, "off is under way", func() bool { return p.AgentNotes("fence_held", "off") == 1 })
	p.must(p.Fencepost.Kill())
	died := time.Now()
	p.must(os.Remove(hold))
	p.Never(20*time.Second, "the dead one's lock was not waited for", func() bool { return p.AgentNotes("fence_held", "off") > 1 || !old.HasPower() })
	p.WaitFor(120*time.Second, "the node is switched off", func() bool { return !old.HasPower() })
	fenced := time.Since(died)
	v.WaitPublished(next, 90*time.Second)
	d.WaitRunningOn(next, 60*time.Second)
	if asked, done := p.AgentNotes("fence_held", "off"), p.AgentNotes("fence_held", "done"); asked != 2 || done != 1 {
		p.t.Fatalf("off was asked for %d times and sent %d times, want 2 and 1", asked, done)
	}
	if !strings.Contains(p.LogOf(second), "Fencing the node") {
		p.t.Fatalf("the second csi-fencepost was to fence:\n%s", second.LogFile())
	}
	p.outcome("fenced by another sidecar %.0f s after the first died; published elsewhere %.0f s after the node went silent", fenced.Seconds(), time.Since(silent).Seconds())
}

func readmitted(p *play) {
	p.StartFailover(p.BMCs())
	v, d, old, next := p.database()
	lives()
	old.PowerOff()
	off := time.Now()
	if !p.guarded() {
		p.stays(v, old, next, off)
		old.Boot()
		p.waitWriting(v)
		p.outcome("the pod runs when the node is back, %.0f s after the power went", time.Since(off).Seconds())
		return
	}
	v.WaitPublished(next, 60*time.Second)
	d.WaitRunningOn(next, 60*time.Second)
	old.Boot()
	back := time.Now()
	p.waitReadmitted(old)
	p.WaitEvent("Node", old.Name, 10*time.Second, "FencepostReadmitted", old.Name)
	readmittedAfter := time.Since(back)
	if inUse, attached := old.Lists(v); v.MountedOn(old) || inUse || attached {
		p.t.Fatalf("%s still stands on %s: mounted %v, in use %v, attached %v", v.Name, old.Name, v.MountedOn(old), inUse, attached)
	}
	d.MoveTo(old)
	v.WaitPublished(old, 120*time.Second)
	d.WaitRunningOn(old, 120*time.Second)
	p.outcome("readmitted %.1f s after it was back, without its old mounts, and the volume moved back", readmittedAfter.Seconds())
}

func poweredOnAgain(p *play) {
	p.StartFailover(p.BMCs(), "fenceAfter: 50s", "powerOn: WhenMoved")
	v, d, old, next := p.database()
	lives()
	old.CutOff()
	p.WaitFor(120*time.Second, "the node is switched off", func() bool { return !old.HasPower() })
	off := time.Now()
	early := false
	p.WaitFor(90*time.Second, "the node has power again", func() bool {
		attached := v.AttachedTo(old)
		on := old.HasPower()
		early = early || on && attached
		return on
	})
	if early {
		p.t.Fatalf("the node got its power back while the volume was attached to it")
	}
	on := time.Since(off)
	v.WaitPublished(next, 60*time.Second)
	d.WaitRunningOn(next, 60*time.Second)
	old.WaitReady(90 * time.Second)
	p.waitReadmitted(old)
	if v.MountedOn(old) {
		p.t.Fatalf("%s still stands on %s", v.Name, old.Name)
	}
	p.outcome("switched off, and on again %.1f s later, when its volume had moved; then readmitted", on.Seconds())
}
