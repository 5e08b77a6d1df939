package ipmi

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// Options say which BMC belongs to which node, and where the credentials are.
type Options struct {
	// Name is the agent's, as configured.
	Name string
	// UsernameFile and PasswordFile are read at each use, so that a rotated
	// Secret is taken up. One trailing newline is cut off. $(NODE) in them stands for the
	// node's name: each node's BMC has a user or a password of its own.
	UsernameFile, PasswordFile string
	// Nodes maps a Node's name to its BMC, host or host:port; the port is 623
	// where none is given.
	Nodes map[string]string
}

// IPMI is an agent.Agent and an agent.Checker.
type IPMI struct {
	options Options
	// address is host:port by node.
	address map[string]string
}

var (
	_ agent.Agent   = (*IPMI)(nil)
	_ agent.Checker = (*IPMI)(nil)
)

// The least that each call needs (IPMI 2.0, Appendix G).
const (
	toRead   = types.PrivilegeLevelUser
	toSwitch = types.PrivilegeLevelOperator
)

// New checks the options; it reads no file and asks no BMC.
func New(options Options) (*IPMI, error) {
	switch {
	case options.Name == "":
		return nil, fmt.Errorf("ipmi: the agent has no name")
	case options.UsernameFile == "" || options.PasswordFile == "":
		return nil, fmt.Errorf("ipmi: agent %s: both a file with the user's name and one with the password are needed", options.Name)
	case len(options.Nodes) == 0:
		return nil, fmt.Errorf("ipmi: agent %s: no node has a BMC", options.Name)
	}
	a := &IPMI{options: options, address: map[string]string{}}
	for node, bmc := range options.Nodes {
		address, err := withPort(bmc)
		if err != nil {
			return nil, fmt.Errorf("ipmi: agent %s: node %s: %w", options.Name, node, err)
		}
		a.address[node] = address
	}
	return a, nil
}

// withPort makes host:port of a host, an IP address or host:port.
func withPort(bmc string) (string, error) {
	if ip, err := netip.ParseAddr(bmc); err == nil {
		return net.JoinHostPort(ip.String(), "623"), nil
	}
	host, port, err := net.SplitHostPort(bmc)
	if err != nil {
		host, port, err = net.SplitHostPort(bmc + ":623")
	}
	if err != nil || host == "" {
		return "", fmt.Errorf("BMC %q is not a host or host:port", bmc)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("BMC %q: the port is not between 1 and 65535", bmc)
	}
	return net.JoinHostPort(host, port), nil
}

func (a *IPMI) Name() string            { return a.options.Name }
func (a *IPMI) Proves() fence.Kind      { return fence.PowerReading }
func (a *IPMI) Covers(node string) bool { _, ok := a.address[node]; return ok }

// Status reads the chassis power. A fault that the BMC reports with it, and an
// answer that contradicts itself, are Unclear.
func (a *IPMI) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	var reading agent.Reading
	err := a.with(ctx, m, toRead, func(s *session) error {
		id, err := s.identify(ctx, m)
		if err != nil {
			return err
		}
		reading, err = s.power(ctx)
		reading.Detail += "; " + id.note
		reading.Checked = id.checked
		return err
	})
	if err != nil {
		return agent.Reading{}, err
	}
	return reading, nil
}

// Off cuts the power, hard.
func (a *IPMI) Off(ctx context.Context, m agent.Machine) (string, error) {
	return a.turn(ctx, m, chassis.ChassisControlPowerDown, agent.Off)
}

// On gives power back.
func (a *IPMI) On(ctx context.Context, m agent.Machine) (string, error) {
	return a.turn(ctx, m, chassis.ChassisControlPowerUp, agent.On)
}

func (a *IPMI) turn(ctx context.Context, m agent.Machine, control chassis.ChassisControl, want agent.State) (string, error) {
	var detail string
	err := a.with(ctx, m, toSwitch, func(s *session) error {
		id, err := s.identify(ctx, m)
		if err != nil {
			return err
		}
		_, err = s.client.ChassisControl(ctx, control)
		if code(err) == types.CodeNotSupported {
			// Some BMCs answer so when there is nothing left to switch.
			if r, readErr := s.power(ctx); readErr == nil && r.State == want {
				detail = fmt.Sprintf("power was %s already; %s", want, id.note)
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("power %s was sent and not confirmed, so it may have taken effect: %w", want, err)
		}
		detail = fmt.Sprintf("power %s accepted by the BMC at %s; %s", want, s.bmc, id.note)
		return nil
	})
	return detail, err
}

// with runs do in a session of its own with m's BMC.
func (a *IPMI) with(ctx context.Context, m agent.Machine, level types.PrivilegeLevel, do func(*session) error) error {
	bmc, ok := a.address[m.Node]
	if !ok {
		return fmt.Errorf("ipmi: agent %s has no BMC for node %s", a.options.Name, m.Node)
	}
	user, err := a.credentials(m.Node)
	if err != nil {
		return fmt.Errorf("ipmi: agent %s: %w", a.options.Name, err)
	}
	s, err := login(ctx, bmc, user, level)
	if err == nil {
		err = s.wire.blame(do(s))
		s.logout(ctx)
	}
	if err != nil {
		return fmt.Errorf("ipmi: node %s: BMC at %s: %w", m.Node, bmc, explain(ctx, user, err))
	}
	return nil
}
