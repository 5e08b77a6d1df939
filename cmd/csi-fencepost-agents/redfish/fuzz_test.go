package redfish_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/redfish"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, worldWith(f, func(map[string]any) {}), redfish.OpenBy, `off|\\u`, uri+`|\\u`, "On", "Off", "PoweringOff")
}
