package csiaddons

import (
	"context"
	"fmt"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// target is what a call about one machine needs.
type target struct {
	with   addons.Credentials
	blocks []netip.Prefix
	from   string // who says that these are its addresses
	byID   bool   // the driver does, of its client of the machine's node ID
	byNode bool   // the machine's Node does, and nobody else
	can    addons.Capabilities
}

// target asks the driver what it can do and the machine's addresses. If it is
// the addresses that cannot be told, the rest of the target comes with the error.
func (a *Agent) target(ctx context.Context, m agent.Machine) (*target, error) {
	can, err := a.able(ctx)
	if err != nil {
		return nil, err
	}
	t := &target{can: can, with: addons.Credentials{Parameters: a.options.Parameters}}
	if a.options.Secrets != nil {
		if t.with.Secrets, err = a.options.Secrets(ctx, m.Node); err != nil {
			return nil, fmt.Errorf("csi-addons agent %s: the secrets for node %s: %w", a.options.Name, m.Node, err)
		}
	}
	return t, a.address(ctx, m, t)
}

// able tells what the driver can do; that it is another one, or cannot fence,
// is an error.
func (a *Agent) able(ctx context.Context) (addons.Capabilities, error) {
	name, err := a.client.Driver(ctx)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return addons.Capabilities{}, fmt.Errorf("driver %s serves no csi-addons on this socket (identity.Identity is not implemented), so it cannot fence: "+
			"configure another fence agent, or the socket where the driver serves csi-addons: %w", a.options.Driver, err)
	case err != nil:
		return addons.Capabilities{}, a.explain("GetIdentity", err)
	case name != a.options.Driver:
		return addons.Capabilities{}, fmt.Errorf("csi-addons agent %s: the socket is that of driver %q, not of %q", a.options.Name, name, a.options.Driver)
	}
	can, err := a.client.Capabilities(ctx)
	switch {
	case err != nil:
		return can, a.explain("GetCapabilities", err)
	case !can.NetworkFence:
		return can, fmt.Errorf("driver %s lacks the csi-addons capability NETWORK_FENCE, so it cannot fence: configure another fence agent", name)
	}
	return can, nil
}
