package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	libconfig "github.com/kubernetes-csi/csi-lib-utils/config"
	csileader "github.com/kubernetes-csi/csi-lib-utils/leaderelection"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// Command is `csi-fencepost run`.
func Command() cli.Command {
	return cli.Command{Name: "run", Summary: "the sidecar: serve external-attacher, guard the driver", Run: runSidecar}
}

// runSidecar is `csi-fencepost run`.
func runSidecar(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseRunFlags(args)
	if err == nil {
		err = checkSockets(f)
	}
	if err == nil {
		err = start(ctx, f, (*runner).run, stdout, stderr)
	}
	if errors.Is(err, errVersion) {
		return cli.PrintVersion(ctx, nil, stdout, stderr)
	}
	return err
}

// checkSockets finds what is no address of a socket.
func checkSockets(f *runFlags) error {
	if err := proxy.CheckListen(f.listen); err != nil {
		return cli.Usagef("run: --listen: %v", err)
	}
	if err := proxy.CheckDial(f.CSIAddress); err != nil {
		return cli.Usagef("run: --csi-address: %v", err)
	}
	return nil
}

// start runs a process of these flags.
func start(ctx context.Context, f *runFlags, run func(*runner, context.Context) error, stdout, stderr io.Writer) error {
	s, err := newRunner(f)
	if err != nil {
		return err
	}
	logs.InitLogs()
	// A log is looked at on a terminal, and a text of several lines would stand in it as it is:
	// so it goes where all that is printed goes, and not to os.Stderr.
	streams := &logsapi.LoggingOptions{ErrorStream: stderr, InfoStream: stdout}
	if err := logsapi.ValidateAndApplyWithOptions(f.logging, streams, f.gates); err != nil {
		return cli.Usagef("%s: --logging-format or another log flag: %v", f.name, err)
	}
	saveMemory()
	return run(s, ctx)
}

// A runner is what `run` starts, or failover (failover.go), which has neither driver nor
// socket; in this order: HTTP, the driver's connection,
// the guard, the socket. It stops in the opposite order.
type runner struct {
	flags  *runFlags
	config *config.Configuration
	rest   *rest.Config // nil with --no-kubernetes
	// election is nil where every replica does the background work.
	election *election
	// certificate is nil where --http-endpoint is served without TLS.
	certificate *certificate

	metrics *sidecar.Metrics
	ready   *sidecar.Readiness
	leader  *leaderHealth
	board   *sidecar.Board
}

// newRunner checks everything that can be checked before anything is started.
func newRunner(f *runFlags) (*runner, error) {
	s := &runner{flags: f, metrics: sidecar.NewMetrics(), ready: &sidecar.Readiness{}, leader: newLeaderHealth()}
	var err error
	if f.tlsCert != "" {
		if s.certificate, err = readCertificate(f.tlsCert, f.tlsKey); err != nil {
			return nil, cli.Usagef("%s: %v", f.name, err)
		}
	}
	if !f.noKubernetes {
		if s.config, err = cluster.LoadConfig(f.config); err != nil {
			return nil, cli.Usagef("%s: --config: %v", f.name, err)
		}
		if err := s.checkConfig(); err != nil {
			return nil, cli.Usagef("%s: --config: configuration %s: %v", f.name, cmp.Or(f.config, "(none is given, every default holds)"), err)
		}
		if s.rest, err = restConfig(f); err != nil {
			return nil, err
		}
		if s.election, err = s.newElection(); err != nil {
			return nil, err
		}
	}
	s.board = sidecar.NewBoard(cli.BuildVersion(), s.config, f.LeaderElection, s.ready)
	return s, nil
}

// checkConfig is what each of the subcommands asks of a configuration, its agents included.
func (s *runner) checkConfig() error {
	check := s.config.CheckRun
	if s.flags.name == failoverName {
		check = s.config.CheckApart
	}
	if err := check(); err != nil {
		return err
	}
	return s.checkAgents()
}

// checkAgents makes the fence agents that need no driver, and lets them go: one that
// cannot be made is found before the driver is waited for. In mode Observe it is left to
// the readiness, which says it while calls are forwarded (sidecar.New).
func (s *runner) checkAgents() error {
	if s.config.Mode == config.Observe {
		return nil
	}
	return errors.Join(sidecar.NewAgents(s.config, s.flags.agentDirs, sidecar.DriverSide{}).Faults...)
}

// newElection makes the client too where nobody is elected: what is wrong with the way
// to the Kubernetes API is found before the driver is waited for.
func (s *runner) newElection() (*election, error) {
	client, err := kubernetes.NewForConfig(s.rest)
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API cannot be reached as the kubeconfig says: %w", err)
	}
	if !s.flags.LeaderElection {
		return nil, nil
	}
	return newElection(client, s.flags, s.leader)
}

// restConfig says how the Kubernetes API is reached.
func restConfig(f *runFlags) (*rest.Config, error) {
	c, err := libconfig.BuildConfig(f.KubeConfig, f.SidecarConfiguration)
	if err != nil {
		or := " (or --no-kubernetes, which guards nothing)"
		if f.name == failoverName {
			or = ""
		}
		return nil, fmt.Errorf("the Kubernetes API is not known: %w; inside of a pod its service account is used, outside give --kubeconfig%s", cluster.ExplainKubeconfig(err), or)
	}
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.Wrap(limitReadAhead)
	return rest.AddUserAgent(c, "csi-fencepost/"+cli.BuildVersion()), nil
}

// run serves until ctx ends; then the calls in flight finish.
func (s *runner) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	logger.Info("csi-fencepost", "version", cli.BuildVersion(), "csiAddress", s.flags.CSIAddress, "listen", s.flags.listen)

	if !s.flags.noKubernetes {
		adviseAttacher(ctx)
	}
	s.ready.Set("driver", sidecar.NotReady("it has not answered yet"))
	s.ready.Set("socket", sidecar.NotReady("it is not served yet"))
	s.metrics.ReadyIs(s.ready)
	stop, err := s.startHTTP(ctx)
	if err != nil {
		return err
	}
	defer stop()

	conn, driver, err := s.connect(ctx)
	if ctx.Err() != nil {
		return nil // stopped while it waited for the driver
	} else if err != nil {
		return err
	}
	defer conn.Close()
	s.metrics.SetDriverName(driver)
	s.board.SetDriver(driver)
	s.ready.Set("driver", driverReady(conn))

	// What the guard runs on outlives ctx: calls in flight are still judged.
	guardCtx, stopGuard := context.WithCancel(context.WithoutCancel(ctx))
	defer stopGuard()
	// Until it is built, which waits for the Kubernetes API, ctx ends it too.
	built := context.AfterFunc(ctx, stopGuard)
	guard, background, err := s.guard(guardCtx, conn, driver)
	built()
	if ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	keepMemory()
	defer s.startBackground(ctx, cluster.LockName(driver), background)()
	return s.serve(ctx, conn, guard)
}

// startHTTP serves --http-endpoint, if there is one, until stop is called.
func (s *runner) startHTTP(ctx context.Context) (stop func(), err error) {
	if s.flags.HttpEndpoint == "" {
		return func() {}, nil
	}
	handler, err := s.handler()
	if err != nil {
		return nil, err
	}
	return startHTTP(ctx, s.flags.HttpEndpoint, handler, s.certificate)
}

// handler serves --http-endpoint to those who may see it.
func (s *runner) handler() (http.Handler, error) {
	if s.flags.authorize {
		return authorize(s.mux(), s.rest)
	}
	return s.mux(), nil
}

// mux has all that --http-endpoint serves.
func (s *runner) mux() *http.ServeMux {
	mux := newMux(s.metrics, s.flags.MetricsPath, s.ready)
	s.board.Serve(mux)
	if s.flags.LeaderElection {
		mux.Handle(csileader.HealthCheckerAddress, s.leader)
	}
	return mux
}

// connect waits for the driver, however long that takes, and asks its name.
func (s *runner) connect(ctx context.Context) (*grpc.ClientConn, string, error) {
	conn, err := proxy.DialWith(ctx, s.flags.CSIAddress, s.flags.maxMessage)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.flags.timeout)
	defer cancel()
	driver, err := rpc.GetDriverName(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, "", fmt.Errorf("the driver on %s does not tell its name: %w", s.flags.CSIAddress, err)
	}
	return conn, driver, nil
}

// serve serves the socket until ctx ends.
func (s *runner) serve(ctx context.Context, conn *grpc.ClientConn, guard proxy.Guard) error {
	server, err := proxy.New(proxy.Options{
		Listen:         s.flags.listen,
		Driver:         conn,
		Guard:          guard,
		Recorder:       s.metrics,
		MaxMessageSize: s.flags.maxMessage,
	})
	if err != nil {
		return err
	}
	s.ready.Set("socket", func() error {
		select {
		case <-ctx.Done():
			return errors.New("stopping")
		case <-server.Serving():
			return nil
		default:
			return errors.New("it is not served yet")
		}
	})
	return server.Serve(ctx)
}

// driverReady passes while the driver is connected. It has a lost connection
// made again, which otherwise waits for the next call.
func driverReady(conn *grpc.ClientConn) func() error {
	return func() error {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		conn.Connect()
		return fmt.Errorf("the connection is lost (%s)", state)
	}
}

// guard returns the guard of the two calls and its background work.
func (s *runner) guard(ctx context.Context, conn *grpc.ClientConn, driver string) (proxy.Guard, func(context.Context) error, error) {
	if s.flags.noKubernetes {
		klog.FromContext(ctx).Info("NOTHING IS GUARDED: --no-kubernetes forwards every call", "driver", driver)
		return proxy.Pass(), nil, nil
	}
	s.ready.Set("guard", sidecar.NotReady("it waits for the Kubernetes API"))
	rights, err := sidecar.CheckRights(ctx, s.rest, s.config, driver, s.flags.authorize)
	if err != nil {
		return nil, nil, err
	}
	s.ready.Set("rights", rights)
	guard, background, err := sidecar.New(ctx, sidecar.Options{
		Driver:    driver,
		Conn:      conn,
		Rest:      s.rest,
		Config:    s.config,
		AgentDirs: s.flags.agentDirs,
		Timeout:   s.flags.timeout,
		Metrics:   s.metrics,
		Board:     s.board,
		Rejudged:  waiting.Rejudged,
		Lead:      func() error { return s.leader.Check(nil) },
		Ready:     func(check func() error) { s.ready.Set("guard", check) },
	})
	if err != nil {
		return nil, nil, err
	}
	return guard, background, nil
}

// startBackground runs the background work, on the leader only if there is an
// election, until ctx ends. lock is the name of the leader's Lease. wait returns once it has ended.
func (s *runner) startBackground(ctx context.Context, lock string, background func(context.Context) error) (wait func()) {
	if background == nil {
		return func() {}
	}
	work := func(ctx context.Context) {
		s.board.SetLeads(true)
		defer s.board.SetLeads(false)
		sidecar.KeepRunning(ctx, background)
	}
	ctx, cancel := context.WithCancel(ctx)
	running := sync.WaitGroup{}
	wait = func() { cancel(); running.Wait() }
	if s.election == nil {
		running.Go(func() { work(ctx) })
		return wait
	}
	s.election.lock = lock
	running.Go(func() {
		if err := s.election.run(ctx, work); err != nil {
			klog.FromContext(ctx).Error(err, "No background work without leader election")
		}
	})
	return wait
}
