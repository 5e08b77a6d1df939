package gce_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/gce"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, world(f), gce.OpenBy, `TERMINATED|\\u`, `"n1"|\\u`, "RUNNING", "TERMINATED", "STOPPING")
}
