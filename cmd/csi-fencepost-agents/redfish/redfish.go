// Package redfish fences by a BMC's or chassis manager's Redfish service.
package redfish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"
	redfishapi "github.com/stmcginnis/gofish/redfish"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

// Agent is fence_fencepost_redfish.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "redfish",
		Short: "Redfish: a system's PowerState, by a BMC or chassis manager",
		Long: "Off is PowerState Off, on is On; Paused, PoweringOn, PoweringOff and no PowerState are neither. " +
			"A bare machine that hibernated by itself (S4) reads Off, and its memory is on its disk: do not hibernate nodes. off is ForceOff.",
		Plugless: true,
		Parameters: []contract.Parameter{
			{Name: "ip", Required: true, Help: "Address or name of the BMC."},
			{Name: "ipport", Help: "Its port, if it is not 443."},
			{Name: "username", Required: true, Help: "A user who may read systems and reset them (the role Operator)."},
			{Name: "password", Required: true, Secret: true, Help: "The user's password."},
			{Name: "systems_uri", Required: true, Help: "The system, such as /redfish/v1/Systems/1."},
		},
		Open: open,
	}
}

type bmc struct {
	client        *gofish.APIClient
	endpoint, uri string
}

func open(ctx context.Context, v contract.Values) (contract.Platform, error) {
	endpoint, err := trust.Host(v)
	if err != nil {
		return nil, err
	}
	client, err := trust.Client(v)
	if err != nil {
		return nil, err
	}
	// Basic authentication leaves no session behind, of which a BMC has few.
	api, err := gofish.ConnectContext(ctx, gofish.ClientConfig{
		Endpoint: endpoint, Username: v["username"], Password: v["password"], BasicAuth: true, HTTPClient: client,
	})
	if err != nil {
		return nil, fmt.Errorf("the BMC %s: %w", endpoint, err)
	}
	return &bmc{api, endpoint, v["systems_uri"]}, nil
}

func (b *bmc) Find(context.Context, string) (*contract.Machine, error) {
	system, err := redfishapi.GetComputerSystem(b.client, b.uri)
	var refused *common.Error
	switch {
	case errors.As(err, &refused) && refused.HTTPReturnedStatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("the BMC %s has no %s", b.endpoint, b.uri)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", b.uri, err)
	case strings.TrimRight(system.ODataID, "/") != strings.TrimRight(b.uri, "/"):
		return nil, fmt.Errorf("the BMC answers with %s where %s was asked for", system.ODataID, b.uri)
	}
	return &contract.Machine{
		ID: b.uri, UUID: system.UUID, Name: cmp.Or(system.HostName, system.Name),
		State: state(system.PowerState), Says: cmp.Or(string(system.PowerState), "without a PowerState"), Handle: system,
	}, nil
}

func state(s redfishapi.PowerState) contract.State {
	switch s {
	case redfishapi.OnPowerState:
		return contract.On
	case redfishapi.OffPowerState:
		return contract.Off
	}
	return contract.Neither
}

func (b *bmc) Off(_ context.Context, m *contract.Machine) error {
	return reset(m, redfishapi.ForceOffResetType)
}

func (b *bmc) On(_ context.Context, m *contract.Machine) error {
	return reset(m, redfishapi.OnResetType, redfishapi.ForceOnResetType)
}

// reset sends the first of these that the system offers.
func reset(m *contract.Machine, kinds ...redfishapi.ResetType) error {
	system, ok := m.Handle.(*redfishapi.ComputerSystem)
	if !ok {
		return errors.New("it is no system of a BMC")
	}
	offered := system.SupportedResetTypes
	for _, kind := range kinds {
		if len(offered) == 0 || slices.Contains(offered, kind) {
			return system.Reset(kind)
		}
	}
	return fmt.Errorf("the system offers none of %v, only %v", kinds, offered)
}

// List is not asked: the parameters name the system.
func (b *bmc) List(context.Context) ([]*contract.Machine, error) { return nil, nil }
