package gce

import (
	"net/http"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, func(client *http.Client) contract.Platform {
		return &project{name: "p1", api: &rest.Client{HTTP: client, Base: "https://compute.example.com"}}
	}, "gce://p1/z1/n1", "TERMINATED|\\\\u",
		`{"id": "4567890123456789012", "name": "n1", "zone": "https://compute.example.com/zones/z1", "status": "TERMINATED", "disks": [{"type": "PERSISTENT"}]}`,
		`{"id": 7, "name": "n1", "zone": "z1", "status": "RUNNING"}`, `{"error": {"code": 404, "message": "not found"}}`,
	)
}
