package fencer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

const (
	ns     = "csi-fencepost"
	driver = "csi.example.com"
)

// device is a machine's power switch, or its access to the storage.
type device struct {
	name string
	kind fence.Kind

	mu       sync.Mutex
	off      bool
	deaf     bool  // accepts off and stays on
	refuses  error // Off's
	broken   bool  // cannot be read
	takes    time.Duration
	asked    int
	offs     int
	onStatus func() // once, within the next Status
	onOff    func(ctx context.Context)
	did      string   // Off's detail; "done" if empty
	lifted   []string // Machine.Fenced of the last On
}

func (d *device) Name() string            { return d.name }
func (d *device) Proves() fence.Kind      { return d.kind }
func (d *device) Covers(node string) bool { return strings.HasPrefix(node, "n") }

func (d *device) Status(ctx context.Context, _ agent.Machine) (agent.Reading, error) {
	d.mu.Lock()
	f := d.onStatus
	d.onStatus = nil
	d.mu.Unlock()
	if f != nil {
		f()
	}
	if d.takes > 0 {
		time.Sleep(d.takes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	switch {
	case d.broken:
		return agent.Reading{}, errors.New("no answer")
	case d.off:
		return agent.Reading{State: agent.Off, Detail: "power:0"}, nil
	}
	return agent.Reading{State: agent.On, Detail: "power:1"}, nil
}

func (d *device) Off(ctx context.Context, _ agent.Machine) (string, error) {
	d.mu.Lock()
	d.offs++
	f := d.onOff
	d.mu.Unlock()
	if f != nil {
		f(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses != nil {
		return "", d.refuses
	}
	d.off = d.off || !d.deaf
	return cmp.Or(d.did, "done"), nil
}

func (d *device) On(_ context.Context, m agent.Machine) (string, error) {
	d.set(false)
	d.lifted = m.Fenced
	return "done", nil
}

func (d *device) set(off bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = off
}

func (d *device) counts() (asked, offs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked, d.offs
}

// world is a node, its lease, the records and a BMC.
type world struct {
	*testing.T
	server *leasetest.Server
	store  *record.Store
	bmc    *device
	levels agent.Levels
}

func run(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: leasetest.NewInMemory(t, ns), bmc: &device{name: "bmc", kind: fence.PowerReading}}
		w.store = record.NewStore(w.server.Client().CoordinationV1(), ns)
		w.levels = agent.Levels{{{Agent: w.bmc, Timeout: 10 * time.Second}}}
		w.node("n1", "u1", "b1", nil)
		w.renew("n1")
		test(w)
	})
}

func (w *world) node(name, uid, boot string, annotations map[string]string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Annotations: annotations}}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = boot, "uuid-"+name
	w.server.PutNode(n)
}

// renew is the kubelet's sign of life.
func (w *world) renew(node string) string {
	w.server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}})
	return w.leaseRV(node)
}

func (w *world) leaseRV(node string) string {
	return w.server.Lease(corev1.NamespaceNodeLease, node).ResourceVersion
}

func (w *world) fencer(actor string) *Fencer {
	w.Helper()
	c := w.server.Client()
	f, err := New(Options{Levels: w.levels, Records: w.store, Nodes: c.CoreV1(), Leases: c.CoordinationV1(), Driver: driver, Actor: actor})
	if err != nil {
		w.Fatal(err)
	}
	return f
}

// target is n1 as it is now.
func (w *world) target() Target {
	return Target{Node: "n1", UID: "u1", BootID: "b1", NodeID: "id1", LeaseRV: w.leaseRV("n1")}
}

func (w *world) ask(f *Fencer, t Target) Answer {
	w.Helper()
	a, err := f.Ask(w.Context(), t)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *world) record() *record.Record {
	w.Helper()
	r, err := w.store.Get(w.Context(), "n1")
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// fences are the phases in the record.
func (w *world) fences() string {
	w.Helper()
	var all []string
	if r := w.record(); r != nil {
		for _, f := range r.Fences {
			all = append(all, fmt.Sprintf("%s by %s", f.Phase, f.Actor))
		}
	}
	return strings.Join(all, ", ")
}

func (w *world) expect(what string, got, want any) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (w *world) unlocked() {
	w.Helper()
	lease := w.server.Lease(ns, record.LeaseName("n1"))
	if h := ptr.Deref(lease.Spec.HolderIdentity, ""); h != "" {
		w.Errorf("still locked by %s", h)
	}
}

func (w *world) refused(err error, says string) {
	w.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
		w.Errorf("error %v, want a refusal that says %q", err, says)
	}
}

func TestAFencerSaysWhatIsMissing(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Fatal("no error")
	}
}

func TestTheLockIsLongerThanEachCall(t *testing.T) {
	run(t, func(w *world) {
		w.levels = append(w.levels, agent.Level{{Agent: &device{name: "slow"}, Timeout: time.Minute}})
		if d := w.fencer("a").LockDuration(); d <= time.Minute {
			t.Errorf("%s", d)
		}
	})
}
