package scenarios

import (
	"slices"
	"time"

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
}
