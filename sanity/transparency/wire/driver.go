package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
)

// callKey is the metadata key by which the driver knows what to do with a call.
const callKey = "x-wire-call"

// Driver answers every method of every service, as each call's script says. A
// call without one is a start-up call of the proxy (Probe, GetPluginInfo).
type Driver struct {
	server *grpc.Server

	mu      sync.Mutex
	scripts map[string]*script
}

// script is what the driver does with one call, and what it saw of it.
type script struct {
	act   func(*visit) error
	ended chan struct{} // a visit is over

	mu    sync.Mutex
	facts Facts
	calls int
}

// visit is one call at the driver.
type visit struct {
	grpc.ServerStream
	*script
}

// note records a fact that the driver sees.
func (s *script) note(what, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts["driver: "+what] = fmt.Sprintf(format, args...)
}

// read reads one message and notes it.
func (v *visit) read(i int) error {
	var in []byte
	if err := v.RecvMsg(&in); err != nil {
		return err
	}
	v.note(fmt.Sprintf("message %d", i), "%s", digest(in))
	return nil
}

// readAll reads up to the half-close.
func (v *visit) readAll() error {
	for i := 0; ; i++ {
		if err := v.read(i); errors.Is(err, io.EOF) {
			v.note("messages", "%d, half-closed", i)
			return nil
		} else if err != nil {
			return err
		}
	}
}

// StartDriver serves a Driver on a unix socket.
func StartDriver(path string) (*Driver, error) {
	socket, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	d := &Driver{scripts: map[string]*script{}}
	d.server = grpc.NewServer(
		grpc.ForceServerCodecV2(bytesCodec{}),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.StatsHandler(inHeaders{}),
		grpc.UnknownServiceHandler(d.serve),
	)
	go func() { _ = d.server.Serve(socket) }()
	return d, nil
}

// Stop ends the driver and the calls in flight.
func (d *Driver) Stop() { d.server.Stop() }

func (d *Driver) serve(_ any, stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	id := md.Get(callKey)
	if len(id) == 0 {
		return startUp(stream)
	}
	d.mu.Lock()
	s := d.scripts[id[0]]
	d.mu.Unlock()
	if s == nil {
		return fmt.Errorf("wire: call %q has no script", id[0])
	}
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	header := inHeaderOf(stream.Context())
	s.note("method", "%s", header.FullMethod)
	s.note("compression", "%q", header.Compression)
	for key, values := range header.Header {
		s.note("metadata "+key, "%q", values)
	}
	err := s.act(&visit{ServerStream: stream, script: s})
	s.ended <- struct{}{}
	return err
}

// startUp answers what a proxy asks before it serves.
func startUp(stream grpc.ServerStream) error {
	if err := stream.RecvMsg(new([]byte)); err != nil {
		return err
	}
	var answer []byte
	if method, _ := grpc.MethodFromServerStream(stream); method == spec.Identity_GetPluginInfo_FullMethodName {
		var err error
		if answer, err = proto.Marshal(&spec.GetPluginInfoResponse{Name: "wire.csi-fencepost.io", VendorVersion: "1"}); err != nil {
			return err
		}
	}
	return stream.SendMsg(answer)
}

// expect makes the driver follow a script in the calls with that id.
func (d *Driver) expect(id string, act func(*visit) error) *script {
	s := &script{act: act, facts: Facts{}, ended: make(chan struct{}, 100)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scripts[id] = s
	return s
}

// inHeaders keeps the header of each call, as it came over the wire, in the
// call's context: at a driver the request's, at a caller the answer's.
type inHeaders struct{}

type inHeaderKey struct{}

type inHeader struct {
	mu sync.Mutex
	stats.InHeader
}

func (inHeaders) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	if ctx.Value(inHeaderKey{}) != nil {
		return ctx // the caller's own: it wants to read it
	}
	return context.WithValue(ctx, inHeaderKey{}, new(inHeader))
}

func (inHeaders) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok {
		kept := ctx.Value(inHeaderKey{}).(*inHeader)
		kept.mu.Lock()
		defer kept.mu.Unlock()
		kept.InHeader = *in
	}
}

func (inHeaders) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (inHeaders) HandleConn(context.Context, stats.ConnStats)                       {}

func inHeaderOf(ctx context.Context) stats.InHeader {
	kept := ctx.Value(inHeaderKey{}).(*inHeader)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	return kept.InHeader
}
