package main

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
)

func TestWrongExplainIsExitCode2AndSaysWhatIsRight(t *testing.T) {
	for want, args := range map[string][]string{
		"nothing is named; csi-fencepost explain pv NAME":             {"explain"},
		"the PersistentVolume's name is missing":                      {"explain", "pv"},
		"one PersistentVolume at a time, got a, b":                    {"explain", "pv", "a", "b"},
		"the PersistentVolumeClaim's name is missing":                 {"explain", "pvc"},
		"one Node at a time, got a, b":                                {"explain", "node", "a", "b"},
		`"volume" is none of pv, pvc, pod and node`:                   {"explain", "volume", "x"},
		`--output is "xml": it has to be text, json or`:               {"explain", "pv", "a", "-o", "xml"},
		"unknown flag: --frobnicate":                                  {"explain", "pv", "a", "--frobnicate"},
		"--observe is -1s: it has to be between":                      {"explain", "pv", "a", "--observe=-1s"},
		`invalid value "soon" for --observe: it has to be a duration`: {"explain", "pv", "a", "--observe=soon"},
		"--config: ": {"explain", "pv", "a", "--config=/nowhere.yaml"},
		"csi-fencepost explain --help lists the flags":  {"explain", "--no"},
		"fence: no subcommand is given: one of status":  {"fence"},
		`fence: unknown subcommand "kill"`:              {"fence", "kill", "n1"},
		"fence off: --reason is missing":                {"fence", "off", "n1"},
		"fence on: it takes NODE, got 2 arguments":      {"fence", "on", "n1", "n2"},
		"fence off: --config is missing":                {"fence", "off", "n1", "--reason=x", "--yes"},
		"fence off: standard input is no terminal":      {"fence", "off", "n1", "--reason=x"},
		"fence test: --config is missing":               {"fence", "test", "n1"},
		"not an absolute path":                          {"fence", "test", "--agent-dirs=sbin"},
		"every program of the container would be":       {"fence", "test", "--agent-dirs=/"},
		"--override-agent needs --config":               {"fence", "confirm", "n1", "--reason=x", "--yes", "--override-agent=y"},
		"--override-agent is empty":                     {"fence", "confirm", "n1", "--reason=x", "--yes", "--override-agent= "},
		"fence status: it takes one NODE or none":       {"fence", "status", "a", "b"},
		`fence status: --output is "wide"`:              {"fence", "status", "-o", "wide"},
		"fence confirm: it takes NODE, got 0 arguments": {"fence", "confirm"},
		"fence confirm: --reason is missing":            {"fence", "confirm", "n1", "--yes"},
		"is no terminal, so that nobody can be asked":   {"fence", "confirm", "n1", "--reason=x"},
		"fence withdraw: --reason is missing":           {"fence", "withdraw", "n1"},
		"release: it takes pv NAME, got 1 arguments":    {"release", "pv"},
		"release: --node is missing":                    {"release", "pv", "pv-1", "--reason=x"},
		`release: "pvc" cannot be released, only pv`:    {"release", "pvc", "a", "--node=n1", "--reason=x"},
	} {
		stdout, stderr := commandLine(t, cli.ExitUsage, args...)
		clitest.Says(t, stderr, want)
		if stdout != "" {
			t.Errorf("%v: an error went to stdout: %s", args, stdout)
		}
	}
}

func TestHelpOfTheCommandsListsTheirFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--observe": {"explain", "--help"}, "--node-id": {"fence", "confirm", "-h"}, "--id": {"fence", "withdraw", "--help"},
		"--output": {"fence", "status", "--help"}, "--node ": {"release", "--help"}, "fence confirm NODE": {"fence", "--help"},
	} {
		stdout, _ := commandLine(t, cli.ExitOK, args...)
		clitest.Says(t, stdout, want)
	}
}

// Scripts go by the exit code: 1 where something is broken, whatever is only to be looked at.
func TestDoctorEndsWithOneWhereSomethingIsBroken(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "id-1")
	stdout, _ := commandLine(t, cli.ExitOK, "doctor", kubeconfig)
	clitest.Says(t, stdout, "Nothing is broken, 1 to look at.")
	pv := api.AddPV("pv-1", clitest.Entry("id-1", "n1", "uid-1", "boot-1", "publishing"))
	pv.Annotations["csi-fencepost.io/holders"] = "{"
	api.Put("/api/v1/persistentvolumes/pv-1", pv)
	stdout, stderr := commandLine(t, cli.ExitFailure, "doctor", kubeconfig)
	clitest.Says(t, stdout, "1 broken", "csi-fencepost ledger repair pv-1")
	clitest.Says(t, stderr, "doctor: broken: 1 finding")
	stdout, _ = commandLine(t, cli.ExitFailure, "doctor", "-o", "json", kubeconfig)
	clitest.Says(t, stdout, `"grade": "broken"`, `"kind": "DoctorReport"`)
	if api.Writes > 0 {
		t.Errorf("it wrote %d times", api.Writes)
	}
}
