package main

import (
	"fmt"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

const agentName = "fence_soak"

// agents are the two kinds of fence agents that every machine which may lose power
// has: a BMC, and a program.
type agents struct {
	stage *bed.Stage
	plugs bed.Plugs // what the program reads
	bmcs  map[*machine]*bmc.BMC
}

func newAgents(s *bed.Stage) *agents {
	return &agents{stage: s, plugs: s.Plugs(agentName), bmcs: map[*machine]*bmc.BMC{}}
}

func (a *agents) add(m *machine) error {
	a.bmcs[m] = a.stage.StartBMC(m.uuid, m)
	return a.tell(m, true)
}

// tell the program of a machine's power.
func (a *agents) tell(m *machine, on bool) error { return a.plugs.Set(m.name, on) }

// levels is the configuration: both agents have to confirm.
func (a *agents) levels(all []*machine) string {
	var nodes, plugs []string
	for _, m := range all {
		if b := a.bmcs[m]; b != nil {
			nodes = append(nodes, fmt.Sprintf("%s: %q", m.name, b.Addr))
			plugs = append(plugs, fmt.Sprintf("%s: %q", m.name, m.name))
		}
	}
	return fmt.Sprintf("[{agents: [{name: bmc, timeout: 10s, attempts: 2, ipmi: %s}, {name: program, timeout: 10s, attempts: 2, exec: {agent: %s, nodeParameters: {plug: {%s}}}}]}]",
		a.stage.IPMIOf(nodes), agentName, strings.Join(plugs, ", "))
}
