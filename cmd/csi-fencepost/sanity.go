package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/writer"
)

// sanityProgram has the suite. It is a program of its own because Ginkgo links
// html/template: see linked_test.go.
const sanityProgram = "csi-fencepost-sanity"

// stdin is what a command reads; tests replace it.
var stdin io.Reader = os.Stdin

// replaceProcess becomes another program, which then has the signals, the
// terminal and the exit code; tests replace it.
var replaceProcess = syscall.Exec

// runSanity is `csi-fencepost sanity`. Its errors are exit code 2, whatever they
// are: 1 is the verdict that a driver is not fit.
func runSanity(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "writer" {
		return runWriter(ctx, args[1:], stdout, stderr)
	}
	_, err := setup.Parse(args)
	switch {
	case setup.IsHelp(err):
		setup.PrintHelp(stdout)
		return nil
	case err != nil:
		return cli.Usagef("%s", setup.Explain(err))
	}
	path, err := findSanityProgram()
	if err != nil {
		return err
	}
	err = replaceProcess(path, append([]string{path}, args...), os.Environ())
	return cli.Usagef("sanity: %s cannot be run: %v", path, err)
}

// findSanityProgram looks beside this program, then in the PATH.
func findSanityProgram() (string, error) {
	self, err := os.Executable()
	if err == nil {
		// kubectl-fencepost may be a link.
		for _, at := range []func(string) (string, error){filepath.Abs, filepath.EvalSymlinks} {
			if name, err := at(self); err == nil {
				if path, err := exec.LookPath(filepath.Join(filepath.Dir(name), sanityProgram)); err == nil {
					return path, nil
				}
			}
		}
	}
	path, err := exec.LookPath(sanityProgram)
	if err != nil {
		return "", cli.Usagef("sanity: the program %s is neither beside %s nor in the PATH (the sidecar's image does not have it): make build builds both, or go install github.com/csi-fencepost/csi-fencepost/cmd/%s@latest", sanityProgram, self, sanityProgram)
	}
	return path, nil
}

// runWriter is `csi-fencepost sanity writer`.
func runWriter(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := writer.Parse(args)
	switch {
	case writer.IsHelp(err):
		writer.PrintHelp(stdout)
		return nil
	case err != nil:
		return cli.Usagef("sanity writer: %v; csi-fencepost sanity writer --help lists the flags", err)
	}
	if err := o.Run(ctx, stdin, stdout, stderr); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
