package array

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	single     = spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	multi      = spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	oneWriter  = spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	readers    = spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	singlePath = spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
)

// rig is an array with a controller socket, and node sockets for n1 and n2,
// talked to over real unix sockets.
type rig struct {
	*Array
	t          *testing.T
	dir        string
	controller spec.ControllerClient
	identity   spec.IdentityClient
	nodes      map[string]*client
	served     map[string]*Node
}

// client is a kubelet's view of one node socket.
type client struct {
	spec.NodeClient
	id string
	r  *rig
}

func newRig(t *testing.T, options Options) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "array") // t.TempDir is too long for a socket
	must(t, err)
	r := &rig{Array: New(options), t: t, dir: dir, nodes: map[string]*client{}, served: map[string]*Node{}}
	t.Cleanup(func() {
		r.Close()
		os.RemoveAll(dir)
	})
	r.serve()
	conn := dial(t, r.socket())
	r.controller, r.identity = spec.NewControllerClient(conn), spec.NewIdentityClient(conn)
	for _, id := range []string{"n1", "n2"} {
		r.addNode(id)
	}
	return r
}

func (r *rig) socket() string { return filepath.Join(r.dir, "csi.sock") }

func (r *rig) serve() {
	r.t.Helper()
	must(r.t, r.Serve(context.Background(), r.socket()))
}

func (r *rig) nodeOptions(id string) NodeOptions {
	root := filepath.Join(r.dir, id)
	return NodeOptions{NodeID: id, PluginDir: filepath.Join(root, "p"), RegistrationDir: filepath.Join(root, "r")}
}

func (r *rig) addNode(id string) {
	r.t.Helper()
	n, err := r.ServeNode(context.Background(), r.nodeOptions(id))
	must(r.t, err)
	r.served[id] = n
	r.nodes[id] = &client{NodeClient: spec.NewNodeClient(dial(r.t, n.Socket())), id: id, r: r}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func mountCap(mode spec.VolumeCapability_AccessMode_Mode) *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	}
}

func (r *rig) volume(id string) {
	r.t.Helper()
	must(r.t, r.CreateVolume(id, VolumeOptions{MultiWriter: true}))
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) publishAs(ctx context.Context, volume, node string, mode spec.VolumeCapability_AccessMode_Mode) error {
	_, err := r.controller.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{
		VolumeId: volume, NodeId: node, VolumeCapability: mountCap(mode), Readonly: mode == readers,
	}, grpc.WaitForReady(true))
	return err
}

func (r *rig) publish(volume, node string) error { return r.publishAs(r.ctx(), volume, node, single) }

func (r *rig) unpublishIn(ctx context.Context, volume, node string) error {
	_, err := r.controller.ControllerUnpublishVolume(ctx,
		&spec.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node}, grpc.WaitForReady(true))
	return err
}

func (r *rig) unpublish(volume, node string) error { return r.unpublishIn(r.ctx(), volume, node) }

func (c *client) staging(volume string) string { return filepath.Join(c.r.dir, c.id, "stage", volume) }
func (c *client) target(volume string) string  { return filepath.Join(c.r.dir, c.id, "pods", volume) }

func (c *client) stageAs(volume string, mode spec.VolumeCapability_AccessMode_Mode) error {
	_, err := c.NodeStageVolume(c.r.ctx(), &spec.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: c.staging(volume), VolumeCapability: mountCap(mode),
	})
	return err
}

func (c *client) runAs(volume string, mode spec.VolumeCapability_AccessMode_Mode) error {
	_, err := c.NodePublishVolume(c.r.ctx(), &spec.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: c.staging(volume), TargetPath: c.target(volume), VolumeCapability: mountCap(mode),
	})
	return err
}

func (c *client) stop(volume string) error {
	_, err := c.NodeUnpublishVolume(c.r.ctx(), &spec.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: c.target(volume)})
	return err
}

func (c *client) unstage(volume string) error {
	_, err := c.NodeUnstageVolume(c.r.ctx(), &spec.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: c.staging(volume)})
	return err
}

// use attaches, stages and publishes the volume, and waits for writes unless
// the mode is for readers.
func (r *rig) use(volume, node string, mode spec.VolumeCapability_AccessMode_Mode) {
	r.t.Helper()
	must(r.t, r.publishAs(r.ctx(), volume, node, mode))
	r.mount(volume, node, mode)
	if mode != readers {
		must(r.t, r.WaitWrites(r.ctx(), volume, node, 3))
	}
}

func (r *rig) mount(volume, node string, mode spec.VolumeCapability_AccessMode_Mode) {
	r.t.Helper()
	must(r.t, r.nodes[node].stageAs(volume, mode))
	must(r.t, r.nodes[node].runAs(volume, mode))
}

func (r *rig) letGo(volume, node string) {
	r.t.Helper()
	must(r.t, r.nodes[node].stop(volume))
	must(r.t, r.nodes[node].unstage(volume))
}

// kinds counts the violations by kind.
func (r *rig) kinds() map[ViolationKind]int {
	counts := map[ViolationKind]int{}
	for _, v := range r.Violations() {
		counts[v.Kind]++
	}
	return counts
}

func (r *rig) wantViolations(want ...ViolationKind) {
	r.t.Helper()
	counts := r.kinds()
	for _, kind := range want {
		if counts[kind] == 0 {
			r.t.Errorf("no %s was found", kind)
		}
		delete(counts, kind)
	}
	if len(counts) > 0 {
		r.t.Errorf("violations that are none: %v", r.Violations())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("got %v (%v), want %v", got, err, want)
	}
}
