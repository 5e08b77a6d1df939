package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/proxy/statusz"
)

const (
	healthPath = "/healthz"
	readyPath  = "/readyz"

	// A scrape or a probe is short: what is slower than this is not one.
	httpHeaderTimeout = 10 * time.Second
	httpStopTimeout   = 2 * time.Second
)

// readiness is what /readyz answers: ready once every named check passes. The
// zero readiness has no check and is not ready.
type readiness struct {
	mu     sync.Mutex
	names  []string
	checks map[string]func() error
}

// set adds a check, or replaces the one of that name. check returns why it is
// not ready, or nil; it is called at each question and must not block.
func (r *readiness) set(name string, check func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checks == nil {
		r.checks = map[string]func() error{}
	}
	if r.checks[name] == nil {
		r.names = append(r.names, name)
	}
	r.checks[name] = check
}

// checked are the checks, each with why it does not pass, and whether all pass.
func (r *readiness) checked() (ready bool, checks []statusz.Check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready, checks = len(r.names) > 0, []statusz.Check{}
	for _, name := range r.names {
		c := statusz.Check{Name: name}
		if err := r.checks[name](); err != nil {
			ready, c.Why = false, err.Error()
		}
		checks = append(checks, c)
	}
	return ready, checks
}

// report returns whether every check passes, and a line for each.
func (r *readiness) report() (ready bool, text string) {
	ready, checks := r.checked()
	var lines strings.Builder
	for _, c := range checks {
		if c.Why != "" {
			fmt.Fprintf(&lines, "[-] %s: %s\n", c.Name, c.Why)
		} else {
			fmt.Fprintf(&lines, "[+] %s\n", c.Name)
		}
	}
	return ready, lines.String()
}

// ServeHTTP answers 200 when ready, 503 when not, with the reasons.
func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	ready, text := r.report()
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprint(w, text)
}

// notReady is a check that does not pass, for the reason given.
func notReady(reason string) func() error {
	err := errors.New(reason)
	return func() error { return err }
}

// passes is a check that passes.
func passes() error { return nil }

// newMux returns the handlers of --http-endpoint, leader election's excepted.
func newMux(m *sidecarMetrics, metricsPath string, ready *readiness) *http.ServeMux {
	mux := http.NewServeMux()
	m.RegisterToServer(mux, metricsPath)
	// Alive is whoever answers. A driver or an API that is down is no reason to
	// be killed: the restart would mend neither, and end the attacher.
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle(readyPath, ready)
	return mux
}

// startHTTP serves mux on a TCP address until stop is called. An address that
// cannot be listened on is an error at once.
func startHTTP(ctx context.Context, address string, mux *http.ServeMux) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http-endpoint %s cannot be served: %w", address, err)
	}
	logger := klog.FromContext(ctx)
	logger.Info("Serving metrics and health", "address", listener.Addr().String())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: httpHeaderTimeout}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Guarding goes on without metrics: this is not worth the process.
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "Metrics and health are no longer served", "address", address)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), httpStopTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			server.Close()
		}
		<-done
	}, nil
}
