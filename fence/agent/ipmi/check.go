package ipmi

import (
	"context"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// Check logs in as for Status and as for Off, reads the BMC's system GUID and
// what the user may do, and sends no power command. The device is the system
// GUID, or host:port where that tells machines not apart.
func (a *IPMI) Check(ctx context.Context, m agent.Machine) (device string, faults []error) {
	device = a.address[m.Node]
	err := a.with(ctx, m, toRead, func(s *session) error {
		id, err := s.identify(ctx, m)
		if id.guid != "" {
			device = id.guid
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("ipmi: node %s: BMC at %s: %w", m.Node, s.bmc, explain(ctx, s.wire.user, err)))
		}
		return nil
	})
	if err != nil {
		return device, append(faults, err)
	}
	if err := a.with(ctx, m, toSwitch, func(s *session) error { return s.maySwitch(ctx) }); err != nil {
		faults = append(faults, err)
	}
	return device, faults
}

// maySwitch finds BMCs that grant a session a level that its user does not have,
// and refuse only the power command. Reading one's own rights needs the same
// level as switching power does; a BMC that cannot tell them is believed.
func (s *session) maySwitch(ctx context.Context) error {
	self, err := s.client.GetCurrentSessionInfo(ctx)
	if err != nil {
		return unlessRefused(fmt.Errorf("session info: %w", err))
	}
	user, err := s.client.GetUserAccess(ctx, types.ChannelNumberSelf, self.UserID)
	if err != nil {
		return unlessRefused(fmt.Errorf("user access: %w", err))
	}
	if user.MaxPrivLevel < toSwitch || user.MaxPrivLevel > types.PrivilegeLevelOEM {
		return fmt.Errorf("%w: the user's limit is %s, %s is needed", errPrivilege, user.MaxPrivLevel, toSwitch)
	}
	return nil
}

// unlessRefused keeps what says that the user lacks a privilege, and what kept
// the BMC from answering.
func unlessRefused(err error) error {
	if code(err) != types.CodeOK && !lacksPrivilege(err) {
		return nil
	}
	return err
}
