package scenarios

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// database is a Deployment of one pod whose volume is on the first node, and
// that may move to the second.
func (p *play) database() (v *bed.Volume, d *bed.Deployment, old, next *bed.Node) {
	p.t.Helper()
	v, old, next = p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	next.Cordon()
	d = p.Deployment("db", false, nil, v)
	d.WaitRunningOn(old, 90*time.Second)
	next.Uncordon()
	return v, d, old, next
}

// failovers: a node dies, and nobody has to get up.
var failovers = slices.Concat(poweredOff, suspected, cutClients, fieldFailovers)

var poweredOff = []scenario{
	{
		name:    "power-off",
		rule:    "R1: a node whose BMC reads off is dead: its pods are moved, and its volumes with them, without a human",
		from:    "k/65392, k/50944, hetznercloud/csi-driver#164",
		options: bed.StageOptions{Failover: true},
		story: func(p *play) {
			p.StartFailover(p.BMCs())
			v, d, old, next := p.database()
			time.Sleep(12 * time.Second) // a lease renewal: the node is known to live
			old.PowerOff()
			off := time.Now()
			if !p.guarded() {
				old.WaitNotReady()
				_, moved := p.within(60*time.Second, "the volume moves", func() bool { return v.AttachedTo(next) })
				if !moved {
					p.outcome("still attached to the dead node %.0f s after the power went", time.Since(off).Seconds())
				}
				return
			}
			v.WaitPublished(next, 60*time.Second)
			published := time.Since(off)
			d.WaitRunningOn(next, 60*time.Second)
			p.outcome("published elsewhere %.1f s after the power went, pod running after %.1f s", published.Seconds(), time.Since(off).Seconds())
		},
	},
	{
		name:    "polled-off",
		rule:    "R1: a node whose BMC, which is asked always, was seen to read off, and that has missed a renewal, is dead before its lease is silent",
		from:    "k/68086",
		options: bed.StageOptions{Failover: true},
		story: func(p *play) {
			p.StartFailover(polled(p))
			poweredOffPolled(p)
		},
	},
	{
		name:    "polled-apart",
		rule:    "R1: a guard that has no agents publishes elsewhere what a node holds that csi-fencepost failover has seen go off, before its lease is silent",
		from:    "k/68086",
		options: bed.StageOptions{Config: "fencing: {maxUnhealthy: 100%, apart: true}"},
		story: func(p *play) {
			p.StartApart(polled(p), nil)
			poweredOffPolled(p)
		},
	},
	{
		name:    "polled-blip",
		rule:    "R6: a node that is asked always whether it is on, and is without power for three seconds, keeps its pods",
		from:    "piraeusdatastore/linstor-csi#89",
		options: bed.StageOptions{Failover: true},
		story:   quickReboot,
	},
}

// polled are the BMCs of the stage, asked always.
func polled(p *play) string { return strings.Replace(p.BMCs(), "timeout:", "poll: 2s, timeout:", 1) }

// renewed is as long as a lease has to be watched before the next renewal is known to be due.
func renewed() { time.Sleep(45 * time.Second) }

// renews waits for the node's next renewal of its lease.
func (p *play) renews(n *bed.Node) {
	p.t.Helper()
	version := func() string {
		l, err := p.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(p.t.Context(), n.Name, metav1.GetOptions{})
		p.must(err)
		return l.ResourceVersion
	}
	before := version()
	p.WaitFor(20*time.Second, "it renews its lease", func() bool { return version() != before })
}

func poweredOffPolled(p *play) {
	p.t.Helper()
	v, d, old, next := p.database()
	renewed()
	p.renews(old)
	time.Sleep(5 * time.Second) // the next renewal is due before the lease is silent, and after four seconds of off
	old.PowerOff()
	off := time.Now()
	if !p.guarded() {
		old.WaitNotReady()
		if _, moved := p.within(60*time.Second, "the volume moves", func() bool { return v.AttachedTo(next) }); !moved {
			p.outcome("still attached to the dead node %.0f s after the power went", time.Since(off).Seconds())
		}
		return
	}
	p.WaitFor(30*time.Second, "it is proven off", func() bool {
		f := p.recordOf(old).Fence(fence.PowerReading, "")
		return f != nil && f.Phase == record.Fenced
	})
	proven, missed := time.Since(off), p.recordOf(old).Fence(fence.PowerReading, "").Missed
	v.WaitPublished(next, 60*time.Second)
	published := time.Since(off)
	d.WaitRunningOn(next, 60*time.Second)
	if missed == "" {
		p.t.Error("it was proven off by the silence of its lease")
	}
	p.Log("missed: %q", missed)
	p.outcome("proven off %.1f s after the power went, published elsewhere after %.1f s, pod running after %.1f s", proven.Seconds(), published.Seconds(), time.Since(off).Seconds())
}

func quickReboot(p *play) {
	p.StartFailover(polled(p))
	v, _, old, next := p.database()
	renewed()
	pods := p.podsOn(old)
	old.PowerOff()
	time.Sleep(3 * time.Second)
	old.Boot()
	p.Never(20*time.Second, "a node that booted was touched", func() bool { return tainted(old) || v.AttachedTo(next) })
	p.waitWriting(v)
	if p.guarded() {
		for _, f := range p.recordOf(old).Fences {
			p.t.Errorf("a fence is on record: %+v", f)
		}
	}
	if now := p.podsOn(old); len(pods) != 1 || !maps.Equal(now, pods) {
		p.t.Errorf("pods %v, were %v", now, pods)
	}
	p.outcome("its pod is the one of before, and runs")
}
