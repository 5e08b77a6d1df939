package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

// apartName stands for the driver, where failover works for all of them.
const apartName = "failover"

const (
	// driversEvery is how often it is looked which drivers guard; driversAgain how soon, where
	// none does, or that could not be read.
	driversEvery = time.Minute
	driversAgain = 5 * time.Second
)

// apartAsks is how many machines' agents are asked at once: a rack's whose BMCs do not answer keep
// those of others waiting no longer than they do one driver's.
const apartAsks = 32

// ApartOptions are what failover as a process of its own is built of. Rest is required.
type ApartOptions struct {
	// Rest is how the Kubernetes API is reached, with the rights of deploy/failover; QPS and
	// Burst as in Options.
	Rest *rest.Config
	// Config, which NewApart checks (config.CheckApart); nil is an error.
	Config *config.Configuration
	// Drivers are those whose volumes are moved; empty: all that guard (deploy.Enforcing), looked
	// at again every minute.
	Drivers []string
	// AgentDirs, Levels, Host, Metrics, Board, Lead and Ready are as in Options.
	AgentDirs []string
	Levels    agent.Levels
	Host      string
	Metrics   *Metrics
	Board     *Board
	Lead      func() error
	Ready     func(check func() error)
}

// Apart is the failover of all drivers, in a process and under an account of its own:
//
//	drivers that guard ──▶ Watch of all of them ──▶ Controller ──▶ (taint, pods)
//	   └── every minute       └▶ liveness ─────────────┘ └── Fencer ◀── agents of the power
//
// Every replica watches, so that one that takes the lead over has watched already; one at a
// time runs Run. Make one with NewApart.
type Apart struct {
	ApartOptions
	client, vital kubernetes.Interface
	records       *noderecord.Store
	claims        []evidence.Source
	events        record.EventRecorder
	fencer        *fencer.Fencer
	answerer      *fencer.Answerer
	tracker       *observe.Tracker

	mu      sync.Mutex
	set     *driverSet // nil: no driver guards
	changed chan struct{}
	waits   error // why there is no set; nil: there is one
}

// driverSet is a Watch that has synced, of these drivers, and their failover.
type driverSet struct {
	drivers []string
	indexes indexes
	mover   *failover.Controller
	stop    context.CancelFunc // of the watch
	leads   sync.WaitGroup     // while the mover runs
}

// NewApart makes the failover of all drivers, and begins to watch until ctx ends. An error names
// what is wrong with the configuration, or the fence agents that cannot be made. It waits for
// nothing: what it waits for Ready tells, such as that no driver guards yet.
func NewApart(ctx context.Context, in ApartOptions) (*Apart, error) {
	if in.Config == nil {
		in.Config = config.Default()
	}
	if err := in.Config.CheckApart(); err != nil {
		return nil, fmt.Errorf("the configuration: %w", err)
	}
	common := Options{Rest: in.Rest, Config: in.Config, Host: in.Host, Metrics: in.Metrics, Board: in.Board, Ready: in.Ready, Driver: apartName}.withDefaults()
	in.Rest, in.Metrics, in.Board, in.Ready = common.Rest, common.Metrics, common.Board, common.Ready
	f := &Apart{ApartOptions: in, changed: make(chan struct{}), waits: errors.New("it is not known yet which drivers guard")}
	// What fences waits neither behind the watch nor behind Events; and whether the API server
	// answers is not to be taken for the time that our own requests wait for each other.
	var clients [4]kubernetes.Interface
	for i := range clients {
		var err error
		if clients[i], err = kubernetes.NewForConfig(rest.CopyConfig(in.Rest)); err != nil {
			return nil, err
		}
	}
	f.client, f.vital = clients[0], clients[1]
	f.records = noderecord.NewStore(f.vital.CoordinationV1(), in.Config.Fencing.Namespace)
	f.claims = NewSources(SourceOptions{Config: in.Config, Records: evidence.Records{Store: f.records, Actor: common.actor()}}).claims
	f.events = newRecorder(ctx, clients[2], apartName)
	levels := in.Levels
	if levels == nil {
		var err error
		if levels, err = NewLevels(in.Config, in.AgentDirs, DriverSide{}); err != nil {
			return nil, err
		}
	}
	var err error
	f.fencer, err = fencer.New(fencer.Options{Levels: common.metered(levels), Records: f.records, Nodes: f.vital.CoreV1(), Leases: f.vital.CoordinationV1(),
		CSINodes: f.vital.StorageV1(), Actor: common.actor(), MaxAsks: apartAsks, Answered: func(node string, _ fencer.Answer) { f.wake(node) }})
	if err != nil {
		return nil, err
	}
	f.fencer.Machines, f.fencer.NodeIDs = f.machines, f.nodeIDs
	f.answerer = &fencer.Answerer{Fencer: f.fencer, Alone: true}
	f.tracker = observe.NewTracker(in.Config.Fencing.SuspectAfter.Duration, in.Config.Fencing.MaxUnhealthy.Share())
	f.tracker.OnStale(f.wake)
	in.Ready(f.ready)
	go f.tracker.Run(ctx)
	go f.tracker.Probe(ctx, answers(clients[3]))
	go f.follow(ctx)
	return f, nil
}

// ready passes once the drivers are watched. Where none guards there is nothing to do, which is
// said; it is no fault.
func (f *Apart) ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waits
}

// current is the set of drivers that is watched, and what is closed once it is another; nil: none.
func (f *Apart) current() (*driverSet, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.set != nil {
		f.set.leads.Add(1)
	}
	return f.set, f.changed
}

// wake has the work on a node go on.
func (f *Apart) wake(node string) {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	if set != nil {
		set.mover.Changed(node)
	}
}

// machines are those of all Nodes, without the node IDs that drivers have for them.
func (f *Apart) machines() []fence.Machine {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	if set == nil {
		return nil
	}
	return machines(set.indexes, func(string) string { return "" })
}

// nodeIDs are what the drivers call that node.
func (f *Apart) nodeIDs(node string) (all []noderecord.Identifier) {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	if set == nil {
		return nil
	}
	for i, driver := range set.drivers {
		all = append(all, noderecord.IdentifiersOf(fence.Machine{NodeID: set.indexes[i].NodeID(node)}, driver)...)
	}
	return all
}

// follow watches the drivers that guard, whichever they are by now, until ctx ends.
func (f *Apart) follow(ctx context.Context) {
	for said := ""; ctx.Err() == nil; {
		pause := driversEvery
		drivers, err := f.drivers(ctx)
		if err != nil {
			pause = driversAgain
		} else {
			err = f.change(ctx, drivers)
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil && err.Error() != said {
			klog.FromContext(ctx).Error(err, "Which drivers guard is not known; it goes on with those that were known", "next", pause)
		}
		if said = ""; err != nil {
			said = err.Error()
		}
		f.mu.Lock()
		if f.set == nil {
			pause = driversAgain
			if f.waits = err; err == nil {
				f.waits = nil
			}
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	f.swap(nil)
}

// drivers are those whose volumes are to be moved, sorted. A driver that guards no more stays as
// long as something stands that was done to a node: by whom else would it be taken back?
func (f *Apart) drivers(ctx context.Context) ([]string, error) {
	if len(f.Drivers) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(f.Drivers))), nil
	}
	bindings, err := f.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("cannot list the ClusterRoleBindings, which say which drivers guard: %w", err)
	}
	var all []string
	for i := range bindings.Items {
		if driver, ok := deploy.Enforcing(bindings.Items[i].Name); ok {
			all = append(all, driver)
		}
	}
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	if set != nil && slices.ContainsFunc(set.drivers, func(d string) bool { return !slices.Contains(all, d) }) {
		stands, err := f.stands(ctx, set)
		if err != nil {
			return nil, err
		}
		if stands {
			all = append(all, set.drivers...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// stands tells whether a node has our taint, or a fence of the power that is not over. The fence of
// a Node that is gone is passed over: it is never over, and there is nothing of it to take back.
func (f *Apart) stands(ctx context.Context, set *driverSet) (stands bool, err error) {
	set.indexes.EachNode(func(n *corev1.Node) {
		stands = stands || slices.ContainsFunc(n.Spec.Taints, evidence.IsOurTaint)
	})
	if stands {
		return true, nil
	}
	fences, err := f.fencer.Fences(ctx)
	return slices.ContainsFunc(fences, func(one fencer.Fence) bool {
		n := set.indexes.Node(one.Node)
		return one.Void == "" && !one.Others && n != nil && string(n.UID) == one.NodeUID
	}), err
}

// change watches these drivers. What was watched before goes on until all of them have synced.
func (f *Apart) change(ctx context.Context, drivers []string) error {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	switch {
	case set != nil && slices.Equal(set.drivers, drivers):
		return nil
	case len(drivers) == 0:
		if set != nil || f.ready() != nil {
			klog.FromContext(ctx).Info("No driver guards: failover has nothing to do. One that does has a ClusterRoleBinding " + deploy.EnforcingPrefix + "DRIVER (deploy/rbac/enforce.yaml); or name it: --driver")
		}
		f.swap(nil)
		return nil
	}
	next, err := f.watch(ctx, drivers)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Failover for these drivers", "drivers", drivers)
	f.swap(next)
	return nil
}

// watch makes the set of these drivers, and waits until it has synced.
func (f *Apart) watch(ctx context.Context, drivers []string) (*driverSet, error) {
	running, stop := context.WithCancel(ctx)
	var ids []*csi.Identity
	for _, driver := range drivers {
		ids = append(ids, &csi.Identity{Driver: driver})
	}
	w := observe.New(f.client, f.tracker, f.Config.Fencing.Namespace, ids...)
	set, c := &driverSet{drivers: drivers, stop: stop}, f.Config
	var all []failover.Driver
	for _, one := range ids {
		index := w.Index(one.Driver)
		set.indexes = append(set.indexes, index)
		all = append(all, failover.Driver{IDs: one, Index: index})
	}
	set.mover = failover.New(failover.Options{
		Client: f.vital, Drivers: all, Nodes: set.indexes[0], Lives: f.tracker, Fencer: f.fencer,
		Records: f.records, Sources: f.claims, Events: f.events, Metrics: f.Metrics, Lead: f.Lead,
		FenceAfter: c.Fencing.FenceAfter.Duration, PollsPerSecond: c.Fencing.PollsPerSecond, OffFor: c.Failover.OffFor.Duration,
		MaxConcurrent: c.Fencing.MaxConcurrent, MaxUnhealthy: c.Fencing.MaxUnhealthy.Share(), PowerOn: c.Fencing.PowerOn == config.WhenMoved,
	})
	w.OnChange(func(c observe.Change) { set.mover.Changed(c.Node) })
	w.OnRecord(func(_ string, lease *coordinationv1.Lease) { f.answerer.Saw(lease) })
	// Ready is not called under f.mu: who asks whether all is ready has its lock, and asks ready.
	f.mu.Lock()
	first := f.set == nil
	f.mu.Unlock()
	if first {
		f.Ready(w.Ready)
	}
	go w.Run(running)
	err := w.WaitReady(ctx)
	f.Ready(f.ready)
	if err != nil {
		stop()
		return nil, err
	}
	return set, nil
}

// swap takes next in place of the set that there is, which is watched until its work has ended.
func (f *Apart) swap(next *driverSet) {
	f.mu.Lock()
	old := f.set
	f.set, f.waits = next, nil
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	parts := &boardParts{levels: f.fencer.Levels, lives: f.tracker, records: f.records, index: indexes{}}
	driver := "no driver"
	if next != nil {
		parts.index, parts.mover, driver = next.indexes, next.mover, strings.Join(next.drivers, ", ")
	}
	f.Board.SetDriver(driver)
	f.Board.setParts(parts)
	if old != nil {
		go func() {
			old.leads.Wait()
			old.stop()
		}()
	}
}

// Run is what runs on one replica at a time, until ctx ends; it may be begun again.
func (f *Apart) Run(ctx context.Context) error {
	prompts := &evidence.Prompts{Client: f.client.CoreV1().RESTClient(), Call: func(_ context.Context, p evidence.Prompt) { f.prompt(p.Node) }}
	// What the leader does, beside each other.
	parts := map[string]func(context.Context) error{"failover": f.lead, "answers": f.answerer.Run}
	if f.fencer.Machines != nil {
		parts["identities"] = f.fencer.Bind
	}
	if len(f.fencer.Levels) > 0 {
		parts["prompts"] = func(ctx context.Context) error { prompts.Run(ctx); return nil }
	}
	return together(ctx, parts)
}

// prompt has the agents of a node asked at once.
func (f *Apart) prompt(node string) {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	if set != nil && node != "" {
		set.mover.Prompt(node)
	}
}

// lead moves the pods of dead nodes, for whichever drivers there are. The work for those of before
// has ended before that for others begins: the brakes count what one Controller does.
func (f *Apart) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		set, changed := f.current()
		if err := set.run(ctx, changed); err != nil {
			return err
		}
	}
	return nil
}

// run is the failover of the set until ctx ends, or the set is another; of none it only waits.
func (s *driverSet) run(ctx context.Context, changed <-chan struct{}) error {
	if s == nil {
		select {
		case <-ctx.Done():
		case <-changed:
		}
		return nil
	}
	defer s.leads.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-changed:
			cancel()
		}
	}()
	return s.mover.Run(ctx)
}

// indexes are those of several drivers, as one.
type indexes []*observe.Index

// EachNode and Node are the same in each.
func (x indexes) EachNode(f func(*corev1.Node)) {
	if len(x) > 0 {
		x[0].EachNode(f)
	}
}

func (x indexes) Node(name string) *corev1.Node {
	if len(x) == 0 {
		return nil
	}
	return x[0].Node(name)
}

// Holding names the nodes that hold volumes of any of the drivers, each once.
func (x indexes) Holding() (names []string) {
	for _, one := range x {
		names = append(names, one.Holding()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// HeldBy are the volumes of all of the drivers, by driver.
func (x indexes) HeldBy(node string) (all []observe.Held) {
	for _, one := range x {
		all = append(all, one.HeldBy(node)...)
	}
	return all
}
