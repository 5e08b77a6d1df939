package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	fenceprogram "github.com/csi-fencepost/csi-fencepost/fence/agent/program"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

func TestEveryYAMLBlockParses(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "yaml" {
				continue
			}
			count++
			reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(b.text)))
			for {
				document, err := reader.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				var content any
				if err == nil {
					err = yaml.UnmarshalStrict(document, &content)
				}
				if err != nil {
					t.Errorf("%s:%d: %v", p.path, b.line, err)
					break
				}
			}
		}
	}
	if count < 8 {
		t.Errorf("only %d blocks of YAML were found", count)
	}
}

const head = "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n"

// part begins with a field of the configuration.
var part = regexp.MustCompile(`(?m)\A(?:#.*\n)*(mode|driver|unpublish|evidence|fencing|failover):`)

// fragment is a list of fence agents, to go under the agents of a level.
var fragment = regexp.MustCompile(`\A(?:#.*\n)*- name: .*\n(?:  [a-z].*\n)*?  (?:ipmi|exec|csiAddons):`)

// configurations are the blocks of a page that are a configuration, a part of one, or agents
// of one.
func configurations(p *page) (lines []int, texts []string) {
	for _, b := range p.blocks {
		switch {
		case b.language != "yaml":
			continue
		case strings.HasPrefix(b.text, "apiVersion: "+config.APIVersion):
			texts = append(texts, b.text)
		case part.MatchString(b.text):
			texts = append(texts, head+b.text)
		case fragment.MatchString(b.text):
			texts = append(texts, head+"fencing:\n  levels:\n  - agents:\n    "+strings.ReplaceAll(strings.TrimSpace(b.text), "\n", "\n    ")+"\n")
		default:
			continue
		}
		lines = append(lines, b.line)
	}
	return lines, texts
}

func TestEveryConfigurationOnEveryPageIsValid(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		lines, texts := configurations(p)
		for i, text := range texts {
			count++
			if _, err := config.Parse([]byte(text)); err != nil {
				t.Errorf("%s:%d: %v", p.path, lines[i], err)
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d configurations were found", count)
	}
}

func TestTheCheckOfConfigurationsFindsAgentsThatAreWrong(t *testing.T) {
	const right = "# a comment\n- name: a\n  timeout: 60s\n  exec:\n    agent: fence_aws\n    parameters: {plug: $(NODE)}\n- name: b\n  csiAddons: {}\n"
	for text, fault := range map[string]string{
		right: "", strings.Replace(right, "timeout: 60s", "timeout: 3m", 1): "timeout", strings.Replace(right, "name: b", "name: a", 1): "name",
	} {
		_, texts := configurations(&page{blocks: []block{{language: "yaml", text: text}}})
		if len(texts) != 1 {
			t.Fatalf("%d configurations were found in\n%s", len(texts), text)
		}
		if _, err := config.Parse([]byte(texts[0])); (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%v, with\n%s", err, texts[0])
		}
	}
}

func TestTheWholeFileOnThePageHoldsTheDefaults(t *testing.T) {
	_, texts := configurations(mustRead(t, configurationPage))
	c, err := config.Parse([]byte(texts[0]))
	if err != nil {
		t.Fatal(err)
	}
	got, want := mustYAML(t, c), mustYAML(t, config.Default())
	if strings.ReplaceAll(got, "  levels: []\n", "") != want {
		t.Errorf("the page shows\n%s\nthe defaults are\n%s", got, want)
	}
}

func mustYAML(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ours are the programs of csi-fencepost-agents, a module of its own that takes minutes to
// build: of their parameters only package config is asked.
const ours = "fence_fencepost_"

// Each parameter that a page gives to a fence agent is in the metadata of the
// agent that Debian has.
func TestFenceAgentsKnowTheParametersThatThePagesGiveThem(t *testing.T) {
	checked := map[string]bool{}
	for _, name := range []string{"docs/use/evidence.md", "README.md"} {
		p := mustRead(t, name)
		lines, texts := configurations(p)
		for i, text := range texts {
			c, err := config.Parse([]byte(text))
			if err != nil {
				t.Fatalf("%s:%d: %v", name, lines[i], err)
			}
			for _, level := range c.Fencing.Levels {
				for _, a := range level.Agents {
					if a.Exec == nil || strings.HasPrefix(a.Exec.Agent, ours) {
						continue
					}
					checked[a.Exec.Agent] = true
					for _, fault := range wrongParameters(t, a.Exec) {
						t.Errorf("%s:%d: agent %s: %v", name, lines[i], a.Name, fault)
					}
				}
			}
		}
	}
	for _, want := range []string{"fence_redfish", "fence_vmware_rest", "fence_aws", "fence_azure_arm", "fence_gce", "fence_openstack", "fence_apc_snmp"} {
		if !checked[want] {
			t.Errorf("no page configures %s", want)
		}
	}
}

// wrongParameters holds an agent against its metadata. Its devices are not
// asked: a file that is not there, or an unknown instance, comes before that.
func wrongParameters(t *testing.T, e *config.Exec) (faults []error) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("/usr/sbin", e.Agent)); err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	parameters := map[string]string{}
	for name, value := range e.Parameters { // by the name the device would be asked
		parameters[name] = strings.ReplaceAll(value, "$(NODE)", "$(NODE_ID)")
	}
	made, err := fenceprogram.New(fenceprogram.Options{Name: "page", Agent: e.Agent, Parameters: parameters,
		ParameterFiles: e.ParameterFiles, NodeParameters: e.NodeParameters, AcceptSuspended: e.AcceptSuspended})
	if err != nil {
		return []error{err}
	}
	node := "n1"
	if !made.Covers(node) {
		return []error{errors.New("node n1 is not among its nodes")}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, all := made.Check(ctx, agent.Machine{Node: node})
	stopped := false
	for _, err := range all {
		if strings.Contains(err.Error(), "no such file") || strings.Contains(err.Error(), "is not known") {
			stopped = true
			continue
		}
		faults = append(faults, err)
	}
	if !stopped {
		faults = append(faults, errors.New("it has neither a file nor a variable that is missing here, so that its device may have been asked"))
	}
	return faults
}

func TestTheCheckOfParametersFindsWhatIsWrong(t *testing.T) {
	right := config.Exec{Agent: "fence_apc_snmp", Parameters: map[string]string{"ip": "10.1.0.2"},
		ParameterFiles: map[string]string{"password": "/nonexistent/password"}, NodeParameters: map[string]map[string]string{"port": {"n1": "3"}}}
	if faults := wrongParameters(t, &right); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	wrong := right
	wrong.Parameters = map[string]string{"adress": "10.1.0.2"}
	if faults := wrongParameters(t, &wrong); len(faults) != 1 || !strings.Contains(faults[0].Error(), `"adress"`) {
		t.Errorf("%v", faults)
	}
}
