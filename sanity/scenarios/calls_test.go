package scenarios

import (
	"context"
	"strings"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// calls: the calls themselves are late, doubled, wrong, or for volumes that many
// may have; or nobody can be asked about them.
var calls = []scenario{
	{
		name:        "api-outage",
		rule:        "R5: while the API server is away nothing is let through, and its outage makes no node look dead",
		from:        "dell/csm#1766, dell/csm#765",
		options:     bed.StageOptions{Nodes: 3},
		ownBed:      true,
		guardedOnly: true,
		story: func(p *play) {
			apiOutage(p, 2*time.Minute, p.Bed.Cluster.StopAPIServer, func() error { return p.Bed.Cluster.StartAPIServer(p.t.Context()) })
		},
	},
	{
		name:        "api-hangs",
		rule:        "R5: nor does an API server that takes calls and answers none make a node look dead",
		from:        "dell/csm#1766, dell/csm#765",
		options:     bed.StageOptions{Nodes: 3},
		ownBed:      true,
		guardedOnly: true,
		story: func(p *play) {
			// No kubelet's renewal goes through in the outage, nor in the first
			// seconds after it: csi-fencepost hears the API server first.
			apiOutage(p, 40*time.Second, func() {
				for _, n := range p.Nodes {
					n.CutOff()
				}
				p.must(p.Bed.Cluster.PauseAPIServer())
			}, func() error {
				if err := p.Bed.Cluster.ResumeAPIServer(); err != nil {
					return err
				}
				time.Sleep(6 * time.Second)
				for _, n := range p.Nodes {
					n.Reconnect()
				}
				return nil
			})
		},
	},
	{
		name: "reconcile",
		rule: "R1: after a takeover the attacher's comparison with ListVolumes does not publish to the old node again",
		from: "k/106151, kubernetes-csi/external-attacher#416, kubernetes-csi/external-attacher#697",
		options: bed.StageOptions{AttacherArgs: []string{"--reconcile-sync=5s"},
			Array: func(s *array.Switches) { s.EnforceSingleAttach = false }},
		story: reconcile,
	},
	{
		name:        "late-unpublish",
		rule:        "R2: a late and a duplicate unpublish after a takeover are answered OK, and the driver does not see them",
		from:        "kubernetes-csi/external-attacher#587",
		guardedOnly: true,
		story:       lateUnpublish,
	},
	{
		name: "orphan",
		rule: "R6: an attachment that nobody uses, on a healthy node, is released without any fencing",
		from: "kubernetes-sigs/vsphere-csi-driver#2506, k/80488",
		story: func(p *play) {
			v, other, on := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			p.must(p.Array.Attach(v.Handle, other.ID))
			fromOrphan(p, v, other, on)
		},
	},
	{
		name: "orphan-refused",
		rule: "R6: the driver's own refusal leads to an attachment that nobody knew of",
		from: "hetznercloud/csi-driver#164",
		options: bed.StageOptions{Array: func(s *array.Switches) {
			s.ListVolumes, s.ListPublishedNodes, s.GetVolume = false, false, false
		}},
		story: func(p *play) {
			v, other, on := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("first", on, v)
			db.WaitRunning(60 * time.Second)
			db.Delete()
			p.WaitFor(60*time.Second, "the volume is detached", func() bool { return len(p.Array.Attached(v.Handle)) == 0 })
			p.must(p.Array.Attach(v.Handle, other.ID))
			fromOrphan(p, v, other, on)
			if p.guarded() && !answered(p, v, on, codes.FailedPrecondition) {
				p.t.Error("the driver was never asked, so that it could not point at the holder")
			}
		},
	},
	{
		name:    "orphan-late",
		rule:    "R6: a publish that timed out and attached later is undone when the volume is wanted elsewhere",
		from:    "kubernetes-sigs/vsphere-csi-driver#4192",
		options: bed.StageOptions{AttacherArgs: []string{"--timeout=3s"}},
		story: func(p *play) {
			v, other, on := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			busy := array.Fault{Method: array.Publish, Node: other.ID, Do: array.Fail, Code: codes.Internal, Message: "busy"}
			first := p.Array.Inject(busy)
			db := p.Pod("first", other, v)
			p.WaitFor(60*time.Second, "the kubelet says that it wants the volume", func() bool { inUse, _ := other.Lists(v); return inUse })
			slow := p.Array.Inject(array.Fault{Method: array.Publish, Node: other.ID, Do: array.HangThenDo, Delay: 30 * time.Second, Times: 1})
			second := p.Array.Inject(busy)
			first.Clear()
			p.WaitFor(60*time.Second, "a publish hangs", func() bool { return slow.Hits() > 0 })
			time.Sleep(4 * time.Second) // the attacher gives up
			db.ForceDelete()
			p.WaitFor(60*time.Second, "the VolumeAttachment is gone", func() bool { return v.Attachment(other) == nil })
			if v.AttachedTo(other) {
				p.t.Error("it was attached before its VolumeAttachment was gone: no orphan was made")
			}
			p.WaitFor(60*time.Second, "the volume is attached late", func() bool { return v.AttachedTo(other) })
			second.Clear()
			fromOrphan(p, v, other, on)
		},
	},
	{
		name: "live-migration",
		rule: "R3: a RWX block volume on two nodes is no business of ours",
		from: "democratic-csi/democratic-csi#285",
		story: func(p *play) {
			v := p.Volume("disk", bed.VolumeOptions{Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Block: true})
			// The array's block device is a file, which kubelets of the test bed map and never
			// unmap ("device or resource busy"). The attachments are looked at: the controller
			// makes them, and no kubelet is there.
			for _, n := range p.Nodes {
				n.KillKubelet()
			}
			source, target := p.Pod("source", p.Nodes[0], v), p.Pod("target", p.Nodes[1], v)
			onTwoNodes(p, v, source, target)
		},
	},
	{
		name: "rox",
		rule: "R3: a ReadOnlyMany volume on two nodes is no business of ours",
		from: "democratic-csi/democratic-csi#285",
		story: func(p *play) {
			v := p.Volume("disk", bed.VolumeOptions{Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}})
			one, two := p.Pod("one", p.Nodes[0], v), p.Pod("two", p.Nodes[1], v)
			one.WaitRunning(60 * time.Second)
			two.WaitRunning(60 * time.Second)
			onTwoNodes(p, v, one, two)
		},
	},
	{
		name:    "rwop",
		rule:    "R1: a ReadWriteOncePod volume is guarded as a ReadWriteOnce one",
		from:    "k/120328, k/65392",
		options: bed.StageOptions{Array: func(s *array.Switches) { s.EnforceSingleAttach = false }},
		story: func(p *play) {
			v := p.Volume("disk", bed.VolumeOptions{Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}})
			old, next := p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.CutOff()
			old.WaitNotReady()
			db.ForceDelete()
			db2 := p.Pod("db2", next, v)
			if !p.guarded() {
				v.WaitPublished(next, p.Bed.Clocks.ForceDetachAfter+120*time.Second)
				p.outcome("taken from the running node by the force detach")
				return
			}
			v.WaitRefused(old, "HolderStale", p.Bed.Clocks.ForceDetachAfter+60*time.Second)
			p.Log("refused: %s", v.WaitRefused(next, "HolderStale", 60*time.Second))
			p.mustKeepWriting(v, old, 5*time.Second)
			old.PowerOff()
			old.Taint(bed.OutOfServiceTaint)
			proof := time.Now()
			db2.WaitRunning(60 * time.Second)
			p.outcome("refused, then moved %.1f s after the operator's taint", time.Since(proof).Seconds())
		},
	},
}

// reconcile: the old node's VolumeAttachment is made again after a takeover and
// says that it is attached, which ListVolumes denies.
func reconcile(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	old.PowerOff()
	old.WaitNotReady()
	old.Taint(bed.OutOfServiceTaint)
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	db2.WaitRunning(90 * time.Second)
	p.WaitFor(60*time.Second, "the old VolumeAttachment is gone", func() bool { return v.Attachment(old) == nil })

	moved := time.Now()
	v.CreateAttachment(old)
	if !p.guarded() {
		_, there := p.within(60*time.Second, "published to the old node again", func() bool { return v.AttachedTo(old) })
		p.outcome("published to the old node again: %v", there)
		return
	}
	v.WaitRefused(old, "TargetFenced", 30*time.Second)
	v.SayAttached(old)
	p.WaitLog(p.Attacher, 30*time.Second, "attached status and actual state do not match")
	p.Log("refused: %s", v.WaitRefused(old, "TargetFenced", 30*time.Second))
	old.Boot()
	old.Untaint(bed.OutOfServiceTaint.Key)
	p.Log("refused: %s", waitRefusedAny(p, v, old, 60*time.Second, "HolderAlive", "HolderWanted"))
	v.SayAttached(old) // and once more, now that the old node is back
	p.Never(12*time.Second, "published to the old node again", func() bool { return v.AttachedTo(old) })
	waitRefusedAny(p, v, old, 30*time.Second, "HolderAlive", "HolderWanted")
	if n := v.Calls(array.Publish, old, moved); n != 0 {
		p.t.Errorf("the driver was asked %d times to publish to the old node", n)
	}
	if !db2.Running() || !v.Writing(next) {
		p.t.Error("the pod on the new node does not write any more")
	}
	p.outcome("refused while the old node was off, and when it was back")
}

// waitRefusedAny waits for a refusal for one of the reasons.
func waitRefusedAny(p *play, v *bed.Volume, n *bed.Node, limit time.Duration, reasons ...string) string {
	p.t.Helper()
	var text string
	p.WaitFor(limit, "a refusal for "+strings.Join(reasons, " or "), func() bool {
		text = v.Refusal(n)
		for _, r := range reasons {
			if strings.Contains(text, "["+r+"]") {
				return true
			}
		}
		return false
	})
	return text
}

// lateUnpublish: a takeover is made by one publish; unpublishes of the old node
// come after it.
func lateUnpublish(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	old.CutOff()
	old.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	v.WaitRefused(old, "HolderStale", p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	// From here on the calls are made by hand, for their order to be known.
	p.StopAttacher()
	old.PowerOff()
	old.Taint(bed.OutOfServiceTaint)
	caller := p.Caller("fp.sock")
	p.WaitFor(60*time.Second, "the takeover", func() bool {
		_, err := caller.ControllerPublishVolume(p.t.Context(), v.AttacherRequest(next))
		return err == nil
	})
	taken := time.Now()
	if n := v.Calls(array.Unpublish, old, time.Time{}); n != 1 {
		p.t.Errorf("the driver saw %d unpublishes of the old node in the takeover, want 1", n)
	}
	unpublish := &spec.ControllerUnpublishVolumeRequest{VolumeId: v.Handle, NodeId: old.ID}
	for _, what := range []string{"late", "duplicate"} {
		if _, err := caller.ControllerUnpublishVolume(p.t.Context(), unpublish); err != nil {
			p.t.Errorf("a %s unpublish after the takeover: %v, want OK", what, err)
		}
	}
	p.StartAttacher() // which has not heard of the takeover
	db2.WaitRunning(90 * time.Second)
	p.WaitFor(60*time.Second, "the old VolumeAttachment is gone", func() bool { return v.Attachment(old) == nil })
	if _, err := caller.ControllerUnpublishVolume(p.t.Context(), unpublish); err != nil {
		p.t.Errorf("an unpublish long after the takeover: %v, want OK", err)
	}
	if n := v.Calls(array.Unpublish, old, taken); n != 0 {
		p.t.Errorf("the driver saw %d unpublishes of the old node after the takeover, want none", n)
	}
	v.WaitPublished(next, time.Second)
	p.outcome("answered OK without a call to the driver")
}

// fromOrphan starts a pod on a node while the volume is attached to another that
// nobody uses.
func fromOrphan(p *play, v *bed.Volume, orphan, on *bed.Node) {
	began := time.Now()
	db := p.Pod("db", on, v)
	if !p.guarded() {
		_, runs := p.within(60*time.Second, "runs", db.Running)
		p.outcome("pod runs within a minute: %v", runs)
		return
	}
	took := db.WaitRunning(60 * time.Second)
	v.WaitPublished(on, time.Second)
	if v.Calls(array.Unpublish, orphan, began) == 0 {
		p.t.Error("the orphan was not unpublished by a call to the driver")
	}
	for _, n := range []*bed.Node{orphan, on} {
		if taints := n.Get().Spec.Taints; len(taints) > 0 {
			p.t.Errorf("%s has taints %v: nothing was to be fenced", n.Name, taints)
		}
	}
	p.outcome("pod runs after %.1f s, nothing was fenced", took.Seconds())
}

// answered tells whether the driver answered a publish for the node with code.
func answered(p *play, v *bed.Volume, n *bed.Node, code codes.Code) bool {
	for _, c := range p.Array.CallsOf(array.Publish, v.Handle) {
		if c.Node == n.ID && c.Code == code {
			return true
		}
	}
	return false
}

// onTwoNodes: both publishes and both unpublishes reach the driver, and nothing
// is written down of them.
func onTwoNodes(p *play, v *bed.Volume, pods ...*bed.Pod) {
	p.WaitFor(60*time.Second, "the volume is attached to both nodes", func() bool { return len(p.Array.Attached(v.Handle)) == 2 })
	for _, pod := range pods {
		if pod.Running() {
			pod.Delete()
		} else {
			pod.ForceDelete() // its kubelet is not there
		}
	}
	p.WaitFor(90*time.Second, "the volume is detached from both nodes", func() bool { return len(p.Array.Attached(v.Handle)) == 0 })
	for _, n := range p.Nodes {
		for _, method := range []string{array.Publish, array.Unpublish} {
			if c := v.WaitCalled(method, n, time.Time{}, time.Second); c.Code != codes.OK {
				p.t.Errorf("%s for %s: %s %s", c.Method, n.Name, c.Code, c.Message)
			}
		}
	}
	if text := v.Ledger(); text != "" {
		p.t.Errorf("a ledger was written for it: %s", text)
	}
	p.outcome("attached to both nodes, and detached from both")
}

// apiOutage: a while without an API server. A node carries a wrong taint that
// was put on in the last moment before.
func apiOutage(p *play, d time.Duration, begin func(), end func() error) {
	v, wrong, spare, other := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1], p.Nodes[2]
	db := p.TolerantPod("db", wrong, v)
	quiet := p.Volume("quiet", bed.VolumeOptions{})
	app := p.TolerantPod("app", other, quiet)
	db.WaitRunning(60 * time.Second)
	app.WaitRunning(60 * time.Second)
	time.Sleep(11 * time.Second) // every lease was seen to change
	wrong.Taint(bed.OutOfServiceTaint)
	time.Sleep(2 * time.Second) // it is bound
	begin()
	began := time.Now()
	callers := askAlways(p, v, quiet, wrong, spare, other)
	time.Sleep(d)
	if n := callers.count(); n == 0 || n != callers.seen(codes.Unavailable) {
		p.t.Errorf("calls in the outage were answered %v, want UNAVAILABLE only", callers.codes())
	}
	p.must(end())
	back := time.Now()
	p.Log("the API server is back after %s", back.Sub(began).Round(time.Second))
	for time.Since(back) < 45*time.Second { // three times suspectAfter
		if !v.Writing(wrong) || !quiet.Writing(other) {
			p.t.Fatalf("%s after the API server was back: a node was given up that lives", time.Since(back))
		}
		time.Sleep(100 * time.Millisecond)
	}
	// A kubelet that was refused is believed later if it, Ready, was seen to list the volume.
	for _, n := range p.Nodes {
		n.WaitReady(60 * time.Second)
	}
	ready := callers.count()
	p.WaitFor(60*time.Second, "everybody has asked again", func() bool { return callers.count() >= ready+8 })
	p.seenInUse(v, wrong)
	p.seenInUse(quiet, other)
	callers.stop()
	p.Log("calls in outage and recovery were answered %v", callers.codes())
	for _, c := range p.Array.Calls() {
		if c.Start.After(began) && (c.Method == array.Publish || c.Method == array.Unpublish) {
			p.t.Errorf("the driver was called in the outage or the recovery: %s of %s for %s: %s", c.Method, c.Volume, c.Node, c.Code)
		}
	}
	if callers.ok() > 0 || callers.seen(codes.FailedPrecondition) == 0 {
		p.t.Errorf("calls were answered %v, want refusals and no OK", callers.codes())
	}
	for _, reason := range []string{"HolderStale", "HolderFenced", "HolderStillListed", "EvidenceVoid"} {
		if strings.Contains(p.LogOf(p.Fencepost), `reason="`+reason+`"`) {
			p.t.Errorf("a node was judged %s because of the outage", reason)
		}
	}
	wrong.Untaint(bed.OutOfServiceTaint.Key)
	app.Delete()
	took := p.Pod("app2", spare, quiet).WaitRunning(90 * time.Second)
	db.Delete()
	p.Pod("db2", spare, v).WaitRunning(90 * time.Second)
	p.outcome("UNAVAILABLE for %s, then an ordinary move took %.1f s", d, took.Seconds())
}

// asking is somebody who calls again and again.
type asking struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	answers map[codes.Code]int
}

// askAlways asks for what must not be given: the volumes of two nodes that live
// are to leave them for a third.
func askAlways(p *play, v, quiet *bed.Volume, wrong, spare, other *bed.Node) *asking {
	ctx, cancel := context.WithCancel(p.t.Context())
	a := &asking{end: cancel, answers: map[codes.Code]int{}}
	p.t.Cleanup(a.stop)
	caller := p.Caller("fp.sock")
	ask := func(call func(context.Context) error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		err := call(limited)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.answers[status.Code(err)]++
	}
	for volume, node := range map[*bed.Volume]*bed.Node{v: wrong, quiet: other} {
		a.done.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
				ask(func(ctx context.Context) error {
					_, err := caller.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: volume.Handle, NodeId: node.ID})
					return err
				})
				ask(func(ctx context.Context) error {
					_, err := caller.ControllerPublishVolume(ctx, volume.AttacherRequest(spare))
					return err
				})
			}
		})
	}
	return a
}

func (a *asking) stop() {
	a.end()
	a.done.Wait()
}

func (a *asking) codes() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]int{}
	for code, n := range a.answers {
		out[code.String()] = n
	}
	return out
}

func (a *asking) seen(code codes.Code) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers[code]
}

func (a *asking) ok() int { return a.seen(codes.OK) }

func (a *asking) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, answers := range a.answers {
		n += answers
	}
	return n
}
