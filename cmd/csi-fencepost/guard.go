package main

import (
	"context"
	"fmt"
	"os"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// newGuard wires the guard:
//
//	watch ──▶ survey ──▶ guard ──▶ report ──▶ waiting ──▶ (VolumeAttachment)
//	  ├▶ liveness ─┘ └── sources ◀── fencer ◀── agents
//	  │     │               ▲          ▲
//	  │     └───────────────┴──── failover ──▶ (taint, pods)
//	  └── changes ──▶ waiting, failover
//
// It returns the guard of the two calls, and its background work, which runs on
// one replica at a time and may be begun again. What it starts itself ends with
// ctx.
func newGuard(ctx context.Context, in guardInputs) (proxy.Guard, func(context.Context) error, error) {
	limit := throttle.New(in.rest.QPS, in.rest.Burst)
	limited := rest.CopyConfig(in.rest)
	limited.RateLimiter = limit
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return nil, nil, err
	}
	// What fences, and what tells whether the API server answers, waits behind no
	// call.
	vital, err := kubernetes.NewForConfig(rest.CopyConfig(in.rest))
	if err != nil {
		return nil, nil, err
	}
	// Nor does a call wait for Events.
	events, err := kubernetes.NewForConfig(rest.CopyConfig(in.rest))
	if err != nil {
		return nil, nil, err
	}
	cluster, err := clusterUID(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	driver, err := csi.NewDriver(ctx, in.conn)
	if err != nil {
		return nil, nil, err
	}
	ids, observing := driver.Identity(), in.config.Mode == config.Observe
	tracker := observe.NewTracker(in.config.Fencing.SuspectAfter.Duration, in.config.Fencing.MaxUnhealthy.Share())
	index, err := observe.New(client, ids, tracker, in.config.Fencing.Namespace)
	if err != nil {
		return nil, nil, err
	}
	records := noderecord.NewStore(client.CoordinationV1(), in.config.Fencing.Namespace)
	wake := new(wakeUps)
	vitalRecords := noderecord.NewStore(vital.CoordinationV1(), in.config.Fencing.Namespace)
	fencing, err := newFencing(ctx, in, vital, vitalRecords, wake.node)
	if err != nil {
		return nil, nil, err
	}
	sources := newSources(sourceInputs{config: in.config, driver: ids.Driver, objects: client.CoreV1().RESTClient(), fencing: fencing,
		records: evidence.Records{Store: records, Actor: in.actor(), ReadOnly: observing}})
	surveyor := &survey.Surveyor{Client: client, IDs: ids, Index: index, Ledgers: ledger.New(client, cluster, ids), Records: records,
		Sources: sources.all, Lives: tracker, Driver: driver, Policy: in.config.Policy(), CutsStorage: fencing.cutsStorage(), Limit: limit}
	waiting := guard.NewWaiting(client, surveyor, in.metrics.Waiting)
	report := guard.NewReport(events, newRecorder(ctx, events, ids.Driver), in.metrics, waiting)
	sights := newSighting(client, index, sources)
	context.AfterFunc(ctx, sights.queue.ShutDown)
	wake.add(waiting.Changed)
	mover, err := newFailover(ctx, in, ids, failoverParts{index: index, lives: tracker, fencing: fencing, records: vitalRecords, claims: sources.claims})
	if err != nil {
		return nil, nil, err
	}
	if mover != nil {
		wake.add(func(c observe.Change) { mover.Changed(c.Node) })
	}

	index.OnChange(wake.all)
	index.OnNode(sights.saw)
	tracker.OnStale(wake.node)
	probe := func(ctx context.Context) { tracker.Probe(ctx, answers(vital)) }
	for _, run := range []func(context.Context){index.Run, tracker.Run, probe, waiting.Run, report.Run} {
		go run(ctx)
	}
	in.ready(index.Ready)
	if err := index.WaitReady(ctx); err != nil {
		return nil, nil, err
	}
	index.EachRefused(func(va *storagev1.VolumeAttachment, handle string) {
		waiting.Recover(va, handle, index.NodeID(va.Spec.NodeName))
	})
	klog.FromContext(ctx).Info("Guarding", "driver", ids.Driver, "mode", in.config.Mode, "cluster", cluster)
	g := guard.New(guard.Options{Surveyor: surveyor, Reporter: report, Observe: observing})
	in.board.setParts(&boardParts{levels: fencing.fencer.Levels, waiting: waiting, recent: &report.Recent, underWay: g.UnderWay,
		index: index, lives: tracker, records: records, mover: mover})
	return bounded(g, waiting, in), background(client, sights, fencing, mover), nil
}

// bounded is g with driver.maxConcurrentCalls, for which no refused call waits; one
// that observes holds nobody up.
func bounded(g proxy.Guard, waiting *guard.Waiting, in guardInputs) proxy.Guard {
	if in.config.Mode == config.Observe {
		return g
	}
	return guard.Spare(guard.Bound(g, in.config.Driver.MaxConcurrentCalls), waiting, in.metrics, in.rejudged)
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
func clusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	for said := ""; ; {
		ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			return string(ns.UID), nil
		}
		if err.Error() != said {
			said = err.Error()
			klog.FromContext(ctx).Info("Waiting for the Kubernetes API", "namespace", metav1.NamespaceSystem, "err", said)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the identity of the cluster (namespace kube-system): %w", err)
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
func (in *guardInputs) actor() string {
	host := in.host
	if host == "" {
		var err error
		if host, err = os.Hostname(); err != nil {
			host = "unknown host"
		}
	}
	return noderecord.SidecarActor(in.driver, host)
}
