package sidecar

import (
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// Options are what a sidecar is built of. Conn and Rest are required.
type Options struct {
	// Conn is the connection to the driver (proxy.Dial).
	Conn *grpc.ClientConn
	// Rest is how the Kubernetes API is reached, with the rights of deploy/rbac. Its
	// QPS and Burst bound the requests of the calls; 0: client-go's own, 5 and 10; a
	// QPS below 0: no bound.
	Rest *rest.Config
	// Config; nil: every default holds.
	Config *config.Configuration
	// Driver is its name, as GetPluginInfo has it; empty: it is asked.
	Driver string
	// AgentDirs are the folders in which fence agents may be.
	AgentDirs []string
	// Levels are the fence agents; nil: those of the configuration are made.
	Levels agent.Levels
	// Sources of evidence of your own, asked before those of the configuration.
	Sources []evidence.Source
	// Host tells this process from others in locks and audit trails; empty: the
	// host's name.
	Host string
	// Timeout of our own calls to the driver; 0: 15 s.
	Timeout time.Duration
	// Metrics count what happens, and Board shows it; nil: nobody looks.
	Metrics *Metrics
	Board   *Board
	// Rejudged is how many of the calls that wait are judged anew at a time
	// (guard.Spare); 0: guard.Rejudged, below 0: none.
	Rejudged int64
	// Lead says what is wrong with this process's own lead; nil: nothing.
	Lead func() error
	// Ready is given what tells whether the guard's caches are synced, and what
	// they lack, before they are waited for; nil: nobody asks.
	Ready func(check func() error)
}

// defaultTimeout of our own calls to the driver.
const defaultTimeout = 15 * time.Second

// withDefaults are the options with all that may be left out.
func (o Options) withDefaults() Options {
	if o.Config == nil {
		o.Config = config.Default()
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Board == nil {
		o.Board = NewBoard("", o.Config, false, &Readiness{})
	}
	if o.Rejudged == 0 {
		o.Rejudged = guard.Rejudged
	}
	if o.Ready == nil {
		o.Ready = func(func() error) {}
	}
	o.Rest = rest.CopyConfig(o.Rest)
	if o.Rest.QPS == 0 {
		o.Rest.QPS = rest.DefaultQPS
	}
	if o.Rest.Burst == 0 {
		o.Rest.Burst = rest.DefaultBurst
	}
	return o
}
