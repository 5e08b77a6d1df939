package openstack_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/openstack"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, world(f), openstack.OpenBy, `SHUTOFF|\\u`, id+`|\\u`, on, off, between)
}
