package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
)

// Flags of external-attacher: what we advise, and its own defaults, written out
// because the stage's attacher has others.
var (
	advised  = []string{"--worker-threads=100", "--kube-api-qps=100", "--kube-api-burst=200", "--timeout=60s"}
	defaults = []string{"--worker-threads=10", "--kube-api-qps=5", "--kube-api-burst=10", "--timeout=15s"}
	// deployed are csi-fencepost's own limits in deploy/sidecar.
	deployed = []string{"--kube-api-qps=400", "--kube-api-burst=800"}
)

// failoverKinds are the kinds of runs.
var failoverKinds = []failoverKind{
	{key: "advised", name: "flags as deployed", attacher: advised, fencepost: deployed, compared: true},
	{key: "limits", name: "flags as deployed, but csi-fencepost with its default limits (50 requests a second, 100 at once)", attacher: advised},
	{key: "defaults", name: "attacher's default flags", attacher: defaults, compared: true, runs: 1},
}

func kindKeys() (keys []string) {
	for _, k := range failoverKinds {
		keys = append(keys, k.key)
	}
	return keys
}

// failoverKind is a kind of run and what came of it.
type failoverKind struct {
	key, name           string
	attacher, fencepost []string // flags
	// compared plays it with Kubernetes alone, too.
	compared       bool
	runs           int // 0: as many as asked for
	guarded, alone []failoverSample
}

// failoverFlags are those of the section failover.
func (o *options) failoverFlags(set *flag.FlagSet) {
	set.IntVar(&o.failovers, "failovers", 10, "how often a node loses power")
	set.IntVar(&o.beside, "beside", math.MaxInt, "in how many of these runs Kubernetes alone loses a node as well")
	set.IntVar(&o.volumes, "volumes", 50, "how many volumes that node has")
	set.Func("kinds", "measure only these `kinds` of failovers, separated by commas: "+strings.Join(kindKeys(), ", "), func(text string) error {
		o.kinds = strings.Split(text, ",")
		for _, key := range o.kinds {
			if !slices.Contains(kindKeys(), key) {
				return fmt.Errorf("there is no kind %q", key)
			}
		}
		return nil
	})
	set.Func("manager", "flags for kube-controller-manager, for both sides, `--name=value`, separated by commas", func(text string) (err error) {
		o.manager, err = flagList(text)
		return err
	})
}

// flagList reads flags for another program, separated by commas.
func flagList(text string) ([]string, error) {
	list := strings.Split(text, ",")
	if slices.ContainsFunc(list, func(f string) bool { return !strings.HasPrefix(f, "--") }) {
		return nil, errors.New("each has to begin with --, as in --kube-api-qps=100,--kube-api-burst=200")
	}
	return list, nil
}

// present tells what the sections failover and storm lack, before an hour is
// spent on the others.
func (o *options) present() error {
	if !o.wants("failover") && !o.wants("storm") {
		return nil
	}
	if _, err := exec.LookPath("ipmi_sim"); err != nil {
		return errors.New("the sections failover and storm need the program ipmi_sim (Debian: openipmi), which is not in PATH: run make deps, or name the other sections with -only")
	}
	return nil
}
