package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/csiaddons"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/ipmi"
	fenceprogram "github.com/csi-fencepost/csi-fencepost/fence/agent/program"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// agentFlags are those of the commands that talk to fence agents.
type agentFlags struct {
	dirs       folderList
	csiAddress string
}

func (f *agentFlags) register(fs *pflag.FlagSet) {
	f.dirs = folderList{"/usr/sbin"}
	fs.Var(&f.dirs, "agent-dirs", "The folders in which fence agents may be, absolute, separated by commas.")
	fs.StringVar(&f.csiAddress, "csi-address", "", "The driver's socket, for the agents of kind csiAddons.")
}

// Type implements pflag.Value.
func (l *folderList) Type() string { return "folders" }

// build makes the agents of a configuration; done lets go of the driver.
func (f *agentFlags) build(ctx context.Context, c *cluster) (agents *agentSet, done func(), err error) {
	side := driverSide{nodes: c.client.CoreV1().Nodes()}
	if f.csiAddress == "" {
		return newAgents(c.config, f.dirs, side), func() {}, nil
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
	side.conn, side.name = conn, driver
	return newAgents(c.config, f.dirs, side), func() { conn.Close() }, nil
}

// driverSide is what agents need that ask the driver itself.
type driverSide struct {
	conn  grpc.ClientConnInterface // nil: there is none
	name  string                   // as GetPluginInfo names it
	nodes csiaddons.Nodes
}

// A member is one agent, and where it stands.
type member struct {
	agent.Bounded
	level int // from 1
}

// An agentSet is what a command makes of the agents of a configuration.
type agentSet struct {
	driver string
	// levels are the whole ones: a level that lacks one of its agents would
	// confirm too easily.
	levels agent.Levels
	// members are the agents of all levels.
	members []member
	// faults are the agents that cannot be made, each in words.
	faults []error
	// notes are the agents that this command leaves out.
	notes []string
}

// newLevels makes the fence agents of a configuration. An error names each that
// cannot be made.
func newLevels(c *config.Configuration, agentDirs []string, driver driverSide) (agent.Levels, error) {
	s := newAgents(c, agentDirs, driver)
	return s.levels, errors.Join(s.faults...)
}

// newAgents makes the agents, in the order in which they are tried. Where there
// is no connection to the driver, those that need it are left out.
func newAgents(c *config.Configuration, dirs []string, driver driverSide) *agentSet {
	s := &agentSet{driver: driver.name}
	for i := range c.Fencing.Levels {
		s.add(i, &c.Fencing.Levels[i], dirs, driver)
	}
	return s
}

func (s *agentSet) add(i int, level *config.Level, dirs []string, driver driverSide) {
	var made agent.Level
	for j := range level.Agents {
		a := &level.Agents[j]
		if a.CSIAddons != nil && driver.conn == nil {
			s.notes = append(s.notes, fmt.Sprintf("Agent %s (csiAddons) was left out: --csi-address names the driver's socket.", a.Name))
			continue
		}
		one, err := newAgent(a, dirs, driver)
		if err != nil {
			s.faults = append(s.faults, fmt.Errorf("fencing.levels[%d].agents[%d]: %w", i, j, err))
			continue
		}
		b := agent.Bounded{Agent: one, Timeout: a.Timeout.Duration, Attempts: a.Attempts}
		made = append(made, b)
		s.members = append(s.members, member{b, i + 1})
	}
	if len(made) < len(level.Agents) {
		made = nil // covers no node; the numbers of the others stay
	}
	s.levels = append(s.levels, made)
}

// newAgent makes one agent. An error names it, and shows no secret.
func newAgent(a *config.Agent, dirs []string, driver driverSide) (agent.Agent, error) {
	switch {
	case a.IPMI != nil:
		return ipmi.New(ipmi.Options{Name: a.Name, UsernameFile: a.IPMI.UsernameFile, PasswordFile: a.IPMI.PasswordFile, Nodes: a.IPMI.Nodes})
	case a.Exec != nil:
		return fenceprogram.New(fenceprogram.Options{Name: a.Name, Agent: a.Exec.Agent, Dirs: dirs,
			Parameters: a.Exec.Parameters, ParameterFiles: a.Exec.ParameterFiles, NodeParameters: a.Exec.NodeParameters,
			AcceptSuspended: a.Exec.AcceptSuspended})
	case a.CSIAddons != nil:
		return csiaddons.New(csiaddons.Options{Name: a.Name, Conn: driver.conn, Driver: driver.name, Nodes: driver.nodes})
	}
	return nil, fmt.Errorf("agent %s is of no kind", a.Name) // Validate refuses it
}

// covering are the agents that are configured for the node.
func (s *agentSet) covering(node string) (out []member) {
	for _, m := range s.members {
		if m.Agent.Covers(node) {
			out = append(out, m)
		}
	}
	return out
}

// A readingView is what one agent reads of one node.
type readingView struct {
	Agent string `json:"agent"`
	Level int    `json:"level"`
	State string `json:"reads"` // on, off or unclear
	// Took, rounded, for people.
	Took   string `json:"took"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (r *readingView) words() string {
	switch {
	case r.Error == "":
		return orDash(r.Detail)
	case r.Detail == "":
		return r.Error
	}
	return r.Error + " (" + r.Detail + ")"
}

// read asks each agent that covers the node once, all at the same time.
func (s *agentSet) read(ctx context.Context, m agent.Machine) []readingView {
	covering := s.covering(m.Node)
	views := make([]readingView, len(covering))
	each(covering, func(i int, a member) { views[i] = a.read(ctx, m) })
	return views
}

func (a member) read(ctx context.Context, m agent.Machine) readingView {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	begun := time.Now()
	reading, err := a.Agent.Status(ctx, m)
	v := readingView{Agent: a.Agent.Name(), Level: a.level, State: reading.State.String(), Took: took(time.Since(begun)), Detail: reading.Detail}
	if err != nil {
		v.State, v.Error = agent.Unclear.String(), oneLineOf(err)
	}
	return v
}

// took rounds a duration to what a person reads.
func took(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// oneLineOf is an error, the parts of a joined one after another.
func oneLineOf(err error) string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return err.Error()
	}
	text := ""
	for line := range slices.Values(joined.Unwrap()) {
		if text != "" {
			text += "; "
		}
		text += line.Error()
	}
	return text
}

// atOnce is how many nodes or agents are asked at the same time.
const atOnce = 16

// each calls f for every element, several at the same time.
func each[T any](all []T, f func(i int, t T)) {
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

// configured are the nodes that the configuration names for any agent.
func configured(c *config.Configuration) []string {
	names := map[string]bool{}
	for _, level := range c.Fencing.Levels {
		for _, a := range level.Agents {
			if a.IPMI != nil {
				for node := range a.IPMI.Nodes {
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
