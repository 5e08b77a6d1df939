// Package openstack fences servers of OpenStack Nova.
//
// Nova answers from its database, which only the nova-compute of the server's host keeps true
// (nova/compute/power_state.py: a snapshot of the recent past). Two things are asked for beside
// the server's state: whether that nova-compute is up, and whether another host has been left
// with a copy of the server.
package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// microversion is the first that tells the type of a migration; host_status is from 2.16.
const microversion = "compute 2.23"

// Agent is fence_fencepost_openstack.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "openstack",
		Short: "OpenStack Nova: a server's status, and its host's",
		Long: "Off is SHUTOFF with power_state 4, vm_state stopped and no task_state, on a host whose host_status is UP, of a server that no evacuation has left running elsewhere. On is ACTIVE with power_state 1 on such a host. " +
			"All else is neither: PAUSED, SUSPENDED, SHELVED, RESCUE, RESIZE, VERIFY_RESIZE, MIGRATING, ERROR, UNKNOWN, and a server whose host is DOWN, UNKNOWN or in MAINTENANCE, which Nova also says of a dead one. " +
			"An evacuated server is stopped in its new place, while the copy on the host that it left runs on: off is said once that host's nova-compute has started again, which ends the copy (its migration is completed then). One that failed may run where it was to go: then a person looks. " +
			"off is os-stop, Nova's only way: it asks the operating system, and cuts the power after the image's os_shutdown_timeout, or else Nova's shutdown_timeout, of 60 seconds. Set os_shutdown_timeout to 0 on the nodes' image, or let timeout be 115, and that of the sidecar's agent 2m. Nothing is sent where the host is not UP: it would be done once that is back, to a machine that may be healthy by then. " +
			"The plug is the node's provider ID, openstack:///UUID or openstack://REGION/UUID; its UUID is the machine's system UUID, but for bare metal (Ironic), which takes uuid: none. " +
			"What starts a server behind Nova's back (virsh, libvirt-guests) is not seen for ten minutes. " +
			"fingerprint is that of Keystone and of Nova. " +
			"Rights, which an administrator has: os_compute_api:servers:show, …:show:host_status and os-instance-actions:list; for servers that were evacuated os-migrations:index; to fence servers:stop and servers:start.",
		Parameters: []contract.Parameter{
			{Name: "auth_url", Required: true, Help: "Keystone, as https://keystone.example.com:5000/v3."},
			{Name: "region", Required: true, Help: "The region of the servers, as RegionOne. Provider IDs of others are refused."},
			{Name: "application_credential_id", Help: "The ID of an application credential, in place of a user."},
			{Name: "application_credential_secret", Secret: true, Help: "Its secret."},
			{Name: "username", Help: "The user's name."},
			{Name: "password", Secret: true, Help: "The user's password."},
			{Name: "user_domain_name", Default: "Default", Help: "The user's domain."},
			{Name: "project_name", Help: "The project of the servers, with username."},
			{Name: "project_domain_name", Default: "Default", Help: "The project's domain."},
			{Name: "endpoint", Help: "Nova's endpoint, as https://nova.example.com:8774/v2.1, where it is not the public one of Keystone's catalog."},
			{Name: "without_host_status", Type: "boolean", Default: "false", Help: "true: for who may not see host_status, as in a public cloud. A server then counts as its database has it, whether or not its host is up, and off may be done much later; one that was ever evacuated never reads off."},
		},
		Open: open,
	}
}

// region holds the servers of one region.
type region struct {
	name    string
	without bool
	api     *rest.Client
}

func open(ctx context.Context, v contract.Values) (contract.Platform, error) {
	return openBy(ctx, v, rest.Open)
}

// openBy asks Keystone, and then Nova, by the client that way has for the parameter of each.
func openBy(ctx context.Context, v contract.Values, way func(contract.Values, string) (*rest.Client, error)) (contract.Platform, error) {
	who, err := credentials(v)
	if err != nil {
		return nil, err
	}
	keystone, err := way(v, "auth_url")
	if err != nil {
		return nil, err
	}
	// Keystone's own list of versions may lead out of https: it is not asked.
	at := &gophercloud.ServiceClient{ProviderClient: &gophercloud.ProviderClient{HTTPClient: *keystone.HTTP}, Endpoint: strings.TrimSuffix(keystone.Base, "/v3") + "/v3/"}
	answer := tokens.Create(ctx, at, who)
	token, err := answer.ExtractTokenID()
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if v["endpoint"] == "" {
		catalog, err := answer.ExtractServiceCatalog()
		if err != nil {
			return nil, fmt.Errorf("the catalog of %s: %w", keystone.Base, err)
		}
		if v["endpoint"] = nova(catalog, v["region"]); v["endpoint"] == "" {
			return nil, fmt.Errorf("the catalog of %s has no public compute service in region %s: see the parameters region and endpoint", keystone.Base, v["region"])
		}
	}
	api, err := way(v, "endpoint")
	if err != nil {
		return nil, fmt.Errorf("the compute service at %s: %w", v["endpoint"], err)
	}
	api.Who = rest.As(http.Header{"X-Auth-Token": {token}, "Openstack-Api-Version": {microversion}})
	return &region{v["region"], v["without_host_status"] == "true", api}, nil
}

func credentials(v contract.Values) (*tokens.AuthOptions, error) {
	id, secret, user, password, project := v["application_credential_id"], v["application_credential_secret"], v["username"], v["password"], v["project_name"]
	switch {
	case id != "" && secret != "" && user+password+project == "":
		return &tokens.AuthOptions{ApplicationCredentialID: id, ApplicationCredentialSecret: secret}, nil
	case user != "" && password != "" && project != "" && id+secret == "":
		return &tokens.AuthOptions{Username: user, Password: password, DomainName: v["user_domain_name"],
			Scope: tokens.Scope{ProjectName: project, DomainName: v["project_domain_name"]}}, nil
	}
	return nil, errors.New("parameters application_credential_id and application_credential_secret, or username, password and project_name: give all of one of them, and none of the other")
}

// nova is where the catalog has it.
func nova(catalog *tokens.ServiceCatalog, region string) string {
	for _, service := range catalog.Entries {
		for _, e := range service.Endpoints {
			if service.Type == "compute" && e.Interface == "public" && (e.Region == region || e.RegionID == region) {
				return e.URL
			}
		}
	}
	return ""
}

// server is what of the API's server is looked at.
type server struct {
	ID, Name, Status string
	Power            int             `json:"OS-EXT-STS:power_state"`
	VM               string          `json:"OS-EXT-STS:vm_state"`
	Task             json.RawMessage `json:"OS-EXT-STS:task_state"` // null: none; empty: it is not told
	HostStatus       *string         `json:"host_status"`
}

var isUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Find takes a server's ID, or a provider ID: openstack:///ID, openstack://REGION/ID.
func (r *region) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	id := plug
	if place, ok := strings.CutPrefix(plug, scheme); ok {
		region, rest, _ := strings.Cut(place, "/")
		if id = rest; region != "" && region != r.name {
			return nil, fmt.Errorf("%s is in region %s, and region %s is asked", plug, region, r.name)
		}
	}
	if !isUUID.MatchString(id) {
		return nil, fmt.Errorf("%s is no server of OpenStack, whose provider IDs are openstack:///UUID or openstack://REGION/UUID", plug)
	}
	var answer struct{ Server server }
	if err := r.api.Get(ctx, "/servers/"+id, &answer); err != nil {
		return nil, fmt.Errorf("server %s in region %s at %s: %w", id, r.name, r.api.Base, err)
	}
	s := &answer.Server
	if s.ID != id {
		return nil, fmt.Errorf("%s answers with server %q where %s was asked for", r.api.Base, s.ID, id)
	}
	if s.HostStatus == nil && !r.without {
		return nil, fmt.Errorf("the status of the host of server %s is not told: these credentials need the right os_compute_api:servers:show:host_status; where they cannot have it, see the parameter without_host_status", id)
	}
	m := machine(s)
	if m.State == contract.Off {
		if err := r.left(ctx, s); err != nil {
			return nil, fmt.Errorf("server %s reads SHUTOFF: %w", id, err)
		}
	}
	return m, nil
}

const (
	// scheme of the provider IDs.
	scheme = "openstack://"
	// up is the host_status of a host whose nova-compute is there.
	up = "UP"
)

// machine of a server. Nova's UUID is the system UUID (nova/virt/libvirt/driver.py,
// _get_guest_config_sysinfo) where Nova makes the machine; so ID has another form, and is no second
// system UUID.
func machine(s *server) *contract.Machine {
	host := "not told"
	if s.HostStatus != nil {
		host = *s.HostStatus
	}
	m := &contract.Machine{ID: scheme + "/" + s.ID, UUID: s.ID, Name: s.Name, Handle: s,
		Says: fmt.Sprintf("%s (power_state %d, vm_state %q, task_state %s, host_status %q)", s.Status, s.Power, s.VM, s.Task, host)}
	switch {
	case s.HostStatus != nil && *s.HostStatus != up:
	case s.Status == "ACTIVE" && s.Power == 1 && s.VM == "active":
		m.State = contract.On
	// A server that is suspended has power_state 4, too: libvirt keeps its memory in a file.
	case s.Status == "SHUTOFF" && s.Power == 4 && s.VM == "stopped" && string(s.Task) == "null":
		m.State = contract.Off
	}
	return m
}

// left is an error if another host may still run the server: one that it was evacuated from, or to.
// Nova evacuates as soon as it does not hear from a host, stopped or not, and the host's
// nova-compute destroys what it left there, once it starts again; only then is the migration
// completed (nova/compute/manager.py, _destroy_evacuated_instances). A migration that failed may have begun
// to run where it was to go, and is still said to be where it was (the same, _do_rebuild_instance).
func (r *region) left(ctx context.Context, s *server) error {
	var list struct {
		InstanceActions []struct{ Action string }
	}
	if err := r.api.Get(ctx, "/servers/"+s.ID+"/os-instance-actions", &list); err != nil {
		return fmt.Errorf("its actions (needs os_compute_api:os-instance-actions:list): %w", err)
	}
	created, evacuations := false, 0
	for _, a := range list.InstanceActions {
		created = created || a.Action == "create"
		if a.Action == "evacuate" {
			evacuations++
		}
	}
	if !created {
		return errors.New("the action that created it is not told, so that others may be missing, too")
	}
	if evacuations == 0 {
		return nil
	}
	var all struct {
		Migrations []struct {
			Server string `json:"instance_uuid"`
			Type   string `json:"migration_type"`
			From   string `json:"source_compute"`
			To     string `json:"dest_compute"`
			Status string
		}
	}
	if err := r.api.Get(ctx, "/os-migrations?"+url.Values{"instance_uuid": {s.ID}}.Encode(), &all); err != nil {
		return fmt.Errorf("it was evacuated, and from where (needs os_compute_api:os-migrations:index): %w", err)
	}
	for _, m := range all.Migrations {
		if m.Server != s.ID || m.Type != "evacuation" {
			continue
		}
		if evacuations--; m.Status != "completed" {
			return fmt.Errorf("it was evacuated from host %q to %q, either of which may run it (the evacuation is %q, and not completed): start nova-compute on the first, which ends what it left there; where that does not complete it, look at both", m.From, m.To, m.Status)
		}
	}
	if evacuations > 0 {
		return errors.New("it was evacuated, and it is not told from where: the host that it left may still run it")
	}
	return nil
}

// Off is os-stop. A stop that is under way is waited for.
func (r *region) Off(ctx context.Context, m *contract.Machine) error {
	if s, ok := m.Handle.(*server); ok && string(s.Task) == `"powering-off"` {
		return nil
	}
	return r.send(ctx, m, "os-stop")
}

func (r *region) On(ctx context.Context, m *contract.Machine) error {
	return r.send(ctx, m, "os-start")
}

func (r *region) send(ctx context.Context, m *contract.Machine, action string) error {
	s, ok := m.Handle.(*server)
	if !ok {
		return errors.New("it is no server")
	}
	if s.HostStatus != nil && *s.HostStatus != up {
		return fmt.Errorf("the host of server %s is %q, and not UP: it would do so once it is back", s.ID, *s.HostStatus)
	}
	return r.api.PostJSON(ctx, "/servers/"+s.ID+"/action", map[string]any{action: nil})
}

func (r *region) List(ctx context.Context) (all []*contract.Machine, err error) {
	read := rest.Pages{}
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page struct{ Servers []server }
		if err := r.api.Get(ctx, "/servers?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		for _, s := range page.Servers {
			all = append(all, machine(&s))
		}
		if len(page.Servers) == 0 {
			return all, nil
		}
		query.Set("marker", page.Servers[len(page.Servers)-1].ID)
		if err := read.Turn(query.Get("marker")); err != nil {
			return nil, err
		}
	}
}
