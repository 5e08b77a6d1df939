package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
)

// Facts are what caller and driver saw of one call, by what each is.
type Facts map[string]string

// patience is how long an end of a call waits for the other.
const patience = time.Minute

// userAgent is what a caller says of itself.
const userAgent = "a-sceptic/1.0"

// Dial returns a caller's connection to a socket.
func Dial(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(userAgent),
		grpc.WithStatsHandler(inHeaders{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
}

// caller makes one call and notes what it sees.
type caller struct {
	conn    *grpc.ClientConn
	method  Method
	id      string
	options []grpc.CallOption
	facts   Facts
}

func (c *caller) note(what, format string, args ...any) {
	c.facts["caller: "+what] = fmt.Sprintf(format, args...)
}

// call is a caller's stream; a unary call is one of a single message.
type call struct {
	grpc.ClientStream
	*caller
	ctx  context.Context
	next int
}

func (c *caller) open(ctx context.Context) (*call, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, callKey, c.id)
	ctx = context.WithValue(ctx, inHeaderKey{}, new(inHeader))
	options := append([]grpc.CallOption{grpc.ForceCodecV2(bytesCodec{})}, c.options...)
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, c.method.Path, options...)
	if err != nil {
		return nil, err
	}
	return &call{ClientStream: stream, caller: c, ctx: ctx}, nil
}

// send sends one message. That the driver has ended the call is told by receive.
func (c *call) send(b []byte) error {
	if err := c.SendMsg(b); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// receive reads one answer and notes it, or how the call ended.
func (c *call) receive() (more bool) {
	var out []byte
	if err := c.RecvMsg(&out); err != nil {
		c.end(err)
		return false
	}
	c.note(fmt.Sprintf("message %d", c.next), "%s", digest(out))
	c.next++
	return true
}

// receiveAll reads to the end.
func (c *call) receiveAll() {
	for c.receive() {
	}
}

// end notes how the call ended.
func (c *call) end(err error) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	st := status.Convert(err)
	c.note("messages", "%d", c.next)
	c.note("code", "%s", st.Code())
	c.note("status message", "%q", st.Message())
	for i, detail := range st.Proto().GetDetails() {
		c.note(fmt.Sprintf("status detail %d", i), "%s", prototext.MarshalOptions{}.Format(detail))
	}
	header, _ := c.Header() // its error is the call's
	for key, values := range header {
		c.note("header "+key, "%q", values)
	}
	for key, values := range c.Trailer() {
		c.note("trailer "+key, "%q", values)
	}
	c.note("compression of the answer", "%q", inHeaderOf(c.ctx).Compression)
}

// wait waits for the end of a call that nobody answers, and notes its code. What
// else there is depends on which end noticed first.
func (c *call) wait() {
	c.note("code", "%s", status.Code(c.RecvMsg(new([]byte))))
}

// all makes a whole call: every message, the half-close, every answer.
func (c *caller) all(ctx context.Context, messages ...[]byte) error {
	call, err := c.open(ctx)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := call.send(m); err != nil {
			return err
		}
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	call.receiveAll()
	return nil
}
