// csi-fencepost-webhook puts csi-fencepost into the pods of drivers' controllers as they are created, on
// an API server that has no MutatingAdmissionPolicy (before Kubernetes 1.36, but for the beta of 1.34). It
// applies the same policies (deploy/injection) with the API server's own code, so that what comes of them
// is the same. It reads nothing from the cluster but webhook configurations, which carry the policies, and
// its certificate's Secret, and writes nothing but that and the caBundle of those that call it.
//
// It is a module of its own: k8s.io/apiserver is no dependency of the sidecar.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	reviewv1 "k8s.io/api/admission/v1"
	names "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

const (
	// maxReview is more than an API server sends: it takes objects of 3 MiB.
	maxReview = 4 << 20
	// Whoever reaches the port may call, and decoded a review may be ten times as large. So few are
	// looked at at once, and so long each has to be here.
	reviewsAtOnce = 4
	readTimeout   = 5 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(plainWriter{os.Stderr}, "csi-fencepost-webhook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("csi-fencepost-webhook", pflag.ContinueOnError)
	listen := flags.String("listen", ":8443", "where the API server calls, over TLS: /mutate/POLICY and /validate/POLICY, with /DIGEST of the policy's manifests to be answered by no other of that name")
	endpoint := flags.String("http-endpoint", ":9810", "for /healthz, /readyz and /metrics, without TLS")
	service := flags.String("service", "csi-fencepost-webhook", "the Service by which the API server calls, in the namespace of POD_NAMESPACE. Each webhook configuration that names it is answered by the policy in its annotation "+policyKey)
	secret := flags.String("secret", "csi-fencepost-webhook", "the Secret of the certificate. It has to be there; what is in it is made")
	kubeconfig := flags.String("kubeconfig", "", "of the API server, where it is not the one of its pod")
	logs := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logs)
	flags.AddGoFlag(logs.Lookup("v"))
	if err := flags.Parse(args); err != nil {
		var invalid *pflag.InvalidValueError // of -v: all else is text
		if errors.As(err, &invalid) {
			return fmt.Errorf("-%s is %q: it has to be a whole number", invalid.GetFlag().Name, invalid.GetValue())
		}
		return err
	}
	if err := logPlainly(logs, os.Stderr); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: there are only flags", flags.Arg(0))
	}
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		return errors.New("POD_NAMESPACE is not set: the namespace of the Service and of the Secret")
	}
	if err := errors.Join(wrongAddress("--listen", *listen), wrongAddress("--http-endpoint", *endpoint),
		wrongName("--service", *service, names.IsDNS1123Label), wrongName("--secret", *secret, names.IsDNS1123Subdomain),
		wrongName("POD_NAMESPACE", namespace, names.IsDNS1123Label)); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("the Kubernetes API is not known: %w; inside of a pod its service account is used, outside give --kubeconfig", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	watched, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	hooks := &hooks{client: watched, namespace: namespace, service: *service}
	id := &identity{client: client, namespace: namespace, secret: *secret, hooks: hooks, host: *service + "." + namespace + ".svc"}
	calls, probes := newServer(handler(hooks.current.Load)), newServer(id.probes())
	calls.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: id.certificate}
	ended := make(chan error, 2)
	for _, s := range []struct {
		server  *http.Server
		flag    string
		address string
		serve   func(*http.Server, net.Listener) error
	}{
		{calls, "--listen", *listen, func(s *http.Server, l net.Listener) error { return s.ServeTLS(l, "", "") }},
		{probes, "--http-endpoint", *endpoint, (*http.Server).Serve},
	} {
		listener, err := net.Listen("tcp", s.address)
		if err != nil {
			return fmt.Errorf("%s %s cannot be served: %w", s.flag, s.address, err)
		}
		go func() { ended <- s.serve(s.server, listener) }()
		klog.FromContext(ctx).Info("Serving", "address", listener.Addr().String())
	}
	go func() {
		if err := hooks.watch(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read the webhook configurations")
			return
		}
		id.keep(ctx)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Whoever was about to call is sent elsewhere first: endpoints follow the pod's end by seconds.
	time.Sleep(5 * time.Second)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(calls.Shutdown(end), probes.Shutdown(end))
}

func wrongAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s is %q: it has to be host:port or :port, such as :8443: %w", flag, address, err)
	}
	return nil
}

func wrongName(what, name string, faults func(string) []string) error {
	if all := faults(name); len(all) > 0 {
		return fmt.Errorf("%s is %q, which is no name: %s", what, name, strings.Join(all, "; "))
	}
	return nil
}

// handler answers the API server. A policy that is not here is an error, and not a yes: another replica
// may know it already.
func handler(current func() *policies) http.Handler {
	turns := make(chan struct{}, reviewsAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var policy policy
		if p := current(); p != nil {
			policy = (*p)[r.URL.Path]
		}
		if policy == nil || r.Method != http.MethodPost {
			http.Error(w, "there is no policy at "+strconv.Quote(r.URL.Path), http.StatusNotFound)
			return
		}
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-r.Context().Done():
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // of HTTP/2 each request has its own
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		var review reviewv1.AdmissionReview
		if err := json.Unmarshal(text, &review); err != nil || review.Request == nil || review.APIVersion != reviewv1.SchemeGroupVersion.String() {
			http.Error(w, plain(fmt.Sprintf("this is no AdmissionReview of %s with a request (%v)", reviewv1.SchemeGroupVersion, err)), http.StatusBadRequest)
			return
		}
		review.Response, review.Request = policy.review(r.Context(), review.Request), nil
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			klog.FromContext(r.Context()).Error(err, "Cannot answer")
		}
	})
}

// probes are for the kubelet and for Prometheus.
func (i *identity) probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := i.serviceable(time.Now()); err != nil {
			http.Error(w, plain(err.Error()), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", legacyregistry.Handler())
	return mux
}
