package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/csi/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/liveness"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/source"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/watch"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// newGuard wires the guard:
//
//	watch ──▶ survey ──▶ guard ──▶ report ──▶ waiting ──▶ (VolumeAttachment)
//	  └▶ liveness ─┘ └── sources                 ▲
//	  └──────────────────── changes ─────────────┘
//
// It returns the guard of the two calls, and its background work, which runs on
// one replica at a time and may be begun again. What it starts itself ends with
// ctx.
func newGuard(ctx context.Context, in guardInputs) (proxy.Guard, func(context.Context) error, error) {
	client, err := kubernetes.NewForConfig(in.rest)
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
	ids, observe := driver.Identity(), in.config.Mode == config.Observe
	tracker := liveness.New(in.config.Fencing.SuspectAfter.Duration, in.config.Fencing.MaxUnhealthy.Share())
	index, err := watch.New(client, ids, tracker, in.config.Fencing.Namespace)
	if err != nil {
		return nil, nil, err
	}
	records := noderecord.NewStore(client.CoordinationV1(), in.config.Fencing.Namespace)
	sources, taints := newSources(in.config, source.Records{Store: records, Actor: actor(), ReadOnly: observe})
	surveyor := &survey.Surveyor{Client: client, IDs: ids, Index: index, Ledgers: ledger.New(client, cluster, ids), Records: records,
		Sources: sources, Lives: tracker, Driver: driver, Policy: policyOf(in.config)}
	waiting := guard.NewWaiting(client, surveyor, in.metrics.Waiting)
	report := guard.NewReport(client, newRecorder(ctx, client, ids.Driver), in.metrics, waiting)
	sights := newSighting(client, index, taints)

	index.OnChange(waiting.Changed)
	index.OnNode(sights.saw)
	tracker.OnStale(func(node string) { waiting.Changed(watch.Change{Node: node}) })
	probe := func(ctx context.Context) { tracker.Probe(ctx, answers(client)) }
	for _, run := range []func(context.Context){index.Run, tracker.Run, probe, waiting.Run, report.Run} {
		go run(ctx)
	}
	in.ready(index.Ready)
	if err := index.WaitReady(ctx); err != nil {
		return nil, nil, err
	}
	index.EachAttachment(func(va *storagev1.VolumeAttachment, handle string) {
		waiting.Recover(va, handle, index.NodeID(va.Spec.NodeName))
	})
	klog.FromContext(ctx).Info("Guarding", "driver", ids.Driver, "mode", in.config.Mode, "cluster", cluster)
	g := guard.New(guard.Options{Surveyor: surveyor, Reporter: report, Observe: observe})
	return g, sights.run, nil
}

// policyOf is what the decision asks of the configuration.
func policyOf(c *config.Configuration) fence.Policy {
	return fence.Policy{
		UnpublishRevokesAccess: c.Driver.UnpublishRevokesAccess,
		ForwardUnfenced:        c.Unpublish.Unfenced == config.Forward,
	}
}

// newSources are the evidence sources that the configuration switches on, and
// those of them that watch taints.
func newSources(c *config.Configuration, records source.Records) (sources []source.Source, taints []*source.Taint) {
	if c.Evidence.OutOfServiceTaint {
		taints = append(taints, source.OutOfServiceTaint(records))
	}
	if c.Evidence.CloudShutdownTaint {
		taints = append(taints, source.CloudShutdownTaint(records))
	}
	for _, t := range taints {
		sources = append(sources, t)
	}
	if c.Evidence.OperatorConfirmation {
		sources = append(sources, source.Confirmations(records), source.Releases())
	}
	if c.Evidence.NodeDeleted {
		sources = append(sources, source.NodeDeleted{})
	}
	return sources, taints
}

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

// actor names this process in audit trails.
func actor() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return "csi-fencepost@" + host
}

// newRecorder writes Events until ctx ends.
func newRecorder(ctx context.Context, client kubernetes.Interface, driver string) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(corev1.NamespaceAll)})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "csi-fencepost " + driver})
}
