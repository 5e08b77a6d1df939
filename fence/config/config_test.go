package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

const head = "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"

// documented is the whole file with its defaults, as the documentation shows it.
const documented = head + `
mode: Enforce                     # Observe: decide, report, forward everything
driver:
  unpublishRevokesAccess: false
evidence:
  outOfServiceTaint: true
  operatorConfirmation: true
  networkFence: true
  cloudShutdownTaint: false       # by itself
  fenceAgentsRemediation: false   # by itself
  selfNodeRemediation: false      # by itself
  nodeDeleted: false
  kubelet: true
fencing:
  namespace: csi-fencepost
  suspectAfter: 0s
  fenceAfter: 0s
  maxConcurrent: 1
  maxUnhealthy: 40%
  powerOn: Never
  pollsPerSecond: 100
  levels: []
failover:
  enabled: false
  offFor: 5s
`

func parse(t *testing.T, text string) *Configuration {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheDocumentedDefaultsAreTheDefaults(t *testing.T) {
	c := parse(t, documented)
	c.Fencing.Levels = nil // written as an empty list
	if !reflect.DeepEqual(c, Default()) {
		t.Errorf("documented %+v\ndefault    %+v", c, Default())
	}
	if c := parse(t, head); !reflect.DeepEqual(c, Default()) {
		t.Errorf("of an empty file: %+v", c)
	}
	if faults := Default().Validate(); len(faults) > 0 {
		t.Errorf("the default is not valid: %v", faults)
	}
}

func TestEveryFieldIsRead(t *testing.T) {
	c := parse(t, head+`
mode: Observe
driver: {unpublishRevokesAccess: true, listsPublishedNodes: true, maxConcurrentCalls: 4}
unpublish: {unfenced: Forward}
evidence: {outOfServiceTaint: false, operatorConfirmation: false, networkFence: false, cloudShutdownTaint: true,
  fenceAgentsRemediation: true, selfNodeRemediation: true, nodeDeleted: true, kubelet: false}
fencing:
  namespace: fences
  suspectAfter: 1m30s
  fenceAfter: 2m
  maxConcurrent: 3
  maxUnhealthy: 5%
  powerOn: WhenMoved
  pollsPerSecond: 7
  levels:
  - agents:
    - name: bmc
      timeout: 5s
      attempts: 3
      poll: 3s
      ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: "10.1.0.11:623", n2: "bmc-2.Example.com:623", n3: "[fd00::11]:623"}}
  - agents:
    - name: pdu
      exec:
        agent: fence_apc_snmp
        parameters: {ip: 10.1.0.2}
        parameterFiles: {password: /etc/p}
        nodeParameters: {port: {n1: "3"}}
    - name: array
      csiAddons: {allowedSubnets: [10.20.0.0/16, "fd00:20::/64"], nodes: {n1: [10.20.0.11, "fd00:20::11"]}}
  - agents:
    - name: array-again
      csiAddons: {nodes: {n1: [10.20.0.11, "fd00:20::11"]}, allowedSubnets: [10.20.0.0/16, "fd00:20::/64"]}
failover: {enabled: true, offFor: 8s}
`)
	array := &CSIAddons{AllowedSubnets: []string{"10.20.0.0/16", "fd00:20::/64"}, Nodes: map[string][]string{"n1": {"10.20.0.11", "fd00:20::11"}}}
	want := Default()
	want.Mode = Observe
	want.Driver = Driver{UnpublishRevokesAccess: true, ListsPublishedNodes: true, MaxConcurrentCalls: 4}
	want.Unpublish.Unfenced = Forward
	want.Evidence = Evidence{CloudShutdownTaint: true, FenceAgentsRemediation: true, SelfNodeRemediation: true, NodeDeleted: true}
	want.Fencing = Fencing{Namespace: "fences", SuspectAfter: Duration{Duration: 90 * time.Second}, FenceAfter: Duration{Duration: 2 * time.Minute},
		MaxConcurrent: 3, MaxUnhealthy: 5, PowerOn: WhenMoved, PollsPerSecond: 7, Levels: []Level{
			{Agents: []Agent{{Name: "bmc", Timeout: Duration{Duration: 5 * time.Second}, Attempts: 3, Poll: Duration{Duration: 3 * time.Second}, IPMI: &IPMI{UsernameFile: "/u", PasswordFile: "/p",
				Nodes: map[string]string{"n1": "10.1.0.11:623", "n2": "bmc-2.Example.com:623", "n3": "[fd00::11]:623"}}}}},
			{Agents: []Agent{
				{Name: "pdu", Timeout: DefaultAgent().Timeout, Attempts: DefaultAgent().Attempts, Exec: &Exec{Agent: "fence_apc_snmp", Parameters: map[string]string{"ip": "10.1.0.2"},
					ParameterFiles: map[string]string{"password": "/etc/p"}, NodeParameters: map[string]map[string]string{"port": {"n1": "3"}}}},
				{Name: "array", Timeout: Duration{Duration: 20 * time.Second}, Attempts: 2, CSIAddons: array},
			}},
			{Agents: []Agent{{Name: "array-again", Timeout: Duration{Duration: 20 * time.Second}, Attempts: 2, CSIAddons: array}}},
		}}
	want.Failover = Failover{Enabled: true, OffFor: Duration{Duration: 8 * time.Second}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if got := c.Storage(); !reflect.DeepEqual(got, array) || Default().Storage() != nil {
		t.Errorf("the driver's own fence: %+v", got)
	}
	if c := parse(t, withAgent("{name: a, csiAddons: {addresses: DriverOnly}}")); c.Storage().Addresses != DriverOnly {
		t.Errorf("addresses: %q", c.Storage().Addresses)
	}
	if c.Fencing.MaxUnhealthy.Share() != 0.05 {
		t.Errorf("share %v", c.Fencing.MaxUnhealthy.Share())
	}
	if p := c.Policy(); p != (fence.Policy{UnpublishRevokesAccess: true, ListsPublishedNodes: true, ForwardUnfenced: true}) {
		t.Errorf("policy %+v", p)
	}
}

func TestRefuseIsTheDefaultPolicy(t *testing.T) {
	if p := Default().Policy(); p != (fence.Policy{}) {
		t.Errorf("policy %+v", p)
	}
	if p := parse(t, head+"unpublish: {unfenced: Refuse}").Policy(); p != (fence.Policy{}) {
		t.Errorf("policy %+v", p)
	}
}

func TestWhatIsWrittenCanBeReadAgain(t *testing.T) {
	text, err := yaml.Marshal(Default())
	if err != nil {
		t.Fatal(err)
	}
	if c := parse(t, string(text)); !reflect.DeepEqual(c, Default()) {
		t.Errorf("%s\nis read as %+v", text, c)
	}
}

func TestFaultsAreNamedByTheirFullPath(t *testing.T) {
	tests := []struct{ name, text, says string }{
		{"unknown field", "fencing: {suspectAftr: 15s}", `unknown field "fencing.suspectAftr"`},
		{"unknown field at the top", "fence: {}", `unknown field "fence"`},
		{"unknown field in a level", "fencing: {levels: [{agents: [{name: a, ipmy: {}}]}]}", `unknown field "fencing.levels[0].agents[0].ipmy"`},
		{"field in another case", "Mode: Observe", `unknown field "Mode"`},
		{"repeated field", "mode: Observe\nmode: Enforce", `key "mode" already set`},
		{"wrong type", "evidence: {nodeDeleted: \"yes\"}", "evidence.nodeDeleted: Invalid type: found string, must be true or false"},
		{"a word that YAML takes for false", "mode: off", "mode: Invalid type: found bool, must be a text in quotes"},
		{"list for a map", "evidence: [nodeDeleted]", "evidence: Invalid type: found array, must be a group of fields"},
		{"map for a list", "fencing: {levels: {agents: []}}", "fencing.levels: Invalid type: found object, must be a list"},
		{"fraction", "fencing: {maxConcurrent: 1.5}", "fencing.maxConcurrent: Invalid type: found number 1.5, must be a whole number"},
		{"mode", "mode: enforce", `mode: Unsupported value: "enforce": supported values: "Enforce", "Observe"`},
		{"no mode", `mode: ""`, "mode: Unsupported value"},
		{"unfenced", "unpublish: {unfenced: Allow}", `unpublish.unfenced: Unsupported value: "Allow"`},
		{"namespace", "fencing: {namespace: Bad_Name}", "fencing.namespace: Invalid value"},
		{"no namespace", `fencing: {namespace: ""}`, "fencing.namespace: Invalid value"},
		{"suspectAfter without unit", "fencing: {suspectAfter: 15}", `fencing.suspectAfter: Invalid value: 15: must be a duration with its unit`},
		{"suspectAfter null", "fencing: {suspectAfter: null}", "fencing.suspectAfter: Invalid value"},
		{"suspectAfter below the kubelet's period", "fencing: {suspectAfter: 10s}", "a kubelet renews its lease every 10s"},
		{"suspectAfter just too small", "fencing: {suspectAfter: 11999ms}", "fencing.suspectAfter"},
		{"suspectAfter for ever", "fencing: {suspectAfter: 15h}", "must be at most 10m"},
		{"fenceAfter too early", "fencing: {fenceAfter: 49s}", `fencing.fenceAfter: Invalid value: "49s": must be 0s (never) or at least 50s`},
		{"fenceAfter negative", "fencing: {fenceAfter: -1s}", "fencing.fenceAfter: Invalid value"},
		{"fenceAfter before suspectAfter", "fencing: {suspectAfter: 2m, fenceAfter: 1m}", "must be longer than suspectAfter"},
		{"maxUnhealthy as a number", "fencing: {maxUnhealthy: 40}", `fencing.maxUnhealthy: Invalid value: must be a percentage`},
		{"maxUnhealthy above all", "fencing: {maxUnhealthy: 101%}", "fencing.maxUnhealthy"},
		{"maxUnhealthy negative", "fencing: {maxUnhealthy: -5%}", "fencing.maxUnhealthy"},
		{"maxUnhealthy broken", "fencing: {maxUnhealthy: 12.5%}", "fencing.maxUnhealthy"},
		{"maxConcurrentCalls", "driver: {maxConcurrentCalls: -1}", "driver.maxConcurrentCalls: Invalid value: -1: must be 0 (no bound) or more"},
		{"maxConcurrent", "fencing: {maxConcurrent: 0}", "fencing.maxConcurrent: Invalid value: 0: must be at least 1"},
		{"fenceAfter without failover", "fencing: {fenceAfter: 50s, levels: [{agents: [{name: a, csiAddons: {}}]}]}", "fencing.fenceAfter: Invalid value: \"50s\": needs failover.enabled"},
		{"poll too often", pollOf("999ms"), `fencing.levels[0].agents[0].poll: Invalid value: "999ms": must be 0s (never) or from 1s to 3s`},
		{"poll too rarely", pollOf("3001ms"), "must be 0s (never) or from 1s to 3s"},
		{"poll negative", pollOf("-2s"), "must be 0s (never) or from 1s to 3s"},
		{"poll in words", pollOf("always"), "fencing.levels[0].agents[0].poll: Invalid value: \"always\": must be a duration"},
		{"poll of what cuts storage", "failover: {enabled: true}\nfencing: {levels: [{agents: [{name: a, poll: 2s, csiAddons: {}}]}]}", "fencing.levels[0].agents[0].poll: Invalid value: \"2s\": is for agents that read the power"},
		{"programs polled within the default budget", programPolled(""), "fencing.pollsPerSecond: Invalid value: 100: must be from 1 to 20 where a program (exec) is polled"},
		{"programs polled more often", programPolled("pollsPerSecond: 21, "), "fencing.pollsPerSecond: Invalid value: 21: must be from 1 to 20"},
		{"poll of Hetzner Cloud", "failover: {enabled: true}\nfencing: {pollsPerSecond: 1, levels: [{agents: [{name: a, poll: 3s, exec: {agent: /usr/sbin/fence_fencepost_hcloud, parameters: {plug: $(PROVIDER_ID)}}}]}]}",
			`fencing.levels[0].agents[0].poll: Invalid value: "3s": is not for Hetzner Cloud`},
		{"poll of a second level alone", "failover: {enabled: true}\nfencing: {pollsPerSecond: 9, levels: [{agents: [{name: a, exec: {agent: x, nodeParameters: {port: {n1: a}}}}]}, {agents: [{name: b, poll: 2s, exec: {agent: x, nodeParameters: {port: {n1: b}}}}]}]}",
			"fencing.levels[1].agents: Forbidden: a level with poll comes before those without"},
		{"poll of half a level", "failover: {enabled: true}\nfencing: {levels: [{agents: [{name: a, poll: 2s, exec: {agent: x, nodeParameters: {port: {n1: a}}}}, {name: b, exec: {agent: x, nodeParameters: {port: {n1: b}}}}]}]}",
			"fencing.levels[0].agents[1].poll: Required value: another agent of this level is polled"},
		{"poll without failover", "fencing: {levels: [{agents: [{name: a, poll: 2s, exec: {agent: x, nodeParameters: {port: {n1: a}}}}]}]}", "fencing.levels: Invalid value: an agent has poll, which needs failover.enabled"},
		{"no polls a second", "fencing: {pollsPerSecond: 0}", "fencing.pollsPerSecond: Invalid value: 0: must be from 1 to 1000"},
		{"more polls than there is time for", "fencing: {pollsPerSecond: 1001}", "fencing.pollsPerSecond: Invalid value: 1001: must be from 1 to 1000"},
		{"offFor negative", "failover: {offFor: -1s}", `failover.offFor: Invalid value: "-1s": must be from 0s to 1m`},
		{"offFor for long", "failover: {offFor: 61s}", "failover.offFor: Invalid value"},
		{"offFor in words", "failover: {offFor: soon}", "failover.offFor: Invalid value: \"soon\": must be a duration"},
		{"powerOn without failover", "fencing: {powerOn: WhenMoved}", "fencing.powerOn: Invalid value: \"WhenMoved\": needs failover.enabled"},
		{"fenceAfter without an agent", "fencing: {fenceAfter: 50s}", "fencing.fenceAfter: Invalid value: \"50s\": needs a fence agent"},
		{"apart, and an agent for power", "fencing: {apart: true, levels: [{agents: [{name: s, csiAddons: {}}, {name: a, exec: {agent: fence_x, nodeParameters: {port: {n1: a}}}}]}]}",
			"fencing.levels[0].agents[1]: Forbidden: fencing.apart: true says that csi-fencepost failover reads and cuts the power of nodes: agent a belongs into its configuration"},
		{"apart, and a BMC", "fencing: {apart: true, levels: [{agents: [{name: b, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: \"10.1.0.11:623\"}}}]}]}",
			"fencing.levels[0].agents[0]: Forbidden: fencing.apart"},
		{"apart, and powered on here", "fencing: {apart: true, powerOn: WhenMoved}\nfailover: {enabled: true}", "fencing.powerOn: Invalid value: \"WhenMoved\": fencing.apart"},
		{"apart in words", "fencing: {apart: \"yes\"}", "fencing.apart: Invalid type"},
		{"powerOn", "fencing: {powerOn: Always}", `fencing.powerOn: Unsupported value: "Always"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(head + tt.text))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error does not say %q:\n%v", tt.says, err)
			}
		})
	}
}

// The commands read such a configuration: they are what moves the records away.
func TestRecordsAreKeptInNoNamespaceOfKubernetes(t *testing.T) {
	for _, ns := range []string{"kube-system", "kube-node-lease", "kube-public", "default"} {
		c := parse(t, head+"fencing: {namespace: "+ns+"}")
		if err := c.CheckRun(); err == nil || !strings.Contains(err.Error(), "docs/use/upgrade.md#records-in-another-namespace says how to move them") {
			t.Errorf("%s: %v", ns, err)
		}
		c.Mode = Observe // writes none
		if err := c.CheckRun(); err != nil {
			t.Errorf("%s in mode Observe: %v", ns, err)
		}
		if err := c.CheckNamespace(); err == nil {
			t.Errorf("%s is put into new manifests", ns)
		}
	}
	for _, ns := range []string{"csi-fencepost", "storage", "kube-system-records"} {
		if err := parse(t, head+"fencing: {namespace: "+ns+"}").CheckRun(); err != nil {
			t.Errorf("%s: %v", ns, err)
		}
	}
}

// pollOf is an agent of the power that is polled so often.
func pollOf(often string) string {
	return "failover: {enabled: true}\nfencing: {levels: [{agents: [{name: a, poll: " + often + ", ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: \"10.1.0.11:623\"}}}]}]}"
}

// programPolled is a program that is polled, with more of the configuration's fencing.
func programPolled(more string) string {
	return "failover: {enabled: true}\nfencing: {" + more + "levels: [{agents: [{name: a, poll: 2s, exec: {agent: x, nodeParameters: {port: {n1: a}}}}]}]}"
}

func TestAProgramIsPolledWithinABudgetOfItsOwn(t *testing.T) {
	parse(t, head+programPolled("pollsPerSecond: 20, "))
}

func TestAnAgentIsPolledFromEverySecondToEveryThree(t *testing.T) {
	for often, want := range map[string]time.Duration{"1s": time.Second, "3s": 3 * time.Second, "0s": 0} {
		if got := parse(t, head+pollOf(often)).Fencing.Levels[0].Agents[0].Poll.Duration; got != want {
			t.Errorf("poll: %s is %s", often, got)
		}
	}
}

func TestTheBoundsThemselvesAreValid(t *testing.T) {
	for _, text := range []string{"{suspectAfter: 12s}", "{suspectAfter: 10m}", "{maxUnhealthy: 0%}", "{maxUnhealthy: 100%}", "{fenceAfter: 0s}", "{fenceAfter: \"0\"}"} {
		if _, err := Parse([]byte(head + "fencing: " + text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// withAgent is a configuration with one agent.
func withAgent(agent string) string {
	return head + "fencing: {levels: [{agents: [" + agent + "]}]}"
}

func TestAnAgentIsRefusedForWhatIsWrongWithIt(t *testing.T) {
	const (
		first = "fencing.levels[0].agents[0]"
		ipmi  = "name: a, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: \"b:623\"}}"
		exec  = "name: a, exec: {agent: fence_x, nodeParameters: {port: {n1: a}}"
	)
	tests := []struct{ name, agent, says string }{
		{"no name", "csiAddons: {}", first + ".name: Required"},
		{"a name that is none", "name: The BMC, csiAddons: {}", first + ".name: Invalid value: \"The BMC\""},
		{"no kind", "name: a", first + ": Invalid value: must have exactly one of ipmi, exec and csiAddons, and has 0"},
		{"two kinds", ipmi + ", csiAddons: {}", "has 2"},
		{"an unknown kind", "name: a, snmp: {}", "unknown field \"" + first + ".snmp\""},
		{"the name twice", "name: a, csiAddons: {}}, {name: a, csiAddons: {}", "agents[1].name: Duplicate value: \"a\""},
		{"timeout 0", "timeout: 0s, " + ipmi, first + ".timeout: Invalid value: \"0s\": must be from 1s to 2m"},
		{"timeout too long", "timeout: 121s, " + ipmi, first + ".timeout"},
		{"timeout without unit", "timeout: 20, " + ipmi, first + ".timeout: Invalid value: 20: must be a duration"},
		{"attempts 0", "attempts: 0, " + ipmi, first + ".attempts: Invalid value: 0: must be from 1 to 10"},
		{"attempts 11", "attempts: 11, " + ipmi, first + ".attempts"},
		{"no files", "name: a, ipmi: {nodes: {n1: \"b:623\"}}", first + ".ipmi.usernameFile: Required"},
		{"no password", "name: a, ipmi: {usernameFile: /u, nodes: {n1: \"b:623\"}}", first + ".ipmi.passwordFile: Required"},
		{"a password for its file", "name: a, ipmi: {usernameFile: /u, passwordFile: hunter2, nodes: {n1: \"b:623\"}}", first + ".ipmi.passwordFile: Invalid value: must be the absolute path"},
		{"a variable of no file", "name: a, ipmi: {usernameFile: /u, passwordFile: /hunter2/$(SYSTEM_UUID), nodes: {n1: \"b:623\"}}", first + ".ipmi.passwordFile: Invalid value: has a variable that is not known"},
		{"no nodes", "name: a, ipmi: {usernameFile: /u, passwordFile: /p}", first + ".ipmi.nodes: Required"},
		{"no port", "name: a, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: b}}", first + ".ipmi.nodes[n1]: Invalid value: \"b\": must be host:port"},
		{"no host", "name: a, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: \":623\"}}", first + ".ipmi.nodes[n1]"},
		{"a port that is none", "name: a, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: \"b:65536\"}}", first + ".ipmi.nodes[n1]"},
		{"a port in words", "name: a, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: \"b:rmcp\"}}", first + ".ipmi.nodes[n1]"},
		{"a node that is none", "name: a, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {N1: \"b:623\"}}", first + ".ipmi.nodes: Invalid value: \"N1\": is no name of a Node"},
		{"no program", "name: a, exec: {nodeParameters: {port: {n1: a}}}", first + ".exec.agent: Required"},
		{"a relative path", "name: a, exec: {agent: ./fence_x, nodeParameters: {port: {n1: a}}}", first + ".exec.agent: Invalid value: \"./fence_x\""},
		{"a path that climbs", "name: a, exec: {agent: /usr/sbin/../bin/sh, nodeParameters: {port: {n1: a}}}", first + ".exec.agent"},
		{"nothing tells nodes apart", "name: a, exec: {agent: fence_x}", first + ".exec.nodeParameters: Required"},
		{"a parameter of no node", "name: a, exec: {agent: fence_x, nodeParameters: {port: {}}}", first + ".exec.nodeParameters[port]: Required"},
		{"an action", exec + ", parameters: {action: hunter2}}", first + ".exec.parameters[action]: Forbidden"},
		{"an action in its old name", exec + ", parameterFiles: {Option: /hunter2}}", first + ".exec.parameterFiles[Option]: Forbidden"},
		{"a method", "name: a, exec: {agent: fence_x, nodeParameters: {method: {n1: cycle}}}", first + ".exec.nodeParameters[method]: Forbidden"},
		{"a key twice", exec + ", parameters: {port: hunter2}}", first + ".exec.nodeParameters[port]: Invalid value: is given in " + first + ".exec.parameters[port] too"},
		{"a key in two spellings", exec + ", parameters: {power-wait: hunter2}, parameterFiles: {power_wait: /p}}", first + ".exec.parameterFiles[power_wait]: Invalid value: is given in"},
		{"a key with more in it", exec + ", parameters: {\"a=1\": hunter2}}", first + ".exec.parameters: Invalid value: \"a=1\""},
		{"a value that goes on", exec + ", parameters: {login: \"hunter2\\naction=reboot\"}}", first + ".exec.parameters[login]: Invalid value: must be one line"},
		{"a node's value that goes on", "name: a, exec: {agent: fence_x, nodeParameters: {port: {n1: \"hunter2\\raction=reboot\"}}}", first + ".exec.nodeParameters[port][n1]: Invalid value: must be one line"},
		{"a subnet that is none", "name: a, csiAddons: {allowedSubnets: [10.20.0.0/33]}", first + ".csiAddons.allowedSubnets[0]: Invalid value: \"10.20.0.0/33\": must be a CIDR block"},
		{"a subnet without a length", "name: a, csiAddons: {allowedSubnets: [10.20.0.1]}", first + ".csiAddons.allowedSubnets[0]: Invalid value: \"10.20.0.1\": must be a CIDR block"},
		{"an address for its subnet", "name: a, csiAddons: {allowedSubnets: [10.20.0.1/16]}", "has bits beyond its length: the block is \"10.20.0.0/16\", the address alone \"10.20.0.1/32\""},
		{"a subnet of IPv4 as IPv6", "name: a, csiAddons: {allowedSubnets: [\"::ffff:10.20.0.0/112\"]}", first + ".csiAddons.allowedSubnets[0]: Invalid value"},
		{"subnets that are no list", "name: a, csiAddons: {allowedSubnets: 10.20.0.0/16}", "allowedSubnets: Invalid type: found string, must be a list"},
		{"addresses of nobody", "name: a, csiAddons: {addresses: InternalIP}", first + ".csiAddons.addresses: Unsupported value: \"InternalIP\": supported values: \"DriverOrNode\", \"DriverOnly\""},
		{"addresses of two", "name: a, csiAddons: {addresses: DriverOnly, nodes: {n1: [10.20.0.11]}}", first + ".csiAddons.addresses: Invalid value: \"DriverOnly\": must be left out where nodes declares"},
		{"addresses of no node", "name: a, csiAddons: {nodes: {}}", first + ".csiAddons.nodes: Required"},
		{"no address of a node", "name: a, csiAddons: {nodes: {n1: []}}", first + ".csiAddons.nodes[n1]: Required"},
		{"addresses of what is no node", "name: a, csiAddons: {nodes: {N1: [10.20.0.11]}}", first + ".csiAddons.nodes: Invalid value: \"N1\": is no name of a Node"},
		{"a network of a node", "name: a, csiAddons: {nodes: {n1: [10.20.0.0/24]}}", first + ".csiAddons.nodes[n1][0]: Invalid value: \"10.20.0.0/24\": must be one IP address"},
		{"a loopback address", "name: a, csiAddons: {nodes: {n1: [127.0.0.1]}}", "127.0.0.1 is loopback"},
		{"a name of a node's address", "name: a, csiAddons: {nodes: {n1: [n1.storage]}}", first + ".csiAddons.nodes[n1][0]: Invalid value: \"n1.storage\": must be one IP address"},
		{"an address of two nodes", "name: a, csiAddons: {nodes: {n1: [10.20.0.11], n2: [\"::ffff:10.20.0.11\"]}}", first + ".csiAddons.nodes[n2][0]: Invalid value: \"::ffff:10.20.0.11\": is an address of node n1 too"},
		{"an address that is not allowed", "name: a, csiAddons: {allowedSubnets: [10.20.0.0/16], nodes: {n1: [10.21.0.11]}}", first + ".csiAddons.nodes[n1][0]: Invalid value: \"10.21.0.11\": is outside " + first + ".csiAddons.allowedSubnets"},
		{"two fences of one driver that differ", "name: a, csiAddons: {}}, {name: b, csiAddons: {addresses: DriverOnly}", "agents[1].csiAddons: Invalid value: must say the same as " + first + ".csiAddons"},
		{"a variable of no parameter's file", exec + ", parameterFiles: {password: /hunter2/$(NODE, login: /$(NODE)/l}}", first + ".exec.parameterFiles[password]: Invalid value: has a variable that is not known in the path of a file: only $(NODE) is"},
		{"a parameter for its file", exec + ", parameterFiles: {password: hunter2}}", first + ".exec.parameterFiles[password]: Invalid value: must be the absolute path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(withAgent("{" + tt.agent + "}")))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error does not say %q:\n%v", tt.says, err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a value is shown: %v", err)
			}
		})
	}
	if _, err := Parse([]byte(head + "fencing: {levels: [{agents: []}]}")); err == nil || !strings.Contains(err.Error(), "fencing.levels[0].agents: Required") {
		t.Errorf("an empty level: %v", err)
	}
	if _, err := Parse([]byte(head + "fencing: {levels: [{agents: [{name: a, csiAddons: {}}]}, {agents: [{name: a, csiAddons: {}}]}]}")); err == nil || !strings.Contains(err.Error(), "fencing.levels[1].agents[0].name: Duplicate") {
		t.Errorf("a name in two levels: %v", err)
	}
}

func TestAVariableTellsNodesApartToo(t *testing.T) {
	parse(t, withAgent("{name: a, exec: {agent: fence_aws, parameters: {plug: $(INSTANCE_ID)}}}"))
}

func TestTheReadmesExampleIsValid(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(readme), "```yaml\nfencing:")
	if example, _, _ = strings.Cut(example, "```"); !found {
		t.Fatal("README.md shows no fencing")
	}
	c := parse(t, head+"fencing:"+example)
	if len(c.Fencing.Levels) != 1 || !c.Failover.Enabled {
		t.Errorf("it says %+v", c)
	}
}

func TestFenceAfterCountsFrom50Seconds(t *testing.T) {
	c := parse(t, head+"failover: {enabled: true}\nfencing: {fenceAfter: 50s, levels: [{agents: [{name: a, csiAddons: {}}]}]}")
	if c.Fencing.FenceAfter.Duration != 50*time.Second {
		t.Errorf("fenceAfter %s", c.Fencing.FenceAfter)
	}
}

func TestFailoverNeedsNoAgentAndNoEnforce(t *testing.T) {
	for _, text := range []string{"failover: {enabled: true}", "mode: Observe\nfailover: {enabled: true}"} {
		if !parse(t, head+text).Failover.Enabled {
			t.Errorf("%s: off", text)
		}
	}
}

func TestAnAgentsParametersAreNotShownInAnyError(t *testing.T) {
	for _, value := range []string{"4711", "[hunter2]", "{hunter2: x}", "hunter2\n        hunter2: ["} {
		text := head + "fencing:\n  levels:\n  - agents:\n    - exec:\n        parameters: {password: " + value + "}\n"
		if _, err := Parse([]byte(text)); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "4711") {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	_, err := Parse([]byte(head + "mode: Lax\nbogus: 1\nfencing: {suspectAfter: 1s, maxUnhealthy: half, bogus: 2, levels: [{}]}"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"mode:", `"bogus"`, `"fencing.bogus"`, "fencing.suspectAfter:", "fencing.maxUnhealthy:", "fencing.levels[0].agents:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in:\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n"); n != 5 {
		t.Errorf("%d lines:\n%v", n+1, err)
	}
}

func TestEnforceNeedsSomethingThatCouldUnblockADeadNode(t *testing.T) {
	const none = "outOfServiceTaint: false, operatorConfirmation: false"
	tests := []struct {
		name, text string
		valid      bool
	}{
		{"nothing", "evidence: {" + none + "}", false},
		{"the taint", "evidence: {operatorConfirmation: false}", true},
		{"an operator", "evidence: {outOfServiceTaint: false}", true},
		{"the cloud", "evidence: {" + none + ", cloudShutdownTaint: true}", true},
		{"NetworkFence, which is on by default", "evidence: {" + none + ", networkFence: true}", false},
		{"kubelets, which are asked by default", "evidence: {" + none + ", kubelet: true}", false},
		{"an agent", "evidence: {" + none + "}\nfencing: {levels: [{agents: [{name: a, csiAddons: {}}]}]}", true},
		{"deleted Nodes", "evidence: {" + none + ", nodeDeleted: true}", true},
		{"a driver that revokes", "evidence: {" + none + "}\ndriver: {unpublishRevokesAccess: true, maxConcurrentCalls: 4}", true},
		{"Refuse, explicitly", "evidence: {" + none + "}\nunpublish: {unfenced: Refuse}", true},
		{"Forward, explicitly", "evidence: {" + none + "}\nunpublish: {unfenced: Forward}", true},
		{"Observe", "evidence: {" + none + "}\nmode: Observe", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(head + tt.text))
			if (err == nil) != tt.valid {
				t.Fatalf("error %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "unpublish.unfenced: Required") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestTheTypeIsCheckedBeforeTheFields(t *testing.T) {
	tests := []struct{ name, text, says string }{
		{"empty", "", "it must begin with apiVersion"},
		{"a comment", "# nothing\n", "it must begin with apiVersion"},
		{"a list", "- a\n", "it must begin with apiVersion"},
		{"a word", "mode", "it must begin with apiVersion"},
		{"no apiVersion", "kind: Configuration", `apiVersion: Required value: must be "csi-fencepost.io/v1alpha1"`},
		{"no kind", "apiVersion: csi-fencepost.io/v1alpha1", `kind: Required value: must be "Configuration"`},
		{"a later version", "apiVersion: csi-fencepost.io/v1\nkind: Configuration\nnew: 1", `apiVersion: Unsupported value: "csi-fencepost.io/v1"`},
		{"another kind", "apiVersion: csi-fencepost.io/v1alpha1\nkind: ConfigMap\ndata: {}", `kind: Unsupported value: "ConfigMap"`},
		{"a number", "apiVersion: 1\nkind: Configuration", "apiVersion: Unsupported value: 1"},
		{"not YAML", "a: b: c", "it is no YAML"},
		{"more after its end", "{apiVersion: csi-fencepost.io/v1alpha1, kind: Configuration}\nmode: Observe\n", "something follows after its end"},
		{"a brace too many", "{}}", "something follows after its end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("error %v, want %q", err, tt.says)
			}
			if strings.Contains(err.Error(), "unknown field") {
				t.Errorf("fields of another type are judged: %v", err)
			}
		})
	}
}

func TestASecondDocumentIsNotIgnored(t *testing.T) {
	if _, err := Parse([]byte(head + "---\nmode: Observe\n")); err == nil || !strings.Contains(err.Error(), "more than one YAML document") {
		t.Fatalf("error %v", err)
	}
	if c := parse(t, "---\n# a comment\n---\n"+head+"mode: Observe\n---\n"); c.Mode != Observe {
		t.Fatalf("mode %s", c.Mode)
	}
}

func TestJSONIsYAML(t *testing.T) {
	if c := parse(t, `{"apiVersion":"csi-fencepost.io/v1alpha1","kind":"Configuration","mode":"Observe"}`); c.Mode != Observe {
		t.Fatalf("mode %s", c.Mode)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, p := range map[string]string{"missing": path, "a folder": dir} {
		if _, err := Load(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", name, err)
		}
	}
	write(head + "bogus: 1")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), `"bogus"`) {
		t.Errorf("error %v", err)
	}
	write(head + strings.Repeat("#", MaxBytes))
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("error %v", err)
	}
	write(documented)
	if _, err := Load(path); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(documented))
	f.Add([]byte(head + "fencing: {suspectAfter: 1h, maxUnhealthy: 7%}"))
	f.Add([]byte(withAgent("{name: a, timeout: 1m, exec: {agent: fence_x, parameters: {a: b}, nodeParameters: {port: {n1: a}}}}")))
	f.Add([]byte(head + "a: &a [*a]"))
	f.Add([]byte("---\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			if c != nil {
				t.Fatal("an error and a configuration")
			}
			return
		}
		if faults := c.Validate(); len(faults) > 0 {
			t.Fatalf("accepted, and not valid: %v", faults)
		}
		again, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(again)
		if err != nil {
			t.Fatalf("written, cannot be read: %v\n%s", err, again)
		}
		c.Fencing.Levels, back.Fencing.Levels = nil, nil // an empty list is left out
		if !reflect.DeepEqual(c, back) {
			t.Fatalf("read %+v, written and read %+v", c, back)
		}
	})
}

func TestAgentsOfTheStorageStayWhereThePowerIsReadApart(t *testing.T) {
	const head = "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"
	for _, text := range []string{
		"fencing: {apart: true, levels: [{agents: [{name: s, csiAddons: {}}]}]}",
		"fencing: {apart: true}\nevidence: {outOfServiceTaint: false, operatorConfirmation: false}", // failover may fence
	} {
		c, err := Parse([]byte(head + text))
		if err != nil || !c.Fencing.Apart {
			t.Errorf("%s: %v", text, err)
		}
	}
	if c, err := Parse([]byte(head + "mode: Enforce\n")); err != nil || c.Fencing.Apart {
		t.Errorf("by default: %v", err)
	}
}
