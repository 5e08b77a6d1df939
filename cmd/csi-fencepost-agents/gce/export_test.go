package gce

import (
	"context"
	"net/http"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// OpenBy opens what answers by a client, without credentials.
func OpenBy(_ context.Context, v contract.Values, client *http.Client) (contract.Platform, error) {
	return &project{v["project"], v["discard_local_ssd"], &rest.Client{HTTP: client, Base: "https://" + agenttest.Host}}, nil
}
