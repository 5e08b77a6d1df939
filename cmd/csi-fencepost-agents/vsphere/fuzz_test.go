package vsphere_test

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/vsphere"
)

// inAnyForm is the UUID in one of the orders of bytes, with hyphens anywhere.
func inAnyForm(uuids ...string) string {
	var all []string
	for _, one := range uuids {
		all = append(all, strings.Join(strings.Split(strings.ReplaceAll(one, "-", ""), ""), "-*"))
	}
	return strings.Join(all, "|")
}

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, newSite(f).world(f), vsphere.OpenBy, `poweredOff|&#|[\s\S]<[!?]`, inAnyForm(uuid, swapped)+`|&#|[\s\S]<[!?]`,
		"poweredOn connected connected", "poweredOff connected connected", "poweredOff connected notResponding", "suspended connected connected")
}
