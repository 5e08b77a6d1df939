package sidecar

import (
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
)

// Options are what a sidecar is built of. Conn and Rest are required.
type Options struct {
	// Conn is the connection to the driver (proxy.Dial).
	Conn *grpc.ClientConn
	// Rest is how the Kubernetes API is reached, with the rights of deploy/rbac. Its
	// QPS and Burst bound the requests of the calls; 0: 50 and 100, as run has them; a
	// QPS below 0: no bound. A RateLimiter of its own is not used: what fences would
	// wait behind the calls.
	Rest *rest.Config
	// Config, which New validates; nil: every default holds.
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
	// (waiting.Spare); 0: waiting.Rejudged, below 0: none.
	Rejudged int64
	// Lead says what is wrong with this process's own lead; nil: nothing.
	Lead func() error
	// Ready is given what tells whether the guard's caches are synced, and what
	// they lack, before they are waited for; nil: nobody asks.
	Ready func(check func() error)
}

const (
	// defaultTimeout of our own calls to the driver.
	defaultTimeout = 15 * time.Second
	// defaultQPS and defaultBurst of the requests to the Kubernetes API: with fewer a
	// failover of many volumes waits for them.
	defaultQPS   = 50
	defaultBurst = 100
)

// withDefaults are the options with all that may be left out.
func (in Options) withDefaults() Options {
	if in.Config == nil {
		in.Config = config.Default()
	}
	if in.Timeout <= 0 {
		in.Timeout = defaultTimeout
	}
	if in.Metrics == nil {
		in.Metrics = NewMetrics()
	}
	if in.Board == nil {
		in.Board = NewBoard("", in.Config, false, &Readiness{})
	}
	if in.Rejudged == 0 {
		in.Rejudged = waiting.Rejudged
	}
	if in.Ready == nil {
		in.Ready = func(func() error) {}
	}
	in.Rest = rest.CopyConfig(in.Rest)
	in.Rest.RateLimiter = nil
	if in.Rest.QPS == 0 {
		in.Rest.QPS = defaultQPS
	}
	if in.Rest.Burst == 0 {
		in.Rest.Burst = defaultBurst
	}
	return in
}
