package scenarios

import (
	"cmp"
	"path"
	"regexp"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/pace"
)

// stuckAfter is how long a story waits for what Kubernetes alone does in well under a
// minute.
const stuckAfter = 75 * time.Second

// stuck: nobody writes any more, Kubernetes alone gives the volume on, and nothing that
// a machine could read speaks against it.
var stuck = []scenario{
	{
		name:    "two-wait",
		rule:    "R6: of two pods that wait on two nodes for one claim, one gets it when the pod that used it has ended",
		options: bed.StageOptions{Nodes: 3},
		story: func(p *play) {
			v := p.Volume("disk", bed.VolumeOptions{})
			db := p.Pod("db", p.Nodes[0], v)
			db.WaitRunning(60 * time.Second)
			one, two := p.waits("one", p.Nodes[1], v), p.waits("two", p.Nodes[2], v)
			db.Delete()
			took := p.comes(v, "one of the two pods that wait is Running", func() bool { return one.Running() || two.Running() })
			p.outcome("one of the two runs %.1f s after the first pod had ended", took.Seconds())
		},
	},
	{
		name:    "waiter-dies",
		rule:    "R6: a node that died while its pod only waited for a volume keeps nobody from it",
		options: bed.StageOptions{Nodes: 3},
		story: func(p *play) {
			v, waiter := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[1]
			db := p.Pod("db", p.Nodes[0], v)
			db.WaitRunning(60 * time.Second)
			waits := p.waits("waits", waiter, v)
			waiter.PowerOff()
			waiter.WaitNotReady()
			waits.ForceDelete()
			db.Delete()
			p.runs(p.Pod("db2", p.Nodes[2], v), v, "the first pod had ended")
		},
	},
	{
		name: "back-detach",
		rule: "R6: a pod that is back on its node while the detach had failed once gets its volume again",
		story: func(p *play) {
			v, n := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0]
			db := p.Pod("db", n, v)
			db.WaitRunning(60 * time.Second)
			fails := p.Array.Inject(array.Fault{Method: array.Unpublish, Node: n.ID, Do: array.Fail, Code: codes.Unavailable, Message: "throttled"})
			db.Delete()
			p.WaitFor(60*time.Second, "the detach fails", func() bool { return fails.Hits() > 0 })
			back := p.waits("back", n, v)
			fails.Clear()
			p.runs(back, v, "the driver could detach again")
		},
	},
	{
		name: "never-there",
		rule: "R6: a node to which each publish failed, and which then dies, keeps nobody from the volume",
		story: func(p *play) {
			dies, next := p.Nodes[0], p.Nodes[1]
			v := p.newVolume()
			fails := p.Array.Inject(array.Fault{Method: array.Publish, Node: dies.ID, Do: array.Fail, Code: codes.Internal, Message: "no path to the host"})
			// Its Node lists the volume before it is first published, as in a storm.
			p.must(p.Attacher.Signal(syscall.SIGSTOP))
			db := p.waits("db", dies, v)
			p.must(p.Attacher.Signal(syscall.SIGCONT))
			p.WaitFor(60*time.Second, "publishes fail", func() bool { return fails.Hits() > 1 })
			dies.PowerOff()
			dies.WaitNotReady()
			db.ForceDelete()
			p.runs(p.Pod("db2", next, v), v, "its pod on the dead node was deleted")
		},
	},
	{
		name:  "asked-gone",
		rule:  "R6: a node to which the first publish failed for good, and whose machine and Node are gone then, keeps nobody from the volume",
		story: func(p *play) { p.askedAndGone(false) },
	},
	{
		name:  "target-gone",
		rule:  "R6: a node to which external-attacher publishes once its Node is gone, by a CSINode that is there yet, keeps nobody from the volume",
		story: func(p *play) { p.askedAndGone(true) },
	},
	{
		name: "anew-drain",
		rule: "R1: a Node that was deleted and registered again in the same boot keeps its volume when it is drained, since its kubelet says that it has let go before it has unmounted; a reboot ends that",
		story: func(p *play) {
			v, n, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", n, v)
			db.WaitRunning(60 * time.Second)
			uid := n.Get().UID
			n.Delete()
			n.KillKubelet()
			n.StartKubelet()
			if n.Get().UID == uid {
				p.t.Fatalf("the Node was not registered again")
			}
			p.mustWriteOn(v, n)
			p.Never(5*time.Second, "the volume or its pod is gone", func() bool { return db.Get() == nil || !v.AttachedTo(n) })
			staged := v.Staged(n)
			n.Drain()
			p.WaitFor(60*time.Second, "the node is drained", func() bool { return db.Get() == nil })
			lists := func() bool { inUse, _ := n.Lists(v); return inUse }
			for began := time.Now(); lists() && time.Since(began) < 15*time.Second; {
				time.Sleep(100 * time.Millisecond)
			}
			// A kubelet that starts while the volume is mounted, and not in volumesAttached, lists it
			// for its pod alone, for as long as it runs (K8s volumemanager/cache, UpdateReconstructedVolumeAttachability). Mostly
			// the controller has not listed it again by then.
			forgot := !lists()
			p.Log("the kubelet says that it has let go, and has the volume mounted: %t", forgot)
			if !forgot {
				staged.Clear()
			}
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				v.WaitPublished(next, 120*time.Second)
				p.outcome("taken while it was mounted, on the word of its kubelet")
				return
			}
			p.Log("refused: %s", v.WaitRefused(n, "HolderContested", 60*time.Second))
			p.Never(10*time.Second, "the volume left the node on its kubelet's word", func() bool { return !v.AttachedTo(n) })
			booted := time.Now()
			n.PowerOff()
			n.Boot()
			db2.WaitRunning(120 * time.Second)
			p.outcome("refused while the node had it mounted; moved %.1f s after the reboot began", time.Since(booted).Seconds())
		},
	},
	{
		name: "drain-unseen",
		rule: "R6: a node that was drained and deleted while the controller's first pod was away, and a second one watched, keeps nothing",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			// The pod of the attacher that leads is away. There is a second replica.
			p.StopAttacher()
			if p.guarded() {
				p.ExtraFencepost("second")
				p.StopFencepost()
			}
			old.Drain()
			p.WaitFor(60*time.Second, "the node is drained, and its kubelet has unmounted", func() bool {
				lists, _ := old.Lists(v)
				return db.Get() == nil && !lists && !v.MountedOn(old)
			})
			// A node that is deleted within the moment that this takes is owed still
			// (simulate/testdata/owed/drained-at-once.txt).
			p.WaitFor(10*time.Second, "the controller detaches", func() bool {
				va := v.Attachment(old)
				return va == nil || va.DeletionTimestamp != nil
			})
			old.PowerOff()
			old.Delete()
			if p.guarded() {
				p.StartFencepost()
			}
			p.StartAttacher()
			p.runs(p.Pod("db2", next, v), v, "the controller's pod was back")
		},
	},
	{
		name:    "list-fails",
		rule:    "R6: a driver whose ListVolumes fails publishes a new volume as quickly as without us",
		options: bed.StageOptions{Array: listOnly},
		story: func(p *play) {
			// Another volume was published before, and the ledgers are sealed.
			first := p.Volume("first", bed.VolumeOptions{})
			p.Pod("first", p.Nodes[1], first).WaitRunning(60 * time.Second)
			firstPublish(p, array.Fault{Method: "ListVolumes", Do: array.Fail, Code: codes.Internal, Message: "the array does not answer"})
		},
	},
	{
		name:    "list-slow",
		rule:    "R6: a driver whose ListVolumes takes 12 s publishes a new volume as quickly as without us",
		options: bed.StageOptions{Array: listOnly},
		story: func(p *play) {
			firstPublish(p, array.Fault{Method: "ListVolumes", Do: array.Proceed, Delay: 12 * time.Second})
		},
	},
	{
		name:    "late-attach",
		rule:    "R6: an attach that lands after its volume was taken over is taken back, and the volume published",
		options: bed.StageOptions{AttacherArgs: []string{"--timeout=3s"}},
		story:   lateAttach,
	},
	{
		name:    "cloud-gone",
		rule:    "R6: a cloud's instance that vanished with its Node is asked for by its provider ID, and its volumes move",
		options: bed.StageOptions{Failover: true},
		story:   vanished,
	},
	{
		name:    "in-again",
		rule:    "R6: what moved, and a node that was scaled in, while the sidecar was taken out holds nothing up when it is put in again",
		options: bed.StageOptions{Nodes: 3, Config: "driver: {listsPublishedNodes: true}"},
		story:   injectedAgain,
	},
	{
		name: "new-node-id",
		rule: "R6: a driver that is upgraded, and calls a node's machine otherwise than before, detaches what it had attached to it",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.RenameID("uuid1")
			p.mustWriteOn(v, old)
			db.Delete()
			p.runs(p.Pod("db2", next, v), v, "its pod had ended")
		},
	},
	{
		name: "stale-attached",
		rule: "R6: a volume that the controller left in volumesAttached of a node that has let go moves as it does without us",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			p.StopAttacher() // so that the detach is not over before the moment is hit
			db.Delete()
			v.WaitDetaching(old, 60*time.Second)
			old.ListAttached(v)
			p.StartAttacher()
			p.runs(p.Pod("db2", next, v), v, "its pod had ended")
		},
	},
}

// lateAttach: a node dies before its attach is done. The array does it at last when the
// volume was taken over, and nobody has it yet.
func lateAttach(p *play) {
	v, dies, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	hangs := p.Array.Inject(array.Fault{Method: array.Publish, Node: dies.ID, Do: array.Hang})
	db := p.Pod("db", dies, v)
	p.WaitFor(60*time.Second, "a publish was given up", func() bool {
		code := p.lastCode(array.Publish, dies)
		return code == codes.DeadlineExceeded || code == codes.Canceled
	})
	// Until then its kubelet has written no status but the one that it registered with, of
	// which the API server does not say when it was.
	p.WaitFor(60*time.Second, "the node lists the volume that its pod wants", func() bool { inUse, _ := dies.Lists(v); return inUse })
	// From here on the calls are made by hand, for their order to be known.
	p.StopAttacher()
	dies.PowerOff()
	dies.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	time.Sleep(2 * time.Second) // the stamps are in seconds
	dies.Taint(bed.OutOfServiceTaint)
	if p.guarded() {
		busy := p.Array.Inject(array.Fault{Method: array.Publish, Node: next.ID, Do: array.Fail, Code: codes.Unavailable, Message: "throttled"})
		caller := p.Caller("fp.sock")
		p.WaitFor(60*time.Second, "the takeover", func() bool {
			_, err := caller.ControllerPublishVolume(p.t.Context(), v.AttacherRequest(next))
			p.Log("publish: %v", err)
			return busy.Hits() > 0
		})
		busy.Clear()
	}
	hangs.Clear()
	_, err := p.Caller("csi.sock").ControllerPublishVolume(p.t.Context(), v.AttacherRequest(dies))
	p.must(err)
	p.StartAttacher()
	p.runs(db2, v, "the attach to the dead node had landed")
}

// instance is what the Node's provider ID names.
func instance(n *bed.Node) string { return path.Base(n.Get().Spec.ProviderID) }

// vanished: an autoscaler, or the cloud itself, takes an instance away in the middle.
func vanished(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	cloud := p.Plugs("fence_cloud")
	for _, n := range p.Nodes {
		p.must(cloud.Set(instance(n), true))
	}
	p.StartFailover("[{agents: [{name: cloud, timeout: 5s, attempts: 1, exec: {agent: fence_cloud, parameters: {plug: $(INSTANCE_ID)}}}]}]")
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	lives()
	p.must(cloud.Set(instance(old), false)) // as a terminated instance reads
	old.Terminate()
	db.ForceDelete()
	p.runs(p.Pod("db2", next, v), v, "the instance had vanished")
}

// injectedAgain: see bypassed for a node that is still there.
func injectedAgain(p *play) {
	v := p.Volume("disk", bed.VolumeOptions{})
	first, second, third := p.Nodes[0], p.Nodes[1], p.Nodes[2]
	db := p.Pod("db", first, v)
	db.WaitRunning(60 * time.Second)
	if p.guarded() {
		p.StopAttacher()
		p.StopFencepost()
		p.StartAttacherOn("csi.sock")
	}
	db, _ = p.move(db, v, second)
	first.Terminate()
	if p.guarded() {
		p.StopAttacher()
		p.StartFencepost()
		p.StartAttacher()
	}
	db.Delete()
	p.runs(p.Pod("db2", third, v), v, "its pod had ended")
}

// listOnly is an array that says of all volumes at once where they are, not of one.
func listOnly(s *array.Switches) { s.GetVolume = false }

// firstPublish: of a volume that nobody ever used.
func firstPublish(p *play, fault array.Fault) {
	injected := p.Array.Inject(fault)
	defer func() { p.Log("the driver was asked for its list %d times", injected.Hits()) }()
	v := p.Volume("disk", bed.VolumeOptions{Provisioned: true})
	p.runs(p.Pod("db", p.Nodes[0], v), v, "it was made")
}

// newVolume is one that csi-fencepost knows nobody to have had: made for its claim, once the ledgers
// are sealed, which they are with the first volume that is published.
func (p *play) newVolume() *bed.Volume {
	p.t.Helper()
	if p.guarded() {
		p.Pod("first", p.Nodes[1], p.Volume("first", bed.VolumeOptions{})).WaitRunning(60 * time.Second)
	}
	return p.Volume("disk", bed.VolumeOptions{Provisioned: true})
}

// waits starts a pod for a volume that it does not get, and returns it once its node
// says that it wants the volume.
func (p *play) waits(name string, on *bed.Node, v *bed.Volume) *bed.Pod {
	p.t.Helper()
	pod := p.Pod(name, on, v)
	p.WaitFor(60*time.Second, on.Name+" lists the volume for pod "+name, func() bool { lists, _ := on.Lists(v); return lists })
	return pod
}

// runs waits until the pod, which wants the volume, runs, and notes how long after what
// that was.
func (p *play) runs(pod *bed.Pod, v *bed.Volume, what string) {
	p.t.Helper()
	took := p.comes(v, "pod "+pod.Name+" is Running", pod.Running)
	p.outcome("runs %.1f s after %s", took.Seconds(), what)
}

// comes is WaitFor that also says, where it waited in vain, what the volume's calls were
// refused for: marks are about that.
func (p *play) comes(v *bed.Volume, what string, ok func() bool) time.Duration {
	p.t.Helper()
	began, watch := time.Now(), pace.Start()
	for ; watch.Counted() < stuckAfter; bed.Pause(began) {
		if ok() {
			return time.Since(began)
		}
	}
	var refused []string
	for _, n := range p.Nodes {
		if text := v.Refusal(n); text != "" {
			p.Log("refused for %s: %s", n.Name, text)
			reason := "without a reason of ours"
			if found := reasonIn.FindStringSubmatch(text); found != nil {
				reason = found[1]
			}
			refused = append(refused, strings.TrimPrefix(n.Name, p.Name+"-")+" "+reason)
		}
	}
	p.t.Fatalf("%s: waited %s in vain: %s; refused: %s", p.Name, stuckAfter, what, cmp.Or(strings.Join(refused, ", "), "nothing"))
	return 0
}

// reasonIn finds the reason in the text of a refusal.
var reasonIn = regexp.MustCompile(`\[([A-Z][A-Za-z]+)\]`)

// askedAndGone: each publish to a node fails, then it vanishes as a spot instance does. outlives: its
// CSINode, by which external-attacher publishes, is there until one has come after its Node went.
func (p *play) askedAndGone(outlives bool) {
	gone, next := p.Nodes[0], p.Nodes[1]
	v := p.newVolume()
	fails := p.Array.Inject(array.Fault{Method: array.Publish, Node: gone.ID, Do: array.Fail, Code: codes.NotFound, Message: "no such instance"})
	p.Array.Inject(array.Fault{Method: array.Unpublish, Node: gone.ID, Do: array.Fail, Code: codes.NotFound, Message: "no such instance"})
	db := p.waits("db", gone, v)
	p.WaitFor(60*time.Second, "publishes fail", func() bool { return fails.Hits() > 1 })
	gone.PowerOff()
	finalizers := func(are string) {
		_, err := p.Client.StorageV1().CSINodes().Patch(p.t.Context(), gone.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":[`+are+`]}}`), metav1.PatchOptions{})
		p.must(err)
	}
	if outlives {
		finalizers(`"example.com/outlives-its-node"`)
	}
	hits := fails.Hits()
	gone.Delete()
	if outlives {
		// The one that was under way may reach the driver yet.
		p.WaitFor(60*time.Second, "it is published to a node that is gone", func() bool {
			a := v.Attachment(gone)
			return fails.Hits() > hits+1 || a != nil && a.Status.AttachError != nil && strings.Contains(a.Status.AttachError.Message, "[TargetGone]")
		})
		finalizers("")
	}
	db.ForceDelete()
	p.runs(p.Pod("db2", next, v), v, "its pod on the node that is gone was deleted")
	if p.guarded() { // else it is unpublished for ever
		p.WaitFor(60*time.Second, "its VolumeAttachment is gone", func() bool { return v.Attachment(gone) == nil })
	}
}
