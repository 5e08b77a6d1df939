package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
)

const (
	// socketMode lets every user connect, which takes write permission on the
	// socket. The attacher's user and ours may differ and share no group, and
	// both are chosen by whoever writes the pod. The boundary is the emptyDir
	// that holds the socket: it is mounted only into containers of this pod.
	socketMode = 0o666

	// maxSocketPath is what sockaddr_un of Linux holds, in bytes.
	maxSocketPath = 107

	// connectTimeout is how long a driver may take to greet a connection. Left
	// out, grpc-go takes the delay between attempts, and a driver on a busy
	// machine is never connected to.
	connectTimeout = 10 * time.Second

	probeTimeout  = 10 * time.Second       // of one attempt
	probeInterval = 200 * time.Millisecond // between attempts
	probeLogEvery = 10 * time.Second
)

// socketPath returns the path in the address of a unix socket, written as the
// CSI sidecars take it.
func socketPath(address string) (string, error) {
	path := strings.TrimPrefix(address, "unix://")
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("socket address %q is neither unix:///path nor /path with an absolute path", address)
	}
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("socket path %s has %d bytes, the system allows %d: choose a shorter one", path, len(path), maxSocketPath)
	}
	return path, nil
}

// CheckListen says whether a socket could be served at address (unix:///path or
// /path): its folder exists, and at the path there is nothing, or a socket that
// nobody serves, as a crash leaves behind. It changes nothing.
func CheckListen(address string) error {
	path, err := socketPath(address)
	if err != nil {
		return err
	}
	_, err = staleSocket(path)
	return err
}

// CheckDial says whether a driver could be behind address (unix:///path or /path). Its
// socket may not be there yet. It asks nobody.
func CheckDial(address string) error {
	path, err := socketPath(address)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory; name the driver's socket in it", path)
	}
	return nil
}

// staleSocket says whether at path there is a socket that nobody serves (true)
// or nothing (false). Anything else is an error.
func staleSocket(path string) (bool, error) {
	folder, err := os.Stat(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("cannot listen on %s: folder %s does not exist; is the volume for the socket mounted?", path, filepath.Dir(path))
	} else if err != nil {
		return false, fmt.Errorf("cannot listen on %s: %w", path, err)
	} else if !folder.IsDir() {
		return false, fmt.Errorf("cannot listen on %s: %s is not a folder", path, filepath.Dir(path))
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot listen on %s: %w", path, err)
	case info.IsDir():
		return false, fmt.Errorf("cannot listen on %s: it is a directory; name a file in it, such as %s", path, filepath.Join(path, "csi.sock"))
	case info.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("cannot listen on %s: it exists and is not a socket (mode %s); it is left alone, name another path or remove it", path, info.Mode())
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return false, fmt.Errorf("cannot listen on %s: another process serves this socket; stop it or name another path", path)
	case errors.Is(err, syscall.ECONNREFUSED): // no one listens any more
		return true, nil
	case errors.Is(err, fs.ErrNotExist): // just removed
		return false, nil
	default:
		return false, fmt.Errorf("cannot listen on %s: a socket is there, and whether a process serves it cannot be told: %w", path, err)
	}
}

// listener is a socket that knows the file it made.
type listener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listen serves path, in place of a stale socket if there is one.
func listen(ctx context.Context, path string) (*listener, error) {
	stale, err := staleSocket(path)
	if err != nil {
		return nil, err
	}
	if stale {
		klog.FromContext(ctx).Info("Replacing a socket that no process serves", "socket", path)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot replace the stale socket: %w", err)
		}
	}
	socket, err := bind(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	socket.SetUnlinkOnClose(false) // it would remove whatever is there; remove() does not
	file, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the new socket cannot be found: %w", err), socket.Close())
	}
	return &listener{UnixListener: socket, path: path, file: file}, nil
}

// umask is held while the process has another umask than it was started with.
var umask sync.Mutex

// bind makes the socket, which has its mode from the first moment on. A chmod
// afterwards would go by the path, and follow a link that somebody has put there
// meanwhile.
func bind(ctx context.Context, path string) (*net.UnixListener, error) {
	umask.Lock()
	defer umask.Unlock()
	// No fence agent is started meanwhile: it would keep the umask.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	before := unix.Umask(0)
	defer unix.Umask(before)
	config := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		// A kernel that does not take it (gVisor's may not) makes 0777 of it,
		// with which the same users may connect.
		return socket.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), socketMode) })
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// remove deletes the socket file if it is still the one that listen made.
func (l *listener) remove() error {
	file, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(file, l.file) {
		return nil
	} else if err != nil {
		return err
	}
	return os.Remove(l.path)
}

// Dial connects to the CSI driver at address (unix:///path or /path) and waits
// until it answers Probe with ready and GetPluginInfo with a name, however long
// that takes; it logs what it waits for. It fails when address is wrong or ctx
// ends. A connection that is lost later is made again for the next call; until
// that works, calls fail with UNAVAILABLE at once.
//
// It keeps to the conventions of csi-lib-utils' connection package (unix
// address, no TLS, no idle timeout), but does not use it: that package gives up
// after a timeout and takes no dial options.
//
// Our own calls on it, such as ListVolumes, receive messages of up to 64 MiB.
func Dial(ctx context.Context, address string) (*grpc.ClientConn, error) {
	return DialWith(ctx, address, DefaultMaxMessageSize)
}

// DialWith is Dial where Options.MaxMessageSize is not the default: our own calls receive
// what passes, where that is more.
func DialWith(ctx context.Context, address string, maxMessageSize int) (*grpc.ClientConn, error) {
	if err := CheckDial(address); err != nil {
		return nil, fmt.Errorf("CSI driver: %w", err)
	}
	path, err := socketPath(address)
	if err != nil {
		return nil, err
	}
	dialer := &driverDialer{path: path, logger: klog.FromContext(ctx)}
	target := url.URL{Scheme: "unix", Path: path}
	conn, err := grpc.NewClient(target.String(), append(ownCalls(maxMessageSize),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer.dial),
		grpc.WithIdleTimeout(0),
		// To knock at a unix socket costs nothing; to refuse calls although the
		// driver is back costs the attacher a retry.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: connectTimeout,
		}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("CSI driver at %s: %w", path, err)
	}
	if err := waitForDriver(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// driverDialer logs when the connection to the driver is lost and when it is
// back, once each.
type driverDialer struct {
	path   string
	logger klog.Logger

	mu        sync.Mutex
	connected bool // the last attempt worked
	lost      bool // it was connected once, and is not yet back
}

func (d *driverDialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	d.mu.Lock()
	if d.connected {
		d.logger.Info("The connection to the CSI driver is lost, connecting again", "socket", d.path)
		d.connected, d.lost = false, true
	}
	d.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", d.path)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost {
		d.logger.Info("Connected to the CSI driver again", "socket", d.path)
	}
	d.connected, d.lost = true, false
	return conn, nil
}

// waitForDriver returns nil once the driver behind conn is ready. It tries
// again on every error until ctx ends, unlike csi-lib-utils' ProbeForever, which
// gives up on most: a restart of this process would take the attacher with it.
func waitForDriver(ctx context.Context, conn *grpc.ClientConn) error {
	logger := klog.FromContext(ctx).WithValues("driver", conn.Target())
	var logged time.Time
	for {
		name, err := askDriver(ctx, conn)
		if err == nil {
			logger.Info("The CSI driver is ready", "name", name)
			return nil
		}
		if time.Since(logged) >= probeLogEvery {
			logger.Info("Waiting for the CSI driver", "reason", err.Error())
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped waiting for the CSI driver at %s (%w); it last answered: %w", conn.Target(), context.Cause(ctx), err)
		case <-time.After(probeInterval):
		}
	}
}

// askDriver returns the driver's name if it is ready.
func askDriver(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	probe, err := spec.NewIdentityClient(conn).Probe(ctx, &spec.ProbeRequest{})
	if err != nil {
		return "", fmt.Errorf("Identity.Probe: %w", err)
	}
	// The spec takes an absent value for ready.
	if probe.GetReady() != nil && !probe.GetReady().GetValue() {
		return "", errors.New("Identity.Probe: the driver says that it is not ready")
	}
	name, err := rpc.GetDriverName(ctx, conn)
	if err != nil {
		return "", fmt.Errorf("Identity.GetPluginInfo: %w", err)
	}
	return name, nil
}
