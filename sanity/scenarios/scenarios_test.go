package scenarios

import (
	"slices"
	"strings"
	"testing"
)

// all scenarios, in the order of the catalogue.
var all = slices.Concat(cutOff, partitions, everyday, life, holders, crashes, kubelets, calls, operators, switched, secrets)

// TestScenario plays each scenario with csi-fencepost.
func TestScenario(t *testing.T) {
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("%s", s.rule)
			t.Logf("outcome: %s", runScenario(t, s, false))
		})
	}
}

// TestScenarioNamesAreUnique keeps two scenarios from sharing a stage.
func TestScenarioNamesAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, s := range all {
		if names[s.name] || s.rule == "" || strings.ToLower(s.name) != s.name || len(s.name) > 14 {
			t.Errorf("scenario %q: its name is taken, too long or not in lower case, or it has no rule", s.name)
		}
		names[s.name] = true
	}
}
