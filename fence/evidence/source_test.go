package evidence

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

const (
	ns     = "csi-fencepost"
	driver = "csi.example.com"
	volume = "vol-1"
)

// world is one node, its lease and the records, as a caller reads them live.
type world struct {
	t       *testing.T
	server  *leasetest.Server
	store   *record.Store
	node    *v1.Node // nil: deleted
	leaseRV string
	holder  fence.Holder
	// unlisted: the Node does not list the volume in use.
	unlisted bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := leasetest.New(t, ns)
	return &world{
		t: t, server: server, store: record.NewStore(server.Client().CoordinationV1(), ns),
		node:    machine("u1", "b1", "50"),
		leaseRV: "70",
		holder:  fence.Holder{NodeID: "id1", NodeName: "n1", NodeUID: "u1", BootID: "b1", State: fence.Publishing, Token: "tok"},
	}
}

func machine(uid, boot, version string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID(uid), ResourceVersion: version}}
	n.Status.NodeInfo.BootID = boot
	n.ManagedFields = []metav1.ManagedFieldsEntry{wrote("kubelet", "status", heard, `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{},"f:status":{}}}}}`)}
	return n
}

// heard is when the node was last heard, by the API server's clock.
var heard = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// wrote is one writer's part of managedFields.
func wrote(manager, subresource string, at time.Time, fields string) metav1.ManagedFieldsEntry {
	stamp := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource, Time: &stamp, FieldsV1: metav1.NewFieldsV1(fields)}
}

const taintFields = `{"f:spec":{"f:taints":{}}}`

// lease of the node, as it was last renewed; nil: there is none.
func (w *world) lease() *coordinationv1.Lease {
	if w.leaseRV == "" {
		return nil
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: w.leaseRV,
		ManagedFields: []metav1.ManagedFieldsEntry{wrote("kubelet", "", heard, `{"f:spec":{"f:holderIdentity":{},"f:renewTime":{}}}`)}}}
}

func (w *world) records() Records { return Records{Store: w.store, Actor: "sidecar"} }

// taint puts a taint on, in a new version of the Node; empty key: takes all off.
func (w *world) taint(version, key, value string) {
	w.node = w.node.DeepCopy()
	w.node.ResourceVersion = version
	w.node.Spec.Taints = nil
	w.node.ManagedFields = append(w.node.ManagedFields[:1:1], wrote("kubectl-taint", "", heard.Add(time.Minute), taintFields))
	if key != "" {
		w.node.Spec.Taints = []v1.Taint{{Key: "other", Value: "x"}, {Key: key, Value: value, Effect: v1.TaintEffectNoExecute}}
	}
}

func (w *world) record() *record.Record {
	w.t.Helper()
	r, err := w.store.Get(w.t.Context(), "n1")
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) question() Question {
	w.t.Helper()
	h := w.holder
	if h.Node == nil {
		h.Node = w.seen()
	}
	return Question{Holder: h, Volume: volume, Driver: driver, Node: w.node, LeaseRV: w.leaseRV, Lease: w.lease(), Record: w.record()}
}

func (w *world) ask(s Source) []fence.Evidence {
	w.t.Helper()
	found, err := s.Evidence(w.t.Context(), w.question())
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// seen is the Node as the decision is given it.
func (w *world) seen() *fence.Node {
	if w.node == nil {
		return nil
	}
	return &fence.Node{UID: string(w.node.UID), BootID: w.node.Status.NodeInfo.BootID, InUse: !w.unlisted}
}

// judge asks the source, and the decision whether a publish elsewhere is
// allowed by what it says, for a node that is stale or gone.
func (w *world) judge(s Source) (allowed bool, note string) {
	w.t.Helper()
	h := w.holder
	h.Evidence = w.ask(s)
	h.LeaseRV = w.leaseRV
	h.Liveness = fence.Unknown
	if w.node != nil {
		h.Liveness = fence.Stale
		h.Node = w.seen()
	}
	v := fence.JudgePublish(fence.Snapshot{Volume: volume, Target: &fence.Holder{NodeID: "id2"}, Holders: []fence.Holder{h}}, "id2")
	if v.Action == fence.Allow {
		return true, ""
	}
	return false, v.Blocking.Note
}

func (w *world) expect(s Source, want bool, note string) {
	w.t.Helper()
	allowed, got := w.judge(s)
	if allowed != want || got != note {
		w.t.Fatalf("publish elsewhere allowed: %v (%q), want %v (%q)", allowed, got, want, note)
	}
}

func (w *world) actions() string {
	w.t.Helper()
	r := w.record()
	if r == nil {
		return ""
	}
	var all []string
	for _, a := range r.Audit {
		all = append(all, a.Action)
	}
	return strings.Join(all, " ")
}

func garble(w *world) {
	w.server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1"), Annotations: map[string]string{record.Annotation: "{"}}})
}
