package azure

import (
	"net/http"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

const machineID = "/subscriptions/0a1b2c3d-1111-4222-8333-444444444444/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/n1"

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, func(client *http.Client) contract.Platform {
		return &subscription{"0a1b2c3d-1111-4222-8333-444444444444", &rest.Client{HTTP: client, Base: "https://management.example.com"}}
	}, machineID, "stopped|deallocated|\\\\u",
		`{"id": "`+machineID+`", "name": "n1", "properties": {"vmId": "4237e6c2-1111-4222-8333-444444444444", "instanceView": {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/stopped"}]}}}`,
		`{"id": "`+machineID+`", "properties": {"additionalCapabilities": {"hibernationEnabled": true}, "instanceView": {"statuses": [{"code": "PowerState/deallocated"}, {"code": "HibernationState/Hibernated"}]}}}`,
		`{"error": {"code": "ResourceNotFound"}}`,
	)
}
