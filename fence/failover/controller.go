package failover

import (
	"context"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"

	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	scanEvery   = time.Second
	fencesEvery = 30 * time.Second
	// idleEvery is the pause of a node that is fenced, with nothing left to do.
	idleEvery = 15 * time.Second
	// errorPause is the pause after a pass that failed.
	errorPause  = time.Second
	passTimeout = 2 * time.Minute
)

// Index is what is watched of a driver's volumes (an *observe.Index).
type Index interface {
	NodeID(nodeName string) string
	Volume(name string) *corev1.PersistentVolume
	HeldBy(node string) []observe.Held
	Holding() []string
	Lists(node string) bool
	AttachedElsewhere(pv, node string) bool
}

// Nodes is what is watched of all nodes, whosever volumes they hold (an *observe.Index, of
// whichever driver).
type Nodes interface {
	EachNode(f func(*corev1.Node))
	AttachmentsOn(node string) int
	Synced(node, uid, bootID, readySince string) bool
	SystemShared(node, systemUUID string) bool
}

// Driver is one whose volumes are moved.
type Driver struct {
	IDs   *csi.Identity
	Index Index
}

// Lives judges whether a node lives (package observe).
type Lives interface {
	Judge(node string, lease *coordinationv1.Lease, nodeExists, nodeReady bool) fence.Liveness
	Silent(node string) (version string, silent bool)
	Unchanged(node string) (age time.Duration, suspect, ok bool)
	Overdue(node string) bool
	Storm() (bool, string)
	Steady(node string, least time.Duration) bool
	Late(node, version string) (age time.Duration, late bool)
	Version(node string) string
	ReadsOff(node string, off bool)
}

// Metrics are the figures that a Controller counts.
type Metrics interface {
	// FencingBlocked tells the brake that keeps a node from being fenced now;
	// NoBrake: none does any more.
	FencingBlocked(node string, reason Brake)
	// NodeFenced counts a node that was switched off or cut off.
	NodeFenced(kind fence.Kind)
	// PodsDeleted counts pods that were deleted by force.
	PodsDeleted(n int)
	// PowerPolled counts an answer about a node that was asked whatever its lease says.
	PowerPolled(s agent.State)
	// Polling tells how nodes are polled now.
	Polling(Polling)
}

// Options of a Controller. All fields are required but Sources, Lead and those
// with a default.
type Options struct {
	// Client for everything but Events. 50 pods that move at once take about 60
	// requests: with less than QPS 50, burst 100 of its own it is the bottleneck.
	Client kubernetes.Interface
	// Drivers, at least one; just one where agents of Fencer cut nodes off from its storage.
	Drivers []Driver
	Nodes   Nodes
	Lives   Lives
	Fencer  Fencer
	// Records and Sources: the operator's word that a node is off, and what speaks against it.
	Records *noderecord.Store
	Sources []evidence.Source
	// Events must write through another client: there are as many as pods.
	Events  record.EventRecorder
	Metrics Metrics
	// Lead says what is wrong with this process's own lead, as a late renewal;
	// nil: nothing.
	Lead func() error

	// FenceAfter is how long a lease is unchanged before the node is fenced; 0:
	// never.
	FenceAfter time.Duration
	// AskEvery is the pause between questions to the agents; 3 s by default.
	AskEvery time.Duration
	// PollsPerSecond bounds the questions to agents about nodes that are polled; 100 by default.
	PollsPerSecond int
	// OffFor is how long a node that is polled has to read off before its pods are moved while
	// its lease is not silent.
	OffFor        time.Duration
	MaxConcurrent int
	MaxUnhealthy  float64 // a share, 0 to 1
	PowerOn       bool    // when everything has moved
	// UnpublishRevokesAccess declares that the driver cuts a client off on unpublish. A storage
	// fence is lifted then without the kubelet's word.
	UnpublishRevokesAccess bool
}

// Controller is the failover of the drivers' volumes. Make one with New.
type Controller struct {
	Options

	mu      sync.Mutex
	work    map[string]*worker // nodes under work
	running context.Context    // nil: Run does not run
	wait    sync.WaitGroup
	cutting []string                  // nodes that Off is, or is about to be, under way for
	fenced  map[string][]fencer.Fence // those that are not void, as last listed, by node
	polls   *polls
	ports   *ports
}

// New makes a Controller.
func New(o Options) *Controller {
	if o.AskEvery == 0 {
		o.AskEvery = 3 * time.Second
	}
	if o.Lead == nil {
		o.Lead = func() error { return nil }
	}
	return &Controller{Options: o, ports: newPorts(), work: map[string]*worker{}, fenced: map[string][]fencer.Fence{}, polls: newPolls(o.PollsPerSecond, o.Lives)}
}

// Run works until ctx ends, and returns when every node's work has. It may be
// begun again: everything is found anew from the objects. Run it on one replica
// at a time; two do no harm but to each other's Events.
func (c *Controller) Run(ctx context.Context) error {
	c.mu.Lock()
	c.running = ctx
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running = nil
		c.mu.Unlock()
		c.wait.Wait()
		c.polls.keep(nil) // whoever leads next has not seen it
		c.Metrics.Polling(c.polls.polling())
	}()
	c.wait.Go(func() { c.poll(ctx) })
	ticker := time.NewTicker(scanEvery)
	defer ticker.Stop()
	var listed time.Time
	for {
		if time.Since(listed) >= fencesEvery && c.listFences(ctx) {
			listed = time.Now()
		}
		c.scan()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// listFences finds the nodes that a storage fence is left of, for instance
// after a restart: unlike a power fence it leaves no taint. One of a driver that other
// sidecars fence for is left to them.
func (c *Controller) listFences(ctx context.Context) bool {
	fences, err := c.Fencer.Fences(ctx)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot list the nodes' fences")
		}
		return false
	}
	fenced := map[string][]fencer.Fence{}
	for _, f := range fences {
		if f.Void == "" && !f.Others {
			fenced[f.Node] = append(fenced[f.Node], f)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fenced = fenced
	return true
}

// scan begins work on each node that may need it.
func (c *Controller) scan() {
	names, polling := c.due()
	c.polls.keep(polling)
	c.ports.forget(func(node string) bool { return polling[node] != nil })
	c.Metrics.Polling(c.polls.polling())
	for _, name := range names {
		c.begin(name, false)
	}
}

// due are the nodes that may need work: they hold volumes and have no Node, or
// their Nodes are interesting; and those that are to be polled. It has each Node shown once: it
// runs every second, and a Node is large.
func (c *Controller) due() (names []string, polling map[string]*polled) {
	polling = map[string]*polled{}
	holding := map[string]bool{} // true: its Node was seen
	for _, name := range c.holding() {
		holding[name] = false
	}
	c.Nodes.EachNode(func(n *corev1.Node) {
		_, holds := holding[n.Name]
		if holds {
			holding[n.Name] = true
		}
		if c.interesting(n, holds) {
			names = append(names, n.Name)
		}
		if holds {
			if agents, every := c.Fencer.Polled(n.Name); every > 0 {
				polling[n.Name] = &polled{node: n.DeepCopy(), agents: agents, every: every}
			}
		}
	})
	for name, seen := range holding {
		if !seen {
			names = append(names, name)
		}
	}
	return names, polling
}

// holding names the nodes that hold volumes of the drivers, by VolumeAttachments or ledgers.
func (c *Controller) holding() (names []string) {
	for _, d := range c.Drivers {
		names = append(names, d.Index.Holding()...)
	}
	return names
}

func (c *Controller) interesting(n *corev1.Node, holding bool) bool {
	s := state{Node: n}
	if s.ourTaint() || c.isFenced(n) {
		return true
	}
	_, suspect, _ := c.Lives.Unchanged(n.Name)
	// All that is done for an overdue node is to ask its agents: without any, or where the node
	// opts out, there is nothing to do.
	overdue := !suspect && c.Lives.Overdue(n.Name) && c.Fencer.Covers(n.Name) && !OptedOut(n.Annotations)
	return (suspect || overdue) &&
		(holding || slices.ContainsFunc(c.Drivers, func(d Driver) bool { return d.Index.Lists(n.Name) }))
}

// isFenced tells whether a fence of the node was on record when they were last listed, and is not
// over.
func (c *Controller) isFenced(n *corev1.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return about(c.fenced[n.Name], n) != nil
}

// Prompt has the agents of a node asked at once: somebody else has a reason to
// think that it is off. Without Run it does nothing.
func (c *Controller) Prompt(node string) { c.begin(node, true) }

// Changed tells that a node, or what it holds, changed. It is cheap for nodes
// that are not under work.
func (c *Controller) Changed(node string) {
	c.mu.Lock()
	w := c.work[node]
	c.mu.Unlock()
	if w != nil {
		w.rouse()
	}
}

// begin starts work on a node, or rouses it. ask: the last answer is too old.
func (c *Controller) begin(name string, ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.work[name]
	switch {
	case w != nil && ask:
		w.askNow.Store(true)
		w.rouse()
	case w == nil && c.running != nil && c.running.Err() == nil:
		w = &worker{Controller: c, name: name, wake: make(chan struct{}, 1), said: map[string]string{}, claims: map[string]string{}}
		w.askNow.Store(ask)
		c.work[name] = w
		ctx := c.running
		c.wait.Go(func() { w.run(ctx) })
	}
}

func (c *Controller) end(w *worker) {
	c.mu.Lock()
	delete(c.work, w.name)
	c.mu.Unlock()
	c.Metrics.FencingBlocked(w.name, NoBrake)
}
