package openstack

import (
	"net/http"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

func FuzzAnswer(f *testing.F) {
	const off = `{"server": {"id": "4237e6c2-1111-4222-8333-444444444444", "name": "n1", "status": "SHUTOFF", "OS-EXT-STS:power_state": 4, "OS-EXT-STS:vm_state": "stopped", "OS-EXT-STS:task_state": null, "host_status": "UP"}`
	agenttest.Fuzz(f, func(client *http.Client) contract.Platform {
		return &region{name: "RegionOne", api: &rest.Client{HTTP: client, Base: "https://nova.example.com:8774/v2.1"}}
	}, "4237e6c2-1111-4222-8333-444444444444", "SHUTOFF|\\\\u",
		off+`, "instanceActions": [{"action": "stop"}, {"action": "create"}]}`,
		off+`, "instanceActions": [{"action": "evacuate"}], "migrations": [{"instance_uuid": "4237e6c2-1111-4222-8333-444444444444", "migration_type": "evacuation", "status": "done", "source_compute": "c1"}]}`,
		off+`}`, `{"server": null}`, `{"itemNotFound": {"code": 404, "message": "Instance could not be found."}}`,
	)
}
