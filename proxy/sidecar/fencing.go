package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

// fencing is what asks and uses the fence agents.
type fencing struct {
	fencer *fencer.Fencer
	// apart asks csi-fencepost failover about power; nil: the agents here read it, if any.
	apart *fencer.Apart
	// storage reads what the driver says is cut off; nil: it cannot tell.
	storage evidence.DriverFences
}

// asker is whom the guard asks.
func (f *fencing) asker() evidence.Asker {
	if f.apart != nil {
		return f.apart
	}
	return f.fencer
}

// answerer answers for sidecars without agents, by the agents for power that are here; nil:
// there are none, or they write nothing.
func (f *fencing) answerer() *fencer.Answerer {
	if !f.has(fence.PowerReading) || f.fencer.ReadOnly {
		return nil
	}
	return &fencer.Answerer{Fencer: f.fencer}
}

// newFencing makes the agents of the configuration; there may be none. answered
// is told of each node that they gave a clear answer about.
func newFencing(ctx context.Context, in Options, client kubernetes.Interface, records *noderecord.Store, answered func(node string)) (*fencing, error) {
	side := DriverSide{Conn: in.Conn, Name: in.Driver, Nodes: client.CoreV1().Nodes(), CSINodes: client.StorageV1().CSINodes()}
	f, levels := &fencing{}, in.Levels
	var err error
	if levels == nil {
		if levels, err = NewLevels(in.Config, in.AgentDirs, side); err != nil {
			return nil, err
		}
	}
	f.fencer, err = fencer.New(fencer.Options{Levels: in.metered(levels), Records: records, Nodes: client.CoreV1(), Leases: client.CoordinationV1(),
		CSINodes: client.StorageV1(), Driver: in.Driver, Actor: in.actor(), ReadOnly: in.Config.Mode == config.Observe,
		Answered: func(node string, _ fencer.Answer) { answered(node) }})
	if err != nil {
		return nil, err
	}
	if in.Config.Fencing.Apart {
		if f.has(fence.PowerReading) {
			return nil, errors.New("fencing.apart: true says that csi-fencepost failover reads the power of nodes, and there is an agent for it here")
		}
		f.apart = fencer.NewApart(f.fencer, answered)
		f.apart.Outcome = func(node string, answer fencer.Answer, err error) {
			in.Metrics.question(answer.State, err)
			in.Board.questions.note(node, err)
		}
	}
	if !in.Config.Evidence.NetworkFence || !networkFences(ctx, in) {
		return f, nil
	}
	// Whoever fences, the node reaches the storage from the addresses that are declared.
	f.storage, err = newStorageFence("network-fence", in.Config.Storage(), side)
	return f, err
}

// networkFences tells whether the driver can cut clients off. One without the
// service, as most are, is asked once and not again.
func networkFences(ctx context.Context, in Options) bool {
	ctx, cancel := context.WithTimeout(ctx, in.Timeout)
	defer cancel()
	can, err := addons.NewClient(in.Conn).Capabilities(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The driver has no csi-addons services; NetworkFence objects are no evidence", "err", err)
	}
	return err == nil && can.NetworkFence
}

// cutsStorage tells whether an agent of the configuration cuts nodes off from the storage.
func (f *fencing) cutsStorage() bool { return f.has(fence.StorageFence) }

// has tells whether an agent proves that.
func (f *fencing) has(kind fence.Kind) bool {
	return slices.ContainsFunc(f.fencer.Levels, func(l agent.Level) bool {
		return slices.ContainsFunc(l, func(b agent.Bounded) bool { return b.Agent.Proves() == kind })
	})
}

// newFailover makes the failover; nil: it is switched off.
func newFailover(ctx context.Context, in Options, ids *csi.Identity, index *observe.Index, on *core) (*failover.Controller, error) {
	c := in.Config
	if !c.Failover.Enabled || c.Mode == config.Observe {
		return nil, nil
	}
	// Clients of their own: 50 pods that move at once must not queue behind
	// other requests, nor behind the Events about them.
	client, err := kubernetes.NewForConfig(rest.CopyConfig(in.Rest))
	if err != nil {
		return nil, err
	}
	events, err := kubernetes.NewForConfig(rest.CopyConfig(in.Rest))
	if err != nil {
		return nil, err
	}
	sources := on.sources.claims
	if on.fencing.apart != nil {
		sources = append(slices.Clone(sources), evidence.Against(on.fencing.apart))
	}
	return failover.New(failover.Options{
		Client: client, Drivers: []failover.Driver{{IDs: ids, Index: index}}, Nodes: index, Lives: on.tracker, Fencer: on.fencing.fencer,
		Records: on.vitalRecords, Sources: sources, Events: newRecorder(ctx, events, ids.Driver), Metrics: in.Metrics, Lead: in.Lead,
		FenceAfter: c.Fencing.FenceAfter.Duration, PollsPerSecond: c.Fencing.PollsPerSecond, OffFor: c.Failover.OffFor.Duration,
		MaxConcurrent: c.Fencing.MaxConcurrent, MaxUnhealthy: c.Fencing.MaxUnhealthy.Share(), PowerOn: c.Fencing.PowerOn == config.WhenMoved,
		UnpublishRevokesAccess: c.Driver.UnpublishRevokesAccess,
	}), nil
}

// identify has what the machines are known by bound, where agents are told what the nodes say
// of them, and what was asked of nodes that are long gone removed, where it is answered.
func (f *fencing) identify(in Options, index *observe.Index) {
	if in.Config.Mode == config.Observe || !f.fencer.Levels.Seek("") && f.answerer() == nil {
		return
	}
	f.fencer.Machines = func() []fence.Machine { return machines(index, index.NodeID) }
}

// machines of all Nodes, first those that hold volumes: they may have to be fenced soon.
func machines(index nodesIndex, nodeID func(node string) string) []fence.Machine {
	holding := index.Holding()
	first, rest := []fence.Machine{}, []fence.Machine{}
	index.EachNode(func(n *corev1.Node) {
		m := fence.MachineOf(n)
		m.NodeID, m.BootID = nodeID(n.Name), "" // it is the same in its next boot
		if _, holds := slices.BinarySearch(holding, n.Name); holds {
			first = append(first, m)
		} else {
			rest = append(rest, m)
		}
	})
	return append(first, rest...)
}

// nodesIndex is what is watched of the nodes, and of the volumes that they hold.
type nodesIndex interface {
	EachNode(f func(*corev1.Node))
	Node(name string) *corev1.Node
	Holding() []string
	HeldBy(node string) []observe.Held
}

// background is what runs on one replica at a time.
func background(client kubernetes.Interface, sights *sighting, f *fencing, answering *fencer.Answerer, mover *failover.Controller) func(context.Context) error {
	return func(ctx context.Context) error {
		prompts := &evidence.Prompts{Client: client.CoreV1().RESTClient(), Call: func(ctx context.Context, p evidence.Prompt) {
			sights.prompted(ctx, p.Node)
			if mover != nil && p.Node != "" {
				mover.Prompt(p.Node)
			}
		}}
		parts := map[string]func(context.Context) error{"sights": sights.run}
		if mover != nil {
			parts["failover"] = mover.Run
		}
		if answering != nil {
			parts["answers"] = answering.Run
		}
		if f.fencer.Machines != nil {
			parts["identities"] = f.fencer.Bind
		}
		if len(f.fencer.Levels) > 0 || f.storage != nil || len(sights.sources.remediations) > 0 {
			parts["prompts"] = func(ctx context.Context) error { prompts.Run(ctx); return nil }
		}
		return together(ctx, parts)
	}
}

// together runs all parts until ctx ends, or one of them does: it is not much without the others.
func together(ctx context.Context, parts map[string]func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(parts))
	for name, run := range parts {
		go func() {
			if err := run(ctx); err != nil {
				ended <- fmt.Errorf("%s: %w", name, err)
				return
			}
			ended <- nil
		}()
	}
	var first error
	for range parts {
		err := <-ended
		if first == nil {
			first = err
		}
		cancel()
	}
	return first
}

// A metered agent counts what it is asked for.
type metered struct {
	agent.Agent
	metrics *Metrics
	seen    *readings
}

// metered are the agents of levels: their calls are counted, and their last
// answers kept for the board.
func (in Options) metered(levels agent.Levels) agent.Levels {
	m, seen := in.Metrics, &in.Board.agents
	var all agent.Levels
	for _, level := range levels {
		var l agent.Level
		for _, b := range level {
			m.knows(b.Agent.Name())
			b.Agent = metered{b.Agent, m, seen}
			l = append(l, b)
		}
		all = append(all, l)
	}
	return all
}

// Unwrap is for agent.Seeks.
func (a metered) Unwrap() agent.Agent { return a.Agent }

func (a metered) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	begun := time.Now()
	r, err := agent.Read(ctx, a.Agent, m)
	result := r.State.String()
	if err != nil {
		result = "error"
	}
	a.metrics.agentCall(a.Name(), "status", result, err == nil)
	a.note(m, "status", result, r.Detail, err, begun)
	return r, err
}

func (a metered) Off(ctx context.Context, m agent.Machine) (string, error) {
	begun := time.Now()
	detail, err := a.Agent.Off(ctx, m)
	a.metrics.agentCall(a.Name(), "off", outcomeOf(err), err == nil)
	a.note(m, "off", outcomeOf(err), detail, err, begun)
	return detail, err
}

func (a metered) On(ctx context.Context, m agent.Machine) (string, error) {
	begun := time.Now()
	detail, err := a.Agent.On(ctx, m)
	a.metrics.agentCall(a.Name(), "on", outcomeOf(err), err == nil)
	a.note(m, "on", outcomeOf(err), detail, err, begun)
	return detail, err
}

func outcomeOf(err error) string {
	if err != nil {
		return "error"
	}
	return "sent"
}
