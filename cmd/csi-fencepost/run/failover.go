package run

import (
	"context"
	"errors"
	"io"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

const failoverName = "failover"

// FailoverCommand is `csi-fencepost failover`.
func FailoverCommand() cli.Command {
	return cli.Command{Name: failoverName, Summary: "failover of all drivers, as a Deployment of its own", Run: runFailover}
}

// runFailover is `csi-fencepost failover`.
func runFailover(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseFailoverFlags(args)
	if err == nil {
		err = start(ctx, f, (*runner).failover, stdout, stderr)
	}
	if errors.Is(err, errVersion) {
		return cli.PrintVersion(ctx, nil, stdout, stderr)
	}
	return err
}

// failover runs until ctx ends; then what is under way at a node comes to its end, and the lead
// is given up.
func (s *runner) failover(ctx context.Context) error {
	klog.FromContext(ctx).Info("csi-fencepost failover", "version", cli.BuildVersion(), "drivers", s.flags.drivers.String())
	if len(s.config.Fencing.Levels) == 0 {
		klog.FromContext(ctx).Info("There are no fence agents: pods are moved on a person's word (csi-fencepost fence confirm) alone", "config", s.flags.config)
	}
	s.ready.Set("drivers", sidecar.NotReady("it waits for the Kubernetes API"))
	s.metrics.ReadyIs(s.ready)
	stop, err := s.startHTTP(ctx)
	if err != nil {
		return err
	}
	defer stop()
	rights, err := sidecar.CheckApartRights(ctx, s.rest, s.config, s.flags.authorize)
	if err != nil {
		return err
	}
	s.ready.Set("rights", rights)
	// What is watched outlives ctx by the time that the work takes to end.
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	apart, err := sidecar.NewApart(watching, sidecar.ApartOptions{
		Rest:      s.rest,
		Config:    s.config,
		Drivers:   s.flags.drivers,
		AgentDirs: s.flags.agentDirs,
		Metrics:   s.metrics,
		Board:     s.board,
		Lead:      func() error { return s.leader.Check(nil) },
		Ready:     func(check func() error) { s.ready.Set("drivers", check) },
	})
	if err != nil {
		return err
	}
	wait := s.startBackground(ctx, cluster.FailoverLock, apart.Run)
	<-ctx.Done()
	wait()
	return nil
}
