package sidecar

import (
	"context"
	"io"
	"slices"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// A core is what a judgement stands on: the survey, the sources of evidence and
// the fence agents. It runs nothing by itself. A schedule of the simulation that
// drives a guard call by call is wired here, as the sidecar is.
type core struct {
	surveyor *survey.Surveyor
	sources  *EvidenceSources
	fencing  *fencing
	tracker  *observe.Tracker
	seal     *guard.Seal // nil: nothing is enforced
	// vitalRecords are the nodes' records, for what fences.
	vitalRecords *noderecord.Store
	observing    bool
}

// ground is what a core is put on: the outside of this process.
type ground struct {
	// client is for the calls. vital is for what fences: it waits behind no call.
	client, vital kubernetes.Interface
	// objects reads those of others, of any group.
	objects rest.Interface
	cluster string // the UID of namespace kube-system
	driver  *csi.Driver
	index   survey.Index
	tracker *observe.Tracker
	// kubelets tell of their processes; nil: nobody asks them.
	kubelets survey.Kubelets
	// limit of the requests of client; nil: none.
	limit *throttle.Limiter
	// random is where the ledger's tokens come from; nil: the system.
	random io.Reader
	// answered is told of each node that the agents gave a clear answer about.
	answered func(node string)
}

// newCore wires the judgement.
func newCore(ctx context.Context, in Options, g ground) (*core, error) {
	ids, namespace := g.driver.Identity(), in.Config.Fencing.Namespace
	c := &core{tracker: g.tracker, observing: in.Config.Mode == config.Observe}
	records := noderecord.NewStore(g.client.CoordinationV1(), namespace)
	c.vitalRecords = noderecord.NewStore(g.vital.CoordinationV1(), namespace)
	var err error
	if c.fencing, err = newFencing(ctx, in, g.vital, c.vitalRecords, g.answered); err != nil {
		return nil, err
	}
	c.sources = NewSources(SourceOptions{Config: in.Config, driver: ids.Driver, Objects: g.objects, fencing: c.fencing,
		Records: evidence.Records{Store: records, Actor: in.actor(), ReadOnly: c.observing}})
	ledgers := ledger.New(g.client, g.cluster, ids)
	if g.random != nil {
		ledgers.Random = g.random
	}
	c.surveyor = &survey.Surveyor{Client: g.client, IDs: ids, Index: g.index, Ledgers: ledgers, Records: records, Sources: slices.Concat(in.Sources, c.sources.All),
		Lives: g.tracker, Driver: g.driver, Policy: in.Config.Policy(), CutsStorage: c.fencing.cutsStorage(), Kubelets: g.kubelets, Limit: g.limit}
	if !c.observing {
		c.seal = guard.NewSeal(ctx, c.surveyor, g.client.CoordinationV1(), in.actor()+"/"+ledgers.NewToken())
		c.surveyor.Seal = c.seal
	}
	return c, nil
}

// guard judges by this core, and tells reporter.
func (c *core) guard(reporter guard.Reporter) *guard.Guard {
	return guard.New(guard.Options{Surveyor: c.surveyor, Reporter: reporter, Seal: c.seal, Observe: c.observing})
}
