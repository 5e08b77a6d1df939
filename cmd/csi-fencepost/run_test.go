package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/run"
)

const patience = 30 * time.Second

// driver is a CSI driver on a socket whose publish waits until it is released.
type driver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	entered chan string   // volume IDs of the publishes that came in
	release chan struct{} // closed: publishes answer
	lun     string        // what they answer
}

func startDriver(t *testing.T, socket string) *driver {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{entered: make(chan string, 10), release: make(chan struct{}), lun: "7"}
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, d)
	spec.RegisterControllerServer(server, d)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return d
}

func (d *driver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: "array.example.com", VendorVersion: "1"}, nil
}

func (d *driver) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	d.entered <- req.GetVolumeId()
	select {
	case <-d.release:
		return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"lun": d.lun}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// program is csi-fencepost as a process.
type program struct {
	*exec.Cmd
	stderr bytes.Buffer
	exited chan struct{}
	mu     sync.Mutex
}

// start runs csi-fencepost with the arguments; the test's end ends it.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	return startCommand(t, exec.Command(os.Args[0], args...))
}

func startCommand(t *testing.T, c *exec.Cmd) *program {
	t.Helper()
	p := &program{Cmd: c, exited: make(chan struct{})}
	p.Env = append(os.Environ(), asProgram+"=1", "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT=")
	p.Stderr = p
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.Wait(); close(p.exited) }()
	t.Cleanup(func() {
		p.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%s\n%s", strings.Join(c.Args, " "), p.log())
		}
	})
	return p
}

// Write takes the standard error of the process.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *program) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// code waits for the end of the process and returns its exit code.
func (p *program) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatal("it does not end")
		return 0
	}
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// freePort returns a loopback address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// readyz wants an answer of /readyz.
func readyz(address string, code int, text string) func() error {
	return func() error {
		resp, err := http.Get("http://" + address + run.ReadyPath)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != code || !strings.Contains(string(body), text) {
			return fmt.Errorf("readyz: %d %q, want %d %q", resp.StatusCode, body, code, text)
		}
		return nil
	}
}

// publish calls ControllerPublishVolume on a socket.
func publish(ctx context.Context, socket, volume string) (*spec.ControllerPublishVolumeResponse, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return spec.NewControllerClient(conn).ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: "n1"})
}

// sockets returns the driver's socket and ours, in folders of their own.
func sockets(t *testing.T) (driverSocket, listen string) {
	folder, err := os.MkdirTemp("", "run-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return filepath.Join(folder, "driver.sock"), filepath.Join(folder, "fencepost.sock")
}

func TestReadyOnceTheDriverAnswersAndTheSocketIsServed(t *testing.T) {
	csiAddress, listen := sockets(t)
	address := freePort(t)
	start(t, "run", "--no-kubernetes", "--csi-address="+csiAddress, "--listen="+listen, "--http-endpoint="+address)
	eventually(t, readyz(address, http.StatusServiceUnavailable, "[-] driver: it has not answered yet"))
	if _, err := os.Lstat(listen); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there before the driver is: %v", err)
	}
	d := startDriver(t, csiAddress)
	close(d.release)
	eventually(t, readyz(address, http.StatusOK, "[+] driver\n[+] socket\n"))
	resp, err := publish(t.Context(), listen, "v1")
	if err != nil || resp.GetPublishContext()["lun"] != "7" {
		t.Errorf("publish: %v %v", resp, err)
	}
}

func TestMaxMessageSizeIsAFlag(t *testing.T) {
	for flag, passes := range map[string]bool{"--v=0": false, "--max-message-size=6291456": true} {
		csiAddress, listen := sockets(t)
		d := startDriver(t, csiAddress)
		d.lun = strings.Repeat("7", 5<<20)
		close(d.release)
		address := freePort(t)
		start(t, "run", "--no-kubernetes", "--csi-address="+csiAddress, "--listen="+listen, "--http-endpoint="+address, flag)
		eventually(t, readyz(address, http.StatusOK, ""))
		conn, err := grpc.NewClient("unix://"+listen, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(8<<20)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = spec.NewControllerClient(conn).ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: "v1", NodeId: "n1"})
		conn.Close()
		if passes && err != nil || !passes && (err == nil || !strings.Contains(err.Error(), "--max-message-size")) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// A program that may open 300 files was deaf to its probes once 285 connections stood open.
func TestConnectionsThatSayNothingDoNotKeepTheProbesOut(t *testing.T) {
	csiAddress, listen := sockets(t)
	address := freePort(t)
	args := []string{"-c", `ulimit -n 300 && exec "$0" "$@"`, os.Args[0], "run", "--no-kubernetes", "--csi-address=" + csiAddress, "--listen=" + listen, "--http-endpoint=" + address}
	startCommand(t, exec.Command("sh", args...))
	eventually(t, readyz(address, http.StatusServiceUnavailable, "[-] driver"))
	for i := range 600 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%3 == 1 { // began a request
			_, err = conn.Write([]byte("G"))
		} else if i%3 == 2 { // had an answer, and is kept
			_, err = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"))
		}
		if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	probe := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 5 { // as a kubelet probes
		resp, err := probe.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatalf("the probe is not answered: %v", err)
		}
		resp.Body.Close()
	}
	// The driver's socket needs files too.
	d := startDriver(t, csiAddress)
	close(d.release)
	eventually(t, readyz(address, http.StatusOK, "[+] socket"))
}

// A text of several lines is written to the log as it is, but for what a terminal
// would act on.
func TestTheLogIsNoMoreThanText(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		_, listen := sockets(t)
		p := start(t, "run", "--no-kubernetes", "--csi-address=/nowhere\n\x1b[2J\u202e.sock", "--listen="+listen, "--logging-format="+format)
		eventually(t, func() error {
			if !strings.Contains(p.log(), "nowhere") {
				return errors.New("nothing is logged yet")
			}
			return nil
		})
		if strings.ContainsAny(p.log(), "\x1b\u202e") {
			t.Errorf("%s: %q", format, p.log())
		}
	}
}

func TestSIGTERMLetsTheCallInFlightFinish(t *testing.T) {
	csiAddress, listen := sockets(t)
	d := startDriver(t, csiAddress)
	address := freePort(t)
	p := start(t, "run", "--no-kubernetes", "--csi-address="+csiAddress, "--listen="+listen, "--http-endpoint="+address)
	eventually(t, readyz(address, http.StatusOK, ""))

	answer := make(chan error, 1)
	go func() {
		resp, err := publish(t.Context(), listen, "v1")
		if err == nil && resp.GetPublishContext()["lun"] != "7" {
			err = fmt.Errorf("answer %v", resp)
		}
		answer <- err
	}()
	<-d.entered
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, readyz(address, http.StatusServiceUnavailable, "[-] socket: stopping"))
	if _, err := publish(t.Context(), listen, "v2"); err == nil {
		t.Error("a new call is taken while stopping")
	}
	close(d.release)
	if err := <-answer; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if code := p.code(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(listen); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSecondSIGTERMEndsAtOnce(t *testing.T) {
	csiAddress, listen := sockets(t)
	d := startDriver(t, csiAddress)
	address := freePort(t)
	p := start(t, "run", "--no-kubernetes", "--csi-address="+csiAddress, "--listen="+listen, "--http-endpoint="+address)
	eventually(t, readyz(address, http.StatusOK, ""))
	go publish(t.Context(), listen, "v1")
	<-d.entered
	p.Process.Signal(syscall.SIGTERM)
	eventually(t, readyz(address, http.StatusServiceUnavailable, "[-] socket: stopping"))
	asked := time.Now()
	again := time.AfterFunc(time.Second, func() { p.Process.Signal(syscall.SIGTERM) }) // the first moments may pass over one
	defer again.Stop()
	p.Process.Signal(syscall.SIGTERM)
	p.code(t)
	if took := time.Since(asked); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestSIGTERMWhileWaitingForTheDriverEndsAtOnce(t *testing.T) {
	csiAddress, listen := sockets(t)
	address := freePort(t)
	p := start(t, "run", "--no-kubernetes", "--csi-address="+csiAddress, "--listen="+listen, "--http-endpoint="+address)
	eventually(t, readyz(address, http.StatusServiceUnavailable, "[-] driver"))
	p.Process.Signal(syscall.SIGTERM)
	if code := p.code(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestLostDriverIsNotReadyAndIsFoundAgain(t *testing.T) {
	csiAddress, listen := sockets(t)
	address := freePort(t)
	listener, err := net.Listen("unix", csiAddress)
	if err != nil {
		t.Fatal(err)
	}
	first := grpc.NewServer()
	spec.RegisterIdentityServer(first, &driver{})
	go first.Serve(listener)
	start(t, "run", "--no-kubernetes", "--csi-address="+csiAddress, "--listen="+listen, "--http-endpoint="+address)
	eventually(t, readyz(address, http.StatusOK, ""))
	first.Stop()
	eventually(t, readyz(address, http.StatusServiceUnavailable, "[-] driver: the connection is lost"))
	startDriver(t, csiAddress)
	eventually(t, readyz(address, http.StatusOK, ""))
}

func TestSocketOfACrashIsReplacedAndOfALivingProcessIsNot(t *testing.T) {
	csiAddress, listen := sockets(t)
	startDriver(t, csiAddress)
	address := freePort(t)
	args := []string{"run", "--no-kubernetes", "--csi-address=" + csiAddress, "--listen=" + listen, "--http-endpoint=" + address}
	crashed := start(t, args...)
	eventually(t, readyz(address, http.StatusOK, ""))
	crashed.Process.Kill()
	crashed.code(t)
	if _, err := os.Lstat(listen); err != nil {
		t.Fatalf("a crash is to leave the socket: %v", err)
	}
	start(t, args...)
	eventually(t, readyz(address, http.StatusOK, ""))

	other := start(t, "run", "--no-kubernetes", "--csi-address="+csiAddress, "--listen="+listen)
	if code := other.code(t); code != cli.ExitUsage || !strings.Contains(other.log(), listen) {
		t.Errorf("a second process on the socket: exit code %d, %q", code, other.log())
	}
	if err := readyz(address, http.StatusOK, "")(); err != nil {
		t.Errorf("the first one suffered: %v", err)
	}
}

func TestStartFailureSaysWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(folder, "broken.yaml")
	if err := os.WriteFile(broken, []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmood: Enforce\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	free := filepath.Join(folder, "l.sock")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"listen is a file":     {[]string{"--no-kubernetes", "--csi-address=/a", "--listen=" + file}, cli.ExitUsage, file},
		"listen is a folder":   {[]string{"--no-kubernetes", "--csi-address=/a", "--listen=" + folder}, cli.ExitUsage, folder},
		"listen in no folder":  {[]string{"--no-kubernetes", "--csi-address=/a", "--listen=/no/such/l.sock"}, cli.ExitUsage, "/no/such"},
		"listen is TCP":        {[]string{"--no-kubernetes", "--csi-address=/a", "--listen=tcp://:1"}, cli.ExitUsage, "tcp://:1"},
		"csi-address is TCP":   {[]string{"--no-kubernetes", "--csi-address=tcp://:1", "--listen=" + free}, cli.ExitUsage, "--csi-address: socket address \"tcp://:1\""},
		"no configuration":     {[]string{"--config=/no/such.yaml", "--csi-address=/a", "--listen=" + free}, cli.ExitUsage, "/no/such.yaml"},
		"unknown field":        {[]string{"--config=" + broken, "--csi-address=/a", "--listen=" + free}, cli.ExitUsage, "mood"},
		"no Kubernetes":        {[]string{"--csi-address=/a", "--listen=" + free}, cli.ExitFailure, "--no-kubernetes"},
		"no kubeconfig":        {[]string{"--kubeconfig=/no/such", "--csi-address=/a", "--listen=" + free}, cli.ExitFailure, "/no/such"},
		"http endpoint in use": {[]string{"--no-kubernetes", "--http-endpoint=" + taken.Addr().String(), "--csi-address=/a", "--listen=" + free}, cli.ExitFailure, "--http-endpoint"},
		"unknown log format":   {[]string{"--logging-format=xml", "--no-kubernetes", "--csi-address=/a", "--listen=" + free}, cli.ExitUsage, "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, append([]string{"run"}, c.args...)...)
			if code := p.code(t); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(p.log(), c.want) {
				t.Errorf("it does not say %q: %q", c.want, p.log())
			}
		})
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("the file at --listen was touched: %q %v", content, err)
	}
}

func TestLogsAreJSONWhenAskedForAndSayThatNothingIsGuarded(t *testing.T) {
	csiAddress, listen := sockets(t)
	startDriver(t, csiAddress)
	address := freePort(t)
	p := start(t, "run", "--no-kubernetes", "--logging-format=json", "--csi-address="+csiAddress, "--listen="+listen, "--http-endpoint="+address)
	eventually(t, readyz(address, http.StatusOK, ""))
	p.Process.Signal(os.Interrupt)
	if code := p.code(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	said := false
	for line := range strings.Lines(p.log()) {
		var entry struct{ Msg, Driver string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("not JSON: %q", line)
		}
		said = said || strings.HasPrefix(entry.Msg, "NOTHING IS GUARDED") && entry.Driver == "array.example.com"
	}
	if !said {
		t.Error("the log does not say that nothing is guarded")
	}
}
