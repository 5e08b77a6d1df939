package scenarios

import (
	"slices"
	"strings"
	"testing"
)

// all scenarios, in the order of the catalogue.
var all = slices.Concat(plain, partitions, failovers, fencedPartitions)

// plain scenarios need nothing but Go.
var plain = slices.Concat(origins[1:], cutOff, everyday, life, holders, crashes, kubelets, calls, field, operators, switched, secrets)

// TestScenario plays each of them with csi-fencepost.
func TestScenario(t *testing.T) { playAll(t, slices.Concat(plain, injected)) }

// TestPartition plays those in which a node's network is cut. They need root.
func TestPartition(t *testing.T) { playAll(t, partitions) }

// TestFailover plays those in which csi-fencepost asks and uses fence agents, and
// moves pods. They need what `make deps` installs.
func TestFailover(t *testing.T) { playAll(t, failovers) }

// TestFailoverPartition plays those that need root besides.
func TestFailoverPartition(t *testing.T) { playAll(t, fencedPartitions) }

func playAll(t *testing.T, scenarios []scenario) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("%s", s.rule)
			t.Logf("outcome: %s", runScenario(t, s, false))
		})
	}
}

// TestScenarioNamesAreUnique keeps two scenarios from sharing a stage.
func TestScenarioNamesAreUnique(t *testing.T) {
	names, stages := map[string]bool{}, map[string]bool{}
	for _, s := range everyStory {
		stage := s.stageName()
		if names[s.name] || stages[stage] || s.rule == "" || strings.ToLower(s.name) != s.name || len(stage) > 14 {
			t.Errorf("scenario %q: its name or its stage's (%q) is taken, too long or not in lower case, or it has no rule", s.name, stage)
		}
		names[s.name], stages[stage] = true, true
	}
}
