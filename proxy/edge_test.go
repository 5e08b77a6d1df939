package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// The echo service is one that the proxy has never heard of. Its messages are
// bytes, and not protobuf.
const (
	echoUnary  = "/test.Echo/Unary"
	echoUpload = "/test.Echo/Upload" // answers with all that it got
	echoThrice = "/test.Echo/Thrice" // answers the one request three times
	echoChat   = "/test.Echo/Chat"   // answers each message
)

// echoDriver is a CSI driver on a socket that also serves the echo service.
type echoDriver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	path   string
	server *grpc.Server

	// What calls do, in place of echo and success. Set before the first call.
	onUnary     func(ctx context.Context, in []byte) ([]byte, error)
	onStream    func(method string, stream grpc.ServerStream) error
	onPublish   func(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error)
	onUnpublish func(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error)
	onProbe     func(context.Context) (*spec.ProbeResponse, error)

	mu   sync.Mutex
	seen []*stats.InHeader
}

// newDriver returns a driver that does not serve yet.
func newDriver(t *testing.T) *echoDriver {
	t.Helper()
	return &echoDriver{path: filepath.Join(shortDir(t), "driver.sock")}
}

// startDriver returns a driver that serves until the test ends.
func startDriver(t *testing.T) *echoDriver {
	t.Helper()
	d := newDriver(t)
	d.start(t)
	return d
}

// start serves, anew if the driver was killed before.
func (d *echoDriver) start(t *testing.T, o ...grpc.ServerOption) {
	t.Helper()
	socket, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(o,
		grpc.ForceServerCodecV2(bytesCodec{}),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.StatsHandler(d),
	)...)
	server.RegisterService(&echoService, d)
	spec.RegisterIdentityServer(server, d)
	spec.RegisterControllerServer(server, d)
	d.server = server
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(server.Stop)
}

// stopGracefully ends the driver as SIGTERM should: the calls in flight finish.
func (d *echoDriver) stopGracefully() { d.server.GracefulStop() }

// kill ends the driver as SIGKILL would: its connections break.
func (d *echoDriver) kill() { d.server.Stop() }

// calls returns what the driver saw of the calls of method, on the wire.
func (d *echoDriver) calls(method string) []*stats.InHeader {
	d.mu.Lock()
	defer d.mu.Unlock()
	var calls []*stats.InHeader
	for _, h := range d.seen {
		if h.FullMethod == method {
			calls = append(calls, h)
		}
	}
	return calls
}

func (d *echoDriver) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (d *echoDriver) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (d *echoDriver) HandleConn(context.Context, stats.ConnStats)                       {}
func (d *echoDriver) HandleRPC(_ context.Context, s stats.RPCStats) {
	if h, ok := s.(*stats.InHeader); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.seen = append(d.seen, h)
	}
}

func (d *echoDriver) Probe(ctx context.Context, _ *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	if d.onProbe != nil {
		return d.onProbe(ctx)
	}
	return &spec.ProbeResponse{}, nil
}

func (d *echoDriver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: "echo.test"}, nil
}

func (d *echoDriver) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	if d.onPublish != nil {
		return d.onPublish(ctx, req)
	}
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"node": req.NodeId}}, nil
}

func (d *echoDriver) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	if d.onUnpublish != nil {
		return d.onUnpublish(ctx, req)
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := decode(&in); err != nil {
			return nil, err
		}
		if on := srv.(*echoDriver).onUnary; on != nil {
			return on(ctx, in)
		}
		return in, nil
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Upload", ClientStreams: true, Handler: echoStream(echoUpload)},
		{StreamName: "Thrice", ServerStreams: true, Handler: echoStream(echoThrice)},
		{StreamName: "Chat", ClientStreams: true, ServerStreams: true, Handler: echoStream(echoChat)},
	},
}

func echoStream(method string) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		if on := srv.(*echoDriver).onStream; on != nil {
			return on(method, stream)
		}
		var all []byte
		for {
			var in []byte
			if err := stream.RecvMsg(&in); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			all = append(all, in...)
			if method == echoChat {
				if err := stream.SendMsg(in); err != nil {
					return err
				}
			}
		}
		for range map[string]int{echoUpload: 1, echoThrice: 3, echoChat: 0}[method] {
			if err := stream.SendMsg(all); err != nil {
				return err
			}
		}
		return nil
	}
}

// bytesCodec sends []byte as it is, and other messages as protobuf.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
		return nil
	}
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}

func (bytesCodec) Name() string { return "" }

// shortDir is t.TempDir with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "edge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// connect returns a caller's connection to the socket at path.
func connect(t *testing.T, path string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, append(o,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dialDriver is proxy.Dial, for the length of the test.
func dialDriver(t *testing.T, d *echoDriver) *grpc.ClientConn {
	t.Helper()
	return dialSocket(t, d.path)
}

// dialSocket is proxy.Dial, for the length of the test.
func dialSocket(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := proxy.Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// edge is a proxy that serves.
type edge struct {
	*grpc.ClientConn // a caller's
	path             string
	stop             func() error // returns what Serve did
}

// startEdge puts a proxy before the driver; options fill in the rest.
func startEdge(t *testing.T, ctx context.Context, d *echoDriver, o proxy.Options) *edge {
	t.Helper()
	if o.Listen == "" {
		o.Listen = filepath.Join(shortDir(t), "csi.sock")
	}
	if o.Driver == nil {
		o.Driver = dialDriver(t, d)
	}
	if o.Guard == nil {
		o.Guard = proxy.Pass()
	}
	server, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	select {
	case <-server.Serving():
	case err := <-ended:
		t.Fatalf("Serve ended with %v before it served", err)
	case <-time.After(10 * time.Second):
		t.Fatal("not serving after 10 s")
	}
	e := &edge{ClientConn: connect(t, o.Listen), path: o.Listen}
	e.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(30 * time.Second):
			return errors.New("Serve did not return")
		}
	})
	t.Cleanup(func() {
		_ = e.Close() // so that a call left open does not hold up the graceful stop
		if err := e.stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return e
}

// both runs a rule on the driver itself and through the proxy: what holds
// without the proxy must hold with it.
func both(t *testing.T, d *echoDriver, rule func(t *testing.T, conn *grpc.ClientConn)) {
	t.Helper()
	bothWith(t, d, proxy.Options{}, rule)
}

// bothWith is both with options of the proxy.
func bothWith(t *testing.T, d *echoDriver, o proxy.Options, rule func(t *testing.T, conn *grpc.ClientConn)) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { rule(t, connect(t, d.path)) })
	t.Run("proxied", func(t *testing.T) { rule(t, startEdge(t, t.Context(), d, o).ClientConn) })
}

// raw are the call options of a caller of the echo service.
var raw = grpc.ForceCodecV2(bytesCodec{})

// callUnary makes a unary call of the echo service.
func callUnary(ctx context.Context, conn *grpc.ClientConn, in []byte, o ...grpc.CallOption) (out []byte, err error) {
	err = conn.Invoke(ctx, echoUnary, in, &out, append(o, raw)...)
	return out, err
}

// callStream sends messages to a method, half-closes, and returns all answers.
func callStream(ctx context.Context, conn *grpc.ClientConn, method string, messages [][]byte, o ...grpc.CallOption) (answers [][]byte, stream grpc.ClientStream, err error) {
	stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, append(o, raw)...)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range messages {
		if err := stream.SendMsg(m); err != nil && !errors.Is(err, io.EOF) {
			return nil, stream, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, stream, err
	}
	for {
		var out []byte
		if err := stream.RecvMsg(&out); errors.Is(err, io.EOF) {
			return answers, stream, nil
		} else if err != nil {
			return answers, stream, err
		}
		answers = append(answers, out)
	}
}

// values are a key's values in md, as one comparable string.
func values(md metadata.MD, key string) string { return fmt.Sprintf("%q", md.Get(key)) }

// within fails the test if ch is not closed in time.
func within(t *testing.T, limit time.Duration, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(limit):
		t.Fatalf("%s: not within %s", what, limit)
	}
}
