package hcloud

import (
	"context"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

// OpenBy opens what answers by a client, without a network.
func OpenBy(_ context.Context, v contract.Values, client *http.Client) (contract.Platform, error) {
	return &project{endpoint: "https://" + agenttest.Host, client: hcloud.NewClient(hcloud.WithToken(v["token"]), hcloud.WithEndpoint("https://"+agenttest.Host),
		hcloud.WithHTTPClient(client))}, nil
}
