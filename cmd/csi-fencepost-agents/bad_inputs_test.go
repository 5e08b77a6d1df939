package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// badSecret stands in each secret parameter. No error may have it.
const badSecret = "hunter2"

// right are parameters of each agent of which nothing is wrong, but that nobody listens there.
var right = map[string]map[string]string{
	"redfish":   {"ip": "127.0.0.1", "ipport": "1", "username": "u", "password": badSecret, "systems_uri": "/redfish/v1/Systems/1"},
	"ec2":       {"region": "eu-central-1", "endpoint": "https://127.0.0.1:1", "access_key": "a", "secret_key": badSecret, "plug": "i-0123456789abcdef0"},
	"azure":     {"subscription": "0a1b2c3d-1111-4222-8333-444444444444", "endpoint": "https://127.0.0.1:1", "tenant_id": "t", "client_id": "c", "client_secret": badSecret, "plug": "azure:///x"},
	"gce":       {"project": "p1", "endpoint": "https://127.0.0.1:1", "credentials": "{\"type\": \"service_account\", \"private_key\": \"" + badSecret + "\"}", "plug": "gce://p1/a/n1"},
	"hcloud":    {"token": badSecret, "endpoint": "https://127.0.0.1:1", "plug": "1"},
	"openstack": {"auth_url": "https://127.0.0.1:1/v3", "region": "R", "application_credential_id": "a", "application_credential_secret": badSecret, "plug": "openstack:///4237e6c2-1111-4222-8333-444444444444"},
	"proxmox":   {"ip": "127.0.0.1", "ipport": "1", "token_id": "u@pve!t", "token": badSecret, "plug": "100"},
	"vsphere":   {"ip": "127.0.0.1", "ipport": "1", "username": "u", "password": badSecret, "plug": "vsphere://4237e6c2-1111-4222-8333-444444444444"},
}

// badParameters are values that are wrong, and what the error of each has to say; of the agent "" every
// agent that has the parameter.
var badParameters = []struct{ agent, parameter, value, says string }{
	{"", "ca_file", "/no/such", "parameter ca_file: open /no/such"},
	{"", "ca_file", "/dev/zero", "parameter ca_file: /dev/zero is no regular file"},
	{"", "fingerprint", "abcd", "parameter fingerprint: it is no SHA-256 in hexadecimal (64 digits"},
	{"", "timeout", "0", `parameter timeout: "0" is no number of seconds from 1 to 3600`},
	{"", "timeout", "1m", `parameter timeout: "1m" is no number of seconds`},
	{"", "plug", "", "parameter plug is missing: the machine"},
	{"", "plug", "a b", "parameter plug has white space in it"},
	{"", "nothing_like_it", "x", `parameter "nothing_like_it" is not known; there are `},
	{"", "proxy_file", "/no/such", "parameter proxy_file: open /no/such"},
	{"", "ip", "", "parameter ip is missing"},
	{"", "ip", "https://a", "parameter ip: it is no address and no name of a host; the port goes into ipport"},
	{"", "ip", "u@a", "parameter ip: it is no address"},
	{"", "ipport", "https", "parameter ip: it is no https://HOST[:PORT]"},
	{"", "username", "", "parameter username is missing"},
	{"", "password", "", "parameter password is missing"},
	{"redfish", "password_file", "/no/such", "parameters password and password_file: give one"},
	{"", "token", "", "parameter token is missing"},
	{"", "endpoint", "http://127.0.0.1:1", "parameter endpoint: it is no https://HOST[:PORT] without a user, ? and #"},
	{"", "endpoint", "https://u:" + badSecret + "@127.0.0.1:1", "parameter endpoint: it is no https"},
	{"redfish", "systems_uri", "", "parameter systems_uri is missing"},
	{"redfish", "systems_uri", "Systems/1", `parameter systems_uri: "Systems/1" is no path, as /redfish/v1/Systems/1`},
	{"ec2", "region", "", "parameter region is missing"},
	{"ec2", "region", "eu-central-1a", `parameter region: "eu-central-1a" is no region, as eu-central-1 (a zone has one more letter)`},
	{"ec2", "terminate", "perhaps", `parameter terminate: "perhaps" is neither true nor false`},
	{"ec2", "access_key", "", "parameters access_key and secret_key: give both, or none"},
	{"ec2", "role_arn", "arn:x", "parameters role_arn and web_identity_token_file: give both, or none"},
	{"ec2", "web_identity_token_file", "/x", "parameters role_arn and web_identity_token_file: give both, or none"},
	{"ec2", "session_token_file", "/no/such", "parameter session_token_file: open /no/such"},
	{"azure", "subscription", "production", `parameter subscription: "production" is no subscription's ID`},
	{"azure", "tenant_id", "", "parameters tenant_id, client_id, client_secret, federated_token_file: an application needs its tenant"},
	{"azure", "client_id", "", "an application needs its tenant, its ID"},
	{"azure", "federated_token_file", "/x", "either a secret or a token's file"},
	{"azure", "authority", "http://a", "parameter authority: it is no https://HOST[:PORT]"},
	{"azure", "plug", "n1", "n1 is no virtual machine of Azure, whose provider IDs are azure:///subscriptions/"},
	{"gce", "project", "P/1", `parameter project: "P/1" is no project's ID`},
	{"gce", "credentials", badSecret, "parameter credentials: it is no JSON; it is not shown"},
	{"gce", "credentials", "{}", `parameter credentials: of type "", and only service_account and external_account are taken`},
	{"gce", "discard_local_ssd", "perhaps", `parameter discard_local_ssd: "perhaps" is neither true nor false`},
	{"hcloud", "plug", "aws:///a/i-1", "aws:///a/i-1 is no server of Hetzner Cloud, whose provider IDs are hcloud://NUMBER"},
	{"openstack", "auth_url", "http://a", "parameter auth_url: it is no https://HOST[:PORT]"},
	{"openstack", "region", "", "parameter region is missing"},
	{"openstack", "username", "u", "parameters application_credential_id and application_credential_secret, or username, password and project_name: give all of one"},
	{"openstack", "application_credential_secret", "", "give all of one of them"},
	{"openstack", "project_name", "p", "give all of one of them"},
	{"openstack", "without_host_status", "yes", `parameter without_host_status: "yes" is neither true nor false`},
	{"proxmox", "token_id", "fencing@pve", `parameter token_id: "fencing@pve" is no API token's ID, as fencing@pve!csi`},
	{"proxmox", "plug", "proxmox://other/100", `proxmox://other/100 is of the region "other", and the parameter region says ""`},
}

// What is wrong with a parameter is said with its name and what would be right, and no secret.
func TestABadParameterIsRefusedInClearWords(t *testing.T) {
	for _, row := range badParameters {
		tried := false
		for _, a := range agents() {
			given := maps.Clone(right[a.Name])
			_, used := given[row.parameter]
			// What every agent has is in none of the lists of its own; what is required there is in right.
			of := row.agent == a.Name || row.agent == "" && (used || row.parameter != "plug" && !isOwn(row.parameter))
			if !of {
				continue
			}
			tried = true
			given[row.parameter] = row.value
			in := "action=status\n"
			for _, key := range slices.Sorted(maps.Keys(given)) {
				in += key + "=" + given[key] + "\n"
			}
			var out, errs bytes.Buffer
			p := contract.Program{Name: "csi-fencepost-agents", Agents: agents(), Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs}
			if code := p.Run(t.Context(), []string{"fence_fencepost_" + a.Name}); code != 1 || out.Len() > 0 || !strings.Contains(errs.String(), row.says) {
				t.Errorf("%s, %s=%s: exit %d, %s%s; it should say %q", a.Name, row.parameter, row.value, code, &out, &errs, row.says)
			}
			if strings.Contains(errs.String(), badSecret) {
				t.Errorf("%s, %s: the secret is shown: %s", a.Name, row.parameter, &errs)
			}
		}
		if !tried {
			t.Errorf("no agent was tried with %s=%s", row.parameter, row.value)
		}
	}
}

// isOwn tells whether some agents alone have that parameter.
func isOwn(parameter string) bool {
	return slices.ContainsFunc(agents(), func(a *contract.Agent) bool {
		return slices.ContainsFunc(a.Parameters, func(p contract.Parameter) bool {
			return p.Name == parameter || p.Secret && p.Name+"_file" == parameter
		})
	})
}
