// Package hcloud fences servers of Hetzner Cloud.
package hcloud

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// Agent is fence_fencepost_hcloud.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "hcloud",
		Short: "Hetzner Cloud: a server's status",
		Long: "Off is off, on is running; initializing, starting, stopping, migrating, rebuilding, deleting and unknown are neither. " +
			"off is poweroff. A token shows the servers of one project. The API says no system UUID.",
		Parameters: []contract.Parameter{
			{Name: "token", Required: true, Secret: true, Help: "The project's API token, with read and write."},
			{Name: "endpoint", Default: hcloud.Endpoint, Help: "The API."},
		},
		Open: open,
	}
}

type project struct {
	client   *hcloud.Client
	endpoint string
}

func open(_ context.Context, v contract.Values) (contract.Platform, error) {
	api, err := rest.Open(v, "endpoint")
	if err != nil {
		return nil, err
	}
	return &project{endpoint: api.Base, client: hcloud.NewClient(hcloud.WithToken(v["token"]), hcloud.WithEndpoint(api.Base),
		hcloud.WithApplication("csi-fencepost-agents", ""), hcloud.WithHTTPClient(api.HTTP))}, nil
}

// Find takes a server's ID, hcloud://ID, or a name that is no number. Other provider IDs, such
// as those of Hetzner's dedicated servers beside it, name no server of the cloud.
func (p *project) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	name, provided := strings.CutPrefix(plug, "hcloud://")
	var server *hcloud.Server
	var answer *hcloud.Response
	id, err := strconv.ParseInt(name, 10, 64)
	if strings.Contains(name, "://") || provided && name != strconv.FormatInt(id, 10) {
		return nil, fmt.Errorf("%s is no server of Hetzner Cloud, whose provider IDs are hcloud://NUMBER", plug)
	}
	numbered := err == nil
	if numbered {
		server, answer, err = p.client.Server.GetByID(ctx, id)
	} else {
		server, answer, err = p.client.Server.GetByName(ctx, name)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("server %s: %w", name, err)
	case server == nil:
		return nil, fmt.Errorf("the project of this token at %s has no server %s", p.endpoint, name)
	case answer.StatusCode > 299: // the SDK takes it for a success
		return nil, fmt.Errorf("server %s: %s answers with status %s", name, p.endpoint, answer.Status)
	case numbered && server.ID != id || !numbered && server.Name != name:
		return nil, fmt.Errorf("the API answers with server %d where %s was asked for", server.ID, name)
	}
	return machine(server), nil
}

func machine(s *hcloud.Server) *contract.Machine {
	m := &contract.Machine{ID: strconv.FormatInt(s.ID, 10), Name: s.Name, Says: string(s.Status), Handle: s}
	switch s.Status {
	case hcloud.ServerStatusRunning:
		m.State = contract.On
	case hcloud.ServerStatusOff:
		m.State = contract.Off
	}
	return m
}

func (p *project) Off(ctx context.Context, m *contract.Machine) error {
	return send(ctx, m, p.client.Server.Poweroff)
}

func (p *project) On(ctx context.Context, m *contract.Machine) error {
	return send(ctx, m, p.client.Server.Poweron)
}

func send(ctx context.Context, m *contract.Machine, command func(context.Context, *hcloud.Server) (*hcloud.Action, *hcloud.Response, error)) error {
	server, ok := m.Handle.(*hcloud.Server)
	if !ok {
		return errors.New("it is no server")
	}
	_, _, err := command(ctx, server)
	return err
}

func (p *project) List(ctx context.Context) (all []*contract.Machine, err error) {
	read := rest.Pages{}
	for page := 1; ; {
		if err := read.Turn(strconv.Itoa(page)); err != nil {
			return nil, err
		}
		servers, answer, err := p.client.Server.List(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{Page: page, PerPage: 50}})
		if err != nil {
			return nil, err
		}
		for _, s := range servers {
			all = append(all, machine(s))
		}
		if answer.Meta.Pagination == nil || answer.Meta.Pagination.NextPage == 0 {
			return all, nil
		}
		page = answer.Meta.Pagination.NextPage
	}
}
