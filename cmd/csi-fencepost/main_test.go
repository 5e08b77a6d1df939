package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
)

// asProgram makes the test binary be csi-fencepost, for the tests that need a
// process of its own: signals, exit codes, logs.
const asProgram = "CSI_FENCEPOST_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// runHere runs a command line that ends before anything is started.
func runHere(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = runProgram(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestWrongSubcommandIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"none":        {nil, "no subcommand is given: one of run, failover, explain, doctor, fence, release, ledger, uninstall, inject, uninject, sanity, completion, version, help"},
		"unknown":     {[]string{"runn"}, `unknown subcommand "runn": one of run,`},
		"flag first":  {[]string{"--csi-address=/csi/csi.sock"}, "csi-fencepost run --csi-address=/csi/csi.sock"},
		"version arg": {[]string{"version", "x"}, "takes no arguments"},
		"help of it":  {[]string{"help", "runn"}, `unknown subcommand "runn"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runHere(t, c.args...)
			if code != cli.ExitUsage {
				t.Errorf("exit code %d, want %d", code, cli.ExitUsage)
			}
			if !strings.Contains(stderr, c.want) {
				t.Errorf("stderr %q does not say %q", stderr, c.want)
			}
			if stdout != "" {
				t.Errorf("an error went to stdout: %q", stdout)
			}
		})
	}
}

func TestHelpNamesEverySubcommand(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		code, stdout, _ := runHere(t, args...)
		if code != cli.ExitOK {
			t.Errorf("%v: exit code %d", args, code)
		}
		for _, c := range commands() {
			if !strings.Contains(stdout, "\n  "+c.Name+" ") {
				t.Errorf("%v: does not name %s", args, c.Name)
			}
		}
	}
}

func TestVersionIsPrintedHoweverItIsAskedFor(t *testing.T) {
	_, want, _ := runHere(t, "version")
	if !strings.HasPrefix(want, "csi-fencepost ") || len(strings.Fields(want)) != 4 {
		t.Fatalf("version printed %q", want)
	}
	for _, args := range [][]string{{"--version"}, {"-version"}, {"run", "--version"}} {
		if code, got, stderr := runHere(t, args...); code != cli.ExitOK || got != want {
			t.Errorf("%v: exit code %d, %q %q", args, code, got, stderr)
		}
	}
}

func TestVersionOfTheLinkerComesFirst(t *testing.T) {
	defer func(old string) { version = old }(version)
	version = "v9.8.7"
	if _, stdout, _ := runHere(t, "version"); !slices.Contains(strings.Fields(stdout), "v9.8.7") {
		t.Errorf("printed %q", stdout)
	}
}

// commandLine runs a whole command line and asserts its exit code.
func commandLine(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	return clitest.Line(t, commands(), want, args...)
}
