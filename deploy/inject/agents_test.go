package inject

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

const agentsConfig = `apiVersion: csi-fencepost.io/v1alpha1
kind: Configuration
mode: Enforce
fencing:
  levels:
  - agents:
    - name: bmc
      ipmi: {usernameFile: /etc/csi-fencepost-agents/username, passwordFile: /etc/csi-fencepost-agents/password, nodes: {n1: "10.1.0.11:623"}}
    - name: pdu
      exec: {agent: fence_apc_snmp, parameterFiles: {password: /etc/pdu/password}, nodeParameters: {port: {n1: "3"}}}
`

// Fence agents need a configuration, their credentials and their folder: all of
// it is put in, kept, and taken out.
func TestFenceAgentsAreSetUp(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	o := Options{Config: []byte(agentsConfig), AgentsSecrets: []string{"bmc", "pdu=/etc/pdu"}, AgentDirs: "/usr/sbin,/opt/agents"}
	r, err := Inject([]File{f}, o)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plans[0]
	c, err := config.Parse([]byte(agentsConfig))
	if err != nil {
		t.Fatal(err)
	}
	files := credentialFiles(c.Fencing.Levels)
	if len(files) != 3 {
		t.Errorf("files %q", files)
	}
	for _, file := range files {
		m, ok := mountOf(&p.Sidecar, file)
		i := slices.IndexFunc(p.Volumes, func(v corev1.Volume) bool { return ok && v.Name == m.Name })
		if want := map[bool]string{true: "pdu", false: "bmc"}[strings.HasPrefix(file, "/etc/pdu")]; i < 0 || p.Volumes[i].Secret == nil || p.Volumes[i].Secret.SecretName != want || !m.ReadOnly || !*p.Volumes[i].Secret.Optional {
			t.Errorf("%s is in no volume that may be missing: %+v", file, p.Volumes)
		}
	}
	if !slices.Contains(p.Sidecar.Args, "--agent-dirs=/usr/sbin,/opt/agents") || strings.Contains(said(r.Findings), "is in no volume") {
		t.Errorf("%q\n%s", p.Sidecar.Args, said(r.Findings))
	}
	again, err := Inject(r.Files, Options{})
	if err != nil || !bytes.Equal(again.Files[0].Text, r.Files[0].Text) {
		t.Errorf("the second time: %v\n%s", err, again.Files[0].Text)
	}
	restored(t, r.Files, f.Text)
	for _, keeps := range []bool{false, true} { // the credentials of devices leave the pod with failover
		o := Options{Mode: config.Enforce, Failover: Apart}
		if keeps {
			o.AgentsSecrets = []string{"bmc"}
		}
		apart, err := Inject(r.Files, o)
		if err != nil {
			t.Fatal(err)
		}
		p := apart.Plans[0]
		if mounts := strings.Contains(string(apart.Files[0].Text), "secretName: bmc"); mounts != keeps || bytes.Contains(apart.Files[0].Text, []byte("secretName: pdu")) {
			t.Errorf("apart, kept %t: mounted %t", keeps, mounts)
		}
		if says := strings.Contains(said(apart.Findings), "Secret "+p.Namespace+"/pdu is not mounted any more"); says == keeps {
			t.Errorf("apart, kept %t: it says\n%s", keeps, said(apart.Findings))
		}
		if again, err := Inject(apart.Files, Options{Mode: config.Enforce, Failover: Apart}); err != nil || len(again.Changed) > 0 {
			t.Errorf("apart, kept %t, again: %v, changed %v", keeps, err, again.Changed)
		}
	}
	without, err := Inject(r.Files, Options{AgentsSecrets: []string{""}})
	if err != nil || len(without.Plans[0].Volumes) != 2 {
		t.Errorf("taken away: %v %+v", err, without.Plans[0].Volumes)
	}
	if s := strings.Split(said(without.Findings), "\n"); !strings.HasSuffix(s[0], "the configuration names /etc/csi-fencepost-agents/password, /etc/csi-fencepost-agents/username, which is in no volume of csi-fencepost: mount the Secret that has it, --agents-secret NAME=/etc/csi-fencepost-agents") || !strings.Contains(s[1], "--agents-secret NAME=/etc/pdu") {
		t.Errorf("what is missing is not said first: %q", s[:2])
	}
}

// A file for each node is in one Secret with a key for each, or in a Secret for each.
func TestFilesOfEachNodeAreLookedForWhereTheyBeginToDiffer(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	const missing = "which is in no volume of csi-fencepost: mount the Secret that has it, --agents-secret NAME=/bmc"
	for _, test := range []struct {
		password string
		secrets  []string
		missing  bool
	}{
		{"/bmc/$(NODE).password", []string{"all=/bmc"}, false},
		{"/bmc/$(NODE)/password", []string{"all=/bmc"}, false},
		{"/bmc/$(NODE)/password", []string{"one=/bmc/n1", "two=/bmc/n2"}, false},
		{"/bmc/$(NODE).password", nil, true},
		{"/bmc/$(NODE)/password", nil, true},
		{"/bmc/$(NODE)/password", []string{"other=/bm"}, true},
	} {
		c := strings.NewReplacer("/etc/csi-fencepost-agents/password", test.password, "/etc/csi-fencepost-agents/username", test.password).Replace(agentsConfig)
		r, err := Inject([]File{f}, Options{Config: []byte(c), AgentsSecrets: test.secrets})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(said(r.Findings), "names "+test.password+", "+missing); got != test.missing {
			t.Errorf("%s with %q: missing %v\n%s", test.password, test.secrets, got, said(r.Findings))
		}
	}
}

// Two sidecars of a pod have a volume each.
func TestEachSidecarHasItsOwnAgents(t *testing.T) {
	f := inputs(t, "cases")["two-attachers"]
	r, err := Inject([]File{f}, Options{AgentsSecrets: []string{"a=/a", "b=/b"}})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range r.Plans {
		for _, v := range p.Volumes {
			names[v.Name] = true
		}
	}
	if len(names) != 8 {
		t.Errorf("volumes %v", names)
	}
	restored(t, r.Files, f.Text)
}

func TestWhereNoAgentsSecretCanBe(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	for says, secrets := range map[string][]string{
		"names no Secret":          {"=/a"},
		"not the absolute path":    {"a=b"},
		"not the absolute path ":   {"a=/"},
		"is at /csi already":       {"a=/csi"},
		"is at /etc/csi-fencepost": {"a=/etc/csi-fencepost/agents"},
		"fencepost-agents1 is at":  {"a", "b"},
		"config is at":             {"a=/etc"},
	} {
		if _, err := Inject([]File{f}, Options{AgentsSecrets: secrets}); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(says)) {
			t.Errorf("%q: %v", secrets, err)
		}
	}
}

// The sidecar would not start with it.
func TestAFolderOfTheSystemIsNotPutInAsOneOfAgents(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	for dirs, says := range map[string]string{
		"/":              "--agent-dirs: folder /: every program of the container",
		"/usr/sbin,/usr": "--agent-dirs: folder /usr: /usr is a folder of the system",
		"agents":         `--agent-dirs: folder "agents" is not an absolute path`,
	} {
		if _, err := Inject([]File{f}, Options{AgentDirs: dirs}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", dirs, err)
		}
	}
}
