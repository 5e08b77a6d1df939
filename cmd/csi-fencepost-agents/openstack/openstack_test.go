package openstack_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/openstack"
)

const (
	id      = "4237e6c2-1111-4222-8333-444444444444"
	another = "4237e6c2-1111-4222-8333-555555555555"
	missing = "4237e6c2-1111-4222-8333-666666666666"
)

// says is what Nova has noted of the server.
type says struct {
	actions, migrations string
	noTask              bool
	id                  string // which Nova answers with
}

// usual is a server that was never evacuated, whose host is c2.
var usual = says{actions: `[{"action": "stop"}, {"action": "create"}]`, migrations: `null`}

// api is Keystone's and Nova's. A state is "status power_state vm_state task_state host_status".
func api(power *agenttest.Power, says says) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("POST /identity/v3/auth/tokens", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		switch strings.Join(strings.Fields(string(text)), "") {
		case `{"auth":{"identity":{"application_credential":{"id":"app-1","secret":"secret-of-the-app"},"methods":["application_credential"]}}}`,
			`{"auth":{"identity":{"methods":["password"],"password":{"user":{"domain":{"name":"users"},"name":"fencing","password":"password-of-fencing"}}},"scope":{"project":{"domain":{"name":"Default"},"name":"kubernetes"}}}}`:
			at := func(region, kind, url string) map[string]string {
				return map[string]string{"region": region, "region_id": region, "interface": kind, "url": url}
			}
			w.Header().Set("X-Subject-Token", "token-of-keystone")
			answer(w, http.StatusCreated, map[string]any{"token": map[string]any{"expires_at": "2099-01-01T00:00:00Z", "catalog": []any{
				map[string]any{"type": "volumev3", "endpoints": []any{at("RegionOne", "public", "https://192.0.2.1/volumes")}},
				map[string]any{"type": "compute", "endpoints": []any{
					at("RegionTwo", "public", "https://192.0.2.1/another"), at("RegionOne", "admin", "http://192.0.2.1/admin"),
					at("RegionOne", "public", "https://"+r.Host+"/compute/v2.1/"), at("plain", "public", "http://"+r.Host+"/compute/v2.1")}},
			}}})
		default:
			answer(w, http.StatusUnauthorized, failure(http.StatusUnauthorized, "The request you have made requires authentication."))
		}
	})
	nova := func(pattern string, serve func(http.ResponseWriter, *http.Request)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /compute/v2.1"+path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Auth-Token") != "token-of-keystone" || r.Header.Get("OpenStack-API-Version") != "compute 2.23" {
				answer(w, http.StatusUnauthorized, failure(http.StatusUnauthorized, "no token"))
				return
			}
			serve(w, r)
		})
	}
	nova("GET /servers/{id}", func(w http.ResponseWriter, r *http.Request) {
		words := append(strings.Split(power.State(), " "), "", "", "", "", "")
		switch r.PathValue("id") {
		case id:
		case another:
			words = []string{"ACTIVE", "1", "active", "null", "UP"}
		default:
			answer(w, http.StatusNotFound, failure(http.StatusNotFound, "Instance could not be found."))
			return
		}
		number, _ := strconv.Atoi(words[1])
		server := map[string]any{"id": cmp.Or(says.id, r.PathValue("id")), "name": "n1", "status": words[0], "OS-EXT-STS:power_state": number, "OS-EXT-STS:vm_state": words[2],
			"OS-EXT-STS:task_state": words[3], "host_status": words[4]}
		if words[3] == "null" {
			server["OS-EXT-STS:task_state"] = nil
		}
		if says.noTask {
			delete(server, "OS-EXT-STS:task_state")
		}
		if words[4] == "unseen" {
			delete(server, "host_status")
		}
		answer(w, http.StatusOK, map[string]any{"server": server})
	})
	nova("GET /servers/{id}/os-instance-actions", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"instanceActions": json.RawMessage(says.actions)})
	})
	nova("GET /os-migrations", func(w http.ResponseWriter, r *http.Request) {
		if says.migrations == "null" || r.FormValue("instance_uuid") != id {
			answer(w, http.StatusForbidden, failure(http.StatusForbidden, "Policy doesn't allow os_compute_api:os-migrations:index to be performed."))
			return
		}
		answer(w, http.StatusOK, map[string]any{"migrations": json.RawMessage(says.migrations)})
	})
	nova("GET /servers", func(w http.ResponseWriter, r *http.Request) {
		page := map[string]string{"": id, id: another}[r.FormValue("marker")]
		servers := []any{}
		if page != "" {
			servers = append(servers, map[string]string{"id": page, "name": "n"})
		}
		answer(w, http.StatusOK, map[string]any{"servers": servers})
	})
	nova("POST /servers/{id}/action", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		power.Send(strings.Contains(string(text), "os-stop"), r.PathValue("id")+" "+string(text))
		w.WriteHeader(http.StatusAccepted)
	})
	return mux
}

func failure(code int, message string) any {
	return map[string]any{"error": map[string]any{"code": code, "message": message}}
}

const (
	on      = "ACTIVE 1 active null UP"
	off     = "SHUTOFF 4 stopped null UP"
	between = "ACTIVE 1 active powering-off UP"
)

func world(t testing.TB) *agenttest.World { return worldThat(t, usual) }

func worldThat(t testing.TB, says says) *agenttest.World {
	power := &agenttest.Power{On: on, Off: off, Between: between}
	power.Set(on)
	server := agenttest.NewServer(t, api(power, says))
	return &agenttest.World{
		Agent: openstack.Agent(), Server: server, Power: power,
		Parameters: map[string]string{"auth_url": server.URL + "/identity/v3", "region": "RegionOne", "application_credential_id": "app-1",
			"application_credential_secret": "secret-of-the-app", "fingerprint": server.Fingerprint(), "plug": "openstack:///" + id},
		Identities: []string{"openstack:///" + id, id}, UUID: id, Elsewhere: true,
		Names: "plug", Missing: missing, Secret: "application_credential_secret",
		SentOff: id + ` {"os-stop":null}`, SentOn: id + ` {"os-start":null}`,
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"overLimit": {"code": 429, "message": "This request was rate-limited."}}`))
		}),
	}
}

func TestOpenStack(t *testing.T) {
	agenttest.Suite(t, world, map[string]int{
		on: 0, off: 2, "ACTIVE 1 active image_snapshot UP": 0,
		"SHUTOFF 4 stopped null DOWN": 1, "SHUTOFF 4 stopped null UNKNOWN": 1, "SHUTOFF 4 stopped null MAINTENANCE": 1, "SHUTOFF 4 stopped null ": 1, "SHUTOFF 4 stopped null unseen": 1,
		"ACTIVE 1 active null DOWN": 1, "ACTIVE 1 active null UNKNOWN": 1, "ACTIVE 1 active null unseen": 1,
		"SHUTOFF 4 stopped powering-on UP": 1, "SHUTOFF 4 stopped deleting UP": 1, "SHUTOFF 0 stopped null UP": 1, "SHUTOFF 1 stopped null UP": 1, "SHUTOFF 6 stopped null UP": 1, "SHUTOFF 7 stopped null UP": 1, "SHUTOFF 4 active null UP": 1,
		"ACTIVE 4 active null UP": 1, "ACTIVE 1 stopped null UP": 1, "SUSPENDED 4 suspended null UP": 1, "SUSPENDED 4 stopped null UP": 1, "PAUSED 3 paused null UP": 1,
		"SHELVED 4 shelved null UP": 1, "SHELVED_OFFLOADED 4 shelved_offloaded null ": 1, "RESCUE 1 rescued null UP": 1, "RESIZE 4 stopped resize_migrating UP": 1, "VERIFY_RESIZE 1 resized null UP": 1, "REBUILD 4 stopped rebuilding UP": 1,
		"MIGRATING 1 active migrating UP": 1, "REBOOT 1 active rebooting UP": 1, "ERROR 4 error null UP": 1, "DELETED 4 deleted null UP": 1, "SOFT_DELETED 4 soft-delete null UP": 1, "BUILD 0 building spawning UP": 1, "UNKNOWN 4 stopped null UP": 1, "UNKNOWN": 1, "": 1,
	})
}

func TestAServerIsNamedByItsIDOrProviderID(t *testing.T) {
	w := world(t)
	for plug, want := range map[string]int{id: 0, "openstack:///" + id: 0, "openstack://RegionOne/" + id: 0, "openstack:///" + another: 0,
		"openstack://RegionTwo/" + id: 1, "openstack://regionone/" + id: 1, "openstack://" + id: 1, "openstack:///": 1, "openstack:///" + id + "/x": 1, "openstack:///../" + id: 1,
		"openstack:///n1": 1, "n1": 1, "aws:///" + id: 1, "openstack:///" + missing: 1} {
		w.Parameters["plug"] = plug
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		if got.Code != want || want == 1 && strings.Contains(got.Err, "404") != strings.Contains(plug, missing) {
			t.Errorf("%s: exit %d, %s", plug, got.Code, got.Err)
		}
	}
	w.Parameters["plug"] = "openstack://RegionTwo/" + id
	if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 1 || len(w.Power.Sent()) > 0 || !strings.Contains(got.Err, "region RegionTwo") {
		t.Errorf("off of another region's server: exit %d, %s, sent %q", got.Code, got.Err, w.Power.Sent())
	}
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 0 || got.Out != "openstack:///"+id+",n\nopenstack:///"+another+",n\n" {
		t.Errorf("list: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

// Nova tells of a task that there is none; where it tells nothing, there may be one.
func TestATaskThatIsNotToldMayBeOne(t *testing.T) {
	says := usual
	says.noTask = true
	w := worldThat(t, says)
	w.Power.Set(off)
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 {
		t.Errorf("exit %d, %q", got.Code, got.Out)
	}
}

func TestAnAnswerAboutAnotherServerIsAnError(t *testing.T) {
	says := usual
	says.id = another
	w := worldThat(t, says)
	for _, state := range []string{on, off} {
		w.Power.Set(state)
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, another) {
			t.Errorf("%s: exit %d, %q, %s", state, got.Code, got.Out, got.Err)
		}
	}
}

// An evacuated server is stopped on its new host, and may run on the one that it left.
func TestACopyThatAnEvacuationLeftMayRun(t *testing.T) {
	const evacuated = `[{"action": "evacuate"}, {"action": "create"}]`
	record := func(status, from string) string {
		return fmt.Sprintf(`{"instance_uuid": %q, "migration_type": "evacuation", "source_compute": %q, "dest_compute": "c2", "status": %q}`, id, from, status)
	}
	for name, c := range map[string]struct {
		says says
		want int
	}{
		"never":                       {says{actions: `[{"action": "create"}]`, migrations: "null"}, 2},
		"never, and migrated":         {says{actions: `[{"action": "live-migration"}, {"action": "create"}]`, migrations: "null"}, 2},
		"no actions to be seen":       {says{actions: `[]`, migrations: "[]"}, 1},
		"actions that are null":       {says{actions: `null`, migrations: "[]"}, 1},
		"done":                        {says{actions: evacuated, migrations: "[" + record("done", "c1") + "]"}, 1},
		"accepted":                    {says{actions: evacuated, migrations: "[" + record("accepted", "c1") + "]"}, 1},
		"failed":                      {says{actions: evacuated, migrations: "[" + record("failed", "c1") + "]"}, 1},
		"from nowhere":                {says{actions: evacuated, migrations: "[" + record("done", "") + "]"}, 1},
		"completed":                   {says{actions: evacuated, migrations: "[" + record("completed", "c1") + "]"}, 2},
		"failed, and still at home":   {says{actions: evacuated, migrations: "[" + record("failed", "c2") + "]"}, 1},
		"how it began is not told":    {says{actions: `[{"action": "stop"}]`, migrations: "null"}, 1},
		"one completed, one not":      {says{actions: strings.Replace(evacuated, "create", "evacuate", 1), migrations: "[" + record("completed", "c1") + "," + record("done", "c3") + "]"}, 1},
		"one completed, one not told": {says{actions: strings.Replace(evacuated, "create", "evacuate", 1), migrations: "[" + record("completed", "c1") + "]"}, 1},
		"not told":                    {says{actions: evacuated, migrations: "[]"}, 1},
		"not to be seen":              {says{actions: evacuated, migrations: "null"}, 1},
		"another server's":            {says{actions: evacuated, migrations: "[" + strings.Replace(record("completed", "c1"), id, another, 1) + "]"}, 1},
		"another kind":                {says{actions: evacuated, migrations: "[" + strings.Replace(record("completed", "c1"), "evacuation", "resize", 1) + "]"}, 1},
	} {
		w := worldThat(t, c.says)
		for state, want := range map[string]int{off: c.want, on: 0} {
			w.Power.Set(state)
			if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want || (want == 1) != (got.Out == "") {
				t.Errorf("%s, %s: exit %d, %q, %s; want %d", name, state, got.Code, got.Out, got.Err, want)
			}
		}
	}
}

// In a public cloud nobody sees host_status; where it is seen, it counts.
func TestWithoutHostStatusTheDatabaseCounts(t *testing.T) {
	w := world(t)
	w.Parameters["without_host_status"] = "true"
	for state, want := range map[string]int{
		"SHUTOFF 4 stopped null unseen": 2, "ACTIVE 1 active null unseen": 0, off: 2, "SHUTOFF 4 stopped null UNKNOWN": 1, "ACTIVE 1 active null UNKNOWN": 1, "SHUTOFF 4 stopped powering-on unseen": 1,
	} {
		w.Power.Set(state)
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
			t.Errorf("%s: exit %d, %q, %s; want %d", state, got.Code, got.Out, got.Err, want)
		}
	}
	evacuated := worldThat(t, says{actions: `[{"action": "evacuate"}, {"action": "create"}]`, migrations: "null"})
	evacuated.Parameters["without_host_status"] = "true"
	evacuated.Power.Set("SHUTOFF 4 stopped null unseen")
	if got := agenttest.Run(t, evacuated.Agent, "status", evacuated.Parameters); got.Code != 1 || !strings.Contains(got.Err, "evacuated") {
		t.Errorf("evacuated: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

// A second stop is refused by Nova while the first is under way.
func TestAStopThatIsUnderWayIsWaitedFor(t *testing.T) {
	w := world(t)
	w.Power.Send(true, "somebody's")
	if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 0 || len(w.Power.Sent()) != 1 {
		t.Errorf("exit %d, %s, sent %q", got.Code, got.Err, w.Power.Sent())
	}
}

// What is sent to a host that is dead is done when it is back.
func TestNothingIsSentToAHostThatIsNotUp(t *testing.T) {
	w := world(t)
	for _, status := range []string{"DOWN", "UNKNOWN", "MAINTENANCE", ""} {
		for action, state := range map[string]string{"off": "ACTIVE 1 active null ", "on": "SHUTOFF 4 stopped null ", "reboot": "ACTIVE 1 active null "} {
			w.Power.Set(state + status)
			if got := agenttest.Run(t, w.Agent, action, w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "not UP") || len(w.Power.Sent()) > 0 {
				t.Errorf("%s of a machine whose host is %q: exit %d, %s, sent %q", action, status, got.Code, got.Err, w.Power.Sent())
			}
		}
	}
}

func TestNovaIsFoundAndCredentialsAreWhole(t *testing.T) {
	w := world(t)
	user := map[string]string{"username": "fencing", "password": "password-of-fencing", "user_domain_name": "users", "project_name": "kubernetes"}
	for name, c := range map[string]struct {
		more map[string]string
		want string
	}{
		"an application credential": {map[string]string{}, ""},
		"Keystone without /v3":      {map[string]string{"auth_url": w.Server.URL + "/identity/"}, ""},
		"a named endpoint":          {map[string]string{"endpoint": w.Server.URL + "/compute/v2.1", "region": "elsewhere"}, ""},
		"another region":            {map[string]string{"region": "RegionThree"}, "no public compute service in region RegionThree"},
		"a catalog without TLS":     {map[string]string{"region": "plain"}, "the compute service at http://"},
		"both":                      {user, "give all of one of them"},
		"half":                      {map[string]string{"application_credential_id": ""}, "give all of one of them"},
		"Keystone without TLS":      {map[string]string{"auth_url": "http://keystone.example.com"}, "parameter auth_url"},
	} {
		parameters := map[string]string{}
		for _, from := range []map[string]string{w.Parameters, c.more} {
			for key, value := range from {
				parameters[key] = value
			}
		}
		if got := agenttest.Run(t, w.Agent, "status", parameters); (got.Code == 0) != (c.want == "") || !strings.Contains(got.Err, c.want) {
			t.Errorf("%s: exit %d, %s", name, got.Code, got.Err)
		}
	}
	for _, key := range []string{"application_credential_id", "application_credential_secret"} {
		delete(w.Parameters, key)
	}
	for key, value := range user {
		w.Parameters[key] = value
	}
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 0 {
		t.Errorf("a user: exit %d, %s", got.Code, got.Err)
	}
}

// A list of which the same page is said to be the next one, again and again, has no end.
func TestAListThatGoesRoundIsAnError(t *testing.T) {
	w := world(t)
	rest := api(w.Power, usual)
	w.Server.Refuse(-1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/servers") {
			rest.ServeHTTP(w, r)
			return
		}
		next := map[string]string{"": id, id: another, another: id}[r.FormValue("marker")]
		fmt.Fprintf(w, `{"servers": [{"id": %q, "name": "n"}]}`, next)
	}))
	agenttest.GoesRound(t, w)
}
