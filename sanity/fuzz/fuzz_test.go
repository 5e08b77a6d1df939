package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryFuzzFunctionIsATarget(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{
		"a/a_test.go":          "package a\nfunc FuzzA(f *testing.F) {}\nfunc TestB(t *testing.T) {}\nfunc (x X) FuzzC() {}\n",
		"a/a.go":               "package a\nfunc FuzzNot() {}\n",
		"b/c/x_test.go":        "package c_test\nfunc FuzzD(f *testing.F) {}\n",
		"bin/x_test.go":        "package x\nfunc FuzzE(f *testing.F) {}\n",
		"a/testdata/x_test.go": "package x\nfunc FuzzF(f *testing.F) {}\n",
	})
	all, err := find(folder, regexp.MustCompile(""))
	if want := []target{{"a", "FuzzA"}, {"b/c", "FuzzD"}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("found %v, %v", all, err)
	}
	some, err := find(folder, regexp.MustCompile("b/c Fuzz"))
	if err != nil || len(some) != 1 {
		t.Errorf("found %v, %v", some, err)
	}
}

// What is read of others has a target each.
func TestWhatIsReadOfOthersIsFuzzed(t *testing.T) {
	all, err := find("../..", regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{
		"fence/config", "fence/ledger", "fence/record", "fence/evidence", "fence/kubelet", "fence/survey", "fence/agent", "fence/agent/program", "fence/agent/ipmi", "fence/printable",
		"fence/fencer", "fence/observe", "fence/failover", "fence/agent/csiaddons",
		"csi", "csi/addons", "proxy/guard", "proxy/statusz", "deploy/inject", "deploy/kustomize", "deploy/policy", "deploy/values",
		"cmd/csi-fencepost-webhook", "cmd/csi-fencepost-agents/contract", "cmd/csi-fencepost-agents/rest", "cmd/csi-fencepost-agents/trust",
		"cmd/csi-fencepost-agents/azure", "cmd/csi-fencepost-agents/ec2", "cmd/csi-fencepost-agents/gce", "cmd/csi-fencepost-agents/hcloud", "cmd/csi-fencepost-agents/openstack", "cmd/csi-fencepost-agents/proxmox", "cmd/csi-fencepost-agents/redfish", "cmd/csi-fencepost-agents/vsphere",
		"cmd/csi-fencepost/run", "cmd/csi-fencepost/explain", "cmd/csi-fencepost/operate", "cmd/csi-fencepost/doctor",
	} {
		if !slices.ContainsFunc(all, func(t target) bool { return t.folder == folder }) {
			t.Errorf("%s reads what others write, and has no fuzz target", folder)
		}
	}
	// Whose words a folder reads besides those of its other targets.
	for _, one := range []struct {
		target
		whose string
	}{
		{target{"csi", "FuzzDriver"}, "a driver's"},
		{target{"cmd/csi-fencepost/explain", "FuzzTenant"}, "a tenant's"},
		{target{"cmd/csi-fencepost/explain", "FuzzSidecar"}, "a driver's pod's"},
		{target{"cmd/csi-fencepost/doctor", "FuzzTenant"}, "a tenant's"},
		{target{"cmd/csi-fencepost/doctor", "FuzzController"}, "a driver's pod's"},
		{target{"fence/failover", "FuzzNode"}, "a Node's"},
		{target{"fence/failover", "FuzzPods"}, "a pod's and a claim's"},
		{target{"cmd/csi-fencepost-webhook", "FuzzHooks"}, "a webhook configuration's"},
	} {
		if !slices.Contains(all, one.target) {
			t.Errorf("%s reads %s words, and there is no %s", one.folder, one.whose, one.name)
		}
	}
}

const sound = `package a
import "testing"
func FuzzSound(f *testing.F) { f.Add("x"); f.Fuzz(func(t *testing.T, s string) {}) }
func FuzzBroken(f *testing.F) { f.Add("x"); f.Fuzz(func(t *testing.T, s string) { if s != "x" { t.Error("no x") } }) }
`

func TestAnInputThatBreaksARuleIsAFailureAndIsCounted(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"go.mod": "module example.com/a\ngo 1.26\n", "a/a_test.go": sound})
	e, err := target{"a", "FuzzSound"}.fuzz(t.Context(), folder, time.Second)
	if err != nil || e.inputs < 2 || e.seconds < 1 {
		t.Errorf("tried %+v, %v", e, err)
	}
	_, err = target{"a", "FuzzBroken"}.fuzz(t.Context(), folder, 10*time.Second)
	if err == nil || !strings.Contains(err.Error(), "no x") {
		t.Errorf("the broken rule says %v", err)
	}
	if _, err := (target{"a", "FuzzNone"}).fuzz(t.Context(), folder, time.Second); err == nil {
		t.Error("a target that does not exist has passed")
	}
}

// The first is what go test printed of a target in which nothing was wrong.
func TestTheRaceAtTheEndOfItsTimeIsNoFailure(t *testing.T) {
	for text, race := range map[string]bool{
		"fuzz: elapsed: 1m15s, execs: 77036 (0/sec), new interesting: 179 (total: 198)\n--- FAIL: FuzzAnswer (75.08s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\ta\t75.156s\n":   true,
		"--- FAIL: FuzzAnswer (75.08s)\n    --- FAIL: FuzzAnswer (0.01s)\n        a_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzAnswer/1\nFAIL\n": false,
		"--- FAIL: FuzzAnswer (75.08s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzAnswer/1\nFAIL\n":                                                          false,
		"--- FAIL: FuzzAnswer (10.08s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n":                                                                              false,
	} {
		if atItsEnd.MatchString(text) != race {
			t.Errorf("%t is wrong for\n%s", !race, text)
		}
	}
}

func TestATargetThatTriesHardlyAnythingHasShownNothing(t *testing.T) {
	for e, few := range map[tried]bool{{}: true, {19, 75}: true, {0, 0.5}: true, {75, 75}: false, {1, 0.5}: false} {
		if e.few() != few {
			t.Errorf("%+v: %t", e, e.few())
		}
	}
}
