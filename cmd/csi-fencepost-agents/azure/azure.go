// Package azure fences virtual machines of Azure, those of scale sets among them.
package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

// apiVersion is one of Microsoft.Compute's that knows hibernation.
const apiVersion = "api-version=2024-07-01"

// Agent is fence_fencepost_azure.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "azure",
		Short: "Azure: the power state of a virtual machine, or of one of a scale set",
		Long: "Off is PowerState/stopped and PowerState/deallocated, of a machine that cannot hibernate and is not being created or updated: one that starts is stopped for a moment. On is PowerState/running. starting, stopping, deallocating, unknown, and a machine without a power state, are neither. " +
			"off is powerOff with skipShutdown; the machine stays allocated, and is paid for. The plug is the node's provider ID, azure:///subscriptions/…; uuid is the machine's vmId, which is its system UUID. " +
			"Without tenant_id the credentials are the managed identity of the machine that this runs on; client_id names one of several. " +
			"ca_file and fingerprint are of the endpoint; tokens are fetched as the SDK does it. List has no machines of uniform scale sets. " +
			"Rights: Microsoft.Compute/virtualMachines/read and …/instanceView/read, and to fence …/powerOff/action and …/start/action; of scale sets those of Microsoft.Compute/virtualMachineScaleSets/virtualMachines.",
		Parameters: []contract.Parameter{
			{Name: "subscription", Required: true, Help: "The subscription's ID. Machines of others are refused."},
			{Name: "tenant_id", Help: "The tenant of client_id."},
			{Name: "client_id", Help: "The application, or the managed identity."},
			{Name: "client_secret", Secret: true, Help: "The application's secret."},
			{Name: "federated_token_file", SecretFile: true, Help: "A token that stands for the secret (AKS workload identity: /var/run/secrets/azure/tokens/azure-identity-token)."},
			{Name: "endpoint", Default: "https://management.azure.com", Help: "Azure Resource Manager; in China https://management.chinacloudapi.cn, for the US government https://management.usgovcloudapi.net."},
			{Name: "authority", Default: cloud.AzurePublic.ActiveDirectoryAuthorityHost, Help: "Who gives tokens: in China https://login.chinacloudapi.cn, for the US government https://login.microsoftonline.us."},
		},
		Open: open,
	}
}

type subscription struct {
	id  string
	api *rest.Client
}

var isUUID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func open(ctx context.Context, v contract.Values) (contract.Platform, error) {
	if !isUUID.MatchString(v["subscription"]) {
		return nil, fmt.Errorf("parameter subscription: %q is no subscription's ID", v["subscription"])
	}
	api, err := rest.Open(v, "endpoint")
	if err != nil {
		return nil, err
	}
	who, err := credential(ctx, v)
	if err != nil {
		return nil, err
	}
	ask := policy.TokenRequestOptions{Scopes: []string{api.Base + "/.default"}}
	api.Who = func(ctx context.Context, r *http.Request, _ []byte) error {
		token, err := who.GetToken(ctx, ask)
		if err != nil {
			return fmt.Errorf("credentials: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+token.Token)
		return nil
	}
	return &subscription{v["subscription"], api}, nil
}

func credential(ctx context.Context, v contract.Values) (azcore.TokenCredential, error) {
	authority, err := trust.Endpoint(v, "authority")
	if err != nil {
		return nil, err
	}
	tenant, client, secret, file := v["tenant_id"], v["client_id"], v["client_secret"], v["federated_token_file"]
	o := azcore.ClientOptions{Transport: trust.ForTokens(ctx), Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: authority}}
	// Whoever names another authority has it that it is one.
	private := authority+"/" != cloud.AzurePublic.ActiveDirectoryAuthorityHost
	switch {
	case tenant == "" && secret == "" && file == "":
		m := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: azcore.ClientOptions{Transport: o.Transport}}
		if client != "" {
			m.ID = azidentity.ClientID(client)
		}
		return azidentity.NewManagedIdentityCredential(m)
	case tenant == "" || client == "" || (secret == "") == (file == ""):
		return nil, errors.New("parameters tenant_id, client_id, client_secret, federated_token_file: an application needs its tenant, its ID, and either a secret or a token's file; a managed identity at most its ID")
	case secret != "":
		return azidentity.NewClientSecretCredential(tenant, client, secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: private})
	default:
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: o, DisableInstanceDiscovery: private, TenantID: tenant, ClientID: client, TokenFilePath: file})
	}
}

// virtualMachine is what of the API's VirtualMachine and VirtualMachineScaleSetVM is looked at.
type virtualMachine struct {
	ID, Name   string
	Properties struct {
		VMID                   string
		AdditionalCapabilities struct{ HibernationEnabled bool }
		InstanceView           struct {
			Statuses []struct{ Code string }
		}
	}
}

// isMachine is the path of a machine, or of one of a uniform scale set.
var isMachine = regexp.MustCompile(`(?i)^/subscriptions/([-0-9a-f]{36})/resourceGroups/[-\w.()]+/providers/Microsoft\.Compute/(virtualMachineScaleSets/[-\w.]+/)?virtualMachines/[-\w.]+$`)

// Find takes azure://PATH, or the path.
func (s *subscription) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	path := strings.TrimPrefix(plug, "azure://")
	parts := isMachine.FindStringSubmatch(path)
	if parts == nil || strings.Contains(path, "/../") || strings.HasSuffix(path, "/..") {
		return nil, fmt.Errorf("%s is no virtual machine of Azure, whose provider IDs are azure:///subscriptions/…/virtualMachines/NAME", plug)
	}
	if !strings.EqualFold(parts[1], s.id) {
		return nil, fmt.Errorf("%s is in another subscription than %s, which is asked", plug, s.id)
	}
	var m virtualMachine
	if err := s.api.Get(ctx, path+"?$expand=instanceView&"+apiVersion, &m); err != nil {
		return nil, fmt.Errorf("virtual machine %s at %s: %w", plug, s.api.Base, err)
	}
	if !strings.EqualFold(m.ID, path) {
		return nil, fmt.Errorf("the API answers with %q where %s was asked for", m.ID, path)
	}
	return machine(m, path), nil
}

func machine(m virtualMachine, path string) *contract.Machine {
	is := &contract.Machine{ID: path, Name: m.Name, UUID: m.Properties.VMID, Handle: path}
	var power, all []string
	changes := false
	for _, status := range m.Properties.InstanceView.Statuses {
		all = append(all, status.Code)
		switch code := strings.ToLower(status.Code); {
		case strings.HasPrefix(code, "powerstate/"):
			power = append(power, code)
		case strings.HasPrefix(code, "hibernationstate/"), code == "provisioningstate/creating", code == "provisioningstate/updating":
			changes = true
		}
	}
	is.Says = strings.Join(all, " and ")
	hibernates := m.Properties.AdditionalCapabilities.HibernationEnabled
	switch {
	case len(power) != 1:
		is.Says = fmt.Sprintf("of no single power state (%s)", is.Says)
	case power[0] == "powerstate/running":
		is.State = contract.On
	case hibernates:
		is.Says += ", and can hibernate"
	case !changes && (power[0] == "powerstate/stopped" || power[0] == "powerstate/deallocated"):
		is.State = contract.Off
	}
	return is
}

func (s *subscription) Off(ctx context.Context, m *contract.Machine) error {
	return s.api.PostJSON(ctx, m.ID+"/powerOff?skipShutdown=true&"+apiVersion, struct{}{})
}

func (s *subscription) On(ctx context.Context, m *contract.Machine) error {
	return s.api.PostJSON(ctx, m.ID+"/start?"+apiVersion, struct{}{})
}

func (s *subscription) List(ctx context.Context) (all []*contract.Machine, err error) {
	next := "/subscriptions/" + s.id + "/providers/Microsoft.Compute/virtualMachines?" + apiVersion
	read := rest.Pages{}
	for next != "" {
		if err := read.Turn(next); err != nil {
			return nil, err
		}
		var page struct {
			Value    []virtualMachine
			NextLink string
		}
		if err := s.api.Get(ctx, next, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Value {
			all = append(all, machine(m, m.ID))
		}
		// The link is a whole address, which has to be on the same host.
		if next = strings.TrimPrefix(page.NextLink, s.api.Base); next != "" && !strings.HasPrefix(next, "/") {
			return nil, fmt.Errorf("the next page is said to be at %s, which is not %s", page.NextLink, s.api.Base)
		}
	}
	return all, nil
}
