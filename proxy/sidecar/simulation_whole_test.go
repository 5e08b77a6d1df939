package sidecar

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate"
)

// wholeProgram is tier 2: New, the background work and the proxy
// as `run` starts them, but for the election (every replica leads) and the socket,
// which is in memory.
func wholeProgram(ctx context.Context, p simulate.Parts) (simulate.Sidecar, error) {
	metrics := NewMetrics()
	rejudged := int64(waiting.Rejudged)
	if p.Spares {
		rejudged = -1 // none
	}
	edge, background, err := New(ctx, Options{Driver: simulate.DriverName, Conn: p.Driver, Rest: p.Rest, Config: p.Config, Levels: p.Agents,
		Rejudged: rejudged, Host: p.Name, Timeout: 15 * time.Second, Metrics: metrics, Board: NewBoard("simulated", p.Config, false, &Readiness{}), Ready: func(func() error) {}})
	if err != nil {
		return nil, err
	}
	server, err := proxy.New(proxy.Options{Listen: filepath.Join(os.TempDir(), "simulated.sock"), Driver: p.Driver, Guard: edge, Recorder: metrics})
	if err != nil {
		return nil, err
	}
	listener := bufconn.Listen(1 << 16)
	conn, err := simulate.DialListener(listener)
	if err != nil {
		return nil, err
	}
	go KeepRunning(ctx, background)
	go func() { _ = server.ServeListener(ctx, listener) }()
	context.AfterFunc(ctx, func() { conn.Close() })
	return tier2{spec.NewControllerClient(conn)}, nil
}

// tier2 is a process of tier 2, as the attacher sees it.
type tier2 struct{ client spec.ControllerClient }

func (s tier2) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return s.client.ControllerPublishVolume(ctx, req)
}

func (s tier2) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return s.client.ControllerUnpublishVolume(ctx, req)
}

// It watches, and fails over, by itself.
func (tier2) Sight(context.Context, *corev1.Node) error            { return nil }
func (tier2) FenceOff(context.Context, *corev1.Node, string) error { return nil }
func (tier2) LeaseSeen(string, string)                             {}
func (tier2) Beat(bool)                                            {}

// TestTheSameSeedGivesTheSameTraceOfTheWholeProgram: a seed of tier 2 most often
// repeats its schedule. Not always: goroutines of gRPC and of client-go take their
// turns as Go's scheduler has it. What it found is repeated by its script.
func TestTheSameSeedGivesTheSameTraceOfTheWholeProgram(t *testing.T) {
	const seeds = 6
	differ := 0
	for seed := range uint64(seeds) {
		a, b := simulate.Random(t, wholeProgram, seed, true), simulate.Random(t, wholeProgram, seed, true)
		if a.Script() != b.Script() {
			differ++
			t.Logf("seed %d: two traces, of %d and %d events", seed, len(a.Trace), len(b.Trace))
		}
	}
	if differ > seeds/2 {
		t.Errorf("%d of %d seeds differ", differ, seeds)
	}
}
