package monitoring

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write prometheusrule.yaml anew")

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func readRules(t *testing.T) (raw []byte, rules ruleFile) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(Folder(), "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &struct {
		Groups []map[string]any `json:"groups"`
	}{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, &rules); err != nil {
		t.Fatal(err)
	}
	return raw, rules
}

func TestPromtoolTakesTheRulesAndTheirTestsHold(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		run := exec.Command(Tool(t, "promtool"), args...)
		run.Dir = Folder()
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// An alert that no test has fire could be one that never does.
func TestEveryAlertFiresInATest(t *testing.T) {
	_, rules := readRules(t)
	text, err := os.ReadFile(filepath.Join(Folder(), "alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var tests struct {
		Tests []struct {
			Rules []struct {
				Alert string           `json:"alertname"`
				Fires []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(text, &tests); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, r := range test.Rules {
			fires[r.Alert] = fires[r.Alert] || len(r.Fires) > 0
			silent[r.Alert] = silent[r.Alert] || len(r.Fires) == 0
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if !fires[r.Alert] || !silent[r.Alert] {
				t.Errorf("%s: it has to fire in one test (%t) and be silent in another (%t)", r.Alert, fires[r.Alert], silent[r.Alert])
			}
		}
	}
}

func TestEveryAlertSaysWhatIsWrongAndWhereToReadOn(t *testing.T) {
	_, rules := readRules(t)
	const runbook = "https://github.com/csi-fencepost/csi-fencepost/blob/main/docs/use/runbook.md#alert-"
	severities := regexp.MustCompile(`^(info|warning|critical)$`)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			a := r.Annotations
			if len(a["summary"]) < 20 || len(a["description"]) < 80 || !severities.MatchString(r.Labels["severity"]) {
				t.Errorf("%s lacks a summary, a description or a severity: %v %v", r.Alert, a, r.Labels)
			}
			if want := runbook + strings.ToLower(r.Alert); a["runbook_url"] != want {
				t.Errorf("%s: runbook_url %q, want %q", r.Alert, a["runbook_url"], want)
			}
		}
	}
}

// head is what the Prometheus operator wants around the rules.
const head = `# The rules of alerts.yaml for the Prometheus operator. Written by
# go test ./sanity/monitoring -run PrometheusRule -update
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: csi-fencepost
  labels:
    app.kubernetes.io/name: csi-fencepost
spec:
`

func TestThePrometheusRuleHasTheSameRules(t *testing.T) {
	raw, _ := readRules(t)
	path := filepath.Join(Folder(), "prometheusrule.yaml")
	_, groups, _ := bytes.Cut(raw, []byte("groups:\n"))
	want := head + "  groups:\n"
	for line := range strings.Lines(string(groups)) {
		want += "  " + line
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatal("prometheusrule.yaml is not alerts.yaml's: run go test ./sanity/monitoring -run PrometheusRule -update")
	}
	var wrapped struct {
		Spec map[string]any `json:"spec"`
	}
	var plain map[string]any
	if err := yaml.Unmarshal(got, &wrapped); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, &plain); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(wrapped.Spec, plain) {
		t.Error("the wrapped rules read otherwise than the plain ones")
	}
}
