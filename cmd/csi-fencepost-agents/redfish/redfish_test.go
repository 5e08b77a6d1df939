package redfish_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/redfish"
)

const uri, uuid = "/redfish/v1/Systems/437XR1138R2", "38947555-7742-3448-3784-823347823834"

// system is that of DMTF's mockup public-rackmount1, shortened.
const system = `{
	"@odata.type": "#ComputerSystem.v1_13_0.ComputerSystem",
	"Id": "437XR1138R2",
	"Name": "WebFrontEnd483",
	"SystemType": "Physical",
	"AssetTag": "Chicago-45Z-2381",
	"Manufacturer": "Contoso",
	"Model": "3500",
	"SerialNumber": "437XR1138R2",
	"Description": "Web Front End node",
	"UUID": "38947555-7742-3448-3784-823347823834",
	"HostName": "web483",
	"Status": {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"},
	"IndicatorLED": "Off",
	"PowerState": "On",
	"BiosVersion": "P79 v1.45 (12/06/2017)",
	"Actions": {
		"#ComputerSystem.Reset": {
			"target": "/redfish/v1/Systems/437XR1138R2/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn", "PushPowerButton"]
		}
	},
	"@odata.id": "/redfish/v1/Systems/437XR1138R2"
}`

// api is a BMC's, with basic authentication.
func api(power *agenttest.Power, edit func(map[string]any)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /redfish/v1/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"@odata.id": "/redfish/v1/", "Id": "RootService", "RedfishVersion": "1.15.0", "Systems": {"@odata.id": "/redfish/v1/Systems"}}`))
	})
	allowed := func(w http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user == "fencing" && password == "bmc-secret" {
			return true
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error": {"code": "Base.1.8.NoValidSession", "message": "no valid session"}}`))
		return false
	}
	mux.HandleFunc("GET "+uri, func(w http.ResponseWriter, r *http.Request) {
		if !allowed(w, r) {
			return
		}
		var s map[string]any
		_ = json.Unmarshal([]byte(system), &s)
		s["PowerState"] = power.State()
		if s["PowerState"] == "" {
			delete(s, "PowerState")
		}
		edit(s)
		_ = json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("POST "+uri+"/Actions/ComputerSystem.Reset", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ ResetType string }
		if !allowed(w, r) || json.NewDecoder(r.Body).Decode(&body) != nil {
			return
		}
		power.Send(strings.HasSuffix(body.ResetType, "Off"), body.ResetType)
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func worldWith(t *testing.T, edit func(map[string]any)) *agenttest.World {
	power := &agenttest.Power{On: "On", Off: "Off", Between: "PoweringOff"}
	power.Set("On")
	server := agenttest.NewServer(t, api(power, edit))
	ip, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	return &agenttest.World{
		Agent: redfish.Agent(), Server: server, Power: power,
		Parameters: map[string]string{"ip": ip, "ipport": port, "username": "fencing", "password": "bmc-secret",
			"systems_uri": uri, "fingerprint": server.Fingerprint()},
		Identities: []string{uri, uuid}, UUID: uuid,
		Names: "systems_uri", Missing: "/redfish/v1/Systems/2", Secret: "password",
		SentOff: "ForceOff", SentOn: "On",
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error": {"code": "Base.1.8.ServiceTemporarilyUnavailable", "message": "busy"}}`))
		}),
	}
}

func TestRedfish(t *testing.T) {
	agenttest.Suite(t, func(t *testing.T) *agenttest.World { return worldWith(t, func(map[string]any) {}) }, map[string]int{
		"On": 0, "Off": 2,
		"Paused": 1, "PoweringOn": 1, "PoweringOff": 1, "": 1, "off": 1, "Unknown": 1,
	})
}

func TestASystemWithoutForceOffIsNotShutDownGracefully(t *testing.T) {
	w := worldWith(t, func(s map[string]any) {
		reset := s["Actions"].(map[string]any)["#ComputerSystem.Reset"].(map[string]any)
		reset["ResetType@Redfish.AllowableValues"] = []string{"On", "GracefulShutdown"}
	})
	got := agenttest.Run(t, w.Agent, "off", w.Parameters)
	if got.Code != 1 || !strings.Contains(got.Err, "ForceOff") || len(w.Power.Sent()) > 0 {
		t.Errorf("exit %d, %s, sent %q", got.Code, got.Err, w.Power.Sent())
	}
}

func TestABMCThatAnswersWithAnotherSystemIsNotBelieved(t *testing.T) {
	w := worldWith(t, func(s map[string]any) { s["@odata.id"] = "/redfish/v1/Systems/2" })
	w.Power.Set("Off")
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 {
		t.Errorf("exit %d, %s", got.Code, got.Out)
	}
}

func TestAPlaceholderIsNoUUID(t *testing.T) {
	for _, placeholder := range []string{"00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", ""} {
		w := worldWith(t, func(s map[string]any) { s["UUID"] = placeholder })
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Out != "Status: ON\nIdentity: "+uri+"\n" {
			t.Errorf("%q: exit %d, %q", placeholder, got.Code, got.Out)
		}
		w.Parameters["uuid"] = placeholder
		if placeholder == "" {
			w.Parameters["uuid"] = uuid
		}
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "no system UUID") {
			t.Errorf("%q: exit %d, %s", placeholder, got.Code, got.Err)
		}
	}
}

func TestAUUIDInTheOrderOfTheFirmwareIsTheSame(t *testing.T) {
	w := worldWith(t, func(map[string]any) {})
	const theOther = "55759438-4277-4834-3784-823347823834"
	w.Parameters["uuid"] = theOther
	got := agenttest.Run(t, w.Agent, "status", w.Parameters)
	if got.Code != 0 || !strings.Contains(got.Out, "\nIdentity: "+theOther+"\n") {
		t.Errorf("exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}
