package sidecar

import (
	"context"
	"errors"
	"path"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	fenceprogram "github.com/csi-fencepost/csi-fencepost/fence/agent/program"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// Declared are the agents of a configuration as far as it says itself what they are: which nodes
// each covers, by what it finds them, and what it proves. They are for whoever is where neither
// their programs nor their credentials are: every call of a device is an error. A program of
// which only its own metadata tells that it cuts storage is taken for one of the power.
func Declared(c *config.Configuration) (levels agent.Levels) {
	for _, level := range c.Fencing.Levels {
		var made agent.Level
		for _, a := range level.Agents {
			made = append(made, agent.Bounded{Agent: declared{a}, Timeout: a.Timeout.Duration, Attempts: a.Attempts, Poll: a.Poll.Duration})
		}
		levels = append(levels, made)
	}
	return levels
}

type declared struct{ of config.Agent }

var errDeclared = errors.New("this agent is only read of in a configuration")

// Name implements agent.Agent, as do the next.
func (d declared) Name() string { return d.of.Name }

func (d declared) Proves() fence.Kind {
	if d.of.CSIAddons != nil || d.of.Exec != nil && fenceprogram.StorageByName(path.Base(d.of.Exec.Agent)) {
		return fence.StorageFence
	}
	return fence.PowerReading
}

func (d declared) Covers(node string) bool {
	switch {
	case d.of.IPMI != nil:
		return d.of.IPMI.Nodes[node] != ""
	case d.of.Exec != nil:
		return d.program().Covers(node)
	case d.of.CSIAddons != nil:
		return d.of.CSIAddons.Nodes == nil || len(d.of.CSIAddons.Nodes[node]) > 0
	}
	return false
}

func (d declared) Seeks(node string) []string {
	if d.of.Exec == nil {
		return nil
	}
	return d.program().Seeks(node)
}

func (d declared) program() *fenceprogram.Options {
	return &fenceprogram.Options{Parameters: d.of.Exec.Parameters, NodeParameters: d.of.Exec.NodeParameters}
}

func (d declared) Status(context.Context, agent.Machine) (agent.Reading, error) {
	return agent.Reading{}, errDeclared
}
func (d declared) Off(context.Context, agent.Machine) (string, error) { return "", errDeclared }
func (d declared) On(context.Context, agent.Machine) (string, error)  { return "", errDeclared }
