package sidecar

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

const (
	sightedRecords = "records"
	someonesValue  = "nodeshutdown"
	sightedDriver  = "disk.example.com"
)

// counting counts the requests for one object each, and may refuse to list the
// records.
type counting struct {
	single  atomic.Int64
	refuses atomic.Bool
}

func (c *counting) Admit(_ context.Context, r apiserver.Request) apiserver.Fate {
	if r.Verb == apiserver.List && r.Namespace == sightedRecords && c.refuses.Load() {
		return apiserver.Fate{How: apiserver.Fail, Err: apierrors.NewForbidden(coordinationv1.Resource("leases"), "", nil)}
	}
	if r.Verb != apiserver.List && r.Verb != apiserver.Watch {
		c.single.Add(1)
	}
	return apiserver.Fate{}
}

func (c *counting) Deliver(context.Context, apiserver.Event) apiserver.Passage {
	return apiserver.Passage{}
}

// sightedWorld is a cluster of Nodes without taints, but for tainted, whose taint
// nobody has seen yet, and untainted, whose taint went while nobody led.
type sightedWorld struct {
	server  *apiserver.Server
	gate    counting
	records *record.Store
	sights  *sighting
}

func newSightedWorld(t *testing.T, nodes int) *sightedWorld {
	t.Helper()
	w := &sightedWorld{server: apiserver.New(apiserver.Options{})}
	apiserver.Put(w.server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sightedRecords}})
	for i := range nodes {
		w.node(fmt.Sprintf("n%04d", i))
	}
	w.node("tainted", corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: someonesValue, Effect: corev1.TaintEffectNoExecute})
	w.node("untainted")
	client := kubernetes.NewForConfigOrDie(w.server.Config("sidecar", &w.gate))
	w.records = record.NewStore(kubernetes.NewForConfigOrDie(w.server.Config("test", nil)).CoordinationV1(), sightedRecords)
	records := record.NewStore(client.CoordinationV1(), sightedRecords)
	b := record.TaintBinding{NodeUID: "an-older-one", BootID: "boot", LeaseRV: "1", NodeRV: "1", Value: someonesValue}
	if _, err := w.records.BindTaint(t.Context(), "untainted", corev1.TaintNodeOutOfService, b, "test"); err != nil {
		t.Fatal(err)
	}
	ids := &csi.Identity{Driver: sightedDriver}
	watch := observe.New(client, observe.NewTracker(time.Minute, 0.4), sightedRecords, ids)
	index := watch.Index(ids.Driver)
	taint := evidence.OutOfServiceTaint(evidence.Records{Store: records, Actor: "test"})
	w.sights = newSighting(client, index, &EvidenceSources{records: records, taints: []*evidence.Taint{taint}})
	index.OnNode(w.sights.saw)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); watch.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := watch.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *sightedWorld) node(name string, taints ...corev1.Taint) {
	apiserver.Put(w.server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot"}}})
	apiserver.Put(w.server, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}})
}

func (w *sightedWorld) bound(t *testing.T, node string) bool {
	t.Helper()
	r, err := w.records.Get(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return false
	}
	_, bound := r.Taints[corev1.TaintNodeOutOfService]
	return bound
}

// lead runs the sighting until what is to be done is done, and tells how many
// requests for one object that took.
func (w *sightedWorld) lead(t *testing.T) int64 {
	t.Helper()
	before := w.gate.single.Load()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.sights.run(ctx) }()
	w.eventually(t, "the new taint is bound, the binding of the one that is off is forgotten, and nothing is left to look at", func() bool {
		return w.bound(t, "tainted") && !w.bound(t, "untainted") && w.sights.queue.Len() == 0
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return w.gate.single.Load() - before
}

func TestALeadOf5000NodesBeginsWithAListingNotWithEachNodesLeaseAndRecord(t *testing.T) {
	w := newSightedWorld(t, 5000)
	took := w.lead(t)
	t.Logf("%d requests for single objects at the start of the lead", took)
	// The lease and the record of two Nodes, and the binding and its clearing.
	if took > 12 {
		t.Errorf("%d requests for single objects, want at most 12", took)
	}
	if got := w.server.Complaints(); len(got) > 0 {
		t.Fatal(got)
	}
}

func TestOnlyANodeWithoutTaintAndBindingIsRuledOut(t *testing.T) {
	w := newSightedWorld(t, 1)
	w.garble(t, "garbled")
	if err := w.sights.ruleOut(t.Context()); err != nil {
		t.Fatal(err)
	}
	for node, worth := range map[string]bool{"n0000": false, "tainted": true, "untainted": true, "garbled": true} {
		if got := w.sights.worth(w.sights.index.Node(node)); got != worth {
			t.Errorf("node %s is worth a look: %v, want %v", node, got, worth)
		}
	}
	// Its record was read while the taint was on: a binding may have come since.
	apiserver.Change(w.server, "", "tainted", func(n *corev1.Node) { n.Spec.Taints = nil })
	w.eventually(t, "the watch shows that the taint is off", func() bool { return len(w.sights.index.Node("tainted").Spec.Taints) == 0 })
	if !w.sights.worth(w.sights.index.Node("tainted")) {
		t.Error("a Node that was seen with the taint on is not looked at once it is off")
	}
}

func (w *sightedWorld) eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// garble makes a Node whose record nobody can read.
func (w *sightedWorld) garble(t *testing.T, node string) {
	t.Helper()
	apiserver.Put(w.server, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: sightedRecords, Name: record.LeaseName(node),
		Annotations: map[string]string{record.Annotation: "{"}}})
	w.node(node)
	w.eventually(t, "the watch shows the Node", func() bool { return w.sights.index.Node(node) != nil })
}

func TestATaintThatComesAfterTheListingIsBound(t *testing.T) {
	w := newSightedWorld(t, 1)
	w.lead(t)
	apiserver.Change(w.server, "", "n0000", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: someonesValue, Effect: corev1.TaintEffectNoExecute}}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.sights.run(ctx) }()
	w.eventually(t, "it is bound", func() bool { return w.bound(t, "n0000") })
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestWithoutTheListingEachRecordIsReadByItself(t *testing.T) {
	w := newSightedWorld(t, 100)
	w.gate.refuses.Store(true)
	if took := w.lead(t); took < 200 {
		t.Errorf("%d requests for the leases and records of 102 Nodes", took)
	}
}

// A taint that a person puts on after the node was last heard counts, although the watch
// shows a Node without the managedFields that tell so.
func TestATaintIsJudgedByTheNodeAsTheServerHasIt(t *testing.T) {
	w := newSightedWorld(t, 0)
	entry := func(at time.Time, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "of" + subresource, Subresource: subresource, Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	heard := time.Now().Add(-time.Minute)
	apiserver.Put(w.server, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "tainted",
		ManagedFields: []metav1.ManagedFieldsEntry{entry(heard, "", `{"f:spec":{"f:renewTime":{}}}`)}}})
	apiserver.Put(w.server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tainted", ManagedFields: []metav1.ManagedFieldsEntry{
		entry(heard, "status", `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`),
		entry(heard.Add(30*time.Second), "", `{"f:spec":{"f:taints":{}}}`)}},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: someonesValue, Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot"}}})
	w.lead(t)
	r, err := w.records.Get(t.Context(), "tainted")
	if err != nil {
		t.Fatal(err)
	}
	if b := r.Taints[corev1.TaintNodeOutOfService]; b.Void != "" {
		t.Errorf("the taint is void: %s", b.Void)
	}
}
