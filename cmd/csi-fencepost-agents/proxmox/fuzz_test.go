package proxmox_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/proxmox"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, world(f), proxmox.OpenBy, `stopped|\\u`, `\b100\b`, "running running", "stopped stopped", "running shutdown", "stopped stopped suspended")
}
