package hcloud_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/hcloud"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, world(f), hcloud.OpenBy, `off|\\u`, `\b42\b`, "running", "off", "stopping")
}
