package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

type (
	publishRequest    = spec.ControllerPublishVolumeRequest
	publishResponse   = spec.ControllerPublishVolumeResponse
	unpublishRequest  = spec.ControllerUnpublishVolumeRequest
	unpublishResponse = spec.ControllerUnpublishVolumeResponse
)

const (
	publishMethod   = spec.Controller_ControllerPublishVolume_FullMethodName
	unpublishMethod = spec.Controller_ControllerUnpublishVolume_FullMethodName
)

// guardFuncs is a Guard made of functions; a nil one refuses.
type guardFuncs struct {
	publish   func(context.Context, *publishRequest, proxy.Driver) (*publishResponse, error)
	unpublish func(context.Context, *unpublishRequest, proxy.Driver) (*unpublishResponse, error)

	mu    sync.Mutex
	calls []string // the methods judged
}

func (g *guardFuncs) note(method string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, method)
}

func (g *guardFuncs) ControllerPublishVolume(ctx context.Context, req *publishRequest, driver proxy.Driver) (*publishResponse, error) {
	g.note(publishMethod)
	if g.publish == nil {
		return nil, errRefused
	}
	return g.publish(ctx, req, driver)
}

func (g *guardFuncs) ControllerUnpublishVolume(ctx context.Context, req *unpublishRequest, driver proxy.Driver) (*unpublishResponse, error) {
	g.note(unpublishMethod)
	if g.unpublish == nil {
		return nil, errRefused
	}
	return g.unpublish(ctx, req, driver)
}

var errRefused = status.Error(codes.FailedPrecondition, "volume pv-1 is held by node a, which is not proven fenced")

func TestRefusalReachesTheCallerAndTheDriverIsNotCalled(t *testing.T) {
	d := startDriver(t)
	e := startEdge(t, t.Context(), d, proxy.Options{Guard: new(guardFuncs)})
	_, publish := spec.NewControllerClient(e).ControllerPublishVolume(t.Context(), &publishRequest{VolumeId: "v", NodeId: "n"})
	_, unpublish := spec.NewControllerClient(e).ControllerUnpublishVolume(t.Context(), &unpublishRequest{VolumeId: "v", NodeId: "n"})
	for what, err := range map[string]error{publishMethod: publish, unpublishMethod: unpublish} {
		if !proto.Equal(status.Convert(err).Proto(), status.Convert(errRefused).Proto()) {
			t.Errorf("%s: got %v, want %v", what, err, errRefused)
		}
		if n := len(d.calls(what)); n != 0 {
			t.Errorf("%s: the driver was called %d times", what, n)
		}
	}
}

func TestOnlyTheTwoCallsAreJudged(t *testing.T) {
	g := new(guardFuncs)
	d := startDriver(t)
	e := startEdge(t, t.Context(), d, proxy.Options{Guard: g})
	for _, service := range []grpc.ServiceDesc{spec.Identity_ServiceDesc, spec.Controller_ServiceDesc, spec.GroupController_ServiceDesc, spec.SnapshotMetadata_ServiceDesc, spec.Node_ServiceDesc} {
		var methods []string
		for _, m := range service.Methods {
			methods = append(methods, m.MethodName)
		}
		for _, s := range service.Streams {
			methods = append(methods, s.StreamName)
		}
		for _, name := range methods {
			method := "/" + service.ServiceName + "/" + name
			before := len(d.calls(method))
			_, _, err := callStream(t.Context(), e.ClientConn, method, [][]byte{{}})
			judged := method == publishMethod || method == unpublishMethod
			if judged != (status.Code(err) == codes.FailedPrecondition) {
				t.Errorf("%s: got %v", method, err)
			}
			// The driver here registers two services of the spec.
			if known := service.ServiceName == "csi.v1.Identity" || service.ServiceName == "csi.v1.Controller"; !judged && known && len(d.calls(method)) != before+1 {
				t.Errorf("%s: reached the driver %d times, want once", method, len(d.calls(method))-before)
			}
		}
	}
	if want := []string{publishMethod, unpublishMethod}; !slices.Equal(g.calls, want) {
		t.Errorf("judged %v, want %v", g.calls, want)
	}
}

// unknownField is a field of a CSI spec that is yet to be written.
var unknownField = protowire.AppendString(protowire.AppendTag(nil, 4711, protowire.BytesType), "from the future")

func TestPassForwardsBothCallsAsTheyAre(t *testing.T) {
	var gotPublish *publishRequest
	var gotUnpublish *unpublishRequest
	resp := &publishResponse{PublishContext: map[string]string{"disk": "/dev/x"}}
	resp.ProtoReflect().SetUnknown(unknownField)
	d := newDriver(t)
	d.onPublish = func(_ context.Context, req *publishRequest) (*publishResponse, error) {
		gotPublish = req
		return resp, nil
	}
	d.onUnpublish = func(_ context.Context, req *unpublishRequest) (*unpublishResponse, error) {
		gotUnpublish = req
		return &unpublishResponse{}, nil
	}
	d.start(t)
	e := startEdge(t, t.Context(), d, proxy.Options{Guard: proxy.Pass()})

	publish := &publishRequest{
		VolumeId: "v", NodeId: "n", Readonly: true, Secrets: map[string]string{"k": "s"}, VolumeContext: map[string]string{"a": "b"},
		VolumeCapability: &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}},
	}
	publish.ProtoReflect().SetUnknown(unknownField)
	got, err := spec.NewControllerClient(e).ControllerPublishVolume(t.Context(), publish)
	if err != nil || !proto.Equal(got, resp) {
		t.Errorf("publish: got %v, %v, want %v", got, err, resp)
	}
	if !proto.Equal(gotPublish, publish) {
		t.Errorf("the driver got %v, want %v", gotPublish, publish)
	}
	unpublish := &unpublishRequest{VolumeId: "v", NodeId: "n", Secrets: map[string]string{"k": "s"}}
	unpublish.ProtoReflect().SetUnknown(unknownField)
	if _, err := spec.NewControllerClient(e).ControllerUnpublishVolume(t.Context(), unpublish); err != nil {
		t.Error(err)
	}
	if !proto.Equal(gotUnpublish, unpublish) {
		t.Errorf("the driver got %v, want %v", gotUnpublish, unpublish)
	}
}

func TestGuardMayForwardChangedRequestsAnyNumberOfTimes(t *testing.T) {
	var order []string
	d := newDriver(t)
	d.onUnpublish = func(ctx context.Context, req *unpublishRequest) (*unpublishResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		order = append(order, fmt.Sprintf("unpublish %s %s %s", req.NodeId, req.Secrets["k"], values(md, "caller")))
		_ = grpc.SetHeader(ctx, metadata.Pairs("h", "unpublish"))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("t", "unpublish"))
		return &unpublishResponse{}, nil
	}
	d.onPublish = func(ctx context.Context, req *publishRequest) (*publishResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		order = append(order, fmt.Sprintf("publish %s %s", req.NodeId, values(md, "caller")))
		_ = grpc.SetHeader(ctx, metadata.Pairs("h", fmt.Sprint(len(order))))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("t", fmt.Sprint(len(order))))
		if len(order) == 1 {
			return nil, status.Error(codes.FailedPrecondition, "published elsewhere")
		}
		return &publishResponse{PublishContext: map[string]string{"node": req.NodeId}}, nil
	}
	d.start(t)
	g := &guardFuncs{publish: func(ctx context.Context, req *publishRequest, driver proxy.Driver) (*publishResponse, error) {
		if _, err := driver.Publish(ctx, req); status.Code(err) != codes.FailedPrecondition {
			return nil, fmt.Errorf("the first publish: %w", err)
		}
		resp, err := driver.Publish(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, node := range []string{"old-1", "old-2"} {
			if _, err := driver.Unpublish(ctx, &unpublishRequest{VolumeId: req.VolumeId, NodeId: node, Secrets: req.Secrets}); err != nil {
				return nil, err
			}
		}
		return resp, nil
	}}
	e := startEdge(t, t.Context(), d, proxy.Options{Guard: g})
	var header, trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "caller", "a", "caller", "b")
	_, err := spec.NewControllerClient(e).ControllerPublishVolume(ctx, &publishRequest{VolumeId: "v", NodeId: "new", Secrets: map[string]string{"k": "s"}}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`publish new ["a" "b"]`, `publish new ["a" "b"]`, `unpublish old-1 s ["a" "b"]`, `unpublish old-2 s ["a" "b"]`}
	if !slices.Equal(order, want) {
		t.Errorf("the driver saw %q, want %q", order, want)
	}
	// Of the last publish: not of the one before, and not of the unpublishes.
	if values(header, "h") != `["2"]` || values(trailer, "t") != `["2"]` {
		t.Errorf("header %v, trailer %v, want those of the last publish", header, trailer)
	}
}

func TestMetadataOfTheDriversErrorReachesTheCaller(t *testing.T) {
	d := newDriver(t)
	d.onUnpublish = func(ctx context.Context, _ *unpublishRequest) (*unpublishResponse, error) {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("t", "1", "t", "2", "t-bin", "\x00"))
		return nil, status.Error(codes.Aborted, "pending")
	}
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		var header, trailer metadata.MD
		_, err := spec.NewControllerClient(conn).ControllerUnpublishVolume(t.Context(), &unpublishRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		if status.Code(err) != codes.Aborted || values(trailer, "t") != `["1" "2"]` || values(trailer, "t-bin") != `["\x00"]` || len(header) != 0 {
			t.Errorf("%v, header %v, trailer %v", err, header, trailer)
		}
	})
}

func TestDetailsOfTheDriversErrorDoNotSpoilTheGuardsOwn(t *testing.T) {
	d := newDriver(t)
	d.onPublish = func(context.Context, *publishRequest) (*publishResponse, error) {
		return nil, detailedStatus(t).Err()
	}
	d.start(t)
	g := &guardFuncs{publish: func(ctx context.Context, req *publishRequest, driver proxy.Driver) (*publishResponse, error) {
		if _, err := driver.Publish(ctx, req); !proto.Equal(status.Convert(err).Proto(), detailedStatus(t).Proto()) {
			return nil, fmt.Errorf("the guard did not get the driver's error but %w", err)
		}
		return nil, errRefused
	}}
	e := startEdge(t, t.Context(), d, proxy.Options{Guard: g})
	_, err := spec.NewControllerClient(e).ControllerPublishVolume(t.Context(), &publishRequest{})
	if !proto.Equal(status.Convert(err).Proto(), status.Convert(errRefused).Proto()) {
		t.Errorf("got %v, want %v", err, errRefused)
	}
}

func TestForwardOutlivesTheCallerWhereTheGuardDetachesIt(t *testing.T) {
	arrived, gone, done := make(chan metadata.MD, 1), make(chan struct{}), make(chan error, 1)
	log := new(lockedBuffer)
	d := newDriver(t)
	d.onUnpublish = func(ctx context.Context, _ *unpublishRequest) (*unpublishResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		arrived <- md
		<-gone
		time.Sleep(50 * time.Millisecond) // time for a cancellation to arrive
		return &unpublishResponse{}, ctx.Err()
	}
	d.start(t)
	g := &guardFuncs{unpublish: func(ctx context.Context, req *unpublishRequest, driver proxy.Driver) (*unpublishResponse, error) {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		resp, err := driver.Unpublish(detached, req)
		done <- err
		return resp, err
	}}
	e := startEdge(t, logged(t, log), d, proxy.Options{Guard: g})
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "caller", "a"))
	result := make(chan error, 1)
	go func() {
		_, err := spec.NewControllerClient(e).ControllerUnpublishVolume(ctx, &unpublishRequest{})
		result <- err
	}()
	if md := <-arrived; values(md, "caller") != `["a"]` {
		t.Errorf("the detached call carries %v", md)
	}
	cancel()
	if err := <-result; status.Code(err) != codes.Canceled {
		t.Errorf("the caller got %v", err)
	}
	close(gone)
	if err := <-done; err != nil {
		t.Errorf("the detached call: %v", err)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "could not be passed") {
		t.Errorf("metadata is missed where nobody is left to have it:\n%s", log)
	}
}

func TestGuardThatSaysNothingIsNoSuccess(t *testing.T) {
	g := &guardFuncs{
		publish:   func(context.Context, *publishRequest, proxy.Driver) (*publishResponse, error) { return nil, nil },
		unpublish: func(context.Context, *unpublishRequest, proxy.Driver) (*unpublishResponse, error) { return nil, nil },
	}
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{Guard: g})
	_, publish := spec.NewControllerClient(e).ControllerPublishVolume(t.Context(), &publishRequest{})
	_, unpublish := spec.NewControllerClient(e).ControllerUnpublishVolume(t.Context(), &unpublishRequest{})
	if status.Code(publish) != codes.Internal || status.Code(unpublish) != codes.Internal {
		t.Errorf("got %v and %v, want INTERNAL", publish, unpublish)
	}
}

func TestUnreadableRequestIsINTERNALAndJudgedByNobody(t *testing.T) {
	g := new(guardFuncs)
	d := startDriver(t)
	e := startEdge(t, t.Context(), d, proxy.Options{Guard: g})
	for _, conn := range []*grpc.ClientConn{connect(t, d.path), e.ClientConn} {
		for _, method := range []string{publishMethod, unpublishMethod} {
			before := len(d.calls(method))
			_, _, err := callStream(t.Context(), conn, method, [][]byte{notProto})
			if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "error unmarshalling request") {
				t.Errorf("%s: got %v, want what grpc-go says", method, err)
			}
			if conn == e.ClientConn && len(d.calls(method)) != before {
				t.Errorf("%s: the driver was called", method)
			}
		}
	}
	if len(g.calls) != 0 {
		t.Errorf("judged %v", g.calls)
	}
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// logged is the test's context with a logger that writes to log.
func logged(t *testing.T, log *lockedBuffer) context.Context {
	t.Helper()
	return klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
}

func TestInterceptedCallsAreLoggedOnceWithoutSecrets(t *testing.T) {
	const secret = "hunter2-never-to-be-seen"
	log := new(lockedBuffer)
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(log)))
	ctx := klog.NewContext(t.Context(), logger)
	d := newDriver(t)
	d.onUnpublish = func(context.Context, *unpublishRequest) (*unpublishResponse, error) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	d.start(t)
	g := &guardFuncs{
		publish: func(ctx context.Context, req *publishRequest, driver proxy.Driver) (*publishResponse, error) {
			klog.FromContext(ctx).Info("From the guard")
			return driver.Publish(ctx, req)
		},
		unpublish: proxy.Pass().ControllerUnpublishVolume,
	}
	e := startEdge(t, ctx, d, proxy.Options{Guard: g})
	client := spec.NewControllerClient(e)
	secrets := map[string]string{"password": secret}
	if _, err := client.ControllerPublishVolume(t.Context(), &publishRequest{VolumeId: "vol-p", NodeId: "n", Secrets: secrets}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ControllerUnpublishVolume(t.Context(), &unpublishRequest{VolumeId: "vol-u", Secrets: secrets}); status.Code(err) != codes.NotFound || strings.Contains(err.Error(), secret) {
		t.Fatal(err)
	}
	_, err := client.CreateVolume(t.Context(), &spec.CreateVolumeRequest{Name: "vol-c", Secrets: secrets})
	if strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
	_, _, err = callStream(t.Context(), e.ClientConn, publishMethod, [][]byte{append([]byte(secret), 0xff)})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("an unreadable request: %v", err)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	if strings.Contains(got, secret) {
		t.Errorf("the secret was logged:\n%s", got)
	}
	for _, want := range []string{"vol-p", "vol-u", "no such volume", "From the guard"} {
		if n := strings.Count(got, want); n != 1 {
			t.Errorf("%q is in the log %d times, want once:\n%s", want, n, got)
		}
	}
	if !strings.Contains(got, `"From the guard" method="`+publishMethod+`"`) {
		t.Errorf("the guard's logger does not say which call it serves:\n%s", got)
	}
	if strings.Contains(got, "could not be passed") {
		t.Errorf("metadata that was passed on is called lost:\n%s", got)
	}
}

// recordedCalls is a CallRecorder.
type recordedCalls struct {
	mu    sync.Mutex
	calls []string
}

func (r *recordedCalls) RecordMetrics(method string, err error, duration time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if duration <= 0 {
		err = errors.Join(err, errors.New("no duration"))
	}
	r.calls = append(r.calls, fmt.Sprintf("%s %s", method, status.Code(err)))
}

func TestEveryUnaryCallIsRecorded(t *testing.T) {
	r := new(recordedCalls)
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{Recorder: r, Guard: &guardFuncs{unpublish: proxy.Pass().ControllerUnpublishVolume}})
	client := spec.NewControllerClient(e)
	_, _ = callUnary(t.Context(), e.ClientConn, nil)
	_, _ = client.CreateVolume(t.Context(), &spec.CreateVolumeRequest{})
	_, _ = client.ControllerPublishVolume(t.Context(), &publishRequest{})
	_, _ = client.ControllerUnpublishVolume(t.Context(), &unpublishRequest{})
	_, _, _ = callStream(t.Context(), e.ClientConn, echoThrice, [][]byte{nil})
	_, _, _ = callStream(t.Context(), e.ClientConn, echoUpload, [][]byte{nil, nil})
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		echoUnary + " OK",
		"/csi.v1.Controller/CreateVolume Unimplemented",
		publishMethod + " FailedPrecondition",
		unpublishMethod + " OK",
	}
	if !slices.Equal(r.calls, want) {
		t.Errorf("recorded %q, want %q", r.calls, want)
	}
}

// grpc-go's server ends a call at its deadline with a cancellation, as often as
// not; what the caller and the metrics hear of it is the deadline.
func TestACallThatIsCancelledAtItsDeadlineHasExceededIt(t *testing.T) {
	r := new(recordedCalls)
	began := make(chan struct{}, 1)
	var answer atomic.Value
	answer.Store(status.FromContextError(context.Canceled).Err())
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{Recorder: r, Guard: &guardFuncs{
		publish: func(ctx context.Context, _ *publishRequest, _ proxy.Driver) (*publishResponse, error) {
			began <- struct{}{}
			deadline, limited := ctx.Deadline()
			if limited {
				<-ctx.Done()
			}
			if limited && time.Until(deadline) < time.Minute {
				time.Sleep(time.Until(deadline))
			}
			return nil, answer.Load().(error)
		},
	}})
	client := spec.NewControllerClient(e)
	call := func(limit time.Duration, during func(cancel func())) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		go during(cancel)
		_, _ = client.ControllerPublishVolume(ctx, &publishRequest{})
	}
	call(200*time.Millisecond, func(func()) { <-began })
	call(time.Hour, func(cancel func()) { <-began; cancel() })
	// Without a deadline, and with another answer, there is nothing to put right.
	_, _ = client.ControllerPublishVolume(t.Context(), &publishRequest{})
	<-began
	answer.Store(status.Error(codes.Internal, "it failed"))
	call(200*time.Millisecond, func(func()) { <-began })
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{publishMethod + " Canceled", publishMethod + " Canceled", publishMethod + " DeadlineExceeded", publishMethod + " Internal"}
	if slices.Sort(r.calls); !slices.Equal(r.calls, want) {
		t.Errorf("recorded %q, want %q", r.calls, want)
	}
}
