package ec2

import (
	"context"
	"encoding/xml"
	"net/http"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// OpenBy opens what answers by a client, without credentials.
func OpenBy(_ context.Context, v contract.Values, client *http.Client) (contract.Platform, error) {
	return &region{name: v["region"], client: &rest.Client{HTTP: client, Base: "https://" + agenttest.Host, Decode: xml.Unmarshal}}, nil
}
