package sidecar

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/csiaddons"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/ipmi"
	fenceprogram "github.com/csi-fencepost/csi-fencepost/fence/agent/program"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// DriverSide is what agents need that ask the driver itself.
type DriverSide struct {
	Conn     grpc.ClientConnInterface // nil: there is none
	Name     string                   // as GetPluginInfo names it
	Nodes    csiaddons.Nodes
	CSINodes csiaddons.CSINodes
}

// A Member is one agent, and where it stands.
type Member struct {
	agent.Bounded
	Level int // from 1
}

// An AgentSet is what a command makes of the agents of a configuration.
type AgentSet struct {
	Driver string
	// Levels are the whole ones: a level that lacks one of its agents would
	// confirm too easily.
	Levels agent.Levels
	// Members are the agents of all levels.
	Members []Member
	// Faults are the agents that cannot be made, each in words.
	Faults []error
	// Notes are the agents that this command leaves out.
	Notes []string
}

// NewLevels makes the fence agents of a configuration. An error names each that
// cannot be made.
func NewLevels(c *config.Configuration, agentDirs []string, driver DriverSide) (agent.Levels, error) {
	s := NewAgents(c, agentDirs, driver)
	return s.Levels, errors.Join(s.Faults...)
}

// NewAgents makes the agents, in the order in which they are tried. Where there
// is no connection to the driver, those that need it are left out.
func NewAgents(c *config.Configuration, dirs []string, driver DriverSide) *AgentSet {
	s := &AgentSet{Driver: driver.Name}
	for i := range c.Fencing.Levels {
		s.add(i, &c.Fencing.Levels[i], dirs, driver)
	}
	return s
}

func (s *AgentSet) add(i int, level *config.Level, dirs []string, driver DriverSide) {
	var made agent.Level
	for j := range level.Agents {
		a := &level.Agents[j]
		if a.CSIAddons != nil && driver.Conn == nil {
			s.Notes = append(s.Notes, fmt.Sprintf("Agent %s (csiAddons) was left out: --csi-address names the driver's socket.", a.Name))
			continue
		}
		one, err := newAgent(a, dirs, driver)
		if err != nil {
			s.Faults = append(s.Faults, fmt.Errorf("fencing.levels[%d].agents[%d]: %w", i, j, err))
			continue
		}
		if why := unpolled(one); why != "" && a.Poll.Duration > 0 {
			s.Faults = append(s.Faults, fmt.Errorf("fencing.levels[%d].agents[%d].poll: agent %s %s", i, j, a.Name, why))
			continue
		}
		b := agent.Bounded{Agent: one, Timeout: a.Timeout.Duration, Attempts: a.Attempts, Poll: a.Poll.Duration}
		made = append(made, b)
		s.Members = append(s.Members, Member{b, i + 1})
	}
	if len(made) < len(level.Agents) {
		made = nil // covers no node; the numbers of the others stay
	}
	s.Levels = append(s.Levels, made)
}

// unpolled says why an agent cannot be polled; empty: it can. The node ID stands in the CSINode, and
// of a system UUID, which has two spellings, the watch keeps one.
func unpolled(a agent.Agent) string {
	if a.Proves() != fence.PowerReading {
		return "cuts a machine off from its storage, and poll is for those that read its power"
	}
	for _, name := range agent.Seeks(a, "") {
		if name == agent.VarNodeID || name == agent.VarSystemUUID {
			return "finds machines by $(" + name + "), of which polls know nothing: give nodeParameters, or go by another variable"
		}
	}
	return ""
}

// newAgent makes one agent. An error names it, and shows no secret.
func newAgent(a *config.Agent, dirs []string, driver DriverSide) (agent.Agent, error) {
	switch {
	case a.IPMI != nil:
		return ipmi.New(ipmi.Options{Name: a.Name, UsernameFile: a.IPMI.UsernameFile, PasswordFile: a.IPMI.PasswordFile, Nodes: a.IPMI.Nodes})
	case a.Exec != nil:
		return fenceprogram.New(fenceprogram.Options{Name: a.Name, Agent: a.Exec.Agent, Dirs: dirs,
			Parameters: a.Exec.Parameters, ParameterFiles: a.Exec.ParameterFiles, NodeParameters: a.Exec.NodeParameters,
			AcceptSuspended: a.Exec.AcceptSuspended})
	case a.CSIAddons != nil:
		return newStorageFence(a.Name, a.CSIAddons, driver)
	}
	return nil, fmt.Errorf("agent %s is of no kind", a.Name) // Validate refuses it
}

// newStorageFence makes the driver's own fence; c is what is configured of it, nil:
// nothing.
func newStorageFence(name string, c *config.CSIAddons, driver DriverSide) (*csiaddons.Agent, error) {
	options := csiaddons.Options{Name: name, Conn: driver.Conn, Driver: driver.Name, Nodes: driver.Nodes, CSINodes: driver.CSINodes}
	if c != nil {
		options.AllowedSubnets, options.DriverOnly, options.Declared = c.AllowedSubnets, c.Addresses == config.DriverOnly, c.Nodes
	}
	return csiaddons.New(options)
}

// Covering are the agents that are configured for the node.
func (s *AgentSet) Covering(node string) (out []Member) {
	for _, m := range s.Members {
		if m.Agent.Covers(node) {
			out = append(out, m)
		}
	}
	return out
}
