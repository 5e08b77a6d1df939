package scenarios

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

const (
	fenceAfter = "fenceAfter: 50s"
	// cutWithin is fenceAfter, the lease's last renewal before it, and a machine
	// under load.
	cutWithin = 150 * time.Second
	// renewal: after so long a node's lease was seen to change.
	renewal = 12 * time.Second
)

// cutClients: many nodes at once, several drivers, and fences at the storage.
var cutClients = []scenario{
	{
		name:    "driver-fails",
		rule:    "R5: a dead node's volume stays until the driver can unpublish it, the pod says why, and then it moves by itself",
		from:    "NetApp/trident#691, kubernetes-sigs/vsphere-csi-driver#526",
		options: bed.StageOptions{Failover: true, Array: trusting},
		story:   driverFails,
	},
	{
		name:    "rack",
		rule:    "R6: a rack that goes silent at once is not fenced; what is read off moves all the same",
		from:    "dell/csm#1766, dell/csm#765",
		options: bed.StageOptions{Failover: true, Nodes: 4, FencepostArgs: []string{"--http-endpoint=127.0.0.1:0"}},
		ownBed:  true,
		story:   rackSilent,
	},
	{
		name:    "all-silent",
		rule:    "R6: when every lease is stale at once nobody is fenced, nor when the nodes come back one by one",
		from:    "dell/csm#1766, dell/csm#765",
		options: bed.StageOptions{Failover: true, Nodes: 3},
		ownBed:  true,
		story:   allSilent,
	},
	{
		name:    "outage-trickle",
		rule:    "R6: after an outage of the API server, longer than fenceAfter, no living node is fenced while leases trickle in",
		from:    "dell/csm#1766",
		options: bed.StageOptions{Failover: true, Nodes: 3},
		ownBed:  true,
		story:   afterOutage,
	},
	{
		name:    "storage-fence",
		rule:    "R1: a node cut off at the storage lives, its writes fail, its volume moves; it has access again once its kubelet has unmounted",
		from:    "rook/rook#14832, rook/rook#7954",
		options: bed.StageOptions{Failover: true, Array: cuttable},
		story:   func(p *play) { cutOffAtStorage(p, false) },
	},
	{
		name:    "storage-boot",
		rule:    "R1: a node cut off at the storage whose kubelet restarted and forgot what is mounted has access again only after a boot; then its volume can move back",
		from:    "rook/rook#17790",
		options: bed.StageOptions{Failover: true, Array: cuttable},
		story:   func(p *play) { cutOffAtStorage(p, true) },
	},
	{
		name:        "storage-on",
		rule:        "R1: a person who gives a node its access back is refused while that node lives and lists what was moved off it, and told why",
		from:        "rook/rook#17790",
		options:     bed.StageOptions{Failover: true, Array: cuttable},
		guardedOnly: true,
		story:       accessAskedBack,
	},
	{
		name:    "storage-other",
		rule:    "R1: a fence at one driver's storage leaves a pod alone that also writes to another driver's volume, and says so",
		options: bed.StageOptions{Failover: true, Array: cuttable},
		story:   otherDriversVolume,
	},
	{
		name:    "two-drivers",
		rule:    "R6: two drivers' sidecars share one power fence of a node, and both move their volumes",
		options: bed.StageOptions{Failover: true},
		story:   twoDrivers,
	},
	{
		name:    "apart-power",
		rule:    "R1: failover under an account of its own turns a dead node off and moves the pods of two drivers, whose sidecars only guard and go by its word",
		options: bed.StageOptions{Config: "fencing: {maxUnhealthy: 100%, apart: true}"},
		story:   apartPower,
	},
	{
		name:    "apart-lie",
		rule:    "R1: a sidecar without agents asks failover whether the machine is on, and that it reads on stands against a person's word",
		options: bed.StageOptions{Config: "fencing: {maxUnhealthy: 100%, apart: true}"},
		story:   apartLie,
	},
	{
		name:    "sts-is-back",
		rule:    "R6: the pod of a StatefulSet that is already back under its old name elsewhere is not deleted with the dead node's",
		from:    "k/65392, k/50944",
		options: bed.StageOptions{Failover: true},
		story:   statefulSetIsBack,
	},
	{
		name:    "by-hand",
		rule:    "R5: with no agent, a disk detached by hand at the array moves at the operator's word, and that disk alone",
		from:    "kubernetes-sigs/vsphere-csi-driver#2506, k/80488",
		options: bed.StageOptions{Failover: true, Array: unlisting},
		story:   detachedByHand,
	},
	{
		name:    "opt-out-pod",
		rule:    "R6: pods that opt out, themselves or by a claim, stay on a dead node; the others move",
		options: bed.StageOptions{Failover: true},
		story:   podsOptOut,
	},
	{
		name:    "opt-out-node",
		rule:    "R6: a node that opts out is neither fenced nor emptied, until the annotation is off",
		options: bed.StageOptions{Failover: true},
		story:   nodeOptsOut,
	},
}

func driverFails(p *play) {
	p.StartFailover(p.BMCs())
	v, d, old, next := p.database()
	time.Sleep(renewal)
	failing := p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.Internal, Message: "cannot reach VM"})
	old.PowerOff()
	off := time.Now()
	if !p.guarded() {
		old.WaitNotReady()
		failing.Clear()
		_, moved := p.within(60*time.Second, "the volume moves", func() bool { return v.AttachedTo(next) })
		if !moved {
			p.outcome("still attached to the dead node %.0f s after the power went", time.Since(off).Seconds())
		}
		return
	}
	p.WaitFor(90*time.Second, "the driver is asked to unpublish", func() bool { return failing.Hits() > 0 })
	p.Log("refused: %s", v.WaitRefused(next, string(fence.UnpublishFailed), 60*time.Second))
	p.Log("said on the Pod: %s", p.WaitEvent("Pod", d.PodName(), 60*time.Second, "cannot reach VM", old.Name))
	p.Never(10*time.Second, "the volume was published although the driver could not unpublish it", func() bool { return v.AttachedTo(next) })
	failing.Clear()
	works := time.Now()
	v.WaitPublished(next, 90*time.Second)
	p.outcome("the pod says what fails; published elsewhere %.1f s after the driver worked again", time.Since(works).Seconds())
	d.WaitRunningOn(next, 60*time.Second)
}

func rackSilent(p *play) {
	p.StartFailover(p.BMCs(), fenceAfter, "maxUnhealthy: 40%")
	rack, spare := p.Nodes[:3], p.Nodes[3]
	volumes, dbs := p.databases(rack)
	time.Sleep(renewal)
	for _, n := range rack {
		n.CutOff()
	}
	if !p.guarded() {
		for _, n := range rack {
			n.WaitNotReady()
		}
		rack[0].PowerOff()
		_, moved := p.within(60*time.Second, "the volume moves", func() bool { return volumes[0].AttachedTo(spare) })
		if !moved {
			p.outcome("nothing is fenced, and nothing moves: the dead node's volume neither")
		}
		return
	}
	for _, n := range rack {
		p.Log("said on the Node: %s", p.WaitEvent("Node", n.Name, cutWithin, failover.ReasonBlocked, "fencing.maxUnhealthy", string(failover.BrakeStorm)))
	}
	p.Log("said on the Pod: %s", p.WaitEvent("Pod", dbs[1].PodName(), 30*time.Second, "is not fenced", "fencing.maxUnhealthy"))
	p.blockedBy(failover.BrakeStorm, 3)
	p.Never(20*time.Second, "a node of a silent rack was fenced", func() bool { return p.touchedAny(rack) })
	rack[0].PowerOff()
	off := time.Now()
	volumes[0].WaitPublished(spare, 60*time.Second)
	p.outcome("none of 3 was fenced; the one that then lost its power was published elsewhere %.1f s later", time.Since(off).Seconds())
	dbs[0].WaitRunningOn(spare, 60*time.Second)
	p.comeBack(rack[1:])
	for i, v := range volumes[1:] {
		p.mustWriteOn(v, rack[1+i])
	}
}

func allSilent(p *play) {
	p.StartFailover(p.BMCs(), fenceAfter, "maxUnhealthy: 40%")
	volumes, _ := p.databases(p.Nodes)
	time.Sleep(renewal)
	for _, n := range p.Nodes {
		n.CutOff()
	}
	if !p.guarded() {
		for _, n := range p.Nodes {
			n.WaitNotReady()
		}
	} else {
		for _, n := range p.Nodes {
			p.Log("said on the Node: %s", p.WaitEvent("Node", n.Name, cutWithin, failover.ReasonBlocked, "3 of 3 watched nodes", string(failover.BrakeStorm)))
		}
		p.Never(15*time.Second, "a node was fenced although every lease is stale", func() bool { return p.touchedAny(p.Nodes) })
	}
	p.comeBack(p.Nodes)
	p.nothingMoved(volumes)
}

func afterOutage(p *play) {
	p.StartFailover(p.BMCs(), fenceAfter, "maxUnhealthy: 40%")
	volumes, _ := p.databases(p.Nodes)
	time.Sleep(renewal)
	p.Bed.Cluster.StopAPIServer()
	for _, n := range p.Nodes[1:] {
		n.CutOff() // so that it comes back after the others
	}
	p.Never(65*time.Second, "a node lost its power while nobody could read its lease", func() bool { return p.powerlessAny(p.Nodes) })
	p.must(p.Bed.Cluster.StartAPIServer(p.t.Context()))
	p.Nodes[0].WaitReady(90 * time.Second)
	p.comeBack(p.Nodes[1:])
	p.nothingMoved(volumes)
}

// databases are one volume and one Deployment on each of the nodes.
func (p *play) databases(on []*bed.Node) (volumes []*bed.Volume, dbs []*bed.Deployment) {
	p.t.Helper()
	for _, n := range p.Nodes {
		n.Cordon()
	}
	for i, n := range on {
		n.Uncordon()
		v := p.Volume(fmt.Sprintf("disk%d", i+1), bed.VolumeOptions{})
		d := p.Deployment(fmt.Sprintf("db%d", i+1), false, nil, v)
		d.WaitRunningOn(n, 120*time.Second)
		n.Cordon()
		volumes, dbs = append(volumes, v), append(dbs, d)
	}
	for _, n := range p.Nodes {
		n.Uncordon()
	}
	return volumes, dbs
}

// comeBack has silent nodes come back one by one, with a pause that is longer
// than suspectAfter, and none of them may be touched.
func (p *play) comeBack(nodes []*bed.Node) {
	p.t.Helper()
	for _, n := range nodes {
		if p.guarded() {
			p.Never(18*time.Second, "a node was fenced while the nodes came back", func() bool { return p.touchedAny(nodes) })
		}
		n.Reconnect()
		n.WaitReady(90 * time.Second)
	}
	if p.guarded() {
		p.Never(10*time.Second, "a node was fenced after it was back", func() bool { return p.touchedAny(nodes) })
	}
}

func (p *play) nothingMoved(volumes []*bed.Volume) {
	p.t.Helper()
	for i, v := range volumes {
		v.WaitPublished(p.Nodes[i], time.Second)
		p.mustWriteOn(v, p.Nodes[i])
	}
	p.outcome("nobody was fenced, nothing moved")
}

// touchedAny tells whether a node lost its power, has the out-of-service taint,
// or has a fence on record.
func (p *play) touchedAny(nodes []*bed.Node) bool {
	return p.powerlessAny(nodes) || slices.ContainsFunc(nodes, func(n *bed.Node) bool {
		return p.outOfService(n) != nil || len(p.fencesOf(n)) > 0
	})
}

func (p *play) powerlessAny(nodes []*bed.Node) bool {
	return slices.ContainsFunc(nodes, func(n *bed.Node) bool { return !n.HasPower() })
}

// outOfService is the taint of that name; nil: it is not on.
func (p *play) outOfService(n *bed.Node) *corev1.Taint {
	node := n.Get()
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == corev1.TaintNodeOutOfService {
			return &node.Spec.Taints[i]
		}
	}
	return nil
}

// fencesOf is what the node's record says.
func (p *play) fencesOf(n *bed.Node) []record.Fence {
	p.t.Helper()
	r, err := record.NewStore(p.Client.CoordinationV1(), "csi-fencepost").Get(p.t.Context(), n.Name)
	p.must(err)
	if r == nil {
		return nil
	}
	return r.Fences
}

// blockedBy waits until the metric counts so many nodes behind the brake.
func (p *play) blockedBy(brake failover.Brake, nodes int) {
	p.t.Helper()
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^csi_fencepost_fencing_blocked\{.*reason="%s".*\} %d$`, brake, nodes))
	p.WaitFor(30*time.Second, "the metric "+line.String(), func() bool {
		_, body := p.HTTP(p.Fencepost, "/metrics")
		return line.MatchString(body)
	})
}

// cuttable is an array that can cut off a client, and nothing else takes a
// volume from one that holds on to it.
func cuttable(s *array.Switches) {
	s.EnforceSingleAttach, s.ClientHoldsOn, s.NetworkFence, s.FenceClients = false, true, true, true
}

// storageAgent gives the machines addresses, and is one level with one agent:
// the array's own fence.
func (p *play) storageAgent() string {
	p.t.Helper()
	for _, n := range p.Nodes {
		p.giveAddress(n)
	}
	return "[{agents: [{name: array, timeout: 10s, attempts: 2, csiAddons: {}}]}]"
}

// addressesGiven counts the addresses that machines of all stories were given.
var addressesGiven atomic.Uint32

// giveAddress gives the machine an address at the array that no machine of another story
// has: the stories share a control plane, and what was only read as cut is not opened where
// another node's fence names it.
func (p *play) giveAddress(n *bed.Node) {
	p.t.Helper()
	number := addressesGiven.Add(1)
	address := netip.AddrFrom4([4]byte{198, 18, byte(number >> 8), byte(number)}).String()
	p.must(p.Array.SetAddresses(n.ID, address))
	if p.addresses == nil {
		p.addresses = map[string]string{}
	}
	p.addresses[n.ID] = address
}

// waitCutOff waits until the array keeps the node from its volumes, by the one
// address that it has, and says since when it does.
func (p *play) waitCutOff(n *bed.Node) time.Time {
	p.t.Helper()
	p.WaitFor(cutWithin, n.Name+" is cut off at the storage", func() bool { return p.Array.CutOff(n.ID) })
	cut := time.Now()
	if got := p.Array.Fences(); !slices.Equal(got, []string{p.addresses[n.ID] + "/32"}) {
		p.t.Errorf("fenced at the array: %q", got)
	}
	return cut
}

func cutOffAtStorage(p *play, boot bool) {
	p.StartFailover(p.storageAgent(), fenceAfter)
	v, d, old, next := p.database()
	time.Sleep(renewal)
	if boot {
		old.KillKubelet()
	} else {
		old.CutOff()
	}
	if !p.guarded() {
		old.WaitNotReady()
		_, moved := p.within(60*time.Second, "the volume moves", func() bool { return v.AttachedTo(next) })
		if !moved {
			p.outcome("stays on the node that nobody hears")
		}
		return
	}
	p.mustWriteOn(v, old)
	cut := p.waitCutOff(old)
	v.WaitPublished(next, p.patience()) // without a taint Kubernetes detaches by force
	d.WaitRunningOn(next, 60*time.Second)
	p.outcome("published elsewhere %.1f s after the fence at the storage", time.Since(cut).Seconds())
	p.mustWriteOn(v, next)
	if !old.HasPower() || !v.MountedOn(old) || v.Writing(old) {
		p.t.Errorf("the old machine was to live with its mount, and its writes to fail: power %v, mounted %v, writing %v", old.HasPower(), v.MountedOn(old), v.Writing(old))
	}
	if taint := p.outOfService(old); taint != nil {
		p.t.Errorf("a fence at the storage put a taint on the node: %+v", taint)
	}
	busy := v.Busy(old) // unmounting takes its time, as without storage it does
	access := func() bool { return !p.Array.CutOff(old.ID) }
	what := "the kubelet could unmount"
	if boot {
		what = "the node had booted"
		old.StartKubeletForgetting(v)
		p.Never(10*time.Second, "a node had access again that has the moved volume mounted, because its kubelet forgot it", access)
		p.Log("said on the Node: %s", p.WaitEvent("Node", old.Name, 60*time.Second, "its kubelet may have restarted", "Reboot it"))
		old.PowerOff()
		busy.Clear()
		old.Boot()
	} else {
		old.Reconnect()
		p.WaitFor(observe.SyncTime+4*time.Minute, "the kubelet was seen to list what moved", func() bool {
			return access() || slices.ContainsFunc(p.fencesOf(old), func(f record.Fence) bool { return f.Witness != nil })
		})
		p.Never(5*time.Second, "a node had access again that has the moved volume mounted", access)
		busy.Clear()
	}
	back, early := time.Now(), false
	p.WaitFor(120*time.Second, "the node has access again", func() bool {
		mounted := v.MountedOn(old)
		lifted := len(p.Array.Fences()) == 0
		early = early || lifted && mounted
		return lifted
	})
	if early {
		p.t.Error("the node had access again while it had the volume mounted that moved")
	}
	p.WaitFor(30*time.Second, "the record says that the fence is lifted", func() bool {
		fences := p.fencesOf(old)
		return len(fences) > 0 && fences[len(fences)-1].Phase == record.Lifted
	})
	p.outcome("access given back %.1f s after %s", time.Since(back).Seconds(), what)
	d.MoveTo(old)
	d.WaitRunningOn(old, 120*time.Second)
	v.WaitPublished(old, 10*time.Second)
	p.mustWriteOn(v, old)
}

// accessAskedBack: the node is back from being cut off, and its kubelet is still about to
// unmount when somebody does what the runbook ends with.
func accessAskedBack(p *play) {
	p.StartFailover(p.storageAgent(), fenceAfter)
	v, d, old, next := p.database()
	time.Sleep(renewal)
	old.CutOff()
	cut := p.waitCutOff(old)
	v.WaitPublished(next, p.patience()) // without a taint Kubernetes detaches by force
	d.WaitRunningOn(next, 60*time.Second)
	p.outcome("published elsewhere %.1f s after the fence at the storage", time.Since(cut).Seconds())
	busy := v.Busy(old)
	old.Reconnect()
	p.WaitFor(90*time.Second, "the kubelet is Ready again and lists what moved", func() bool {
		lists, _ := old.Lists(v)
		return lists && old.Ready()
	})
	on := []string{"fence", "on", old.Name, "--yes", "--reason=the network is back", "--csi-address=" + p.DriverSocket()}
	out, err := p.TryCommand(on...)
	if !p.Array.CutOff(old.ID) {
		p.t.Fatalf("a living node that lists what moved has access to it again: %v %s", err, out)
	}
	for _, says := range []string{"lists in use what was moved off it", v.Name, "kubectl drain " + old.Name} {
		if err == nil || !strings.Contains(err.Error(), says) {
			p.t.Fatalf("the command was to say %q: %v %s", says, err, out)
		}
	}
	p.Never(5*time.Second, "the node has access again", func() bool { return !p.Array.CutOff(old.ID) })
	p.mustWriteOn(v, next)
	busy.Clear()
	p.WaitFor(120*time.Second, "the kubelet lists nothing more of what moved", func() bool { lists, _ := old.Lists(v); return !lists })
	if p.Array.CutOff(old.ID) { // else csi-fencepost was quicker
		p.Log("%s", p.Command(on...))
	}
	p.outcome("refused while its kubelet listed the volume; access given back after that")
}

// otherDriver is a second driver on the same machines. It ends with the test.
func (p *play) otherDriver(o bed.StageOptions) *bed.Stage {
	p.t.Helper()
	o.Nodes, o.Alone = -1, o.Alone || p.Options.Alone
	other := p.Bed.Stage(p.t, p.Name+"-b", o)
	for i, n := range p.Nodes {
		other.Adopt(n, fmt.Sprintf("id%d", i+1))
	}
	return other
}

func otherDriversVolume(p *play) {
	p.StartFailover(p.storageAgent(), fenceAfter)
	other := p.otherDriver(bed.StageOptions{Alone: true})
	old, next := p.Nodes[0], p.Nodes[1]
	mine, mixed, theirs := p.Volume("mine", bed.VolumeOptions{}), p.Volume("mixed", bed.VolumeOptions{}), other.Lend(p.Stage, "theirs")
	pure, both := p.Pod("pure", old, mine), p.Pod("both", old, mixed, theirs)
	pure.WaitRunning(90 * time.Second)
	both.WaitRunning(90 * time.Second)
	time.Sleep(renewal)
	old.CutOff()
	if !p.guarded() {
		old.WaitNotReady()
		p.outcome("both pods stay on the node that nobody hears")
		return
	}
	p.waitCutOff(old)
	p.WaitFor(60*time.Second, "the pod is deleted all whose volumes are fenced", func() bool { return pure.Get() == nil })
	pure2 := p.Pod("pure2", next, mine)
	p.Log("said on the Pod: %s", p.WaitEvent("Pod", "both", 30*time.Second, failover.ReasonLeftAlone, "the fence does not cover its volumes of "+other.Driver))
	pure2.WaitRunning(p.patience())
	p.Never(15*time.Second, "a pod was deleted that writes to a volume that nobody fenced", func() bool {
		return both.Get() == nil || mixed.AttachedTo(next) || !mixed.AttachedTo(old)
	})
	if onOld := other.Nodes[0]; !theirs.MountedOn(onOld) || !theirs.Writing(onOld) || p.outOfService(old) != nil {
		p.t.Errorf("the other driver's volume was to be left alone, written to: mounted %v, written %v, taint %+v", theirs.MountedOn(onOld), theirs.Writing(onOld), p.outOfService(old))
	}
	p.outcome("the pod with the fenced volume alone moved; the one that also writes to the other driver's volume was left alone")
}

// A node that two drivers have in common is cut off, and writes on to a volume of each of two drivers.
type common struct {
	*play
	other               *bed.Stage
	v, theirs           *bed.Volume
	d                   *bed.Deployment // writes to v
	db                  *bed.Pod        // writes to theirs, of the other stage
	old, next, theirOld *bed.Node
	theirNext           *bed.Node
}

// commonNode has such a node, with the other driver's stage as other says; start starts what looks
// after both. Nil: with Kubernetes alone both stay there, and the story ends.
func (p *play) commonNode(other bed.StageOptions, start func(*bed.Stage)) *common {
	p.t.Helper()
	s := &common{play: p, other: p.otherDriver(other)}
	start(s.other)
	s.v, s.d, s.old, s.next = p.database()
	s.theirOld, s.theirNext = s.other.Nodes[0], s.other.Nodes[1]
	s.theirs = s.other.Volume("disk", bed.VolumeOptions{})
	s.db = s.other.Pod("db", s.theirOld, s.theirs)
	s.db.WaitRunning(90 * time.Second)
	time.Sleep(renewal)
	s.old.CutOff()
	if !p.guarded() {
		s.old.WaitNotReady()
		p.outcome("both stay on the node that nobody hears")
		return nil
	}
	p.mustWriteOn(s.v, s.old)
	return s
}

// fencedBoth waits until the node is fenced and the first driver's volume is published elsewhere,
// and says how long that took; then until the other's pod is deleted, and its next one has its
// volume.
func (s *common) fencedBoth() (published time.Duration, db2 *bed.Pod) {
	s.t.Helper()
	s.WaitFor(cutWithin, "the node is fenced", func() bool { return !s.old.HasPower() })
	off := time.Now()
	s.v.WaitPublished(s.next, 60*time.Second)
	published = time.Since(off)
	s.WaitFor(60*time.Second, "the other driver's pod is deleted", func() bool { return s.db.Get() == nil })
	db2 = s.other.Pod("db2", s.theirNext, s.theirs)
	s.theirs.WaitPublished(s.theirNext, 60*time.Second)
	s.d.WaitRunningOn(s.next, 60*time.Second)
	return published, db2
}

func twoDrivers(p *play) {
	levels := p.BMCs()
	s := p.commonNode(bed.StageOptions{Failover: true}, func(other *bed.Stage) {
		p.StartFailover(levels, fenceAfter)
		other.StartFailover(levels, fenceAfter)
	})
	if s == nil {
		return
	}
	defer s.other.NoViolations()
	published, db2 := s.fencedBoth()
	p.outcome("the first driver's volume was published elsewhere %.1f s after the one power-off", published.Seconds())
	db2.WaitRunning(60 * time.Second)
	sent := 0
	for _, f := range p.fencesOf(s.old) {
		for _, s := range f.Steps {
			if s.Action == "off" {
				sent++
			}
		}
	}
	for _, f := range p.fencesOf(s.old) {
		p.Log("on record: %s by %s, %s: %s", f.Phase, f.Actor, f.Kind, f.What)
	}
	if fences := p.fencesOf(s.old); len(fences) != 1 || fences[0].Phase != record.Fenced || sent != 1 {
		p.t.Errorf("off was sent %d times; on record: %+v", sent, fences)
	}
}

// apartNode is a node of two drivers whose sidecars only guard.
func (p *play) apartNode(fencing ...string) *common {
	p.t.Helper()
	return p.commonNode(bed.StageOptions{Config: p.Options.Config}, func(other *bed.Stage) {
		p.StartApart(p.BMCs(), []*bed.Stage{other}, fencing...)
	})
}

func apartPower(p *play) {
	s := p.apartNode(fenceAfter)
	if s == nil {
		return
	}
	defer s.other.NoViolations()
	published, _ := s.fencedBoth()
	for _, f := range p.fencesOf(s.old) {
		if f.Kind != fence.PowerReading || len(f.Machine.NodeIDs) > 0 || !strings.HasPrefix(f.Actor, "csi-fencepost failover@") {
			p.t.Errorf("on record: %+v", f)
		}
	}
	s.old.Boot()
	back := time.Now()
	p.waitReadmitted(s.old)
	p.outcome("the first driver's volume was published elsewhere %.1f s after the power-off; readmitted %.1f s after it was back", published.Seconds(), time.Since(back).Seconds())
}

// apartLie: a person pulls the wrong cord.
func apartLie(p *play) {
	s := p.apartNode()
	if s == nil {
		return
	}
	defer s.other.NoViolations()
	s.old.WaitNotReady()
	p.Log("%s", s.old.Confirm())
	p.PodOf(s.d.PodName()).ForceDelete()
	s.db.ForceDelete()
	s.other.Pod("db2", s.theirNext, s.theirs)
	refused := s.v.WaitRefused(s.old, string(fence.EvidenceContradicted), p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	p.Log("refused: %s", refused)
	if !strings.Contains(refused, "PowerReading (bmc) reads the machine as on") {
		p.t.Errorf("the refusal does not say that the machine reads on: %s", refused)
	}
	s.theirs.WaitRefused(s.theirOld, string(fence.EvidenceContradicted), p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	p.Never(15*time.Second, "a volume moved although the BMC reads on", func() bool {
		return moved(s.v, s.old, s.next) || moved(s.theirs, s.theirOld, s.theirNext)
	})
	p.mustWriteOn(s.v, s.old)
	s.old.PowerOff()
	off := time.Now()
	s.v.WaitPublished(s.next, 90*time.Second)
	published := time.Since(off)
	s.theirs.WaitPublished(s.theirNext, 60*time.Second)
	p.outcome("refused while the BMC reads on, which only csi-fencepost failover can ask; published elsewhere %.1f s after the power went", published.Seconds())
}

func statefulSetIsBack(p *play) {
	p.StartFailover(p.BMCs())
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	next.Cordon()
	p.StatefulSet("db", v)
	pod := p.PodOf("db-0")
	p.WaitFor(90*time.Second, "db-0 runs", func() bool { return pod.RunsOn(old) })
	next.Uncordon()
	time.Sleep(renewal)
	first := pod.UID()
	if p.guarded() {
		p.must(old.BMC().Hang()) // the failover waits for its answer
	}
	old.PowerOff()
	old.WaitNotReady()
	pod.ForceDelete()
	p.WaitFor(60*time.Second, "the pod is back under its name, on the other node", func() bool {
		now := pod.Get()
		return now != nil && now.UID != first && now.Spec.NodeName == next.Name
	})
	second, back := pod.UID(), time.Now()
	if p.guarded() {
		p.must(old.BMC().Resume())
	}
	p.within(p.patience(), "the volume moves", func() bool { return v.AttachedTo(next) && !v.AttachedTo(old) })
	p.outcome("published to the new pod %.1f s after it was back", time.Since(back).Seconds())
	p.WaitFor(60*time.Second, "the new pod runs", func() bool { return pod.RunsOn(next) })
	if p.guarded() {
		p.WaitFor(30*time.Second, "the taint is on the dead node", func() bool { return p.outOfService(old) != nil })
	}
	p.Never(8*time.Second, "the new pod was deleted", func() bool { return pod.UID() != second })
}

func detachedByHand(p *play) {
	p.StartFailover("")
	one, other := p.Volume("one", bed.VolumeOptions{}), p.Volume("other", bed.VolumeOptions{})
	old, next := p.Nodes[0], p.Nodes[1]
	db, rest := p.Pod("db", old, one), p.Pod("rest", old, other)
	db.WaitRunning(90 * time.Second)
	rest.WaitRunning(90 * time.Second)
	time.Sleep(renewal)
	old.CutOff()
	old.WaitNotReady()
	if p.guarded() {
		p.Log("said on the Pod: %s", p.WaitEvent("Pod", "db", 60*time.Second, failover.ReasonSuspected, "no fence agent covers it", "csi-fencepost fence confirm "+old.Name))
	}
	p.must(p.Array.Detach(one.Handle, old.ID))
	db.ForceDelete()
	rest.ForceDelete()
	db2, rest2 := p.Pod("db2", next, one), p.Pod("rest2", next, other)
	if !p.guarded() {
		since := time.Now()
		db2.WaitRunning(p.patience())
		p.outcome("moved by the force detach after %.0f s, as every other volume of the node would be", time.Since(since).Seconds())
		return
	}
	for _, v := range []*bed.Volume{one, other} {
		p.Log("refused: %s", v.WaitRefused(old, string(fence.HolderStale), p.patience()))
	}
	p.Command("release", "pv", one.Name, "--node", old.Name, "--reason", "unmapped at the array")
	said := time.Now()
	one.WaitPublished(next, 30*time.Second)
	p.outcome("that volume was published elsewhere %.1f s after the operator's word", time.Since(said).Seconds())
	db2.WaitRunning(60 * time.Second)
	p.Never(10*time.Second, "more than the one volume was taken from the node", func() bool {
		return rest2.Running() || other.AttachedTo(next) || !other.AttachedTo(old) || p.outOfService(old) != nil
	})
	p.mustWriteOn(other, old)
}

func podsOptOut(p *play) {
	p.StartFailover(p.BMCs())
	v, d, old, next := p.database()
	mine, claimed := p.Volume("mine", bed.VolumeOptions{}), p.Volume("claimed", bed.VolumeOptions{})
	claimed.AnnotateClaim(failover.OptOutAnnotation, "false")
	stays := []*bed.Pod{p.Pod("stays", old, mine), p.Pod("claims", old, claimed)}
	stays[0].Annotate(failover.OptOutAnnotation, "false")
	for _, pod := range stays {
		pod.WaitRunning(90 * time.Second)
	}
	time.Sleep(renewal)
	old.PowerOff()
	off := time.Now()
	if !p.guarded() {
		old.WaitNotReady()
		p.outcome("nothing moves, whatever its annotations")
		return
	}
	v.WaitPublished(next, 60*time.Second)
	p.outcome("the pod that has not opted out: published elsewhere %.1f s after the power went", time.Since(off).Seconds())
	d.WaitRunningOn(next, 60*time.Second)
	for _, pod := range stays {
		p.Log("said on the Pod: %s", p.WaitEvent("Pod", pod.Name, 30*time.Second, failover.ReasonLeftAlone, failover.OptOutAnnotation))
	}
	p.Never(20*time.Second, "a pod was deleted that has opted out", func() bool {
		return slices.ContainsFunc(stays, func(pod *bed.Pod) bool { now := pod.Get(); return now == nil || now.DeletionTimestamp != nil })
	})
	if !mine.AttachedTo(old) || !claimed.AttachedTo(old) {
		p.t.Fatal("a volume was taken from a pod that has opted out")
	}
	old.Boot()
	p.WaitFor(60*time.Second, "the taint is off the node that is back", func() bool { return p.outOfService(old) == nil })
	p.WaitFor(120*time.Second, "the pods that stayed write again", func() bool { return mine.Writing(old) && claimed.Writing(old) })
	p.outcome("the pods that opted out went on where they were, once the node was back")
}

func nodeOptsOut(p *play) {
	p.StartFailover(p.BMCs(), fenceAfter)
	v, d, old, next := p.database()
	old.Annotate(failover.OptOutAnnotation, "false")
	time.Sleep(renewal)
	old.CutOff()
	cut := time.Now()
	old.WaitNotReady()
	if !p.guarded() {
		p.outcome("nothing moves, whatever the annotation")
		return
	}
	p.Log("said on the Pod: %s", p.WaitEvent("Pod", d.PodName(), 60*time.Second, "neither fences it nor moves its pods"))
	p.Never(max(0, 75*time.Second-time.Since(cut)), "a node was fenced that has opted out", func() bool { return p.touchedAny(p.Nodes) })
	old.PowerOff()
	p.Never(12*time.Second, "a node was emptied that has opted out", func() bool { return p.outOfService(old) != nil || !v.AttachedTo(old) || d.PodName() == "" })
	old.Annotate(failover.OptOutAnnotation, "")
	in := time.Now()
	v.WaitPublished(next, 60*time.Second)
	p.outcome("untouched while it opts out; published elsewhere %.1f s after the annotation was off", time.Since(in).Seconds())
	d.WaitRunningOn(next, 60*time.Second)
}
