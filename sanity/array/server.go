package array

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	fencepb "github.com/csi-addons/spec/lib/go/fence"
	identitypb "github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/grpc"
)

// maxSocketPath is what sun_path of a unix socket holds on Linux.
const maxSocketPath = 107

// server is a gRPC server on a unix socket.
type server struct {
	grpc     *grpc.Server
	listener *net.UnixListener
	done     chan struct{}
}

// serve starts a server on a socket. A stale socket file is replaced; one in
// use by a living process is an error.
func (a *Array) serve(socketPath string, register func(*grpc.Server), options ...grpc.ServerOption) (*server, error) {
	listener, err := listen(socketPath)
	if err != nil {
		return nil, err
	}
	// A call that is cut off must not outlive Kill: it could still change state.
	options = append(options, grpc.WaitForHandlers(true))
	s := &server{grpc: grpc.NewServer(options...), listener: listener, done: make(chan struct{})}
	register(s.grpc)
	a.work.Go(func() {
		defer close(s.done)
		s.grpc.Serve(listener) // returns when the server is stopped
	})
	return s, nil
}

func listen(socketPath string) (*net.UnixListener, error) {
	if len(socketPath) > maxSocketPath {
		return nil, fmt.Errorf("socket %s: the path has %d bytes, a unix socket allows %d", socketPath, len(socketPath), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(socketPath), 0o755); err != nil {
		return nil, err
	}
	if err := removeStale(socketPath); err != nil {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: socketPath, Net: "unix"})
}

func removeStale(socketPath string) error {
	if info, err := os.Lstat(socketPath); err == nil && info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("socket %s: there is something else than a socket at this path (%s)", socketPath, info.Mode())
	}
	conn, err := net.Dial("unix", socketPath)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("socket %s: another process serves it", socketPath)
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(socketPath)
	}
	return err
}

// stop lets running calls finish and removes the socket file.
func (s *server) stop() {
	s.grpc.GracefulStop()
	<-s.done
}

// kill cuts all connections and leaves the socket file, as SIGKILL does.
func (s *server) kill() {
	s.listener.SetUnlinkOnClose(false)
	s.grpc.Stop()
	<-s.done
}

// Serve starts the driver's controller side (Identity and Controller) on a
// socket and returns. It ends with Stop or Kill, or as by Kill when ctx ends;
// after that Serve starts it again, with all state kept.
func (a *Array) Serve(ctx context.Context, socketPath string) error {
	return a.serveDriver(ctx, socketPath, func(*grpc.Server) {}, a.intercept(ControllerSocket))
}

// serveDriver serves Identity, Controller and what else is registered.
func (a *Array) serveDriver(ctx context.Context, socketPath string, register func(*grpc.Server), intercept grpc.UnaryServerInterceptor) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running.Err() != nil {
		return errors.New("serve: the array is closed")
	}
	if a.server != nil {
		return fmt.Errorf("serve %s: the driver serves %s already; Stop it first", socketPath, a.server.listener.Addr())
	}
	s, err := a.serve(socketPath, func(g *grpc.Server) {
		spec.RegisterIdentityServer(g, &identity{array: a})
		spec.RegisterControllerServer(g, &controller{array: a})
		identitypb.RegisterIdentityServer(g, &addonsIdentity{array: a})
		fencepb.RegisterFenceControllerServer(g, &fenceController{array: a})
		register(g)
	}, grpc.UnaryInterceptor(intercept))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	a.server = s
	a.eventLocked("", "", "driver started")
	a.killWith(ctx, s, func() { a.takeServer(s, "driver killed").kill() })
	return nil
}

// Stop ends the driver's controller side as SIGTERM should: running calls are
// waited for, the socket file is removed. It does nothing if it does not serve.
func (a *Array) Stop() { a.takeServer(nil, "driver stopped").stop() }

// Kill ends the driver's controller side as SIGKILL does: running calls are
// cut off, the socket file stays. It does nothing if it does not serve.
func (a *Array) Kill() { a.takeServer(nil, "driver killed").kill() }

// takeServer takes the running server (only the given one, if any) out of
// service and returns it, or one that is stopped already.
func (a *Array) takeServer(only *server, text string) stopper {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.server
	if s == nil || (only != nil && s != only) {
		return nothing{}
	}
	a.server = nil
	a.eventLocked("", "", text)
	return s
}

// killWith calls kill when ctx ends before the server does.
func (a *Array) killWith(ctx context.Context, s *server, kill func()) {
	a.work.Go(func() {
		select {
		case <-ctx.Done():
			kill()
		case <-s.done:
		}
	})
}

type stopper interface {
	stop()
	kill()
}

// nothing is the server that does not run.
type nothing struct{}

func (nothing) stop() {}
func (nothing) kill() {}
