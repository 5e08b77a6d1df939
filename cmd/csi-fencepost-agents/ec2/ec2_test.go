package ec2_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/ec2"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

const (
	one     = "i-0123456789abcdef0"
	another = "i-0fedcba9876543210"
)

// key is the account's.
var key = aws.Credentials{AccessKeyID: "AKIAFENCING", SecretAccessKey: "secret-key-of-the-account"}

// says is what the fake region answers beside the state.
type says struct {
	zone, more string
	// answers is who is in the answer where one is asked for.
	answers string
	// knows tells whether it knows SkipOsShutdown.
	knows bool
}

var usual = says{zone: "eu-central-1a", answers: one, knows: true}

// api is EC2's in one region. A state is "name reason".
func api(power *agenttest.Power, says says) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !signed(r, body) {
			refuse(w, http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials")
			return
		}
		if r.Method != http.MethodPost || r.URL.Path != "/" || r.ParseForm() != nil || r.Form.Get("Version") != "2016-11-15" {
			refuse(w, http.StatusBadRequest, "InvalidAction", "The action is not valid for this web service.")
			return
		}
		id := r.Form.Get("InstanceId.1")
		switch action := r.Form.Get("Action"); {
		case action == "DescribeInstances" && id == "":
			page, next := describe(one, power.State(), says), "<nextToken>two</nextToken>"
			if r.Form.Get("NextToken") == "two" {
				page, next = describe(another, "running", says), ""
			}
			answer(w, action, "<reservationSet>"+page+"</reservationSet>"+next)
		case id != one:
			refuse(w, http.StatusBadRequest, "InvalidInstanceID.NotFound", "The instance ID '"+id+"' does not exist")
		case action == "DescribeInstances":
			answer(w, action, "<reservationSet>"+describe(says.answers, power.State(), says)+"</reservationSet>")
		case action == "StopInstances" && r.Form.Get("SkipOsShutdown") != "" && !says.knows:
			refuse(w, http.StatusBadRequest, "UnknownParameter", "The parameter SkipOsShutdown is not recognized")
		case action == "StopInstances" && strings.Contains(says.more, "spot"):
			refuse(w, http.StatusBadRequest, "UnsupportedOperation", "You can't stop the Spot Instance '"+id+"' because it is associated with a one-time Spot Instance request.")
		case action == "StopInstances" || action == "StartInstances" || action == "TerminateInstances":
			power.Send(action != "StartInstances", strings.TrimSpace(fmt.Sprintf("%s %s %s%s", id, action, r.Form.Get("Force"), r.Form.Get("SkipOsShutdown"))))
			answer(w, action, "<instancesSet/>")
		default:
			refuse(w, http.StatusBadRequest, "InvalidAction", "The action "+action+" is not valid for this web service.")
		}
	})
}

// signed signs the request once more, as the account would have.
func signed(r *http.Request, body []byte) bool {
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	mine, _ := http.NewRequest(r.Method, "https://"+r.Host+r.URL.Path, bytes.NewReader(body))
	mine.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	if token := r.Header.Get("X-Amz-Security-Token"); token != "" {
		mine.Header.Set("X-Amz-Security-Token", token)
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), key, mine, hex.EncodeToString(sum[:]), "ec2", "eu-central-1", at); err != nil {
		return false
	}
	return r.Header.Get("Authorization") == mine.Header.Get("Authorization")
}

func describe(id, state string, says says) string {
	name, reason, _ := strings.Cut(state, " ")
	code := ""
	if reason != "" {
		code = "<stateReason><code>" + html.EscapeString(reason) + "</code><message>…</message></stateReason>"
	}
	return fmt.Sprintf(`<item><reservationId>r-1</reservationId><instancesSet><item><instanceId>%s</instanceId><imageId>ami-1</imageId>
<instanceState><code>16</code><name>%s</name></instanceState>%s<placement><availabilityZone>%s</availabilityZone><tenancy>default</tenancy></placement>
<tagSet><item><key>kubernetes.io/cluster/c1</key><value>owned</value></item><item><key>Name</key><value>n1</value></item></tagSet>%s</item></instancesSet></item>`,
		id, html.EscapeString(name), code, says.zone, says.more)
}

func answer(w http.ResponseWriter, action, inner string) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<%sResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>%s</%sResponse>`, action, inner, action)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>1</RequestID></Response>`, code, html.EscapeString(message))
}

func world(t testing.TB) *agenttest.World { return worldThat(t, usual) }

func worldThat(t testing.TB, says says) *agenttest.World {
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"} {
		t.Setenv(name, "") // the agent sets them; they are undone after the test
		os.Unsetenv(name)
	}
	power := &agenttest.Power{On: "running", Off: "stopped Client.UserInitiatedShutdown", Between: "stopping"}
	power.Set(power.On)
	server := agenttest.NewServer(t, api(power, says))
	w := &agenttest.World{
		Agent: ec2.Agent(), Server: server, Power: power,
		Parameters: map[string]string{"region": "eu-central-1", "endpoint": server.URL, "fingerprint": server.Fingerprint(),
			"access_key": key.AccessKeyID, "secret_key": key.SecretAccessKey, "plug": one},
		Identities: []string{one},
		Names:      "plug", Missing: "i-00000000000000000", Secret: "secret_key",
		SentOff: one + " StopInstances truetrue", SentOn: one + " StartInstances",
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
		}),
	}
	if !says.knows {
		w.SentOff = one + " StopInstances true"
	}
	return w
}

func TestEC2(t *testing.T) {
	agenttest.Suite(t, world, map[string]int{
		"running": 0, "stopped": 2, "terminated": 2, "stopped Server.ScheduledStop": 2,
		"pending": 1, "stopping": 1, "shutting-down": 1, "hibernated": 1, "": 1,
	})
}

// What may go on from its memory is not off.
func TestAHibernatedInstanceIsNotOff(t *testing.T) {
	hibernates := usual
	hibernates.more = "<hibernationOptions><configured>true</configured></hibernationOptions>"
	spot := usual
	spot.more = "<instanceLifecycle>spot</instanceLifecycle>"
	for _, c := range []struct {
		says  says
		state string
		want  int
	}{
		{hibernates, "stopped Client.UserInitiatedShutdown", 1}, // as our own off of one that hibernates may have it
		{hibernates, "stopped Client.InstanceInitiatedShutdown", 1},
		{hibernates, "stopped Client.UserInitiatedHibernate", 1},
		{hibernates, "stopped Server.ScheduledStop", 1},
		{hibernates, "stopped", 1},
		{hibernates, "terminated", 2},
		{spot, "stopped Server.SpotInstanceShutdown", 1},
		{spot, "stopped Client.UserInitiatedShutdown", 2},
		{spot, "stopped Client.InstanceInitiatedShutdown", 1},
		{spot, "terminated Server.SpotInstanceTermination", 2},
	} {
		w := worldThat(t, c.says)
		w.Power.Set(c.state)
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != c.want || c.want == 1 && !strings.Contains(got.Err, "may be hibernated") {
			t.Errorf("%s: exit %d, %q, %s; want %d", c.state, got.Code, got.Out, got.Err, c.want)
		}
	}
}

// EC2 stops no spot instance of a one-time request, as groups and fleets make them.
func TestASpotInstanceIsTerminatedWhereThatIsSaid(t *testing.T) {
	spot := usual
	spot.more = "<instanceLifecycle>spot</instanceLifecycle>"
	w := worldThat(t, spot)
	w.Power.Off = "terminated"
	if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "one-time Spot Instance request") || len(w.Power.Sent()) > 0 {
		t.Errorf("exit %d, %s, sent %q", got.Code, got.Err, w.Power.Sent())
	}
	w.Parameters["terminate"] = "true"
	got := agenttest.Run(t, w.Agent, "off", w.Parameters)
	if sent := strings.Join(w.Power.Sent(), " "); got.Code != 0 || sent != one+" TerminateInstances truetrue" {
		t.Errorf("exit %d, %s, sent %q", got.Code, got.Err, sent)
	}
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 2 {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
}

func TestAnEndpointThatDoesNotKnowSkipOsShutdownStopsByForce(t *testing.T) {
	old := usual
	old.knows = false
	agenttest.Suite(t, func(t testing.TB) *agenttest.World { return worldThat(t, old) }, map[string]int{"running": 0, "stopping": 1, "stopped": 2})
}

func TestAnInstanceIsNamedByIDOrProviderID(t *testing.T) {
	w := world(t)
	for plug, says := range map[string]string{"aws:///us-east-1a/" + one: "region eu-central-1 is asked", "n1": "no instance of EC2"} {
		w.Parameters["plug"] = plug
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); !strings.Contains(got.Err, says) || w.Server.Requests() > 0 {
			t.Errorf("%s: %s", plug, got.Err)
		}
	}
	for plug, want := range map[string]int{
		one: 0, "aws:///eu-central-1a/" + one: 0, "i-01234567": 1,
		"aws:///eu-central-1b/" + one: 1, // the API says another zone
		"aws:///us-east-1a/" + one:    1, // another region
		"aws:////" + one:              0, // the provider's older form
		"aws://" + one:                1, "aws://eu-central-1a/" + one: 1, "aws://x/eu-central-1a/" + one: 1,
		"aws:///eu-central-1a/fargate-10-1":  1,
		"eks-hybrid:///eu-central-1/c1/mi-0": 1, "mi-0123456789abcdef0": 1, "n1": 1, one + "," + another: 1,
	} {
		w.Parameters["plug"] = plug
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
			t.Errorf("%s: exit %d, %s", plug, got.Code, got.Err)
		}
	}
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 0 || got.Out != one+",n1\n"+another+",n1\n" {
		t.Errorf("list: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

// An answer about another instance, or about none, says nothing of this one.
func TestOnlyTheInstanceThatWasAskedForIsRead(t *testing.T) {
	for _, who := range []string{another, ""} {
		says := usual
		says.answers = who
		w := worldThat(t, says)
		w.Power.Set("terminated")
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 {
			t.Errorf("%q answers: exit %d, %q", who, got.Code, got.Out)
		}
	}
}

func TestWhatCannotBeIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	for name, c := range map[string]struct{ parameter, value, says string }{
		"a zone for a region":         {"region", "eu-central-1a", "region"},
		"a host for a region":         {"region", "example.com/eu-central-1", "region"},
		"half a key":                  {"access_key", "", "access_key"},
		"a role without a token":      {"role_arn", "arn:aws:iam::1:role/x", "web_identity_token_file"},
		"an endpoint without TLS":     {"endpoint", "http://ec2.eu-central-1.amazonaws.com", "endpoint"},
		"terminate by a word":         {"terminate", "maybe", "terminate"},
		"no region":                   {"region", "", "region"},
		"an endpoint that has a user": {"endpoint", "https://u:p@ec2.eu-central-1.amazonaws.com", "endpoint"},
	} {
		w := world(t)
		w.Parameters[c.parameter] = c.value
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, c.says) || w.Server.Requests() != 0 {
			t.Errorf("%s: exit %d, %s, %d requests", name, got.Code, got.Err, w.Server.Requests())
		}
	}
}

// Credentials that the cloud gives a pod are used, and none of them is shown when they are refused.
func TestCredentialsOfThePod(t *testing.T) {
	w := world(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-the-pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "token-of-the-pod" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"code": "AccessDenied", "message": "%s is the token of nobody"}`, r.Header.Get("Authorization"))
			return
		}
		fmt.Fprintf(w, `{"AccessKeyId": %q, "SecretAccessKey": %q, "Token": "session-1", "Expiration": %q}`,
			key.AccessKeyID, key.SecretAccessKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer pod.Close()
	delete(w.Parameters, "access_key")
	delete(w.Parameters, "secret_key")
	w.Parameters["container_credentials_full_uri"] = pod.URL
	w.Parameters["container_authorization_token_file"] = token
	w.Power.Set(w.Power.Off)
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 2 {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
	// EC2 says of a signature that is wrong what it should have been of, the session's token among it.
	w.Server.Echo(func(w http.ResponseWriter, credentials string) {
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch", "The Canonical String for this request should have been 'POST / x-amz-security-token:session-1' "+credentials)
	})
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "Canonical String") || strings.Contains(got.Err, "session-1") {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
	if err := os.WriteFile(token, []byte("token-of-another-pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Parameters["timeout"] = "2"
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "is the token of nobody") || strings.Contains(got.Err, "token-of") {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
}

// A list of which the same page is said to be the next one, again and again, has no end.
func TestAListThatGoesRoundIsAnError(t *testing.T) {
	w := world(t)
	w.Server.Refuse(-1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, "DescribeInstances", "<reservationSet>"+describe(one, "running", usual)+"</reservationSet><nextToken>two</nextToken>")
	}))
	agenttest.GoesRound(t, w)
}

// Whoever gives credentials, and gives no end of them, is read no further than the platform is.
func TestCredentialsWithoutAnEndAreAnError(t *testing.T) {
	e := &agenttest.Endless{Code: http.StatusOK}
	pod := httptest.NewServer(e)
	defer pod.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-the-pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := world(t)
	delete(w.Parameters, "access_key")
	delete(w.Parameters, "secret_key")
	w.Parameters["container_credentials_full_uri"], w.Parameters["container_authorization_token_file"] = pod.URL, token
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || w.Server.Requests() > 0 {
		t.Errorf("exit %d, %.300s", got.Code, got.Err)
	}
	e.Judge(t, "credentials")
}
