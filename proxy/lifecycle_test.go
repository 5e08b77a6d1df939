package proxy_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// ledgerOfRuns is what a driver ran, by the call's own ID.
type ledgerOfRuns struct {
	mu   sync.Mutex
	runs map[string]int
}

func (l *ledgerOfRuns) run(id string) {
	l.mu.Lock()
	l.runs[id]++
	l.mu.Unlock()
	time.Sleep(20 * time.Millisecond) // so that some are always in flight
}

// rollingDriver is a driver whose calls are counted.
func rollingDriver(t *testing.T) (*echoDriver, *ledgerOfRuns) {
	t.Helper()
	l := &ledgerOfRuns{runs: map[string]int{}}
	d := newDriver(t)
	d.onUnary = func(_ context.Context, in []byte) ([]byte, error) { l.run(string(in)); return in, nil }
	d.onPublish = func(_ context.Context, req *publishRequest) (*publishResponse, error) {
		l.run(req.GetVolumeId())
		return &publishResponse{}, nil
	}
	d.start(t)
	return d, l
}

func TestDriverThatStopsGracefullyLosesNoCallInFlightAndRunsNoneTwice(t *testing.T) {
	for _, way := range []string{"direct", "proxied"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			d, l := rollingDriver(t)
			path := d.path
			if way == "proxied" {
				path = startEdge(t, t.Context(), d, proxy.Options{}).path
			}
			outcomes := callThroughRestarts(t, d, path, 5)
			ok := 0
			for id, err := range outcomes {
				runs := l.runs[id]
				switch {
				case err == nil && runs == 1:
					ok++
				case err == nil:
					t.Errorf("call %s was answered and run %d times", id, runs)
				case status.Code(err) != codes.Unavailable:
					t.Errorf("call %s: %v, want success, or UNAVAILABLE while no driver is there", id, err)
				case runs != 0:
					t.Errorf("call %s was run %d times and its answer is lost: %v", id, runs, err)
				}
			}
			t.Logf("%d calls across 5 restarts: %d answered, %d came while no driver was there", len(outcomes), ok, len(outcomes)-ok)
			if ok < 20 {
				t.Errorf("only %d calls were answered", ok)
			}
		})
	}
}

// callThroughRestarts calls all the time while the driver is restarted, and
// returns how each call ended.
func callThroughRestarts(t *testing.T, d *echoDriver, path string, restarts int) map[string]error {
	t.Helper()
	var mu sync.Mutex
	outcomes := map[string]error{}
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for c := range 20 {
		// Back soon: a caller's usual wait is a second.
		conn := connect(t, path, grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond},
			MinConnectTimeout: 10 * time.Second,
		}))
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", c, i)
				err := identifiedCall(conn, id, c%2 == 0)
				mu.Lock()
				outcomes[id] = err
				mu.Unlock()
				if err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	for range restarts {
		time.Sleep(400 * time.Millisecond)
		d.stopGracefully()
		time.Sleep(50 * time.Millisecond)
		d.start(t)
	}
	time.Sleep(400 * time.Millisecond)
	close(stop)
	callers.Wait()
	return outcomes
}

func identifiedCall(conn *grpc.ClientConn, id string, judged bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if judged {
		_, err := spec.NewControllerClient(conn).ControllerPublishVolume(ctx, &publishRequest{VolumeId: id, NodeId: "n"})
		return err
	}
	_, err := callUnary(ctx, conn, []byte(id))
	return err
}

// grpc's default is 30 minutes at a client, and never at a server.
const idleTimeout = 2 * time.Second

func TestIdleConnectionsSurviveTheIdleTimeoutOfEitherSide(t *testing.T) {
	serverSide := grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout})
	for name, side := range map[string]struct {
		driver []grpc.ServerOption // the driver closes what is idle
		proxy  []grpc.DialOption   // the proxy does, towards the driver
		caller []grpc.DialOption   // the caller does
	}{
		"none":               {},
		"driver":             {driver: []grpc.ServerOption{serverSide}},
		"proxy":              {proxy: []grpc.DialOption{grpc.WithIdleTimeout(idleTimeout)}},
		"caller":             {caller: []grpc.DialOption{grpc.WithIdleTimeout(idleTimeout)}},
		"driver and callers": {driver: []grpc.ServerOption{serverSide}, proxy: []grpc.DialOption{grpc.WithIdleTimeout(idleTimeout)}, caller: []grpc.DialOption{grpc.WithIdleTimeout(idleTimeout)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver(t)
			d.start(t, side.driver...)
			o := proxy.Options{}
			if side.proxy != nil {
				conn, err := grpc.NewClient("unix://"+d.path, append(side.proxy, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				o.Driver = conn
			}
			conn := connect(t, startEdge(t, t.Context(), d, o).path, side.caller...)
			// Around the moment at which the connection is closed, too.
			for _, idle := range []time.Duration{0, idleTimeout - 5*time.Millisecond, idleTimeout, idleTimeout + 5*time.Millisecond, idleTimeout + 600*time.Millisecond} {
				time.Sleep(idle)
				for i := range 3 {
					id := fmt.Sprintf("%s %d", idle, i)
					if err := identifiedCall(conn, id, i%2 == 0); err != nil {
						t.Errorf("call %d after %s of silence: %v", i, idle, err)
					}
				}
			}
		})
	}
}

// slowListener hands over each connection only after a while, as a driver does
// that gets little of a busy machine.
type slowListener struct {
	net.Listener
	delay time.Duration
}

func (l slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	time.Sleep(l.delay)
	return conn, err
}

func TestDriverThatIsSlowToGreetIsConnectedTo(t *testing.T) {
	d := newDriver(t)
	socket, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, d)
	go func() { _ = server.Serve(slowListener{socket, 1500 * time.Millisecond}) }() // longer than between two attempts
	t.Cleanup(server.Stop)
	dialDriver(t, d)
}
