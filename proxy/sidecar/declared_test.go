package sidecar

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

const declaredAgents = "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + `
fencing:
  levels:
  - agents: [{name: bmc, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: "b:623"}}}]
  - agents: [{name: array, csiAddons: {nodes: {n2: [10.20.0.12]}}}]
`

// What is read of a configuration alone says the same as the agents that are made of it.
func TestDeclaredAgentsCoverWhatTheRealOnesDo(t *testing.T) {
	c, err := config.Parse([]byte(declaredAgents))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix:/nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := fake.NewClientset()
	real, err := NewLevels(c, nil, DriverSide{Conn: conn, Name: "disk.example.com", Nodes: client.CoreV1().Nodes(), CSINodes: client.StorageV1().CSINodes()})
	if err != nil {
		t.Fatal(err)
	}
	for i, level := range Declared(c) {
		for j, d := range level {
			for _, node := range []string{"n1", "n2", "n3", ""} {
				if r := real[i][j].Agent; d.Agent.Covers(node) != r.Covers(node) || d.Agent.Proves() != r.Proves() || d.Agent.Name() != r.Name() ||
					!slices.Equal(agent.Seeks(d.Agent, node), agent.Seeks(r, node)) || d.Timeout != real[i][j].Timeout {
					t.Errorf("agent %s of node %q is declared otherwise than it is", r.Name(), node)
				}
			}
			if reading, err := d.Agent.Status(t.Context(), agent.Machine{}); err == nil || reading.State != agent.Unclear {
				t.Errorf("a declared agent reads %v", reading)
			}
			_, offErr := d.Agent.Off(t.Context(), agent.Machine{})
			if _, err := d.Agent.On(t.Context(), agent.Machine{}); err == nil || offErr == nil {
				t.Error("a declared agent acts")
			}
		}
	}
}

func TestADeclaredProgramSaysByWhatItFindsMachines(t *testing.T) {
	c := config.Default()
	c.Fencing.Levels = []config.Level{{Agents: []config.Agent{
		{Name: "cloud", Exec: &config.Exec{Agent: "fence_x", Parameters: map[string]string{"uuid": "$(SYSTEM_UUID)"}}},
	}}, {Agents: []config.Agent{
		{Name: "disks", Exec: &config.Exec{Agent: "/usr/sbin/fence_scsi", NodeParameters: map[string]map[string]string{"key": {"n1": "1"}}}},
	}}}
	levels := Declared(c)
	if got := levels.Seeks("n9"); !slices.Equal(got, []string{agent.VarSystemUUID}) {
		t.Errorf("seeks by %v", got)
	}
	if cloud, disks := levels[0][0].Agent, levels[1][0].Agent; cloud.Proves() != fence.PowerReading || disks.Proves() != fence.StorageFence || disks.Covers("n2") || !disks.Covers("n1") {
		t.Error("a program that cuts storage, or covers one node, is declared otherwise")
	}
}
