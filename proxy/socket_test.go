package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// staleSocket leaves a socket at path as a crash does: nobody listens.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	socket.SetUnlinkOnClose(false)
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestListenAddressThatCannotBeServedIsAClearError(t *testing.T) {
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	used := filepath.Join(dir, "used.sock")
	socket, err := net.Listen("unix", used)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()

	for address, want := range map[string]string{
		"":                             "neither unix:///path nor /path",
		"csi.sock":                     "neither unix:///path nor /path",
		"unix://csi.sock":              "neither unix:///path nor /path",
		"unix:/run/csi.sock":           "neither unix:///path nor /path",
		"tcp://127.0.0.1:1":            "neither unix:///path nor /path",
		"127.0.0.1:1":                  "neither unix:///path nor /path",
		"/" + strings.Repeat("x", 107): "has 108 bytes, the system allows 107",
		dir + "/missing/csi.sock":      "folder " + dir + "/missing does not exist",
		file + "/csi.sock":             file + " is not a folder",
		dir:                            "it is a directory; name a file in it, such as " + dir + "/csi.sock",
		"unix://" + dir:                "it is a directory",
		file:                           "is not a socket",
		link:                           "is not a socket",
		used:                           "another process serves this socket",
		"unix://" + used:               "another process serves this socket",
	} {
		if err := proxy.CheckListen(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", address, err, want)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("the file was touched: %q, %v", content, err)
	}
	conn, err := net.Dial("unix", used)
	if err != nil {
		t.Fatalf("the socket in use was touched: %v", err)
	}
	_ = conn.Close()
}

func TestListenAddressThatCanBeServedPassesAndIsNotTouched(t *testing.T) {
	dir := shortDir(t)
	stale := filepath.Join(dir, "stale.sock")
	staleSocket(t, stale)
	longest := dir + "/" + strings.Repeat("x", 107-len(dir)-1) // that the system allows
	for _, address := range []string{stale, "unix://" + stale, dir + "/new.sock", "unix://" + dir + "/new.sock", longest, "unix://" + longest} {
		if err := proxy.CheckListen(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := os.Lstat(stale); err != nil {
		t.Errorf("a check removed the stale socket: %v", err)
	}
}

func TestStaleSocketOfACrashIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "csi.sock")
	staleSocket(t, path)
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{Listen: "unix://" + path})
	if _, err := callUnary(t.Context(), connect(t, path), nil); err != nil {
		t.Error(err)
	}
	_ = e
}

// The check of New may be long ago when the driver is ready at last.
func TestSocketThatCameIntoUseMeanwhileIsNotTaken(t *testing.T) {
	d := startDriver(t)
	path := filepath.Join(shortDir(t), "csi.sock")
	server, err := proxy.New(proxy.Options{Listen: path, Driver: dialDriver(t, d), Guard: proxy.Pass()})
	if err != nil {
		t.Fatal(err)
	}
	first := startEdge(t, t.Context(), d, proxy.Options{Listen: path})
	if err := server.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "another process serves this socket") {
		t.Errorf("the second server: %v", err)
	}
	if _, err := callUnary(t.Context(), first.ClientConn, nil); err != nil {
		t.Errorf("the first server: %v", err)
	}
}

func TestEveryUserMayConnect(t *testing.T) {
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{})
	info, err := os.Lstat(e.path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != os.ModeSocket|0o666 {
		t.Errorf("mode %s, want a socket with 0666", got)
	}
}

// Whoever may write to the folder of the socket puts a link in its place as soon
// as it is there.
func TestALinkInTheSocketsPlaceIsNotFollowed(t *testing.T) {
	d := startDriver(t)
	dir := shortDir(t)
	for round := range 50 {
		path := filepath.Join(dir, fmt.Sprintf("%d.sock", round))
		precious, link := path+".precious", path+".link"
		if err := errors.Join(os.WriteFile(precious, nil, 0o600), os.Symlink(precious, link)); err != nil {
			t.Fatal(err)
		}
		swapped := make(chan error)
		go func() {
			for wait := time.Now().Add(10 * time.Second); time.Now().Before(wait); {
				if _, err := os.Lstat(path); err == nil {
					swapped <- os.Rename(link, path)
					return
				}
			}
			swapped <- errors.New("no socket came")
		}()
		e := startEdge(t, t.Context(), d, proxy.Options{Listen: path})
		if err := <-swapped; err != nil {
			t.Fatal(err)
		}
		if err := e.stop(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(precious); err != nil || info.Mode() != 0o600 {
			t.Fatalf("round %d: the file that the link names has mode %v (%v)", round, info.Mode(), err)
		}
	}
}

func TestSocketIsRemovedAtTheStop(t *testing.T) {
	log := new(lockedBuffer)
	e := startEdge(t, logged(t, log), startDriver(t), proxy.Options{})
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(e.path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if strings.Contains(log.String(), "stays behind") {
		t.Errorf("it is gone, and the log says:\n%s", log)
	}
}

func TestSocketThatCannotBeRemovedIsToldOf(t *testing.T) {
	log := new(lockedBuffer)
	folder := filepath.Join(shortDir(t), "sockets")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	e := startEdge(t, logged(t, log), startDriver(t), proxy.Options{Listen: filepath.Join(folder, "csi.sock")})
	if err := os.Rename(folder, folder+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // no folder any more
		t.Fatal(err)
	}
	if err := e.stop(); err != nil {
		t.Errorf("it keeps the stop from being clean: %v", err)
	}
	if got := log.String(); !strings.Contains(got, "stays behind") || !strings.Contains(got, "not a directory") {
		t.Errorf("the log does not say it, and why:\n%s", got)
	}
}

func TestSocketOfAnotherIsNotRemovedAtTheStop(t *testing.T) {
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{})
	if err := os.Remove(e.path); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", e.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", e.path)
	if err != nil {
		t.Fatalf("the other's socket is gone: %v", err)
	}
	_ = conn.Close()
}

func TestDialRefusesAnAddressThatCanNeverBeADriver(t *testing.T) {
	dir := shortDir(t)
	for address, want := range map[string]string{
		"dns:///driver:1": "neither unix:///path nor /path",
		dir:               "is a directory",
	} {
		if _, err := proxy.Dial(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
}

func TestDialWaitsForAReadyDriverAndSaysSo(t *testing.T) {
	log := new(lockedBuffer)
	ctx := logged(t, log)
	answers := make(chan *spec.ProbeResponse, 3)
	var probes atomic.Int64
	d := newDriver(t)
	d.onProbe = func(context.Context) (*spec.ProbeResponse, error) {
		probes.Add(1)
		select {
		case answer := <-answers:
			return answer, nil
		default:
			return nil, status.Error(codes.FailedPrecondition, "the array is away")
		}
	}
	dialed := make(chan error, 1)
	go func() {
		conn, err := proxy.Dial(ctx, "unix://"+d.path)
		if err == nil {
			err = conn.Close()
		}
		dialed <- err
	}()
	stillWaits := func(why string) {
		t.Helper()
		select {
		case err := <-dialed:
			t.Fatalf("%s: Dial returned %v", why, err)
		case <-time.After(500 * time.Millisecond):
		}
	}
	stillWaits("no socket")
	if !strings.Contains(log.String(), "no such file or directory") {
		t.Errorf("the log does not say what is missing:\n%s", log)
	}
	d.start(t)
	stillWaits("a driver whose Probe fails")
	if n := probes.Load(); n > 10 {
		t.Errorf("a driver that is not ready was asked %d times in half a second", n)
	}
	answers <- &spec.ProbeResponse{Ready: wrapperspb.Bool(false)}
	stillWaits("a driver that is not ready")
	answers <- &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}
	select {
	case err := <-dialed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Dial still waits for a ready driver")
	}
	if n := strings.Count(log.String(), "Waiting for the CSI driver"); n > 2 { // in about 2 s
		t.Errorf("the log says %d times what is waited for:\n%s", n, log)
	}
}

func TestDialEndsWithItsContextAndSaysWhatWasMissing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := proxy.Dial(ctx, filepath.Join(shortDir(t), "none.sock"))
	if err == nil || !strings.Contains(err.Error(), "none.sock") || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		t.Errorf("got %v", err)
	}
}

func TestLossAndReturnOfTheDriverAreLoggedOnce(t *testing.T) {
	log := new(lockedBuffer)
	ctx := logged(t, log)
	d := startDriver(t)
	conn, err := proxy.Dial(ctx, d.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	e := startEdge(t, ctx, d, proxy.Options{Driver: conn})
	d.kill()
	for range 20 {
		_, _ = callUnary(t.Context(), e.ClientConn, nil)
		time.Sleep(20 * time.Millisecond)
	}
	d.start(t)
	for wait := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := callUnary(t.Context(), e.ClientConn, nil); err == nil {
			break
		} else if time.Now().After(wait) {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"is lost", "Connected to the CSI driver again"} {
		if n := bytes.Count([]byte(log.String()), []byte(want)); n != 1 {
			t.Errorf("%q is in the log %d times, want once:\n%s", want, n, log)
		}
	}
}
