package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// T is what a scenario fails through: a testing.TB, or a story that is told.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Context() context.Context
	Cleanup(func())
}

// Clocks are the waits of Kubernetes that a scenario has to sit through.
type Clocks struct {
	// ForceDetachAfter is the attach-detach controller's wait before it
	// detaches by force.
	ForceDetachAfter time.Duration
	// NodeMonitorGracePeriod is how long a kubelet may be silent before its
	// node is NotReady.
	NodeMonitorGracePeriod time.Duration
}

// RealClocks are Kubernetes' own; ShortClocks make a scenario quicker where the
// length of a wait is not its point.
var (
	RealClocks  = Clocks{ForceDetachAfter: 6 * time.Minute, NodeMonitorGracePeriod: 50 * time.Second}
	ShortClocks = Clocks{ForceDetachAfter: 15 * time.Second, NodeMonitorGracePeriod: 21 * time.Second}
)

// Bed is a control plane that stages share.
type Bed struct {
	Cluster *controlplane.Cluster
	Clocks  Clocks
	// Fencepost and Attacher are the paths of the binaries.
	Fencepost, Attacher string
	// Bare leaves out the controllers; a test plays them. Namespaces get their default service
	// account from the stage, claims stay unbound.
	Bare bool

	image image        // of virtual machines
	real  realPrograms // of real nodes
}

// Programs are the binaries of a bed.
type Programs struct {
	ControlPlane controlplane.Binaries
	Fencepost    string
}

// Build builds what a bed runs, with progress for a person to read. The
// control plane is cached; csi-fencepost is built anew, with its crash points,
// into folder, beside kubectl.
func Build(ctx context.Context, progress *os.File, folder string, race bool) (Programs, error) {
	binaries, err := controlplane.Build(ctx, progress)
	if err != nil {
		return Programs{}, err
	}
	path := filepath.Join(folder, "csi-fencepost")
	err = controlplane.BuildFencepost(ctx, progress, path, controlplane.FencepostBuild{Race: race, Tags: []string{"crashpoints"}})
	if err == nil {
		err = kubectl(binaries.Kubernetes, folder)
	}
	return Programs{ControlPlane: binaries, Fencepost: path}, err
}

// New starts a control plane, which ends with t.
func New(t T, programs Programs, clocks Clocks) *Bed {
	t.Helper()
	b, err := Start(t.Context(), programs, clocks, t.Failed)
	if err != nil {
		t.Fatalf("control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	return b
}

// Start starts a control plane. End it with Stop.
func Start(ctx context.Context, programs Programs, clocks Clocks, keep func() bool) (*Bed, error) {
	cluster, err := controlplane.Start(ctx, controlplane.Options{
		Binaries:               programs.ControlPlane,
		ForceDetachAfter:       clocks.ForceDetachAfter,
		NodeMonitorGracePeriod: clocks.NodeMonitorGracePeriod,
		KeepOnFailure:          keep,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	return &Bed{Cluster: cluster, Clocks: clocks, Fencepost: programs.Fencepost, Attacher: programs.ControlPlane.Attacher}, nil
}

// StartBare starts a control plane of etcd and API server alone, with more
// arguments of the API server. End it with Stop.
func StartBare(ctx context.Context, programs Programs, keep func() bool, apiServerArgs ...string) (*Bed, error) {
	cluster, err := controlplane.Start(ctx, controlplane.Options{Binaries: programs.ControlPlane, NoControllers: true, APIServerArgs: apiServerArgs, KeepOnFailure: keep})
	if err != nil {
		return nil, fmt.Errorf("starting etcd and API server: %w", err)
	}
	return &Bed{Cluster: cluster, Clocks: RealClocks, Fencepost: programs.Fencepost, Attacher: programs.ControlPlane.Attacher, Bare: true}, nil
}

// Stop ends everything that runs on the bed.
func (b *Bed) Stop() error { return b.Cluster.Stop() }
