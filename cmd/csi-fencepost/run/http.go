package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

const (
	healthPath = "/healthz"
	ReadyPath  = "/readyz"

	// A scrape or a probe is short: what is slower than this is not one. The page has five
	// seconds to be put together.
	httpReadTimeout  = 10 * time.Second
	httpWriteTimeout = 30 * time.Second
	// Prometheus keeps its connection, and asks once a minute.
	httpIdleTimeout = 2 * time.Minute
	httpStopTimeout = 2 * time.Second

	// A token of a proxy's is a few kilobytes.
	httpMaxHeaderBytes = 32 << 10
)

// newServer serves a handler to whoever reaches the endpoint.
func newServer(handler http.Handler) *http.Server {
	open := &connections{moved: map[net.Conn]int64{}}
	return &http.Server{Handler: handler, ReadHeaderTimeout: httpReadTimeout, ReadTimeout: httpReadTimeout, WriteTimeout: httpWriteTimeout,
		IdleTimeout: httpIdleTimeout, MaxHeaderBytes: httpMaxHeaderBytes, ConnState: open.follow}
}

// newMux returns the handlers of --http-endpoint, leader election's excepted.
func newMux(m *sidecar.Metrics, metricsPath string, ready *sidecar.Readiness) *http.ServeMux {
	mux := http.NewServeMux()
	m.RegisterToServer(mux, metricsPath)
	// Alive is whoever answers. A driver or an API that is down is no reason to
	// be killed: the restart would mend neither, and end the attacher.
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle(ReadyPath, ready)
	return mux
}

// startHTTP serves a handler on a TCP address, over TLS if there is a certificate, until
// stop is called. An address that cannot be listened on is an error at once.
func startHTTP(ctx context.Context, address string, handler http.Handler, secure *certificate) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http-endpoint %s cannot be served: %w", address, err)
	}
	logger := klog.FromContext(ctx)
	logger.Info("Serving metrics and health", "address", listener.Addr().String(), "tls", secure != nil)
	if secure != nil {
		// No HTTP/2: the time-outs and the limit are of connections, and it has many requests in one.
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: secure.get, NextProtos: []string{"http/1.1"}})
	}
	server := newServer(handler)
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
