package hcloud

import (
	"net/http"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, func(client *http.Client) contract.Platform {
		return &project{client: hcloud.NewClient(hcloud.WithHTTPClient(client), hcloud.WithRetryOpts(hcloud.RetryOpts{}))}
	}, "42", "off|\\\\u",
		`{"server": {"id": 42, "name": "n1", "status": "off"}}`, `{"server": {"id": 42, "name": "n1", "status": "running"}}`, `{"server": null}`,
		`{"error": {"code": "not_found", "message": "server not found"}}`,
	)
}
