// Package gce fences instances of Google Compute Engine.
package gce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

const scope = "https://www.googleapis.com/auth/compute"

// Agent is fence_fencepost_gce.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "gce",
		Short: "Google Compute Engine: an instance's status",
		Long: "Off is TERMINATED, which is stopped, too; on is RUNNING. STOPPING, PENDING_STOP, SUSPENDING, SUSPENDED, PROVISIONING, STAGING, REPAIRING and DEPROVISIONING are neither. " +
			"off is stop without the graceful shutdown. Compute Engine still gives the operating system up to two minutes: let timeout be 115, and that of the sidecar's agent 2m; what is not off by then is tried again. " +
			"The plug is the node's provider ID, gce://PROJECT/ZONE/NAME. The API says no system UUID. " +
			"The name of an instance that is gone may be used again, by an instance group for one: then the new one is read, and its ON speaks for the earlier one, too, until a person says otherwise. Two of one name never run at once. " +
			"Without credentials they are those of the instance, or of the pod's account in GKE, that this runs on. " +
			"ca_file and fingerprint are of the endpoint; tokens are fetched as Google's library does it. " +
			"Rights: compute.instances.get, and to fence compute.instances.stop and compute.instances.start.",
		Parameters: []contract.Parameter{
			{Name: "project", Required: true, Help: "The project of the instances. Those of other projects are refused."},
			{Name: "endpoint", Default: "https://compute.googleapis.com", Help: "The API."},
			{Name: "credentials", Secret: true, Help: "A key of a service account (JSON), or the configuration of a workload identity federation. It has several lines, so name its file: credentials_file, as a plain parameter."},
			{Name: "discard_local_ssd", Type: "boolean", Default: "false", Help: "Whether a stop may lose what is on local SSDs. Only asked of instances that have some; some of their types cannot keep it."},
		},
		Open: open,
	}
}

type project struct {
	name    string
	discard string
	api     *rest.Client
}

// isPart is a project, a zone, or a name: what is put into a path.
var isPart = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`)

func open(ctx context.Context, v contract.Values) (contract.Platform, error) {
	if !isPart.MatchString(v["project"]) {
		return nil, fmt.Errorf("parameter project: %q is no project's ID", v["project"])
	}
	api, err := rest.Open(v, "endpoint")
	if err != nil {
		return nil, err
	}
	api.Base += "/compute/v1/projects/" + v["project"]
	tokens, err := credentials(ctx, v["credentials"])
	if err != nil {
		return nil, err
	}
	api.Who = func(ctx context.Context, r *http.Request, _ []byte) error {
		token, err := within(ctx, tokens.Token)
		if err != nil {
			return fmt.Errorf("credentials: %w", err)
		}
		token.SetAuthHeader(r)
		return nil
	}
	return &project{v["project"], v["discard_local_ssd"], api}, nil
}

// credentials are a key's or a federation's; without text the machine's own.
func credentials(ctx context.Context, text string) (oauth2.TokenSource, error) {
	if text == "" {
		return oauth2.ReuseTokenSource(nil, ofTheMachine{ctx}), nil
	}
	var is struct {
		Type google.CredentialsType `json:"type"`
	}
	// An error of the decoder may show what it was given.
	if json.Unmarshal([]byte(text), &is) != nil {
		return nil, errors.New("parameter credentials: it is no JSON; it is not shown, for it may be a secret")
	}
	if is.Type != google.ServiceAccount && is.Type != google.ExternalAccount {
		return nil, fmt.Errorf("parameter credentials: of type %q, and only %s and %s are taken", is.Type, google.ServiceAccount, google.ExternalAccount)
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, trust.ForTokens(ctx))
	c, err := google.CredentialsFromJSONWithType(ctx, []byte(text), is.Type, scope)
	if err != nil {
		return nil, fmt.Errorf("parameter credentials: %w", err)
	}
	return c.TokenSource, nil
}

// ofTheMachine asks the metadata service, as google.ComputeTokenSource does, which reads as much as it
// is given.
type ofTheMachine struct{ run context.Context }

func (m ofTheMachine) Token() (*oauth2.Token, error) {
	if !metadata.OnGCE() {
		return nil, errors.New("this does not run on Compute Engine, whose metadata service gives credentials: name a key's file in the parameter credentials_file")
	}
	text, err := metadata.NewClient(trust.ForTokens(m.run)).GetWithContext(m.run, "instance/service-accounts/default/token?"+url.Values{"scopes": {scope}}.Encode())
	if err != nil {
		return nil, err
	}
	var t oauth2.Token
	// An error of the decoder may show what it was given.
	if json.Unmarshal([]byte(text), &t) != nil || t.AccessToken == "" {
		return nil, errors.New("the metadata service answers with no token; what it says is not shown, for it may be one")
	}
	return &t, nil
}

// within waits no longer than ctx for a call that knows none.
func within[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		is  T
		err error
	}
	got := make(chan answer, 1)
	go func() {
		is, err := call()
		got <- answer{is, err}
	}()
	select {
	case a := <-got:
		return a.is, a.err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

// instance is what of the API's Instance is looked at.
type instance struct {
	ID     json.Number
	Name   string
	Zone   string
	Status string
	Disks  []struct{ Type string }
}

// Find takes gce://PROJECT/ZONE/NAME.
func (p *project) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	place, ok := strings.CutPrefix(plug, "gce://")
	parts := strings.Split(place, "/")
	if !ok || len(parts) != 3 {
		return nil, fmt.Errorf("%s is no instance of Compute Engine, whose provider IDs are gce://PROJECT/ZONE/NAME", plug)
	}
	for _, part := range parts {
		if !isPart.MatchString(part) {
			return nil, fmt.Errorf("%s is no instance of Compute Engine: %q is no project, zone or name", plug, part)
		}
	}
	if parts[0] != p.name {
		return nil, fmt.Errorf("%s is in project %s, and project %s is asked", parts[2], parts[0], p.name)
	}
	var i instance
	if err := p.api.Get(ctx, path(parts[1], parts[2]), &i); err != nil {
		return nil, fmt.Errorf("instance %s at %s: %w", plug, p.api.Base, err)
	}
	if i.Name != parts[2] || i.zone() != parts[1] || i.ID == "" {
		return nil, fmt.Errorf("the API answers with instance %q in zone %q where %s was asked for", i.Name, i.zone(), plug)
	}
	return machine(i), nil
}

func path(zone, name string) string { return "/zones/" + zone + "/instances/" + name }

// zone of its URL.
func (i instance) zone() string { return i.Zone[strings.LastIndex(i.Zone, "/")+1:] }

func machine(i instance) *contract.Machine {
	m := &contract.Machine{ID: i.ID.String(), Name: i.Name, Says: i.Status, Handle: i}
	switch i.Status {
	case "RUNNING":
		m.State = contract.On
	case "TERMINATED":
		m.State = contract.Off
	}
	return m
}

func (p *project) Off(ctx context.Context, m *contract.Machine) error {
	query := url.Values{"noGracefulShutdown": {"true"}}
	if i, _ := m.Handle.(instance); i.hasLocalSSD() {
		query.Set("discardLocalSsd", p.discard)
	}
	return p.send(ctx, m, "stop?"+query.Encode())
}

func (i instance) hasLocalSSD() bool {
	for _, d := range i.Disks {
		if d.Type == "SCRATCH" {
			return true
		}
	}
	return false
}

func (p *project) On(ctx context.Context, m *contract.Machine) error { return p.send(ctx, m, "start") }

// send starts an operation. What it has failed with already is an error; how it ends is seen by the
// instance's status.
func (p *project) send(ctx context.Context, m *contract.Machine, command string) error {
	i, ok := m.Handle.(instance)
	if !ok {
		return errors.New("it is no instance")
	}
	var operation struct {
		Error *struct {
			Errors []struct{ Code, Message string }
		}
	}
	if err := p.api.PostForm(ctx, path(i.zone(), i.Name)+"/"+command, nil, &operation); err != nil {
		return err
	}
	if operation.Error != nil {
		return fmt.Errorf("the operation failed: %v", operation.Error.Errors)
	}
	return nil
}

func (p *project) List(ctx context.Context) (all []*contract.Machine, err error) {
	read := rest.Pages{}
	for token := ""; ; {
		var page struct {
			Items         map[string]struct{ Instances []instance }
			NextPageToken string
		}
		if err := p.api.Get(ctx, "/aggregated/instances?"+url.Values{"pageToken": {token}}.Encode(), &page); err != nil {
			return nil, err
		}
		for _, zone := range page.Items {
			for _, i := range zone.Instances {
				all = append(all, machine(i))
			}
		}
		if token = page.NextPageToken; token == "" {
			return all, nil
		}
		if err := read.Turn(token); err != nil {
			return nil, err
		}
	}
}
