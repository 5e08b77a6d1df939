package fitness

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// A hook is what a vendor's own code does to a call before, after or instead of
// the reference driver.
type hook func(ctx context.Context, method string, req any, next func() (any, error)) (any, error)

// A bench is the reference driver with the machines n1, n2 and n3, behind a hook.
type bench struct {
	*array.Array
	socket string
	direct spec.ControllerClient // past the hook
	node   spec.NodeClient       // n1's

	mu   sync.Mutex
	hook hook
}

func newBench(t *testing.T, options array.Options) *bench {
	t.Helper()
	b := &bench{Array: array.New(options)}
	t.Cleanup(b.Close)
	dir := t.TempDir()
	// A machine has to be known for a publish; its kubelet does not matter.
	own := filepath.Join(dir, "array.sock")
	must(t, b.ServeAll(context.Background(), own, "n1"))
	must(t, b.AddMachine("n2"))
	must(t, b.AddMachine("n3"))
	conn, err := grpc.NewClient("unix://"+own, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	b.direct, b.node = spec.NewControllerClient(conn), spec.NewNodeClient(conn)
	b.socket = filepath.Join(dir, "csi.sock")
	b.serve(t, conn)
	return b
}

func (b *bench) serve(t *testing.T, conn *grpc.ClientConn) {
	listener, err := net.Listen("unix", b.socket)
	must(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		next := func() (any, error) { return handler(ctx, req) }
		b.mu.Lock()
		hook := b.hook
		b.mu.Unlock()
		if hook == nil {
			return next()
		}
		return hook(ctx, filepath.Base(info.FullMethod), req, next)
	}))
	f := forwarder{c: spec.NewControllerClient(conn), i: spec.NewIdentityClient(conn), n: spec.NewNodeClient(conn)}
	spec.RegisterControllerServer(server, f)
	spec.RegisterIdentityServer(server, f)
	spec.RegisterNodeServer(server, f)
	var done sync.WaitGroup
	done.Go(func() { server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); done.Wait() })
}

func (b *bench) set(h hook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hook = h
}

// forwarder serves what the suite calls.
type forwarder struct {
	spec.UnimplementedControllerServer
	spec.UnimplementedIdentityServer
	spec.UnimplementedNodeServer
	c spec.ControllerClient
	i spec.IdentityClient
	n spec.NodeClient
}

func (f forwarder) GetPluginInfo(ctx context.Context, r *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return f.i.GetPluginInfo(ctx, r)
}
func (f forwarder) NodeGetInfo(ctx context.Context, r *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return f.n.NodeGetInfo(ctx, r)
}
func (f forwarder) ControllerGetCapabilities(ctx context.Context, r *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	return f.c.ControllerGetCapabilities(ctx, r)
}
func (f forwarder) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	return f.c.CreateVolume(ctx, r)
}
func (f forwarder) DeleteVolume(ctx context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	return f.c.DeleteVolume(ctx, r)
}
func (f forwarder) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return f.c.ControllerPublishVolume(ctx, r)
}
func (f forwarder) ControllerUnpublishVolume(ctx context.Context, r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return f.c.ControllerUnpublishVolume(ctx, r)
}
func (f forwarder) ListVolumes(ctx context.Context, r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	return f.c.ListVolumes(ctx, r)
}
func (f forwarder) ControllerGetVolume(ctx context.Context, r *spec.ControllerGetVolumeRequest) (*spec.ControllerGetVolumeResponse, error) {
	return f.c.ControllerGetVolume(ctx, r)
}

// config is quick, and as patient as a loaded machine needs.
func (b *bench) config() Config {
	c := NewConfig()
	c.Address, c.NodeIDs = b.socket, []string{"n1", "n2", "n3"}
	c.Timeout, c.Watch, c.Rounds = 1500*time.Millisecond, 60*time.Millisecond, 4
	return c
}

// testLog is what Ginkgo's writer is in a suite.
type testLog struct{ t *testing.T }

func (l testLog) Printf(format string, args ...any) { l.t.Logf(format, args...) }
func (l testLog) Write(text []byte) (int, error)    { l.t.Logf("%s", text); return len(text), nil }

// askAll does what the specs of GinkgoTest do, many times in one process.
func askAll(t *testing.T, config Config) *Report {
	t.Helper()
	s := &Suite{config: &config, progress: testLog{t}}
	if s.prepare(t.Context(), testLog{t}) == nil {
		for _, q := range questions {
			s.ask(t.Context(), q)
		}
	}
	must(t, s.cleanUp(context.Background()))
	return s.Report()
}

// spotless fails if the suite has left anything.
func (b *bench) spotless(t *testing.T) {
	t.Helper()
	list, err := b.direct.ListVolumes(t.Context(), &spec.ListVolumesRequest{})
	if err == nil && len(list.GetEntries()) > 0 {
		t.Errorf("volumes are left: %v", list.GetEntries())
	}
	for _, m := range b.Machines() {
		if v := b.AttachedVolumes(m); len(v) > 0 {
			t.Errorf("volumes %v are left on %s", v, m)
		}
	}
}

// outcome is that of the question of this name.
func (r *Report) outcome(t *testing.T, name string) Outcome {
	t.Helper()
	i := slices.IndexFunc(r.Outcomes, func(o Outcome) bool { return o.Question == name })
	if i < 0 {
		t.Fatalf("the question %q was not asked: %s", name, r.Problem)
	}
	return r.Outcomes[i]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func attached(b *bench, volume, node string) bool {
	return slices.Contains(b.Attached(volume), node)
}
