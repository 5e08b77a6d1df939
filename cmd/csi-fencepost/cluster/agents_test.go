package cluster

import (
	"slices"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// A node that somebody wrote down and that does not exist is pointed out, whichever
// kind of agent names it.
func TestNodesOfEveryKindOfAgentAreConfigured(t *testing.T) {
	c, err := config.Parse([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + `
fencing:
  levels:
  - agents:
    - {name: bmc, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: "b:623"}}}
    - {name: pdu, exec: {agent: fence_x, nodeParameters: {port: {n2: "2"}}}}
    - {name: array, csiAddons: {nodes: {n2: [10.20.0.12], n3: [10.20.0.13]}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := Configured(c); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("configured: %q", got)
	}
}
