package simulate

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	witness "github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// Parts are what one process of csi-fencepost is given in the place of the world.
type Parts struct {
	// Name of the process, r1 and so on: its identity in locks and audit trails.
	Name   string
	Config *config.Configuration
	// Client and Index are the API server and the watch of tier 1. Aside is the same
	// API server for what looks at a Node for itself and not for the call (fencer).
	Client, Aside kubernetes.Interface
	Index         survey.Index
	// Rest is the API server of tier 2; nil in tier 1.
	Rest *rest.Config
	// Driver is the connection to the driver.
	Driver *grpc.ClientConn
	// Kubelets are asked for their processes (tier 1).
	Kubelets witness.Asker
	// Agents are the fence agents; nil: none are configured.
	Agents agent.Levels
	// Spares forbids that a refused call that is repeated is judged anew unless something was found
	// (tier 2).
	Spares bool
	// Random is where tokens come from.
	Random io.Reader
}

// Sidecar is one process of csi-fencepost, as the real wiring makes it.
type Sidecar interface {
	ControllerPublishVolume(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error)
	// Sight shows it a Node that changed (tier 1; tier 2 watches).
	Sight(context.Context, *corev1.Node) error
	// FenceOff has it fence a node as failover does, if its lease is as it was.
	FenceOff(ctx context.Context, node *corev1.Node, leaseRV string) error
	// LeaseSeen tells of a node's lease as a watch shows it; an empty version:
	// it is gone (tier 1).
	LeaseSeen(node, version string)
	// Beat is one heartbeat of what watches the leases: it runs, and the API server
	// answers it or does not (tier 1). One comes every beatEvery of the model's time
	// at least.
	Beat(answers bool)
}

// Factory makes a Sidecar that runs until ctx ends.
type Factory func(ctx context.Context, p Parts) (Sidecar, error)

// Process is one life of a replica of csi-fencepost.
type Process struct {
	w      *World
	name   string
	ctx    context.Context
	cancel context.CancelFunc
	dead   bool
	side   Sidecar // nil: it is starting
	// attacher is the external-attacher beside it.
	attacher *proxy.Caller
	view     *view
	failed   error // it could not start

	// next tells that it is of the next version.
	next                     bool
	noAPI, noDriver, noAgent bool
	// stalled caches, by kind; moved is closed and replaced when one goes on.
	stalled map[string]bool
	moved   chan struct{}
	// unbroken is since when its watches of Nodes and VolumeAttachments show all that
	// changes; zero: they do not.
	unbroken time.Time
	// sights are the Nodes that changed and that it has not looked at.
	sights map[string]bool
	busy   map[errand]bool // background calls under way
	// reads are those of what no attacher asked for, and all in tier 2.
	reads reads
	// ordered is the version of the lease on which a fence of the node rests.
	ordered map[string]string
}

// start begins the next life of a replica.
func (w *World) start(name string) {
	p := &Process{w: w, name: name, attacher: new(proxy.Caller), sights: map[string]bool{}, busy: map[errand]bool{}, ordered: map[string]string{}, reads: reads{}, stalled: map[string]bool{}, moved: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.WithValue(context.Background(), processKey{}, p))
	p.view = &view{p: p, shown: map[string]*snapshot{}, nodes: map[string]*corev1.Node{}, forced: map[taken]*fence.Forced{}, known: map[int]time.Time{}}
	for _, s := range w.slots {
		p.sights[s.name] = true
	}
	w.procs[name] = p
	w.lives++
	p.next = w.setup.Versions && w.lives%2 == 0
	seed := w.seed ^ uint64(w.lives)*0x9e3779b97f4a7c15
	parts := Parts{Name: name, Config: w.configuration(), Driver: w.conn, Random: &tokens{r: rand.NewPCG(seed, 2)}}
	if w.whole != nil {
		parts.Rest, parts.Spares = w.whole.restOf(p), w.setup.Spares
	} else {
		parts.Client, parts.Aside, parts.Index, parts.Kubelets = &client{p: p}, &client{p: p, aside: true}, p.view, &kubelets{p}
	}
	if w.setup.Agents {
		parts.Agents = agent.Levels{{{Agent: &bmc{p}, Timeout: agentTimeout, Attempts: 1}}}
	}
	w.work.Go(func() {
		var err error
		if w.whole != nil {
			if parts.Driver, err = w.driverWire(p); err != nil {
				panic(err) // in memory
			}
		}
		var side Sidecar
		side, err = w.factory(p.ctx, parts)
		w.mu.Lock()
		defer w.mu.Unlock()
		p.side, p.failed = side, err
		if err != nil {
			p.cancel() // what it had begun ends with it
		}
		if err == nil && !p.dead {
			p.leasesSeen()
			p.view.see()
		}
	})
}

// tokens are the random bytes of a process, the same for the same seed.
type tokens struct {
	mu sync.Mutex
	r  *rand.PCG
}

func (t *tokens) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range p {
		p[i] = byte(t.r.Uint64() >> 32)
	}
	return len(p), nil
}

// crash ends a process. What it had sent may still arrive.
func (w *World) crash(p *Process) {
	p.dead = true
	for _, o := range slices.Clone(w.parked) {
		if o.from != p || o.orphan {
			continue
		}
		if !o.write || o.to == toCaller {
			w.remove(o)
		}
		o.orphan = true
		o.answer <- reply{nil, errDead}
	}
	p.cancel()
	for _, c := range w.calls {
		if c.p == p {
			w.ended(c, errDead)
		}
	}
	w.Stats.Crashes++
}

// ended tells whether it crashed, or could not start.
func (p *Process) ended() bool { return p.dead || p.failed != nil }

func (p *Process) up() bool { return p != nil && !p.dead && p.side != nil }

type processKey struct{}

// reads are the steps in which a call was last given what it asked for, by key.
type reads map[string]int

type readsKey struct{}

// sees tells whether its watches show it changes now.
func (p *Process) sees(kind string) bool { return p.up() && !p.noAPI && !p.stalled[kind] }

// leaseSeen shows a lease that changed to those who watch.
func (w *World) leaseSeen(node string) {
	for _, name := range w.replicas {
		if p := w.procs[name]; p.sees(StallLease) {
			p.side.LeaseSeen(node, w.leaseVersion(node))
		}
	}
}

// leasesSeen is what a watch shows that begins, or begins again.
func (p *Process) leasesSeen() {
	for _, s := range p.w.slots {
		p.side.LeaseSeen(s.name, p.w.leaseVersion(s.name))
	}
}

func (w *World) leaseVersion(node string) string {
	if l := w.peekLease(leaseKey(node)); l != nil {
		return l.ResourceVersion
	}
	return ""
}

// leaseKey is what a kubelet's lease is called in a Table.
func leaseKey(node string) string { return corev1.NamespaceNodeLease + "/" + node }

// putNode writes a Node, and has those who watch look at it.
func (w *World) putNode(n *corev1.Node) {
	w.objects.Nodes.Put(n)
	for _, name := range w.replicas {
		if p := w.procs[name]; p != nil {
			p.sights[n.Name] = true
		}
	}
}

// sight has a process look at a Node that changed.
func (w *World) sight(p *Process, node string) {
	delete(p.sights, node)
	n, ok := w.objects.Nodes.Get(node)
	if !ok {
		return
	}
	n.ManagedFields = nil // the watch keeps none
	p.background(errand{Sight, node}, func(ctx context.Context) error { return p.side.Sight(ctx, n) }, func(err error) {
		if err != nil {
			p.sights[node] = true // the queue tries again
		}
	})
}

// growStack makes room for what a call of a process needs at once: growing the
// stack step by step is a tenth of what a schedule costs.
//
//go:noinline
func growStack(n int) byte {
	var room [12 << 10]byte
	return room[n]
}

// errand is a call that a process makes by itself: Sight or FenceOff, and the node.
type errand struct{ verb, node string }

// background runs what a process does by itself.
func (p *Process) background(what errand, do func(context.Context) error, done func(error)) {
	p.busy[what] = true
	p.w.work.Go(func() {
		growStack(0)
		ctx, cancel := context.WithTimeout(p.ctx, 2*time.Minute)
		defer cancel()
		err := do(ctx)
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		delete(p.busy, what)
		done(err)
	})
}

// fenceOff has a process fence a node on the evidence of its lease now.
func (w *World) fenceOff(p *Process, s *slot) {
	n, ok := w.objects.Nodes.Get(s.name)
	if !ok {
		return
	}
	rv := w.leaseVersion(s.name)
	w.Stats.Fences++
	p.ordered[s.name] = rv
	p.background(errand{FenceOff, s.name}, func(ctx context.Context) error { return p.side.FenceOff(ctx, n, rv) }, func(error) {})
}

// view is the watch of tier 1: which objects there are, as they are or, for a
// kind whose cache stalls, as they were.
type view struct {
	p      *Process
	shown  map[string]*snapshot // of a kind that stalls
	order  observe.Order
	nodes  map[string]*corev1.Node // as they were last seen
	forced map[taken]*fence.Forced // when a volume was seen to be taken by force
	known  map[int]time.Time       // when the process of a kubelet was first seen, by its number
}

// taken by its VolumeAttachment, in a boot of its node.
type taken struct {
	va   types.UID
	boot string
}

// show has every process see what its watches show it now.
func (w *World) show() {
	for _, p := range w.procs {
		p.view.see()
	}
}

// see keeps the order of what the watches show, which is asked for later. A watch that
// begins, or begins again, lists what there is at once.
func (v *view) see() {
	m := v.p.w.memory
	if m == nil {
		return // tier 2 watches
	}
	if v.p.sees(StallNodes) {
		for _, n := range m.nodes.items {
			v.order.Node(n)
			v.seeForced(n)
		}
	}
	if v.p.sees(StallVAs) {
		for _, va := range m.vas.items {
			v.order.Attachment(va)
		}
	}
}

// seeForced is what observe.Index does.
func (v *view) seeForced(n *corev1.Node) {
	w, was := v.p.w, v.nodes[n.Name]
	if v.nodes[n.Name] = n; was == n {
		return
	}
	for _, vol := range w.volumes {
		va := w.vaOf(vol, w.slot(n.Name))
		if va == nil {
			continue
		}
		had, has := was != nil && was.UID == n.UID && volumesAttachedHas(was, vol), volumesAttachedHas(n, vol)
		of := taken{va.UID, n.Status.NodeInfo.BootID}
		switch f := v.forced[of]; {
		case f == nil && had && !has && inUse(n, vol):
			v.forced[of] = &fence.Forced{Taken: time.Now()}
		case f != nil && had && !has:
			f.Off = time.Now()
		case f != nil && !had && has:
			f.Back, f.Off = time.Now(), time.Time{}
		}
	}
}

func (v *view) Synced(node, uid, bootID, readySince string) bool {
	w := v.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	v.see()
	return v.order.Synced(node, uid, bootID, readySince)
}

func (v *view) DeletedVersion(attachment, uid string) string {
	return v.order.DeletedVersion(attachment, uid)
}

func (v *view) BootedSince(attachment, uid string, node *corev1.Node, heard, silent bool) (before string, since bool) {
	return v.order.BootedSince(attachment, uid, node, heard, silent)
}

func (v *view) Forced(_, uid, bootID string) *fence.Forced {
	w := v.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	v.see()
	if f := v.forced[taken{types.UID(uid), bootID}]; f != nil {
		seen := *f
		return &seen
	}
	return nil
}

func (v *view) TurnedSince(node, attachment string) bool {
	w := v.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	v.see()
	return v.order.TurnedSince(node, attachment)
}

// snapshot is what a cache showed when it stalled.
type snapshot struct {
	nodes   []*corev1.Node
	vas     []*storagev1.VolumeAttachment
	csi     []*storagev1.CSINode
	volumes []*corev1.PersistentVolume
}

var _ survey.Index = (*view)(nil)

func (p *Process) stall(kind string) {
	p.stalled[kind] = true
	if p.w.memory == nil {
		return
	}
	m := p.w.memory
	p.view.shown[kind] = &snapshot{nodes: m.nodes.all(), vas: m.vas.all(), csi: m.csi.all(), volumes: m.volumes.all()}
}

// goOn has the watches of a process show what they held back.
func (p *Process) goOn() {
	close(p.moved)
	p.moved = make(chan struct{})
	p.view.see()
}

// of locks the world, and returns what the cache of that kind shows.
func (v *view) of(kind string) (*snapshot, func()) {
	w := v.p.w
	w.mu.Lock()
	if s := v.shown[kind]; s != nil && v.p.stalled[kind] {
		return s, w.mu.Unlock
	}
	m := w.memory
	switch kind {
	case StallNodes:
		return &snapshot{nodes: m.nodes.all()}, w.mu.Unlock
	case StallVAs:
		return &snapshot{vas: m.vas.all()}, w.mu.Unlock
	case StallCSI:
		return &snapshot{csi: m.csi.all()}, w.mu.Unlock
	}
	return &snapshot{volumes: m.volumes.all()}, w.mu.Unlock
}

// all are the objects themselves, in order of their names: do not change them.
func (t *table[T]) all() []T {
	all := make([]T, 0, len(t.names))
	for _, name := range t.names {
		all = append(all, t.items[name])
	}
	return all
}

func (v *view) Volumes(handle string) []string {
	s, done := v.of(StallPVs)
	defer done()
	var names []string
	for _, pv := range s.volumes {
		if own, ok := identity.PVHandle(pv); ok && own == handle {
			names = append(names, pv.Name)
		}
	}
	return names
}

func (v *view) Attachments(handle string) []string {
	s, done := v.of(StallVAs)
	defer done()
	var names []string
	for _, va := range s.vas {
		if handleOf(*va.Spec.Source.PersistentVolumeName) == handle {
			names = append(names, va.Name)
		}
	}
	return names
}

func (v *view) NodesListing(handle string) []string {
	s, done := v.of(StallNodes)
	defer done()
	disk := v.p.w.volume(handle)
	var names []string
	for _, n := range s.nodes {
		if disk != nil && (inUse(n, disk) || volumesAttachedHas(n, disk)) {
			names = append(names, n.Name)
		}
	}
	return names
}

func (v *view) NodeNames(nodeID string) []string {
	s, done := v.of(StallCSI)
	defer done()
	var names []string
	for _, n := range s.csi {
		if nodeIDOf(n) == nodeID {
			names = append(names, n.Name)
		}
	}
	return names
}

func (v *view) NodeID(nodeName string) string {
	s, done := v.of(StallCSI)
	defer done()
	for _, n := range s.csi {
		if n.Name == nodeName {
			return nodeIDOf(n)
		}
	}
	return ""
}

func (v *view) NodeIDs() []string {
	s, done := v.of(StallCSI)
	defer done()
	var ids []string
	for _, n := range s.csi {
		ids = append(ids, nodeIDOf(n))
	}
	return ids
}

func (v *view) SystemShared(node, systemUUID string) bool {
	s, done := v.of(StallNodes)
	defer done()
	return slices.ContainsFunc(s.nodes, func(n *corev1.Node) bool {
		return n.Name != node && fence.SystemKey(n.Status.NodeInfo.SystemUUID) == fence.SystemKey(systemUUID)
	})
}

func nodeIDOf(n *storagev1.CSINode) string {
	return identity.NodeID(n)
}

func (v *view) CaughtPV(name, uid string) bool {
	s, done := v.of(StallPVs)
	defer done()
	return slices.ContainsFunc(s.volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == name && string(pv.UID) == uid })
}

func (v *view) CaughtAttachment(name, uid string) bool {
	s, done := v.of(StallVAs)
	defer done()
	return slices.ContainsFunc(s.vas, func(va *storagev1.VolumeAttachment) bool { return va.Name == name && string(va.UID) == uid })
}
