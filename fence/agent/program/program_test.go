package program_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/program"
)

const password = "hunter2-&-Geheim"

// metadataText of the shell agents; %s takes more parameters or actions.
const metadataText = `<?xml version="1.0" ?>
<resource-agent name="fence_test" shortdesc="test">
<parameters>
<parameter name="action" unique="0" required="1"><getopt mixed="-o, --action=[action]" /><content type="string" default="reboot" /></parameter>
<parameter name="do" unique="0"><getopt mixed="-x, --action" /><content type="string" /></parameter>
<parameter name="ipaddr" unique="0" required="1" deprecated="1"><getopt mixed="-a, --ip=[ip]" /></parameter>
<parameter name="ip" unique="0" required="1" obsoletes="ipaddr"><getopt mixed="-a, --ip=[ip]" /></parameter>
<parameter name="port"><getopt mixed="-n" /></parameter>
<parameter name="passwd"><getopt mixed="-p" /></parameter>
<parameter name="method"><getopt mixed="-m" /></parameter>
</parameters>
<actions>%s</actions>
</resource-agent>`

const allActions = `<action name="on" automatic="0"/><action name="off"/><action name="status"/><action name="reboot"/>`

// shell writes an agent whose body runs with the parameters in $in.
func shell(t *testing.T, body string) (dir string) {
	t.Helper()
	return shellWith(t, fmt.Sprintf(metadataText, allActions), body)
}

func shellWith(t *testing.T, metadata, body string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.Chmod(dir, 0o755)) // with a umask of 002 its group may write to it
	writeAgent(t, filepath.Join(dir, "fence_test"), metadata, body)
	return dir
}

func writeAgent(t *testing.T, path, metadata, body string) {
	t.Helper()
	dir := filepath.Dir(path)
	text := "#!/bin/sh\nif [ \"$1\" = -o ]; then echo run >>" + dir + "/metadata-runs; cat <<'END'\n" + metadata + "\nEND\nexit 0; fi\nin=$(cat)\n" + body + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func options(dir string) program.Options {
	return program.Options{
		Name: "pdu", Agent: "fence_test", Dirs: []string{dir},
		Parameters:     map[string]string{"ip": "10.0.0.1"},
		NodeParameters: map[string]map[string]string{"port": {"n1": "3", "n2": "4"}},
	}
}

func newProgram(t *testing.T, o program.Options) *program.Program {
	t.Helper()
	p, err := program.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var n1 = agent.Machine{Node: "n1", NodeID: "id-1", ProviderID: "aws:///eu-1a/i-0abc", SystemUUID: "uuid-1"}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q lacks %q", err, word)
		}
	}
}

func TestStatusIsReadFromExitCodeAndWords(t *testing.T) {
	for _, c := range []struct {
		body string
		want agent.State
	}{
		{`echo "Status: ON"; exit 0`, agent.On},
		{`exit 0`, agent.On},
		{`echo "Status: OFF"; exit 2`, agent.Off},
		{`echo "status: off"; exit 2`, agent.Off},
		{`echo "machine n1 is OFF"; exit 2`, agent.Off},
		{`echo "Status: OFF"; echo "certificate on host is not verified" >&2; exit 2`, agent.Off},
		{`echo "Status: terminated"; exit 2`, agent.Off},
		{`echo "instance i-0abc is terminated"; exit 2`, agent.Off},
		{`echo "Connection terminated"; exit 2`, agent.Unclear},
		{`echo "Status: terminated"; exit 0`, agent.Unclear},
		{`exit 2`, agent.Unclear},
		{`echo "Status: OFF" >&2; exit 2`, agent.Unclear},
		{`echo "Failed: cannot switch off: bad arguments"; exit 2`, agent.Unclear},
		{`echo "Status: OFF"; echo "Status: ON"; exit 2`, agent.Unclear},
		{`echo "Status: OFF"; echo "power is on" >&2; exit 2`, agent.Unclear},
		{`echo "Status: OFF"; exit 0`, agent.Unclear},
		{`echo "Status: OFF"; exit 1`, agent.Unclear},
		{`echo "Status: OFF (suspended)"; exit 2`, agent.Unclear},
		{`echo "Status: OFF"; echo "VM is paused" >&2; exit 2`, agent.Unclear},
		{`echo "Status: OFF"; echo shutting down; exit 2`, agent.Unclear},
		{`echo "Status: OFF"; echo "instance not found"; exit 2`, agent.Unclear},
		{`echo "not found"; exit 2`, agent.Unclear},
		{`echo "Status: UNKNOWN"; exit 2`, agent.Unclear},
		{`echo "Status: OFF"; kill -9 $$`, agent.Unclear},
		{`echo "Status: OFF, turned off"; echo offline; exit 2`, agent.Off},
		{`echo offline; exit 2`, agent.Unclear},
	} {
		t.Run(c.body, func(t *testing.T) {
			p := newProgram(t, options(shell(t, c.body)))
			r, err := p.Status(within(t, 10*time.Second), n1)
			if r.State != c.want || (err != nil) != (c.want == agent.Unclear) {
				t.Errorf("read %v, %v (detail %q), want %v", r.State, err, r.Detail, c.want)
			}
		})
	}
}

func TestParametersGoToStandardInputAloneWithAnExplicitAction(t *testing.T) {
	dir := shell(t, `echo "$in" >$(dirname $0)/stdin; echo "$@" >$(dirname $0)/args; env >$(dirname $0)/env; echo "Status: ON"`)
	secret := filepath.Join(dir, "pw")
	write(t, secret, password+"\n")
	o := options(dir)
	o.ParameterFiles = map[string]string{"passwd": secret}
	o.Parameters["ip"] = "$(NODE).$(NODE_ID).$(INSTANCE_ID).$(SYSTEM_UUID)"
	t.Setenv("KUBECONFIG", "/secret/place")
	t.Setenv("HTTPS_PROXY", "http://proxy.example.com:3128") // a device is not behind the cluster's proxy
	t.Setenv("REQUESTS_CA_BUNDLE", "/secret/ca")
	p := newProgram(t, o)
	for action, do := range map[string]func() error{
		"status": func() error { _, err := p.Status(t.Context(), n1); return err },
		"off":    func() error { _, err := p.Off(t.Context(), n1); return err },
		"on":     func() error { _, err := p.On(t.Context(), n1); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		want := "action=" + action + "\nip=n1.id-1.i-0abc.uuid-1\npasswd=" + password + "\nport=3\n"
		if got := read(t, dir, "stdin"); got != want {
			t.Errorf("%s: standard input is %q, want %q", action, got, want)
		}
		if got := read(t, dir, "args"); strings.TrimSpace(got) != "" {
			t.Errorf("%s: arguments %q, want none", action, got)
		}
	}
	for line := range strings.Lines(read(t, dir, "env")) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "PATH", "LANG", "HOME", "CSI_FENCEPOST_CALL", "PWD", "OLDPWD", "SHLVL", "_":
		default:
			t.Errorf("environment has %s", line)
		}
	}
}

func TestParameterFilesAreReadAtEachUse(t *testing.T) {
	dir := shell(t, `echo "$in" >$(dirname $0)/stdin; echo "Status: ON"`)
	o := options(dir)
	o.ParameterFiles = map[string]string{"passwd": filepath.Join(dir, "pw")}
	p := newProgram(t, o)
	_, err := p.Status(t.Context(), n1)
	wantError(t, err, "passwd", filepath.Join(dir, "pw"))
	for _, value := range []string{"first", "second"} {
		write(t, filepath.Join(dir, "pw"), value+"\n")
		if _, err := p.Status(t.Context(), n1); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, "stdin"); !strings.Contains(got, "passwd="+value+"\n") {
			t.Errorf("standard input %q lacks %q", got, value)
		}
	}
	for _, bad := range []string{"", "\n", "two\nlines", "blank \n"} {
		write(t, filepath.Join(dir, "pw"), bad)
		_, err := p.Status(t.Context(), n1)
		wantError(t, err, "passwd", filepath.Join(dir, "pw"))
		if strings.Contains(err.Error(), "two") {
			t.Errorf("error shows the value: %v", err)
		}
	}
}

func TestANodeHasAParameterFileOfItsOwn(t *testing.T) {
	dir := shell(t, `echo "$in" >$(dirname $0)/stdin; echo "Status: ON"`)
	o := options(dir)
	o.ParameterFiles = map[string]string{"passwd": filepath.Join(dir, "$(NODE).pw")}
	p := newProgram(t, o)
	write(t, filepath.Join(dir, "n2.pw"), "not-mine\n")
	_, err := p.Status(t.Context(), n1)
	wantError(t, err, "passwd", filepath.Join(dir, "n1.pw"))
	write(t, filepath.Join(dir, "n1.pw"), "mine\n")
	if _, err := p.Status(t.Context(), n1); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, "stdin"); !strings.Contains(got, "passwd=mine\n") {
		t.Errorf("standard input %q", got)
	}
}

func TestNewRefusesWhatCannotBeRight(t *testing.T) {
	dir := shell(t, `exit 1`)
	outside := shell(t, `exit 1`)
	link(t, filepath.Join(outside, "fence_test"), filepath.Join(dir, "fence_link"))
	link(t, filepath.Join(dir, "fence_test"), filepath.Join(dir, "fence_sbd"))
	writeAgent(t, filepath.Join(dir, "fence_redfish"), "", "")
	for name, mode := range map[string]os.FileMode{"fence_open": 0o775, "fence_world": 0o757, "fence_plain": 0o644} {
		writeAgent(t, filepath.Join(dir, name), "", "")
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "fence_dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*program.Options)
		want   string
	}{
		{"no name", func(o *program.Options) { o.Name = "" }, "name"},
		{"no program", func(o *program.Options) { o.Agent = "" }, "no program"},
		{"absent", func(o *program.Options) { o.Agent = "fence_absent" }, "there is no program fence_absent"},
		{"relative path", func(o *program.Options) { o.Agent = "../fence_test" }, "neither a name nor an absolute path"},
		{"path elsewhere", func(o *program.Options) { o.Agent = outside + "/fence_test" }, "not in an allowed folder"},
		{"climbing path", func(o *program.Options) { o.Agent = dir + "/../../../bin/sh" }, "not in an allowed folder"},
		{"link to elsewhere", func(o *program.Options) { o.Agent = "fence_link" }, "not in an allowed folder"},
		{"group may write", func(o *program.Options) { o.Agent = "fence_open" }, "may write"},
		{"all may write", func(o *program.Options) { o.Agent = "fence_world" }, "may write"},
		{"not executable", func(o *program.Options) { o.Agent = "fence_plain" }, "not executable"},
		{"a folder", func(o *program.Options) { o.Agent = "fence_dir" }, "no regular file"},
		{"sbd", func(o *program.Options) { o.Agent = "fence_sbd" }, "self-fence"},
		{"redfish without a system", func(o *program.Options) { o.Agent = "fence_redfish" }, "systems_uri"},
		{"action", func(o *program.Options) { o.Parameters["action"] = "off" }, "names the action itself"},
		{"Option", func(o *program.Options) { o.NodeParameters["Option"] = map[string]string{"n1": "off"} }, "names the action itself"},
		{"action from a file", func(o *program.Options) { o.ParameterFiles = map[string]string{"action": "/x"} }, "names the action itself"},
		{"missing-as-off", func(o *program.Options) { o.Parameters["missing-as-off"] = "1" }, "not found is not off"},
		{"method=cycle", func(o *program.Options) { o.Parameters["method"] = "Cycle" }, "cycle"},
		{"line break", func(o *program.Options) { o.Parameters["ip"] = "1\naction=off" }, "more than one line"},
		{"white space", func(o *program.Options) { o.Parameters["ip"] = "1 " }, "white space"},
		{"bad key", func(o *program.Options) { o.Parameters["ip=1\naction"] = "x" }, "is no parameter"},
		{"unknown variable", func(o *program.Options) { o.Parameters["ip"] = "$(HOST)" }, "$(HOST) is unknown"},
		{"open variable", func(o *program.Options) { o.Parameters["ip"] = "$(NODE" }, "$(NODE is unknown"},
		{"one device for all", func(o *program.Options) { o.NodeParameters = nil }, "one device for all nodes"},
		{"no node", func(o *program.Options) { o.NodeParameters["port"] = nil }, "names no node"},
		{"empty for a node", func(o *program.Options) { o.NodeParameters["port"]["n1"] = "" }, "is empty"},
		{"twice", func(o *program.Options) { o.Parameters["port"] = "1" }, "given twice"},
		{"relative file", func(o *program.Options) { o.ParameterFiles = map[string]string{"passwd": "pw"} }, "absolute path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(dir)
			c.change(&o)
			_, err := program.New(o)
			wantError(t, err, c.want)
		})
	}
	if _, err := program.New(options(dir)); err != nil {
		t.Errorf("the unchanged options are refused: %v", err)
	}
}

func TestKeysAreHeldAgainstTheProgramsOwnMetadata(t *testing.T) {
	dir := shell(t, `echo ran >>$(dirname $0)/ran; echo "Status: ON"`)
	for key, want := range map[string]string{
		"ipadr": `no parameter "ipadr"; the nearest it knows: ipaddr`,
		"do":    "names the action itself",
		"reset": `no parameter "reset"`,
		// port and plug of real agents are such a pair.
		"ipaddr": `"ip" and "ipaddr" are the same`,
	} {
		o := options(dir)
		o.Parameters[key] = "1"
		p := newProgram(t, o)
		_, err := p.Off(t.Context(), n1)
		wantError(t, err, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the program was run with keys that it does not know")
	}
	o := options(dir)
	delete(o.Parameters, "ip")
	o.Parameters["IPaddr"] = "10.0.0.1"
	if _, err := newProgram(t, o).Status(t.Context(), n1); err != nil {
		t.Errorf("a deprecated name that the metadata list: %v", err)
	}
}

func TestAProgramThatCallsSuspendedOffIsUsedOnlyByOneWhoKnows(t *testing.T) {
	dir := shellWith(t, strings.ReplaceAll(fmt.Sprintf(metadataText, allActions), "fence_test", "fence_vmware_soap"),
		`echo ran >>$(dirname $0)/ran; echo "Status: OFF"; exit 2`)
	o := options(dir)
	_, err := newProgram(t, o).Status(t.Context(), n1)
	wantError(t, err, "suspended machine as off", "exec.acceptSuspended")
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the program was run")
	}
	o.AcceptSuspended = true
	if r, err := newProgram(t, o).Status(t.Context(), n1); err != nil || r.State != agent.Off {
		t.Errorf("accepted: %v, %v", r, err)
	}
}

func TestMetadataAreReadOnceAndAgainWhenTheFileChanges(t *testing.T) {
	dir := shell(t, `echo "Status: ON"`)
	p := newProgram(t, options(dir))
	for range 3 {
		if _, err := p.Status(t.Context(), n1); err != nil {
			t.Fatal(err)
		}
	}
	if runs := strings.Count(read(t, dir, "metadata-runs"), "run"); runs != 1 {
		t.Errorf("metadata were read %d times, want once", runs)
	}
	writeAgent(t, filepath.Join(dir, "new"), strings.Replace(fmt.Sprintf(metadataText, allActions), `"port"`, `"outlet"`, 1), `echo "Status: ON"`)
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "fence_test")); err != nil {
		t.Fatal(err)
	}
	_, err := p.Status(t.Context(), n1)
	wantError(t, err, `no parameter "port"`)
	if err := os.Chmod(filepath.Join(dir, "fence_test"), 0o777); err != nil {
		t.Fatal(err)
	}
	_, err = p.Off(t.Context(), n1)
	wantError(t, err, "may write")
}

func TestMetadataThatPromiseNoProofAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ metadata, want string }{
		"no status":    {fmt.Sprintf(metadataText, `<action name="off"/><action name="monitor"/>`), "no action status"},
		"only reboot":  {fmt.Sprintf(metadataText, `<action name="reboot"/>`), "no action off"},
		"no actions":   {fmt.Sprintf(metadataText, ""), "none at all"},
		"broken":       {"<resource-agent><parameters>", "not readable"},
		"no XML":       {"usage: fence_test", "not readable"},
		"other XML":    {"<html></html>", "not readable"},
		"sbd by alias": {strings.Replace(fmt.Sprintf(metadataText, allActions), "fence_test", "fence_sbd", 1), "self-fence"},
		"redfish by alias": {strings.Replace(fmt.Sprintf(metadataText, allActions), "</parameters>",
			`<parameter name="systems_uri"></parameter></parameters>`, 1), "systems_uri is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t, options(shellWith(t, c.metadata, `echo "Status: OFF"; exit 2`)))
			r, err := p.Status(t.Context(), n1)
			wantError(t, err, c.want)
			if r.State != agent.Unclear {
				t.Errorf("read %v", r.State)
			}
			if _, faults := p.Check(t.Context(), n1); len(faults) == 0 {
				t.Error("Check finds nothing")
			}
		})
	}
}

func TestAStorageAgentProvesAStorageFence(t *testing.T) {
	on := func(attribute string) string {
		return fmt.Sprintf(metadataText, strings.Replace(allActions, `automatic="0"`, attribute, 1))
	}
	for attribute, want := range map[string]fence.Kind{
		`automatic="0"`: fence.PowerReading, `automatic="1"`: fence.StorageFence,
		`on_target="1" automatic="1"`: fence.StorageFence, `fabric_fencing="1"`: fence.StorageFence,
	} {
		p := newProgram(t, options(shellWith(t, on(attribute), `echo "Status: OFF"; exit 2`)))
		if got := p.Proves(); got != want {
			t.Errorf("%s proves %s, want %s", attribute, got, want)
		}
		_, err := p.On(t.Context(), n1)
		if strings.Contains(attribute, "on_target") {
			wantError(t, err, "only on the fenced machine itself")
		}
	}
}

func TestCoversOnlyNodesThatEveryNodeParameterNames(t *testing.T) {
	dir := shell(t, `exit 1`)
	o := options(dir)
	o.NodeParameters["ip"] = map[string]string{"n1": "10.0.0.1"}
	delete(o.Parameters, "ip")
	p := newProgram(t, o)
	if !p.Covers("n1") || p.Covers("n2") || p.Covers("n3") || p.Covers("") {
		t.Error("covers the wrong nodes")
	}
	_, err := p.Off(t.Context(), agent.Machine{Node: "n2"})
	wantError(t, err, `not configured for node "n2"`)
	o = options(dir)
	o.NodeParameters, o.Parameters["port"] = nil, "$(INSTANCE_ID)"
	p = newProgram(t, o)
	if !p.Covers("any") {
		t.Error("a parameter with a variable does not cover every node")
	}
	for _, id := range []string{"", "aws:///zone/"} {
		_, err = p.Off(t.Context(), agent.Machine{Node: "n1", ProviderID: id})
		wantError(t, err, "$(INSTANCE_ID)", "not known")
	}
}

func TestWhatANodeSaysOfItselfReachesAProgramOnlyAsAPlainName(t *testing.T) {
	dir := shell(t, `echo "$in" >>$(dirname $0)/ran; echo "Status: ON"`)
	run := func(parameter string, m agent.Machine) error {
		t.Helper()
		o := options(dir)
		o.NodeParameters, o.Parameters["port"] = nil, parameter
		p := newProgram(t, o)
		_, statusErr := p.Status(t.Context(), m)
		_, offErr := p.Off(t.Context(), m)
		_, onErr := p.On(t.Context(), m)
		_, faults := p.Check(t.Context(), m)
		for _, err := range []error{offErr, onErr, errors.Join(faults...)} {
			if fmt.Sprint(err) != fmt.Sprint(statusErr) {
				t.Errorf("%s: status says %v, another call %v", parameter, statusErr, err)
			}
		}
		return statusErr
	}
	for _, c := range []struct{ value, want string }{
		{"x\naction=on", `has the character '\n'`},
		{"x\raction=on", `'\r'`},
		{"x\u2028action=on", `'\u2028'`},
		{"x\u0085action=on", `'\u0085'`},
		{"x\x1caction=on", `'\x1c'`},
		{"x\x00", `'\x00'`},
		{"n2\u00a0", `'\u00a0'`},
		{"\xff", `'\ufffd'`},
		{"n2 ", `' '`}, {" n2", `' '`}, {"a b", `' '`}, {"\tn2", `'\t'`},
		{"1,2,3", `','`}, {`"n2"`, `'"'`}, {"'n2'", `'\''`}, {"a=b", `'='`}, {"a;b", `';'`}, {"$(NODE)", `'$'`}, {"a`b`", "'`'"}, {"a&b", `'&'`}, {"a|b", `'|'`},
		{"a?b", `'?'`}, {"a#b", `'#'`}, {"a%2fb", `'%'`}, {"a*", `'*'`}, {"a\\b", `'\\'`}, {"*", `'*'`}, {"(b)", `'('`}, {"a+b", `'+'`}, {"ü", `'\u00fc'`},
		{"-o", `begins with '-'`},
		{"..", `has the part ".."`},
		{strings.Repeat("x", 513), "has 513 bytes, and 512 are allowed"},
	} {
		for variable, m := range map[string]agent.Machine{
			"$(SYSTEM_UUID)": {Node: "n1", SystemUUID: c.value}, "$(NODE_ID)": {Node: "n1", NodeID: c.value},
			"$(PROVIDER_ID)": {Node: "n1", ProviderID: c.value}, "$(INSTANCE_ID)": {Node: "n1", ProviderID: "x:///" + c.value},
		} {
			wantError(t, run(variable, m), `parameter "port": `+variable+" of node n1 ", c.want, "nodeParameters")
		}
	}
	for parameter, m := range map[string]agent.Machine{
		// Under /redfish/v1/Systems/ that is the system of another node.
		"/redfish/v1/Systems/$(SYSTEM_UUID)": {Node: "n1", SystemUUID: "u1/../u2"},
		"$(SYSTEM_UUID).":                    {Node: "n1", SystemUUID: "u2/"},
		"$(NODE)":                            {Node: "a/b"},
		"x/$(NODE_ID)":                       {Node: "n1", NodeID: "projects/../n2"},
		"x-$(PROVIDER_ID)":                   {Node: "n1", ProviderID: "gce://p/./n2"},
	} {
		wantError(t, run(parameter, m), `parameter "port": $(`, "nodeParameters")
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Errorf("the program was run: %q", read(t, dir, "ran"))
	}
}

// A machine that may be another one may live all the same: that it is on is heard, that it is
// off proves nothing, and nothing is sent. Of access to storage neither says anything.
func TestOfAMachineInDoubtOnlyAPowerThatIsOnCounts(t *testing.T) {
	for _, name := range []string{"SYSTEM_UUID", "NODE_ID", "PROVIDER_ID", "INSTANCE_ID"} {
		for _, c := range []struct {
			prints string
			reads  agent.State
		}{{`echo "Status: ON"`, agent.On}, {`echo "Status: OFF"; exit 2`, agent.Unclear}} {
			dir := shell(t, `echo "$in" >>$(dirname $0)/stdin; `+c.prints)
			o := options(dir)
			o.NodeParameters, o.Parameters["port"] = nil, "$("+name+")"
			p, m := newProgram(t, o), n1
			m.SystemUUID, m.NodeID, m.ProviderID = "uuid-1", "id-1", "x/i-1"
			m.Doubts = map[string]agent.Doubt{name: {Why: "the node says something else since", Way: "look"}}
			want := "$(" + name + ") of node n1 may be another machine's: the node says something else since; look"
			r, err := agent.Read(t.Context(), p, m)
			if r.State != c.reads || (err == nil) != (c.reads == agent.On) {
				t.Errorf("%s: %v %v", c.prints, r, err)
			}
			if err != nil {
				wantError(t, err, "it reads off, which proves nothing: "+want)
			}
			levels := agent.Levels{{{Agent: p}}}
			levels.Off(t.Context(), m, func(context.Context, agent.Agent) error { return nil })
			levels.On(t.Context(), m)
			device, faults := p.Check(t.Context(), m)
			wantError(t, errors.Join(faults...), want)
			if in := read(t, dir, "stdin"); strings.Contains(in, "action=o") || device != "" {
				t.Errorf("%s: it was told %q, for %q", c.prints, in, device)
			}
			// What it does not go by it does not miss.
			m.Doubts = map[string]agent.Doubt{"OTHER": {}}
			if _, _ = p.Off(t.Context(), m); !strings.Contains(read(t, dir, "stdin"), "action=off") {
				t.Errorf("$(%s): it was not told", name)
			}
		}
	}
}

// That the access to storage of a machine in doubt is open would lift another one's fence.
func TestOfAMachineInDoubtNoAccessCounts(t *testing.T) {
	dir := shell(t, `exit 1`)
	writeAgent(t, filepath.Join(dir, "fence_scsi"), fmt.Sprintf(metadataText, allActions), `echo "Status: ON"`)
	o := options(dir)
	o.Agent, o.NodeParameters, o.Parameters["port"] = "fence_scsi", nil, "$(SYSTEM_UUID)"
	p, m := newProgram(t, o), n1
	m.SystemUUID = "uuid-1"
	if r, err := p.Status(t.Context(), m); err != nil || r.State != agent.On {
		t.Fatal(r, err)
	}
	m.Doubts = map[string]agent.Doubt{"SYSTEM_UUID": {Why: "another says it too"}}
	r, err := agent.Read(t.Context(), p, m)
	wantError(t, err, "it reads on, which proves nothing: $(SYSTEM_UUID) of node n1 may be another machine's: another says it too")
	if r.State != agent.Unclear {
		t.Error(r)
	}
}

// A person who names devices by the nodes' names needs no binding, nor does one of another node.
func TestAProgramSeeksByWhatANodeSaysOfItself(t *testing.T) {
	dir := shell(t, `exit 0`)
	for value, want := range map[string]string{"plain": "[]", "rack-$(NODE)": "[]", "$(NODE)": "[]", "$(NODE_ID)": "[NODE_ID]",
		"x-$(SYSTEM_UUID)-$(NODE)-$(NODE_ID)": "[NODE_ID SYSTEM_UUID]", "$(INSTANCE_ID)": "[INSTANCE_ID]", "$(PROVIDER_ID)": "[PROVIDER_ID]"} {
		o, per := options(dir), options(dir)
		o.Parameters["passwd"] = value
		per.NodeParameters["passwd"] = map[string]string{"n1": "plain", "n2": value}
		for _, o := range []program.Options{o, per} {
			if p := newProgram(t, o); fmt.Sprint(p.Seeks("n2")) != want || fmt.Sprint(agent.Seeks(p, "")) != want {
				t.Errorf("%s: %v, want %v", value, p.Seeks("n2"), want)
			}
		}
		if got := newProgram(t, per).Seeks("n1"); len(got) > 0 {
			t.Errorf("%s: %v for a node that is named otherwise", value, got)
		}
	}
}

func TestTheIDsOfCloudsAndDriversReachAProgram(t *testing.T) {
	dir := shell(t, `echo "$in" >$(dirname $0)/stdin; echo "Status: ON"`)
	const subscription = "/subscriptions/82f6d75e-85f4-434a-ab74-5dddd9fa8910/resourceGroups"
	for id, instance := range map[string]string{
		"aws:///eu-central-1a/i-0abc": "i-0abc",
		"aws:///us-west-2b/1a2b3c4d-5e/fargate-ip-192-168-1-2.us-west-2.compute.internal":                                                                "fargate-ip-192-168-1-2.us-west-2.compute.internal",
		"azure://" + subscription + "/MC_rg-aks_cluster_westeurope/providers/Microsoft.Compute/virtualMachineScaleSets/aks-np1-1-vmss/virtualMachines/0": "0",
		"azure://" + subscription + "/" + strings.Repeat("r", 90) + "/providers/Microsoft.Compute/virtualMachines/" + strings.Repeat("v", 64):            strings.Repeat("v", 64),
		"gce://p/europe-west1-b/gke-n-1":                     "gke-n-1",
		"gce://example.com:p/europe-west1-b/n":               "n",
		"openstack:///8b9ba5ea-4ef1-4c3b-b2e4-a3ed1d3f6f1a":  "8b9ba5ea-4ef1-4c3b-b2e4-a3ed1d3f6f1a",
		"openstack://RegionOne/8b9ba5ea":                     "8b9ba5ea",
		"vsphere://4230B4A8-5D23-3A4F-9C5B-6D1E2F3A4B5C":     "4230B4A8-5D23-3A4F-9C5B-6D1E2F3A4B5C",
		"vmware-cloud-director://urn:vcloud:vm:1b2c":         "urn:vcloud:vm:1b2c",
		"kind://docker/kind/kind-control-plane":              "kind-control-plane",
		"docker:////capd-md-0":                               "capd-md-0",
		"hcloud://123":                                       "123",
		"hrobot://321":                                       "321",
		"digitalocean://123":                                 "123",
		"linode://123":                                       "123",
		"scaleway://instance/fr-par-1/0f3b":                  "0f3b",
		"proxmox://region/100":                               "100",
		"k3s://name":                                         "name",
		"rke2://name":                                        "name",
		"harvester://name":                                   "name",
		"kubevirt://name":                                    "name",
		"metal3://metal3/node-0/3e9c":                        "3e9c",
		"baremetalhost:///openshift-machine-api/worker-0/3e": "3e",
		"ibm://0123abc///cluster/kube-worker.1":              "kube-worker.1",
		"ibmpowervs://lon/lon04/5f0b/8c1d":                   "8c1d",
		"ocid1.instance.oc1.eu-frankfurt-1.anthe_lj":         "ocid1.instance.oc1.eu-frankfurt-1.anthe_lj",
		"cn-hangzhou.i-bp1":                                  "cn-hangzhou.i-bp1",
		"qcloud:///800002/ins-x":                             "ins-x",
	} {
		o := options(dir)
		o.NodeParameters, o.Parameters["port"], o.Parameters["ip"] = nil, "$(PROVIDER_ID)", "$(INSTANCE_ID)"
		if _, err := newProgram(t, o).Status(t.Context(), agent.Machine{Node: "n1", ProviderID: id}); err != nil {
			t.Errorf("%s: %v", id, err)
		} else if want := "action=status\nip=" + instance + "\nport=" + id + "\n"; read(t, dir, "stdin") != want {
			t.Errorf("standard input %q, want %q", read(t, dir, "stdin"), want)
		}
	}
	for _, id := range []string{"i-0abc", "projects/p/zones/europe-west1-b/instances/n", "csi-node-3e9c0f-10.0.0.7", "iqn.1994-05.com.redhat:n1", "n1.example.com", "2001:db8::1", "node_7"} {
		o := options(dir)
		o.NodeParameters, o.Parameters["port"] = nil, "$(NODE_ID)"
		if _, err := newProgram(t, o).Status(t.Context(), agent.Machine{Node: "n1", NodeID: id}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestNoSecretIsShown(t *testing.T) {
	dir := shell(t, `echo "login with $in"; echo "$in" >&2; exit 1`)
	secret := filepath.Join(dir, "pw")
	write(t, secret, password)
	o := options(dir)
	o.ParameterFiles = map[string]string{"ip": secret}
	delete(o.Parameters, "ip")
	o.Parameters["passwd"] = "other-secret"
	p := newProgram(t, o)
	r, err := p.Status(t.Context(), n1)
	detail, offErr := p.Off(t.Context(), n1)
	device, faults := p.Check(t.Context(), n1)
	wantError(t, err, "exits with 1")
	wantError(t, offErr, "exit 1")
	for _, shown := range []string{r.Detail, err.Error(), detail, offErr.Error(), device, fmt.Sprint(faults)} {
		if strings.Contains(shown, password) || strings.Contains(shown, "other-secret") {
			t.Errorf("a secret is shown: %s", shown)
		}
	}
	if !strings.Contains(r.Detail, "***stripped***") || len(r.Detail) > 512 {
		t.Errorf("detail: %q", r.Detail)
	}
}

func TestAProgramThatPrintsWithoutEndIsReadAndBounded(t *testing.T) {
	dir := shell(t, `echo "Status: OFF"; head -c 100000000 /dev/zero | tr '\0' x; exit 2`)
	secret := filepath.Join(dir, "pw")
	write(t, secret, "xxxxxxxxxxx")
	o := options(dir)
	o.ParameterFiles = map[string]string{"passwd": secret}
	r, err := newProgram(t, o).Status(within(t, 60*time.Second), n1)
	wantError(t, err, "printed more than")
	if r.State != agent.Unclear || len(r.Detail) > 512 || strings.Contains(r.Detail, "xxxxxxxxxxx") {
		t.Errorf("state %v, detail of %d bytes", r.State, len(r.Detail))
	}
}

func TestNothingOutlivesACall(t *testing.T) {
	// The child ignores SIGTERM and leads a session of its own, as ssh does.
	const fork = `trap '' TERM; d=$(dirname $0); setsid sh -c "trap '' TERM; echo \$\$ >$d/child; sleep 300 & wait; wait" & sleep 0.3; echo $$ >$d/leader; `
	for name, c := range map[string]struct {
		body string
		want error
	}{
		"hangs": {fork + `echo "Status: OFF"; sleep 300; exit 2`, context.DeadlineExceeded},
		"ends":  {fork + `echo "Status: OFF"; exit 2`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shell(t, c.body)
			p := newProgram(t, options(dir))
			if p.Proves() != fence.PowerReading { // reads the metadata
				t.Fatal("want a power agent")
			}
			started := time.Now()
			r, err := p.Status(within(t, 2*time.Second), n1)
			if took := time.Since(started); took > 15*time.Second {
				t.Errorf("took %v", took)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if (r.State == agent.Off) != (c.want == nil) {
				t.Errorf("read %v", r.State)
			}
			for _, file := range []string{"child", "leader"} {
				var pid int
				if _, err := fmt.Sscan(read(t, dir, file), &pid); err != nil {
					t.Fatal(err)
				}
				if alive(pid) {
					t.Errorf("the %s is alive", file)
				}
			}
		})
	}
}

// alive: a zombie that its new parent has yet to reap is not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ")
}

func TestOffFailsWithTheProgramsWords(t *testing.T) {
	p := newProgram(t, options(shell(t, `echo "Failed: no route to host" >&2; exit 1`)))
	_, err := p.Off(t.Context(), n1)
	wantError(t, err, "pdu", "fence_test", "no route to host")
}

func TestCheckTellsTheDeviceAndTouchesNoPower(t *testing.T) {
	dir := shell(t, `echo "$in" | grep '^action=' >>$(dirname $0)/actions; echo "Status: ON"`)
	o := options(dir)
	o.NodeParameters["port"]["n2"] = "3"
	o.NodeParameters["port"]["n3"] = "4"
	p := newProgram(t, o)
	devices := map[string]string{}
	for _, node := range []string{"n1", "n2", "n3"} {
		device, faults := p.Check(t.Context(), agent.Machine{Node: node})
		if len(faults) > 0 {
			t.Errorf("%s: %v", node, faults)
		}
		devices[node] = device
	}
	if devices["n1"] != devices["n2"] || devices["n1"] == devices["n3"] {
		t.Errorf("devices: %v", devices)
	}
	if got := strings.Fields(read(t, dir, "actions")); strings.Join(got, " ") != "action=status action=status action=status" {
		t.Errorf("actions: %v", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// system is the system UUID of a node, another that of another machine.
const (
	system  = "4237e6c2-1111-4222-8333-444444444444"
	another = "99999999-1111-4222-8333-444444444444"
	unset   = "03000200-0400-0500-0006-000700080009" // on every board of a series
)

func TestAReadingIsCheckedIfTheProgramSaysTheNodesSystemUUID(t *testing.T) {
	m := agent.Machine{Node: "n1", NodeID: "id-1", ProviderID: "aws:///eu-1a/i-0abc", SystemUUID: system}
	for says, want := range map[string]bool{
		"Identity: " + strings.ToUpper(system):           true, // system UUIDs are written in either case
		"Identity: C2E63742-1111-2242-8333-444444444444": true, // and in either order of bytes
		"Identity: i-0abc\nIdentity: " + system:          true,
		"Identity: " + unset + "\nIdentity: " + system:   true,
		"Identity: " + system + "\nIdentity: " + system:  false, // of two systems
		"Identity: i-0abc":                               false, // another region has it, too
		"Identity: id-1":                                 false,
		"Identity: 4237e6c2111142228333444444444444":     false,
		"Identity: " + system + " is not this machine":   false,
		"The Identity: " + system:                        false,
		"The UUID is not " + another:                     false,
		"Identity:":                                      false,
		"":                                               false,
	} {
		p := newProgram(t, options(shell(t, "echo 'Status: OFF'; echo '"+says+"'; exit 2")))
		r, err := p.Status(within(t, 10*time.Second), m)
		if err != nil || r.State != agent.Off || r.Checked != want {
			t.Errorf("%q: %s, checked %v, %v", says, r.State, r.Checked, err)
		}
	}
	doubted := m
	doubted.Doubts = map[string]agent.Doubt{agent.VarSystemUUID: {Why: "another Node says it"}}
	p := newProgram(t, options(shell(t, "echo 'Status: OFF'; echo 'Identity: "+system+"'; exit 2")))
	if r, err := p.Status(within(t, 10*time.Second), doubted); err != nil || r.State != agent.Off || r.Checked {
		t.Errorf("of a UUID in doubt: %s, checked %v, %v", r.State, r.Checked, err)
	}
	for _, uuid := range append([]string{"", "uuid-1"}, fence.SharedSystems...) {
		for _, says := range []string{unset, another, uuid} {
			p := newProgram(t, options(shell(t, "echo 'Status: OFF'; echo 'Identity: "+says+"'; exit 2")))
			if r, err := p.Status(within(t, 10*time.Second), agent.Machine{Node: "n1", SystemUUID: uuid}); err != nil || r.Checked {
				t.Errorf("%q of a node with the system UUID %q: checked %v, %v", says, uuid, r.Checked, err)
			}
		}
	}
}

// Azure's resource groups are in the IDs of their machines.
func TestWhatAnIDIsMadeOfIsNoStatus(t *testing.T) {
	for _, group := range []string{"rg-on-site", "rg-off-site", "aks-transition", "rg-unknown", "on", "OFF", "suspended"} {
		for status, code := range map[string]string{"OFF": "2", "ON": "0"} {
			p := newProgram(t, options(shell(t, "echo 'Status: "+status+"'; echo 'Identity: /resourceGroups/"+group+"/virtualMachines/n1'; echo 'Identity: "+group+"'; exit "+code)))
			if r, err := p.Status(within(t, 10*time.Second), n1); err != nil || r.State == agent.Unclear || r.State == agent.Off != (status == "OFF") {
				t.Errorf("%s in group %s: %s, %v", status, group, r.State, err)
			}
		}
		// Beside its ID it has to say it in words.
		p := newProgram(t, options(shell(t, "echo 'Identity: "+group+"'; exit 2")))
		if r, err := p.Status(within(t, 10*time.Second), n1); err == nil || r.State != agent.Unclear {
			t.Errorf("only the ID %s: %s", group, r.State)
		}
	}
}

func TestAProgramThatSaysAnotherSystemUUIDHasReadAnotherMachine(t *testing.T) {
	m := agent.Machine{Node: "n1", SystemUUID: system}
	for _, says := range []string{another, strings.ToUpper(another), another + "\nIdentity: " + system, system + "\nIdentity: " + another} {
		for status, code := range map[string]string{"OFF": "2", "ON": "0"} {
			p := newProgram(t, options(shell(t, "echo 'Status: "+status+"'; echo 'Identity: "+says+"'; exit "+code)))
			r, err := p.Status(within(t, 10*time.Second), m)
			if r.State != agent.Unclear || r.Checked {
				t.Errorf("%s, %q: %s, checked %v", status, says, r.State, r.Checked)
			}
			wantError(t, err, "it is another machine", system)
		}
		p := newProgram(t, options(shell(t, "echo 'Identity: "+says+"'")))
		for name, act := range map[string]func(context.Context, agent.Machine) (string, error){"off": p.Off, "on": p.On} {
			if _, err := act(within(t, 10*time.Second), m); err == nil {
				t.Errorf("%s, %q: no error", name, says)
			}
		}
	}
}

// owned has our agents' names, each a program that says on.
func owned(t *testing.T) (dir string) {
	t.Helper()
	dir = shell(t, `echo "Status: ON"`)
	for _, name := range []string{"redfish", "proxmox", "azure", "hcloud", "openstack", "vsphere"} {
		link(t, "fence_test", filepath.Join(dir, "fence_fencepost_"+name))
	}
	return dir
}

func TestOurAgentsHoldTheMachineAgainstTheNodesSystemUUID(t *testing.T) {
	dir := owned(t)
	for _, c := range []struct {
		name, agent string
		parameters  map[string]string
		nodes       map[string]map[string]string
		want        string
	}{
		{"none given", "fence_fencepost_redfish", nil, nil, "parameter uuid is missing"},
		{"none given", "fence_fencepost_proxmox", nil, nil, "parameter uuid is missing"},
		{"none given", "fence_fencepost_azure", nil, nil, "parameter uuid is missing"},
		{"none given", "fence_fencepost_openstack", nil, nil, "parameter uuid is missing"},
		{"none given", "fence_fencepost_vsphere", nil, nil, "parameter uuid is missing"},
		{"none given", "fence_fencepost_hcloud", nil, nil, ""},
		{"the variable", "fence_fencepost_redfish", map[string]string{"uuid": "$(SYSTEM_UUID)"}, nil, ""},
		{"the variable", "fence_fencepost_proxmox", map[string]string{"UUID": "$(SYSTEM_UUID)"}, nil, ""},
		{"a person's word", "fence_fencepost_proxmox", map[string]string{"uuid": "none"}, nil, ""},
		{"a person's word of one", "fence_fencepost_redfish", nil, map[string]map[string]string{"uuid": {"n1": "none", "n2": "$(SYSTEM_UUID)"}}, ""},
		{"empty", "fence_fencepost_redfish", map[string]string{"uuid": ""}, nil, `has to be $(SYSTEM_UUID)`},
		{"another variable", "fence_fencepost_redfish", map[string]string{"uuid": "$(NODE_ID)"}, nil, `has to be $(SYSTEM_UUID)`},
		{"typed", "fence_fencepost_proxmox", nil, map[string]map[string]string{"uuid": {"n1": "$(SYSTEM_UUID)", "n2": system}}, `has to be $(SYSTEM_UUID)`},
		{"of another agent", "fence_test", nil, nil, ""},
	} {
		o := options(dir)
		o.Agent = c.agent
		maps.Copy(o.Parameters, c.parameters)
		maps.Copy(o.NodeParameters, c.nodes)
		o.Parameters["systems_uri"] = "/redfish/v1/Systems/1"
		_, err := program.New(o)
		if c.want != "" {
			wantError(t, err, c.want)
		} else if err != nil {
			t.Errorf("%s, %s: %v", c.agent, c.name, err)
		}
	}
}

// Whatever the link is called, and however it is wrapped.
func TestOurAgentsAreKnownByTheirMetadata(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(metadataText, allActions), `name="fence_test"`, `name="fence_fencepost_redfish"`, 1)
	p := newProgram(t, options(shellWith(t, text, `echo "Status: ON"`)))
	_, err := p.Status(within(t, 10*time.Second), n1)
	wantError(t, err, "parameter uuid is missing")
}

func TestOurAgentsAreNotToldAnIDThatHasLostItsScope(t *testing.T) {
	o := options(owned(t))
	o.Agent, o.Parameters["plug"] = "fence_fencepost_hcloud", "$(INSTANCE_ID)"
	_, err := program.New(o)
	wantError(t, err, "use $(PROVIDER_ID)")
}

func TestAMachineThatIsNotFoundIsNotGone(t *testing.T) {
	dir := owned(t)
	for _, key := range []string{"not_found_is_gone", "Not-Found-Is-Gone", "notFoundIsGone"} {
		o := program.Options{Name: "cloud", Agent: "fence_fencepost_hcloud", Dirs: []string{dir}, Parameters: map[string]string{"plug": "$(PROVIDER_ID)", key: "1"}}
		_, err := program.New(o)
		wantError(t, err, "is not allowed: a machine that is not found may run")
		o.Agent = "fence_test" // what it means to other agents is theirs to say
		if _, err := program.New(o); err != nil {
			t.Errorf("%s of another agent: %v", key, err)
		}
	}
}
