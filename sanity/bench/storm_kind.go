package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

// raised are the limits on requests that Kubernetes' own components have in a
// storm, on both sides: with the controller manager's default of 20 a second its
// attach-detach controller alone takes some 150 s for 1,000 volumes.
var raised = []string{"--kube-api-qps=100", "--kube-api-burst=200"}

const (
	// stormShare is fencing.maxUnhealthy: half of the machines lose power, and the
	// default of 40% takes that for a fault of our own.
	stormShare = "60%"
	// maxStormVolumes of a machine: a kubelet takes 110 pods.
	maxStormVolumes = 100
)

// stormKinds are the kinds of storms.
var stormKinds = []stormKind{
	{key: "quick", name: "driver answers at once", compared: true},
	{key: "fewer", name: "driver answers at once", part: 5, compared: true},
	{key: "slow", name: "each call of the driver takes 1 s", takes: time.Second, compared: true},
	{key: "stuck", name: "driver answers at once, but for the unpublish of one volume, which hangs", stuck: true},
	{key: "waiting", name: "the BMCs hang, the operator's taint is no evidence, and Kubernetes asks for all volumes in vain", waiting: true},
}

// stormKind is a kind of storm and what came of it.
type stormKind struct {
	key, name string
	// takes is how long each ControllerPublishVolume and ControllerUnpublishVolume
	// takes the driver.
	takes time.Duration
	// stuck has one volume's unpublish hang until all others have moved.
	stuck bool
	// part plays one of so many parts of -storm-volumes, on as many machines; 0: all of them. What
	// it takes less is not the machine's doing that measures.
	part int
	// waiting has nothing proven until Kubernetes, told by its operator, has asked for every volume
	// and waited.
	waiting bool
	// compared plays it with Kubernetes alone, too.
	compared       bool
	guarded, alone *stormSample
}

// config is csi-fencepost's, beside what all kinds have.
func (k *stormKind) config() string {
	if k.waiting {
		return "evidence: {outOfServiceTaint: false}"
	}
	return ""
}

// volumesOf a kind.
func (o *stormOptions) volumesOf(k *stormKind) int {
	return max(1, o.stormVolumes/max(1, k.part))
}

func stormKeys() (keys []string) {
	for _, k := range stormKinds {
		keys = append(keys, k.key)
	}
	return keys
}

// stormOptions are the section storm's: how many volumes on how many machines,
// and as many machines beside those. scheduler are flags for kube-scheduler,
// stormLimits those for csi-fencepost.
type stormOptions struct {
	stormVolumes, stormNodes, stormTaker int
	stormKinds, scheduler, stormLimits   []string
}

func (o *stormOptions) stormFlags(set *flag.FlagSet) {
	o.stormKinds, o.stormLimits = stormKeys(), deployed
	set.IntVar(&o.stormVolumes, "storm-volumes", 1000, "how many volumes the machines of a storm have")
	set.IntVar(&o.stormNodes, "storm-nodes", 20, "how many machines lose power in a storm")
	set.IntVar(&o.stormTaker, "storm-takers", 20, "how many machines take over in a storm")
	set.Func("storm-kinds", "measure only these `kinds` of storms, separated by commas: "+strings.Join(stormKeys(), ", "), func(text string) error {
		o.stormKinds = strings.Split(text, ",")
		for _, key := range o.stormKinds {
			if !slices.Contains(stormKeys(), key) {
				return fmt.Errorf("there is no kind %q", key)
			}
		}
		return nil
	})
	set.Func("storm-limits", "csi-fencepost's limits on requests in a storm, `--name=value`, separated by commas (default "+strings.Join(deployed, ",")+")", func(text string) (err error) {
		o.stormLimits, err = flagList(text)
		return err
	})
}

// stormCommand is what was typed for the section storm.
func (o *stormOptions) stormCommand() string {
	return fmt.Sprintf(" -storm-volumes=%d -storm-nodes=%d -storm-takers=%d -storm-kinds=%s -storm-limits=%s",
		o.stormVolumes, o.stormNodes, o.stormTaker, strings.Join(o.stormKinds, ","), strings.Join(o.stormLimits, ","))
}

// validStorm tells what is wrong with the flags.
func (o *stormOptions) validStorm() error {
	switch {
	case o.stormVolumes < 1 || o.stormNodes < 1 || o.stormTaker < 1:
		return errors.New("-storm-volumes, -storm-nodes and -storm-takers have to be more than 0")
	case o.stormVolumes > maxStormVolumes*min(o.stormNodes, o.stormTaker):
		return fmt.Errorf("-storm-volumes=%d are too many for -storm-nodes=%d and -storm-takers=%d: a machine takes %d", o.stormVolumes, o.stormNodes, o.stormTaker, maxStormVolumes)
	}
	return nil
}
