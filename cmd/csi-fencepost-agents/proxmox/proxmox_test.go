package proxmox_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/proxmox"
)

const uuid = "1f6e8a3c-94d6-4a44-8a5c-4f2f1a9f0a11"

// says is what the fake cluster answers where nothing else is asked for.
type says struct{ resources, status, exit, tasks, log string }

const upid = "UPID:pve1:0002:0003:0004:qmstop:100:fencing@pve!csi:"

// usual is a cluster of two hosts.
var usual = says{twoMachines, `[
	{"type": "cluster", "id": "cluster", "name": "c1", "nodes": 2, "quorate": 1, "version": 4},
	{"type": "node", "id": "node/pve1", "name": "pve1", "online": 1, "local": 1},
	{"type": "node", "id": "node/pve2", "name": "pve2", "online": 1, "local": 0}
]`, "OK", `[
	{"upid": "` + upid + `", "type": "qmstop", "id": "100", "starttime": 1700000200, "endtime": 1700000201, "status": "OK"},
	{"upid": "UPID:pve1:0002:0002:0003:qmstart:100:root@pam:", "type": "qmstart", "id": "100", "starttime": 1700000100, "status": "OK"},
	{"upid": "UPID:pve1:0002:0003:0005:vzdump:100:root@pam:", "type": "vzdump", "id": "100", "starttime": 1700000300, "status": "OK"}
]`, `[{"n": 1, "t": "TASK OK"}]`}

// api is that cluster's. A state is "status qmpstatus lock".
func api(power *agenttest.Power, says says) http.Handler {
	mux := http.NewServeMux()
	var looks atomic.Int64
	answer := func(w http.ResponseWriter, r *http.Request, data any) {
		if r.Header.Get("Authorization") != "PVEAPIToken=fencing@pve!csi=token-of-pve" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}
	mux.HandleFunc("GET /api2/json/cluster/resources", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, json.RawMessage(says.resources))
	})
	mux.HandleFunc("GET /api2/json/cluster/status", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, json.RawMessage(says.status))
	})
	mux.HandleFunc("GET /api2/json/nodes/{host}/qemu/{id}/status/current", func(w http.ResponseWriter, r *http.Request) {
		words := append(strings.Split(power.State(), " "), "", "")
		if r.PathValue("id") == "101" {
			words = []string{"running", "running", ""}
		}
		status := map[string]any{"vmid": json.Number(r.PathValue("id")), "name": "n1", "status": words[0], "qmpstatus": words[1], "agent": 1, "cpus": 4}
		if words[2] != "" {
			status["lock"] = words[2]
		}
		answer(w, r, status)
	})
	mux.HandleFunc("GET /api2/json/nodes/{host}/qemu/{id}/config", func(w http.ResponseWriter, r *http.Request) {
		is := uuid
		if r.FormValue("current") != "1" {
			is = "00000000-1111-4222-8333-444444444444" // what somebody has written for the next start
		}
		answer(w, r, map[string]any{"digest": "9f", "name": "n1", "smbios1": "uuid=" + is + ",base64=1", "cores": 4, "memory": "4096"})
	})
	mux.HandleFunc("POST /api2/json/nodes/{host}/qemu/{id}/status/{action}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("action") == "stop" && r.FormValue("overrule-shutdown") != "1" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		power.Send(r.PathValue("action") == "stop", r.PathValue("host")+"/"+r.PathValue("id")+" "+r.PathValue("action"))
		answer(w, r, upid)
	})
	mux.HandleFunc("GET /api2/json/nodes/pve1/tasks/"+upid+"/status", func(w http.ResponseWriter, r *http.Request) {
		exit := map[string]any{"upid": upid, "status": "stopped", "exitstatus": says.exit}
		if looks.Add(1)%2 == 1 {
			exit = map[string]any{"upid": upid, "status": "running"}
		}
		answer(w, r, exit)
	})
	mux.HandleFunc("GET /api2/json/nodes/pve1/tasks", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("vmid") != "100" || r.FormValue("source") != "all" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer(w, r, json.RawMessage(says.tasks))
	})
	mux.HandleFunc("GET /api2/json/nodes/pve1/tasks/{another}/log", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, json.RawMessage(`[{"n": 1, "t": "TASK OK"}]`))
	})
	mux.HandleFunc("GET /api2/json/nodes/pve1/tasks/"+upid+"/log", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, json.RawMessage(says.log))
	})
	return mux
}

const twoMachines = `[
	{"id": "qemu/100", "type": "qemu", "vmid": 100, "node": "pve1", "name": "n1", "status": "running", "template": 0, "cpu": 0.01, "maxcpu": 4},
	{"id": "qemu/101", "type": "qemu", "vmid": 101, "node": "pve2", "name": "n2", "status": "running"},
	{"id": "qemu/201", "type": "qemu", "vmid": 201, "node": "pve1", "name": "twin", "status": "stopped"},
	{"id": "qemu/202", "type": "qemu", "vmid": 202, "node": "pve2", "name": "twin", "status": "running"},
	{"id": "lxc/300", "type": "lxc", "vmid": 300, "node": "pve2", "name": "container", "status": "stopped", "maxcpu": 0.5, "cpu": "none", "maxmem": "much"}
]`

func world(t testing.TB) *agenttest.World { return worldThat(t, usual) }

func worldThat(t testing.TB, says says) *agenttest.World {
	power := &agenttest.Power{On: "running running", Off: "stopped stopped", Between: "running shutdown"}
	power.Set(power.On)
	server := agenttest.NewServer(t, api(power, says))
	ip, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	return &agenttest.World{
		Agent: proxmox.Agent(), Server: server, Power: power,
		Parameters: map[string]string{"ip": ip, "ipport": port, "token_id": "fencing@pve!csi", "token": "token-of-pve",
			"fingerprint": server.Fingerprint(), "plug": "100"},
		Identities: []string{"100", uuid}, UUID: uuid,
		Names: "plug", Missing: "4711", Secret: "token",
		SentOff: "pve1/100 stop", SentOn: "pve1/100 start",
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"data":null}`))
		}),
	}
}

func TestProxmox(t *testing.T) {
	agenttest.Suite(t, world, map[string]int{
		"running running": 0, "running running backup": 0, "running running migrate": 0, "stopped stopped": 2,
		"stopped stopped suspended": 1, "stopped stopped suspending": 1, "stopped stopped migrate": 1, "stopped stopped create": 1, "stopped stopped rollback": 1, "stopped stopped clone": 1, "stopped stopped something": 1,
		"stopped stopped backup": 2, "stopped stopped snapshot": 2, "stopped stopped snapshot-delete": 2, // left behind by a host that died
		"running paused": 1, "running prelaunch": 1, "running suspended": 1, "running running suspending": 1, "running": 1, "unknown": 1, "": 1,
	})
}

func TestAVirtualMachineIsNamedByNumberNameOrProviderID(t *testing.T) {
	w := world(t)
	for _, c := range []struct {
		plug, region string
		want         int
	}{
		{"100", "", 0}, {"n1", "", 0}, {"proxmox://100", "", 0}, {"proxmox://region-1/100", "region-1", 0}, {"100", "region-1", 0},
		{"twin", "", 1}, {"container", "", 1}, {"300", "", 1}, {"n9", "", 1}, {"proxmox://region-1/", "region-1", 1},
		{"proxmox://region-2/100", "region-1", 1}, {"proxmox://region-1/100", "", 1}, {"proxmox://100", "region-1", 1},
		{"proxmox:///100", "region-1", 1}, {"proxmox://region-1/100/100", "region-1", 1}, {"other://100", "", 1},
		{"proxmox://n1", "", 1}, {"proxmox://" + uuid, "", 1}, {uuid, "", 1}, {"0100", "", 1}, {"101.0", "", 1},
	} {
		w.Parameters["plug"], w.Parameters["region"] = c.plug, c.region
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != c.want {
			t.Errorf("%s, region %q: exit %d, %s", c.plug, c.region, got.Code, got.Err)
		}
	}
	w.Parameters["plug"], w.Parameters["region"] = "proxmox://region-2/100", "region-1"
	if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 1 || len(w.Power.Sent()) > 0 {
		t.Errorf("off of another region's machine: exit %d, %s, sent %q", got.Code, got.Err, w.Power.Sent())
	}
}

// A host that does not answer another one is an empty answer with the status 595.
func TestAHostThatDoesNotAnswerIsNoMachineThatIsOff(t *testing.T) {
	w := world(t)
	w.Power.Set("stopped stopped")
	w.Server.Refuse(-1, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(595)
		_, _ = rw.Write([]byte(`{"data":null}`))
	}))
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "595") {
		t.Errorf("exit %d, %s", got.Code, got.Err)
	}
}

// pvestatd of a host hangs on a storage: its machines are listed without a name, and run.
func TestAListWithoutNamesIsNotLookedThroughForOne(t *testing.T) {
	says := usual
	says.resources = `[
		{"id": "qemu/100", "type": "qemu", "vmid": 100, "node": "pve1", "status": "unknown"},
		{"id": "qemu/101", "type": "qemu", "vmid": 101, "node": "pve2", "name": "n2", "status": "running"}
	]`
	w := worldThat(t, says)
	for plug, want := range map[string]string{"100": "", "101": "", "n1": "without a name", "n2": "without a name"} {
		w.Parameters["plug"] = plug
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		if (got.Code == 0) != (want == "") || !strings.Contains(got.Err, want) {
			t.Errorf("%s: exit %d, %s", plug, got.Code, got.Err)
		}
	}
}

// What a host without a majority lists is from before: its machine may run elsewhere by now.
func TestOffIsSaidOnlyByAHostWithAQuorum(t *testing.T) {
	for name, c := range map[string]struct {
		status string
		off    int
	}{
		"a majority":              {usual.status, 2},
		"one host alone":          {`[{"type": "node", "name": "pve1", "online": 1, "local": 1}]`, 2},
		"no majority":             {strings.Replace(usual.status, `"quorate": 1`, `"quorate": 0`, 1), 1},
		"a cluster that hides it": {`[{"type": "cluster", "name": "c1"}, {"type": "node", "name": "pve1"}]`, 1},
		"nobody":                  {`[]`, 1},
		"nothing":                 {`null`, 1},
	} {
		says := usual
		says.status = c.status
		w := worldThat(t, says)
		for state, want := range map[string]int{"stopped stopped": c.off, "running running": 0} {
			w.Power.Set(state)
			if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
				t.Errorf("%s, %s: exit %d, %q, %s; want %d", name, state, got.Code, got.Out, got.Err, want)
			}
		}
	}
}

// The second reading finds it where it went while the quorum was asked for.
func TestOffIsReadAgainOnceThereIsAQuorum(t *testing.T) {
	w := world(t)
	w.Power.Set("stopped stopped")
	w.Server.Config.Handler = afterQuorum(w.Server.Config.Handler, func() { w.Power.Set("running running") })
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 0 {
		t.Errorf("exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

func afterQuorum(api http.Handler, then func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r)
		if r.URL.Path == "/api2/json/cluster/status" {
			then()
		}
	})
}

// Before 8.2 the parameter is refused.
func TestAnOlderProxmoxIsStoppedToo(t *testing.T) {
	w := world(t)
	var sent []string
	api := w.Server.Config.Handler
	w.Server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			api.ServeHTTP(rw, r)
			return
		}
		_ = r.ParseForm()
		sent = append(sent, r.URL.Path+" "+r.PostForm.Encode())
		if r.PostForm.Has("overrule-shutdown") {
			rw.WriteHeader(http.StatusBadRequest)
			_, _ = rw.Write([]byte(`{"data":null,"errors":{"overrule-shutdown":"property is not defined in schema and the schema does not allow additional properties"}}`))
			return
		}
		w.Power.Set("stopped stopped")
		_, _ = rw.Write([]byte(`{"data":"` + upid + `"}`))
	})
	if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 0 || len(sent) != 2 {
		t.Errorf("exit %d, %s, sent %q", got.Code, got.Err, sent)
	}
}

func TestHowAStopEndedIsSaid(t *testing.T) {
	for exit, want := range map[string]string{"OK": "", "VM is locked (backup)": "VM is locked (backup)", "WARNINGS: 1": "WARNINGS: 1", "": "ends with"} {
		says := usual
		says.exit = exit
		w := worldThat(t, says)
		got := agenttest.Run(t, w.Agent, "off", w.Parameters)
		if (got.Code == 0) != (want == "") || !strings.Contains(got.Err, want) || len(w.Power.Sent()) != 1 {
			t.Errorf("%q: exit %d, %s, sent %q", exit, got.Code, got.Err, w.Power.Sent())
		}
	}
}

// A QEMU that waits for its storage survives SIGKILL, and is called stopped.
func TestAMachineWhoseQEMUMayLiveIsNotOff(t *testing.T) {
	const killed = `[{"n": 1, "t": "VM still running - terminating now with SIGTERM"}, {"n": 2, "t": "VM still running - terminating now with SIGKILL"}, {"n": 3, "t": "TASK OK"}]`
	failed := strings.Replace(strings.Replace(usual.tasks, "1700000100", "1700000300", 1), `"starttime": 1700000300, "status": "OK"}`, `"starttime": 1700000300, "status": "timeout waiting on lock"}`, 1)
	again := strings.Replace(usual.tasks, "[", `[{"upid": "UPID:pve1:0002:0003:0009:qmstop:100:fencing@pve!csi:", "type": "qmstop", "id": "100", "starttime": 1700000300, "status": "OK"},`, 1)
	for name, c := range map[string]struct {
		log, tasks string
		want       int
	}{
		"killed, a start failed": {killed, failed, 1},
		"killed, stopped again":  {killed, again, 1},
		"killed":                 {killed, usual.tasks, 1},
		"killed in a shutdown":   {killed, strings.Replace(usual.tasks, `"type": "qmstop"`, `"type": "qmshutdown"`, 1), 1},
		"killed, started since":  {killed, strings.Replace(usual.tasks, "1700000100", "1700000300", 1), 2},
		"terminated":             {`[{"n": 1, "t": "VM still running - terminating now with SIGTERM"}]`, usual.tasks, 2},
		"no task":                {killed, "[]", 2},
		"no tasks to be seen":    {killed, "null", 1},
		"no log to be seen":      {"null", usual.tasks, 1},
	} {
		says := usual
		says.log, says.tasks = c.log, c.tasks
		w := worldThat(t, says)
		for state, want := range map[string]int{"stopped stopped": c.want, "running running": 0} {
			w.Power.Set(state)
			if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want || (want == 1) != (got.Out == "") {
				t.Errorf("%s, %s: exit %d, %q, %s; want %d", name, state, got.Code, got.Out, got.Err, want)
			}
		}
		w.Parameters["timeout"] = "1"
		w.Power.Set("running running")
		if got := agenttest.Run(t, w.Agent, "off", w.Parameters); (got.Code == 0) != (c.want == 2) || len(w.Power.Sent()) != 1 {
			t.Errorf("%s: off: exit %d, %s, sent %q", name, got.Code, got.Err, w.Power.Sent())
		}
	}
}
