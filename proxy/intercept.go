package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// Guard decides the two intercepted calls. What it returns is what the caller
// gets: an error with a gRPC status goes out with code, text and details as it
// is. Its ctx is the call's own, with a logger; it may be called by many
// goroutines at once.
type Guard interface {
	ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver Driver) (*spec.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, driver Driver) (*spec.ControllerUnpublishVolumeResponse, error)
}

// Driver is the driver behind the proxy, as one intercepted call sees it. It
// sends the caller's metadata with every request; deadline and cancellation are
// those of the ctx that it is given, which may outlive the call
// (context.WithoutCancel, with a timeout of its own). Its errors are the
// driver's, unchanged, or UNAVAILABLE where it cannot be reached. It may be used
// any number of times, by several goroutines, with any request.
//
// The header and trailer metadata of the last request that was answered before
// the Guard returned, and that has the method of the intercepted call, goes to
// the caller.
type Driver interface {
	Publish(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error)
	Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error)
}

// Pass returns the Guard that forwards both calls as they are. It guards
// nothing.
func Pass() Guard { return pass{} }

type pass struct{}

func (pass) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver Driver) (*spec.ControllerPublishVolumeResponse, error) {
	return driver.Publish(ctx, req)
}

func (pass) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, driver Driver) (*spec.ControllerUnpublishVolumeResponse, error) {
	return driver.Unpublish(ctx, req)
}

// interceptedService is the CSI controller service cut down to the two methods
// that are intercepted. All others stay unknown to the server, and pass through.
func interceptedService() (*grpc.ServiceDesc, error) {
	service := spec.Controller_ServiceDesc
	service.Streams = nil
	service.Methods = nil
	for _, name := range []string{"ControllerPublishVolume", "ControllerUnpublishVolume"} {
		i := slices.IndexFunc(spec.Controller_ServiceDesc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == name })
		if i < 0 {
			// It would pass through, unguarded.
			return nil, fmt.Errorf("service %s of the CSI spec has no method %s to intercept", service.ServiceName, name)
		}
		service.Methods = append(service.Methods, spec.Controller_ServiceDesc.Methods[i])
	}
	return &service, nil
}

// interceptor serves interceptedService.
type interceptor struct {
	spec.UnimplementedControllerServer // never called: those methods are not registered
	server                             *Server
	guard                              Guard
}

func (i *interceptor) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return intercept(ctx, i.server, spec.Controller_ControllerPublishVolume_FullMethodName, req, i.guard.ControllerPublishVolume)
}

func (i *interceptor) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return intercept(ctx, i.server, spec.Controller_ControllerUnpublishVolume_FullMethodName, req, i.guard.ControllerUnpublishVolume)
}

// secretRequest is a request that may carry secrets.
type secretRequest interface {
	proto.Message
	GetSecrets() map[string]string
}

// intercept lets the guard judge one call, and logs and records its outcome.
func intercept[Request secretRequest, Response proto.Message](ctx context.Context, s *Server, method string, req Request,
	judge func(context.Context, Request, Driver) (Response, error)) (Response, error) {
	start := time.Now()
	logger := s.logger.WithValues("method", method)
	driver := &driverCall{
		conn:    s.driver,
		method:  method,
		md:      callerMetadata(ctx),
		options: s.forwardOptions(ctx),
		bound:   s.bound,
	}
	resp, err := judge(klog.NewContext(ctx, logger), req, driver)
	if err == nil && !resp.ProtoReflect().IsValid() {
		// On the wire a nil response is an empty one, and that means success.
		err = status.Error(codes.Internal, "csi-fencepost: the guard returned neither a response nor an error")
	}
	err = csi.RedactError(expired(ctx, err), req.GetSecrets())
	if mdErr := driver.answerMetadata(ctx); mdErr != nil && ctx.Err() == nil { // a caller that is gone gets none
		logger.Error(mdErr, "The driver's metadata could not be passed to the caller")
	}
	s.record(method, err, time.Since(start))
	logCall(logger, req, resp, err, time.Since(start))
	return resp, err
}

// logCall logs an intercepted call, without its secrets.
func logCall(logger klog.Logger, req, resp proto.Message, err error, duration time.Duration) {
	logger = logger.V(4)
	if !logger.Enabled() {
		return
	}
	request := protosanitizer.StripSecrets(req).String()
	if err != nil {
		logger.Info("Intercepted a call", "request", request, "err", err, "duration", duration)
		return
	}
	logger.Info("Intercepted a call", "request", request, "response", protosanitizer.StripSecrets(resp).String(), "duration", duration)
}

// driverCall is the Driver of one intercepted call.
type driverCall struct {
	conn    *grpc.ClientConn
	method  string // the intercepted one
	md      metadata.MD
	options []grpc.CallOption
	bound   int // of an answer, in bytes

	mu              sync.Mutex
	header, trailer metadata.MD // of the last answer to method
}

func (d *driverCall) Publish(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	resp := new(spec.ControllerPublishVolumeResponse)
	if err := d.invoke(ctx, spec.Controller_ControllerPublishVolume_FullMethodName, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

func (d *driverCall) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	resp := new(spec.ControllerUnpublishVolumeResponse)
	if err := d.invoke(ctx, spec.Controller_ControllerUnpublishVolume_FullMethodName, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

func (d *driverCall) invoke(ctx context.Context, method string, req, resp proto.Message) error {
	var header, trailer metadata.MD
	options := append(slices.Clone(d.options), grpc.Header(&header), grpc.Trailer(&trailer))
	err := overBound(d.conn.Invoke(forwardedContext(ctx, d.md), method, req, resp, options...), d.bound)
	if method == d.method {
		d.mu.Lock()
		d.header, d.trailer = header, trailer
		d.mu.Unlock()
	}
	return err
}

// answerMetadata sets the driver's metadata on the answer to the call of ctx.
func (d *driverCall) answerMetadata(ctx context.Context) error {
	d.mu.Lock()
	header, trailer := d.header.Copy(), d.trailer.Copy()
	d.mu.Unlock()
	// The details of the driver's status: grpc-go writes them when the answer is
	// that status. Under another one of the guard's they would be a mismatch.
	delete(trailer, "grpc-status-details-bin")
	return errors.Join(grpc.SetHeader(ctx, header), grpc.SetTrailer(ctx, trailer))
}
