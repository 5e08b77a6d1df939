package vsphere

import (
	"context"
	"net/http"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// OpenBy opens what answers by a client, its login among it, but not the logout, which decides nothing.
func OpenBy(ctx context.Context, v contract.Values, client *http.Client) (contract.Platform, error) {
	c, err := login(ctx, &rest.Client{HTTP: client, Base: "https://" + agenttest.Host}, v)
	if err != nil {
		return nil, err
	}
	return struct{ contract.Platform }{c}, nil
}
