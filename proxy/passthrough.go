package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // what a caller compresses is compressed to the driver, too
	protoencoding "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// rawStream is the shape under which every call is forwarded: a unary call is
// a stream of one message on the wire.
var rawStream = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// passThrough forwards a call of any method that is not intercepted.
func (s *Server) passThrough(_ any, caller grpc.ServerStream) error {
	start := time.Now()
	method, ok := grpc.MethodFromServerStream(caller)
	if !ok {
		return status.Error(codes.Internal, "csi-fencepost: the call names no method")
	}
	// The caller's context ends with the caller's call, however it ends, and the
	// driver's call with it.
	ctx := forwardedContext(caller.Context(), callerMetadata(caller.Context()))

	p := passage{caller: caller}
	var err error
	if p.driver, err = s.driver.NewStream(ctx, rawStream, method, s.forwardOptions(caller.Context())...); err == nil {
		err = p.run()
	}
	err = expired(caller.Context(), err)
	if refused(err, s.bound) {
		err = overBound(err, s.bound)
		s.logger.Error(err, "A message was too large to pass", "method", method)
	}
	// A stream has no one duration: what counts is how long it was wanted.
	if p.requests.Load() <= 1 && p.answers <= 1 {
		s.record(method, err, time.Since(start))
	}
	s.logger.V(5).Info("Passed a call through", "method", method, "code", status.Code(err), "duration", time.Since(start))
	return err
}

// expired is err, or DEADLINE_EXCEEDED where a call was cancelled because its
// deadline has passed. At the deadline grpc-go's server cancels the call's context
// (http2_server.go, operateHeaders), now and then before the context's own timer
// ends it; grpc-go's client tells the two apart in the same way. What is seen
// directly is DEADLINE_EXCEEDED.
func expired(ctx context.Context, err error) error {
	deadline, limited := ctx.Deadline()
	if status.Code(err) != codes.Canceled || !limited || time.Now().Before(deadline) {
		return err
	}
	return status.FromContextError(context.DeadlineExceeded).Err()
}

// passage is one call on its way through: a stream on either side.
type passage struct {
	caller   grpc.ServerStream
	driver   grpc.ClientStream
	requests atomic.Int64
	answers  int64
}

// run copies both directions until the driver has ended the call, and returns
// the driver's status, or why the caller cannot be read.
func (p *passage) run() error {
	ended := make(chan error, 1)
	// It ends with the call: the caller's stream is closed once the handler returns.
	go func() { ended <- p.copyRequests() }()
	err := p.copyAnswers()
	var unread error
	if p.caller.Context().Err() != nil {
		// Where grpc-go cannot take a request (it is too large), it tells the caller and
		// ends the context before it says so here; the driver's call ends with that.
		unread = <-ended
	} else {
		select {
		case unread = <-ended:
		default:
		}
	}
	return cmp.Or(unread, err)
}

// copyRequests sends on what the caller sends, up to its half-close.
func (p *passage) copyRequests() error {
	for {
		var f frame
		if err := p.caller.RecvMsg(&f); errors.Is(err, io.EOF) {
			return p.driver.CloseSend()
		} else if err != nil {
			return err
		}
		p.requests.Add(1)
		if err := p.driver.SendMsg(&f); errors.Is(err, io.EOF) {
			return nil // the driver has ended the call; copyAnswers reads how
		} else if err != nil {
			return err
		}
	}
}

// copyAnswers sends back headers, messages and trailers, and returns the
// driver's status.
func (p *passage) copyAnswers() error {
	// Headers go out when they come: a caller may wait for them before it sends.
	// There are none (nil) when the driver answered with trailers only, or not
	// at all; RecvMsg tells which.
	if header, err := p.driver.Header(); err == nil && header != nil {
		if err := p.caller.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		var f frame
		if err := p.driver.RecvMsg(&f); err != nil {
			p.caller.SetTrailer(p.driver.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		p.answers++
		if err := p.caller.SendMsg(&f); err != nil {
			return err
		}
	}
}

// callerMetadata is the metadata of an incoming call that goes on to the driver.
func callerMetadata(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	// Ours to say, not the caller's: grpc-go adds its own and would send both.
	delete(md, "grpc-accept-encoding")
	return md
}

// forwardedContext makes ctx that of a call to the driver with metadata md.
// Deadline and cancellation are ctx's own.
func forwardedContext(ctx context.Context, md metadata.MD) context.Context {
	return metadata.NewOutgoingContext(ctx, md)
}

// usualAuthority is what grpc-go writes to a unix socket by itself.
const usualAuthority = "localhost"

// forwardOptions are the call options under which the call of ctx goes on to
// the driver: authority, content type and compression as the caller sent them,
// and the bound of the answers' size.
func (s *Server) forwardOptions(ctx context.Context) []grpc.CallOption {
	var codec rawCodec
	options := []grpc.CallOption{
		grpc.MaxCallRecvMsgSize(s.bound),
		grpc.MaxCallSendMsgSize(math.MaxInt32), // it was received, within the bound
	}
	if md, _ := metadata.FromIncomingContext(ctx); len(md[":authority"]) == 1 && md[":authority"][0] != usualAuthority {
		options = append(options, grpc.CallAuthority(md[":authority"][0]))
	}
	stream, _ := grpc.ServerTransportStreamFromContext(ctx).(interface {
		// grpc-go keeps both out of the metadata.
		ContentSubtype() string
		RecvCompress() string
	})
	if stream != nil {
		codec.subtype = stream.ContentSubtype()
		if compressor := stream.RecvCompress(); compressor != "" {
			options = append(options, grpc.UseCompressor(compressor))
		}
	}
	return append(options, grpc.ForceCodecV2(codec))
}

// frame is one message, as it stands on the wire.
type frame struct {
	data mem.BufferSlice
}

// rawCodec leaves a frame as it is; other messages are protobuf.
type rawCodec struct {
	subtype string // of the content type; empty is application/grpc
}

var _ encoding.CodecV2 = rawCodec{}

// Marshal hands over the frame's buffers: gRPC frees them, so a frame can be
// sent once.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.data, nil
	}
	return encoding.GetCodecV2(protoencoding.Name).Marshal(v)
}

// Unmarshal keeps a reference to data in the frame.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		data.Ref()
		f.data = data
		return nil
	}
	return encoding.GetCodecV2(protoencoding.Name).Unmarshal(data, v)
}

// Name is the subtype of the content type that gRPC sends.
func (c rawCodec) Name() string { return c.subtype }
