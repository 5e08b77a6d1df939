package run

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	csileader "github.com/kubernetes-csi/csi-lib-utils/leaderelection"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

const (
	// electionJitter is how much longer than its period a retry may take.
	electionJitter = leaderelection.JitterFactor

	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	// maxNamespaceFile, in bytes, is far more than a name has.
	maxNamespaceFile = 4 << 10
)

// election runs work on the one replica that leads. It does what csi-lib-utils'
// leader election does, with the same flags, Lease and health check, except
// that losing the lead ends only the work and not the process: the calls of
// this pod's attacher are served whoever leads, and so also while the API
// server, and with it the lead, is away.
type election struct {
	client    kubernetes.Interface
	namespace string
	lock      string
	identity  string
	flags     *runFlags
	health    *leaderHealth
}

// newElection returns an election; lock is yet to be set, by the driver's name. It asks
// nobody. client is its own, so that its renewals do not queue behind a storm of other
// requests.
func newElection(client kubernetes.Interface, f *runFlags, health *leaderHealth) (*election, error) {
	identity, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election needs the host's name: %w", err)
	}
	namespace := f.LeaderElectionNamespace
	if namespace == "" {
		namespace = podNamespace()
		for _, fault := range validation.IsDNS1123Label(namespace) {
			return nil, cli.Usagef("%s: leader election: the pod's namespace is %q (variable POD_NAMESPACE, else file %s): it has to be the name of a namespace: %s", f.name, namespace, namespaceFile, fault)
		}
	}
	return &election{
		client:    client,
		namespace: namespace,
		identity:  identity,
		flags:     f,
		health:    health,
	}, nil
}

// run takes part in the election until ctx ends, and runs work while leading.
// The context of work ends with the lead; the lead is given up only after work
// has returned.
func (e *election) run(ctx context.Context, work func(context.Context)) error {
	working := make(chan struct{}, 1) // full while work runs: one at a time, across terms
	// The lead outlives ctx by the time that work takes to return.
	term, endTerm := context.WithCancel(context.WithoutCancel(ctx))
	defer endTerm()
	defer context.AfterFunc(ctx, func() {
		working <- struct{}{}
		endTerm()
		<-working
	})()
	started := func(lead context.Context) {
		working <- struct{}{}
		defer func() { <-working }()
		lead, cancel := context.WithCancel(lead)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		if ctx.Err() == nil {
			work(lead)
		}
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(e.config(ctx, started))
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
		e.health.SetLeaderElection(elector)
		elector.Run(term)
	}
	return nil
}

func (e *election) config(ctx context.Context, started func(context.Context)) leaderelection.LeaderElectionConfig {
	logger := klog.FromContext(ctx)
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.namespace, Name: e.lock},
			Client:     e.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
			Labels:     e.flags.LeaderElectionLabels,
		},
		LeaseDuration:   e.flags.LeaderElectionLeaseDuration,
		RenewDeadline:   e.flags.LeaderElectionRenewDeadline,
		RetryPeriod:     e.flags.LeaderElectionRetryPeriod,
		ReleaseOnCancel: true,
		Name:            e.lock,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: started,
			OnStoppedLeading: func() {
				logger.Info("Not leading; what every replica does goes on as before", "lease", klog.KRef(e.namespace, e.lock))
			},
			OnNewLeader: func(identity string) {
				logger.Info("Leader of the background work", "leader", identity, "me", identity == e.identity)
			},
		},
	}
}

// leaderHealth is the health check of leader election. Before there is an
// election it passes.
type leaderHealth struct{ *leaderelection.HealthzAdaptor }

func newLeaderHealth() *leaderHealth {
	return &leaderHealth{leaderelection.NewLeaderHealthzAdaptor(csileader.DefaultHealthCheckTimeout)}
}

// ServeHTTP answers 500 when the lead was neither renewed nor given up long
// after it ran out.
func (h *leaderHealth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "ok")
}

// podNamespace is the namespace this pod runs in, found as csi-lib-utils does.
func podNamespace() string {
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		return ns
	}
	if data, err := file.Read(namespaceFile, maxNamespaceFile); err == nil {
		if ns := strings.TrimSpace(string(data)); ns != "" {
			return ns
		}
	}
	return metav1.NamespaceDefault
}
