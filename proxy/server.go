package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"k8s.io/klog/v2"
)

// DefaultGracePeriod is how long a stopping server waits for the calls in
// flight: longer than the attacher's deadline of 15 s, shorter than a pod's
// default terminationGracePeriodSeconds of 30 s.
const DefaultGracePeriod = 20 * time.Second

// cutTime is how long a call that is cut has to notice.
const cutTime = time.Second

// CallRecorder is told of every unary call once it is answered, intercepted or
// passed through: its full method, its error (nil, or one with a gRPC status),
// and how long the caller waited. CSIMetricsManager of csi-lib-utils is one. It
// may be called by many goroutines at once.
//
// gRPC does not say whether a method that passes through is unary: a call with
// at most one message in either direction counts as such.
type CallRecorder interface {
	RecordMetrics(operationName string, operationErr error, operationDuration time.Duration)
}

// Options are what a Server needs.
type Options struct {
	// Listen is the socket to serve: unix:///path or /path, absolute. Required.
	Listen string
	// Driver is the connection to the driver, usually from Dial. It stays the
	// caller's to close. Required.
	Driver *grpc.ClientConn
	// Guard decides the two intercepted calls. Required; Pass forwards both.
	Guard Guard
	// Recorder is told of every unary call. Optional.
	Recorder CallRecorder
	// MaxMessageSize, in bytes, is what a message may have that passes, in either
	// direction, once it is decompressed; zero is DefaultMaxMessageSize. A larger one ends
	// its call with RESOURCE_EXHAUSTED, as gRPC does it.
	MaxMessageSize int
	// GracePeriod is how long Serve waits for the calls in flight when it is
	// told to stop; zero is DefaultGracePeriod.
	GracePeriod time.Duration
}

// Server is the edge: a gRPC server on a unix socket that forwards to a driver.
type Server struct {
	path     string
	driver   *grpc.ClientConn
	recorder CallRecorder
	bound    int // Options.MaxMessageSize
	grace    time.Duration
	grpc     *grpc.Server
	logger   klog.Logger // of the Serve in progress

	servingOnce sync.Once
	serving     chan struct{}
}

// New returns a Server, not serving yet. It fails when an option is missing, or
// when the socket could not be served as CheckListen defines it.
func New(o Options) (*Server, error) {
	switch {
	case o.Driver == nil:
		return nil, errors.New("proxy: Options.Driver is missing: a connection to the CSI driver is needed")
	case o.Guard == nil:
		return nil, errors.New("proxy: Options.Guard is missing: to forward every call unjudged, say so with Pass()")
	case o.MaxMessageSize < 0:
		return nil, fmt.Errorf("proxy: Options.MaxMessageSize is %d: it cannot be negative", o.MaxMessageSize)
	case o.GracePeriod < 0:
		return nil, fmt.Errorf("proxy: Options.GracePeriod is %s: it cannot be negative", o.GracePeriod)
	case o.GracePeriod == 0:
		o.GracePeriod = DefaultGracePeriod
	}
	if o.MaxMessageSize == 0 {
		o.MaxMessageSize = DefaultMaxMessageSize
	}
	if err := CheckListen(o.Listen); err != nil {
		return nil, err
	}
	path, err := socketPath(o.Listen)
	if err != nil {
		return nil, err
	}
	service, err := interceptedService()
	if err != nil {
		return nil, err
	}
	s := &Server{
		path:     path,
		driver:   o.Driver,
		recorder: o.Recorder,
		bound:    o.MaxMessageSize,
		grace:    o.GracePeriod,
		logger:   klog.Background(),
		serving:  make(chan struct{}),
	}
	s.grpc = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(s.passThrough),
		grpc.MaxRecvMsgSize(o.MaxMessageSize),
		grpc.MaxSendMsgSize(math.MaxInt32),
		// How often a caller may ping is the driver's business, not ours.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.StatsHandler(callers{}),
	)
	s.grpc.RegisterService(service, &interceptor{server: s, guard: o.Guard})
	return s, nil
}

// Serving returns a channel that is closed once the socket accepts calls.
func (s *Server) Serving() <-chan struct{} { return s.serving }

// Serve waits until the driver answers, then serves the socket until ctx ends.
// Then it takes the socket away, lets the calls in flight finish for the grace
// period at most, cuts the others, and returns nil. An error says why it could
// not serve, or not go on. A Server serves once.
func (s *Server) Serve(ctx context.Context) error {
	s.logger = klog.FromContext(ctx)
	if err := waitForDriver(ctx, s.driver); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	socket, err := listen(ctx, s.path)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }() // gRPC does, but not if it is stopped before it began
	return s.serveOn(ctx, socket, socket.remove)
}

// ServeListener is Serve on a listener in the place of the socket, such as one in
// memory. It does not wait for the driver.
func (s *Server) ServeListener(ctx context.Context, l net.Listener) error {
	s.logger = klog.FromContext(ctx)
	return s.serveOn(ctx, l, func() error { return nil })
}

// serveOn serves until ctx ends; remove takes away what others find l by.
func (s *Server) serveOn(ctx context.Context, l net.Listener, remove func() error) (err error) {
	ended := make(chan error, 1)
	go func() { ended <- s.grpc.Serve(l) }()
	s.servingOnce.Do(func() { close(s.serving) })
	s.logger.Info("Serving", "socket", s.path, "driver", s.driver.Target())

	select {
	case err = <-ended:
		err = fmt.Errorf("serving %s ended: %w", s.path, err)
	case <-ctx.Done():
	}
	// Before it is closed: as long as it is open nobody takes its place, so
	// what is there is known to be ours or not.
	if removeErr := remove(); removeErr != nil {
		s.logger.Error(removeErr, "The socket stays behind; the next start replaces it", "socket", s.path)
	}
	s.stop()
	return err
}

// stop ends the gRPC server, gracefully for the grace period.
func (s *Server) stop() {
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.grpc.GracefulStop()
	}()
	patience := time.NewTimer(s.grace)
	defer patience.Stop()
	select {
	case <-graceful:
	case <-patience.C:
		s.logger.Info("Cutting the calls that are still in flight", "gracePeriod", s.grace)
		// Not waited for: after a GracefulStop it does not return before a
		// handler that is deaf to its cancellation does.
		go s.grpc.Stop()
		select {
		case <-graceful:
		case <-time.After(cutTime):
		}
	}
}

// record tells the recorder, if there is one.
func (s *Server) record(method string, err error, duration time.Duration) {
	if s.recorder != nil {
		s.recorder.RecordMetrics(method, err, duration)
	}
}
