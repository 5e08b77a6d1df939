package operate

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// fakeAgent is a program with the fence-agents contract. Its outlets are files
// beside it; while there is a file stuck, they stay as they are.
const fakeAgent = `#!/bin/sh
here=$(dirname "$0") action= plug= password=
if [ "$1" = -o ]; then action=$2; else
	while IFS= read -r line; do
		case $line in
		action=*) action=${line#action=} ;;
		plug=*) plug=${line#plug=} ;;
		password=*) password=${line#password=} ;;
		esac
	done
fi
if [ "$action" = metadata ]; then
	cat <<-XML
	<?xml version="1.0" ?>
	<resource-agent name="fence_fake" shortdesc="fake">
	<parameters>
	<parameter name="action"><getopt mixed="-o, --action=[action]" /></parameter>
	<parameter name="plug"><getopt mixed="-n, --plug=[id]" /></parameter>
	<parameter name="password"><getopt mixed="-p, --password=[password]" /></parameter>
	</parameters>
	<actions><action name="on" /><action name="off" /><action name="status" /><action name="metadata" /></actions>
	</resource-agent>
	XML
	exit 0
fi
if [ "$password" != secret ]; then echo "login failed" >&2; exit 1; fi
case $action in
status) state=$(cat "$here/$plug") || exit 1; echo "Status: $state"; [ "$state" = ON ] || exit 2 ;;
off) [ -e "$here/stuck" ] || echo OFF >"$here/$plug"; echo "Success: Powered OFF" ;;
on) [ -e "$here/stuck" ] || echo ON >"$here/$plug"; echo "Success: Powered ON" ;;
*) exit 1 ;;
esac
`

// A switchboard is a fake agent and its outlets.
type switchboard struct {
	t   *testing.T
	dir string
}

func newSwitchboard(t *testing.T) *switchboard {
	b := &switchboard{t, t.TempDir()}
	if err := os.Chmod(b.dir, 0o755); err != nil { // with a umask of 002 its group may write to it
		t.Fatal(err)
	}
	b.write("fence_fake", fakeAgent, 0o755)
	b.write("password", "secret\n", 0o600)
	for _, outlet := range []string{"1", "2", "3"} {
		b.write(outlet, "ON\n", 0o600)
	}
	return b
}

func (b *switchboard) write(name, text string, mode os.FileMode) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *switchboard) reads(outlet string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, outlet))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// flags have a command use the switchboard for nodes by their outlets; more is
// put into the agent's exec.
func (b *switchboard) flags(outlets map[string]string, more string) []string {
	b.t.Helper()
	nodes, err := json.Marshal(outlets)
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("config.yaml", "apiVersion: "+config.APIVersion+"\nkind: Configuration\nfencing:\n  levels:\n  - agents:\n    - name: pdu\n      timeout: 20s\n      attempts: 1\n"+
		"      exec: {agent: fence_fake, parameterFiles: {password: "+b.dir+"/password}, nodeParameters: {plug: "+string(nodes)+"}"+more+"}\n", 0o600)
	return []string{"--config=" + b.dir + "/config.yaml", "--agent-dirs=" + b.dir}
}

func with(args []string, more ...string) []string {
	return append(append([]string{}, args...), more...)
}

func TestFenceStatusShowsWhatEachAgentReads(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady)
	api.AddNode("n2", "uid-2", "boot-2", "i-2")
	api.AddNode("n3", "uid-3", "boot-3", "i-3")
	b := newSwitchboard(t)
	b.write("2", "OFF\n", 0o600)
	flags := with(b.flags(map[string]string{"n1": "1", "n2": "2"}, ""), kubeconfig)
	stdout, _ := commandLine(t, cli.ExitOK, with([]string{"fence", "status"}, flags...)...)
	lines := strings.Split(stdout, "\n")
	for i, want := range []string{"NODE  LIVENESS", "n1    Ready, lease never renewed", "n2    NotReady, lease never renewed", "n3    NotReady"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want it to begin with %q", i, lines[i], want)
		}
	}
	clitest.Says(t, lines[1], "pdu", " on ", "Status: ON")
	clitest.Says(t, lines[2], "pdu", " off ", "Status: OFF")
	clitest.Says(t, lines[3], "none", "no level covers it")
	for _, line := range lines {
		if strings.TrimRight(line, " ") != line {
			t.Errorf("spaces at the end of %q", line)
		}
	}
	stdout, _ = commandLine(t, cli.ExitOK, with([]string{"fence", "status", "n2", "-ojson"}, flags...)...)
	var status fenceStatus
	if err := json.Unmarshal([]byte(stdout), &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Nodes) != 1 || len(status.Nodes[0].Agents) != 1 || status.Nodes[0].Agents[0].State != "off" || status.Nodes[0].Agents[0].Took == "" {
		t.Errorf("not what is there: %s", stdout)
	}
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "Nothing is claimed of any node.", "The fence agents were not asked: --config")
	if api.Writes != 0 {
		t.Errorf("%d writes, want none", api.Writes)
	}
}

func TestFenceTestFindsWhatIsWrongAndTouchesNoPower(t *testing.T) {
	both := map[string]string{"n1": "1", "n2": "2"}
	tests := []struct {
		name    string
		outlets map[string]string
		more    string
		change  func(*switchboard)
		says    string // empty: nothing is wrong
	}{
		{"nothing", both, "", nil, ""},
		{"a node that no level covers", map[string]string{"n1": "1"}, "", nil, "node n2: no level covers it"},
		{"a wrong password", both, "", func(b *switchboard) { b.write("password", "wrong", 0o600) }, "node n1: agent pdu (level 1): "},
		{"two nodes with one outlet", map[string]string{"n1": "1", "n2": "1"}, "", nil, "it would act on node n2 too"},
		{"a parameter that the metadata do not know", both, ", parameters: {lanpls: \"1\"}", nil, "lanpls"},
		{"a program that is not there", both, "", func(b *switchboard) { os.Remove(filepath.Join(b.dir, "fence_fake")) }, "fencing.levels[0].agents[0]: fence agent pdu: there is no program fence_fake"},
		{"an outlet that is not there", map[string]string{"n1": "1", "n2": "9"}, "", nil, "node n2: agent pdu"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			api, kubeconfig := clitest.NewAPI(t)
			api.AddNode("n1", "uid-1", "boot-1", "i-1")
			api.AddNode("n2", "uid-2", "boot-2", "i-2")
			b := newSwitchboard(t)
			if tt.change != nil {
				tt.change(b)
			}
			code := cli.ExitFailure
			if tt.says == "" {
				code = cli.ExitOK
			}
			stdout, stderr := commandLine(t, code, with([]string{"fence", "test", kubeconfig}, b.flags(tt.outlets, tt.more)...)...)
			if tt.says == "" {
				clitest.Says(t, stdout, "2 nodes can be fenced. No power was touched.", "NODE  LEVEL  AGENT  READS", "ok")
			} else {
				clitest.Says(t, stdout, "Faults:\n- ", tt.says)
				clitest.Says(t, stderr, "not every node could be fenced; no power was touched")
			}
			if strings.Contains(stdout+stderr, "secret") {
				t.Error("a secret is shown")
			}
			if b.reads("1") != "ON" || b.reads("2") != "ON" || api.Writes != 0 {
				t.Errorf("outlets %s and %s, %d writes: want nothing touched", b.reads("1"), b.reads("2"), api.Writes)
			}
		})
	}
}

func TestFenceTestNamesNodesThatAreNotThere(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("worker-1", "uid-1", "boot-1", "i-1")
	b := newSwitchboard(t)
	flags := with(b.flags(map[string]string{"worker-1": "1", "worker-9": "2"}, ""), kubeconfig)
	stdout, _ := commandLine(t, cli.ExitOK, with([]string{"fence", "test"}, flags...)...)
	clitest.Says(t, stdout, "The configuration names node worker-9, and there is no such Node now.")
	stdout, _ = commandLine(t, cli.ExitFailure, with([]string{"fence", "test", "worker-2"}, flags...)...)
	clitest.Says(t, stdout, "there is no Node worker-2; did you mean worker-1?")
}

func TestFenceOffTurnsOffProvesAndOnGivesBack(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1")
	b := newSwitchboard(t)
	flags := with(b.flags(map[string]string{"n1": "1"}, ""), kubeconfig, "--yes")
	stdout, _ := commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1", "--reason=it hangs"}, flags...)...)
	clitest.Says(t, stdout, "Turning node n1 off.", "pdu  status  on", "pdu  off     sent", "pdu  status  off", "Node n1 is off: every agent of level 1 reads off")
	if b.reads("1") != "OFF" {
		t.Error("it has power")
	}
	r := api.Record("n1")
	f := r.Fence(fence.PowerReading, "")
	if f == nil || f.Phase != record.Fenced || f.Actor != "alice" || f.Reason != "it hangs" || f.Machine.NodeUID != "uid-1" {
		t.Fatalf("record %+v, want a fence by alice of that machine", r)
	}
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "fenced (power) by alice", "yes, unless the node shows life", "agents pdu: it hangs", f.ID)

	stdout, _ = commandLine(t, cli.ExitOK, with([]string{"fence", "on", "n1", "--reason=repaired"}, flags...)...)
	clitest.Says(t, stdout, "Node n1 is fenced (power) by alice since ", ": it hangs (fence "+f.ID+").", "pdu  on      sent", "pdu  status  on", "Node n1 is on")
	if b.reads("1") != "ON" || api.Record("n1").Fence(fence.PowerReading, "") != nil {
		t.Error("it has no power, or still counts as fenced")
	}
}

// The node may have come back, died again and been fenced anew, and its volumes moved.
func TestFenceOnLeavesAFenceThatWasNotShown(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1")
	b := newSwitchboard(t)
	rc, err := clientcmd.BuildConfigFromFlags("", strings.TrimPrefix(kubeconfig, "--kubeconfig="))
	if err != nil {
		t.Fatal(err)
	}
	store := record.NewStore(kubernetes.NewForConfigOrDie(rc).CoordinationV1(), "csi-fencepost")
	put := func(id string, update func(context.Context, func(*record.Record) (bool, error)) (*record.Record, error)) {
		t.Helper()
		if _, err := update(t.Context(), func(r *record.Record) (bool, error) {
			r.PutFence(record.Fence{ID: id, Kind: fence.PowerReading, Phase: record.Fenced, Actor: "csi-fencepost d@h", Reason: "dead",
				Machine: record.FencedMachine{NodeUID: "uid-1", BootID: "boot-1"}, StartedAt: "2026-01-02T03:04:05Z"}, "Fence")
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("shown", func(ctx context.Context, f func(*record.Record) (bool, error)) (*record.Record, error) {
		return store.Update(ctx, "n1", f)
	})
	lock, err := store.Lock(t.Context(), "n1", "a sidecar", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		time.Sleep(time.Second) // it waits for the lock
		put("made since", lock.Update)
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	b.write("1", "OFF", 0o600)
	stdout, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "on", "n1", "--reason=repaired", "--yes", kubeconfig}, b.flags(map[string]string{"n1": "1"}, "")...)...)
	<-released
	clitest.Says(t, stdout, "Node n1 is fenced (power) by csi-fencepost d@h since 2026-01-02T03:04:05Z: dead (fence shown).")
	clitest.Says(t, stderr, "fence made since stands now, made by csi-fencepost d@h at 2026-01-02T03:04:05Z")
	if f := api.Record("n1").Fence(fence.PowerReading, ""); f == nil || f.ID != "made since" || strings.Contains(stdout, "sent") {
		t.Errorf("%+v\n%s", f, stdout)
	}
}

func TestFenceOffThatIsNotProvenIsAFailure(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1")
	b := newSwitchboard(t)
	b.write("stuck", "", 0o600)
	stdout, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n1", "--reason=x", "--yes", kubeconfig}, b.flags(map[string]string{"n1": "1"}, "")...)...)
	clitest.Says(t, stdout, "pdu  off     sent")
	clitest.Says(t, stderr, "node n1 is not proven off", "Nothing of it counts as fenced")
	if api.Record("n1").Fence(fence.PowerReading, "") != nil {
		t.Error("it counts as fenced")
	}
}

func TestFenceOffRefusesANodeThatRenewsItsLease(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady)
	b := newSwitchboard(t)
	flags := with(b.flags(map[string]string{"n1": "1"}, ""), kubeconfig, "--yes")
	refused, renewing := make(chan struct{}), make(chan struct{})
	go func() { // whenever the command begins to watch
		defer close(renewing)
		for {
			select {
			case <-refused:
				return
			case <-time.After(300 * time.Millisecond):
				api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady)
			}
		}
	}()
	_, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n1", "--reason=x"}, flags...)...)
	close(refused)
	<-renewing
	clitest.Says(t, stderr, "node n1 is Ready and its kubelet has just renewed its lease: it was not turned off", "--force")
	if b.reads("1") != "ON" {
		t.Error("it was turned off")
	}
	commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1", "--reason=x", "--force"}, flags...)...)
	if b.reads("1") != "OFF" || !api.Record("n1").Fence(fence.PowerReading, "").Forced {
		t.Error("--force did not turn it off, or is not in the record")
	}
}

func TestFenceOffOfANodeThatNobodyCoversSaysSo(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n2", "uid-2", "boot-2", "i-2")
	b := newSwitchboard(t)
	flags := with(b.flags(map[string]string{"n1": "1"}, ""), kubeconfig, "--yes", "--reason=x")
	_, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n2"}, flags...)...)
	clitest.Says(t, stderr, "no level of fence agents covers node n2")
	_, stderr = commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n1"}, flags...)...)
	clitest.Says(t, stderr, "there is no Node n1, and no ledger names a machine of it")
}

func TestALevelThatLacksAnAgentCoversNothing(t *testing.T) {
	b := newSwitchboard(t)
	c, err := config.Parse([]byte("apiVersion: " + config.APIVersion + "\nkind: Configuration\nfencing:\n  levels:\n  - agents:\n" +
		"    - {name: pdu-a, exec: {agent: fence_fake, nodeParameters: {plug: {n1: \"1\"}}}}\n" +
		"    - {name: pdu-b, exec: {agent: fence_gone, nodeParameters: {plug: {n1: \"2\"}}}}\n" +
		"  - agents: [{name: array, csiAddons: {}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	levels, err := sidecar.NewLevels(c, []string{b.dir}, sidecar.DriverSide{})
	if err == nil || !strings.Contains(err.Error(), "fencing.levels[0].agents[1]") {
		t.Errorf("error %v", err)
	}
	if len(levels) != 2 || levels.Covers("n1") {
		t.Errorf("%d levels, and the half of one covers n1: %t", len(levels), levels.Covers("n1"))
	}
}

func TestConfirmWithOverrideIsTheAuditedWayPastADeviceThatReadsOn(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	b := newSwitchboard(t)
	flags := with(b.flags(map[string]string{"n1": "1"}, ""), kubeconfig, "--yes", "--reason=burnt down", "--override-agent=its display is frozen")
	stdout, _ := commandLine(t, cli.ExitOK, with([]string{"fence", "confirm", "n1"}, flags...)...)
	clitest.Says(t, stdout, "! Agent pdu reads it as ON (exit 0: Status: ON).")
	r := api.Record("n1")
	if len(r.Overrides) != 1 || r.Overrides[0].Agent != "pdu" || r.Overrides[0].By != "alice" || r.Overrides[0].Reason != "its display is frozen" || r.Overrides[0].Machine.NodeUID != "uid-1" {
		t.Fatalf("overrides %+v", r.Overrides)
	}
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "agent pdu is wrong", "its display is frozen")
	b.write("1", "OFF\n", 0o600)
	_, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "confirm", "n1"}, flags...)...)
	clitest.Says(t, stderr, "no fence agent reads node n1 as on, so there is none to override")

	stdout, _ = commandLine(t, cli.ExitOK, "fence", "withdraw", "n1", "--reason=wrong rack", kubeconfig)
	clitest.Says(t, stdout, "1 confirmation that node n1 is off", "1 word that an agent of node n1 is wrong")
	if r := api.Record("n1"); len(r.Overrides)+len(r.Confirmations) != 0 {
		t.Errorf("left: %+v", r)
	}
}

func TestWithdrawTakesAFenceBack(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1")
	b := newSwitchboard(t)
	commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1", "--reason=x", "--yes", kubeconfig}, b.flags(map[string]string{"n1": "1"}, "")...)...)
	id := api.Record("n1").Fence(fence.PowerReading, "").ID
	stdout, _ := commandLine(t, cli.ExitOK, "fence", "withdraw", "n1", "--id="+id, "--reason=the wrong outlet", kubeconfig)
	clitest.Says(t, stdout, "Withdrawn: that node n1 is fenced (power) by alice.")
	if f := api.Record("n1").FenceByID(id); f.Phase != record.Void || !strings.Contains(f.Why, "the wrong outlet") {
		t.Errorf("fence %+v, want it void for that", f)
	}
	if b.reads("1") != "OFF" {
		t.Error("a withdrawal gave the power back")
	}
	_, stderr := commandLine(t, cli.ExitFailure, "fence", "withdraw", "n1", "--id="+id, "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "no fence that counts")
}

func TestExplainShowsTheRecordAndTheAgentsOfAHolder(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse)
	b := newSwitchboard(t)
	flags := with(b.flags(map[string]string{"n1": "1"}, ""), kubeconfig)
	stdout, _ := commandLine(t, cli.ExitOK, with([]string{"explain", "pv", "pv-1"}, flags...)...)
	clitest.Says(t, stdout, "fence agents  pdu (level 1) reads on, in ", "Status: ON")
	stdout, _ = commandLine(t, cli.ExitOK, with([]string{"explain", "node", "n1"}, flags...)...)
	clitest.Says(t, stdout, "fence agents  pdu (level 1) reads on", "NotReady", "pv-1    default/data-0  disk.example.com  i-1      publishing")
}

// Where csi-fencepost failover reads the power there is no agent here to be asked.
func TestConfirmOverridesAFailoverThatDoesNotAnswer(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: "+config.APIVersion+"\nkind: Configuration\nfencing: {apart: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	confirm := []string{"fence", "confirm", "n1", kubeconfig, "--yes", "--reason=burnt down", "--override-agent=it is uninstalled", "--config=" + file}
	names := func() string {
		var all []string
		for _, o := range api.Record("n1").Overrides {
			all = append(all, o.Agent)
		}
		return strings.Join(all, " ")
	}
	stdout, _ := commandLine(t, cli.ExitOK, confirm...)
	clitest.Says(t, stdout, "Whatever csi-fencepost failover says or does not say of its power")
	if r := api.Record("n1"); names() != fencer.FailoverAgent || r.Overrides[0].Machine.NodeUID != "uid-1" {
		t.Fatalf("overrides %+v", r.Overrides)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", strings.TrimPrefix(kubeconfig, "--kubeconfig="))
	if err != nil {
		t.Fatal(err)
	}
	store := record.NewStore(kubernetes.NewForConfigOrDie(rest).CoordinationV1(), config.Default().Fencing.Namespace)
	if _, err := store.Update(t.Context(), "n1", func(r *record.Record) (bool, error) {
		r.Ask(record.Question{ID: "q1", Driver: "disk.example.com", Actor: "s", NodeUID: "uid-1"})
		return r.Reply(*r.Question("q1"), record.Answer{State: "on", On: []string{"bmc"}, Why: "agent bmc reads on", Actor: "f"}), nil
	}); err != nil {
		t.Fatal(err)
	}
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "asked whether it is off", "by f: agent bmc reads on")
	commandLine(t, cli.ExitOK, confirm...)
	if names() != fencer.FailoverAgent+" bmc" {
		t.Errorf("overridden: %s", names())
	}
}
