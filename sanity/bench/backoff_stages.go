package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// waitCase is one reason for which volumes wait, and how it goes away.
type waitCase struct {
	key    string
	reason string // as the table says it
	ends   string // how it goes away
	wakes  string // what wakes the volumes
	lanes  []*waitLane
	// prepare is called once the volumes are attached, or, of volumes that never
	// were, before they are asked for; finish ends the reason, for all lanes.
	prepare, finish func()
}

// begin asks for the case's volumes on the node that is to have them.
func (c *waitCase) begin() {
	if c.fresh() {
		c.prepare()
	}
	for _, l := range c.lanes {
		l.move()
	}
}

func (c *waitCase) end() {
	for _, l := range c.lanes {
		l.see.ending(l)
	}
	c.finish()
	for _, l := range c.lanes {
		l.see.ended(l)
	}
}

// fresh tells whether no node had its volumes before.
func (c *waitCase) fresh() bool { return c.lanes[0].holder == "" }

// waitLane are the volumes of one case on one side.
type waitLane struct {
	*waitCase
	side     string
	compared bool // csi-fencepost that may not wake has it as well
	stage    *bed.Stage
	holder   string // machine; empty: none
	target   string // machine
	volumes  []*bed.Volume
	see      *waitSight
	// What was seen, in seconds, one of each volume that got so far.
	refusedFor, published, running []float64
}

// hold makes the volumes, and has the holder use them.
func (l *waitLane) hold(see *waitSight) {
	l.see = see
	for i := range waitVolumes {
		l.volumes = append(l.volumes, l.stage.Volume(fmt.Sprintf("%s-%d", l.key, i), bed.VolumeOptions{}))
	}
	if l.holder == "" {
		return
	}
	for _, v := range l.volumes {
		l.stage.Pod("old-"+v.Name, l.node(l.holder), v)
	}
}

// held waits until the holder uses the volumes.
func (l *waitLane) held() {
	for _, v := range l.volumes {
		if l.holder != "" {
			l.stage.PodOf("old-" + v.Name).WaitRunning(5 * time.Minute)
		}
	}
}

// move deletes the old pods by force, as people do, and starts the new ones.
func (l *waitLane) move() {
	target := l.node(l.target)
	for _, v := range l.volumes {
		if l.holder != "" {
			l.stage.PodOf("old-" + v.Name).ForceDelete()
		}
		l.stage.Pod("new-"+v.Name, target, v)
	}
	l.see.follow(l, target)
}

// node is the stage's node on that machine.
func (l *waitLane) node(machine string) *bed.Node { return nodeOn(l.stage, machine) }

func nodeOn(s *bed.Stage, machine string) *bed.Node {
	for _, n := range s.Nodes {
		if strings.HasSuffix(n.Name, "-"+machine) {
			return n
		}
	}
	panic("no machine " + machine)
}

// waitStages are the drivers of a round, all on the same machines.
type waitStages struct {
	plane *plane
	// guarded has all machines; muted stands on them too, and may not wake. The
	// other pairs have a reason that concerns a whole driver.
	guarded, muted         *bed.Stage
	moving, movingMuted    *bed.Stage // failover enabled
	denied, deniedMuted    *bed.Stage // rights are missing
	restarted, restartBare *bed.Stage // the driver goes away
	bare                   *bed.Stage // Kubernetes alone
}

// mute takes the right to touch VolumeAttachments, in roles of its own.
func mute(manifests string) string {
	const rule = "- apiGroups: [storage.k8s.io]\n  resources: [volumeattachments]\n  verbs: [patch]\n"
	if strings.Count(manifests, rule) != 1 {
		panic("deploy/rbac does not have the right to touch VolumeAttachments where it was")
	}
	return strings.ReplaceAll(strings.Replace(manifests, rule, "", 1), "csi-fencepost-enforce", "csi-fencepost-muted")
}

// machinesAtWork have power. The BMCs know bmc, ended and outlet alone, whose state is told by
// nothing else.
var machinesAtWork = []string{"confirmed", "tainted", "returned", "rebooted", "target"}

const noStorm = "maxUnhealthy: 100%" // every other machine dies here

func newWaitStages(p *plane) *waitStages {
	s := &waitStages{plane: p}
	guardedBy := func(name string, o bed.StageOptions) *bed.Stage {
		o.Nodes, o.FencepostArgs, o.AttacherArgs = -1, deployed, advised
		return p.bed.Stage(p, name, o)
	}
	s.moving = guardedBy("moving", bed.StageOptions{Failover: true})
	s.moving.AddNode("outlet", "id-outlet", 0)
	s.guarded = guardedBy("guarded", bed.StageOptions{Manual: true})
	s.guarded.AddNode("bmc", "id-bmc", 0)
	s.guarded.AddNode("ended", "id-ended", 0)
	levels := s.guarded.BMCs()
	for _, m := range machinesAtWork {
		s.guarded.AddNode(m, "id-"+m, 0)
	}
	s.guarded.AddNode("quiet", "id-quiet", 0)
	s.guarded.AddNode("aside", "id-aside", 0)
	target := nodeOn(s.guarded, "target")
	s.guarded.Options.Config = "fencing:\n  levels: " + levels + "\n  " + noStorm
	startWith(s.guarded)

	s.muted = guardedBy("muted", bed.StageOptions{Manual: true, Rights: mute})
	s.muted.Options.Config = "fencing: {" + noStorm + "}"
	for _, m := range machinesAtWork {
		s.muted.Adopt(nodeOn(s.guarded, m), "id-"+m)
	}
	startWith(s.muted)

	s.movingMuted = guardedBy("moving-muted", bed.StageOptions{Failover: true, Rights: mute})
	s.movingMuted.Adopt(nodeOn(s.moving, "outlet"), "id-outlet")
	for _, stage := range []*bed.Stage{s.moving, s.movingMuted} {
		levels := stage.BMCs()
		stage.Adopt(target, "id-target")
		stage.StartFailover(levels, noStorm)
	}
	for name, side := range map[string]struct {
		stage **bed.Stage
		o     bed.StageOptions
	}{
		"denied": {&s.denied, bed.StageOptions{}}, "denied-muted": {&s.deniedMuted, bed.StageOptions{Rights: mute}},
		"restarted": {&s.restarted, bed.StageOptions{}},
		"bare":      {&s.bare, bed.StageOptions{Alone: true}}, "restart-bare": {&s.restartBare, bed.StageOptions{Alone: true}},
	} {
		side.o.Manual, side.o.Config = true, "fencing: {"+noStorm+"}"
		*side.stage = guardedBy(name, side.o)
		(*side.stage).Adopt(target, "id-target")
		startWith(*side.stage)
	}
	return s
}

func startWith(s *bed.Stage) {
	if !s.Options.Alone {
		s.StartFencepost()
	}
	s.StartAttacher()
}

// goDark takes the machines away, each in the way that its reason wants.
func (s *waitStages) goDark(ctx context.Context) error {
	for _, m := range []string{"confirmed", "tainted", "rebooted"} {
		nodeOn(s.guarded, m).PowerOff()
	}
	ended := nodeOn(s.guarded, "ended")
	silent := []*bed.Node{nodeOn(s.guarded, "returned"), nodeOn(s.guarded, "bmc"), nodeOn(s.moving, "outlet"), ended}
	for _, n := range silent {
		n.CutOff()
	}
	for _, n := range append(silent, nodeOn(s.guarded, "confirmed"), nodeOn(s.guarded, "tainted"), nodeOn(s.guarded, "rebooted")) {
		n.WaitNotReady()
	}
	ended.Delete() // as an autoscaler does before it ends the machine
	return ctx.Err()
}

func volumesOf(cases []*waitCase) (n int) {
	for _, c := range cases {
		n += len(c.lanes) * waitVolumes
	}
	return n
}

// pair are lanes on both sides of csi-fencepost.
func pair(c *waitCase, holder string, guarded, muted *bed.Stage) *waitCase {
	c.lanes = []*waitLane{{waitCase: c, side: woken, compared: true, stage: guarded, holder: holder, target: "target"},
		{waitCase: c, side: asleep, compared: true, stage: muted, holder: holder, target: "target"}}
	return c
}

// besideKubernetes are lanes of csi-fencepost and of Kubernetes alone: the error
// is the driver's own.
func besideKubernetes(c *waitCase, guarded, bare *bed.Stage) *waitCase {
	c.lanes = []*waitLane{{waitCase: c, side: woken, stage: guarded, target: "target"}, {waitCase: c, side: alone, stage: bare, target: "target"}}
	return c
}

// each calls f with every volume of the case.
func (c *waitCase) each(f func(*waitLane, *bed.Volume)) {
	for _, l := range c.lanes {
		for _, v := range l.volumes {
			f(l, v)
		}
	}
}

// cases in the order in which they end: a confirmation of the node frees what is
// released, failing or garbled there as well, so it comes after the one and before
// the others.
func (s *waitStages) cases() []*waitCase {
	return append(s.silentCases(), append(s.failingCases(), s.driverCases()...)...)
}

// silentCases are those whose holder is silent, and nothing proves it off.
func (s *waitStages) silentCases() []*waitCase {
	const silent = "HolderStale: the node is silent"
	held := func(c *waitCase, holder string) *waitCase { return pair(c, holder, s.guarded, s.muted) }
	release := held(&waitCase{key: "release", reason: silent, ends: "a person releases the volume (`release pv`)", wakes: "the node's record"}, "confirmed")
	release.finish = func() { release.each(s.release) }
	confirm := held(&waitCase{key: "confirm", reason: silent, ends: "a person confirms it off (`fence confirm`)", wakes: "the node's record"}, "confirmed")
	confirm.finish = func() { s.confirm(nodeOn(s.guarded, "confirmed")) }
	taint := held(&waitCase{key: "taint", reason: silent, ends: "a person taints it out of service", wakes: "the Node, once the taint is bound to this boot"}, "tainted")
	taint.finish = func() { nodeOn(s.guarded, "tainted").Taint(bed.OutOfServiceTaint) }
	returned := held(&waitCase{key: "returned", reason: silent + ", its pods run on", ends: "it is heard again, and has unmounted", wakes: "the Node's volumesInUse"}, "returned")
	returned.finish = func() { nodeOn(s.guarded, "returned").Reconnect(); s.awaitUnmounted(returned) }
	rebooted := held(&waitCase{key: "rebooted", reason: silent, ends: "it is Ready again after a boot", wakes: "the Node's boot ID and volumesInUse"}, "rebooted")
	rebooted.finish = func() { nodeOn(s.guarded, "rebooted").Boot(); s.awaitUnmounted(rebooted) }
	// Each on a target of its own, and with no other sidecar that asks about this
	// machine: whatever happens on a target has all that wait for it looked at again.
	unseen := func(reason, holder, target string) *waitCase {
		c := &waitCase{key: holder, reason: reason + ", its BMC reads on; no failover", ends: "its power is cut", wakes: "of the calls that wait for a node one is looked at after 1 s, doubling to 30 s, and that asks its BMC"}
		c.lanes = []*waitLane{{waitCase: c, side: woken, stage: s.guarded, holder: holder, target: target}}
		c.finish = func() { nodeOn(s.guarded, holder).PowerOff() }
		return c
	}
	bmc := unseen(silent, "bmc", "quiet")
	ended := unseen("HolderUnknown: the Node was deleted", "ended", "aside")
	moving := pair(&waitCase{key: "outlet", reason: silent + ", its BMC reads on; failover enabled", ends: "its power is cut", wakes: "the failover asks the BMC every 3 s"}, "outlet", s.moving, s.movingMuted)
	moving.finish = func() { nodeOn(s.moving, "outlet").PowerOff() }
	all := []*waitCase{release, confirm, taint, returned, rebooted, bmc, ended, moving}
	for _, c := range all {
		c.prepare = func() {}
	}
	return all
}

// failingCases are those whose holder is proven off, while something else is in the way.
func (s *waitStages) failingCases() []*waitCase {
	var faults []*array.Injection
	unpublish := pair(&waitCase{key: "unpublish", reason: "UnpublishFailed: the driver cannot unpublish the old node", ends: "it can", wakes: "a retry after 1 s, doubling to 10 s"}, "confirmed", s.guarded, s.muted)
	unpublish.prepare = func() {
		unpublish.each(func(l *waitLane, v *bed.Volume) {
			faults = append(faults, l.stage.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Fail, Message: "cannot reach the VM"}))
		})
	}
	unpublish.finish = func() { clearAll(faults) }
	garbled := pair(&waitCase{key: "ledger", reason: "LedgerUnreadable: the ledger is no JSON", ends: "a person takes it off", wakes: "the PersistentVolume"}, "confirmed", s.guarded, s.muted)
	garbled.prepare = func() { garbled.each(func(_ *waitLane, v *bed.Volume) { v.SetLedger("{") }) }
	garbled.finish = func() { garbled.each(func(_ *waitLane, v *bed.Volume) { v.SetLedger("") }) }
	return []*waitCase{unpublish, garbled}
}

func clearAll(faults []*array.Injection) {
	for _, f := range faults {
		f.Clear()
	}
}

// driverCases are those in which nobody else holds the volume, and the driver or the API server
// does not do what is asked of it.
func (s *waitStages) driverCases() []*waitCase {
	var bindings []*rbacv1.ClusterRoleBinding
	denied := pair(&waitCase{key: "denied", reason: "APIUnavailable: the right to read was taken away", ends: "it is given back", wakes: "a retry after 1 s, doubling to 10 s"}, "", s.denied, s.deniedMuted)
	denied.prepare = func() { bindings = s.takeRights(s.denied, s.deniedMuted) }
	denied.finish = func() { s.giveRights(bindings) }
	var faults []*array.Injection
	failing := besideKubernetes(&waitCase{key: "failing", reason: "the driver's own error: it cannot publish", ends: "it can", wakes: "nothing: the error is passed on unchanged"}, s.guarded, s.bare)
	failing.prepare = func() {
		failing.each(func(l *waitLane, v *bed.Volume) {
			faults = append(faults, l.stage.Array.Inject(array.Fault{Method: array.Publish, Volume: v.Handle, Do: array.Fail, Message: "the backend is busy"}))
		})
	}
	failing.finish = func() { clearAll(faults) }
	away := besideKubernetes(&waitCase{key: "away", reason: "the driver's socket is dead", ends: "the driver is back", wakes: "a retry after 1 s, doubling to 10 s; alone, the attacher ends with its connection and begins anew"}, s.restarted, s.restartBare)
	away.prepare = func() { s.restarted.Array.Kill(); s.restartBare.Array.Kill() }
	away.finish = func() {
		for _, stage := range []*bed.Stage{s.restarted, s.restartBare} {
			s.must(stage.Array.Serve(context.WithoutCancel(s.plane.ctx), stage.DriverSocket()))
		}
	}
	return []*waitCase{denied, failing, away}
}

// outage begins attaching volumes, and returns once the driver has their calls.
func (s *waitStages) outage(see *waitSight) *waitCase {
	c := pair(&waitCase{key: "outage", reason: "APIUnavailable: the API server does not answer", ends: "it answers again", wakes: "the attacher hangs with it, and goes on with it"}, "", s.guarded, s.muted)
	var slow []*array.Injection
	c.prepare = func() {
		c.each(func(l *waitLane, v *bed.Volume) {
			slow = append(slow, l.stage.Array.Inject(array.Fault{Method: array.Publish, Volume: v.Handle, Do: array.Proceed, Times: 1, Delay: 5 * time.Second}))
		})
	}
	c.finish = func() { s.must(s.plane.bed.Cluster.ResumeAPIServer()) }
	for _, l := range c.lanes {
		l.hold(see)
	}
	c.begin()
	s.guarded.WaitFor(time.Minute, "the driver has the calls", func() bool {
		for _, f := range slow {
			if f.Hits() == 0 {
				return false
			}
		}
		return true
	})
	return c
}

// confirm is `fence confirm`, without its own look at the lease: it is known here
// that the machine is off.
func (s *waitStages) confirm(n *bed.Node) {
	node := n.Get()
	lease, err := s.plane.client.CoordinationV1().Leases("kube-node-lease").Get(s.plane.ctx, n.Name, metav1.GetOptions{})
	s.must(err)
	_, err = s.records().Confirm(s.plane.ctx, n.Name, record.Confirmation{By: "bench", Reason: "its power was cut", Machines: []record.Machine{
		{NodeUID: string(node.UID), BootID: node.Status.NodeInfo.BootID, LeaseRV: lease.ResourceVersion}}})
	s.must(err)
}

// release is `release pv`, likewise.
func (s *waitStages) release(l *waitLane, v *bed.Volume) {
	n := l.node(l.holder)
	book, err := ledger.Parse(v.Ledger())
	s.must(err)
	e := book.Get(n.ID)
	if e == nil {
		s.plane.Fatalf("the ledger of %s does not name %s", v.Name, n.ID)
	}
	lease, err := s.plane.client.CoordinationV1().Leases("kube-node-lease").Get(s.plane.ctx, n.Name, metav1.GetOptions{})
	s.must(err)
	_, err = s.records().ReleaseVolume(s.plane.ctx, n.Name, record.Release{Volume: v.Handle, Driver: l.stage.Driver,
		NodeID: n.ID, NodeUID: e.NodeUID, BootID: e.BootID, LeaseRV: lease.ResourceVersion, Life: record.Silent, Token: e.Token, By: "bench", Reason: "its power was cut"})
	s.must(err)
}

func (s *waitStages) records() *record.Store {
	return record.NewStore(s.plane.client.CoordinationV1(), config.Default().Fencing.Namespace)
}

// awaitUnmounted returns when no volume of the case is in its holder's status any
// more: only then is the reason gone.
func (s *waitStages) awaitUnmounted(c *waitCase) {
	s.guarded.WaitFor(90*time.Second, "the node that is back lets go", func() bool {
		for _, l := range c.lanes {
			n := l.node(l.holder)
			if !n.Ready() {
				return false
			}
			for _, v := range l.volumes {
				if inUse, attached := n.Lists(v); inUse || attached {
					return false
				}
			}
		}
		return true
	})
}

// takeRights takes what csi-fencepost may read.
func (s *waitStages) takeRights(stages ...*bed.Stage) (taken []*rbacv1.ClusterRoleBinding) {
	api := s.plane.client.RbacV1().ClusterRoleBindings()
	for _, stage := range stages {
		name := "csi-fencepost-observe-" + stage.Driver
		b, err := api.Get(s.plane.ctx, name, metav1.GetOptions{})
		s.must(err)
		s.must(api.Delete(s.plane.ctx, name, metav1.DeleteOptions{}))
		b.ResourceVersion, b.UID = "", ""
		taken = append(taken, b)
	}
	return taken
}

func (s *waitStages) giveRights(taken []*rbacv1.ClusterRoleBinding) {
	for _, b := range taken {
		_, err := s.plane.client.RbacV1().ClusterRoleBindings().Create(s.plane.ctx, b, metav1.CreateOptions{})
		s.must(err)
	}
}

func (s *waitStages) must(err error) {
	if err != nil {
		s.plane.Fatalf("%v", err)
	}
}
