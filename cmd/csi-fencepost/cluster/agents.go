package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// AgentFlags are those of the commands that talk to fence agents.
type AgentFlags struct {
	dirs       cli.FolderList
	csiAddress string
}

// Register adds the flags.
func (f *AgentFlags) Register(fs *cli.Flags) {
	f.dirs = cli.FolderList{"/usr/sbin"}
	fs.Var(&f.dirs, "agent-dirs", "The folders in which fence agents may be, absolute, separated by commas.")
	fs.StringVar(&f.csiAddress, "csi-address", "", "The driver's socket, for the agents of kind csiAddons.")
}

// Build makes the agents of a configuration; done lets go of the driver.
func (f *AgentFlags) Build(ctx context.Context, c *Cluster) (agents *sidecar.AgentSet, done func(), err error) {
	side := sidecar.DriverSide{Nodes: c.Client.CoreV1().Nodes(), CSINodes: c.Client.StorageV1().CSINodes()}
	if f.csiAddress == "" {
		return sidecar.NewAgents(c.Config, f.dirs, side), func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := proxy.Dial(ctx, f.csiAddress)
	if err != nil {
		return nil, nil, fmt.Errorf("--csi-address: the driver on %s: %w", f.csiAddress, err)
	}
	driver, err := rpc.GetDriverName(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("--csi-address: the driver on %s does not tell its name: %w", f.csiAddress, err)
	}
	side.Conn, side.Name = conn, driver
	return sidecar.NewAgents(c.Config, f.dirs, side), func() { conn.Close() }, nil
}

// A ReadingView is what one agent reads of one node.
type ReadingView struct {
	Agent string `json:"agent"`
	Level int    `json:"level"`
	State string `json:"reads"` // on, off or unclear
	// Took, rounded, for people.
	Took   string `json:"took"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Words are what the agent said, or why it did not.
func (r *ReadingView) Words() string {
	switch {
	case r.Error == "":
		return cli.OrDash(r.Detail)
	case r.Detail == "":
		return r.Error
	}
	return r.Error + " (" + r.Detail + ")"
}

// ReadAgents asks each agent that covers the node once, all at the same time.
func ReadAgents(ctx context.Context, s *sidecar.AgentSet, m agent.Machine) []ReadingView {
	covering := s.Covering(m.Node)
	views := make([]ReadingView, len(covering))
	Each(covering, func(i int, a sidecar.Member) { views[i] = readAgent(ctx, a, m) })
	return views
}

func readAgent(ctx context.Context, a sidecar.Member, m agent.Machine) ReadingView {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	begun := time.Now()
	reading, err := agent.Read(ctx, a.Agent, m)
	v := ReadingView{Agent: a.Agent.Name(), Level: a.Level, State: reading.State.String(), Took: cli.Took(time.Since(begun)), Detail: reading.Detail}
	if err != nil {
		v.State, v.Error = agent.Unclear.String(), cli.OneLineOf(err)
	} else if why := agent.Withheld(a.Agent, m); why != "" {
		v.Error = cli.OneLineOf(errors.New(why))
	}
	return v
}

// atOnce is how many nodes or agents are asked at the same time.
const atOnce = 16

// Each calls f for every element, several at the same time.
func Each[T any](all []T, f func(i int, t T)) {
	slots, running := make(chan struct{}, atOnce), sync.WaitGroup{}
	for i, t := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			f(i, t)
		})
	}
	running.Wait()
}

// Configured are the nodes that the configuration names for any agent.
func Configured(c *config.Configuration) []string {
	names := map[string]bool{}
	for _, level := range c.Fencing.Levels {
		for _, a := range level.Agents {
			if a.IPMI != nil {
				for node := range a.IPMI.Nodes {
					names[node] = true
				}
			}
			if a.CSIAddons != nil {
				for node := range a.CSIAddons.Nodes {
					names[node] = true
				}
			}
			if a.Exec != nil {
				for _, values := range a.Exec.NodeParameters {
					for node := range values {
						names[node] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
