package proxmox_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/proxmox"
)

const uuid = "1f6e8a3c-94d6-4a44-8a5c-4f2f1a9f0a11"

// api is a cluster's of two hosts. A state is "status qmpstatus lock".
func api(power *agenttest.Power, resources string) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, r *http.Request, data any) {
		if r.Header.Get("Authorization") != "PVEAPIToken=fencing@pve!csi=token-of-pve" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}
	mux.HandleFunc("GET /api2/json/cluster/resources", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, json.RawMessage(resources))
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
		answer(w, r, map[string]any{"digest": "9f", "name": "n1", "smbios1": "uuid=" + uuid + ",base64=1", "cores": 4, "memory": "4096"})
	})
	mux.HandleFunc("POST /api2/json/nodes/{host}/qemu/{id}/status/{action}", func(w http.ResponseWriter, r *http.Request) {
		power.Send(r.PathValue("action") == "stop", r.PathValue("host")+"/"+r.PathValue("id")+" "+r.PathValue("action"))
		answer(w, r, "UPID:pve1:0002:0003:0004:qmstop:100:fencing@pve:")
	})
	return mux
}

const twoMachines = `[
	{"id": "qemu/100", "type": "qemu", "vmid": 100, "node": "pve1", "name": "n1", "status": "running", "template": 0, "cpu": 0.01, "maxcpu": 4},
	{"id": "qemu/101", "type": "qemu", "vmid": 101, "node": "pve2", "name": "n2", "status": "running"},
	{"id": "qemu/201", "type": "qemu", "vmid": 201, "node": "pve1", "name": "twin", "status": "stopped"},
	{"id": "qemu/202", "type": "qemu", "vmid": 202, "node": "pve2", "name": "twin", "status": "running"},
	{"id": "lxc/300", "type": "lxc", "vmid": 300, "node": "pve2", "name": "container", "status": "stopped"}
]`

func world(t *testing.T) *agenttest.World {
	power := &agenttest.Power{On: "running running", Off: "stopped stopped", Between: "running shutdown"}
	power.Set(power.On)
	server := agenttest.NewServer(t, api(power, twoMachines))
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
		"stopped stopped suspended": 1, "stopped stopped suspending": 1, "stopped stopped migrate": 1, "stopped stopped backup": 1,
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
