package wire

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Property is something that has to be the same directly and through a proxy.
type Property struct {
	Name string
	// fits says for which methods it means anything; nil: for all.
	fits func(Method) bool
	// driver is what the driver does with the call, and call how it is made.
	driver func(Method, *visit) error
	call   func(context.Context, *caller) error
}

// large is over gRPC's default limit of 4 MiB.
const large = 5 << 20

const largeMessage = "> 4 MiB"

// Properties are all that are compared.
var Properties = []Property{
	{Name: "bytes", driver: answer(100), call: plain(100)},
	{Name: "field order", driver: answerWith(func(m Method, _ int) []byte { return m.shuffled() }),
		call: func(ctx context.Context, c *caller) error { return c.all(ctx, c.method.shuffled()) }},
	{Name: "no message", fits: clientStreams, driver: answer(0), call: func(ctx context.Context, c *caller) error { return c.all(ctx) }},
	{Name: largeMessage, driver: answer(large), call: plain(large)},
	{Name: "gzip", driver: answer(4096), call: compressed},
	{Name: "metadata", driver: answer(10), call: withMetadata},
	{Name: "content type", driver: answer(10), call: subtyped},
	{Name: "header, trailer", driver: annotated, call: plain(10)},
	{Name: "error at once", driver: func(Method, *visit) error { return detailed }, call: plain(10)},
	{Name: "error, details", driver: failing, call: plain(10)},
	{Name: "deadline", driver: untilDeadline, call: withDeadline},
	{Name: "no deadline", driver: untilDeadline, call: plain(10)},
	{Name: "expiry", driver: untilGone, call: expiring},
	{Name: "cancellation", driver: untilGone, call: canceling},
	{Name: "chat", fits: bothStream, driver: pingPong, call: chatting},
	{Name: "early end", fits: clientStreams, driver: earlyEnd, call: talkative},
	{Name: "early headers", driver: earlyHeader, call: headerFirst},
}

func clientStreams(m Method) bool { return m.ClientStreams }
func bothStream(m Method) bool    { return m.ClientStreams && m.ServerStreams }

// answerWith reads everything and answers with such messages.
func answerWith(message func(Method, int) []byte) func(Method, *visit) error {
	return func(m Method, v *visit) error {
		if err := v.readAll(); err != nil {
			return err
		}
		for i := range messages(m.ServerStreams) {
			if err := v.SendMsg(message(m, i)); err != nil {
				return err
			}
		}
		return nil
	}
}

func answer(size int) func(Method, *visit) error {
	return answerWith(func(m Method, i int) []byte { return m.message(100+i, size) })
}

func plain(size int) func(context.Context, *caller) error {
	return func(ctx context.Context, c *caller) error {
		var all [][]byte
		for i := range messages(c.method.ClientStreams) {
			all = append(all, c.method.message(i, size))
		}
		return c.all(ctx, all...)
	}
}

func compressed(ctx context.Context, c *caller) error {
	c.options = append(c.options, grpc.UseCompressor(gzip.Name))
	return plain(4096)(ctx, c)
}

func withMetadata(ctx context.Context, c *caller) error {
	return plain(10)(metadata.NewOutgoingContext(ctx, metadata.MD{
		"repeated":       {"one", "two", "one"},
		"empty":          {""},
		"comma":          {"a,b", "c"},
		"trace-bin":      {"\x00\xff\x01", "plain", "\n", ""},
		"x-case":         {"Value With Case"},
		"traceparent":    {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"authorization":  {"Bearer token"},
		"x-forwarded-by": {"nobody"},
	}), c)
}

func subtyped(ctx context.Context, c *caller) error {
	c.options = append(c.options, grpc.ForceCodecV2(bytesCodec{subtype: "custom"}))
	return plain(10)(ctx, c)
}

func annotated(m Method, v *visit) error {
	if err := v.SetHeader(metadata.MD{"h": {"1", "2", "1"}, "h-bin": {"\x00\x01", "\xff", ""}, "h-empty": {""}}); err != nil {
		return err
	}
	v.SetTrailer(metadata.MD{"t": {"3", "3"}, "t-bin": {"\xfe", "x"}, "t-empty": {""}})
	return answer(10)(m, v)
}

// detailed has what a status can have.
var detailed = func() error {
	st, err := status.New(codes.ResourceExhausted, "quota: 100 % of ünïcode\r\n\tspent \u2028 \"quoted\"").WithDetails(
		&errdetails.ErrorInfo{Reason: "QUOTA", Domain: "wire", Metadata: map[string]string{"k": "v"}},
		&errdetails.RetryInfo{}, &errdetails.DebugInfo{Detail: "a\x00b"})
	if err != nil {
		panic(err) // it is written out above
	}
	return st.Err()
}()

func failing(m Method, v *visit) error {
	v.SetTrailer(metadata.MD{"t": {"with the error"}, "t-bin": {"\x00"}})
	if m.ServerStreams {
		if err := answer(10)(m, v); err != nil {
			return err
		}
		return detailed
	}
	if err := v.readAll(); err != nil {
		return err
	}
	return detailed
}

// callersDeadline is long: a proxy may take some of it, but not a second.
const callersDeadline = time.Hour

func withDeadline(ctx context.Context, c *caller) error {
	ctx, cancel := context.WithTimeout(ctx, callersDeadline)
	defer cancel()
	return plain(10)(ctx, c)
}

func untilDeadline(m Method, v *visit) error {
	deadline, ok := v.Context().Deadline()
	switch left := time.Until(deadline); {
	case !ok:
		v.note("deadline", "none")
	case left > callersDeadline || left < callersDeadline-time.Second:
		v.note("deadline", "in %s, the caller's is in %s", left, callersDeadline)
	default:
		v.note("deadline", "the caller's, to the second")
	}
	return answer(10)(m, v)
}

// untilGone notes that the call ended when the caller's did.
func untilGone(_ Method, v *visit) error {
	if err := v.read(0); err != nil {
		return err
	}
	v.ended <- struct{}{} // it has begun
	const limit = expiry + 8*time.Second
	select {
	case <-v.Context().Done():
		v.note("context", "ended")
	case <-time.After(limit):
		v.note("context", "not ended after %s", limit)
		return nil
	}
	return v.Context().Err()
}

// canceling cancels once the driver has the call.
func canceling(ctx context.Context, c *caller) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, err := c.begin(ctx)
	if err != nil {
		return err
	}
	cancel()
	call.wait()
	return nil
}

// expiry is the deadline of a call that is to expire at the driver: long enough
// to get there.
const expiry = 2 * time.Second

func expiring(ctx context.Context, c *caller) error {
	ctx, cancel := context.WithTimeout(ctx, expiry)
	defer cancel()
	call, err := c.begin(ctx)
	if err != nil {
		return err
	}
	call.wait()
	return nil
}

// begin makes a call of one message that the driver then has.
func (c *caller) begin(ctx context.Context) (*call, error) {
	call, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := call.send(c.method.message(0, 10)); err != nil {
		return nil, err
	}
	if err := call.CloseSend(); err != nil {
		return nil, err
	}
	return call, c.arrived(ctx)
}

func pingPong(m Method, v *visit) error {
	for i := range 10 {
		if err := v.read(i); err != nil {
			return err
		}
		if err := v.SendMsg(m.message(100+i, 20)); err != nil {
			return err
		}
	}
	return v.readAll()
}

// chatting sends each message only after the answer to the one before.
func chatting(ctx context.Context, c *caller) error {
	call, err := c.open(ctx)
	if err != nil {
		return err
	}
	for i := range 10 {
		if err := call.send(c.method.message(i, 20)); err != nil {
			return err
		}
		if !call.receive() {
			return nil
		}
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	call.receiveAll()
	return nil
}

func earlyEnd(_ Method, v *visit) error {
	if err := v.read(0); err != nil {
		return err
	}
	v.SetTrailer(metadata.Pairs("enough", "yes"))
	return detailed
}

// talkative sends until it is told that nobody listens.
func talkative(ctx context.Context, c *caller) error {
	call, err := c.open(ctx)
	if err != nil {
		return err
	}
	for i := 0; call.SendMsg(c.method.message(i%10, 1000)) == nil; i++ {
	}
	call.receiveAll()
	return nil
}

// earlyHeader sends its header before it has read anything.
func earlyHeader(m Method, v *visit) error {
	if err := v.SendHeader(metadata.Pairs("early", "yes")); err != nil {
		return err
	}
	return answer(10)(m, v)
}

// headerFirst sends nothing before it has the header: possible where the driver
// streams. grpc-go reads a unary request first.
func headerFirst(ctx context.Context, c *caller) error {
	call, err := c.open(ctx)
	if err != nil {
		return err
	}
	if c.method.ClientStreams {
		header, err := call.Header()
		if err != nil {
			return fmt.Errorf("waiting for the header: %w", err)
		}
		c.note("header before the first message", "%q", header.Get("early"))
	}
	for i := range messages(c.method.ClientStreams) {
		if err := call.send(c.method.message(i, 10)); err != nil {
			return err
		}
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	call.receiveAll()
	return nil
}
