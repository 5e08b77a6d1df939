package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// ground is what the loops run on: a driver with its sidecar and attacher, and
// machines and volumes that each belong to one lane.
type ground struct {
	stage  *bed.Stage
	client kubernetes.Interface // without a limit on requests
	lanes  []*lane
	all    []*machine
	agent  *agents
	// kubernetes is the version of the control plane.
	kubernetes string

	// calm and failovers count the loops that came to their end.
	calm, failovers atomic.Int64
}

// newGround starts everything, which ends with t.
func newGround(t bed.T, o *options, folder string, progress *os.File) (*ground, error) {
	fmt.Fprintln(progress, "Building the control plane (minutes the first time, cached after that) and csi-fencepost.")
	programs, err := build(t.Context(), o, folder, progress)
	if err != nil {
		return nil, err
	}
	b, err := bed.StartBare(t.Context(), programs, t.Failed)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = b.Stop() })
	g := &ground{kubernetes: programs.ControlPlane.Version}
	config := b.Cluster.Admin()
	config.QPS = -1
	if g.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	g.stage = b.Stage(t, "soak", bed.StageOptions{Nodes: -1, Manual: true, Failover: true, FencepostArgs: []string{"--http-endpoint=127.0.0.1:0"}})
	g.agent = newAgents(g.stage)
	for i := range o.failing + o.calm {
		if err := g.addLane(t.Context(), fmt.Sprintf("v%d", i), i < o.failing); err != nil {
			return nil, err
		}
	}
	g.stage.Options.Config = fmt.Sprintf("failover: {enabled: true}\nfencing:\n  suspectAfter: %s\n  maxUnhealthy: 100%%\n  levels: %s", suspectAfter, g.agent.levels(g.all))
	g.stage.StartFencepost()
	g.stage.StartAttacher()
	return g, nil
}

// addLane makes a lane with its volume and its two machines.
func (g *ground) addLane(ctx context.Context, name string, failing bool) error {
	l := &lane{ground: g, name: name, failing: failing, volume: g.stage.Volume(name, bed.VolumeOptions{})}
	for i := range l.machines {
		m, err := g.newMachine(ctx, fmt.Sprintf("%s-n%d", name, i+1))
		if err != nil {
			return err
		}
		l.machines[i] = m
		g.all = append(g.all, m)
		if failing {
			if err := g.agent.add(m); err != nil {
				return err
			}
		}
	}
	g.lanes = append(g.lanes, l)
	return nil
}

// soak runs all lanes until the time is over, and looks meanwhile. Its error is
// that it was told to stop: whatever else ends it before its time is a fault of the
// verdict.
func (g *ground) soak(told context.Context, o *options, soFar func(*verdict) error) (*verdict, error) {
	ctx, cancel := context.WithCancel(told)
	ended := make(chan error, len(g.all)+len(g.lanes))
	running := 0
	start := func(f func(context.Context) error) {
		running++
		go func() { ended <- f(ctx) }()
	}
	for _, m := range g.all {
		start(m.run)
	}
	failing := 0
	for _, l := range g.lanes {
		wait := time.Duration(0)
		if l.failing {
			// One after the other: the same number of them is in the same phase at any time.
			wait = loopTakes * time.Duration(failing) / time.Duration(o.failing)
			failing++
		}
		start(func(ctx context.Context) error { return l.run(ctx, wait) })
	}
	failing *= len(lane{}.machines)
	began := time.Now()
	looks, err := g.lookOn(ctx, o, ended, &running, func(looks []look, ran time.Duration) error { return soFar(g.judge(looks, failing, ran)) })
	ran := min(time.Since(began), o.duration)
	cancel()
	for range running {
		err = errors.Join(err, <-ended)
	}
	if told.Err() != nil {
		return nil, told.Err()
	}
	v := g.judge(looks, failing, ran)
	if err != nil {
		v.faults = append(v.faults, err.Error())
	}
	return v, nil
}

// lookOn looks until the time is over, or something ends before.
func (g *ground) lookOn(ctx context.Context, o *options, ended chan error, running *int, soFar func([]look, time.Duration) error) (looks []look, err error) {
	began, said := time.Now(), time.Time{}
	written := began
	ticker := time.NewTicker(o.look)
	defer ticker.Stop()
	for time.Since(began) < o.duration {
		select {
		case <-ctx.Done():
			return looks, ctx.Err()
		case err := <-ended:
			*running--
			return looks, fmt.Errorf("after %s: %w", time.Since(began).Round(time.Second), errors.Join(errors.New("it did not go on"), err))
		case <-ticker.C:
		}
		k, err := g.look(ctx)
		if err != nil {
			return looks, err
		}
		if time.Since(said) >= o.say {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "%7s  %s\n", time.Since(began).Round(time.Second), k)
		}
		if time.Since(began) >= o.warmUp {
			looks = append(looks, k)
		}
		if ran := time.Since(began); time.Since(written) >= o.write && len(looks) >= 3*minThird {
			written = time.Now()
			if err := soFar(looks, ran); err != nil {
				return looks, err
			}
		}
	}
	return looks, nil
}

// judge holds the end against the beginning, after so long.
func (g *ground) judge(looks []look, failing int, ran time.Duration) *verdict {
	v := newVerdict(looks, failing, len(g.lanes))
	v.ran, v.kubernetes = ran, g.kubernetes
	if n := g.stage.Fencepost.Restarts(); n > 0 {
		v.faults = append(v.faults, fmt.Sprintf("csi-fencepost ended, and was started again, %d times", n))
	}
	var seen []string
	for _, violation := range g.stage.Array.Violations() {
		seen = append(seen, fmt.Sprint(violation))
	}
	if len(seen) > 0 {
		v.faults = append(v.faults, "the array saw: "+strings.Join(seen, "; "))
	}
	return v
}

// poll asks every 50 ms until ok, for two minutes at most.
func poll(ctx context.Context, what string, ok func() (bool, error)) error {
	for began := time.Now(); ; {
		done, err := ok()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case done:
			return nil
		case time.Since(began) > 2*time.Minute:
			return fmt.Errorf("waited two minutes in vain: %s (%w)", what, errors.Join(errors.New("last answer"), err))
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
