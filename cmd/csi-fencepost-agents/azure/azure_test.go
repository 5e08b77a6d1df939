package azure_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/azure"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

const (
	sub     = "0a1b2c3d-1111-4222-8333-444444444444"
	tenant  = "99999999-2222-4333-8444-555555555555"
	vmID    = "4237e6c2-1111-4222-8333-444444444444"
	group   = "/subscriptions/" + sub + "/resourceGroups/MC_rg_aks_westeurope/providers/Microsoft.Compute"
	alone   = group + "/virtualMachines/n1"
	inASet  = group + "/virtualMachineScaleSets/aks-pool-vmss/virtualMachines/3"
	missing = group + "/virtualMachines/n4711"
)

// certificate is the authority's, which signs itself, and which the system trusts here.
var certificate tls.Certificate

func TestMain(m *testing.M) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	own := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	folder, err := os.MkdirTemp("", "authority")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(folder, "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file)
	proxy := httptest.NewServer(http.HandlerFunc(metadata))
	os.Setenv("HTTP_PROXY", proxy.URL)
	os.Unsetenv("http_proxy")
	code := m.Run()
	proxy.Close()
	os.RemoveAll(folder)
	os.Exit(code)
}

// authority gives tokens to the application.
func authority(t testing.TB) string {
	mux := http.NewServeMux()
	server := httptest.NewUnstartedServer(mux)
	answer := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /"+tenant+"/v2.0/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		at := server.URL + "/" + tenant
		answer(w, http.StatusOK, map[string]string{"issuer": at + "/v2.0", "authorization_endpoint": at + "/oauth2/v2.0/authorize", "token_endpoint": at + "/oauth2/v2.0/token"})
	})
	mux.HandleFunc("POST /"+tenant+"/oauth2/v2.0/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_id") != "app-1" || r.FormValue("client_secret") != "secret-of-the-app" && r.FormValue("client_assertion") != "token-of-the-pod" {
			answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."})
			return
		}
		answer(w, http.StatusOK, map[string]any{"access_token": "token-1", "token_type": "Bearer", "expires_in": 3599, "scope": r.FormValue("scope")})
	})
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// api is Azure Resource Manager's. A state is the codes of the instance view.
func api(power *agenttest.Power, answers string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(code int, v any) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(v)
		}
		is := func(id string) map[string]any {
			var statuses []map[string]string
			for code := range strings.FieldsSeq("ProvisioningState/succeeded " + power.State()) {
				statuses = append(statuses, map[string]string{"code": code, "level": "Info"})
			}
			can := map[string]any{"ultraSSDEnabled": false, "hibernationEnabled": strings.Contains(power.State(), "can/hibernate")}
			return map[string]any{"id": id, "name": "n1", "location": "westeurope", "properties": map[string]any{"vmId": vmID, "additionalCapabilities": can, "hardwareProfile": map[string]any{},
				"instanceView": map[string]any{"statuses": statuses}}}
		}
		path := r.URL.Path
		command := path[strings.LastIndex(path, "/")+1:]
		switch {
		case r.Header.Get("Authorization") != "Bearer token-1":
			answer(http.StatusUnauthorized, map[string]any{"error": map[string]string{"code": "InvalidAuthenticationToken"}})
		case r.FormValue("api-version") == "":
			answer(http.StatusBadRequest, map[string]any{"error": map[string]string{"code": "MissingApiVersionParameter"}})
		case r.Method == http.MethodGet && (path == alone || path == inASet) && r.FormValue("$expand") == "instanceView":
			id := path
			if answers != "" {
				id = answers
			}
			answer(http.StatusOK, is(id))
		case r.Method == http.MethodGet && path == "/subscriptions/"+sub+"/providers/Microsoft.Compute/virtualMachines":
			if r.FormValue("page") == "" {
				answer(http.StatusOK, map[string]any{"value": []any{is(alone)}, "nextLink": "https://" + r.Host + path + "?api-version=x&page=2"})
				return
			}
			answer(http.StatusOK, map[string]any{"value": []any{is(group + "/virtualMachines/n2")}})
		case r.Method == http.MethodPost && (path == alone+"/"+command || path == inASet+"/"+command):
			power.Send(command == "powerOff", strings.TrimSpace(command+" "+r.FormValue("skipShutdown")))
			w.WriteHeader(http.StatusAccepted)
		default:
			answer(http.StatusNotFound, map[string]any{"error": map[string]string{"code": "ResourceNotFound", "message": "The Resource was not found."}})
		}
	})
}

func world(t testing.TB) *agenttest.World { return worldOf(t, alone, "") }

func worldOf(t testing.TB, machine, answers string) *agenttest.World {
	power := &agenttest.Power{On: "PowerState/running", Off: "PowerState/stopped", Between: "PowerState/stopping"}
	power.Set(power.On)
	server := agenttest.NewServer(t, api(power, answers))
	return &agenttest.World{
		Agent: azure.Agent(), Server: server, Power: power,
		Parameters: map[string]string{"subscription": sub, "endpoint": server.URL, "fingerprint": server.Fingerprint(), "authority": authority(t),
			"tenant_id": tenant, "client_id": "app-1", "client_secret": "secret-of-the-app", "plug": "azure://" + machine},
		Identities: []string{machine, vmID}, UUID: vmID,
		Names: "plug", Missing: missing, Secret: "client_secret",
		SentOff: "powerOff true", SentOn: "start",
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error": {"code": "TooManyRequests"}}`)
		}),
	}
}

// states of both kinds of machines.
var states = map[string]int{
	"PowerState/running": 0, "PowerState/stopped": 2, "PowerState/deallocated": 2,
	"PowerState/starting": 1, "PowerState/stopping": 1, "PowerState/deallocating": 1, "PowerState/unknown": 1, "PowerState/": 1, "": 1,
	"PowerState/deallocated HibernationState/Hibernated": 1, "HibernationState/Hibernated PowerState/deallocated": 1, "PowerState/stopped HibernationState/Hibernating": 1,
	"PowerState/stopped PowerState/running": 1, "OSState/generalized": 1, "powerstate/Stopped": 2,
	"PowerState/running HibernationState/Resumed":   0,
	"ProvisioningState/creating PowerState/stopped": 1, "ProvisioningState/updating PowerState/stopped": 1, "PowerState/deallocated ProvisioningState/Updating": 1,
	"ProvisioningState/failed PowerState/stopped": 2, "ProvisioningState/updating PowerState/running": 0,
	"PowerState/stopped can/hibernate": 1, "PowerState/deallocated can/hibernate": 1, "PowerState/running can/hibernate": 0,
}

func TestAVirtualMachine(t *testing.T) { agenttest.Suite(t, world, states) }

func TestAVirtualMachineOfAScaleSet(t *testing.T) {
	agenttest.Suite(t, func(t testing.TB) *agenttest.World { return worldOf(t, inASet, "") }, states)
}

func TestAMachineIsNamedByItsProviderID(t *testing.T) {
	w := world(t)
	for plug, says := range map[string]string{
		"azure://" + strings.Replace(alone, sub, tenant, 1):                  "another subscription",
		"azure://" + strings.Replace(alone, "MC_rg_aks_westeurope", "..", 1): "no virtual machine",
	} {
		w.Parameters["plug"] = plug
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); !strings.Contains(got.Err, says) || w.Server.Requests() > 0 {
			t.Errorf("%s: %s", plug, got.Err)
		}
	}
	for plug, want := range map[string]int{
		"azure://" + alone: 0, alone: 0, "azure://" + inASet: 0,
		"azure://" + group + "/virtualMachineScaleSets/aks-pool-vmss":                    1,
		"azure://" + strings.Replace(alone, sub, tenant, 1):                              1, // another subscription
		"azure://" + alone + "/powerOff":                                                 1,
		"azure://" + alone + "?x=":                                                       1,
		"azure://" + group + "/virtualMachines/..":                                       1,
		"azure://" + strings.Replace(alone, "Microsoft.Compute", "Microsoft.Storage", 1): 1,
		"azure://" + strings.Replace(alone, "MC_rg_aks_westeurope", "..", 1):             1,
		"azure://management.example.com" + alone:                                         1,
		"n1":                                                                             1, vmID: 1, "aws:///eu-central-1a/i-0123456789abcdef0": 1, "azure://": 1,
	} {
		w.Parameters["plug"] = plug
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
			t.Errorf("%s: exit %d, %s", plug, got.Code, got.Err)
		}
	}
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 0 || got.Out != alone+",n1\n"+group+"/virtualMachines/n2,n1\n" {
		t.Errorf("list: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

// The API writes some parts of an ID in capitals, and the cloud provider does not.
func TestAnIDMayBeWrittenInCapitals(t *testing.T) {
	w := worldOf(t, alone, strings.ToUpper(alone))
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 0 {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
}

// An answer about another machine says nothing of this one.
func TestOnlyTheMachineThatWasAskedForIsRead(t *testing.T) {
	w := worldOf(t, alone, group+"/virtualMachines/n2")
	w.Power.Set("PowerState/stopped")
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 {
		t.Errorf("exit %d, %q", got.Code, got.Out)
	}
}

func TestCredentials(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-the-pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		given map[string]string
		want  int
		says  string
	}{
		"a pod's token":          {map[string]string{"client_secret": "", "federated_token_file": token}, 2, ""},
		"another application":    {map[string]string{"client_id": "app-2"}, 1, "AADSTS7000215"},
		"no application":         {map[string]string{"client_id": ""}, 1, "client_id"},
		"no tenant":              {map[string]string{"tenant_id": ""}, 1, "tenant_id"},
		"nothing of application": {map[string]string{"client_secret": ""}, 1, "client_secret"},
		"secret and token":       {map[string]string{"federated_token_file": token}, 1, "federated_token_file"},
		"no subscription":        {map[string]string{"subscription": "production"}, 1, "subscription"},
		"authority without TLS":  {map[string]string{"authority": "http://login.microsoftonline.com"}, 1, "authority"},
	} {
		w := world(t)
		w.Power.Set("PowerState/stopped")
		for key, value := range c.given {
			w.Parameters[key] = value
		}
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		if got.Code != c.want || !strings.Contains(got.Err, c.says) || strings.Contains(got.Err, "secret-of") || strings.Contains(got.Err, "token-of") {
			t.Errorf("%s: exit %d, %q, %s", name, got.Code, got.Out, got.Err)
		}
	}
}

// Whoever gives tokens may quote by what they were asked for, and what is wrong with an answer is no
// reason to show the token in it.
func TestNoErrorShowsByWhatATokenIsAskedForOrTheToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("token-of-the-pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code         int
		answer, says string
	}{
		"it quotes what it refuses": {http.StatusUnauthorized, `{"error": "invalid_client", "error_description": "AADSTS50027: token-of-the-pod is no JWT"}`, "AADSTS50027"},
		"an answer with a fault":    {http.StatusOK, `{"access_token": "secret-of-the-app", "token_type": "Bearer", "expires_in": [1]}`, "expires_in"},
	} {
		mux := http.NewServeMux()
		server := httptest.NewUnstartedServer(mux)
		mux.HandleFunc("GET /"+tenant+"/v2.0/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
			at := server.URL + "/" + tenant
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": at + "/v2.0", "authorization_endpoint": at + "/oauth2/v2.0/authorize", "token_endpoint": at + "/oauth2/v2.0/token"})
		})
		mux.HandleFunc("POST /"+tenant+"/oauth2/v2.0/token", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			fmt.Fprint(w, c.answer)
		})
		server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		server.StartTLS()
		w := world(t)
		delete(w.Parameters, "client_secret")
		w.Parameters["authority"], w.Parameters["federated_token_file"] = server.URL, file
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		server.Close()
		if got.Code != 1 || !strings.Contains(got.Err, c.says) || strings.Contains(got.Err, "token-of") || strings.Contains(got.Err, "secret-of") {
			t.Errorf("%s: exit %d, %s", name, got.Code, got.Err)
		}
	}
}

// Without an application they are those of the machine.
func TestTheManagedIdentityIsUsed(t *testing.T) {
	for client, want := range map[string]int{"identity-1": 2, "identity-2": 1} {
		w := world(t)
		w.Power.Set("PowerState/stopped")
		delete(w.Parameters, "tenant_id")
		delete(w.Parameters, "client_secret")
		w.Parameters["client_id"], w.Parameters["timeout"] = client, "3"
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
			t.Errorf("%s: exit %d, %q, %s", client, got.Code, got.Out, got.Err)
		}
	}
}

// metadata is the machine's metadata service, reached as a proxy, since its address is fixed.
func metadata(w http.ResponseWriter, r *http.Request) {
	if r.Host != "169.254.169.254" || r.Header.Get("Metadata") != "true" || r.URL.Path != "/metadata/identity/oauth2/token" || r.FormValue("client_id") != "identity-1" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token": "token-1", "expires_in": "3599", "expires_on": "%d", "resource": %q, "token_type": "Bearer"}`,
		time.Now().Add(time.Hour).Unix(), r.FormValue("resource"))
}

// A list of which the same page is said to be the next one, again and again, has no end.
func TestAListThatGoesRoundIsAnError(t *testing.T) {
	w := world(t)
	w.Server.Refuse(-1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"value": []any{}, "nextLink": "https://" + r.Host + r.URL.Path + "?api-version=x&page=2"})
	}))
	agenttest.GoesRound(t, w)
}

// Whoever gives tokens, and gives no end of them, is read no further than the platform is.
func TestATokenWithoutAnEndIsAnError(t *testing.T) {
	e := &agenttest.Endless{Code: http.StatusOK}
	server := httptest.NewUnstartedServer(e)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	defer server.Close()
	w := world(t)
	w.Parameters["authority"] = server.URL
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || w.Server.Requests() > 0 {
		t.Errorf("exit %d, %.300s", got.Code, got.Err)
	}
	e.Judge(t, "a token")
}
