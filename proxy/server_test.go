package proxy_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

func TestMissingOptionIsAClearError(t *testing.T) {
	valid := proxy.Options{
		Listen: filepath.Join(shortDir(t), "csi.sock"),
		Driver: connect(t, "/nowhere.sock"),
		Guard:  proxy.Pass(),
	}
	if _, err := proxy.New(valid); err != nil {
		t.Fatalf("valid options: %v", err)
	}
	for want, change := range map[string]func(*proxy.Options){
		"Options.Driver is missing":      func(o *proxy.Options) { o.Driver = nil },
		"Options.Guard is missing":       func(o *proxy.Options) { o.Guard = nil },
		"it cannot be negative":          func(o *proxy.Options) { o.GracePeriod = -1 },
		"neither unix:///path nor /path": func(o *proxy.Options) { o.Listen = "" },
		"does not exist; is the volume":  func(o *proxy.Options) { o.Listen = "/no/such/folder/csi.sock" },
	} {
		o := valid
		change(&o)
		if _, err := proxy.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestSocketAppearsOnlyOnceTheDriverAnswers(t *testing.T) {
	d := newDriver(t)
	conn, err := grpc.NewClient("unix://"+d.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	path := filepath.Join(shortDir(t), "csi.sock")
	server, err := proxy.New(proxy.Options{Listen: path, Driver: conn, Guard: proxy.Pass()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	select {
	case <-server.Serving():
		t.Fatal("it serves, and no driver is there")
	case <-time.After(500 * time.Millisecond):
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Fatalf("the socket exists, and no driver is there: %v", err)
	}
	d.start(t)
	within(t, 10*time.Second, server.Serving(), "serving once the driver is there")
	if _, err := callUnary(t.Context(), connect(t, path), nil); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServeEndsWhileItWaitsForTheDriver(t *testing.T) {
	server, err := proxy.New(proxy.Options{
		Listen: filepath.Join(shortDir(t), "csi.sock"),
		Driver: connect(t, filepath.Join(shortDir(t), "none.sock")),
		Guard:  proxy.Pass(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := server.Serve(ctx); err != nil {
		t.Errorf("being told to stop is no error: %v", err)
	}
}

func TestCallsInFlightFinishAtTheStop(t *testing.T) {
	started, finish := make(chan struct{}, 2), make(chan struct{})
	d := newDriver(t)
	d.onUnary = func(_ context.Context, in []byte) ([]byte, error) {
		started <- struct{}{}
		<-finish
		return in, nil
	}
	d.onPublish = func(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
		started <- struct{}{}
		<-finish
		return &spec.ControllerPublishVolumeResponse{}, nil
	}
	d.start(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	results := make(chan error, 2)
	go func() { _, err := callUnary(context.Background(), e.ClientConn, nil); results <- err }()
	go func() {
		_, err := spec.NewControllerClient(e).ControllerPublishVolume(context.Background(), &spec.ControllerPublishVolumeRequest{})
		results <- err
	}()
	within(t, 5*time.Second, started, "the first call starts")
	within(t, 5*time.Second, started, "the second call starts")
	stopped := make(chan error, 1)
	go func() { stopped <- e.stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("Serve returned %v with calls in flight", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(finish)
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("a call in flight: %v", err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopIsBoundedByTheGracePeriod(t *testing.T) {
	started, release := make(chan struct{}, 1), make(chan struct{})
	g := &guardFuncs{publish: func(context.Context, *publishRequest, proxy.Driver) (*publishResponse, error) {
		started <- struct{}{}
		<-release // deaf to cancellation
		return nil, errRefused
	}}
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{Guard: g, GracePeriod: 300 * time.Millisecond})
	t.Cleanup(func() { close(release) })
	result := make(chan error, 1)
	go func() {
		_, err := spec.NewControllerClient(e).ControllerPublishVolume(context.Background(), &publishRequest{})
		result <- err
	}()
	within(t, 5*time.Second, started, "the call starts")
	begin := time.Now()
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < 250*time.Millisecond || took > 3*time.Second {
		t.Errorf("the stop took %s, the grace period is 300 ms", took)
	}
	if err := <-result; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that was cut: %v, want Unavailable", err)
	}
}
