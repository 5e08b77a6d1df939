package redfish

import (
	"context"
	"net/http"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// OpenBy opens what answers by a client, without a network.
func OpenBy(_ context.Context, v contract.Values, client *http.Client) (contract.Platform, error) {
	return &bmc{&rest.Client{HTTP: client, Base: "https://" + agenttest.Host}, v["systems_uri"]}, nil
}
