package azure_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/azure"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, world(f), azure.OpenBy, `stopped|deallocated|\\u`, `virtualMachines/n1"|\\u`, "PowerState/running", "PowerState/stopped", "PowerState/deallocated can/hibernate")
}
