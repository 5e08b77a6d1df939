package proxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// notProto is no valid protobuf message.
var notProto = []byte{0xff, 0xff, 0xff, 0x00, 0x07}

func TestMessageBytesOfEveryKindOfCallPassUnchanged(t *testing.T) {
	both(t, startDriver(t), func(t *testing.T, conn *grpc.ClientConn) {
		for _, in := range [][]byte{notProto, {}, []byte("hello")} {
			out, err := callUnary(t.Context(), conn, in)
			if err != nil || !bytes.Equal(out, in) {
				t.Errorf("unary %q: got %q, %v", in, out, err)
			}
		}
		messages := [][]byte{[]byte("a"), {}, notProto}
		all := bytes.Join(messages, nil)
		for method, want := range map[string][][]byte{echoUpload: {all}, echoChat: messages} {
			if got, _, err := callStream(t.Context(), conn, method, messages); err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%s: got %q, %v, want %q", method, got, err, want)
			}
		}
		got, _, err := callStream(t.Context(), conn, echoThrice, [][]byte{notProto})
		if want := [][]byte{notProto, notProto, notProto}; err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: got %q, %v, want %q", echoThrice, got, err, want)
		}
		if got, _, err := callStream(t.Context(), conn, echoUpload, nil); err != nil || len(got) != 1 || len(got[0]) != 0 {
			t.Errorf("an upload of no message: got %q, %v, want one empty message", got, err)
		}
	})
}

func TestOtherMethodsOfTheInterceptedServicePass(t *testing.T) {
	both(t, startDriver(t), func(t *testing.T, conn *grpc.ClientConn) {
		_, err := spec.NewControllerClient(conn).CreateVolume(t.Context(), &spec.CreateVolumeRequest{})
		if want := "method CreateVolume not implemented"; status.Code(err) != codes.Unimplemented || status.Convert(err).Message() != want {
			t.Errorf("CreateVolume: got %v, want the driver's UNIMPLEMENTED %q", err, want)
		}
		err = conn.Invoke(t.Context(), "/csi.v1.Controller/FromTheFuture", &spec.ProbeRequest{}, &spec.ProbeResponse{})
		if want := "unknown method FromTheFuture for service csi.v1.Controller"; status.Code(err) != codes.Unimplemented || status.Convert(err).Message() != want {
			t.Errorf("an unknown method: got %v, want the driver's UNIMPLEMENTED %q", err, want)
		}
		info, err := spec.NewIdentityClient(conn).GetPluginInfo(t.Context(), &spec.GetPluginInfoRequest{})
		if err != nil || info.Name != "echo.test" {
			t.Errorf("GetPluginInfo: %v, %v", info, err)
		}
	})
}

// sentMetadata is what a caller may send.
var sentMetadata = metadata.MD{
	"repeated":    {"one", "two", "one"},
	"empty":       {""},
	"trace-bin":   {"\x00\xff\x01", "plain", "\n"},
	"comma":       {"a,b", "c"},
	"x-user-role": {"admin"},
}

func TestMetadataReachesTheDriverUnchanged(t *testing.T) {
	d := startDriver(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		ctx := metadata.NewOutgoingContext(t.Context(), sentMetadata)
		if _, err := callUnary(ctx, conn, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := spec.NewControllerClient(conn).ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{echoUnary, spec.Controller_ControllerPublishVolume_FullMethodName} {
			calls := d.calls(method)
			got := calls[len(calls)-1].Header
			for key := range sentMetadata {
				if values(got, key) != values(sentMetadata, key) {
					t.Errorf("%s: the driver got %s: %s, want %s", method, key, values(got, key), values(sentMetadata, key))
				}
			}
			for key := range got {
				if _, sent := sentMetadata[key]; !sent && !slices.Contains([]string{":authority", "content-type", "user-agent", "grpc-accept-encoding"}, key) {
					t.Errorf("%s: the driver got %s: %s, which the caller did not send", method, key, values(got, key))
				}
			}
			if got := values(got, ":authority"); got != `["localhost"]` {
				t.Errorf("%s: :authority is %s", method, got)
			}
			if got := values(got, "content-type"); got != `["application/grpc"]` {
				t.Errorf("%s: content-type is %s", method, got)
			}
			if n := len(got.Get("grpc-accept-encoding")); n > 1 {
				t.Errorf("%s: grpc-accept-encoding was sent %d times", method, n)
			}
		}
	})
}

func TestContentSubtypeReachesTheDriver(t *testing.T) {
	d := startDriver(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		if _, err := callUnary(t.Context(), conn, notProto, grpc.CallContentSubtype("custom")); err != nil {
			t.Fatal(err)
		}
		calls := d.calls(echoUnary)
		if got := values(calls[len(calls)-1].Header, "content-type"); got != `["application/grpc+custom"]` {
			t.Errorf("the driver saw content-type %s", got)
		}
	})
}

func TestHeadersAndTrailersComeBackUnchanged(t *testing.T) {
	header := metadata.MD{"h": {"1", "2"}, "h-bin": {"\x00\x01", "\xff"}}
	trailer := metadata.MD{"t": {"3", "3"}, "t-bin": {"\xfe"}}
	d := newDriver(t)
	d.onStream = func(method string, stream grpc.ServerStream) error {
		if method == echoChat {
			if err := stream.SetHeader(header); err != nil {
				return err
			}
			if err := stream.SendMsg([]byte("x")); err != nil {
				return err
			}
		}
		stream.SetTrailer(trailer)
		if method == echoThrice {
			return status.Error(codes.NotFound, "trailers only")
		}
		return nil
	}
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		for _, method := range []string{echoChat, echoUpload, echoThrice} {
			_, stream, err := callStream(t.Context(), conn, method, nil)
			if (status.Code(err) == codes.NotFound) != (method == echoThrice) {
				t.Errorf("%s: %v", method, err)
			}
			got, _ := stream.Header()
			if method == echoChat && (values(got, "h") != values(header, "h") || values(got, "h-bin") != values(header, "h-bin")) {
				t.Errorf("%s: header %v, want %v", method, got, header)
			}
			if method != echoChat && len(got) != 0 {
				t.Errorf("%s: header %v, want none: the driver answered with trailers only", method, got)
			}
			if got := stream.Trailer(); values(got, "t") != values(trailer, "t") || values(got, "t-bin") != values(trailer, "t-bin") {
				t.Errorf("%s: trailer %v, want %v", method, got, trailer)
			}
		}
	})
}

func TestHeadersArriveBeforeTheFirstMessage(t *testing.T) {
	d := newDriver(t)
	d.onStream = func(_ string, stream grpc.ServerStream) error {
		if err := stream.SendHeader(metadata.Pairs("early", "yes")); err != nil {
			return err
		}
		return stream.RecvMsg(new([]byte)) // waits for the caller
	}
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, echoChat, raw)
		if err != nil {
			t.Fatal(err)
		}
		header, err := stream.Header()
		if err != nil || values(header, "early") != `["yes"]` {
			t.Fatalf("header %v, %v", header, err)
		}
	})
}

func TestChatGoesBothWaysBeforeTheHalfClose(t *testing.T) {
	both(t, startDriver(t), func(t *testing.T, conn *grpc.ClientConn) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, echoChat, raw)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			in, out := fmt.Appendf(nil, "message %d", i), []byte(nil)
			if err := stream.SendMsg(in); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(&out); err != nil || !bytes.Equal(in, out) {
				t.Fatalf("sent %q, got %q, %v", in, out, err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new([]byte)); !errors.Is(err, io.EOF) {
			t.Fatalf("after the half-close: %v, want EOF", err)
		}
	})
}

func TestDriverMayEndACallWhileTheCallerStillSends(t *testing.T) {
	d := newDriver(t)
	d.onStream = func(string, grpc.ServerStream) error { return status.Error(codes.OutOfRange, "enough") }
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		for _, goesOn := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, echoChat, raw)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil && goesOn {
				err = stream.SendMsg(make([]byte, 1000))
			}
			if err := stream.RecvMsg(new([]byte)); status.Code(err) != codes.OutOfRange || status.Convert(err).Message() != "enough" {
				t.Errorf("a caller that sends on, %t: got %v, want the driver's status", goesOn, err)
			}
		}
	})
}

// detailedStatus has what a status can have.
func detailedStatus(t *testing.T) *status.Status {
	t.Helper()
	st, err := status.New(codes.ResourceExhausted, "quota: 100 % of ünïcode\nspent").WithDetails(
		&errdetails.ErrorInfo{Reason: "QUOTA", Domain: "test", Metadata: map[string]string{"k": "v"}},
		&errdetails.RetryInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStatusWithDetailsComesBackUnchanged(t *testing.T) {
	want := detailedStatus(t)
	d := newDriver(t)
	d.onUnary = func(context.Context, []byte) ([]byte, error) { return nil, want.Err() }
	d.onStream = func(_ string, stream grpc.ServerStream) error {
		if err := stream.SendMsg([]byte("first")); err != nil {
			return err
		}
		return want.Err()
	}
	d.onPublish = func(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
		return nil, want.Err()
	}
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		_, unary := callUnary(t.Context(), conn, nil)
		answers, _, chat := callStream(t.Context(), conn, echoChat, nil)
		_, publish := spec.NewControllerClient(conn).ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{})
		for what, err := range map[string]error{"unary": unary, "stream": chat, "publish": publish} {
			if !proto.Equal(status.Convert(err).Proto(), want.Proto()) {
				t.Errorf("%s: got %v, want %v", what, status.Convert(err).Proto(), want.Proto())
			}
		}
		if len(answers) != 1 {
			t.Errorf("got %d messages before the status, want 1", len(answers))
		}
	})
}

func TestDeadlineReachesTheDriver(t *testing.T) {
	left := make(chan time.Duration, 1)
	note := func(ctx context.Context) {
		deadline, ok := ctx.Deadline()
		if !ok {
			left <- -1
			return
		}
		left <- time.Until(deadline)
	}
	d := newDriver(t)
	d.onUnary = func(ctx context.Context, in []byte) ([]byte, error) { note(ctx); return in, nil }
	d.onPublish = func(ctx context.Context, _ *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
		note(ctx)
		return &spec.ControllerPublishVolumeResponse{}, nil
	}
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		calls := map[string]func(context.Context) error{
			"unary": func(ctx context.Context) error { _, err := callUnary(ctx, conn, nil); return err },
			"publish": func(ctx context.Context) error {
				_, err := spec.NewControllerClient(conn).ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{})
				return err
			},
		}
		for what, call := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := call(ctx); err != nil {
				t.Fatal(err)
			}
			if got := <-left; got < 59*time.Minute || got > time.Hour {
				t.Errorf("%s: the driver has %s left of the caller's hour", what, got)
			}
			if err := call(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := <-left; got != -1 {
				t.Errorf("%s: the driver saw a deadline in %s, the caller set none", what, got)
			}
		}
	})
}

func TestDeadlineAndCancellationOfTheCallerEndTheDriversCall(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	wait := func(ctx context.Context) error {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	}
	d := newDriver(t)
	d.onUnary = func(ctx context.Context, _ []byte) ([]byte, error) { return nil, wait(ctx) }
	d.onStream = func(_ string, stream grpc.ServerStream) error { return wait(stream.Context()) }
	d.onUnpublish = func(ctx context.Context, _ *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
		return nil, wait(ctx)
	}
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		calls := map[string]func(context.Context) error{
			"unary":  func(ctx context.Context) error { _, err := callUnary(ctx, conn, nil); return err },
			"stream": func(ctx context.Context) error { _, _, err := callStream(ctx, conn, echoChat, nil); return err },
			"unpublish": func(ctx context.Context) error {
				_, err := spec.NewControllerClient(conn).ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{})
				return err
			},
		}
		for what, call := range calls {
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() { result <- call(ctx) }()
			within(t, 5*time.Second, started, what+" starts")
			cancel()
			within(t, time.Second, ended, what+" ends at the driver after cancellation")
			if err := <-result; status.Code(err) != codes.Canceled {
				t.Errorf("%s: got %v, want Canceled", what, err)
			}

			ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			go func() { result <- call(ctx) }()
			within(t, 5*time.Second, started, what+" starts")
			within(t, 2*time.Second, ended, what+" ends at the driver after the deadline")
			if err := <-result; status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: got %v, want DeadlineExceeded", what, err)
			}
			cancel()
		}
	})
}

func TestMessagesOfManyMegabytesPass(t *testing.T) {
	big := make([]byte, 20<<20)
	if _, err := rand.Read(big); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789abcdef", 5<<20/16)
	d := newDriver(t)
	d.onPublish = func(_ context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
		return &spec.ControllerPublishVolumeResponse{PublishContext: req.VolumeContext}, nil
	}
	d.start(t)
	bothWith(t, d, proxy.Options{MaxMessageSize: 32 << 20}, func(t *testing.T, conn *grpc.ClientConn) {
		if out, err := callUnary(t.Context(), conn, big); err != nil || !bytes.Equal(out, big) {
			t.Errorf("unary: %d bytes, %v", len(out), err)
		}
		if out, err := callUnary(t.Context(), conn, []byte(text), grpc.UseCompressor(gzip.Name)); err != nil || string(out) != text {
			t.Errorf("compressed unary: %d bytes, %v", len(out), err)
		}
		if out, _, err := callStream(t.Context(), conn, echoChat, [][]byte{big}); err != nil || len(out) != 1 || !bytes.Equal(out[0], big) {
			t.Errorf("stream: %d messages, %v", len(out), err)
		}
		resp, err := spec.NewControllerClient(conn).ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{VolumeContext: map[string]string{"big": text}})
		if err != nil || resp.PublishContext["big"] != text {
			t.Errorf("publish: %d bytes, %v", len(resp.GetPublishContext()["big"]), err)
		}
	})
}

func TestCompressionOfTheCallerReachesTheDriver(t *testing.T) {
	d := startDriver(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		in := bytes.Repeat([]byte("compress me "), 1000)
		for _, compressor := range []string{"gzip", ""} {
			var o []grpc.CallOption
			if compressor != "" {
				o = append(o, grpc.UseCompressor(compressor))
			}
			if out, err := callUnary(t.Context(), conn, in, o...); err != nil || !bytes.Equal(out, in) {
				t.Errorf("unary: %d bytes, %v", len(out), err)
			}
			if _, err := spec.NewControllerClient(conn).ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: "v"}, o...); err != nil {
				t.Errorf("unpublish: %v", err)
			}
			for _, method := range []string{echoUnary, spec.Controller_ControllerUnpublishVolume_FullMethodName} {
				calls := d.calls(method)
				if got := calls[len(calls)-1].Compression; got != compressor {
					t.Errorf("%s: the driver saw compression %q, the caller used %q", method, got, compressor)
				}
			}
		}
	})
}

// A message that cannot be decompressed ends the call on both sides.
func TestUnreadableMessageOfTheCallerEndsTheDriversCall(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	d := newDriver(t)
	d.onStream = func(_ string, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new([]byte)); err != nil {
			return err
		}
		close(started)
		<-stream.Context().Done()
		close(ended)
		return stream.Context().Err()
	}
	d.start(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	conn := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.path)
	}}
	conn.Protocols.SetUnencryptedHTTP2(true)
	defer conn.CloseIdleConnections()
	body, write := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+echoChat, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Encoding": {"gzip"}}
	go func() {
		_, _ = write.Write([]byte{0, 0, 0, 0, 1, 'a'})
		<-started
		_, _ = write.Write([]byte{1, 0, 0, 0, 4, 'j', 'u', 'n', 'k'}) // flagged as compressed
	}()
	resp, err := conn.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if code := resp.Header.Get("Grpc-Status"); code != fmt.Sprint(int(codes.Internal)) {
		t.Errorf("grpc-status %q, want INTERNAL as grpc-go says of an unreadable message", code)
	}
	within(t, 2*time.Second, ended, "the driver's call ends")
}

func TestDriverKilledMidCallIsAnErrorWithinASecondAndTheNextCallWorks(t *testing.T) {
	started := make(chan struct{}, 1)
	var hang atomic.Bool
	hang.Store(true)
	d := newDriver(t)
	d.onUnary = func(ctx context.Context, in []byte) ([]byte, error) {
		if hang.Load() {
			started <- struct{}{}
			<-ctx.Done()
		}
		return in, nil
	}
	d.onPublish = func(ctx context.Context, _ *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.start(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	for what, call := range map[string]func() error{
		"unary": func() error { _, err := callUnary(t.Context(), e.ClientConn, nil); return err },
		"publish": func() error {
			_, err := spec.NewControllerClient(e).ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{})
			return err
		},
	} {
		hang.Store(true)
		result := make(chan error, 1)
		go func() { result <- call() }()
		within(t, 5*time.Second, started, what+" starts")
		killed := time.Now()
		d.kill()
		if err := <-result; status.Code(err) != codes.Unavailable {
			t.Errorf("%s: got %v, want Unavailable", what, err)
		}
		if took := time.Since(killed); took > time.Second {
			t.Errorf("%s: the error took %s", what, took)
		}
		hang.Store(false)
		d.start(t)
		if _, err := callUnary(t.Context(), e.ClientConn, nil); err != nil {
			t.Errorf("the first call after the restart: %v", err)
		}
	}
}

func TestCallsWhileTheDriverIsAwayFailAtOnceAndWorkSoonAfterItIsBack(t *testing.T) {
	d := startDriver(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	d.kill()
	for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		start := time.Now()
		if _, err := callUnary(t.Context(), e.ClientConn, nil); status.Code(err) != codes.Unavailable || time.Since(start) > time.Second {
			t.Fatalf("got %v after %s, want Unavailable at once", err, time.Since(start))
		}
	}
	d.start(t)
	back := time.Now()
	for {
		_, err := callUnary(t.Context(), e.ClientConn, nil)
		if err == nil {
			return
		}
		if time.Since(back) > 2*time.Second {
			t.Fatalf("2 s after the driver is back: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestIdleTimeoutOfTheConnectionBreaksNothing(t *testing.T) {
	d := startDriver(t)
	conn, err := grpc.NewClient("unix://"+d.path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	e := startEdge(t, t.Context(), d, proxy.Options{Driver: conn})
	for range 3 {
		if _, err := callUnary(t.Context(), e.ClientConn, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := spec.NewControllerClient(e).ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestNoGoroutineIsLeftBehindByCalls(t *testing.T) {
	d := startDriver(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	calls := func() {
		for range 50 {
			if _, err := callUnary(t.Context(), e.ClientConn, notProto); err != nil {
				t.Fatal(err)
			}
			if _, _, err := callStream(t.Context(), e.ClientConn, echoUpload, [][]byte{notProto}); err != nil {
				t.Fatal(err)
			}
			if _, err := spec.NewControllerClient(e).ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{}); err != nil {
				t.Fatal(err)
			}
			// A stream that the caller abandons.
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := e.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, echoChat, raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg(notProto); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(new([]byte)); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}
	calls() // connections and their goroutines stay
	time.Sleep(200 * time.Millisecond)
	before := runtime.NumGoroutine()
	calls()
	for wait := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(wait) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before 200 calls, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}
