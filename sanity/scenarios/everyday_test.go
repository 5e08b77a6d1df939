package scenarios

import (
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// everyday: nothing has failed, and nothing may be slower or more stuck than
// without csi-fencepost (R6).
var everyday = []scenario{
	{
		name: "move",
		rule: "R6: a pod that moves between healthy nodes takes its volume with it",
		story: func(p *play) {
			v := p.Volume("disk", bed.VolumeOptions{})
			for i, n := range []int{0, 1, 0, 1} {
				db := p.Pod("db", p.Nodes[n], v)
				took := db.WaitRunning(60 * time.Second)
				p.outcome("start %d: %.1f s", i+1, took.Seconds())
				db.Delete()
			}
		},
	},
	{
		name:        "policies",
		rule:        "R6: with the policies of deploy/admission in force nodes register, are drained, die and come back, and their volumes move",
		ownBed:      true,
		guardedOnly: true,
		story:       policed,
	},
}
