package contract_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// outlet is a platform with one machine.
type outlet struct {
	machine contract.Machine
	sent    []string
	opened  contract.Values
	fails   error
	panics  string
}

func (o *outlet) Find(_ context.Context, plug string) (*contract.Machine, error) {
	if o.panics != "" {
		panic(o.panics)
	}
	m := o.machine
	m.ID = plug
	return &m, o.fails
}

func (o *outlet) Off(context.Context, *contract.Machine) error {
	o.sent, o.machine.State = append(o.sent, "off"), contract.Off
	return o.fails
}

func (o *outlet) On(context.Context, *contract.Machine) error {
	o.sent, o.machine.State = append(o.sent, "on"), contract.On
	return o.fails
}

func (o *outlet) List(context.Context) ([]*contract.Machine, error) {
	if o.panics != "" {
		panic(o.panics)
	}
	return []*contract.Machine{{ID: "1", Name: cmp.Or(o.machine.Name, "n1")}}, o.fails
}

func (o *outlet) agent() *contract.Agent {
	return &contract.Agent{
		Name: "outlet", Short: "for tests", Long: "for tests",
		Parameters: []contract.Parameter{
			{Name: "username", Help: "who"},
			{Name: "password", Required: true, Secret: true, Help: "a secret"},
			{Name: "role", Env: "CONTRACT_TEST_ROLE", Help: "a role"},
		},
		Open: func(_ context.Context, v contract.Values) (contract.Platform, error) {
			o.opened = v
			return o, nil
		},
	}
}

func (o *outlet) run(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := contract.Program{
		Name: "agents", Version: "v1", Agents: []*contract.Agent{o.agent()},
		Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Interval: time.Millisecond,
	}
	if len(args) == 0 {
		args = []string{"/usr/sbin/fence_fencepost_outlet"}
	}
	code = p.Run(t.Context(), args)
	return code, stdout.String(), stderr.String()
}

func TestNothingIsDoneWithoutAnActionOrWithAParameterThatIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct{ stdin, want string }{
		"no action":            {"plug=1\npassword=x\n", "no action is given"},
		"an empty action":      {"action=\nplug=1\npassword=x\n", "no action is given"},
		"option for action":    {"option=off\nplug=1\npassword=x\n", "no action is given"},
		"another action":       {"action=cycle\nplug=1\npassword=x\n", `no action "cycle"`},
		"an unknown parameter": {"action=off\nplug=1\npassword=x\nplugg=2\n", `"plugg" is not known; there are plug, uuid`},
		"a parameter twice":    {"action=off\nplug=1\nport=2\npassword=x\n", `"plug" is given twice`},
		"a line without =":     {"action=off\nplug=1\npassword x\n", "no key=value"},
		"a required one":       {"action=off\nplug=1\n", "parameter password is missing"},
		"no plug":              {"action=off\npassword=x\n", "parameter plug is missing"},
		"a plug of two words":  {"action=off\nplug=1 2\npassword=x\n", "white space"},
		"a time that is none":  {"action=off\nplug=1\npassword=x\ntimeout=soon\n", "timeout"},
		"a time without end":   {"action=off\nplug=1\npassword=x\ntimeout=0\n", "timeout"},
		"not found for gone":   {"action=off\nplug=1\npassword=x\nnot_found_is_gone=1\n", `"not_found_is_gone" is not known`},
		"a secret twice":       {"action=off\nplug=1\npassword=x\npassword_file=/y\n", "give one"},
		"a file that is not":   {"action=off\nplug=1\npassword_file=/nowhere/y\n", "/nowhere/y"},
	} {
		o := &outlet{machine: contract.Machine{State: contract.On}}
		code, out, errs := o.run(t, c.stdin)
		if code != 1 || out != "" || !strings.Contains(errs, c.want) || len(o.sent) > 0 {
			t.Errorf("%s: exit %d, %q, %q, sent %q; want %q", name, code, out, errs, o.sent, c.want)
		}
		if strings.Contains(errs, "password x") {
			t.Errorf("%s: the line is shown: %s", name, errs)
		}
	}
}

func TestParametersComeByInputFlagFileAndOldName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTRACT_TEST_ROLE", "")
	o := &outlet{machine: contract.Machine{State: contract.On}}
	code, out, errs := o.run(t, "# a comment\n\naction=status\nPort=7\nlogin=fencing\npassword-file="+file+"\nrole=arn:role\nnodename=n1\n")
	if code != 0 || out != "Status: ON\nIdentity: 7\n" || errs != "" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	if v := o.opened; v["username"] != "fencing" || v["password"] != "from the file" || v["timeout"] != "60" {
		t.Errorf("opened with %v", v)
	}
	if os.Getenv("CONTRACT_TEST_ROLE") != "arn:role" {
		t.Error("the role is not in the environment")
	}
	o.machine.State = contract.Off
	code, out, _ = o.run(t, "", "agents", "outlet", "-o", "status", "--plug=8", "--password", "x")
	if code != 2 || out != "Status: OFF\nIdentity: 8\n" {
		t.Errorf("by flags: exit %d, %q", code, out)
	}
	if code, out, _ = o.run(t, "action=list\npassword=x\n"); code != 0 || out != "1,n1\n" {
		t.Errorf("list: exit %d, %q", code, out)
	}
	if code, out, _ = o.run(t, "action=monitor\npassword=x\n"); code != 0 || out != "" {
		t.Errorf("monitor: exit %d, %q", code, out)
	}
}

func TestNoErrorShowsASecret(t *testing.T) {
	o := &outlet{fails: errors.New("user fencing with hunter2-secret is refused,\nsays the platform")}
	code, _, errs := o.run(t, "action=status\nplug=1\npassword=hunter2-secret\n")
	if code != 1 || errs != "fence_fencepost_outlet: user fencing with *** is refused, says the platform\n" {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// A secret that was cut in two leaves nothing, however it was written there, and whatever comes after it.
func TestNoErrorShowsTheBeginningOfASecret(t *testing.T) {
	long := strings.Repeat("a word ", 1<<20)
	for said, want := range map[string]string{
		"cut: " + contract.Shortened(strings.Repeat(".", 297)+"hunter2 secret", true) + ", at x": "cut: " + strings.Repeat(".", 297) + "***…, at x",
		contract.Shortened("broken off: hunter2\tsec", false):                                    "broken off: ***…",
		"it ends with hunter2 s":                   "it ends with ***",
		"it ends with hun":                         "it ends with hun", // as many a text may
		"form: p=hunter2+secret, hunter2+…":        "form: p=***, ***…",
		"path: hunter2%20secret, hunter2%2…":       "path: ***, ***…",
		"Basic Zm9vOmh1bnRlcjIgc2VjcmV0 is wrong":  "Basic *** is wrong",
		"Basic Zm9vOmh1bnRlcjIgc…":                 "Basic ***…",
		"all of it: hunter2 secret, and no more":   "all of it: ***, and no more",
		long[:16<<10-2] + "hunter2\tsecret" + long: long[:16<<10-2] + "***…",
	} {
		o := &outlet{fails: errors.New(said)}
		code, _, errs := o.run(t, "action=status\nplug=1\nusername=foo\npassword=hunter2 secret\n")
		got := strings.TrimSuffix(strings.TrimPrefix(errs, "fence_fencepost_outlet: "), "\n")
		if code != 1 || got != want {
			t.Errorf("%.80q: exit %d, %.400q", said, code, got)
		}
	}
}

// What a device says acts on no terminal, and no secret appears once that is taken out of it.
func TestWhatADeviceSaysIsPlain(t *testing.T) {
	o := &outlet{fails: errors.New("\x1b]52;c;Zm9v\x07 hunter2\x1bsecret \u202eno\r\nStatus: OFF")}
	code, _, errs := o.run(t, "action=status\nplug=1\npassword=hunter2 secret\n")
	if code != 1 || errs != "fence_fencepost_outlet: ]52;c;Zm9v *** no Status: OFF\n" {
		t.Errorf("exit %d, %q", code, errs)
	}
	o = &outlet{machine: contract.Machine{Name: "n1\x1b[2J\nn2"}}
	if code, said, _ := o.run(t, "action=list\npassword=x\n"); code != 0 || said != "1,n1 [2J n2\n" {
		t.Errorf("exit %d, %q", code, said)
	}
}

func TestAProxyIsASecret(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "")
	const proxy = "http://user:proxy-word@10.0.0.1:x"
	o := &outlet{fails: errors.New("invalid proxy address " + proxy)}
	code, _, errs := o.run(t, "action=status\nplug=1\npassword=x-secret\nproxy="+proxy+"\n")
	if code != 1 || strings.Contains(errs, "proxy-word") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// What has no end, or more than there can be, is refused at once.
func TestMoreThanThereCanBeIsNotRead(t *testing.T) {
	folder := t.TempDir()
	pipe, long := filepath.Join(folder, "pipe"), filepath.Join(folder, "long")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(long, bytes.Repeat([]byte("x"), 64<<10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	const line = "action=off\nplug=1\npassword=x\n"
	for name, c := range map[string]struct{ stdin, want string }{
		"a long file":         {"action=off\nplug=1\npassword_file=" + long, "is longer than 65536 bytes"},
		"a device":            {"action=off\nplug=1\npassword_file=/dev/zero", "/dev/zero is no regular file"},
		"a pipe":              {"action=off\nplug=1\npassword_file=" + pipe, "is no regular file"},
		"a long line":         {line + "username=" + strings.Repeat("x", 1<<20), "the input is longer than 1048576 bytes"},
		"lines without end":   {line + strings.Repeat("# no\n", 1<<20), "the input is longer than 1048576 bytes"},
		"as much as there is": {strings.Repeat("#", 1<<20-len(line)-1) + "\n" + line, ""},
	} {
		o := &outlet{machine: contract.Machine{State: contract.On}}
		code, _, errs := o.run(t, c.stdin)
		if !strings.Contains(errs, c.want) || (code == 1) != (c.want != "") || (len(o.sent) > 0) != (c.want == "") {
			t.Errorf("%s: exit %d, %q, sent %q; want %q", name, code, errs, o.sent, c.want)
		}
	}
}

// Go ends a program that panics with 2, which is off.
func TestAFaultOfTheProgramIsNoState(t *testing.T) {
	for _, action := range []string{"status", "off", "on", "list"} {
		o := &outlet{panics: "hunter2-secret is nil"}
		code, out, errs := o.run(t, "action="+action+"\nplug=1\npassword=hunter2-secret\n")
		if code != 1 || out != "" || !strings.Contains(errs, "a fault of this program") || !strings.Contains(errs, "contract_test.go") || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: exit %d, %q, %q", action, code, out, errs)
		}
	}
}

func TestWhatIsOffIsLeftAloneAndSoIsWhatRuns(t *testing.T) {
	for action, state := range map[string]contract.State{"off": contract.Off, "on": contract.On} {
		o := &outlet{machine: contract.Machine{State: state}}
		if code, _, errs := o.run(t, "action="+action+"\nplug=1\npassword=x\n"); code != 0 || len(o.sent) > 0 {
			t.Errorf("%s: exit %d, %s, sent %q", action, code, errs, o.sent)
		}
	}
	o := &outlet{machine: contract.Machine{State: contract.Neither}}
	if code, _, errs := o.run(t, "action=reboot\nplug=1\npassword=x\n"); code != 0 || !slices.Equal(o.sent, []string{"off", "on"}) {
		t.Errorf("reboot: exit %d, %s, sent %q", code, errs, o.sent)
	}
}

func TestTheMetadataAreThoseOfAFenceAgent(t *testing.T) {
	code, out, errs := (&outlet{}).run(t, "", "/usr/sbin/fence_fencepost_outlet", "-o", "metadata")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	var m struct {
		Name       string `xml:"name,attr"`
		Parameters []struct {
			Name      string `xml:"name,attr"`
			Obsoletes string `xml:"obsoletes,attr"`
			Getopt    struct {
				Mixed string `xml:"mixed,attr"`
			} `xml:"getopt"`
			Content struct {
				Type    string `xml:"type,attr"`
				Default string `xml:"default,attr"`
			} `xml:"content"`
		} `xml:"parameters>parameter"`
		Actions []struct {
			Name string `xml:"name,attr"`
		} `xml:"actions>action"`
	}
	if err := xml.Unmarshal([]byte(out), &m); err != nil {
		t.Fatal(err)
	}
	var names, verbs []string
	for _, p := range m.Parameters {
		names = append(names, p.Name)
		if (p.Name == "plug") != (p.Obsoletes == "port") || (p.Name == "action") != strings.Contains(p.Getopt.Mixed, "-o") {
			t.Errorf("%+v", p)
		}
	}
	for _, a := range m.Actions {
		verbs = append(verbs, a.Name)
	}
	want := []string{"action", "plug", "uuid", "timeout", "ca_file", "fingerprint", "proxy", "proxy_file", "username", "password", "password_file", "role"}
	if m.Name != "fence_fencepost_outlet" || !slices.Equal(names, want) {
		t.Errorf("%s has %q, want %q", m.Name, names, want)
	}
	if want := []string{"on", "off", "reboot", "status", "list", "monitor", "metadata"}; !slices.Equal(verbs, want) {
		t.Errorf("actions %q, want %q", verbs, want)
	}
}

func TestTheProgramNamesItsAgents(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing":            {[]string{"/bin/agents"}, 0, "outlet     for tests"},
		"version":            {[]string{"/bin/agents", "version"}, 0, "v1\n"},
		"another agent":      {[]string{"/bin/agents", "socket"}, 1, `no agent "socket"`},
		"another link":       {[]string{"/usr/sbin/fence_fencepost_socket"}, 1, `no agent "socket"`},
		"a lone word":        {[]string{"/bin/agents", "outlet", "status"}, 1, "argument 1"},
		"a flag for a value": {[]string{"/bin/agents", "outlet", "--action"}, 1, "no value"},
	} {
		code, out, errs := (&outlet{}).run(t, "", c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: exit %d, %q, %q", name, code, out, errs)
		}
	}
}
