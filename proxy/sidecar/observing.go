package sidecar

import (
	"context"
	"errors"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// observePatience is how long mode Observe waits before it forwards what it cannot
// judge yet: a small cluster's caches are synced sooner, so that the first calls are
// judged there too.
const observePatience = 10 * time.Second

// observing is New in mode Observe: it waits for observePatience at most. What it
// returns forwards every call, unjudged until what judges is built. Whatever keeps
// that from being built (a right that is missing, an API server that is away, a fence
// agent that cannot be made) is tried again until ctx ends, and is said through
// Options.Ready.
func observing(ctx context.Context, in Options) *observer {
	o := &observer{built: make(chan struct{})}
	ready := in.Ready
	in.Ready = func(check func() error) { ready(o.once(check)) }
	go KeepRunning(ctx, func(ctx context.Context) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		var err error
		if o.guard, o.background, err = judging(ctx, in); err != nil {
			in.Ready(func() error { return err })
			return err
		}
		close(o.built)
		<-ctx.Done()
		return nil
	})
	select {
	case <-o.built:
	case <-ctx.Done():
	case <-time.After(observePatience):
		klog.FromContext(ctx).Info("Forwarding what cannot be judged yet", "mode", in.Config.Mode)
	}
	return o
}

// observer is the guard of mode Observe.
type observer struct {
	built chan struct{}
	// These two are set once built is closed.
	guard      proxy.Guard
	background func(context.Context) error
}

// once is a check that passes only once calls are judged: the caches, of which New's
// check speaks, are synced a little before.
func (o *observer) once(check func() error) func() error {
	return func() error {
		if err := check(); err != nil {
			return err
		}
		select {
		case <-o.built:
			return nil
		default:
			return errors.New("calls are not judged yet")
		}
	}
}

// judge is who is given a call now.
func (o *observer) judge() proxy.Guard {
	select {
	case <-o.built:
		return o.guard
	default:
		return proxy.Pass()
	}
}

func (o *observer) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver proxy.Driver) (*spec.ControllerPublishVolumeResponse, error) {
	return o.judge().ControllerPublishVolume(ctx, req, driver)
}

func (o *observer) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, driver proxy.Driver) (*spec.ControllerUnpublishVolumeResponse, error) {
	return o.judge().ControllerUnpublishVolume(ctx, req, driver)
}

// run is the background work, once there is any.
func (o *observer) run(ctx context.Context) error {
	select {
	case <-o.built:
		return o.background(ctx)
	case <-ctx.Done():
		return nil
	}
}
