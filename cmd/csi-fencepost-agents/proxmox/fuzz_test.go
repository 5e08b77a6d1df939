package proxmox

import (
	"net/http"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, func(client *http.Client) contract.Platform {
		return &cluster{&rest.Client{HTTP: client, Base: "https://pve.example.com:8006/api2/json"}, "https://pve.example.com:8006", ""}
	}, "100", "stopped|\\\\u",
		`{"data": [{"type": "qemu", "vmid": 100, "node": "pve1", "name": "n1", "status": "stopped", "template": 0}, {"type": "cluster", "quorate": 1}, {"type": "node", "name": "pve1", "online": 1}]}`,
		`{"data": {"vmid": 100, "status": "stopped", "qmpstatus": "stopped", "smbios1": "uuid=1f6e8a3c-94d6-4a44-8a5c-4f2f1a9f0a11"}}`,
		`{"data": [{"upid": "UPID:pve1:1", "type": "qmstop", "id": "100", "starttime": 1, "status": "OK"}]}`, `{"data": null}`, `{"data": [null]}`,
	)
}
