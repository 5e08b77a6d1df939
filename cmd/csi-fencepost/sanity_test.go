package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
)

// fakeProgram puts a csi-fencepost-sanity into the PATH, and catches what becomes
// of it.
func fakeProgram(t *testing.T) (path string, became *[]string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), sanityProgram)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(path))
	old := replaceProcess
	t.Cleanup(func() { replaceProcess = old })
	became = new([]string)
	replaceProcess = func(path string, args, env []string) error {
		*became = append([]string{path}, args[1:]...)
		return os.ErrPermission
	}
	return path, became
}

func TestSanityBecomesTheProgramThatHasTheSuite(t *testing.T) {
	path, became := fakeProgram(t)
	args := []string{"--csi-address=/csi.sock", "--node-ids=n1,n2", "-o", "json"}
	code, stdout, stderr := runHere(t, append([]string{"sanity"}, args...)...)
	if want := append([]string{path}, args...); !slices.Equal(*became, want) {
		t.Errorf("it became %q, want %q", *became, want)
	}
	// 1 would be the verdict that the driver is not fit.
	if code != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, path+" cannot be run: permission denied") {
		t.Errorf("exit code %d, %q %q", code, stdout, stderr)
	}
}

func TestSanityWithoutItsProgramSaysHowToGetIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, _, stderr := runHere(t, "sanity", "--csi-address=/csi.sock", "--node-ids=n1,n2")
	for _, want := range []string{sanityProgram + " is neither beside", "make build", "go install github.com/csi-fencepost/csi-fencepost/cmd/" + sanityProgram} {
		if code != cli.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %q lacks %q", code, stderr, want)
		}
	}
}

func TestSanityRefusesWrongFlagsWithoutItsProgram(t *testing.T) {
	_, became := fakeProgram(t)
	for args, want := range map[string]string{
		"sanity":                           "--csi-address is missing",
		"sanity --csi-address=/a --roundz": "roundz",
		"sanity writer":                    "--path is missing",
		"sanity writer --path=/a b":        `"b" is no flag`,
	} {
		code, _, stderr := runHere(t, strings.Fields(args)...)
		if code != cli.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
	}
	if len(*became) > 0 {
		t.Errorf("it was run: %q", *became)
	}
}

func TestTheHelpOfSanityNeedsNoProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for args, want := range map[string]string{"sanity --help": "--writer-exec", "help sanity": "--node-ids", "sanity writer --help": "--overwrite"} {
		if code, stdout, stderr := runHere(t, strings.Fields(args)...); code != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Errorf("%s: exit code %d, %q %q", args, code, stdout, stderr)
		}
	}
}

func TestTheWriterIsPartOfThisProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "volume")
	defer func() { stdin = os.Stdin }()
	stdin = strings.NewReader("start {\"volumeId\":\"v\"}\nmark\nstop\n")
	code, stdout, stderr := runHere(t, "sanity", "writer", "--path="+path)
	if code != cli.ExitOK || !strings.Contains(stdout, "started ") || !strings.Contains(stdout, "marked ") || !strings.Contains(stdout, "stopped\n") {
		t.Errorf("exit code %d, %q %q", code, stdout, stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 4096 {
		t.Errorf("%v, %v", info, err)
	}
}
