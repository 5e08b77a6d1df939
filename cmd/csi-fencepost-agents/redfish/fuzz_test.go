package redfish

import (
	"net/http"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, func(client *http.Client) contract.Platform {
		return &bmc{&rest.Client{HTTP: client, Base: "https://bmc.example.com"}, "/redfish/v1/Systems/1"}
	}, "", "off|\\\\u",
		`{"@odata.id": "/redfish/v1/Systems/1", "UUID": "38947555-7742-3448-3784-823347823834", "PowerState": "Off"}`,
		`{"@odata.id": "/redfish/v1/Systems/1", "PowerState": "Off", "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Systems/1"}], "ComputerSystems": [{"@odata.id": "/redfish/v1/Systems/1"}]}}`,
		`{"error": {"code": "Base.1.8.GeneralError"}}`,
	)
}
