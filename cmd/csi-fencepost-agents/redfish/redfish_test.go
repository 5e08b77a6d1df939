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
	"Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1U"}], "ManagedBy": [{"@odata.id": "/redfish/v1/Managers/BMC"}]},
	"@odata.id": "/redfish/v1/Systems/437XR1138R2"
}`

// chassis is its chassis, shortened; its PowerState is the system's.
const chassis = `{
	"@odata.id": "/redfish/v1/Chassis/1U", "Id": "1U", "ChassisType": "RackMount",
	"Links": {"ComputerSystems": [{"@odata.id": "/redfish/v1/Systems/437XR1138R2"}]}
}`

// api is a BMC's, with basic authentication. edit is shown each resource before it is sent.
func api(power *agenttest.Power, edit func(map[string]any)) http.Handler {
	mux := http.NewServeMux()
	allowed := func(w http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user == "fencing" && password == "bmc-secret" {
			return true
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error": {"code": "Base.1.8.NoValidSession", "message": "no valid session"}}`))
		return false
	}
	for path, text := range map[string]string{uri: system, "/redfish/v1/Chassis/1U": chassis} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if !allowed(w, r) {
				return
			}
			var s map[string]any
			_ = json.Unmarshal([]byte(text), &s)
			s["PowerState"] = power.State()
			if s["PowerState"] == "" {
				delete(s, "PowerState")
			}
			edit(s)
			_ = json.NewEncoder(w).Encode(s)
		})
	}
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

func worldWith(t testing.TB, edit func(map[string]any)) *agenttest.World {
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
	agenttest.Suite(t, func(t testing.TB) *agenttest.World { return worldWith(t, func(map[string]any) {}) }, map[string]int{
		"On": 0, "Off": 2,
		"Paused": 1, "PoweringOn": 1, "PoweringOff": 1, "": 1, "off": 1, "Unknown": 1,
	})
}

func TestASystemWithoutForceOffIsNotShutDownGracefully(t *testing.T) {
	w := worldWith(t, func(s map[string]any) {
		if s["Actions"] == nil {
			return
		}
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

// edited is a world in which one of the two resources is another.
func edited(t *testing.T, id string, edit func(map[string]any)) *agenttest.World {
	return worldWith(t, func(s map[string]any) {
		if s["@odata.id"] == id {
			edit(s)
		}
	})
}

// What vendors write otherwise than the schema has it decides nothing.
func TestWhatDecidesNothingIsNotRead(t *testing.T) {
	for name, edit := range map[string]func(map[string]any){
		"memory":     func(s map[string]any) { s["MemorySummary"] = map[string]any{"TotalSystemMemoryGiB": "N/A"} },
		"processors": func(s map[string]any) { s["ProcessorSummary"] = map[string]any{"Count": "2"} },
		"name":       func(s map[string]any) { s["Name"], s["HostName"] = 7, []string{"n1"} },
		"one chassis": func(s map[string]any) {
			s["Links"] = map[string]any{"Chassis": map[string]any{"@odata.id": "/redfish/v1/Chassis/1U"}}
		},
		"no chassis": func(s map[string]any) { s["Links"] = map[string]any{"Chassis": nil} },
		"no links":   func(s map[string]any) { delete(s, "Links") },
	} {
		w := edited(t, uri, edit)
		for state, want := range map[string]int{"On": 0, "Off": 2} {
			w.Power.Set(state)
			if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
				t.Errorf("%s, %s: exit %d, %s", name, state, got.Code, got.Err)
			}
		}
	}
}

// A BMC that was reset may say Off of a host that runs, and On of its chassis.
func TestASystemIsOffOnlyIfItsChassisIsOff(t *testing.T) {
	const its = "/redfish/v1/Chassis/1U"
	for name, c := range map[string]struct {
		edit func(map[string]any)
		want int
	}{
		"off":                {func(map[string]any) {}, 2},
		"no state":           {func(s map[string]any) { delete(s, "PowerState") }, 2},
		"on":                 {func(s map[string]any) { s["PowerState"] = "On" }, 1},
		"powering off":       {func(s map[string]any) { s["PowerState"] = "PoweringOff" }, 1},
		"a state of no kind": {func(s map[string]any) { s["PowerState"] = 0 }, 1},
		"on, and no links":   {func(s map[string]any) { s["PowerState"] = "On"; delete(s, "Links") }, 1},
		"nobody's":           {func(s map[string]any) { delete(s, "@odata.id") }, 1},
		"that of a rack": {func(s map[string]any) {
			s["PowerState"] = "On"
			s["Links"] = map[string]any{"ComputerSystems": []resource{{uri}, {"/redfish/v1/Systems/2"}}}
		}, 2},
	} {
		w := edited(t, its, c.edit)
		w.Power.Set("Off")
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != c.want {
			t.Errorf("chassis %s: exit %d, %q, %s", name, got.Code, got.Out, got.Err)
		}
	}
	for name, id := range map[string]string{"one that is not there": "/redfish/v1/Chassis/2", "one elsewhere": "https://bmc.example.com/", "no name": ""} {
		w := edited(t, uri, func(s map[string]any) {
			s["Links"] = map[string]any{"Chassis": []resource{{its}, {id}}}
		})
		for state, want := range map[string]int{"Off": 1, "On": 0} {
			w.Power.Set(state)
			if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
				t.Errorf("%s, %s: exit %d, %q, %s", name, state, got.Code, got.Out, got.Err)
			}
		}
	}
}

type resource struct {
	ID string `json:"@odata.id"`
}

func TestAnEmptyAnswerIsNoSystem(t *testing.T) {
	w := edited(t, uri, func(map[string]any) {})
	for _, text := range []string{"null", "{}", "", "[]", `"off"`} {
		w.Server.Refuse(-1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		for _, action := range []string{"status", "off", "on"} {
			if got := agenttest.Run(t, w.Agent, action, w.Parameters); got.Code != 1 || got.Out != "" {
				t.Errorf("%q, %s: exit %d, %q, %s", text, action, got.Code, got.Out, got.Err)
			}
		}
	}
}

func TestAResetGoesToNoOtherHost(t *testing.T) {
	for _, target := range []string{"https://bmc.example.com/reset", "@bmc.example.com/reset", ""} {
		w := edited(t, uri, func(s map[string]any) {
			s["Actions"] = map[string]any{"#ComputerSystem.Reset": map[string]any{"target": target}}
		})
		if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "is no path") {
			t.Errorf("%q: exit %d, %s", target, got.Code, got.Err)
		}
	}
}
