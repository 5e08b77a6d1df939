package fencer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
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
	checked  bool // of off: that it is the machine's
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
		return agent.Reading{State: agent.Off, Checked: d.checked, Detail: "power:0"}, nil
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
		w.levels = agent.Levels{{{Agent: w.bmc, Timeout: 10 * time.Second, Poll: 2 * time.Second}}}
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
	if !reflect.DeepEqual(got, want) {
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
	for name, spoil := range map[string]func(*Options){
		"nothing": func(*Options) {},
		"records": func(o *Options) { o.Records = nil },
		"Nodes":   func(o *Options) { o.Nodes = nil },
		"Leases":  func(o *Options) { o.Leases = nil },
		"actor":   func(o *Options) { o.Actor = "" },
	} {
		c := leasetest.NewInMemory(t).Client()
		o := Options{Records: record.NewStore(c.CoordinationV1(), ns), Nodes: c.CoreV1(), Leases: c.CoordinationV1(), Driver: driver, Actor: "a"}
		spoil(&o)
		if _, err := New(o); (err == nil) != (name == "nothing") {
			t.Errorf("%s is missing: error %v", name, err)
		}
	}
}

func TestTheLockIsLongerThanEachCall(t *testing.T) {
	run(t, func(w *world) {
		// One without a time limit gets the 20 s of package agent.
		w.expect("by default", w.fencer("a").LockDuration(), 30*time.Second)
		w.levels = append(w.levels, agent.Level{{Agent: &device{name: "slow"}, Timeout: time.Minute}})
		w.expect("with a slow one", w.fencer("a").LockDuration(), 70*time.Second)
	})
}

func TestAFencerSaysWhichNodesItCanCutOffFromWhat(t *testing.T) {
	run(t, func(w *world) {
		array, second := &device{name: "array", kind: fence.StorageFence}, &device{name: "second", kind: fence.StorageFence}
		for _, tt := range []struct {
			levels          agent.Levels
			covers, storage bool
			agents          string
		}{
			{nil, false, false, ""},
			{agent.Levels{{{Agent: w.bmc}}}, true, false, ""},
			{agent.Levels{{{Agent: w.bmc}}, {{Agent: array}}}, true, true, "array"},
			{agent.Levels{{{Agent: w.bmc}, {Agent: array}}, {{Agent: second}}}, true, true, "array second"},
		} {
			w.levels = tt.levels
			f := w.fencer("a")
			w.expect("covers", f.Covers("n1"), tt.covers)
			w.expect("covers storage", f.CoversStorage("n1"), tt.storage)
			w.expect("storage agents", strings.Join(f.StorageAgents("n1"), " "), tt.agents)
			if f.Covers("other") || f.CoversStorage("other") || f.StorageAgents("other") != nil {
				t.Errorf("%v cover another node", tt.levels)
			}
		}
	})
}

func TestNothingIsChangedWithoutMachineReasonAndAgents(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(target *Target, reason *string)
		says   string
		covers bool // the storage
	}{
		"no reason":     {func(_ *Target, reason *string) { *reason = "" }, "it is not said why", true},
		"no name":       {func(target *Target, _ *string) { target.Node = "" }, "name and UID are needed", true},
		"no UID":        {func(target *Target, _ *string) { target.UID = "" }, "name and UID are needed", true},
		"another node":  {func(target *Target, _ *string) { target.Node = "other" }, "no level of fence agents covers it", true},
		"power only":    {func(*Target, *string) {}, "", false},
		"nothing wrong": {func(*Target, *string) {}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				if tt.covers {
					w.levels = append(w.levels, agent.Level{{Agent: &device{name: "array", kind: fence.StorageFence}}})
				}
				f, target, reason := w.fencer("a"), w.target(), "a test"
				tt.spoil(&target, &reason)
				_, off := f.Off(w.Context(), target, reason, true)
				_, on := f.On(w.Context(), target, reason)
				_, lift := f.Lift(w.Context(), target, driver, reason)
				for action, err := range map[string]error{"off": off, "on": on, "lift": lift} {
					says := tt.says
					if action == "lift" && !tt.covers {
						says = "no level of fence agents covers it"
					}
					if says == "" {
						w.expect(action, err, nil)
					} else {
						w.refused(err, action+" of node "+target.Node+" is refused: ")
						w.refused(err, says)
					}
				}
				if tt.says != "" {
					w.unsent()
					w.expect("record", w.server.Writes(), 0)
				}
			})
		})
	}
}

func TestTheLastReadingOfEachAgentCounts(t *testing.T) {
	all := []agent.Step{
		{Agent: "b", Action: "status", State: agent.On, Detail: "b on"},
		{Agent: "b", Action: "off", State: agent.On, Detail: "no reading"},
		{Agent: "b", Action: "status", State: agent.Off, Detail: "b off"},
		{Agent: "a", Action: "status", State: agent.Off, Detail: "a off"},
		{Agent: "c", Action: "status", State: agent.Off},
		{Agent: "d", Action: "status", State: agent.On, Detail: "d on"},
		{Agent: "e", Action: "off", State: agent.Off, Detail: "was told, not read"},
	}
	for _, tt := range []struct {
		state          agent.State
		names, details string
	}{
		{agent.Off, "a b c", "a: a off; b: b off"},
		{agent.On, "d", "d: d on"},
		{agent.Unclear, "", ""},
	} {
		names, details := readers(all, tt.state)
		if strings.Join(names, " ") != tt.names || details != tt.details {
			t.Errorf("%s: %v, %q", tt.state, names, details)
		}
	}
}

func TestWhatChangesWhileTheAgentsAreAskedVoidsTheirAnswer(t *testing.T) {
	node := func(uid, boot string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
		n.Status.NodeInfo.BootID = boot
		return n
	}
	target := Target{Node: "n1", UID: "u1", BootID: "b1"}
	const gone = "its Node was created or deleted meanwhile"
	for name, tt := range map[string]struct {
		before, after  look
		power, storage string
	}{
		"nothing":           {look{node("u1", "b1"), "5"}, look{node("u1", "b1"), "5"}, "", ""},
		"nothing, no Node":  {look{nil, "5"}, look{nil, "5"}, "", ""},
		"renewed":           {look{node("u1", "b1"), "5"}, look{node("u1", "b1"), "6"}, fence.VoidLeaseChanged, ""},
		"renewed, no Node":  {look{nil, "5"}, look{nil, "6"}, fence.VoidLeaseChanged, ""},
		"booted":            {look{node("u1", "b1"), "5"}, look{node("u1", "b2"), "5"}, fence.VoidBootChanged, ""},
		"another machine":   {look{node("u1", "b1"), "5"}, look{node("u2", "b1"), "5"}, fence.VoidOtherMachine, fence.VoidOtherMachine},
		"its Node deleted":  {look{node("u1", "b1"), "5"}, look{nil, "5"}, gone, gone},
		"its Node is there": {look{nil, "5"}, look{node("u1", "b1"), "5"}, gone, gone},
	} {
		if got := changed(target, tt.before, tt.after, fence.PowerReading); got != tt.power {
			t.Errorf("%s: of the power: %q", name, got)
		}
		if got := changed(target, tt.before, tt.after, fence.StorageFence); got != tt.storage {
			t.Errorf("%s: of the storage: %q", name, got)
		}
	}
}

func TestTheAgentsAreToldOfTheMachine(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u1"}, Spec: corev1.NodeSpec{ProviderID: "aws:///i-1"}}
	n.Status.NodeInfo.SystemUUID = "s1"
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: corev1.NodeInternalDNS, Address: "n1.local"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}}
	target := Target{Node: "n1", UID: "u1", BootID: "b1", NodeID: "id1"}
	if got, want := fmt.Sprintf("%+v", look{node: n}.machine(target)), fmt.Sprintf("%+v", agent.Machine{Node: "n1", UID: "u1", BootID: "b1", NodeID: "id1",
		SystemUUID: "s1", ProviderID: "aws:///i-1", Addresses: []string{"10.0.0.1", "192.0.2.1"}}); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%+v", look{}.machine(target)), fmt.Sprintf("%+v", agent.Machine{Node: "n1", UID: "u1", BootID: "b1", NodeID: "id1"}); got != want {
		t.Errorf("without a Node: told %s, want %s", got, want)
	}
}

func TestOnlyALevelThatReadsThePowerCoversIt(t *testing.T) {
	bmc, array := agent.Bounded{Agent: &device{name: "bmc", kind: fence.PowerReading}}, agent.Bounded{Agent: &device{name: "array", kind: fence.StorageFence}}
	for name, c := range map[string]struct {
		levels agent.Levels
		node   string
		want   bool
	}{
		"power":                 {agent.Levels{{bmc}}, "n1", true},
		"behind the storage":    {agent.Levels{{array}, {bmc}}, "n1", true},
		"with the storage":      {agent.Levels{{array, bmc}}, "n1", true},
		"of a node not covered": {agent.Levels{{bmc}}, "other", false},
		"the storage alone":     {agent.Levels{{array}}, "n1", false},
		"none":                  {nil, "n1", false},
	} {
		if got := (&Fencer{Options: Options{Levels: c.levels}}).CoversPower(c.node); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
