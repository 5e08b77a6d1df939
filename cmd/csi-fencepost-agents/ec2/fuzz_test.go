package ec2_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/ec2"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, world(f), ec2.OpenBy, `terminated|stopped|&#|[\s\S]<[!?]`, one+`|&#|[\s\S]<[!?]`, "running", "stopped Client.UserInitiatedShutdown", "terminated", "stopping")
}
