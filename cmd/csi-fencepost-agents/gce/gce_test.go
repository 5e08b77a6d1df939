package gce_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/gce"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

const (
	here    = "gce://p1/europe-west3-a/n1"
	numeric = "4567890123456789012"
)

// says is what the fake project answers beside the status.
type says struct{ name, zone, disks, operation string }

var usual = says{"n1", "europe-west3-a", `[{"type": "PERSISTENT"}]`, `{"kind": "compute#operation", "status": "RUNNING"}`}

// api is Compute Engine's.
func api(power *agenttest.Power, says says) http.Handler {
	mux := http.NewServeMux()
	instance := func(name, id, status string) json.RawMessage {
		return fmt.Appendf(nil, `{"kind": "compute#instance", "id": %q, "name": %q, "zone": "https://www.googleapis.com/compute/v1/projects/p1/zones/%s", "status": %q, "disks": %s, "cpuPlatform": "x"}`,
			id, name, says.zone, status, says.disks)
	}
	answer := func(w http.ResponseWriter, r *http.Request, code int, v any) {
		if r.Header.Get("Authorization") != "Bearer token-1" {
			code, v = http.StatusUnauthorized, map[string]any{"error": map[string]any{"code": 401, "status": "UNAUTHENTICATED"}}
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	const one = "/compute/v1/projects/p1/zones/europe-west3-a/instances/{name}"
	mux.HandleFunc("GET "+one, func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != "n1" {
			answer(w, r, http.StatusNotFound, map[string]any{"error": map[string]any{"code": 404, "message": "The resource was not found"}})
			return
		}
		answer(w, r, http.StatusOK, instance(says.name, numeric, power.State()))
	})
	mux.HandleFunc("POST "+one+"/{command}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer token-1" && !strings.Contains(says.operation, "error") {
			power.Send(r.PathValue("command") == "stop", strings.TrimSuffix(r.PathValue("command")+"?"+r.URL.RawQuery, "?"))
		}
		answer(w, r, http.StatusOK, json.RawMessage(says.operation))
	})
	mux.HandleFunc("GET /compute/v1/projects/p1/aggregated/instances", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("pageToken") == "" {
			answer(w, r, http.StatusOK, json.RawMessage(fmt.Sprintf(`{"items": {"zones/europe-west3-a": {"instances": [%s]}, "zones/europe-west3-b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}, "nextPageToken": "two"}`,
				instance("n1", numeric, power.State()))))
			return
		}
		answer(w, r, http.StatusOK, json.RawMessage(fmt.Sprintf(`{"items": {"zones/europe-west3-c": {"instances": [%s]}}}`, instance("n2", "99", "RUNNING"))))
	})
	return mux
}

var account, stranger = newKey(), newKey()

func newKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

// keyFile is a service account's, as the console hands it out.
func keyFile(t testing.TB, key *rsa.PrivateKey, tokens string) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{"type": "service_account", "project_id": "p1", "private_key_id": "k1", "client_email": "fencing@p1.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": tokens})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tokens gives a token for an assertion that the account has signed.
func tokens(t testing.TB) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		assertion := r.FormValue("assertion")
		end := strings.LastIndex(assertion, ".")
		signature, err := base64.RawURLEncoding.DecodeString(assertion[end+1:])
		sum := sha256.Sum256([]byte(assertion[:max(end, 0)]))
		if err != nil || rsa.VerifyPKCS1v15(&account.PublicKey, crypto.SHA256, sum[:], signature) != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}`)
			return
		}
		fmt.Fprint(w, `{"access_token": "token-1", "expires_in": 3599, "token_type": "Bearer"}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func world(t testing.TB) *agenttest.World { return worldThat(t, usual) }

func worldThat(t testing.TB, says says) *agenttest.World {
	power := &agenttest.Power{On: "RUNNING", Off: "TERMINATED", Between: "STOPPING"}
	power.Set(power.On)
	server := agenttest.NewServer(t, api(power, says))
	return &agenttest.World{
		Agent: gce.Agent(), Server: server, Power: power,
		Parameters: map[string]string{"project": "p1", "endpoint": server.URL, "fingerprint": server.Fingerprint(),
			"credentials": keyFile(t, account, tokens(t)), "plug": here},
		Identities: []string{numeric},
		Names:      "plug", Missing: "gce://p1/europe-west3-a/n4711", Secret: "credentials",
		SentOff: "stop?noGracefulShutdown=true", SentOn: "start",
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"error": {"code": 403, "errors": [{"reason": "rateLimitExceeded"}]}}`)
		}),
	}
}

func TestComputeEngine(t *testing.T) {
	agenttest.Suite(t, world, map[string]int{
		"RUNNING": 0, "TERMINATED": 2,
		"PROVISIONING": 1, "STAGING": 1, "STOPPING": 1, "PENDING_STOP": 1, "PENDING": 1, "SUSPENDING": 1, "SUSPENDED": 1, "REPAIRING": 1, "DEPROVISIONING": 1, "STOPPED": 1, "": 1,
	})
}

func TestAnInstanceIsNamedByItsProviderID(t *testing.T) {
	w := world(t)
	w.Parameters["plug"] = "gce://p1/europe-west3-a/n1?x"
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); w.Server.Requests() > 0 {
		t.Errorf("asked for a name that is none: %s", got.Err)
	}
	for plug, want := range map[string]int{
		here: 0, "gce://p2/europe-west3-a/n1": 1, "gce://p1/europe-west3-b/n1": 1, "gce://p1/europe-west3-a/n2": 1,
		"gce://p1/europe-west3-a/..": 1, "gce://p1/europe-west3-a/n1?x": 1, "gce://p1/../n1": 1, "gce://p1/europe-west3-a/": 1, "gce://p1/europe-west3-a/n1/x": 1,
		"n1": 1, numeric: 1, "aws:///europe-west3-a/n1": 1, "gce://": 1,
	} {
		w.Parameters["plug"] = plug
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
			t.Errorf("%s: exit %d, %s", plug, got.Code, got.Err)
		}
	}
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 0 || got.Out != numeric+",n1\n99,n2\n" {
		t.Errorf("list: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

// An answer about another instance says nothing of this one.
func TestOnlyTheInstanceThatWasAskedForIsRead(t *testing.T) {
	for _, c := range []struct{ name, zone string }{{"n2", "europe-west3-a"}, {"n1", "europe-west3-b"}, {"", ""}} {
		says := usual
		says.name, says.zone = c.name, c.zone
		w := worldThat(t, says)
		w.Power.Set("TERMINATED")
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 {
			t.Errorf("%v answers: exit %d, %q", c, got.Code, got.Out)
		}
	}
}

// Nobody loses what is on a local SSD without having said so.
func TestALocalSSDIsKeptUnlessItIsSaid(t *testing.T) {
	local := usual
	local.disks = `[{"type": "PERSISTENT"}, {"type": "SCRATCH"}]`
	for _, c := range []struct{ given, sent string }{
		{"", "stop?discardLocalSsd=false&noGracefulShutdown=true"},
		{"true", "stop?discardLocalSsd=true&noGracefulShutdown=true"},
	} {
		w := worldThat(t, local)
		if c.given != "" {
			w.Parameters["discard_local_ssd"] = c.given
		}
		got := agenttest.Run(t, w.Agent, "off", w.Parameters)
		if sent := strings.Join(w.Power.Sent(), " "); got.Code != 0 || sent != c.sent {
			t.Errorf("%s: exit %d, %s, sent %q", c.given, got.Code, got.Err, sent)
		}
	}
}

func TestAnOperationThatFailedIsAnError(t *testing.T) {
	failed := usual
	failed.operation = `{"status": "DONE", "error": {"errors": [{"code": "UNSUPPORTED_OPERATION", "message": "the local SSDs of this type cannot be kept"}]}}`
	w := worldThat(t, failed)
	if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "cannot be kept") {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
}

func TestCredentials(t *testing.T) {
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" || !strings.HasSuffix(r.URL.Path, "/service-accounts/default/token") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"access_token": "token-1", "expires_in": 3599, "token_type": "Bearer"}`)
	}))
	defer metadata.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(metadata.URL, "http://"))
	for name, c := range map[string]struct {
		credentials string
		want        int
		says        string
	}{
		"the machine's own":     {"", 2, ""},
		"another account's key": {keyFile(t, stranger, tokens(t)), 1, "Invalid JWT Signature"},
		"a user's":              {`{"type": "authorized_user", "client_id": "c", "client_secret": "secret-of-a-user", "refresh_token": "secret-of-a-user"}`, 1, "authorized_user"},
		"no JSON":               {`secret-of-a-user`, 1, "no JSON"},
		"nothing of a key":      {`{"type": "service_account", "private_key": "secret-of-a-user"}`, 1, ""},
	} {
		w := world(t)
		w.Power.Set("TERMINATED")
		w.Parameters["credentials"] = c.credentials
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		if got.Code != c.want || !strings.Contains(got.Err, c.says) || strings.Contains(got.Err, "secret-of") || strings.Contains(got.Err, "PRIVATE KEY") {
			t.Errorf("%s: exit %d, %q, %s", name, got.Code, got.Out, got.Err)
		}
	}
}

// The console's file has many lines.
func TestAKeyIsReadFromItsFile(t *testing.T) {
	w := world(t)
	w.Power.Set("TERMINATED")
	var lines bytes.Buffer
	if err := json.Indent(&lines, []byte(w.Parameters["credentials"]), "", "  "); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	delete(w.Parameters, "credentials")
	w.Parameters["credentials_file"] = file
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 2 {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
}

// The time is over also where whoever gives tokens does not answer.
func TestTokensAreNotWaitedForBeyondTheTime(t *testing.T) {
	over := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer hangs.Close()
	defer close(over)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(hangs.URL, "http://"))
	for name, credentials := range map[string]string{"of a key": keyFile(t, account, hangs.URL), "of the machine": ""} {
		w := world(t)
		w.Parameters["credentials"], w.Parameters["timeout"] = credentials, "1"
		began := time.Now()
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		if took := time.Since(began); got.Code != 1 || took > 20*time.Second || !strings.Contains(got.Err, "timeout=1") {
			t.Errorf("%s: exit %d after %s, %s", name, got.Code, took, got.Err)
		}
	}
}

func TestWhatCannotBeIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	for parameter, value := range map[string]string{"project": "p1/zones", "discard_local_ssd": "maybe", "endpoint": "http://compute.googleapis.com"} {
		w := world(t)
		w.Parameters[parameter] = value
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, parameter) || w.Server.Requests() != 0 {
			t.Errorf("%s: exit %d, %s, %d requests", parameter, got.Code, got.Err, w.Server.Requests())
		}
	}
}

// A list of which the same page is said to be the next one, again and again, has no end.
func TestAListThatGoesRoundIsAnError(t *testing.T) {
	w := world(t)
	w.Server.Refuse(-1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"items": {}, "nextPageToken": "two"}`)
	}))
	agenttest.GoesRound(t, w)
}

// Whoever gives tokens, and gives no end of them, is read no further than the platform is.
func TestATokenWithoutAnEndIsAnError(t *testing.T) {
	for name, credentials := range map[string]func(string) string{
		"of a key":       func(at string) string { return keyFile(t, account, at) },
		"of the machine": func(string) string { return "" },
	} {
		e := &agenttest.Endless{Code: http.StatusOK}
		server := httptest.NewServer(e)
		defer server.Close()
		t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
		w := world(t)
		w.Parameters["credentials"] = credentials(server.URL)
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || w.Server.Requests() > 0 {
			t.Errorf("%s: exit %d, %.300s", name, got.Code, got.Err)
		}
		e.Judge(t, name)
	}
}

// Whoever gives tokens may quote by what they were asked for, and what is wrong with an answer is no
// reason to show the token in it.
func TestNoErrorShowsByWhatATokenIsAskedForOrTheToken(t *testing.T) {
	for name, answers := range map[string]func(w http.ResponseWriter, assertion string){
		"it quotes what it refuses": func(w http.ResponseWriter, assertion string) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error": "invalid_grant", "error_description": "the assertion %s is wrong"}`, assertion)
		},
		"a refusal with a token": func(w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"access_token": "secret-of-the-account", "error": "invalid_scope"}`)
		},
	} {
		var asked string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.FormValue("assertion")
			answers(w, asked)
		}))
		w := world(t)
		w.Parameters["credentials"] = keyFile(t, account, server.URL)
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		server.Close()
		if got.Code != 1 || asked == "" || !strings.Contains(got.Err, "invalid_") || strings.Contains(got.Err, asked) || strings.Contains(got.Err, "secret-of") {
			t.Errorf("%s: exit %d, %s", name, got.Code, got.Err)
		}
	}
}

// The metadata service's words may be a token, in whatever form they are.
func TestWhatTheMetadataServiceSaysIsNotShown(t *testing.T) {
	for _, says := range []string{`"secret-of-the-account"`, `{"access_token": "", "x": "secret-of-the-account"}`, `secret-of-the-account`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, says) }))
		defer server.Close()
		t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
		w := world(t)
		w.Parameters["credentials"] = ""
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "answers with no token") || strings.Contains(got.Err, "secret-of") {
			t.Errorf("%s: exit %d, %s", says, got.Code, got.Err)
		}
	}
}
