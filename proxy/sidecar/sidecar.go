package sidecar

import (
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
)

// New wires the guard:
//
//	watch ──▶ survey ──▶ guard ──▶ report ──▶ waiting ──▶ (VolumeAttachment)
//	  ├▶ liveness ─┘ └── sources ◀── fencer ◀── agents
//	  │     │               ▲          ▲
//	  │     └───────────────┴──── failover ──▶ (taint, pods)
//	  └── changes ──▶ waiting, failover
//
// It returns the guard of the two calls, for proxy.Options, and its background
// work, which runs on one replica at a time and may be begun again (KeepRunning).
// What it starts itself ends with ctx. In mode Enforce it waits, until ctx ends, for
// the Kubernetes API and for its caches, and asks the driver for its name and
// capabilities; an error names which of them failed, or the fence agents that cannot
// be made. In mode Observe it waits for observePatience at most, and then forwards.
func New(ctx context.Context, in Options) (proxy.Guard, func(context.Context) error, error) {
	in = in.withDefaults()
	agents := len(in.Config.Fencing.Levels) > 0
	if in.Levels != nil {
		agents = len(in.Levels) > 0
	}
	if err := in.Config.ValidateWith(agents).ToAggregate(); err != nil {
		return nil, nil, fmt.Errorf("the configuration: %w", err)
	}
	if err := in.Config.CheckRun(); err != nil {
		return nil, nil, fmt.Errorf("the configuration: %w", err)
	}
	if in.Config.Mode == config.Observe {
		o := observing(ctx, in)
		return o, o.run, nil
	}
	return judging(ctx, in)
}

// judging is New once there is all that a judgement needs.
func judging(ctx context.Context, in Options) (proxy.Guard, func(context.Context) error, error) {
	var limit *throttle.Limiter
	limited := rest.CopyConfig(in.Rest)
	if in.Rest.QPS > 0 {
		limit = throttle.New(in.Rest.QPS, in.Rest.Burst)
		limited.RateLimiter = limit
	}
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return nil, nil, err
	}
	// What fences, and what asks in the nodes' records, waits behind no call.
	vital, err := kubernetes.NewForConfig(rest.CopyConfig(in.Rest))
	if err != nil {
		return nil, nil, err
	}
	// Behind neither waits what tells whether the API server answers: where that is late, no node
	// is silent.
	probed, err := kubernetes.NewForConfig(rest.CopyConfig(in.Rest))
	if err != nil {
		return nil, nil, err
	}
	// Nor does a call wait for Events.
	events, err := kubernetes.NewForConfig(rest.CopyConfig(in.Rest))
	if err != nil {
		return nil, nil, err
	}
	cluster, err := clusterUID(ctx, client, in.Ready)
	if err != nil {
		return nil, nil, err
	}
	driver, err := csi.NewDriver(ctx, in.Conn)
	if err != nil {
		return nil, nil, err
	}
	ids := driver.Identity()
	if in.Driver == "" {
		in.Driver = ids.Driver
	}
	if in.Driver != ids.Driver {
		return nil, nil, fmt.Errorf("the driver calls itself %s, and not %s", ids.Driver, in.Driver)
	}
	tracker := observe.NewTracker(in.Config.Fencing.SuspectAfter.Duration, in.Config.Fencing.MaxUnhealthy.Share())
	watch := observe.New(client, tracker, in.Config.Fencing.Namespace, ids)
	index := watch.Index(ids.Driver)
	index.KeepRefused()
	wake := new(wakeUps)
	on := ground{client: client, vital: vital, objects: client.CoreV1().RESTClient(), cluster: cluster, driver: driver,
		index: index, tracker: tracker, limit: limit, answered: wake.node}
	rounds, err := asksKubelets(in, index, &on)
	if err != nil {
		return nil, nil, err
	}
	c, err := newCore(ctx, in, on)
	if err != nil {
		return nil, nil, err
	}
	c.fencing.identify(in, index)
	calls := waiting.New(client, c.surveyor, in.Metrics.Waiting)
	report := waiting.NewReport(events, newRecorder(ctx, events, ids.Driver), in.Metrics, calls)
	sights := newSighting(client, index, c.sources)
	context.AfterFunc(ctx, sights.queue.ShutDown)
	wake.add(calls.Changed)
	if c.seal != nil {
		c.seal.OnPutOn = calls.LookAgain
	}
	mover, err := newFailover(ctx, in, ids, index, c)
	if err != nil {
		return nil, nil, err
	}
	if mover != nil {
		wake.add(func(c observe.Change) { mover.Changed(c.Node) })
	}

	answering := c.fencing.answerer()
	watch.OnChange(wake.all)
	watch.OnRecord(func(node string, lease *coordinationv1.Lease) {
		if c.fencing.apart != nil {
			c.fencing.apart.Changed(node)
		}
		if answering != nil {
			answering.Saw(lease)
		}
	})
	index.OnNode(func(n *corev1.Node) {
		sights.saw(n)
		if rounds != nil {
			rounds.Saw(n)
		}
	})
	tracker.OnStale(wake.node)
	probe := func(ctx context.Context) { tracker.Probe(ctx, answers(probed)) }
	for _, run := range []func(context.Context){watch.Run, tracker.Run, probe, calls.Run, report.Run} {
		go run(ctx)
	}
	in.Ready(watch.Ready)
	if err := watch.WaitReady(ctx); err != nil {
		return nil, nil, err
	}
	index.EachRefused(func(va *storagev1.VolumeAttachment, handle string) {
		calls.Recover(va, handle, index.NodeID(va.Spec.NodeName))
	})
	if rounds != nil {
		go rounds.Run(ctx)
	}
	klog.FromContext(ctx).Info("Guarding", "driver", ids.Driver, "mode", in.Config.Mode, "cluster", cluster)
	g := c.guard(report)
	in.Board.setParts(&boardParts{levels: c.fencing.fencer.Levels, waiting: calls, recent: &report.Recent, underWay: g.UnderWay,
		index: index, lives: tracker, records: c.surveyor.Records, mover: mover})
	return bounded(g, calls, in), background(client, sights, c.fencing, answering, mover), nil
}

// asksKubelets puts on the ground that kubelets are asked for their processes, in mode Enforce and
// with evidence.kubelet; nil: they are not. Their rounds wait behind no call, and no call behind
// them.
func asksKubelets(in Options, index *observe.Index, on *ground) (*kubelet.Rounds, error) {
	if in.Config.Mode == config.Observe || !in.Config.Evidence.Kubelet {
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(rest.CopyConfig(in.Rest))
	if err != nil {
		return nil, err
	}
	asks := kubelet.NewClient(client, in.Config.Fencing.Namespace, deploy.KubeletAccount)
	sightings := kubelet.NewSightings(asks)
	on.kubelets = sightings
	return kubelet.NewRounds(sightings, asks.Renew, client, func(node string) (there, driver bool) {
		return index.Node(node) != nil, index.NodeID(node) != ""
	}), nil
}

// bounded is g with driver.maxConcurrentCalls, for which no refused call waits; one
// that observes holds nobody up.
func bounded(g proxy.Guard, calls *waiting.Calls, in Options) proxy.Guard {
	if in.Config.Mode == config.Observe {
		return g
	}
	return waiting.Spare(guard.Bound(g, in.Config.Driver.MaxConcurrentCalls), calls, in.Metrics, max(in.Rejudged, 0))
}

// wakeUps tell of what may have unblocked something. Add before anything runs.
type wakeUps struct{ calls []func(observe.Change) }

func (w *wakeUps) add(f func(observe.Change)) { w.calls = append(w.calls, f) }

func (w *wakeUps) all(c observe.Change) {
	for _, f := range w.calls {
		f(c)
	}
}

func (w *wakeUps) node(name string) { w.all(observe.Change{Node: name}) }

// clusterUID waits for the API server: without it nothing can be judged.
func clusterUID(ctx context.Context, client kubernetes.Interface, ready func(check func() error)) (string, error) {
	for said := ""; ; {
		ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			return string(ns.UID), nil
		}
		err = fmt.Errorf("the identity of the cluster (namespace kube-system): %w", err)
		if err.Error() != said {
			said = err.Error()
			ready(NotReady("it waits for the Kubernetes API: " + said))
			klog.FromContext(ctx).Info("Waiting for the Kubernetes API", "err", said)
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(time.Second):
		}
	}
}

// answers asks the API server for something that it has to read from etcd. A
// refusal is an answer too.
func answers(client kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
}

// actor names a driver's sidecar in audit trails: those of two drivers may share a
// host.
func (in Options) actor() string {
	host := in.Host
	if host == "" {
		var err error
		if host, err = os.Hostname(); err != nil {
			host = "unknown host"
		}
	}
	return noderecord.SidecarActor(in.Driver, host)
}
