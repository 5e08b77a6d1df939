package openstack

import (
	"context"
	"net/http"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

// OpenBy opens what answers by a client, Keystone among it.
func OpenBy(ctx context.Context, v contract.Values, client *http.Client) (contract.Platform, error) {
	return openBy(ctx, v, func(v contract.Values, parameter string) (*rest.Client, error) {
		base := "https://" + agenttest.Host
		if parameter == "endpoint" {
			var err error
			if base, err = trust.Endpoint(v, parameter); err != nil {
				return nil, err
			}
		}
		return &rest.Client{HTTP: client, Base: base}, nil
	})
}
