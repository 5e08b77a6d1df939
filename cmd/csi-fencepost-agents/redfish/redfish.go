// Package redfish fences by a BMC's or chassis manager's Redfish service.
package redfish

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// Agent is fence_fencepost_redfish.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "redfish",
		Short: "Redfish: a system's PowerState, by a BMC or chassis manager",
		Long: "Off is PowerState Off, also of each chassis of its own that has one; on is On; Paused, PoweringOn, PoweringOff and no PowerState are neither. " +
			"Emulators of Redfish say Off of virtual machines whose memory is kept: this agent is for bare metal. " +
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
	api *rest.Client
	uri string
}

func open(_ context.Context, v contract.Values) (contract.Platform, error) {
	if !strings.HasPrefix(v["systems_uri"], "/") {
		return nil, fmt.Errorf("parameter systems_uri: %q is no path, as /redfish/v1/Systems/1", v["systems_uri"])
	}
	api, err := rest.Open(v, "ip")
	if err != nil {
		return nil, err
	}
	// Basic authentication leaves no session behind, of which a BMC has few.
	who := "Basic " + base64.StdEncoding.EncodeToString([]byte(v["username"]+":"+v["password"]))
	api.Who = rest.As(http.Header{"Authorization": {who}, "Odata-Version": {"4.0"}})
	return &bmc{api, v["systems_uri"]}, nil
}

// resource is what every Redfish resource has.
type resource struct {
	ID string `json:"@odata.id"`
}

// system is a ComputerSystem, of which only what decides is decoded: vendors write much else
// otherwise than the schema has it.
type system struct {
	resource
	UUID, PowerState string
	Links            struct{ Chassis links }
	Actions          struct {
		Reset struct {
			Target  string
			Offered []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	}
}

// links to resources: a list, or one alone as some vendors write it.
type links []resource

func (l *links) UnmarshalJSON(text []byte) error {
	if !bytes.HasPrefix(text, []byte("{")) {
		return json.Unmarshal(text, (*[]resource)(l))
	}
	*l = make(links, 1)
	return json.Unmarshal(text, &(*l)[0])
}

func (b *bmc) Find(ctx context.Context, _ string) (*contract.Machine, error) {
	var s system
	switch err := b.api.Get(ctx, b.uri, &s); {
	case rest.Refused(err, http.StatusNotFound):
		return nil, fmt.Errorf("the BMC %s has no %s", b.api.Base, b.uri)
	case err != nil:
		return nil, fmt.Errorf("%s of the BMC %s: %w", b.uri, b.api.Base, err)
	case strings.TrimRight(s.ID, "/") != strings.TrimRight(b.uri, "/"):
		return nil, fmt.Errorf("the BMC %s answers with %q where %s was asked for", b.api.Base, s.ID, b.uri)
	}
	m := &contract.Machine{ID: b.uri, UUID: s.UUID, Says: cmp.Or(s.PowerState, "without a PowerState"), Handle: &s}
	switch s.PowerState {
	case "On":
		m.State = contract.On
	case "Off":
		powered, err := b.powered(ctx, s.Links.Chassis)
		if err != nil {
			return nil, err
		}
		if m.State = contract.Off; powered != "" {
			m.State, m.Says = contract.Neither, "Off, and so is not its chassis "+powered
		}
	}
	return m, nil
}

// powered is the first chassis that has power, or is on its way, by its own word. Some BMCs say
// Off of a system whose state they have lost, as after their own reset, while its chassis is on.
// A chassis that holds other systems, too, is on for them, and says nothing of this one.
func (b *bmc) powered(ctx context.Context, all links) (string, error) {
	for _, one := range all {
		var chassis struct {
			resource
			PowerState string
			Links      struct{ ComputerSystems links }
		}
		switch err := b.api.Get(ctx, one.ID, &chassis); {
		case err != nil:
			return "", fmt.Errorf("chassis %q of the BMC %s: %w", one.ID, b.api.Base, err)
		case chassis.ID == "":
			return "", fmt.Errorf("the BMC %s does not answer with its chassis %s", b.api.Base, one.ID)
		case chassis.PowerState != "" && chassis.PowerState != "Off" && len(chassis.Links.ComputerSystems) < 2:
			return fmt.Sprintf("%s, which is %s", one.ID, chassis.PowerState), nil
		}
	}
	return "", nil
}

func (b *bmc) Off(ctx context.Context, m *contract.Machine) error {
	return b.reset(ctx, m, "ForceOff")
}

func (b *bmc) On(ctx context.Context, m *contract.Machine) error {
	return b.reset(ctx, m, "On", "ForceOn")
}

// reset sends the first of these that the system offers.
func (b *bmc) reset(ctx context.Context, m *contract.Machine, kinds ...string) error {
	s, ok := m.Handle.(*system)
	if !ok {
		return errors.New("it is no system of a BMC")
	}
	r := s.Actions.Reset
	for _, kind := range kinds {
		if len(r.Offered) == 0 || slices.Contains(r.Offered, kind) {
			return b.api.PostJSON(ctx, r.Target, map[string]string{"ResetType": kind})
		}
	}
	return fmt.Errorf("the system offers none of %v, only %v", kinds, r.Offered)
}

// List is not asked: the parameters name the system.
func (b *bmc) List(context.Context) ([]*contract.Machine, error) { return nil, nil }
