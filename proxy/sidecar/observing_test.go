package sidecar

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// forwarded counts what reaches the driver.
type forwarded struct{ publishes, unpublishes int }

func (f *forwarded) Publish(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	f.publishes++
	return &spec.ControllerPublishVolumeResponse{}, nil
}

func (f *forwarded) Unpublish(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	f.unpublishes++
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// withoutAPI are options whose API server does not answer. reason is why it is not
// ready.
func withoutAPI(t *testing.T, mode config.Mode) (o Options, reason func() string) {
	t.Helper()
	conn, err := grpc.NewClient("unix:///nowhere.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := config.Default()
	c.Mode = mode
	var check atomic.Pointer[func() error]
	reason = func() string {
		if f := check.Load(); f != nil && (*f)() != nil {
			return (*f)().Error()
		}
		return ""
	}
	return Options{Conn: conn, Driver: "disk.example.com", Rest: &rest.Config{Host: "http://127.0.0.1:1"}, Config: c,
		Ready: func(f func() error) { check.Store(&f) }}, reason
}

// Whatever it cannot do in Observe, the volumes of the cluster are attached.
func TestObserveForwardsWhileNothingCanBeJudgedAndSaysWhy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*observePatience)
	defer cancel()
	o, reason := withoutAPI(t, config.Observe)
	guard, background, err := New(ctx, o)
	if err != nil {
		t.Fatalf("it waits for what only a judgement needs: %v", err)
	}
	driver := &forwarded{}
	if _, err := guard.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n"}, driver); err != nil {
		t.Errorf("publish: %v", err)
	}
	if _, err := guard.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "n"}, driver); err != nil {
		t.Errorf("unpublish: %v", err)
	}
	if driver.publishes != 1 || driver.unpublishes != 1 {
		t.Errorf("the driver saw %+v", *driver)
	}
	for !strings.Contains(reason(), "connection refused") {
		if ctx.Err() != nil {
			t.Fatalf("/readyz would say %q", reason())
		}
		time.Sleep(10 * time.Millisecond)
	}
	ended := make(chan error, 1)
	go func() { ended <- background(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the background work ended with %v", err)
	}
}

// Nothing is forwarded that could not be judged: there is no guard to serve with.
func TestEnforceWaitsForWhatItJudgesByAndSaysWhy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*observePatience)
	defer cancel()
	o, reason := withoutAPI(t, config.Enforce)
	guard, _, err := New(ctx, o)
	if err == nil || guard != nil {
		t.Fatalf("guard %v, error %v", guard, err)
	}
	if !strings.Contains(reason(), "connection refused") {
		t.Errorf("/readyz would say %q", reason())
	}
}

// A pod that is ready judges: the caches are synced a little before there is a guard.
func TestObserveIsNotReadyBeforeCallsAreJudged(t *testing.T) {
	o := &observer{built: make(chan struct{})}
	var synced error
	check := o.once(func() error { return synced })
	if check() == nil {
		t.Error("it is ready, and forwards what it has not judged")
	}
	close(o.built)
	if err := check(); err != nil {
		t.Errorf("it is not ready: %v", err)
	}
	if synced = context.DeadlineExceeded; check() == nil {
		t.Error("it is ready without caches")
	}
}
