package agents_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/program"
)

// folder has the program, and a link for each of its agents.
func folder(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // with a umask of 002 its group may write to it
		t.Fatal(err)
	}
	path := filepath.Join(dir, "csi-fencepost-agents")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, ".")
	build.Dir, build.Env = "../../cmd/csi-fencepost-agents", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	help, err := exec.CommandContext(t.Context(), path, "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^  (\w+) +\S`).FindAllStringSubmatch(string(help), -1) {
		name := "fence_fencepost_" + line[1]
		if err := os.Symlink("csi-fencepost-agents", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return dir, names
}

// project is Hetzner Cloud's API with two servers.
type project struct {
	mu       sync.Mutex
	statuses map[string]string
	sent     []string
}

func (p *project) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // servers/42/actions/poweroff
	answer := func(code int, v any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	switch status, ok := p.statuses[parts[1]]; {
	case r.Header.Get("Authorization") != "Bearer cloud-secret":
		answer(http.StatusUnauthorized, map[string]any{"error": map[string]string{"code": "unauthorized", "message": "unable to authenticate"}})
	case !ok:
		answer(http.StatusNotFound, map[string]any{"error": map[string]string{"code": "not_found", "message": "server not found"}})
	case r.Method == http.MethodPost:
		p.sent = append(p.sent, parts[1]+" "+parts[3])
		p.statuses[parts[1]] = map[string]string{"poweroff": "off", "poweron": "running"}[parts[3]]
		answer(http.StatusCreated, map[string]any{"action": map[string]any{"id": 1, "status": "success"}})
	default:
		answer(http.StatusOK, map[string]any{"server": map[string]any{"id": json.Number(parts[1]), "name": "a server", "status": status}})
	}
}

func (p *project) set(id, status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if status == "" {
		delete(p.statuses, id)
		return
	}
	p.statuses[id] = status
}

var n1 = agent.Machine{Node: "n1", ProviderID: "hcloud://42", NodeID: "42", SystemUUID: "4237e6c2-1111-4222-8333-444444444444"}

func TestTheAgentsAreRunAsFenceAgents(t *testing.T) {
	dir, names := folder(t)
	if len(names) < 3 {
		t.Fatalf("the program names the agents %q", names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { metadataAreTaken(t, dir, name) })
	}
	t.Run("one fences a machine", func(t *testing.T) { fences(t, dir) })
	t.Run("one is held against the node's system UUID", func(t *testing.T) { identifies(t, dir) })
}

// An unknown key comes back with the nearest that the agent knows: its metadata were read.
func metadataAreTaken(t *testing.T, dir, name string) {
	o := program.Options{Name: "cloud", Agent: name, Dirs: []string{dir}, Parameters: map[string]string{"uuid": "$(SYSTEM_UUID)", "fingerprimt": "x", "systems_uri": "/redfish/v1/Systems/1"}}
	p, err := program.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if p.Proves() != fence.PowerReading {
		t.Errorf("it proves %s", p.Proves())
	}
	_, faults := p.Check(t.Context(), n1)
	if said := fmt.Sprint(faults); !strings.Contains(said, `no parameter "fingerprimt"; the nearest it knows: fingerprint`) {
		t.Errorf("its faults: %s", said)
	}
}

func fences(t *testing.T, dir string) {
	api := &project{statuses: map[string]string{"42": "running", "43": "running"}}
	server := httptest.NewTLSServer(api)
	defer server.Close()
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("cloud-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := program.Options{
		Name: "cloud", Agent: "fence_fencepost_hcloud", Dirs: []string{dir},
		Parameters: map[string]string{
			"plug": "$(PROVIDER_ID)", "endpoint": server.URL, "fingerprint": fmt.Sprintf("%x", sha256.Sum256(server.Certificate().Raw)),
		},
		ParameterFiles: map[string]string{"token": secret},
	}
	p, err := program.New(o)
	if err != nil {
		t.Fatal(err)
	}
	read := func(want agent.State) {
		t.Helper()
		r, err := p.Status(t.Context(), n1)
		if r.State != want || r.Checked || (err == nil) != (want != agent.Unclear) {
			// Hetzner tells no system UUID: nothing is checked.
			t.Errorf("read %s, checked %v, %v (%s); want %s", r.State, r.Checked, err, r.Detail, want)
		}
	}
	read(agent.On)
	if _, err := p.Off(t.Context(), n1); err != nil {
		t.Error(err)
	}
	read(agent.Off)
	if _, err := p.On(t.Context(), n1); err != nil {
		t.Error(err)
	}
	read(agent.On)
	if got := strings.Join(api.sent, ", "); got != "42 poweroff, 42 poweron" {
		t.Errorf("the cloud was sent %s", got)
	}
	if device, faults := p.Check(t.Context(), n1); !strings.Contains(device, "plug=hcloud://42") || strings.Contains(device, "secret") || len(faults) > 0 {
		t.Errorf("device %q, faults %v", device, faults)
	}
	api.set("42", "stopping")
	read(agent.Unclear)
	api.set("42", "") // deleted by an autoscaler
	read(agent.Unclear)
	api.set("42", "off")
	if err := os.WriteFile(secret, []byte("another-cloud-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read(agent.Unclear)
}

// identifies: the agent's module has a list of its own of UUIDs that many machines have.
func identifies(t *testing.T, dir string) {
	var uuid string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"@odata.id": "/redfish/v1/Systems/1", "UUID": uuid, "PowerState": "Off"})
	}))
	defer server.Close()
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("bmc-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ip, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	read := func(says, of string) (agent.Reading, error) {
		t.Helper()
		uuid = says
		p, err := program.New(program.Options{
			Name: "bmc", Agent: "fence_fencepost_redfish", Dirs: []string{dir},
			Parameters: map[string]string{"ipport": port, "username": "fencing", "uuid": "$(SYSTEM_UUID)",
				"systems_uri": "/redfish/v1/Systems/1", "fingerprint": fmt.Sprintf("%x", sha256.Sum256(server.Certificate().Raw))},
			NodeParameters: map[string]map[string]string{"ip": {"n1": ip}},
			ParameterFiles: map[string]string{"password": secret},
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.Status(t.Context(), agent.Machine{Node: "n1", SystemUUID: of})
	}
	if r, err := read(n1.SystemUUID, strings.ToUpper(n1.SystemUUID)); err != nil || r.State != agent.Off || !r.Checked {
		t.Errorf("its own: %s, checked %v, %v", r.State, r.Checked, err)
	}
	for _, shared := range fence.SharedSystems {
		for _, of := range []string{shared, n1.SystemUUID} {
			if r, err := read(shared, of); err == nil || r.State != agent.Unclear || !strings.Contains(err.Error(), "no system UUID") {
				t.Errorf("%s of a node with %s: %s, %v", shared, of, r.State, err)
			}
		}
	}
}

// What the page tells people to write is what the agents know.
func TestThePageNamesParametersThatThereAre(t *testing.T) {
	page, err := os.ReadFile("../../docs/use/evidence.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, names := folder(t)
	known := map[string]string{}
	for _, name := range names {
		metadata, err := exec.CommandContext(t.Context(), filepath.Join(dir, name), "--action=metadata").Output()
		if err != nil {
			t.Fatal(err)
		}
		known[name] = string(metadata)
	}
	shown := map[string]bool{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		var agents []struct {
			Exec struct {
				Agent                      string
				Parameters, ParameterFiles map[string]string
				NodeParameters             map[string]map[string]string
			}
		}
		if !strings.Contains(block[1], "fence_fencepost_") {
			continue
		}
		if err := yaml.Unmarshal([]byte(block[1]), &agents); err != nil {
			t.Fatalf("%v in\n%s", err, block[1])
		}
		for _, a := range agents {
			metadata, ok := known[a.Exec.Agent]
			if !ok {
				t.Errorf("there is no agent %s", a.Exec.Agent)
				continue
			}
			shown[a.Exec.Agent] = true
			for _, name := range slices.Concat(slices.Collect(maps.Keys(a.Exec.Parameters)), slices.Collect(maps.Keys(a.Exec.ParameterFiles)), slices.Collect(maps.Keys(a.Exec.NodeParameters))) {
				if !strings.Contains(metadata, `name="`+name+`"`) {
					t.Errorf("%s has no parameter %s", a.Exec.Agent, name)
				}
			}
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("the page does not show %s", name)
		}
	}
}
