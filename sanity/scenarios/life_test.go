package scenarios

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// life: what happens to a cluster on an ordinary day. Played alone as well, so
// that the times can be compared.
var life = []scenario{
	{
		name: "drain",
		rule: "R6: a drained node gives its volume away as fast as without us",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			next.Cordon()
			db := p.Deployment("db", true, nil, v)
			db.WaitRunningOn(old, 60*time.Second)
			next.Uncordon()
			old.Drain()
			p.outcome("runs elsewhere %.1f s after the drain began", db.WaitRunningOn(next, 60*time.Second).Seconds())
		},
	},
	{
		name: "kubelet-again",
		rule: "R6: a kubelet that restarts keeps its pod, and gives its volume away later",
		story: func(p *play) {
			v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
			db := p.Pod("db", old, v)
			db.WaitRunning(60 * time.Second)
			old.KillKubelet()
			old.StartKubelet()
			p.mustWriteOn(v, old)
			p.Never(5*time.Second, "the pod or its volume is gone after a restart of the kubelet", func() bool { return !db.Running() || !v.AttachedTo(old) })
			// A kubelet that became Ready within 2 s before a detach is not believed
			// (docs/design/architecture.md, Limits).
			p.WaitFor(60*time.Second, "the kubelet is Ready for a while", func() bool { return old.Ready() && time.Since(old.ReadySince()) > 5*time.Second })
			_, took := p.move(db, v, next)
			p.outcome("moved in %.1f s after the kubelet's restart", took.Seconds())
		},
	},
	{
		name: "recreate",
		rule: "R6: a rollout with strategy Recreate is not slower and not stuck",
		story: func(p *play) {
			p.rollouts(true)
		},
	},
	{
		name: "surge-0",
		rule: "R6: a rolling update with maxSurge 0 is not slower and not stuck",
		story: func(p *play) {
			p.rollouts(false)
		},
	},
	{
		name:  "driver-again",
		rule:  "R6: a driver that restarts, or dies in the middle of a call, holds nothing up",
		story: driverAgain,
	},
	{
		name:  "upgrade",
		rule:  "R6: an upgrade of csi-fencepost, or its death, in the middle of a move holds nothing up",
		story: upgrade,
	},
	{
		name:        "bypassed",
		rule:        "R6: after the sidecar was away and volumes have moved, nothing is stuck (and R1: nothing is unsafe)",
		guardedOnly: true,
		story:       bypassed,
	},
}

// move deletes the pod, starts it on another node and says how long that took.
func (p *play) move(pod *bed.Pod, v *bed.Volume, to *bed.Node) (*bed.Pod, time.Duration) {
	p.t.Helper()
	began := time.Now()
	pod.Delete()
	moved := p.Pod(pod.Name, to, v)
	moved.WaitRunning(60 * time.Second)
	return moved, time.Since(began)
}

// mustWriteOn fails unless the volume is written to on the node, now.
func (p *play) mustWriteOn(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Array.WaitWrites(ctx, v.Handle, n.ID, 3); err != nil {
		p.t.Fatal(err)
	}
}

// rollouts moves a Deployment to and fro by changes of its template.
func (p *play) rollouts(recreate bool) {
	p.t.Helper()
	v := p.Volume("disk", bed.VolumeOptions{})
	db := p.Deployment("db", recreate, p.Nodes[0], v)
	db.WaitRunningOn(p.Nodes[0], 60*time.Second)
	for i, n := range []int{1, 0, 1} {
		db.MoveTo(p.Nodes[n])
		took := db.WaitRunningOn(p.Nodes[n], 90*time.Second)
		v.WaitPublished(p.Nodes[n], 10*time.Second)
		p.outcome("rollout %d: %.1f s", i+1, took.Seconds())
	}
}

// inFlight waits until a call of that method for the node runs at the driver.
func (p *play) inFlight(method string, n *bed.Node) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	_, err := p.Array.WaitCall(ctx, method+" for "+n.Name+" under way", func(c array.Call) bool {
		return c.Method == method && c.Node == n.ID && c.End.IsZero()
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// lastCode is how the last call of that method for the node ended.
func (p *play) lastCode(method string, n *bed.Node) codes.Code {
	code := codes.Unknown
	for _, c := range p.Array.CallsOf(method, "") {
		if c.Node == n.ID && !c.End.IsZero() {
			code = c.Code
		}
	}
	return code
}

// slowly has every publish or unpublish take so long that it can be cut off.
func (p *play) slowly(d time.Duration) {
	p.Array.Set(func(s *array.Switches) { s.PublishTakes, s.UnpublishTakes = d, d })
}

func driverAgain(p *play) {
	v, a, b := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", a, v)
	db.WaitRunning(60 * time.Second)

	// Stopped in good order while the pod moves.
	p.Array.Stop()
	db.Delete()
	db = p.Pod("db", b, v)
	time.Sleep(3 * time.Second)
	began := time.Now()
	p.serveDriver()
	db.WaitRunning(90 * time.Second)
	p.outcome("after a stop of 3 s: %.1f s", time.Since(began).Seconds())

	for _, method := range []string{array.Unpublish, array.Publish} {
		from, to := a, b
		if v.AttachedTo(b) {
			from, to = b, a
		}
		p.slowly(3 * time.Second)
		db.Delete()
		db = p.Pod("db", to, v)
		at := to
		if method == array.Unpublish {
			at = from
		}
		p.inFlight(method, at)
		p.Array.Kill()
		if code := p.lastCode(method, at); code == codes.OK {
			p.t.Fatalf("%s was to be cut off, and ended well", method)
		}
		p.slowly(0)
		began := time.Now()
		p.serveDriver()
		db.WaitRunning(90 * time.Second)
		p.outcome("killed in the middle of %s: %.1f s", method, time.Since(began).Seconds())
	}
}

// serveDriver starts the driver again on its socket.
func (p *play) serveDriver() {
	p.t.Helper()
	if err := p.Array.Serve(context.Background(), p.DriverSocket()); err != nil {
		p.t.Fatal(err)
	}
}

func upgrade(p *play) {
	v := p.Volume("disk", bed.VolumeOptions{})
	db := p.Pod("db", p.Nodes[0], v)
	db.WaitRunning(60 * time.Second)
	// What an upgrade restarts: csi-fencepost, or, where there is none, the attacher.
	gracefully := func() { p.StopAttacher(); p.StartAttacher() }
	kill := func() error { return p.Attacher.Kill() }
	if p.guarded() {
		gracefully = func() { p.StopFencepost(); p.StartFencepost() }
		kill = func() error { return p.Fencepost.Kill() }
	}
	for i, step := range []struct{ method, how string }{
		{array.Publish, "stopped"}, {array.Unpublish, "stopped"}, {array.Publish, "killed"}, {array.Unpublish, "killed"},
	} {
		from, to := p.Nodes[i%2], p.Nodes[(i+1)%2]
		p.slowly(2 * time.Second)
		began := time.Now()
		db.Delete()
		db = p.Pod("db", to, v)
		at := to
		if step.method == array.Unpublish {
			at = from
		}
		p.inFlight(step.method, at)
		if step.how == "killed" {
			if err := kill(); err != nil {
				p.t.Fatal(err)
			}
		} else {
			gracefully()
			if code := p.lastCode(step.method, at); p.guarded() && code != codes.OK {
				p.t.Errorf("the %s under way when csi-fencepost was told to stop ended with %s", step.method, code)
			}
		}
		p.slowly(0)
		db.WaitRunning(90 * time.Second)
		v.WaitPublished(to, 10*time.Second)
		p.outcome("%s in the middle of %s: moved in %.1f s", step.how, step.method, time.Since(began).Seconds())
	}
}

// bypassed: the sidecar is taken out of the pod, volumes move, it is put back.
func bypassed(p *play) {
	moves, stays := p.Volume("moves", bed.VolumeOptions{}), p.Volume("stays", bed.VolumeOptions{})
	a, b := p.Nodes[0], p.Nodes[1]
	one, two := p.Pod("one", a, moves), p.Pod("two", a, stays)
	one.WaitRunning(60 * time.Second)
	two.WaitRunning(60 * time.Second)

	p.StopAttacher()
	p.StopFencepost()
	p.StartAttacherOn("csi.sock")
	one, _ = p.move(one, moves, b)
	two, _ = p.move(two, stays, b)
	p.StopAttacher()
	p.StartFencepost()
	p.StartAttacher()
	for _, v := range []*bed.Volume{moves, stays} {
		if l, err := ledger.Parse(v.Ledger()); err != nil || l.Get(a.ID) == nil || l.Get(b.ID) != nil {
			p.t.Fatalf("the ledger was to be wrong (it names %s alone): %s %v", a.ID, v.Ledger(), err)
		}
	}

	// Nothing is stuck: one goes on to move.
	_, took := p.move(one, moves, a)
	p.outcome("moved on in %.1f s", took.Seconds())
	p.heldBy(moves, a)

	// Nothing is unsafe: the node that only its VolumeAttachment names is cut off.
	b.CutOff()
	b.WaitNotReady()
	two.ForceDelete()
	again := p.Pod("two", a, stays)
	p.Log("refused: %s", stays.WaitRefused(b, string(fence.HolderStale), p.Bed.Clocks.ForceDetachAfter+60*time.Second))
	p.Log("refused: %s", stays.WaitRefused(a, string(fence.HolderStale), 60*time.Second))
	if l, err := ledger.Parse(stays.Ledger()); err != nil || l.Get(b.ID) == nil {
		p.t.Fatalf("the ledger was to be rebuilt with %s: %s %v", b.ID, stays.Ledger(), err)
	}
	p.mustWriteOn(stays, b)
	p.Never(5*time.Second, "the volume left the node that the ledger did not know", func() bool { return !stays.AttachedTo(b) || stays.AttachedTo(a) })
	b.PowerOff()
	b.Taint(bed.OutOfServiceTaint)
	proof := time.Now()
	again.WaitRunning(60 * time.Second)
	p.heldBy(stays, a)
	p.outcome("a node that the ledger lacked kept its volume until it was proven off; moved %.1f s after that", time.Since(proof).Seconds())
}

// heldBy waits until the ledger's one holder is the node.
func (p *play) heldBy(v *bed.Volume, n *bed.Node) {
	p.t.Helper()
	text := ""
	p.WaitFor(15*time.Second, fmt.Sprintf("the ledger of %s names %s and nobody else", v.Name, n.ID), func() bool {
		text = v.Ledger()
		l, err := ledger.Parse(text)
		if err != nil {
			return false
		}
		holders := 0
		for _, e := range l.Holders {
			if e.State == fence.Publishing || e.State == fence.Held || e.State.Pending() {
				holders++
			}
		}
		e := l.Get(n.ID)
		return holders == 1 && e != nil && (e.State == fence.Publishing || e.State == fence.Held)
	})
}
